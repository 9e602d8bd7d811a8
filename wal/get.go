package wal

import (
	"context"
	"errors"
	"fmt"

	"github.com/oncelog/oncelog/segment"
)

// ErrNoRecord is matched by NoRecordError.
var ErrNoRecord = errors.New("wal: no record at this offset")

// NoRecordReason says why an offset of the log has no record that readers get.
type NoRecordReason uint8

// The reasons.
const (
	NotCommitted NoRecordReason = iota // a transaction is open at it or before it, or the high watermark lies below: it may come
	Aborted                            // its transaction was aborted
	Control                            // it is a marker of the log's own
	Missing                            // no record has it: it was compacted away, or offsets were left out
)

// String returns the reason in words.
func (r NoRecordReason) String() string {
	switch r {
	case NotCommitted:
		return "it is not committed yet"
	case Aborted:
		return "its transaction was aborted"
	case Control:
		return "it is a control record"
	}
	return "it was compacted away, or never used"
}

// NoRecordError is a Get of an offset inside the log that has no record for readers. It matches ErrNoRecord.
type NoRecordError struct {
	Offset int64
	Reason NoRecordReason
}

// Error gives the offset and the reason.
func (e *NoRecordError) Error() string {
	return fmt.Sprintf("wal: no record at offset %d: %v", e.Offset, e.Reason)
}

// Is reports whether target is ErrNoRecord.
func (e *NoRecordError) Is(target error) bool { return target == ErrNoRecord }

// Get returns the committed record at an offset; it belongs to the caller. It does not wait: Wait does, until there is
// something to get. It reads one stretch of the log, and its batch is verified.
//
// Errors: *OffsetError below the log start and at or above the log end, *NoRecordError where the log has no such record for
// readers of committed ones, *UnreadableError where bytes are damaged, ErrClosed.
func (l *Log) Get(offset int64) (Stored, error) {
	e := l.visible.load()
	if l.isClosed.Load() {
		return Stored{}, ErrClosed
	}
	if offset < e.logStart || offset >= e.end.offset {
		return Stored{}, &OffsetError{Offset: offset, LogStart: e.logStart, LogEnd: e.end.offset}
	}
	list, _, err := l.readUpTo(offset, 1, offset+1)
	switch {
	case err != nil:
		return Stored{}, err
	case len(list) == 1:
		return list[0], nil
	}
	reason, err := l.whyNone(offset)
	if err != nil {
		return Stored{}, err
	}
	return Stored{}, &NoRecordError{Offset: offset, Reason: reason}
}

// ReadRecords returns up to most committed records from offset from on, and where to go on: behind the last one, and behind
// offsets that have no record for readers. It does not wait: at the end the list is empty and next is from. Records and
// errors are those of Log.Records; together with an error come the records before it, and next is then where the damage
// begins.
func (l *Log) ReadRecords(from int64, most int) (list []Stored, next int64, err error) {
	if most <= 0 {
		return nil, from, fmt.Errorf("%w: read %d records", ErrInvalidArgument, most)
	}
	list, next, err = l.readUpTo(from, most, 1<<63-1)
	if err == nil && len(list) == 0 {
		err = l.lost(next)
	}
	return list, next, err
}

// readUpTo is ReadRecords below an offset.
func (l *Log) readUpTo(from int64, most int, below int64) (list []Stored, next int64, err error) {
	until, err := l.stableEnd(context.Background())
	if err != nil {
		return nil, from, err
	}
	c := cursor{l: l, at: from}
	c.yield = func(s Stored, e error) bool {
		if e != nil {
			err = e
			return false
		}
		list, next = append(list, s), s.Offset+1
		return len(list) < most
	}
	if err := c.begin(); err != nil {
		return nil, from, err
	}
	if c.run(min(until.readable(), below)) || err != nil {
		next = c.at
	}
	return list, next, err
}

// whyNone tells why an offset of the log has no committed record.
func (l *Log) whyNone(offset int64) (reason NoRecordReason, err error) {
	stable, err := l.stableEnd(context.Background())
	if err != nil {
		return 0, err
	}
	if offset >= stable.readable() {
		return NotCommitted, nil
	}
	err = l.observe(func(e *ends, set *segment.Set) error {
		reason = Missing
		p, found, err := l.locate(set, offset, e.end)
		if err != nil || !found || p.offset > offset {
			return err
		}
		s, ok := set.Get(p.segment)
		if !ok {
			return nil
		}
		h, err := s.HeaderAt(p.position, endIn(s, e.end))
		if err != nil {
			return err
		}
		if h.Attributes.IsControl() {
			reason = Control
		} else if h.Attributes.IsTransactional() {
			r := segment.Records{Position: h.Position, Size: int(h.Size)}
			txns, err := aborted(set, s, &r, offset, endIn(s, e.end), e.end.offset)
			if err != nil {
				return err
			}
			for _, t := range txns {
				if t.ProducerID == h.ProducerID && t.FirstOffset <= offset && offset <= t.LastOffset {
					reason = Aborted
				}
			}
		}
		return nil
	})
	return reason, err
}
