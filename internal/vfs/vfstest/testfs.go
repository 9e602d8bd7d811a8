package vfstest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/oncelog/oncelog/internal/vfs"
)

// TestFS checks that a file system keeps the contract of package vfs as far as a running system shows it; what a power
// cut leaves, it cannot see. newFS is called once for each check and returns a file system with an existing empty
// directory in it. The result joins the errors of all checks.
func TestFS(newFS func() (fsys vfs.FS, dir string)) error {
	var all []error
	for _, check := range checks {
		fsys, dir := newFS()
		k := &checker{fsys: fsys, dir: dir}
		check.do(k)
		for _, c := range k.closers {
			c.Close()
		}
		for _, err := range k.errs {
			all = append(all, fmt.Errorf("%s: %w", check.name, err))
		}
	}
	return errors.Join(all...)
}

var checks = []struct {
	name string
	do   func(k *checker)
}{
	{"open", checkOpen},
	{"open what is no file", checkNotRegular},
	{"access", checkAccess},
	{"read and write", checkReadWrite},
	{"closed file", checkClosed},
	{"truncate", checkTruncate},
	{"allocate", checkAllocate},
	{"sync and drop", checkSync},
	{"map", checkMap},
	{"map errors", checkMapErrors},
	{"stat", checkStat},
	{"directory", checkDirectory},
	{"remove", checkRemove},
	{"rename", checkRename},
	{"lock", checkLock},
	{"lock file", checkLockFile},
	{"boot id", checkBootID},
	{"write file", checkWriteFile},
	{"read file", checkReadFile},
}

// checker runs one check. A check goes on after an error where that makes sense.
type checker struct {
	fsys    vfs.FS
	dir     string
	closers []io.Closer
	errs    []error
}

func (k *checker) errorf(format string, args ...any) {
	k.errs = append(k.errs, fmt.Errorf(format, args...))
}

func (k *checker) path(name string) string { return filepath.Join(k.dir, name) }

// ok reports an error and says whether there was none.
func (k *checker) ok(what string, err error) bool {
	if err != nil {
		k.errorf("%s: %w", what, err)
	}
	return err == nil
}

// fails reports an error that is not the wanted one, or that does not carry its path. A nil want accepts any error.
func (k *checker) fails(what string, err, want error) {
	var pathErr *fs.PathError
	var linkErr *os.LinkError
	switch {
	case err == nil:
		k.errorf("%s: no error, want %v", what, want)
	case want != nil && !errors.Is(err, want):
		k.errorf("%s: %v, want %v", what, err, want)
	case !errors.As(err, &pathErr) && !errors.As(err, &linkErr):
		k.errorf("%s: error without a path: %v", what, err)
	}
}

// openFails makes an open that must fail.
func (k *checker) openFails(what, name string, flag int, want error) {
	f, err := k.fsys.OpenFile(k.path(name), flag, 0o644)
	if f != nil {
		f.Close()
	}
	k.fails(what, err, want)
}

// open opens a file, which is closed after the check. It returns nil after an error.
func (k *checker) open(name string, flag int) vfs.File {
	f, err := k.fsys.OpenFile(k.path(name), flag, 0o644)
	if !k.ok("open "+name, err) {
		return nil
	}
	k.closers = append(k.closers, f)
	return f
}

// create makes a file with the given content and returns it open for reading and writing.
func (k *checker) create(name, content string) vfs.File {
	f := k.open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if f == nil {
		return nil
	}
	n, err := f.WriteAt([]byte(content), 0)
	if !k.ok("write "+name, err) || n != len(content) {
		k.errorf("wrote %d bytes of %d", n, len(content))
		return nil
	}
	return f
}

// holds compares a file's whole content as an open file reads it.
func (k *checker) holds(what string, f vfs.File, want []byte) {
	info, err := f.Stat()
	if !k.ok(what, err) {
		return
	}
	if info.Size != int64(len(want)) {
		k.errorf("%s: size %d, want %d", what, info.Size, len(want))
	}
	got := make([]byte, len(want)+1)
	n, err := f.ReadAt(got, 0)
	if err != io.EOF {
		k.errorf("%s: reading over the end: %v, want io.EOF itself", what, err)
	}
	if !bytes.Equal(got[:n], want) {
		k.errorf("%s: content differs from byte %d", what, firstDifference(got[:n], want))
	}
}

// named compares the content that name leads to.
func (k *checker) named(what, name, want string) {
	got, err := vfs.ReadFile(k.fsys, k.path(name), 1<<20)
	if k.ok(what, err) && string(got) != want {
		k.errorf("%s: %s holds %q, want %q", what, name, got, want)
	}
}

// missing checks that there is no such name.
func (k *checker) missing(what, name string) {
	_, err := k.fsys.Stat(k.path(name))
	k.fails(what+": stat of "+name, err, fs.ErrNotExist)
}

func firstDifference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

func checkOpen(k *checker) {
	k.openFails("open of a missing file", "a", os.O_RDWR, fs.ErrNotExist)
	k.openFails("create below a missing directory", "d/a", os.O_RDWR|os.O_CREATE, fs.ErrNotExist)
	f := k.create("a", "content")
	if f == nil {
		return
	}
	if f.Name() != k.path("a") {
		k.errorf("name %q, want %q", f.Name(), k.path("a"))
	}
	k.openFails("exclusive creation of an existing file", "a", os.O_RDWR|os.O_CREATE|os.O_EXCL, fs.ErrExist)
	if again := k.open("a", os.O_RDWR|os.O_CREATE); again != nil {
		k.holds("open with O_CREATE", again, []byte("content"))
	}
	if again := k.open("a", os.O_WRONLY|os.O_CREATE|os.O_TRUNC); again != nil {
		k.named("open with O_TRUNC", "a", "")
	}
	if again := k.open("a", os.O_RDWR|os.O_APPEND); again != nil {
		_, err := again.WriteAt([]byte("x"), 0)
		k.fails("write at an offset with O_APPEND", err, nil)
	}
}

func checkNotRegular(k *checker) {
	if !k.ok("mkdir", k.fsys.MkdirAll(k.path("d"), 0o755)) {
		return
	}
	for _, flag := range []int{os.O_RDONLY, os.O_RDWR, os.O_WRONLY | os.O_CREATE} {
		k.openFails("open of a directory", "d", flag, vfs.ErrNotRegular)
	}
	_, err := k.fsys.Lock(k.path("d"), 0, 1, true)
	k.fails("lock of a directory", err, vfs.ErrNotRegular)
}

func checkAccess(k *checker) {
	if k.create("a", "content") == nil {
		return
	}
	if f := k.open("a", os.O_RDONLY); f != nil {
		_, err := f.WriteAt([]byte("x"), 0)
		k.fails("write to a file opened for reading", err, nil)
		k.fails("cut of a file opened for reading", f.Truncate(0), nil)
		k.fails("reservation in a file opened for reading", f.Allocate(100), nil)
	}
	if f := k.open("a", os.O_WRONLY); f != nil {
		_, err := f.ReadAt(make([]byte, 1), 0)
		k.fails("read of a file opened for writing", err, nil)
	}
	k.named("after refused changes", "a", "content")
}

func checkReadWrite(k *checker) {
	f := k.create("a", "0123456789")
	if f == nil {
		return
	}
	p := make([]byte, 4)
	if n, err := f.ReadAt(p, 2); n != 4 || err != nil || string(p) != "2345" {
		k.errorf("read %d bytes %q, %v", n, p[:n], err)
	}
	if n, err := f.ReadAt(p, 8); n != 2 || err != io.EOF || string(p[:n]) != "89" {
		k.errorf("read over the end: %d bytes %q, %v", n, p[:n], err)
	}
	if n, err := f.ReadAt(p, 1<<40); n != 0 || err != io.EOF {
		k.errorf("read behind the end: %d bytes, %v", n, err)
	}
	if n, err := f.ReadAt(nil, 3); n != 0 || err != nil {
		k.errorf("read of nothing: %d bytes, %v", n, err)
	}
	_, err := f.ReadAt(p, -1)
	k.fails("read before the start", err, nil)
	_, err = f.WriteAt(p, -1)
	k.fails("write before the start", err, nil)

	if n, err := f.WriteAt(nil, 5000); n != 0 || err != nil {
		k.errorf("write of nothing: %d bytes, %v", n, err)
	}
	if n, err := f.WriteAt([]byte("far"), 5000); n != 3 || err != nil {
		k.errorf("write behind the end: %d bytes, %v", n, err)
	}
	want := make([]byte, 5003)
	copy(want, "0123456789")
	copy(want[5000:], "far")
	k.holds("after a write behind the end", f, want)
	if other := k.open("a", os.O_RDONLY); other != nil {
		k.holds("through another open file", other, want)
	}

	// Offsets that do not fit into 32 bits.
	const far = 5 << 30
	if n, err := f.WriteAt([]byte("end"), far); n != 3 || err != nil {
		k.errorf("write at 5 GiB: %d bytes, %v", n, err)
		return
	}
	if n, err := f.ReadAt(p[:3], far); n != 3 || err != nil && err != io.EOF || string(p[:3]) != "end" {
		k.errorf("read at 5 GiB: %d bytes %q, %v", n, p[:n], err)
	}
	if info, err := f.Stat(); err != nil || info.Size != far+3 {
		k.errorf("size %d, %v", info.Size, err)
	}
	k.ok("cut from 5 GiB", f.Truncate(0))
}

func checkClosed(k *checker) {
	f := k.create("a", "content")
	if f == nil || !k.ok("close", f.Close()) {
		return
	}
	_, err := f.ReadAt(make([]byte, 1), 0)
	k.fails("read", err, fs.ErrClosed)
	_, err = f.WriteAt(make([]byte, 1), 0)
	k.fails("write", err, fs.ErrClosed)
	_, err = f.Stat()
	k.fails("stat", err, fs.ErrClosed)
	_, err = f.Map(1, false)
	k.fails("map", err, fs.ErrClosed)
	k.fails("truncate", f.Truncate(0), fs.ErrClosed)
	k.fails("allocate", f.Allocate(1), fs.ErrClosed)
	k.fails("sync of data", f.SyncData(), fs.ErrClosed)
	k.fails("sync", f.Sync(), fs.ErrClosed)
	k.fails("close", f.Close(), fs.ErrClosed)
	if f.Name() != k.path("a") {
		k.errorf("name %q", f.Name())
	}
}

func checkTruncate(k *checker) {
	f := k.create("a", "0123456789")
	if f == nil {
		return
	}
	k.ok("cut", f.Truncate(4))
	k.holds("cut", f, []byte("0123"))
	k.ok("grow", f.Truncate(9000))
	want := make([]byte, 9000)
	copy(want, "0123")
	k.holds("cut and grown", f, want)
	k.fails("negative size", f.Truncate(-1), nil)
	k.ok("cut to nothing", f.Truncate(0))
	k.holds("cut to nothing", f, nil)
}

func checkAllocate(k *checker) {
	f := k.create("a", "0123456789")
	if f == nil {
		return
	}
	k.ok("allocate", f.Allocate(10000))
	want := make([]byte, 10000)
	copy(want, "0123456789")
	k.holds("allocated", f, want)
	k.ok("allocate less", f.Allocate(5))
	k.ok("allocate nothing", f.Allocate(0))
	k.holds("allocated less", f, want)
	k.ok("grow", f.Truncate(20000))
	k.ok("allocate a hole", f.Allocate(20000))
	k.holds("allocated a hole", f, append(want, make([]byte, 10000)...))
	k.fails("negative size", f.Allocate(-1), nil)
}

func checkSync(k *checker) {
	f := k.create("a", "0123456789")
	if f == nil {
		return
	}
	drop := func(off, n int64) {
		if err := f.DropCache(off, n); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			k.errorf("drop of the cache: %w", err)
		}
	}
	drop(0, 0)
	k.ok("sync of data", f.SyncData())
	drop(0, 0)
	k.ok("sync", f.Sync())
	drop(3, 4)
	k.holds("after syncs and drops", f, []byte("0123456789"))
	k.fails("drop at a negative offset", f.DropCache(-1, 0), nil)
	k.fails("drop of a negative length", f.DropCache(0, -1), nil)
	k.ok("sync of the directory", k.fsys.SyncDir(k.dir))
	k.fails("sync of a missing directory", k.fsys.SyncDir(k.path("d")), fs.ErrNotExist)
	k.fails("sync of a file as a directory", k.fsys.SyncDir(k.path("a")), nil)
	if other := k.open("a", os.O_RDONLY); other != nil {
		k.ok("sync of a file opened for reading", other.Sync())
	}
}
