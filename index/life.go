package index

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// maxRelative is the greatest relative offset, and the greatest position. Format.
const maxRelative = 1<<31 - 1

// debugFault turns memory faults of this goroutine into panics and returns what leave has to restore.
func debugFault() bool { return debug.SetPanicOnFault(true) }

// Path is the name the index was opened with. Close the index before its file is renamed.
func (x *mapped) Path() string { return x.path }

// BaseOffset is the base offset of the segment, as given at open.
func (x *mapped) BaseOffset() int64 { return x.base }

// Created reports whether the file was missing and was created by this open. The name is durable after a sync of
// the directory. Beside a segment that is not new it means that the index has to be rebuilt.
func (x *mapped) Created() bool { return x.created }

// Entries is the number of entries.
func (x *mapped) Entries() int { return int(x.n.Load()) }

// UsedBytes is the size of the entries, which is the size of the file after Trim.
func (x *mapped) UsedBytes() int64 { return x.used() }

// MaxEntries is the number of entries up to which the index may grow.
func (x *mapped) MaxEntries() int { return int(x.limit.Load()) / x.size }

// ZeroTail is the number of slots of zeros that were found behind the entries at open: 0 in a trimmed index, and
// with Config.KafkaOpen.
func (x *mapped) ZeroTail() int {
	x.wmu.Lock()
	defer x.wmu.Unlock()
	return x.tail
}

// Flush makes the entries durable, and a cut of the file too. It may run beside appends, and covers those that returned
// before it began. After an error entries may be gone although a later Flush succeeds: rebuild the index, do not retry.
// In a read-only index it does nothing.
func (x *mapped) Flush() error {
	x.syncMu.Lock()
	defer x.syncMu.Unlock()
	if err := x.open(); err != nil || x.ro {
		return err
	}
	sync := x.file.SyncData
	if x.shrunk.Swap(false) {
		sync = x.file.Sync
	}
	if err := sync(); err != nil {
		x.shrunk.Store(true)
		return fmt.Errorf("index: %w", err)
	}
	return nil
}

// Unmap gives the memory and the map of an idle index back. The next use maps it again.
func (x *mapped) Unmap() error {
	x.wmu.Lock()
	defer x.wmu.Unlock()
	if x.closed {
		return fmt.Errorf("%w: %s", ErrClosed, x.path)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.unmap()
}

// Close waits for the lookups that are inside, unmaps and closes the file. It neither trims nor flushes. Everything
// but Path, BaseOffset, the counts and the last entry is ErrClosed from then on; closing again does nothing.
func (x *mapped) Close() error {
	x.wmu.Lock()
	defer x.wmu.Unlock()
	if x.closed {
		return nil
	}
	x.mu.Lock()
	x.closed = true
	err := x.unmap()
	x.mu.Unlock()
	x.syncMu.Lock()
	f := x.file
	x.file = nil
	x.syncMu.Unlock()
	if f == nil {
		return err
	}
	if cerr := f.Close(); cerr != nil {
		return errors.Join(err, fmt.Errorf("index: %w", cerr))
	}
	return err
}
