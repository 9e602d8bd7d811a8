//go:build unix

package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// reading are the commands that look into a directory and leave it alone.
var reading = [][]string{
	{"inspect"}, {"inspect", "--json"}, {"recover"}, {"recover", "--json"}, {"recover", "--policy", "point-in-time"}, {"recover", "--remove-kept"},
	{"dump"}, {"dump", "--json"}, {"dump", "--no-records"}, {"cat"}, {"cat", "--json"}, {"cat", "--uncommitted"},
}

// hostile are ways to spoil the directory of a log. Each is tried by itself: no command may hang, follow a name out of the
// directory, change anything, or send to the terminal what it has not made itself.
var hostile = map[string]func(dir string) error{
	"nothing":               func(string) error { return nil },
	"FIFO":                  func(d string) error { return syscall.Mkfifo(filepath.Join(d, "pipe"), 0o644) },
	"FIFO named like a log": func(d string) error { return syscall.Mkfifo(filepath.Join(d, "00000000000000000099.log"), 0o644) },
	"FIFO named like an index": func(d string) error {
		return syscall.Mkfifo(filepath.Join(d, "00000000000000000099.index"), 0o644)
	},
	"FIFO for leader epochs":     func(d string) error { return replaceByFIFO(filepath.Join(d, "leader-epoch-checkpoint")) },
	"FIFO for the state":         func(d string) error { return replaceByFIFO(filepath.Join(d, "oncelog.state")) },
	"directory named like a log": func(d string) error { return os.Mkdir(filepath.Join(d, "00000000000000000099.log"), 0o755) },
	"directory for the index": func(d string) error {
		path := filepath.Join(d, "00000000000000000000.index")
		return firstError(os.Remove(path), os.Mkdir(path, 0o755))
	},
	"link out of the directory": func(d string) error { return os.Symlink("/etc/passwd", filepath.Join(d, "00000000000000000099.log")) },
	"link for the log": func(d string) error {
		path := filepath.Join(d, "00000000000000000000.log")
		return firstError(os.Rename(path, filepath.Join(d, "moved")), os.Symlink("moved", path))
	},
	"link to itself":   func(d string) error { return os.Symlink("loop", filepath.Join(d, "loop")) },
	"unreadable file":  func(d string) error { return os.Chmod(filepath.Join(d, "00000000000000000000.timeindex"), 0) },
	"sparse log":       func(d string) error { return sparse(filepath.Join(d, "00000000000000000099.log"), 1<<40) },
	"sparse index":     func(d string) error { return sparse(filepath.Join(d, "00000000000000000000.index"), 1<<40) },
	"sparse snapshot":  func(d string) error { return sparse(filepath.Join(d, "00000000000000000005.snapshot"), 1<<40) },
	"sparse epochs":    func(d string) error { return sparse(filepath.Join(d, "leader-epoch-checkpoint"), 1<<40) },
	"sparse metadata":  func(d string) error { return sparse(filepath.Join(d, "partition.metadata"), 1<<40) },
	"sparse state":     func(d string) error { return sparse(filepath.Join(d, "oncelog.state"), 1<<40) },
	"sparse side file": func(d string) error { return sparse(filepath.Join(d, "oncelog.producers-00000000000000000005"), 1<<40) },
	"names for a terminal": func(d string) error {
		for _, name := range []string{"\x1b]0;owned\x07", "line\nbreak", "back\rspace", "\x9b31m", "\u202egol", "quote\"d", "\xff\xfe", "00000000000000000000.log\x1b[2J"} {
			if err := os.WriteFile(filepath.Join(d, name), nil, 0o644); err != nil {
				return err
			}
		}
		return nil
	},
	"many files": func(d string) error {
		for i := range 10_000 {
			if err := os.WriteFile(filepath.Join(d, fmt.Sprintf("file-%d", i)), nil, 0o644); err != nil {
				return err
			}
		}
		return nil
	},
	"hard link": func(d string) error {
		return os.Link(filepath.Join(d, "00000000000000000000.log"), filepath.Join(d, "00000000000000000003.log"))
	},
	"offset too large": func(d string) error { return os.WriteFile(filepath.Join(d, "99999999999999999999.log"), nil, 0o644) },
	"index full of ones": func(d string) error {
		return os.WriteFile(filepath.Join(d, "00000000000000000000.index"), []byte(strings.Repeat("\xff", 800)), 0o644)
	},
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func replaceByFIFO(path string) error {
	return firstError(os.Remove(path), syscall.Mkfifo(path, 0o644))
}

func sparse(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	return firstError(f.Truncate(size), f.Close())
}

func TestHostileDirectories(t *testing.T) {
	for name, spoil := range hostile {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, "topic-0")
			must(t, "one\ntwo\nthree\nfour\nfive\n", "append", dir, "--batch", "2", "--producer", "p")
			if err := spoil(dir); err != nil {
				t.Fatal(err)
			}
			before := tree(t, root)
			for _, args := range reading {
				for _, where := range []string{dir, root} {
					r := logtool(t, "", append(args, where)...)
					if r.status < 0 || r.status > exitCannotRun {
						t.Errorf("%q: exit status %d", args, r.status)
					}
					if strings.Contains(r.stdout+r.err, "root:") {
						t.Errorf("%q followed a link out of the directory", args)
					}
					if name == "nothing" && where == dir && r.status != exitHealthy {
						t.Errorf("%q: exit status %d\n%s%s", args, r.status, r.stdout, r.err)
					}
				}
			}
			if after := tree(t, root); !maps.Equal(before, after) {
				t.Error("the directory was changed")
			}
			if r := logtool(t, "", "inspect", dir); problemsExpected(name) && r.status == exitHealthy {
				t.Errorf("inspect finds nothing:\n%s", r.stdout)
			}
		})
	}
}

// problemsExpected tells the spoilt directories that inspect must not call healthy.
func problemsExpected(name string) bool {
	switch name {
	case "nothing", "FIFO", "link to itself", "names for a terminal", "many files", "sparse metadata", "sparse state":
		return false
	case "unreadable file":
		return os.Getuid() != 0 // for root every file can be read
	}
	return true
}

func TestArguments(t *testing.T) {
	dir := t.TempDir()
	file, fifo, empty, odd := filepath.Join(dir, "file"), filepath.Join(dir, "fifo"), filepath.Join(dir, "empty"), filepath.Join(dir, "odd\x1b\n")
	if err := firstError(os.WriteFile(file, []byte("x"), 0o644), syscall.Mkfifo(fifo, 0o644), os.Mkdir(empty, 0o755), os.Mkdir(odd, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, args := range reading {
		for _, arg := range []string{file, fifo, empty, odd, filepath.Join(dir, "missing"), file + "/below", "", "\x00"} {
			r := logtool(t, "", append(args, arg)...)
			want := exitCannotRun
			if args[0] == "recover" && len(args) > 1 && args[1] == "--remove-kept" && (arg == empty || arg == odd) {
				want = exitHealthy
			}
			if r.status != want {
				t.Errorf("%q %q: exit status %d, want %d\n%s%s", args, arg, r.status, want, r.stdout, r.err)
			}
		}
	}
	for _, args := range [][]string{{"recover", "--apply", empty}, {"append", file}, {"append", fifo}, {"recover", "--apply", odd}} {
		if r := logtool(t, "x\n", args...); r.status != exitCannotRun {
			t.Errorf("%q: exit status %d\n%s%s", args, r.status, r.stdout, r.err)
		}
	}
	if left, err := os.ReadDir(empty); err != nil || len(left) != 0 {
		t.Errorf("%v, %v were made in an empty directory", left, err)
	}
}
