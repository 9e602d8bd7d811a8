//go:build !linux

package vfs

import "errors"

// reserve writes zeros behind the end of the file. Holes below it stay: nothing here can find them safely.
func (f *osFile) reserve(before, size int64) error {
	return writeZeros(f.File, before, size)
}

func (f *osFile) syncData() error { return f.File.Sync() }

func (f *osFile) dropCache(_, _ int64) error { return errors.ErrUnsupported }

// bootID is unknown here, which equals nothing.
func bootID(string) (string, error) { return "", nil }
