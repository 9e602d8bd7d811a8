package leaderepoch

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/vfs"
)

// FileName is the name of the file in the partition's directory.
const FileName = "leader-epoch-checkpoint"

var format = checkpoint.Format[Entry]{
	Version: 0,
	Fields:  2,
	Parse: func(fields []string) (Entry, error) {
		epoch, err := strconv.ParseInt(fields[0], 10, 32)
		if err != nil || epoch < 0 {
			return Entry{}, fmt.Errorf("epoch %.40q", fields[0])
		}
		start, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil || start < 0 {
			return Entry{}, fmt.Errorf("start offset %.40q", fields[1])
		}
		return Entry{int32(epoch), start}, nil
	},
	Append: func(dst []byte, e Entry) []byte {
		dst = strconv.AppendInt(dst, int64(e.Epoch), 10)
		dst = append(dst, ' ')
		return strconv.AppendInt(dst, e.StartOffset, 10)
	},
}

// Decode reads the content p of a leader epoch checkpoint; path serves the error text only. Epochs or start offsets
// that do not ascend are a *checkpoint.CorruptError.
func Decode(path string, p []byte) ([]Entry, error) {
	entries, err := format.Decode(path, p)
	if err != nil {
		return nil, err
	}
	for i := 1; i < len(entries); i++ {
		if a, b := entries[i-1], entries[i]; a.Epoch >= b.Epoch || a.StartOffset >= b.StartOffset {
			return nil, &checkpoint.CorruptError{Path: path, Line: i + 3, Reason: fmt.Sprintf(
				"epoch %d from offset %d does not ascend from epoch %d from offset %d", b.Epoch, b.StartOffset, a.Epoch, a.StartOffset)}
		}
	}
	return entries, nil
}

// Encode returns the content of a leader epoch checkpoint. The entries must ascend.
func Encode(entries []Entry) []byte { return format.Encode(entries) }

// Read reads and decodes a leader epoch checkpoint. A missing one is fs.ErrNotExist.
func Read(fsys vfs.FS, path string) ([]Entry, error) {
	p, err := vfs.ReadFile(fsys, path, checkpoint.MaxSize)
	if err != nil {
		return nil, fmt.Errorf("leaderepoch: read: %w", err)
	}
	return Decode(path, p)
}

// Path is the name of the file behind the cache.
func (c *Cache) Path() string { return c.path }

// Encode returns the content that a Flush now would write: what a record of "who wrote this directory" is made of
// before the file changes.
func (c *Cache) Encode() []byte { return Encode(c.Entries()) }

// Dirty reports whether a Flush would write: the entries are not those of the file. An empty cache whose file is
// missing is not dirty; one from New always is, until its first Flush. It waits for a Flush that is under way.
func (c *Cache) Dirty() bool {
	c.flushMu.Lock()
	defer c.flushMu.Unlock()
	return c.dirty()
}

func (c *Cache) dirty() bool {
	return c.written == nil || !slices.Equal(*c.written, *c.entries.Load())
}

// Flush replaces the file atomically with the current entries and makes it durable, if it is not the same already. It
// must not run inside a lock that appends need: it syncs. After an error the file holds its old or its new content.
func (c *Cache) Flush() error {
	c.flushMu.Lock()
	defer c.flushMu.Unlock()
	if !c.dirty() {
		return nil
	}
	if c.readOnly {
		return fmt.Errorf("%w: %s", ErrReadOnly, c.path)
	}
	entries := c.entries.Load()
	// Whatever happens now, what was read or written before is not known to be there any more.
	c.written = nil
	if err := format.Write(c.fsys, c.path, *entries); err != nil {
		return fmt.Errorf("leaderepoch: %w", err)
	}
	c.written = entries
	return nil
}
