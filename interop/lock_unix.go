//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package interop

import (
	"os"

	"golang.org/x/sys/unix"
)

// lockFile waits for the exclusive lock of a file, which it creates if need be.
// The lock ends with unlock or with the process; the file stays.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	return func() { f.Close() }, nil
}
