//go:build unix && !linux

package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapHandle returns a descriptor of the mapping's own. On darwin msync leaves stores in the device's cache, so that
// Flush has to sync the file as well, which may have been closed by then.
func mapHandle(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
