//go:build unix && !linux

package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"syscall"
)

// lockPerm is for a lock file that did not exist: readers of the group may take shared locks, others none.
const lockPerm = 0o640

// POSIX locks belong to the process: they do not keep it from locking twice, and closing any descriptor of a file drops
// all of them. So this process keeps a table of its own, and one descriptor for each locked file until the last of its
// locks is released.
var posixLocks struct {
	mu    sync.Mutex
	files map[fileID]*posixFile // guarded by mu
}

// fileID is what os.SameFile compares.
type fileID struct{ dev, ino uint64 }

// posixFile is one locked file. Its fields are guarded by posixLocks.mu.
type posixFile struct {
	id    fileID
	open  []*os.File // the first is locked through; others were opened by a race and must not be closed before it
	locks []*posixLock
}

type posixLock struct {
	file      *posixFile
	name      string
	off, end  int64
	exclusive bool
	released  bool
}

// lockAttempts bounds how often a lock is taken again because its file was replaced meanwhile.
const lockAttempts = 100

func lockRange(name string, off, n int64, exclusive bool) (io.Closer, error) {
	posixLocks.mu.Lock()
	defer posixLocks.mu.Unlock()
	for range lockAttempts {
		l, err := posixLockOnce(name, off, n, exclusive)
		if err != nil || l != nil {
			return l, err
		}
	}
	return nil, fmt.Errorf("%w: the file was replaced %d times while it was locked", ErrLocked, lockAttempts)
}

// posixLockOnce returns nothing if the file was replaced between its open and the lock.
func posixLockOnce(name string, off, n int64, exclusive bool) (io.Closer, error) {
	file, err := posixOpen(name, exclusive)
	if err != nil {
		return nil, err
	}
	l := &posixLock{file: file, name: name, off: off, end: off + n, exclusive: exclusive}
	for _, other := range file.locks {
		if l.off < other.end && other.off < l.end && (l.exclusive || other.exclusive) {
			return nil, ErrLocked
		}
	}
	kind := int16(syscall.F_RDLCK)
	if exclusive {
		kind = syscall.F_WRLCK
	}
	if err := setPosixLock(file.open[0], kind, off, l.end); err != nil {
		return nil, errors.Join(err, file.drop())
	}
	file.locks = append(file.locks, l)
	named, err := os.Lstat(name)
	if err == nil && idOf(named) == file.id {
		return l, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return nil, errors.Join(err, l.release())
}

// posixOpen returns the table's entry for name. It does not open a file that is in the table already: closing the second
// descriptor would drop the locks of the first.
func posixOpen(name string, exclusive bool) (*posixFile, error) {
	if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() {
		if file := posixLocks.files[idOf(info)]; file != nil {
			return file, nil
		}
	}
	f, err := openRegular(name, os.O_RDWR|os.O_CREATE, lockPerm)
	if !exclusive && (errors.Is(err, ErrReadOnly) || errors.Is(err, fs.ErrPermission)) {
		f, err = openRegular(name, os.O_RDONLY, 0)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	id := idOf(info)
	file := posixLocks.files[id]
	if file == nil {
		file = &posixFile{id: id}
		if posixLocks.files == nil {
			posixLocks.files = make(map[fileID]*posixFile)
		}
		posixLocks.files[id] = file
	}
	file.open = append(file.open, f)
	return file, nil
}

// Close releases the lock. The file stays. A second Close returns fs.ErrClosed.
func (l *posixLock) Close() error {
	posixLocks.mu.Lock()
	defer posixLocks.mu.Unlock()
	if l.released {
		return pathError("unlock", l.name, fs.ErrClosed)
	}
	return pathError("unlock", l.name, l.release())
}

// release is Close with posixLocks.mu held.
func (l *posixLock) release() error {
	l.released = true
	file := l.file
	file.locks = slices.DeleteFunc(file.locks, func(other *posixLock) bool { return other == l })
	return errors.Join(file.unlock(l.off, l.end), file.drop())
}

// unlock gives back the bytes of [off, end) that no other lock of this process holds: the system keeps one lock a byte
// for the whole process.
func (p *posixFile) unlock(off, end int64) error {
	for off < end {
		next, held := end, false
		for _, l := range p.locks {
			switch {
			case l.off <= off && off < l.end:
				held = true
				next = min(next, l.end)
			case l.off > off:
				next = min(next, l.off)
			}
		}
		if !held {
			if err := setPosixLock(p.open[0], syscall.F_UNLCK, off, next); err != nil {
				return err
			}
		}
		off = next
	}
	return nil
}

// drop closes the descriptors and forgets the file when no lock is left.
func (p *posixFile) drop() error {
	if len(p.locks) > 0 {
		return nil
	}
	delete(posixLocks.files, p.id)
	var err error
	for _, f := range p.open {
		err = errors.Join(err, f.Close())
	}
	return err
}

func setPosixLock(f *os.File, kind int16, off, end int64) error {
	lock := syscall.Flock_t{Type: kind, Whence: io.SeekStart, Start: off, Len: end - off}
	err := syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &lock)
	for err == syscall.EINTR {
		err = syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &lock)
	}
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) {
		return ErrLocked
	}
	return err
}

func idOf(info fs.FileInfo) fileID {
	st := info.Sys().(*syscall.Stat_t)
	return fileID{dev: uint64(st.Dev), ino: uint64(st.Ino)}
}
