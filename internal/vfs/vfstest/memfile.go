package vfstest

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"syscall"

	"github.com/oncelog/oncelog/internal/vfs"
)

// memFile implements vfs.File.
type memFile struct {
	m             *Mem
	n             *inode
	name          string
	reads, writes bool
	appends       bool
	open          bool // guarded by m.mu
}

// begin locks the file system and starts an operation that needs the given right.
func (f *memFile) begin(op string, right bool) error {
	f.m.mu.Lock()
	err := syscall.EBADF
	if f.open && right {
		f.m.enter(f.n)
		return nil
	}
	f.m.mu.Unlock()
	if !f.open {
		return f.fail(op, fs.ErrClosed)
	}
	return f.fail(op, err)
}

func (f *memFile) fail(op string, err error) error {
	return &fs.PathError{Op: op, Path: f.name, Err: err}
}

// Name implements vfs.File.
func (f *memFile) Name() string { return f.name }

// ReadAt implements io.ReaderAt.
func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.begin("read", f.reads); err != nil {
		return 0, err
	}
	defer f.m.mu.Unlock()
	if off < 0 {
		return 0, f.fail("read", fs.ErrInvalid)
	}
	n := f.n.readAt(p, off)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements io.WriterAt. On a full disk it stores what fits and says how much.
func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.begin("write", f.writes); err != nil {
		return 0, err
	}
	defer f.m.mu.Unlock()
	if off < 0 || f.appends || int64(len(p)) > math.MaxInt64-off {
		return 0, f.fail("write", fs.ErrInvalid)
	}
	if len(p) == 0 {
		return 0, nil
	}
	fits := f.m.claim(f.n, off, off+int64(len(p)))
	if fits > 0 {
		f.n.writeAt(p[:fits], off, f.m.rand)
		f.n.modTime = f.m.now()
	}
	if fits < int64(len(p)) {
		return int(fits), f.fail("write", ErrNoSpace)
	}
	return len(p), nil
}

// Close implements io.Closer.
func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if !f.open {
		return f.fail("close", fs.ErrClosed)
	}
	f.open = false
	f.n.handles--
	f.m.release(f.n)
	return nil
}

// Stat implements vfs.File.
func (f *memFile) Stat() (vfs.Info, error) {
	if err := f.begin("stat", true); err != nil {
		return vfs.Info{}, err
	}
	defer f.m.mu.Unlock()
	return f.n.info(f.name), nil
}

// Truncate implements vfs.File.
func (f *memFile) Truncate(size int64) error {
	if err := f.begin("truncate", f.writes); err != nil {
		return err
	}
	defer f.m.mu.Unlock()
	if size < 0 {
		return f.fail("truncate", fs.ErrInvalid)
	}
	f.m.truncate(f.n, size)
	return nil
}

// Allocate implements vfs.File.
func (f *memFile) Allocate(size int64) error {
	if err := f.begin("allocate", f.writes); err != nil {
		return err
	}
	defer f.m.mu.Unlock()
	if size < 0 {
		return f.fail("allocate", fs.ErrInvalid)
	}
	need := int64(f.n.reserved.missing(0, sectorsIn(size)))
	if f.m.free() < need {
		return f.fail("allocate", ErrNoSpace)
	}
	f.m.claim(f.n, 0, size)
	if size > f.n.cache.size {
		f.m.truncate(f.n, size)
	}
	return nil
}

// SyncData implements vfs.File. A size that was cut is not made durable by it.
func (f *memFile) SyncData() error { return f.sync("syncdata", false) }

// Sync implements vfs.File.
func (f *memFile) Sync() error { return f.sync("sync", true) }

func (f *memFile) sync(op string, metadata bool) error {
	if err := f.begin(op, true); err != nil {
		return err
	}
	defer f.m.mu.Unlock()
	f.m.sync(f.n, metadata)
	return nil
}

// failSync is called when an injected error takes the place of Sync or SyncData.
func (f *memFile) failSync() { f.m.failSync(f.n) }

// DropCache implements vfs.File. Sectors that a failed sync lost show the device's content afterwards, in ReadAt and in
// mappings. The size stays, as an inode does that is in use.
func (f *memFile) DropCache(off, n int64) error {
	if err := f.begin("dropcache", true); err != nil {
		return err
	}
	defer f.m.mu.Unlock()
	if off < 0 || n < 0 {
		return f.fail("dropcache", fs.ErrInvalid)
	}
	if f.m.opt.KeepMapped && f.n.maps > 0 {
		return nil
	}
	end := int64(math.MaxInt64)
	if n > 0 && n < end-off {
		end = off + n
	}
	f.n.dropClean(off, end)
	return nil
}

// Map implements vfs.File. The memory is the file's cache itself. A store through a mapping that is not writable is not
// caught, and reaches the file.
func (f *memFile) Map(length int, writable bool) (vfs.Mapping, error) {
	if err := f.begin("map", true); err != nil {
		return nil, err
	}
	defer f.m.mu.Unlock()
	if length <= 0 || int64(length) > f.n.cache.size {
		return nil, f.fail("map", fs.ErrInvalid)
	}
	if !f.reads || writable && !f.writes {
		return nil, f.fail("map", errors.Join(fs.ErrPermission, syscall.EACCES))
	}
	f.n.flatten()
	if f.n.maps == 0 {
		f.m.mapped = append(f.m.mapped, f.n)
	}
	f.n.maps++
	f.n.flat.live++
	f.n.flat.shown = max(f.n.flat.shown, length)
	return &memMapping{m: f.m, n: f.n, name: f.name, buf: f.n.flat, data: f.n.flat.b[:length:length], open: true}, nil
}
