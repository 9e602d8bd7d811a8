package vfstest

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
)

func TestTestFS_os(t *testing.T) {
	err := TestFS(func() (vfs.FS, string) { return vfs.OS, t.TempDir() })
	if err != nil {
		t.Fatal(err)
	}
}

func TestTestFS_mem(t *testing.T) {
	err := TestFS(func() (vfs.FS, string) {
		m := NewMem()
		must(t, m.MkdirAll("/some/dir", 0o755))
		return m, "/some/dir"
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTestFS_crashed(t *testing.T) {
	for _, mode := range []CrashMode{Kill, AllLost, AllKept, PowerCut} {
		err := TestFS(func() (vfs.FS, string) {
			m := NewMem()
			must(t, m.MkdirAll("/some/dir", 0o755))
			m.SyncAll()
			return m.Crash(CrashOptions{Mode: mode, Seed: 7}), "/some/dir"
		})
		if err != nil {
			t.Fatalf("%v: %v", mode, err)
		}
	}
}

func TestTestFS_injected(t *testing.T) {
	var count Count
	err := TestFS(func() (vfs.FS, string) {
		m := NewMem()
		must(t, m.MkdirAll("/some/dir", 0o755))
		return Inject(m, &count), "/some/dir"
	})
	if err != nil {
		t.Fatal(err)
	}
	for k := range kinds {
		if count.Of(k) == 0 {
			t.Errorf("the conformance test makes no %v", k)
		}
	}
}

// faulty breaks one rule of the contract at a time.
type faulty struct {
	vfs.FS
	rule string
}

func (f faulty) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	if f.rule == "O_EXCL is ignored" {
		flag &^= vfs.O_EXCL
	}
	file, err := f.FS.OpenFile(name, flag, perm)
	var pathErr *fs.PathError
	if f.rule == "errors have no path" && errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	if err != nil {
		return nil, err
	}
	return faultyFile{file, f.rule}, nil
}

func (f faulty) ReadDir(dir string) ([]vfs.DirEntry, error) {
	list, err := f.FS.ReadDir(dir)
	if f.rule == "order of names" && len(list) > 1 {
		list[0], list[1] = list[1], list[0]
	}
	return list, err
}

func (f faulty) Rename(oldname, newname string) error {
	if f.rule == "rename over a file" {
		if _, err := f.FS.Stat(newname); err == nil {
			return &fs.PathError{Op: "rename", Path: newname, Err: fs.ErrExist}
		}
	}
	return f.FS.Rename(oldname, newname)
}

type faultyFile struct {
	vfs.File
	rule string
}

func (f faultyFile) Allocate(size int64) error {
	if f.rule == "allocate shrinks" {
		return f.Truncate(size)
	}
	return f.File.Allocate(size)
}

func (f faultyFile) Map(length int, writable bool) (vfs.Mapping, error) {
	m, err := f.File.Map(length, writable)
	if err != nil {
		return nil, err
	}
	return faultyMapping{m, append([]byte(nil), m.Bytes()...), f.rule}, nil
}

type faultyMapping struct {
	vfs.Mapping
	private []byte
	rule    string
}

func (m faultyMapping) Bytes() []byte {
	if m.rule == "private mapping" {
		return m.private
	}
	return m.Mapping.Bytes()
}

func TestTestFS_findsFaults(t *testing.T) {
	for _, rule := range []string{
		"O_EXCL is ignored", "errors have no path", "order of names", "rename over a file", "allocate shrinks",
		"private mapping", "",
	} {
		err := TestFS(func() (vfs.FS, string) {
			m := NewMem()
			must(t, m.MkdirAll("/some/dir", 0o755))
			return faulty{m, rule}, "/some/dir"
		})
		if (err == nil) != (rule == "") {
			t.Errorf("broken rule %q: %v", rule, err)
		}
	}
}
