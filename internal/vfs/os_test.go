package vfs

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t testing.TB, name string) File {
	t.Helper()
	f, err := OS.OpenFile(name, O_RDWR|O_CREATE, 0o644)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func TestOpenFile_link(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	must(t, os.WriteFile(target, []byte("content"), 0o644))
	if err := os.Symlink(target, link); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	for _, flag := range []int{O_RDONLY, O_RDWR, O_RDWR | O_CREATE, O_WRONLY | O_TRUNC} {
		if _, err := OS.OpenFile(link, flag, 0o644); !errors.Is(err, ErrNotRegular) {
			t.Errorf("flags %#x: %v, want ErrNotRegular", flag, err)
		}
	}
	if _, err := OS.OpenFile(link, O_RDWR|O_CREATE|O_EXCL, 0o644); !errors.Is(err, fs.ErrExist) {
		t.Errorf("exclusive creation: %v, want fs.ErrExist", err)
	}
	if _, err := OS.Lock(link, 0, 1, true); !errors.Is(err, ErrNotRegular) {
		t.Errorf("lock: %v, want ErrNotRegular", err)
	}
	if got, _ := os.ReadFile(target); string(got) != "content" {
		t.Errorf("target of the link holds %q", got)
	}
	info, err := OS.Stat(link)
	if err != nil || info.Kind != Symlink || info.Size != 0 {
		t.Errorf("stat: %+v, %v", info, err)
	}
	list, err := OS.ReadDir(dir)
	if err != nil || len(list) != 2 || list[0].Kind != Symlink || list[1].Kind != Regular {
		t.Errorf("list: %v, %v", list, err)
	}

	// A link as temporary file goes; what it leads to stays.
	must(t, os.Symlink(target, filepath.Join(dir, "a"+TempSuffix)))
	must(t, WriteFileAtomic(OS, filepath.Join(dir, "a"), 0o640, []byte("new")))
	if got, _ := os.ReadFile(target); string(got) != "content" {
		t.Errorf("target of the link holds %q after an atomic write", got)
	}
}

func TestWriteFileAtomic_permissions(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("windows has no permission bits")
	}
	name := filepath.Join(t.TempDir(), "a")
	must(t, os.WriteFile(name+TempSuffix, nil, 0o777))
	must(t, WriteFileAtomic(OS, name, 0o600, []byte("secret")))
	info, err := os.Stat(name)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("permissions %v", info.Mode())
	}
}

// failingFS fails one step of an atomic write.
type failingFS struct {
	FS
	step string
}

var errStep = errors.New("step fails")

func (f failingFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	file, err := f.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return failingFile{file, f.step}, nil
}

func (f failingFS) Rename(oldname, newname string) error {
	switch f.step {
	case "rename":
		return errStep
	case "rename done":
		return errors.Join(f.FS.Rename(oldname, newname), errStep)
	}
	return f.FS.Rename(oldname, newname)
}

func (f failingFS) SyncDir(dir string) error {
	if f.step == "syncdir" {
		return errStep
	}
	return f.FS.SyncDir(dir)
}

type failingFile struct {
	File
	step string
}

func (f failingFile) WriteAt(p []byte, off int64) (int, error) {
	if f.step == "write" {
		n, _ := f.File.WriteAt(p[:len(p)/2], off)
		return n, errStep
	}
	return f.File.WriteAt(p, off)
}

func (f failingFile) Sync() error {
	if f.step == "sync" {
		return errStep
	}
	return f.File.Sync()
}

func (f failingFile) Close() error {
	if f.step == "close" {
		return errors.Join(f.File.Close(), errStep)
	}
	return f.File.Close()
}

func TestWriteFileAtomic_errors(t *testing.T) {
	for step, want := range map[string]string{
		"write": "old", "sync": "old", "close": "old", "rename": "old", "rename done": "new", "syncdir": "new",
	} {
		name := filepath.Join(t.TempDir(), "a")
		must(t, os.WriteFile(name, []byte("old"), 0o644))
		if err := WriteFileAtomic(failingFS{OS, step}, name, 0o644, []byte("new")); !errors.Is(err, errStep) {
			t.Errorf("%s: %v", step, err)
		}
		if got, _ := os.ReadFile(name); string(got) != want {
			t.Errorf("%s: file holds %q, want %q", step, got, want)
		}
		if _, err := os.Stat(name + TempSuffix); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: temporary file is left: %v", step, err)
		}
	}
}

// growingFile has more bytes than Stat said.
type growingFile struct{ File }

func (growingFile) Stat() (Info, error) { return Info{Size: 3}, nil }

func TestReadFile_growing(t *testing.T) {
	f := create(t, filepath.Join(t.TempDir(), "a"))
	if _, err := f.WriteAt([]byte("more than three bytes"), 0); err != nil {
		t.Fatal(err)
	}
	if got, err := readAll(growingFile{f}, 10); err == nil {
		t.Errorf("read %q of a file that grew meanwhile", got)
	}
}

func TestReadFile_sparse(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a")
	if err := create(t, name).Truncate(1 << 40); err != nil {
		t.Skipf("no sparse files here: %v", err)
	}
	if _, err := ReadFile(OS, name, 1<<20); !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), name) {
		t.Errorf("a file of 1 TiB: %v", err)
	}
}

func TestWriteZeros(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "a"))
	must(t, err)
	defer f.Close()
	_, err = f.WriteString("data")
	must(t, err)
	must(t, writeZeros(f, 4, 3*zeroStep+5))
	must(t, writeZeros(f, 10, 10))
	must(t, writeZeros(f, 10, 4))
	got, err := os.ReadFile(f.Name())
	must(t, err)
	if want := append([]byte("data"), make([]byte, 3*zeroStep+1)...); !bytes.Equal(got, want) {
		t.Errorf("%d bytes, want %d", len(got), len(want))
	}
}

func TestMapping_concurrentFlushAndClose(t *testing.T) {
	f := create(t, filepath.Join(t.TempDir(), "a"))
	must(t, f.Allocate(1<<16))
	for range 50 {
		m, err := f.Map(1<<16, true)
		must(t, err)
		m.Bytes()[0]++
		done := make(chan error)
		go func() { done <- m.Flush() }()
		must(t, m.Close())
		if err := <-done; err != nil && !errors.Is(err, fs.ErrClosed) {
			t.Fatal(err)
		}
		if m.Bytes() != nil {
			t.Fatal("a closed mapping shows bytes")
		}
	}
}
