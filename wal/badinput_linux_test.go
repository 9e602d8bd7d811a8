package wal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/oncelog/oncelog/internal/kafkadir"
	"github.com/oncelog/oncelog/internal/vfs"
)

const lockVar = "ONCELOG_LOCK_CHILD"

// TestLock_Child is another process: it opens a log, or holds a lock as Java takes it, until its input ends.
func TestLock_Child(t *testing.T) {
	how, path, _ := strings.Cut(os.Getenv(lockVar), ":")
	if how == "" {
		return // it runs in a process of its own
	}
	switch how {
	case "log":
		l, err := Open(context.Background(), path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	case "java":
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Println("holding")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		t.Fatal(err)
	}
}

// holder starts another process that holds something. Killing it is up to the caller; the test does at its end.
func holder(t *testing.T, what string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestLock_Child$", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), lockVar+"="+what)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err = errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "holding\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	return cmd
}

// closedLog makes a log with one record, closed in order, inside a log directory of Kafka.
func closedLog(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "t-0")
	if err := os.WriteFile(filepath.Join(filepath.Dir(dir), kafkadir.PropertiesFile), []byte("version=1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	l := openTest(t, dir, Options{TimestampAfterMax: Never})
	if _, err := l.AppendAsLeader(producerBatch(t, 5, 0, 0, "a"), LeaderAppend{}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// One writer at a time, whoever it is: I22. A reader needs no lock, and a writer that died holds none.
func TestBadInput_SecondWriter(t *testing.T) {
	refused := func(t *testing.T, dir, says string) {
		t.Helper()
		before := treeOf(t, filepath.Dir(dir))
		l, err := Open(context.Background(), dir, Options{})
		if err == nil {
			l.Close()
		}
		if !errors.Is(err, ErrLocked) || !strings.Contains(fmt.Sprint(err), says) {
			t.Errorf("%v, want ErrLocked that says %q", err, says)
		}
		if d := before.difference(treeOf(t, filepath.Dir(dir))); d != "" {
			t.Errorf("%v, and %s", err, d)
		}
		r := openTest(t, dir, Options{ReadOnly: true})
		if end := r.Offsets().LogEnd; end != 1 {
			t.Errorf("a reader beside the writer sees log end %d, want 1", end)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Run("same process", func(t *testing.T) {
		dir := closedLog(t)
		l := openTest(t, dir, Options{})
		refused(t, dir, filepath.Join(dir, lockFile))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		openTest(t, dir, Options{})
	})
	t.Run("another process", func(t *testing.T) {
		dir := closedLog(t)
		other := holder(t, "log:"+dir)
		refused(t, dir, filepath.Join(dir, lockFile))
		if err := other.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		other.Wait()
		openTest(t, dir, Options{})
	})
	t.Run("a broker", func(t *testing.T) {
		dir := closedLog(t)
		path := filepath.Join(filepath.Dir(dir), kafkadir.LockFile)
		other := holder(t, "java:"+path)
		refused(t, dir, path)
		if err := other.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		other.Wait()
		openTest(t, dir, Options{})
	})
	t.Run("a broker comes after us", func(t *testing.T) {
		dir := closedLog(t)
		openTest(t, dir, Options{})
		f, err := os.OpenFile(filepath.Join(filepath.Dir(dir), kafkadir.LockFile), os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
			t.Errorf("the lock of a broker while we write: %v, want that it is refused", err)
		}
	})
}

// asNobody runs f with the rights of a user who owns nothing, in this thread only.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		f()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Setfsuid(65534); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setfsuid(0); err != nil {
			panic(err) // this thread must not go on with the wrong rights
		}
	}()
	f()
}

// Where the user may not write, a log opens for reading only, and the error of an open for writing says where and why.
func TestBadInput_NoRights(t *testing.T) {
	for _, c := range []struct {
		name   string
		locked []string // made unwritable
		mode   fs.FileMode
		reads  bool
	}{
		{"directory that may not be written", []string{"."}, 0o555, true},
		{"file that may not be read", []string{"00000000000000000000.log"}, 0o000, false},
		{"directory that may not be listed", []string{"."}, 0o000, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := closedLog(t)
			for at := dir; at != "/" && at != os.TempDir(); at = filepath.Dir(at) {
				if err := os.Chmod(at, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range c.locked {
				path := filepath.Join(dir, name)
				if err := os.Chmod(path, c.mode); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { os.Chmod(path, 0o755) })
			}
			asNobody(t, func() {
				l, err := Open(context.Background(), dir, Options{manual: true})
				if err == nil {
					l.Close()
				}
				if !errors.Is(err, fs.ErrPermission) || !strings.Contains(fmt.Sprint(err), dir) {
					t.Errorf("open for writing: %v, want one about permission that names %s", err, dir)
				}
				l, err = Open(context.Background(), dir, Options{ReadOnly: true})
				if err == nil {
					_, err = readAll(l)
					err = errors.Join(err, l.Close())
				}
				if c.reads && err != nil || !c.reads && !errors.Is(err, fs.ErrPermission) {
					t.Errorf("open for reading: %v", err)
				}
			})
		})
	}
}

// small mounts a file system of so many bytes.
func small(t *testing.T, bytes int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		t.Skipf("a small file system needs the right to mount: %v", err)
	}
	t.Cleanup(func() {
		// A log that was abandoned keeps its files open, as no process does that has ended.
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// The same on a real file system: no death by SIGBUS, one error for each append while it is full, and then it goes on.
func TestBadInput_FullRealDisk(t *testing.T) {
	for _, mode := range modes {
		for _, kib := range []int{200, 400, 1000} {
			t.Run(fmt.Sprintf("%v/%d KiB", mode, kib), func(t *testing.T) {
				disk := small(t, kib<<10)
				ballast := filepath.Join(disk, "ballast")
				if err := os.WriteFile(ballast, make([]byte, 100<<10), 0o644); err != nil {
					t.Fatal(err)
				}
				dir := filepath.Join(disk, "t-0")
				o := Options{Sync: mode, SegmentBytes: 128 << 10, CheckpointBytes: 64 << 10, IndexIntervalBytes: 512, TimestampAfterMax: Never, manual: true}
				l := openTest(t, dir, o)
				stored, refusals := 0, 0
				appendOne := func() error {
					_, err := l.AppendAsLeader(producerBatch(t, 5, 0, int32(stored), strings.Repeat("x", 900)), LeaderAppend{})
					if err == nil {
						stored++
					}
					return err
				}
				for refusals < 20 && stored < 5000 {
					if err := appendOne(); err == nil {
						continue
					} else if !errors.Is(err, vfs.ErrNoSpace) {
						t.Fatalf("append %d: %v", stored, err)
					}
					refusals++
				}
				if refusals == 0 || l.failure() != nil {
					t.Fatalf("%d batches, %d refusals, failed %v", stored, refusals, l.failure())
				}
				if list, err := readAll(l); err != nil || len(list) != stored {
					t.Errorf("%d batches can be read on a full disk, %d were stored: %v", len(list), stored, err)
				}
				if err := os.Remove(ballast); err != nil {
					t.Fatal(err)
				}
				for range 30 {
					if err := appendOne(); err != nil {
						t.Fatalf("append %d with room again: %v", stored, err)
					}
				}
				abandon(t, l)
				l = openTest(t, dir, o)
				list, err := readAll(l)
				if err != nil || len(list) != stored {
					t.Errorf("%d batches after a kill, %d were acknowledged: %v", len(list), stored, err)
				}
				if r := l.RecoveryReport(); r.Problems() {
					t.Errorf("%v", r.Findings)
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
