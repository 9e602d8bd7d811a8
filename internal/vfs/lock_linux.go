package vfs

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// lockHandle takes an open file description lock: it excludes POSIX locks, which Java takes, and unlike those it also
// excludes a second open in this process and does not end when another descriptor of the file is closed.
func lockHandle(f *os.File, off, n int64, exclusive bool) error {
	lock := unix.Flock_t{Type: unix.F_RDLCK, Whence: io.SeekStart, Start: off, Len: n}
	if exclusive {
		lock.Type = unix.F_WRLCK
	}
	err := retryEINTR(func() error { return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock) })
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return ErrLocked
	}
	return err
}
