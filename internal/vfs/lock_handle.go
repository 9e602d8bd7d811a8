//go:build linux || windows

package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// lockPerm is for a lock file that did not exist: readers of the group may take shared locks, others none.
const lockPerm = 0o640

// lockAttempts bounds how often a lock is taken again because its file was replaced meanwhile.
const lockAttempts = 100

// lockRange takes a lock that belongs to the open file, on systems that have such locks.
func lockRange(name string, off, n int64, exclusive bool) (io.Closer, error) {
	for range lockAttempts {
		f, err := openLock(name, exclusive)
		if err != nil {
			return nil, err
		}
		if err := lockHandle(f, off, n, exclusive); err != nil {
			f.Close()
			return nil, err
		}
		// Between the open and the lock the name may have been removed or replaced, as Kafka does at a clean stop: then
		// this lock excludes nobody who comes later.
		same, err := stillNamed(f, name)
		if same {
			return &heldLock{f}, nil
		}
		f.Close()
		if err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: the file was replaced %d times while it was locked", ErrLocked, lockAttempts)
}

// openLock opens the lock file. A shared lock can also be had on a file that may only be read.
func openLock(name string, exclusive bool) (*os.File, error) {
	f, err := openRegular(name, os.O_RDWR|os.O_CREATE, lockPerm)
	if err == nil || exclusive || !errors.Is(err, ErrReadOnly) && !errors.Is(err, fs.ErrPermission) {
		return f, err
	}
	return openRegular(name, os.O_RDONLY, 0)
}

func stillNamed(f *os.File, name string) (bool, error) {
	locked, err := f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(locked, named), err
}

// heldLock is a lock that ends with its open file.
type heldLock struct{ f *os.File }

// Close releases the lock. The file stays. A second Close returns fs.ErrClosed.
func (l *heldLock) Close() error {
	return pathError("unlock", l.f.Name(), l.f.Close())
}
