package index

import (
	"errors"
	"fmt"

	"github.com/oncelog/oncelog/internal/vfs"
)

// Space is reserved in steps that double from minStep to maxStep, so that many small segments do not claim their
// largest possible index each, and a large one is remapped a handful of times only.
const (
	minStep = 4 << 10
	maxStep = 1 << 20
)

// writable returns why the index cannot be changed, if it cannot. The caller holds wmu.
func (x *mapped) writable() error {
	switch {
	case x.closed:
		return fmt.Errorf("%w: %s", ErrClosed, x.path)
	case x.ro:
		return fmt.Errorf("%w: %s", ErrReadOnly, x.path)
	}
	return nil
}

// relative returns the offset relative to the base offset.
func (x *mapped) relative(offset int64) (int64, error) {
	rel := offset - x.base
	if offset < x.base || rel < 0 || rel > maxRelative {
		return 0, fmt.Errorf("%w: %s: offset %d, base offset %d", ErrOffsetOverflow, x.path, offset, x.base)
	}
	return rel, nil
}

// add appends the entry e, which is entry as stored, in x.scratch. The caller holds wmu and has checked it.
func (x *mapped) add(e pair) error {
	i := int(x.n.Load())
	if err := x.reserve(i + 1); err != nil {
		return err
	}
	p := x.scratch[:x.size]
	if x.through {
		if _, err := x.file.WriteAt(p, int64(i)*int64(x.size)); err != nil {
			return fmt.Errorf("index: entry %d: %w", i, err)
		}
	}
	if err := x.store(i, p); err != nil {
		// On a file system that copies on write, the promise of Allocate is weak. A write says plainly what is the
		// matter, or succeeds, in which case the map has the page too.
		if _, werr := x.file.WriteAt(p, int64(i)*int64(x.size)); werr != nil {
			return fmt.Errorf("index: entry %d: %w, after %w", i, werr, err)
		}
	}
	x.publish(i, e)
	return nil
}

// reserve makes sure that n entries have space on the disk and are mapped. The caller holds wmu.
func (x *mapped) reserve(n int) error {
	need := int64(n) * int64(x.size)
	if need <= x.granted && need <= int64(len(x.buf)) {
		return nil
	}
	if need > x.limit.Load() {
		return fmt.Errorf("%w: %s: %d entries", ErrFull, x.path, n-1)
	}
	if x.granted == 0 && x.length > x.used() {
		// What an earlier process left behind the entries, a partial entry or a zero tail without blocks, goes
		// first: otherwise a crash between the reservation and the store could turn it into an entry.
		if err := x.cut(n-1, x.lastStored()); err != nil {
			return err
		}
	}
	if need > x.granted {
		from := max(x.used(), x.granted)
		want := min(x.limit.Load(), x.whole(from+min(max(from, minStep), maxStep)))
		err := x.file.Allocate(want)
		if errors.Is(err, vfs.ErrNoSpace) && want > need {
			want = need
			err = x.file.Allocate(want)
		}
		if err != nil {
			return fmt.Errorf("index: reserve %d bytes: %w", want, err)
		}
		x.granted, x.length = want, max(x.length, want)
	}
	return x.remap()
}

func (x *mapped) lastStored() pair {
	last, _ := x.lastPair()
	return last
}

// cut leaves the first n entries, the last of which is last, in the index and in the file. The entries are gone for
// readers even if the file cannot be cut. The caller holds wmu.
func (x *mapped) cut(n int, last pair) error {
	x.mu.Lock()
	x.publish(n-1, last)
	err := x.unmap()
	x.mu.Unlock()
	x.granted = 0
	if err != nil {
		return err
	}
	size := int64(n) * int64(x.size)
	x.shrunk.Store(true)
	if err := x.file.Truncate(size); err != nil {
		return fmt.Errorf("index: cut to %d bytes: %w", size, err)
	}
	x.length, x.granted = size, size
	return nil
}

// truncate removes the entries from the first one on whose column c is rel or more.
func (x *mapped) truncate(c column, rel int64) error {
	x.wmu.Lock()
	defer x.wmu.Unlock()
	if err := x.writable(); err != nil {
		return err
	}
	if err := x.loaded(); err != nil {
		return err
	}
	i, e, err := x.floorOf(c, rel-1)
	if err != nil || i == int(x.n.Load())-1 {
		return err
	}
	return x.cut(i+1, e)
}

// TruncateTo removes all entries whose offset is offset or more, from the file too: what stayed there would be an entry
// again after a crash. Unlike here, Kafka's truncateTo lowers a number in memory and leaves the file to recovery. Lookups
// that run meanwhile see the index before or after. On an error of the file system the entries are gone for this handle
// but may still be in the file; the next append cuts them off first. The cut is durable after Flush.
func (x *mapped) TruncateTo(offset int64) error {
	c := x.key
	if c.wide {
		c = x.value
	}
	if offset <= x.base {
		return x.truncate(c, 0)
	}
	return x.truncate(c, int64(min(uint64(offset)-uint64(x.base), maxRelative+1)))
}

// Reset removes all entries and cuts the file to nothing, whatever it holds. Durable after Flush.
func (x *mapped) Reset() error {
	x.wmu.Lock()
	defer x.wmu.Unlock()
	if err := x.writable(); err != nil {
		return err
	}
	x.tail = 0
	if x.length == 0 {
		return nil
	}
	return x.cut(0, pair{})
}

// SetEntries corrects the number of entries found at open, for a caller that knows from the log how many there can
// be. A lower number cuts a writable file like TruncateTo; a higher one takes slots of the zero tail for entries and
// is ErrInvalidEntries if the file has not got so many. A read-only index changes in memory only.
func (x *mapped) SetEntries(n int) error {
	x.wmu.Lock()
	defer x.wmu.Unlock()
	if x.closed {
		return fmt.Errorf("%w: %s", ErrClosed, x.path)
	}
	if n < 0 || int64(n) > x.length/int64(x.size) {
		return fmt.Errorf("%w: %s: %d entries in %d bytes", ErrInvalidEntries, x.path, n, x.length)
	}
	old := int(x.n.Load())
	if n == old {
		return nil
	}
	var last pair
	if n > 0 {
		p := x.scratch[:x.size]
		if err := readFull(x.file, p, int64(n-1)*int64(x.size)); err != nil {
			return fmt.Errorf("index: %s: read entry %d: %w", x.path, n-1, err)
		}
		last = x.pairAt(p, 0)
	}
	if n < old && !x.ro {
		return x.cut(n, last)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.publish(n-1, last)
	return x.unmap()
}

// Resize sets the size up to which the index may grow, rounded down to whole entries, as Kafka does for the active
// segment after a load. It never goes below the entries that are there. Where the file is longer it is cut.
func (x *mapped) Resize(maxBytes int32) error {
	x.wmu.Lock()
	defer x.wmu.Unlock()
	if err := x.writable(); err != nil {
		return err
	}
	if int(maxBytes) < x.size {
		return fmt.Errorf("%w: %s: %d bytes, an entry has %d", ErrInvalidSize, x.path, maxBytes, x.size)
	}
	limit := max(x.whole(int64(maxBytes)), x.used())
	x.limit.Store(limit)
	if x.length <= limit {
		return nil
	}
	return x.cut(int(x.n.Load()), x.lastStored())
}

// Trim cuts the file to its entries, as for a segment that takes no more appends. An append afterwards reserves
// space anew. Lookups may run meanwhile. The cut is durable after Flush.
func (x *mapped) Trim() error {
	x.wmu.Lock()
	defer x.wmu.Unlock()
	if err := x.writable(); err != nil {
		return err
	}
	if x.length == x.used() {
		return nil
	}
	return x.cut(int(x.n.Load()), x.lastStored())
}
