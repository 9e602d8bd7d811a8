package vfs

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// openFlags is empty: the two checks around the open stand in for O_NOFOLLOW.
const openFlags = 0

// checkBeforeOpen refuses a link before an open with O_TRUNC could reach its target.
func checkBeforeOpen(name string) error {
	info, err := os.Lstat(name)
	if err == nil && !info.Mode().IsRegular() {
		return pathError("open", name, ErrNotRegular)
	}
	return nil
}

// checkAfterOpen sees to it that the name itself, and not what it links to, was opened.
func checkAfterOpen(name string, opened fs.FileInfo) error {
	info, err := os.Lstat(name)
	if err != nil {
		return err
	}
	if !os.SameFile(info, opened) {
		return ErrNotRegular
	}
	return nil
}

// syncDir only checks that dir is one: a directory handle cannot be flushed with the rights that an open gives.
func syncDir(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = windows.ERROR_DIRECTORY
	}
	return err
}

func isNoSpace(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL) ||
		errors.Is(err, windows.ERROR_DISK_QUOTA_EXCEEDED)
}

func isReadOnly(err error) bool {
	return errors.Is(err, windows.ERROR_WRITE_PROTECT)
}

// mapHandle returns a handle of the mapping's own: flushing and unmapping need one, and the file may be closed first.
func mapHandle(f *os.File) (*os.File, error) {
	var h windows.Handle
	self := windows.CurrentProcess()
	err := windows.DuplicateHandle(self, windows.Handle(f.Fd()), self, &h, 0, false, windows.DUPLICATE_SAME_ACCESS)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(h), f.Name()), nil
}
