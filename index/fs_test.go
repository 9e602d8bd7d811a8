package index

import (
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	p, err := hex.DecodeString(strings.NewReplacer(" ", "", "\n", "", "\t", "", "|", "").Replace(s))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantIs(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("got error %v, want %v", err, target)
	}
}

// osPath returns the path of a file that does not exist, in a directory of the operating system.
func osPath(t testing.TB) string { return filepath.Join(t.TempDir(), "00000000000000000100.index") }

func openOffset(t testing.TB, fsys vfs.FS, path string, base int64, c Config) *Offset {
	t.Helper()
	x, err := OpenOffset(fsys, path, base, c)
	ok(t, err)
	t.Cleanup(func() { ok(t, x.Close()) })
	return x
}

func openTime(t testing.TB, fsys vfs.FS, path string, base int64, c Config) *Time {
	t.Helper()
	x, err := OpenTime(fsys, path, base, c)
	ok(t, err)
	t.Cleanup(func() { ok(t, x.Close()) })
	return x
}

func openTxn(t testing.TB, fsys vfs.FS, path string, base int64, c Config) *Txn {
	t.Helper()
	x, err := OpenTxn(fsys, path, base, c)
	ok(t, err)
	t.Cleanup(func() { ok(t, x.Close()) })
	return x
}

// put replaces the file's content.
func put(t testing.TB, fsys vfs.FS, path string, p []byte) {
	t.Helper()
	f, err := fsys.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	ok(t, err)
	ok(t, f.Truncate(0))
	if len(p) > 0 {
		_, err = f.WriteAt(p, 0)
		ok(t, err)
	}
	ok(t, f.Close())
}

// get returns the file's content, nil if there is no file.
func get(t testing.TB, fsys vfs.FS, path string) []byte {
	t.Helper()
	p, err := vfs.ReadFile(fsys, path, 64<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	ok(t, err)
	return p
}

// onEach runs a test on each file system.
func onEach(t *testing.T, test func(t *testing.T, fsys vfs.FS, path string)) {
	for name, open := range fileSystems {
		t.Run(name, func(t *testing.T) {
			fsys, dir := open(t)
			test(t, fsys, filepath.Join(dir, "00000000000000000100.index"))
		})
	}
}

var fileSystems = map[string]func(t testing.TB) (vfs.FS, string){
	"os": func(t testing.TB) (vfs.FS, string) { return vfs.OS, t.TempDir() },
	"mem": func(t testing.TB) (vfs.FS, string) {
		m := vfstest.NewMem()
		t.Cleanup(func() {
			if s := m.SparseStores(); len(s) > 0 {
				t.Errorf("stores into space that was not reserved: %v", s)
			}
		})
		return m, "/"
	},
}

// hooked is a file system whose operations on files can be made to fail.
type hooked struct {
	vfs.FS
	mu   sync.Mutex
	hook func(op string, n int64) error
}

// fail sets the function that decides about each operation: its name and the size or number of bytes it is about.
func (h *hooked) fail(hook func(op string, n int64) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hook = hook
}

func (h *hooked) ask(op string, n int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hook == nil {
		return nil
	}
	return h.hook(op, n)
}

func (h *hooked) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	if err := h.ask("open", 0); err != nil {
		return nil, err
	}
	f, err := h.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &hookedFile{f, h}, nil
}

type hookedFile struct {
	vfs.File
	h *hooked
}

func (f *hookedFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.h.ask("read", int64(len(p))); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

// WriteAt writes half of the bytes before it fails, as a full disk may.
func (f *hookedFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.h.ask("write", int64(len(p))); err != nil {
		n, _ := f.File.WriteAt(p[:len(p)/2], off)
		return n, err
	}
	return f.File.WriteAt(p, off)
}

func (f *hookedFile) Stat() (vfs.Info, error) {
	if err := f.h.ask("stat", 0); err != nil {
		return vfs.Info{}, err
	}
	return f.File.Stat()
}

func (f *hookedFile) Truncate(size int64) error {
	if err := f.h.ask("truncate", size); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *hookedFile) Allocate(size int64) error {
	if err := f.h.ask("allocate", size); err != nil {
		return err
	}
	return f.File.Allocate(size)
}

func (f *hookedFile) SyncData() error {
	if err := f.h.ask("sync", 0); err != nil {
		return err
	}
	return f.File.SyncData()
}

func (f *hookedFile) Sync() error {
	if err := f.h.ask("fsync", 0); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *hookedFile) Map(length int, writable bool) (vfs.Mapping, error) {
	if err := f.h.ask("map", int64(length)); err != nil {
		return nil, err
	}
	m, err := f.File.Map(length, writable)
	if err != nil {
		return nil, err
	}
	return &hookedMap{m, f.h}, nil
}

type hookedMap struct {
	vfs.Mapping
	h *hooked
}

func (m *hookedMap) Close() error {
	if err := m.h.ask("unmap", 0); err != nil {
		return err
	}
	return m.Mapping.Close()
}
