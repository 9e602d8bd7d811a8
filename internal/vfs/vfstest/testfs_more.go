package vfstest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/oncelog/oncelog/internal/vfs"
)

func checkMap(k *checker) {
	f := k.create("a", "0123456789")
	if f == nil {
		return
	}
	k.ok("grow", f.Allocate(20000))
	w, err := f.Map(20000, true)
	if !k.ok("map for writing", err) {
		return
	}
	r, err := f.Map(5000, false)
	if !k.ok("second map", err) {
		return
	}
	want := make([]byte, 20000)
	copy(want, "0123456789")
	if len(w.Bytes()) != 20000 || len(r.Bytes()) != 5000 || !bytes.Equal(w.Bytes(), want) {
		k.errorf("mapped %d and %d bytes, or wrong ones", len(w.Bytes()), len(r.Bytes()))
		return
	}
	copy(w.Bytes()[3:], "stored")
	copy(w.Bytes()[19990:], "last bytes")
	copy(want[3:], "stored")
	copy(want[19990:], "last bytes")
	k.holds("after stores", f, want)
	if !bytes.Equal(r.Bytes(), want[:5000]) {
		k.errorf("a second mapping does not show stores")
	}
	_, err = f.WriteAt([]byte("written"), 4090)
	k.ok("write below a mapping", err)
	copy(want[4090:], "written")
	if !bytes.Equal(w.Bytes(), want) || !bytes.Equal(r.Bytes(), want[:5000]) {
		k.errorf("a mapping does not show a write")
	}
	k.ok("flush", w.Flush())
	k.ok("flush of a mapping for reading", r.Flush())
	k.ok("grow under mappings", f.Truncate(70000))
	w.Bytes()[0] = 'x'
	want[0] = 'x'
	want = append(want, make([]byte, 50000)...)
	k.holds("grown under mappings", f, want)

	// A mapping outlives its file, and stores outlive the mapping.
	k.ok("close of the file", f.Close())
	w.Bytes()[1] = 'y'
	want[1] = 'y'
	k.ok("flush after close of the file", w.Flush())
	k.ok("close", w.Close())
	k.ok("close", r.Close())
	k.fails("second close", w.Close(), fs.ErrClosed)
	k.fails("flush after close", w.Flush(), fs.ErrClosed)
	if again := k.open("a", os.O_RDWR); again != nil {
		k.holds("after unmapping", again, want)
		k.ok("cut after unmapping", again.Truncate(2))
		k.holds("cut after unmapping", again, []byte("xy"))
	}
}

func checkMapErrors(k *checker) {
	f := k.create("a", "0123456789")
	if f == nil {
		return
	}
	try := func(what string, f vfs.File, length int, writable bool, want error) {
		m, err := f.Map(length, writable)
		if err == nil {
			m.Close()
		}
		k.fails(what, err, want)
	}
	try("map of nothing", f, 0, false, fs.ErrInvalid)
	try("map of a negative length", f, -1, false, fs.ErrInvalid)
	try("map of more than there is", f, 11, true, fs.ErrInvalid)
	if r := k.open("a", os.O_RDONLY); r != nil {
		try("map for writing of a file opened for reading", r, 10, true, fs.ErrPermission)
	}
	if w := k.open("a", os.O_WRONLY); w != nil {
		try("map of a file opened for writing only", w, 10, false, fs.ErrPermission)
	}
	k.holds("after refused maps", f, []byte("0123456789"))
}

func checkStat(k *checker) {
	f := k.create("a", "content")
	if f == nil {
		return
	}
	info, err := k.fsys.Stat(k.path("a"))
	if k.ok("stat", err) && (info.Name != "a" || info.Kind != vfs.Regular || info.Size != 7 || info.ModTime.IsZero()) {
		k.errorf("stat: %+v", info)
	}
	open, err := f.Stat()
	if k.ok("stat of the open file", err) && open != info {
		k.errorf("stat of the open file: %+v, by name %+v", open, info)
	}
	then := time.UnixMilli(1_600_000_000_123)
	k.ok("set the time of a change", k.fsys.SetModTime(k.path("a"), then))
	if info, err = k.fsys.Stat(k.path("a")); k.ok("stat", err) && !info.ModTime.Equal(then) {
		k.errorf("time of the last change: %v, set to %v", info.ModTime, then)
	}
	k.fails("set the time of a missing file", k.fsys.SetModTime(k.path("b"), then), fs.ErrNotExist)
	info, err = k.fsys.Stat(k.dir)
	if k.ok("stat of the directory", err) &&
		(info.Name != filepath.Base(k.dir) || info.Kind != vfs.Directory || info.Size != 0) {
		k.errorf("stat of the directory: %+v", info)
	}
	k.missing("nothing", "b")
}

func checkDirectory(k *checker) {
	k.ok("mkdir", k.fsys.MkdirAll(k.path("d/e"), 0o755))
	k.ok("mkdir of what exists", k.fsys.MkdirAll(k.path("d/e"), 0o755))
	for _, name := range []string{"b", "a.log", "00000000000000000010.log", "c"} {
		k.create(name, name)
	}
	list, err := k.fsys.ReadDir(k.dir)
	want := []vfs.DirEntry{
		{Name: "00000000000000000010.log"}, {Name: "a.log"}, {Name: "b"}, {Name: "c"}, {Name: "d", Kind: vfs.Directory},
	}
	if k.ok("list", err) && !slices.Equal(list, want) {
		k.errorf("list: %v, want %v", list, want)
	}
	list, err = k.fsys.ReadDir(k.path("d/e"))
	if k.ok("list of an empty directory", err) && len(list) != 0 {
		k.errorf("list of an empty directory: %v", list)
	}
	_, err = k.fsys.ReadDir(k.path("x"))
	k.fails("list of a missing directory", err, fs.ErrNotExist)
	_, err = k.fsys.ReadDir(k.path("b"))
	k.fails("list of a file", err, nil)
	k.fails("mkdir over a file", k.fsys.MkdirAll(k.path("b"), 0o755), nil)
	k.fails("mkdir below a file", k.fsys.MkdirAll(k.path("b/x"), 0o755), nil)
}

func checkRemove(k *checker) {
	k.ok("mkdir", k.fsys.MkdirAll(k.path("d"), 0o755))
	f := k.create("d/a", "content")
	if f == nil {
		return
	}
	k.fails("removal of a directory with a file", k.fsys.Remove(k.path("d")), nil)
	k.ok("close", f.Close())
	k.ok("removal", k.fsys.Remove(k.path("d/a")))
	k.missing("removed", "d/a")
	k.fails("second removal", k.fsys.Remove(k.path("d/a")), fs.ErrNotExist)
	k.ok("removal of an empty directory", k.fsys.Remove(k.path("d")))
	k.missing("removed", "d")
	k.fails("creation in a removed directory", errorOf(k.fsys.OpenFile(k.path("d/a"), os.O_RDWR|os.O_CREATE, 0o644)),
		fs.ErrNotExist)
}

func errorOf[T any](_ T, err error) error { return err }

func checkRename(k *checker) {
	k.ok("mkdir", k.fsys.MkdirAll(k.path("d"), 0o755))
	for _, name := range []string{"a", "b"} {
		if f := k.create(name, "content of "+name); f == nil || !k.ok("close", f.Close()) {
			return
		}
	}
	k.ok("rename to a new name", k.fsys.Rename(k.path("a"), k.path("c")))
	k.missing("renamed", "a")
	k.named("renamed", "c", "content of a")
	k.ok("rename over a file", k.fsys.Rename(k.path("c"), k.path("b")))
	k.missing("renamed over a file", "c")
	k.named("renamed over a file", "b", "content of a")
	k.ok("rename to itself", k.fsys.Rename(k.path("b"), k.path("b")))
	k.ok("rename into a directory", k.fsys.Rename(k.path("b"), k.path("d/b")))
	k.missing("renamed into a directory", "b")
	k.named("renamed into a directory", "d/b", "content of a")
	k.fails("rename of a missing file", k.fsys.Rename(k.path("x"), k.path("y")), fs.ErrNotExist)
	k.fails("rename into a missing directory", k.fsys.Rename(k.path("d/b"), k.path("x/y")), fs.ErrNotExist)
	k.create("f", "")
	k.fails("rename over a directory", k.fsys.Rename(k.path("f"), k.path("d")), nil)
	k.ok("rename of a directory", k.fsys.Rename(k.path("d"), k.path("e")))
	k.named("renamed directory", "e/b", "content of a")
}

func checkLock(k *checker) {
	name := k.path("lock")
	lock := func(off, n int64, exclusive bool) io.Closer {
		c, err := k.fsys.Lock(name, off, n, exclusive)
		if !k.ok("lock", err) {
			return io.NopCloser(nil)
		}
		k.closers = append(k.closers, c)
		return c
	}
	refused := func(what string, off, n int64, exclusive bool) {
		c, err := k.fsys.Lock(name, off, n, exclusive)
		if err == nil {
			c.Close()
		}
		k.fails(what, err, vfs.ErrLocked)
	}
	first := lock(0, 2, true)
	refused("exclusive over exclusive", 0, 2, true)
	refused("shared over exclusive", 1, 1, false)
	refused("larger over exclusive", 0, 10, false)
	next := lock(2, 1, true)
	far := lock(1<<40, 1<<40, true)
	k.ok("release", first.Close())
	k.fails("second release", first.Close(), fs.ErrClosed)
	shared := lock(0, 1, false)
	other := lock(0, 2, false)
	refused("exclusive over shared", 0, 1, true)
	k.ok("release", shared.Close())
	refused("exclusive over the other shared", 0, 1, true)
	k.ok("release", other.Close())
	lock(0, 2, true)
	refused("exclusive beside", 2, 1, false)
	k.ok("release", next.Close())
	k.ok("release", far.Close())
	lock(1<<40, 5, true)

	_, err := k.fsys.Lock(name, 0, 0, true)
	k.fails("lock of nothing", err, fs.ErrInvalid)
	_, err = k.fsys.Lock(name, -1, 2, true)
	k.fails("lock before the start", err, fs.ErrInvalid)
	_, err = k.fsys.Lock(k.path("d/lock"), 0, 1, true)
	k.fails("lock in a missing directory", err, fs.ErrNotExist)
}

func checkLockFile(k *checker) {
	l, err := k.fsys.Lock(k.path("lock"), 0, 1, true)
	if !k.ok("lock of a missing file", err) {
		return
	}
	k.named("created by a lock", "lock", "")
	k.ok("release", l.Close())
	k.named("left by a release", "lock", "")

	// A lock is on the file that the name leads to when it is taken, and its content is not touched.
	if k.create("a", "content") == nil {
		return
	}
	old, err := k.fsys.Lock(k.path("a"), 0, 1, true)
	if !k.ok("lock", err) {
		return
	}
	k.named("locked", "a", "content")
	err = k.fsys.Remove(k.path("a"))
	if errors.Is(err, fs.ErrPermission) {
		old.Close() // windows does not remove an open file
		return
	}
	k.ok("removal of a locked file", err)
	l, err = k.fsys.Lock(k.path("a"), 0, 1, true)
	if k.ok("lock of the new file", err) {
		k.ok("release", l.Close())
	}
	k.ok("release", old.Close())
}

func checkBootID(k *checker) {
	id, err := k.fsys.BootID(k.dir)
	k.ok("boot id", err)
	again, err := k.fsys.BootID(k.dir)
	if k.ok("boot id", err) && again != id {
		k.errorf("boot id %q, then %q", id, again)
	}
	_, err = k.fsys.BootID(k.path("x"))
	k.fails("boot id of a missing directory", err, fs.ErrNotExist)
}

func checkWriteFile(k *checker) {
	k.ok("new file", vfs.WriteFileAtomic(k.fsys, k.path("a"), 0o640, []byte("first")))
	k.named("new file", "a", "first")
	if k.create("a"+vfs.TempSuffix, "left by a crash, and longer than what comes") == nil {
		return
	}
	k.ok("replacement", vfs.WriteFileAtomic(k.fsys, k.path("a"), 0o640, []byte("second")))
	k.named("replaced", "a", "second")
	k.missing("temporary file", "a"+vfs.TempSuffix)
	k.ok("empty content", vfs.WriteFileAtomic(k.fsys, k.path("a"), 0o640, nil))
	k.named("empty content", "a", "")
	k.fails("in a missing directory", vfs.WriteFileAtomic(k.fsys, k.path("d/a"), 0o640, nil), fs.ErrNotExist)
	k.ok("mkdir", k.fsys.MkdirAll(k.path("d"), 0o755))
	k.fails("over a directory", vfs.WriteFileAtomic(k.fsys, k.path("d"), 0o640, nil), nil)
	k.missing("temporary file after an error", "d"+vfs.TempSuffix)
}

func checkReadFile(k *checker) {
	if k.create("a", "0123456789") == nil {
		return
	}
	for _, limit := range []int64{10, 11, 1 << 62} {
		got, err := vfs.ReadFile(k.fsys, k.path("a"), limit)
		if k.ok("read", err) && string(got) != "0123456789" {
			k.errorf("read %q", got)
		}
	}
	for _, limit := range []int64{9, 0, -1} {
		_, err := vfs.ReadFile(k.fsys, k.path("a"), limit)
		k.fails("read of too large a file", err, vfs.ErrTooLarge)
	}
	_, err := vfs.ReadFile(k.fsys, k.path("b"), 10)
	k.fails("read of a missing file", err, fs.ErrNotExist)
}
