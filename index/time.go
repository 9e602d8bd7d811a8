package index

import (
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/oncelog/oncelog/internal/vfs"
)

// NoTimestamp is the timestamp of an empty time index, and of records that have none.
const NoTimestamp = -1

// TimestampOffset is an entry of a time index: Timestamp, in milliseconds, is the greatest of the segment up to the
// batch whose last offset is Offset, which was the first to reach it. (Kafka before 3.9 wrote the offset of the record
// itself while appending; it may lie inside a batch.)
type TimestampOffset struct{ Timestamp, Offset int64 }

// Time is a time index. Source: Kafka's TimeIndex.
type Time struct{ mapped }

// OpenTime opens the time index of the segment with the given base offset, or creates it; see OpenOffset.
func OpenTime(fsys vfs.FS, path string, baseOffset int64, c Config) (*Time, error) {
	x := &Time{}
	if err := openMapped(&x.mapped, fsys, path, baseOffset, c, timeLayout); err != nil {
		return nil, err
	}
	return x, nil
}

// MaybeAppend adds the entry (timestamp, offset) and does nothing if the timestamp equals that of the last entry, or
// if the index is empty and the timestamp negative. An offset below the last one is ErrInvalidOffset, a timestamp
// below the last one ErrInvalidTimestamp, an offset without a place in the segment ErrOffsetOverflow. One slot is
// kept for the entry that ends a segment (at roll, close and recovery): without skipFullCheck the index is full
// (ErrFull) when that slot alone is left. After any error the index is as before. Source: TimeIndex.maybeAppend.
func (x *Time) MaybeAppend(timestamp, offset int64, skipFullCheck bool) error {
	x.wmu.Lock()
	defer x.wmu.Unlock()
	if err := x.writable(); err != nil {
		return err
	}
	if !skipFullCheck && x.IsFull() {
		return fmt.Errorf("%w: %s: %d entries", ErrFull, x.path, x.Entries())
	}
	last := x.LastEntry()
	if x.Entries() > 0 {
		if offset < last.Offset {
			return fmt.Errorf("%w: %s: offset %d, last %d", ErrInvalidOffset, x.path, offset, last.Offset)
		}
		if timestamp < last.Timestamp {
			return fmt.Errorf("%w: %s: timestamp %d, last %d", ErrInvalidTimestamp, x.path, timestamp, last.Timestamp)
		}
	}
	if timestamp <= last.Timestamp {
		return nil
	}
	rel, err := x.relative(offset)
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint64(x.scratch[:], uint64(timestamp))
	binary.BigEndian.PutUint32(x.scratch[8:], uint32(rel))
	return x.add(pair{timestamp, rel})
}

// IsFull reports whether the index has no room for another entry besides the one that ends the segment. Source:
// TimeIndex.isFull.
func (x *Time) IsFull() bool { return x.Entries() >= x.MaxEntries()-1 }

// Lookup returns the entry with the greatest timestamp that is not above timestamp, or (NoTimestamp, base offset) if
// there is none: batches at or below its offset have no greater timestamp than the entry. An entry that cannot be is a
// *CorruptError. It does not allocate. Source: TimeIndex.lookup.
func (x *Time) Lookup(timestamp int64) (TimestampOffset, error) {
	i, e, err := x.floorOf(x.key, timestamp)
	if err != nil {
		return TimestampOffset{}, err
	}
	if i < 0 {
		return TimestampOffset{NoTimestamp, x.base}, nil
	}
	if e.key < 0 || e.value > maxRelative {
		return TimestampOffset{}, x.corrupt(i, "timestamp %d, relative offset %d", e.key, int32(e.value))
	}
	return x.public(e), nil
}

// Entry returns entry number i, counted from 0, as it is stored, without a check; ErrInvalidEntries if there is no
// such entry. Source: TimeIndex.entry.
func (x *Time) Entry(i int) (TimestampOffset, error) {
	e, err := x.pairNumber(i)
	return x.public(e), err
}

// LastEntry is the last entry as it is stored, or (NoTimestamp, base offset) if there is none. Source:
// TimeIndex.lastEntry.
func (x *Time) LastEntry() TimestampOffset {
	e, ok := x.lastPair()
	if !ok {
		return TimestampOffset{NoTimestamp, x.base}
	}
	return x.public(e)
}

// All yields the entries in order as they are stored, without a check; see Offset.All.
func (x *Time) All() iter.Seq2[TimestampOffset, error] {
	return func(yield func(TimestampOffset, error) bool) {
		for e, err := range x.pairs() {
			if err != nil {
				yield(TimestampOffset{}, err)
				return
			}
			if !yield(x.public(e), nil) {
				return
			}
		}
	}
}

// SanityCheck is Kafka's own check: the last timestamp is not below the first, the last offset not below the base
// offset, and the file holds whole entries. Source: TimeIndex.sanityCheck.
func (x *Time) SanityCheck() error {
	if n := x.Entries(); n > 0 {
		first, err := x.Entry(0)
		if err != nil {
			return err
		}
		last := x.LastEntry()
		if last.Timestamp < first.Timestamp {
			return x.corrupt(n-1, "last timestamp %d below the first, %d", last.Timestamp, first.Timestamp)
		}
		if last.Offset < x.base {
			return x.corrupt(n-1, "last offset %d below base offset %d", last.Offset, x.base)
		}
	}
	return x.checkLength()
}

// CheckEntries looks at every entry: timestamps are not negative and strictly increase, offsets do not decrease and
// are below end, the offset behind the last record of the segment. The first entry that does not fit is named in a
// *CorruptError.
func (x *Time) CheckEntries(end int64) error {
	last := pair{NoTimestamp, 0}
	i := 0
	for e, err := range x.pairs() {
		switch {
		case err != nil:
			return err
		case e.key < 0:
			return x.corrupt(i, "timestamp %d is negative", e.key)
		case e.key <= last.key:
			return x.corrupt(i, "timestamp %d does not follow %d", e.key, last.key)
		case e.value > maxRelative:
			return x.corrupt(i, "relative offset %d is negative", int32(e.value))
		case e.value < last.value:
			return x.corrupt(i, "offset %d below that of the entry before it, %d", x.base+e.value, x.base+last.value)
		case x.base+e.value >= end:
			return x.corrupt(i, "offset %d is outside the segment, which ends at %d", x.base+e.value, end)
		}
		last, i = e, i+1
	}
	return x.checkLength()
}

// public returns an entry as Kafka reads it, with the sign of a damaged one.
func (x *Time) public(e pair) TimestampOffset {
	return TimestampOffset{Timestamp: e.key, Offset: x.base + int64(int32(e.value))}
}
