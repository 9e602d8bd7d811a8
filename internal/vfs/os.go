package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// OS is the file system of the operating system. What it promises on which platform is in the package comment.
var OS FS = osFS{}

type osFS struct{}

// OpenFile implements FS.
func (osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := openRegular(name, flag, perm)
	if err != nil {
		return nil, err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, pathError("open", name, err)
	}
	return &osFile{File: f, raw: raw}, nil
}

// openRegular opens name if it is a regular file, without waiting and without following a final link.
func openRegular(name string, flag int, perm fs.FileMode) (*os.File, error) {
	if err := checkBeforeOpen(name); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, flag|openFlags, perm)
	if err != nil {
		return nil, openError(name, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = ErrNotRegular
	}
	if err == nil {
		err = checkAfterOpen(name, info)
	}
	if err != nil {
		f.Close()
		return nil, pathError("open", name, err)
	}
	return f, nil
}

// openError finds out whether an open failed because of what the name leads to. Systems differ in how they refuse a
// link (ELOOP, EMLINK), a FIFO without a reader or a socket (ENXIO, EOPNOTSUPP) and a directory (EISDIR).
func openError(name string, err error) error {
	if !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrPermission) {
		if info, statErr := os.Lstat(name); statErr == nil && !info.Mode().IsRegular() {
			return pathError("open", name, ErrNotRegular)
		}
	}
	return pathError("open", name, err)
}

// Stat implements FS.
func (osFS) Stat(name string) (Info, error) {
	info, err := os.Lstat(name)
	if err != nil {
		return Info{}, pathError("stat", name, err)
	}
	return infoOf(info), nil
}

// ReadDir implements FS.
func (osFS) ReadDir(dir string) ([]DirEntry, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, pathError("readdir", dir, err)
	}
	entries := make([]DirEntry, len(list))
	for i, e := range list {
		entries[i] = DirEntry{Name: e.Name(), Kind: kindOf(e.Type())}
	}
	return entries, nil
}

// Remove implements FS.
func (osFS) Remove(name string) error {
	return pathError("remove", name, os.Remove(name))
}

// Rename implements FS.
func (osFS) Rename(oldname, newname string) error {
	err := os.Rename(oldname, newname)
	if err == nil {
		return nil
	}
	return &os.LinkError{Op: "rename", Old: oldname, New: newname, Err: classify(err)}
}

// SetModTime implements FS.
func (osFS) SetModTime(name string, t time.Time) error {
	return pathError("chtimes", name, os.Chtimes(name, time.Time{}, t))
}

// MkdirAll implements FS.
func (osFS) MkdirAll(dir string, perm fs.FileMode) error {
	return pathError("mkdir", dir, os.MkdirAll(dir, perm))
}

// SyncDir implements FS.
func (osFS) SyncDir(dir string) error {
	return pathError("syncdir", dir, syncDir(dir))
}

// Lock implements FS.
func (osFS) Lock(name string, off, n int64, exclusive bool) (io.Closer, error) {
	if off < 0 || n <= 0 {
		return nil, pathError("lock", name, fs.ErrInvalid)
	}
	c, err := lockRange(name, off, n, exclusive)
	if err != nil {
		return nil, pathError("lock", name, err)
	}
	return c, nil
}

// BootID implements FS.
func (osFS) BootID(dir string) (string, error) {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return "", pathError("bootid", dir, err)
	}
	id, err := bootID(dir)
	return id, pathError("bootid", dir, err)
}

// osFile is an open regular file. The embedded file gives Name and keeps its descriptor; raw reaches the descriptor in
// a way that excludes a concurrent Close, which would let a system call hit another file's recycled descriptor.
type osFile struct {
	*os.File
	raw syscall.RawConn
}

// ReadAt implements io.ReaderAt.
func (f *osFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	if err != nil && err != io.EOF {
		err = pathError("read", f.Name(), err)
	}
	return n, err
}

// WriteAt implements io.WriterAt.
func (f *osFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
	if err != nil {
		err = pathError("write", f.Name(), err)
	}
	return n, err
}

// Close implements io.Closer.
func (f *osFile) Close() error {
	return pathError("close", f.Name(), f.File.Close())
}

// Stat implements File.
func (f *osFile) Stat() (Info, error) {
	info, err := f.File.Stat()
	if err != nil {
		return Info{}, pathError("stat", f.Name(), err)
	}
	return infoOf(info), nil
}

// Truncate implements File.
func (f *osFile) Truncate(size int64) error {
	return pathError("truncate", f.Name(), f.File.Truncate(size))
}

// Allocate implements File.
func (f *osFile) Allocate(size int64) error {
	info, err := f.File.Stat()
	if err != nil || size < 0 {
		if err == nil {
			err = fs.ErrInvalid
		}
		return pathError("allocate", f.Name(), err)
	}
	if size == 0 {
		return nil
	}
	before := info.Size()
	err = f.reserve(before, size)
	if err == nil {
		return nil
	}
	// A reservation that failed half-way keeps what it got. On a full disk that would take the space which a removal or
	// a smaller reservation needs. Cutting to the same size also frees blocks that lie behind the end of the file.
	if cutErr := f.File.Truncate(before); cutErr != nil {
		err = errors.Join(classify(err), cutErr)
	}
	return pathError("allocate", f.Name(), err)
}

// zeroStep is how much is written at once where space can only be reserved by writing zeros.
const zeroStep = 256 << 10

// writeZeros writes zeros to [from, to), which must hold no data.
func writeZeros(f *os.File, from, to int64) error {
	zeros := make([]byte, min(zeroStep, max(to-from, 0)))
	for from < to {
		n, err := f.WriteAt(zeros[:min(int64(len(zeros)), to-from)], from)
		if err != nil {
			return err
		}
		from += int64(n)
	}
	return nil
}

// SyncData implements File.
func (f *osFile) SyncData() error {
	return pathError("syncdata", f.Name(), f.syncData())
}

// Sync implements File.
func (f *osFile) Sync() error {
	return pathError("sync", f.Name(), f.File.Sync())
}

// DropCache implements File.
func (f *osFile) DropCache(off, n int64) error {
	if off < 0 || n < 0 {
		return pathError("dropcache", f.Name(), fs.ErrInvalid)
	}
	return pathError("dropcache", f.Name(), f.dropCache(off, n))
}

// control runs do with the descriptor, which stays open meanwhile.
func (f *osFile) control(do func(fd uintptr) error) error {
	var err error
	if f.raw.Control(func(fd uintptr) { err = do(fd) }) != nil {
		return fs.ErrClosed // the only reason, and the error of package os for it is not exported
	}
	return err
}

func infoOf(info fs.FileInfo) Info {
	i := Info{Name: info.Name(), Kind: kindOf(info.Mode()), ModTime: info.ModTime()}
	if i.Kind == Regular {
		i.Size = info.Size()
	}
	return i
}

func kindOf(mode fs.FileMode) Kind {
	switch {
	case mode&fs.ModeType == 0:
		return Regular
	case mode&fs.ModeDir != 0:
		return Directory
	case mode&fs.ModeSymlink != 0:
		return Symlink
	default:
		return Other
	}
}
