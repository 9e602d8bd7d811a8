package vfstest

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/oncelog/oncelog/internal/vfs"
)

// How says what becomes of an operation that returns an injected error.
type How uint8

// The ways to fail.
const (
	Instead How = iota // the error comes in place of the operation
	Half               // of a write, the first half is done; any other operation is not done
	Done               // the operation is done, and the error is returned all the same
)

// Fault is an injector's answer. A nil Err lets the operation happen.
type Fault struct {
	Err error
	How How
}

// Injector sees every operation of a file system made by Inject. Its methods are called from the goroutine of the
// operation, without a lock held: an injector that is used from several goroutines keeps its own.
type Injector interface {
	// Before is called before the operation and decides about it.
	Before(o Op) Fault

	// After is called after it, with the error that its caller gets.
	After(o Op, err error)
}

// Inject returns fsys with every operation shown to inj, also those of its files, mappings and locks. File.Name and
// Mapping.Bytes are no operations.
//
// An injected error is given the path. Where it takes the place of a sync, a Mem below forgets what was dirty, as the
// kernel does; the same happens for Half.
func Inject(fsys vfs.FS, inj Injector) vfs.FS { return &injected{fsys, inj} }

type injected struct {
	fsys vfs.FS
	inj  Injector
}

// run performs do unless the injector says otherwise. instead, if not nil, is called in place of do.
func (x *injected) run(o Op, do func() error, instead func()) error {
	fault := x.inj.Before(o)
	var err error
	switch {
	case fault.Err == nil:
		err = do()
	case fault.How == Done:
		if err = do(); err == nil {
			err = withPath(o, fault.Err)
		}
	default:
		if instead != nil {
			instead()
		}
		err = withPath(o, fault.Err)
	}
	x.inj.After(o, err)
	return err
}

// withPath gives an injected error the shape that the file system's own errors have.
func withPath(o Op, err error) error {
	var pathErr *fs.PathError
	var linkErr *os.LinkError
	switch {
	case errors.As(err, &pathErr), errors.As(err, &linkErr), err == io.EOF:
		return err
	case o.Kind == OpRename:
		return &os.LinkError{Op: "rename", Old: o.Path, New: o.To, Err: err}
	}
	return &fs.PathError{Op: o.Kind.String(), Path: o.Path, Err: err}
}

// OpenFile implements vfs.FS.
func (x *injected) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	kind := OpOpen
	if flag&(os.O_CREATE|os.O_TRUNC) != 0 {
		kind = OpCreate
	}
	var f vfs.File
	err := x.run(Op{Kind: kind, Path: name}, func() (err error) {
		f, err = x.fsys.OpenFile(name, flag, perm)
		return err
	}, nil)
	if err != nil {
		if f != nil {
			f.Close()
		}
		return nil, err
	}
	return &injectedFile{x, f}, nil
}

// Stat implements vfs.FS.
func (x *injected) Stat(name string) (info vfs.Info, err error) {
	err = x.run(Op{Kind: OpStat, Path: name}, func() (err error) {
		info, err = x.fsys.Stat(name)
		return err
	}, nil)
	if err != nil {
		return vfs.Info{}, err
	}
	return info, nil
}

// ReadDir implements vfs.FS.
func (x *injected) ReadDir(dir string) (list []vfs.DirEntry, err error) {
	err = x.run(Op{Kind: OpReadDir, Path: dir}, func() (err error) {
		list, err = x.fsys.ReadDir(dir)
		return err
	}, nil)
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Remove implements vfs.FS.
func (x *injected) Remove(name string) error {
	return x.run(Op{Kind: OpRemove, Path: name}, func() error { return x.fsys.Remove(name) }, nil)
}

// Rename implements vfs.FS.
func (x *injected) Rename(oldname, newname string) error {
	return x.run(Op{Kind: OpRename, Path: oldname, To: newname}, func() error {
		return x.fsys.Rename(oldname, newname)
	}, nil)
}

// SetModTime implements vfs.FS.
func (x *injected) SetModTime(name string, t time.Time) error {
	return x.run(Op{Kind: OpSetModTime, Path: name}, func() error { return x.fsys.SetModTime(name, t) }, nil)
}

// MkdirAll implements vfs.FS.
func (x *injected) MkdirAll(dir string, perm fs.FileMode) error {
	return x.run(Op{Kind: OpMkdirAll, Path: dir}, func() error { return x.fsys.MkdirAll(dir, perm) }, nil)
}

// SyncDir implements vfs.FS.
func (x *injected) SyncDir(dir string) error {
	return x.run(Op{Kind: OpSyncDir, Path: dir}, func() error { return x.fsys.SyncDir(dir) }, func() {
		if m, ok := x.fsys.(interface{ failSyncDir(string) }); ok {
			m.failSyncDir(dir)
		}
	})
}

// failSyncDir passes the failure on, so that injectors can be stacked.
func (x *injected) failSyncDir(dir string) {
	if m, ok := x.fsys.(interface{ failSyncDir(string) }); ok {
		m.failSyncDir(dir)
	}
}

// Lock implements vfs.FS.
func (x *injected) Lock(name string, off, n int64, exclusive bool) (io.Closer, error) {
	o := Op{Kind: OpLock, Path: name, Off: off, N: n}
	var c io.Closer
	err := x.run(o, func() (err error) {
		c, err = x.fsys.Lock(name, off, n, exclusive)
		return err
	}, nil)
	if err != nil {
		if c != nil {
			c.Close()
		}
		return nil, err
	}
	o.Kind = OpUnlock
	return &injectedLock{x, o, c}, nil
}

// BootID implements vfs.FS.
func (x *injected) BootID(dir string) (id string, err error) {
	err = x.run(Op{Kind: OpBootID, Path: dir}, func() (err error) {
		id, err = x.fsys.BootID(dir)
		return err
	}, nil)
	if err != nil {
		return "", err
	}
	return id, nil
}

type injectedLock struct {
	x *injected
	o Op
	c io.Closer
}

// Close releases the lock, also where an error takes the place of releasing it: nothing could release it later.
func (l *injectedLock) Close() error { return l.x.run(l.o, l.c.Close, func() { l.c.Close() }) }
