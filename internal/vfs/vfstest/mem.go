package vfstest

import (
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/oncelog/oncelog/internal/vfs"
)

// ErrNoSpace is the error of a full disk, as Mem returns it and as an injector may: it matches vfs.ErrNoSpace and ENOSPC.
var ErrNoSpace error = fmt.Errorf("%w: %w", vfs.ErrNoSpace, syscall.ENOSPC)

// MemOptions are the options of a simulated file system. The zero value is what NewMem uses.
type MemOptions struct {
	// Seed drives the write-back daemon: which old versions the device may hold after a power cut.
	Seed uint64

	// Capacity is the size of the disk in bytes, taken in sectors of 512; 0 is no limit. Names take no space.
	Capacity int64

	// Clock gives modification times. Nil is a counter: one millisecond for each change, from 2020-01-01 UTC.
	Clock func() time.Time

	// KeepMapped makes DropCache leave mapped files alone, as Linux does with pages that are mapped.
	KeepMapped bool
}

// Mem is a file system in memory that knows what a power cut takes away. It implements vfs.FS; all of it may be used
// from several goroutines. The package comment describes the model.
//
// Paths are cleaned, and a relative path starts at the root. Permissions and symbolic links do not exist.
type Mem struct {
	mu     sync.Mutex // guards everything reachable from here, but not the bytes of mappings
	opt    MemOptions
	rand   *rand.Rand
	root   *inode
	boot   int
	ticks  int64
	used   int64 // sectors taken
	locks  map[*inode][]*memLock
	mapped []*inode
	sparse []Sparse
}

// NewMem returns an empty file system with the zero MemOptions.
func NewMem() *Mem { return NewMemWith(MemOptions{}) }

// NewMemWith returns an empty file system.
func NewMemWith(o MemOptions) *Mem {
	root := newInode("/")
	root.dir = newDirectory()
	return &Mem{
		opt: o, rand: rand.New(rand.NewPCG(o.Seed, 1)), root: root, boot: 1, locks: make(map[*inode][]*memLock),
	}
}

func (m *Mem) now() time.Time {
	if m.opt.Clock != nil {
		return m.opt.Clock()
	}
	m.ticks++
	return time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(m.ticks) * time.Millisecond)
}

// split returns the elements of a path.
func split(name string) []string {
	name = path.Clean("/" + filepath.ToSlash(name[len(filepath.VolumeName(name)):]))
	return strings.FieldsFunc(name, func(r rune) bool { return r == '/' })
}

// walk follows names from the root.
func (m *Mem) walk(names []string) (*inode, error) {
	n := m.root
	for _, name := range names {
		if n.dir == nil {
			return nil, syscall.ENOTDIR
		}
		if n = n.dir.entries[name]; n == nil {
			return nil, fs.ErrNotExist
		}
	}
	return n, nil
}

// parent returns the directory that holds name, and the last element. The root has none.
func (m *Mem) parent(name string) (*directory, string, error) {
	names := split(name)
	if len(names) == 0 {
		return nil, "", fs.ErrInvalid
	}
	n, err := m.walk(names[:len(names)-1])
	if err == nil && n.dir == nil {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, "", err
	}
	return n.dir, names[len(names)-1], nil
}

// OpenFile implements vfs.FS.
func (m *Mem) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.enter(nil)
	n, err := m.open(name, flag)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	access := flag & (os.O_RDONLY | os.O_WRONLY | os.O_RDWR)
	n.handles++
	return &memFile{
		m: m, n: n, name: name, open: true, appends: flag&os.O_APPEND != 0,
		reads: access != os.O_WRONLY, writes: access != os.O_RDONLY,
	}, nil
}

func (m *Mem) open(name string, flag int) (*inode, error) {
	if len(split(name)) == 0 {
		return nil, vfs.ErrNotRegular
	}
	d, last, err := m.parent(name)
	if err != nil {
		return nil, err
	}
	n := d.entries[last]
	switch {
	case n == nil && flag&os.O_CREATE == 0:
		return nil, fs.ErrNotExist
	case n == nil:
		return m.create(d, last, name), nil
	case flag&(os.O_CREATE|os.O_EXCL) == os.O_CREATE|os.O_EXCL:
		return nil, fs.ErrExist
	case n.dir != nil:
		return nil, vfs.ErrNotRegular
	}
	if flag&os.O_TRUNC != 0 && flag&(os.O_WRONLY|os.O_RDWR) != 0 {
		n.exchange()
		m.truncate(n, 0)
	}
	return n, nil
}

func (m *Mem) create(d *directory, last, name string) *inode {
	n := newInode(name)
	n.modTime, n.links = m.now(), 1
	d.change(&change{name: last, n: n})
	return n
}

// Stat implements vfs.FS.
func (m *Mem) Stat(name string) (vfs.Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.enter(nil)
	n, err := m.walk(split(name))
	if err != nil {
		return vfs.Info{}, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	return n.info(name), nil
}

func (n *inode) info(name string) vfs.Info {
	i := vfs.Info{Name: filepath.Base(name), Kind: n.kind(), ModTime: n.modTime}
	if n.dir == nil {
		i.Size = n.cache.size
	}
	return i
}

func (n *inode) kind() vfs.Kind {
	if n.dir != nil {
		return vfs.Directory
	}
	return vfs.Regular
}

// ReadDir implements vfs.FS.
func (m *Mem) ReadDir(dir string) ([]vfs.DirEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.enter(nil)
	d, err := m.directory(dir)
	if err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: dir, Err: err}
	}
	entries := make([]vfs.DirEntry, 0, len(d.entries))
	for _, name := range sortedNames(d.entries) {
		entries = append(entries, vfs.DirEntry{Name: name, Kind: d.entries[name].kind()})
	}
	return entries, nil
}

func (m *Mem) directory(dir string) (*directory, error) {
	n, err := m.walk(split(dir))
	if err == nil && n.dir == nil {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, err
	}
	return n.dir, nil
}

func sortedNames(names map[string]*inode) []string {
	list := make([]string, 0, len(names))
	for name := range names {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// SetModTime implements vfs.FS. The time survives whatever the file survives.
func (m *Mem) SetModTime(name string, t time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.enter(nil)
	d, last, err := m.parent(name)
	if err == nil {
		n := d.entries[last]
		if n != nil {
			n.modTime = t
			return nil
		}
		err = fs.ErrNotExist
	}
	return &fs.PathError{Op: "chtimes", Path: name, Err: err}
}

// Remove implements vfs.FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.enter(nil)
	d, last, err := m.parent(name)
	if err == nil {
		n := d.entries[last]
		switch {
		case n == nil:
			err = fs.ErrNotExist
		case n.dir != nil && len(n.dir.entries) > 0:
			err = syscall.ENOTEMPTY
		default:
			d.change(&change{from: last, n: n})
			n.links--
			m.release(n)
			return nil
		}
	}
	return &fs.PathError{Op: "remove", Path: name, Err: err}
}

// release gives back the space of a file that has neither a name nor an open handle nor a mapping.
func (m *Mem) release(n *inode) {
	if n.dir == nil && n.links == 0 && n.handles == 0 && n.maps == 0 {
		n.detach()
		m.used -= int64(n.reserved.cut(0))
	}
}

// Rename implements vfs.FS.
func (m *Mem) Rename(oldname, newname string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.enter(nil)
	if err := m.rename(oldname, newname); err != nil {
		return &os.LinkError{Op: "rename", Old: oldname, New: newname, Err: err}
	}
	return nil
}

func (m *Mem) rename(oldname, newname string) error {
	from, oldLast, err := m.parent(oldname)
	if err != nil {
		return err
	}
	n := from.entries[oldLast]
	if n == nil {
		return fs.ErrNotExist
	}
	to, newLast, err := m.parent(newname)
	if err != nil {
		return err
	}
	target := to.entries[newLast]
	switch {
	case target == n:
		return nil // POSIX: two names of one file stay
	case target != nil && target.dir != nil:
		return syscall.EEXIST
	case target != nil && n.dir != nil:
		return syscall.ENOTDIR
	case n.dir != nil && slices.Equal(split(oldname), split(newname)[:min(len(split(oldname)), len(split(newname)))]):
		return syscall.EINVAL
	}
	if from == to {
		from.change(&change{name: newLast, from: oldLast, n: n})
	} else {
		link := to.change(&change{name: newLast, n: n})
		from.change(&change{from: oldLast, n: n, link: link})
	}
	n.path = newname
	if target != nil {
		target.links--
		m.release(target)
	}
	return nil
}

// MkdirAll implements vfs.FS. As everywhere, the new names are durable only after SyncDir of the directories above.
func (m *Mem) MkdirAll(dir string, perm fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.enter(nil)
	n := m.root
	for _, name := range split(dir) {
		next := n.dir.entries[name]
		if next == nil {
			next = newInode(dir)
			next.dir, next.links, next.modTime = newDirectory(), 1, m.now()
			n.dir.change(&change{name: name, n: next})
		}
		if next.dir == nil {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
		}
		n = next
	}
	return nil
}

// SyncDir implements vfs.FS.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.enter(nil)
	d, err := m.directory(dir)
	if err != nil {
		return &fs.PathError{Op: "syncdir", Path: dir, Err: err}
	}
	d.sync()
	return nil
}

// failSyncDir is called when an injected error takes the place of SyncDir.
func (m *Mem) failSyncDir(dir string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d, err := m.directory(dir); err == nil {
		d.loseChanges()
	}
}

// BootID implements vfs.FS. A power cut changes it, a kill does not.
func (m *Mem) BootID(dir string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.directory(dir); err != nil {
		return "", &fs.PathError{Op: "bootid", Path: dir, Err: err}
	}
	return fmt.Sprintf("simulated boot %d", m.boot), nil
}

// memLock is a lock of a range, see Mem.Lock.
type memLock struct {
	m         *Mem
	n         *inode
	name      string
	off, end  int64
	exclusive bool
}

// Lock implements vfs.FS.
func (m *Mem) Lock(name string, off, n int64, exclusive bool) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.enter(nil)
	l, err := m.lock(name, off, n, exclusive)
	if err != nil {
		return nil, &fs.PathError{Op: "lock", Path: name, Err: err}
	}
	return l, nil
}

func (m *Mem) lock(name string, off, n int64, exclusive bool) (*memLock, error) {
	if off < 0 || n <= 0 {
		return nil, fs.ErrInvalid
	}
	file, err := m.open(name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	l := &memLock{m: m, n: file, name: name, off: off, end: off + n, exclusive: exclusive}
	for _, other := range m.locks[file] {
		if l.off < other.end && other.off < l.end && (exclusive || other.exclusive) {
			return nil, vfs.ErrLocked
		}
	}
	m.locks[file] = append(m.locks[file], l)
	file.handles++
	return l, nil
}

// Close releases the lock. A second Close returns fs.ErrClosed.
func (l *memLock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	i := slices.Index(l.m.locks[l.n], l)
	if i < 0 {
		return &fs.PathError{Op: "unlock", Path: l.name, Err: fs.ErrClosed}
	}
	l.m.locks[l.n] = slices.Delete(l.m.locks[l.n], i, i+1)
	if len(l.m.locks[l.n]) == 0 {
		delete(l.m.locks, l.n)
	}
	l.n.handles--
	l.m.release(l.n)
	return nil
}
