package index

import (
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/oncelog/oncelog/internal/vfs"
)

// OffsetPosition is an entry of an offset index: the batch whose last offset is Offset begins at byte Position of
// the segment. (Kafka before 3.9 wrote one entry for an append of several batches: the last offset of all, the
// position of the first.)
type OffsetPosition struct {
	Offset   int64
	Position int32
}

// Offset is an offset index. Source: Kafka's OffsetIndex.
type Offset struct{ mapped }

// OpenOffset opens the offset index of the segment with the given base offset, or creates it, empty and without
// reserved space, unless c.ReadOnly. A directory, link or device in its place is vfs.ErrNotRegular, a file above
// 2^31-1 bytes a *CorruptError. The entries are counted (see the package comment), not checked.
func OpenOffset(fsys vfs.FS, path string, baseOffset int64, c Config) (*Offset, error) {
	x := &Offset{}
	if err := openMapped(&x.mapped, fsys, path, baseOffset, c, offsetLayout); err != nil {
		return nil, err
	}
	return x, nil
}

// Append adds the entry (offset, position). The offset must be above the last one (ErrInvalidOffset) and at most
// 2^31-1 above the base offset (ErrOffsetOverflow), the position not negative (ErrInvalidPosition), and the index not
// full (ErrFull). A full disk is vfs.ErrNoSpace. After any error the index is as before. Source: OffsetIndex.append.
func (x *Offset) Append(offset int64, position int32) error {
	x.wmu.Lock()
	defer x.wmu.Unlock()
	if err := x.writable(); err != nil {
		return err
	}
	if position < 0 {
		return fmt.Errorf("%w: %s: offset %d at %d", ErrInvalidPosition, x.path, offset, position)
	}
	if x.IsFull() {
		return fmt.Errorf("%w: %s: %d entries", ErrFull, x.path, x.Entries())
	}
	rel, err := x.relative(offset)
	if last, ok := x.lastPair(); ok && offset <= x.base+last.key {
		return fmt.Errorf("%w: %s: offset %d, last %d", ErrInvalidOffset, x.path, offset, x.base+last.key)
	}
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint64(x.scratch[:], uint64(rel)<<32|uint64(position))
	return x.add(pair{rel, int64(position)})
}

// IsFull reports whether the index has no room for another entry. Source: AbstractIndex.isFull.
func (x *Offset) IsFull() bool { return x.Entries() >= x.MaxEntries() }

// Lookup returns the entry with the greatest offset that is not above offset, or (base offset, 0) if there is none.
// The position is a hint until the batch there has been looked at. An entry that cannot be is a *CorruptError. It
// does not allocate. Source: OffsetIndex.lookup.
func (x *Offset) Lookup(offset int64) (OffsetPosition, error) {
	if offset < x.base {
		return OffsetPosition{Offset: x.base}, x.open()
	}
	// The difference is unsigned because it may exceed int64 when the base offset of a damaged name is negative.
	rel := int64(min(uint64(offset)-uint64(x.base), maxRelative))
	i, e, err := x.floorOf(x.key, rel)
	if err != nil {
		return OffsetPosition{}, err
	}
	if i < 0 {
		return OffsetPosition{Offset: x.base}, nil
	}
	return x.sound(i, e)
}

// UpperBound returns the first entry at or behind byte from.Position+size, and false if there is none. The offset of
// that entry bounds from above what size bytes from from.Position on can hold. It does not allocate. Source:
// OffsetIndex.fetchUpperBoundOffset, there in int32 arithmetic. With Config.KafkaOpen an entry exactly there that is the
// very first is passed over, since Kafka's bisection never looks at where it begins; the bound is then a wider one.
func (x *Offset) UpperBound(from OffsetPosition, size int32) (OffsetPosition, bool, error) {
	end := int64(from.Position) + int64(size)
	i, _, err := x.floorOf(x.value, end-1)
	if err != nil {
		return OffsetPosition{}, false, err
	}
	var e [2]pair
	n, err := x.copyPairs(i+1, e[:])
	if err != nil || n == 0 {
		return OffsetPosition{}, false, err
	}
	if x.kafka && i+1 == 0 && e[0].value == end {
		if n == 1 {
			return OffsetPosition{}, false, nil
		}
		i, e[0] = 0, e[1]
	}
	p, err := x.sound(i+1, e[0])
	return p, err == nil, err
}

// Entry returns entry number i, counted from 0, as it is stored, without a check; ErrInvalidEntries if there is no
// such entry. Source: OffsetIndex.entry.
func (x *Offset) Entry(i int) (OffsetPosition, error) {
	e, err := x.pairNumber(i)
	return x.public(e), err
}

// LastOffset is the offset of the last entry, or the base offset if there is none. Source: OffsetIndex.lastOffset.
func (x *Offset) LastOffset() int64 { return x.LastEntry().Offset }

// LastEntry is the last entry, or (base offset, 0) if there is none.
func (x *Offset) LastEntry() OffsetPosition {
	e, ok := x.lastPair()
	if !ok {
		return OffsetPosition{Offset: x.base}
	}
	return x.public(e)
}

// All yields the entries in order as they are stored, without a check. An error ends the sequence. Entries appended
// meanwhile may be seen, and the loop may call any method of the index.
func (x *Offset) All() iter.Seq2[OffsetPosition, error] {
	return func(yield func(OffsetPosition, error) bool) {
		for e, err := range x.pairs() {
			if err != nil {
				yield(OffsetPosition{}, err)
				return
			}
			if !yield(x.public(e), nil) {
				return
			}
		}
	}
}

// SanityCheck is Kafka's own check: the last offset is not below the base offset, the file holds whole entries. It
// does not look at the other entries. Source: OffsetIndex.sanityCheck.
func (x *Offset) SanityCheck() error {
	if n := x.Entries(); n > 0 && x.LastOffset() < x.base {
		return x.corrupt(n-1, "last offset %d below base offset %d", x.LastOffset(), x.base)
	}
	return x.checkLength()
}

// CheckEntries looks at every entry: offsets and positions strictly increase, and every position lies within the
// logSize bytes of the log. The first entry that does not fit is named in a *CorruptError. Whether a batch begins at
// each position only the log can tell.
func (x *Offset) CheckEntries(logSize int64) error {
	last := pair{-1, -1}
	i := 0
	for e, err := range x.pairs() {
		switch {
		case err != nil:
			return err
		case e.key > maxRelative:
			return x.corrupt(i, "relative offset %d is negative", int32(e.key))
		case e.key <= last.key:
			return x.corrupt(i, "offset %d does not follow %d", x.base+e.key, x.base+last.key)
		case e.value > maxRelative:
			return x.corrupt(i, "position %d is negative", int32(e.value))
		case e.value <= last.value:
			return x.corrupt(i, "position %d does not follow %d", e.value, last.value)
		case e.value >= logSize:
			return x.corrupt(i, "position %d is outside the log of %d bytes", e.value, logSize)
		}
		last, i = e, i+1
	}
	return x.checkLength()
}

// public returns an entry as Kafka reads it, with the sign of a damaged one.
func (x *Offset) public(e pair) OffsetPosition {
	return OffsetPosition{Offset: x.base + int64(int32(e.key)), Position: int32(e.value)}
}

// sound returns entry i if it can be one.
func (x *Offset) sound(i int, e pair) (OffsetPosition, error) {
	if e.key > maxRelative || e.value > maxRelative {
		return OffsetPosition{}, x.corrupt(i, "relative offset %d, position %d", int32(e.key), int32(e.value))
	}
	return x.public(e), nil
}
