package vfs

import (
	"errors"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"github.com/edsrzf/mmap-go"
)

// Map implements File.
func (f *osFile) Map(length int, writable bool) (Mapping, error) {
	m, err := f.mapFile(length, writable)
	if err != nil {
		return nil, pathError("map", f.Name(), err)
	}
	return m, nil
}

func (f *osFile) mapFile(length int, writable bool) (*mapping, error) {
	info, err := f.File.Stat()
	if err != nil {
		return nil, err
	}
	// A page behind the end of the file faults, and on windows the map would make the file longer.
	if length <= 0 || int64(length) > info.Size() {
		return nil, fs.ErrInvalid
	}
	handle, err := mapHandle(f.File)
	if err != nil {
		return nil, err
	}
	file := handle
	if file == nil {
		file = f.File
	}
	prot := mmap.RDONLY
	if writable {
		prot = mmap.RDWR
	}
	m := &mapping{name: f.Name(), handle: handle}
	err = f.control(func(uintptr) error {
		m.data, err = mmap.MapRegion(file, length, prot, 0, 0)
		return err
	})
	if err != nil {
		if handle != nil {
			handle.Close()
		}
		return nil, err
	}
	return m, nil
}

// mapping is a shared mapping of the start of a file.
type mapping struct {
	name   string
	handle *os.File // own descriptor, where flushing or unmapping needs one; else nil

	mu   sync.RWMutex // read-held while data is flushed, so that Close cannot pull it away
	data mmap.MMap    // guarded by mu; nil after Close
}

// Bytes implements Mapping. After Close it returns nil.
func (m *mapping) Bytes() []byte {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.data
}

// Flush implements Mapping.
func (m *mapping) Flush() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.data == nil {
		return pathError("flush", m.name, fs.ErrClosed)
	}
	err := m.data.Flush()
	for errors.Is(err, syscall.EINTR) {
		err = m.data.Flush()
	}
	if err == nil && m.handle != nil {
		err = m.handle.Sync()
	}
	return pathError("flush", m.name, err)
}

// Close implements Mapping. A second Close returns fs.ErrClosed.
func (m *mapping) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.data == nil {
		return pathError("unmap", m.name, fs.ErrClosed)
	}
	err := m.data.Unmap()
	m.data = nil
	if m.handle != nil {
		err = errors.Join(err, m.handle.Close())
	}
	return pathError("unmap", m.name, err)
}
