package wal

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/oncelog/oncelog/internal/vfs"
)

// cursors are the named readers whose places the directory keeps. Its locks are below all others of a Log.
type cursors struct {
	mu   sync.Mutex
	list []cursorState   // ascending by name; guarded by mu
	bad  error           // why the file cannot be used; guarded by mu
	open map[string]bool // names with a Cursor; guarded by mu
	pins map[string]*Pin // of the names that hold back retention; guarded by mu
	made uint64          // counts the contents of list; guarded by mu

	writing sync.Mutex // held over a write of the file; before mu
	written uint64     // the content that is on disk; guarded by writing
}

// loadCursors reads the file, and takes back the cursors that lie behind the end of the log: the next record there is another
// one than that which they were to read. A file that cannot be read is left alone and keeps nobody from opening the log.
// The caller is alone.
func (l *Log) loadCursors() error {
	if l.opts.Compat {
		return nil
	}
	c := &l.cursors
	c.list, c.bad = readCursors(l.fsys, l.dir)
	if c.bad != nil {
		l.warn("cursors", c.bad)
		return nil
	}
	if l.opts.ReadOnly {
		return nil
	}
	if err := l.cutCursors(l.end.offset); err != nil {
		return err
	}
	for _, s := range c.list {
		if s.pins {
			if err := l.pinCursor(s.name, s.offset); err != nil {
				return err
			}
		}
	}
	return nil
}

func readCursors(fsys vfs.FS, dir string) ([]cursorState, error) {
	path := filepath.Join(dir, cursorsFile)
	f, err := fsys.OpenFile(path, vfs.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("wal: cursors: %w", err)
	}
	defer f.Close() // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("wal: cursors: %w", err)
	}
	p := make([]byte, min(info.Size, maxCursorsSize+1))
	n, err := f.ReadAt(p, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("wal: cursors: %w", err)
	}
	list, err := parseCursors(p[:n])
	if err != nil {
		return nil, fmt.Errorf("wal: cursors: %s: %w; remove the file to let all of them begin anew", path, err)
	}
	return list, nil
}

// cutCursors takes back the cursors behind end, durably. It is called before anything can be appended there.
func (l *Log) cutCursors(end int64) error {
	c := &l.cursors
	c.mu.Lock()
	changed := false
	for i := range c.list {
		if s := &c.list[i]; s.offset > end {
			if s.cutFrom < 0 {
				s.cutFrom = s.offset
			}
			s.offset = end
			changed = true
		}
	}
	if changed {
		c.made++
	}
	made := c.made
	c.mu.Unlock()
	if !changed {
		return nil
	}
	return l.writeCursors(made)
}

// writeCursors returns when the content with that number, or a later one, is on disk. Callers that come together share a
// write.
func (l *Log) writeCursors(made uint64) error {
	c := &l.cursors
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.written >= made {
		return nil
	}
	c.mu.Lock()
	content, now := appendCursors(nil, c.list), c.made
	c.mu.Unlock()
	if err := vfs.WriteFileAtomic(l.fsys, filepath.Join(l.dir, cursorsFile), 0o644, content); err != nil {
		return fmt.Errorf("wal: cursors: %w", err)
	}
	c.written = now
	return nil
}

// changeCursors changes the list and makes the change durable. An error of change changes nothing.
func (l *Log) changeCursors(change func(c *cursors) error) error {
	if err := l.writable(); err != nil {
		return err
	}
	c := &l.cursors
	c.mu.Lock()
	err := c.bad
	if err == nil {
		err = change(c)
	}
	if err != nil {
		c.mu.Unlock()
		return err
	}
	c.made++
	made := c.made
	c.mu.Unlock()
	return l.writeCursors(made)
}

// find returns where a name is in the list, or would be. The caller holds mu.
func (c *cursors) find(name string) (i int, found bool) {
	return slices.BinarySearchFunc(c.list, name, func(s cursorState, name string) int { return cmp.Compare(s.name, name) })
}

// pinCursor lets a name hold back retention from an offset on.
func (l *Log) pinCursor(name string, offset int64) error {
	e := l.visible.load()
	offset = min(max(offset, e.logStart), e.end.offset)
	c := &l.cursors
	c.mu.Lock()
	p := c.pins[name]
	c.mu.Unlock()
	if p != nil {
		return p.Move(offset)
	}
	p, err := l.Pin(offset, "cursor "+name)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pins == nil {
		c.pins = map[string]*Pin{}
	}
	c.pins[name] = p
	return nil
}

// encodeCursors is the file as a backup that ends at an offset has it, nil if there is none.
func (c *cursors) encode(end int64) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) == 0 {
		return nil
	}
	list := slices.Clone(c.list)
	for i := range list {
		list[i].offset = min(list[i].offset, end)
	}
	return appendCursors(nil, list)
}
