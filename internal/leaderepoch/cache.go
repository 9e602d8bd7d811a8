package leaderepoch

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/oncelog/oncelog/internal/vfs"
)

// Undefined is the epoch and the offset that stand for "not known" (OffsetsForLeaderEpochResponse.UNDEFINED_EPOCH and
// UNDEFINED_EPOCH_OFFSET).
const Undefined = -1

// ErrReadOnly means that Flush was called on a cache that was opened for reading only.
var ErrReadOnly = errors.New("leaderepoch: opened read-only")

// Entry says that the leader with Epoch wrote from StartOffset on.
type Entry struct {
	Epoch       int32
	StartOffset int64
}

// Cache is the list of epochs of one partition. Use Open or New to get one.
type Cache struct {
	fsys     vfs.FS
	path     string
	readOnly bool

	// entries is replaced as a whole and its content never changed, so that readers need no lock.
	entries atomic.Pointer[[]Entry]

	// mu excludes the methods that change the cache from one another.
	mu sync.Mutex

	// flushMu orders the writers of the file. It is taken before mu, never after it.
	flushMu sync.Mutex

	// written is what the file holds, guarded by flushMu; a missing file counts as empty, nil means not known.
	written *[]Entry
}

// Open reads the file at path. A missing file gives an empty cache and is created by the first Flush that has something
// to write. A file that cannot be used is a *checkpoint.CorruptError or checkpoint.ErrUnsupportedVersion; the way on
// from a corrupt one is New, filled from the log. A cache opened read-only may be changed in memory (the truncations
// that belong to opening a log), but not flushed.
func Open(fsys vfs.FS, path string, readOnly bool) (*Cache, error) {
	entries, err := Read(fsys, path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	c := New(fsys, path, readOnly)
	c.entries.Store(&entries)
	c.written = &entries
	return c, nil
}

// New returns an empty cache for the file at path without looking at it. The next Flush replaces the file whatever it
// holds.
func New(fsys vfs.FS, path string, readOnly bool) *Cache {
	c := &Cache{fsys: fsys, path: path, readOnly: readOnly}
	c.entries.Store(new([]Entry))
	return c
}

// Entries returns all entries in ascending order. The slice is shared and must not be changed; it stays as it is
// whatever happens to the cache.
func (c *Cache) Entries() []Entry { return slices.Clip(*c.entries.Load()) }

// Latest returns the newest entry; ok is false when there is none.
func (c *Cache) Latest() (e Entry, ok bool) {
	entries := *c.entries.Load()
	if len(entries) == 0 {
		return Entry{}, false
	}
	return entries[len(entries)-1], true
}

// Earliest returns the oldest entry; ok is false when there is none.
func (c *Cache) Earliest() (e Entry, ok bool) {
	entries := *c.entries.Load()
	if len(entries) == 0 {
		return Entry{}, false
	}
	return entries[0], true
}

// Assign notes that epoch starts at startOffset and reports whether that changed anything. Nothing changes when the
// newest entry has the same epoch and starts at or below startOffset, which is the common case of an append. Otherwise
// every entry at the end of the list that the new one contradicts, because its epoch or its start is not below, is
// removed first: so an epoch that starts where the previous one started takes its place, and an epoch lower than the
// newest one removes the higher ones. Negative numbers are an error and change nothing. Kafka:
// LeaderEpochFileCache.assign.
func (c *Cache) Assign(epoch int32, startOffset int64) (changed bool, err error) {
	if epoch < 0 || startOffset < 0 {
		return false, fmt.Errorf("leaderepoch: epoch %d at offset %d: neither may be negative", epoch, startOffset)
	}
	if !c.needs(epoch, startOffset) {
		return false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.needs(epoch, startOffset) {
		return false, nil
	}
	old := *c.entries.Load()
	keep := len(old)
	for keep > 0 && (old[keep-1].Epoch >= epoch || old[keep-1].StartOffset >= startOffset) {
		keep--
	}
	// Clipped, so that the append copies: a reader may hold the old slice.
	entries := append(slices.Clip(old[:keep]), Entry{epoch, startOffset})
	c.entries.Store(&entries)
	return true, nil
}

func (c *Cache) needs(epoch int32, startOffset int64) bool {
	latest, ok := c.Latest()
	return !ok || latest.Epoch != epoch || startOffset < latest.StartOffset
}

// EndOffsetFor answers a replica or a consumer that asks where requested ended; logEnd is the end of this log. It
// returns the greatest known epoch at or below requested and the offset where that one ended.
//
//	requested                          epoch       offset
//	Undefined                          Undefined   Undefined
//	the newest epoch                   requested   logEnd
//	above the newest, or no entries    Undefined   Undefined
//	below the oldest                   requested   start of the oldest
//	between                            greatest known epoch ≤ requested, start of the next known one
//
// Kafka: LeaderEpochFileCache.endOffsetFor.
func (c *Cache) EndOffsetFor(requested int32, logEnd int64) (epoch int32, offset int64) {
	entries := *c.entries.Load()
	// higher is the index of the first entry above the requested epoch.
	higher, _ := slices.BinarySearchFunc(entries, requested, func(e Entry, epoch int32) int {
		if e.Epoch <= epoch {
			return -1
		}
		return 1
	})
	switch {
	case requested == Undefined || len(entries) == 0:
		return Undefined, Undefined
	case entries[len(entries)-1].Epoch == requested:
		return requested, logEnd
	case higher == len(entries):
		return Undefined, Undefined
	case higher == 0:
		return requested, entries[0].StartOffset
	default:
		return entries[higher-1].Epoch, entries[higher].StartOffset
	}
}

// EpochForOffset returns the epoch that offset belongs to: the newest one that starts at or below it. ok is false below
// the first entry and when there is none. An offset beyond the log end belongs to the newest epoch. Kafka:
// LeaderEpochFileCache.epochForOffset.
func (c *Cache) EpochForOffset(offset int64) (epoch int32, ok bool) {
	entries := *c.entries.Load()
	above := firstAbove(entries, offset)
	if above == 0 {
		return Undefined, false
	}
	return entries[above-1].Epoch, true
}

// firstAbove is the index of the first entry that starts above offset.
func firstAbove(entries []Entry, offset int64) int {
	i, _ := slices.BinarySearchFunc(entries, offset, func(e Entry, offset int64) int {
		if e.StartOffset <= offset {
			return -1
		}
		return 1
	})
	return i
}

// TruncateFromEnd removes the entries that start at or above end, the new log end, and reports whether there were any.
// A negative end does nothing. Kafka: LeaderEpochFileCache.truncateFromEnd.
func (c *Cache) TruncateFromEnd(end int64) (changed bool) {
	if end < 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	old := *c.entries.Load()
	keep := firstAbove(old, end-1)
	if keep == len(old) {
		return false
	}
	entries := old[:keep]
	c.entries.Store(&entries)
	return true
}

// TruncateFromStart removes the entries that start at or below start, the new log start, except the newest of them: its
// epoch is the one that start belongs to, and it now starts there. It reports whether anything changed. Kafka:
// LeaderEpochFileCache.truncateFromStart.
func (c *Cache) TruncateFromStart(start int64) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := *c.entries.Load()
	above := firstAbove(old, start)
	if above == 0 || above == 1 && old[0].StartOffset == start {
		return false
	}
	entries := slices.Clone(old[above-1:])
	entries[0].StartOffset = start
	c.entries.Store(&entries)
	return true
}

// Replace replaces all entries by those of another cache. The slice must not be changed afterwards.
func (c *Cache) Replace(entries []Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries.Store(&entries)
}

// Clear removes all entries and reports whether there were any.
func (c *Cache) Clear() (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed = len(*c.entries.Load()) > 0
	c.entries.Store(new([]Entry))
	return changed
}
