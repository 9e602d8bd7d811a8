package vfstest

import (
	"io"

	"github.com/oncelog/oncelog/internal/vfs"
)

type injectedFile struct {
	x *injected
	f vfs.File
}

func (f *injectedFile) op(kind Kind, off, n int64) Op {
	return Op{Kind: kind, Path: f.f.Name(), Off: off, N: n}
}

// Name implements vfs.File.
func (f *injectedFile) Name() string { return f.f.Name() }

// ReadAt implements io.ReaderAt.
func (f *injectedFile) ReadAt(p []byte, off int64) (n int, err error) {
	o := f.op(OpRead, off, int64(len(p)))
	atEnd := false
	err = f.x.run(o, func() (err error) {
		n, err = f.f.ReadAt(p, off)
		if err == io.EOF { // not a failure: the injector sees none
			atEnd, err = true, nil
		}
		return err
	}, nil)
	if err == nil && atEnd {
		err = io.EOF
	}
	return n, err
}

// WriteAt implements io.WriterAt. An injected Half writes the first half of p.
func (f *injectedFile) WriteAt(p []byte, off int64) (n int, err error) {
	o := f.op(OpWrite, off, int64(len(p)))
	fault := f.x.inj.Before(o)
	switch {
	case fault.Err == nil:
		n, err = f.f.WriteAt(p, off)
	case fault.How == Instead:
		err = withPath(o, fault.Err)
	default:
		part := p
		if fault.How == Half {
			part = p[:len(p)/2]
		}
		if n, err = f.f.WriteAt(part, off); err == nil {
			err = withPath(o, fault.Err)
		}
	}
	f.x.inj.After(o, err)
	return n, err
}

// Close implements io.Closer. The file is closed also where an error takes the place of closing it: nothing could close
// it later.
func (f *injectedFile) Close() error {
	return f.x.run(f.op(OpClose, 0, 0), f.f.Close, func() { f.f.Close() })
}

// Stat implements vfs.File.
func (f *injectedFile) Stat() (info vfs.Info, err error) {
	err = f.x.run(f.op(OpFileStat, 0, 0), func() (err error) {
		info, err = f.f.Stat()
		return err
	}, nil)
	if err != nil {
		return vfs.Info{}, err
	}
	return info, nil
}

// Truncate implements vfs.File.
func (f *injectedFile) Truncate(size int64) error {
	return f.x.run(f.op(OpTruncate, 0, size), func() error { return f.f.Truncate(size) }, nil)
}

// Allocate implements vfs.File.
func (f *injectedFile) Allocate(size int64) error {
	return f.x.run(f.op(OpAllocate, 0, size), func() error { return f.f.Allocate(size) }, nil)
}

// SyncData implements vfs.File.
func (f *injectedFile) SyncData() error {
	return f.x.run(f.op(OpSyncData, 0, 0), f.f.SyncData, f.failSync)
}

// Sync implements vfs.File.
func (f *injectedFile) Sync() error { return f.x.run(f.op(OpSync, 0, 0), f.f.Sync, f.failSync) }

// failSync tells a simulated file below that its sync failed.
func (f *injectedFile) failSync() { failSync(f.f) }

func failSync(f any) {
	if m, ok := f.(interface{ failSync() }); ok {
		m.failSync()
	}
}

// DropCache implements vfs.File.
func (f *injectedFile) DropCache(off, n int64) error {
	return f.x.run(f.op(OpDropCache, off, n), func() error { return f.f.DropCache(off, n) }, nil)
}

// Map implements vfs.File.
func (f *injectedFile) Map(length int, writable bool) (vfs.Mapping, error) {
	o := f.op(OpMap, 0, int64(length))
	var m vfs.Mapping
	err := f.x.run(o, func() (err error) {
		m, err = f.f.Map(length, writable)
		return err
	}, nil)
	if err != nil {
		if m != nil {
			m.Close()
		}
		return nil, err
	}
	return &injectedMapping{f.x, o, m}, nil
}

type injectedMapping struct {
	x *injected
	o Op
	m vfs.Mapping
}

func (m *injectedMapping) op(kind Kind) Op {
	o := m.o
	o.Kind = kind
	return o
}

// Bytes implements vfs.Mapping.
func (m *injectedMapping) Bytes() []byte { return m.m.Bytes() }

// Flush implements vfs.Mapping.
func (m *injectedMapping) Flush() error { return m.x.run(m.op(OpFlush), m.m.Flush, m.failSync) }

// failSync tells a simulated mapping below that its sync failed.
func (m *injectedMapping) failSync() { failSync(m.m) }

// Close implements vfs.Mapping. Like a file, a mapping is closed also where an error takes the place of it.
func (m *injectedMapping) Close() error {
	return m.x.run(m.op(OpUnmap), m.m.Close, func() { m.m.Close() })
}
