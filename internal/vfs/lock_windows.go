package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockHandle takes a lock that belongs to the handle, so that a second open in this process conflicts too. Unlike
// elsewhere it is mandatory: other handles cannot read the locked bytes.
func lockHandle(f *os.File, off, n int64, exclusive bool) error {
	flags := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if exclusive {
		flags |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	at := &windows.Overlapped{Offset: uint32(off), OffsetHigh: uint32(off >> 32)}
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, uint32(n), uint32(n>>32), at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return ErrLocked
	}
	return err
}
