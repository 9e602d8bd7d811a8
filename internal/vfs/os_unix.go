//go:build unix

package vfs

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// openFlags refuse a final link, do not wait for the other end of a FIFO, and do not make a terminal ours.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK | syscall.O_NOCTTY

// checkBeforeOpen has nothing to do where the flags of open refuse a link.
func checkBeforeOpen(string) error { return nil }

// checkAfterOpen has nothing to do where the flags of open refuse a link.
func checkAfterOpen(string, fs.FileInfo) error { return nil }

func syncDir(dir string) error {
	d, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}

func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func isReadOnly(err error) bool {
	return errors.Is(err, syscall.EROFS)
}
