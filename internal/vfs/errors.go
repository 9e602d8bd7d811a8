package vfs

import (
	"errors"
	"io/fs"
	"os"
)

// pathError gives err its path once, and the sentinel that it stands for. It returns nil for nil.
func pathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: classify(err)}
}

// classify strips the wrappers of package os, which would repeat the path, and adds ErrNoSpace or ErrReadOnly.
func classify(err error) error {
	for {
		var inner error
		switch e := err.(type) {
		case *fs.PathError:
			inner = e.Err
		case *os.LinkError:
			inner = e.Err
		case *os.SyscallError:
			inner = e.Err
		}
		if inner == nil {
			break
		}
		err = inner
	}
	switch {
	case errors.Is(err, os.ErrClosed):
		return fs.ErrClosed
	case isNoSpace(err):
		return &classified{sentinel: ErrNoSpace, err: err}
	case isReadOnly(err):
		return &classified{sentinel: ErrReadOnly, err: err}
	}
	return err
}

// classified is a system error that also matches one of the sentinels. It reads as the system error, because the
// sentinel's text would say the same a second time.
type classified struct {
	sentinel error
	err      error
}

// Error returns the text of the system's error.
func (c *classified) Error() string { return c.err.Error() }

// Unwrap returns the sentinel and the system's error.
func (c *classified) Unwrap() []error { return []error{c.sentinel, c.err} }
