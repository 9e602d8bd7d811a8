package wal

import (
	"errors"
	"fmt"
	"math"

	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// UnreadableError says that the records of a range of offsets cannot be read. Err tells why: it matches ErrCorrupt
// where bytes are damaged, ErrUnsupportedVersion and ErrUnsupportedCompression where this program does not know the
// format. Last + 1 is the next offset that can be read, or the end of the log.
//
// In a read-only log that is damaged it also stands for records that nobody knows to be committed, as the marker of their
// transaction may have been among the damaged bytes, and at the end of the log for what had been promised behind it.
//
// How many offsets damage has taken is told by the next batch that is whole. If several batches lie between, all of them
// are in the range. Bytes that hold no offset, as behind the last batch of a segment, are passed over: nothing is lost by
// them, and inspect tells of them.
type UnreadableError struct {
	First, Last int64
	Path        string // of the .log file
	Position    int64  // byte in it where the bad batch begins
	Err         error
}

// Error gives the offsets, the file, the byte and the reason.
func (e *UnreadableError) Error() string {
	return fmt.Sprintf("wal: offsets %d to %d cannot be read: %s at byte %d: %v", e.First, e.Last, e.Path, e.Position, e.Err)
}

// Unwrap returns the reason.
func (e *UnreadableError) Unwrap() error { return e.Err }

// Is matches ErrCorrupt where a batch claims to be longer than the log: in front of the end that is damage.
func (e *UnreadableError) Is(target error) bool {
	return target == ErrCorrupt && errors.Is(e.Err, record.ErrTruncated)
}

// stretch is what is visible of one segment.
type stretch struct {
	s    *segment.Segment
	end  int64 // byte
	last int64 // greatest offset that it may hold
	gaps bool
}

func (l *Log) stretch(set *segment.Set, s *segment.Segment, e *ends) stretch {
	w := stretch{s: s, end: endIn(s, e.end), last: e.end.offset - 1, gaps: e.gaps}
	if next, ok := set.Higher(s.BaseOffset()); ok && next.BaseOffset() <= e.end.offset {
		w.last = next.BaseOffset() - 1
	}
	return w
}

// resync finds the first whole batch behind a bad one at position whose offsets begin at lowest or above. A record's
// value may hold batches, even a stretch of another log: where the length of the bad batch does not lead to the next one,
// something else has to speak for it.
func (w *stretch) resync(position, lowest int64) (at int64, h segment.Header, found bool, err error) {
	claimed := int64(-1)
	if h, err := w.s.HeaderAt(position, w.end); err == nil {
		claimed = h.End()
	}
	for from := position; ; from = at {
		at, found, err = w.s.FindBatch(from, w.end, math.MaxInt32, func(h segment.Header) bool { return h.BaseOffset >= lowest })
		if errors.Is(err, segment.ErrSearchLimit) {
			return 0, h, false, nil
		}
		if err != nil || !found {
			return 0, h, false, err
		}
		if h, err = w.s.HeaderAt(at, w.end); err != nil {
			return 0, h, false, err
		}
		genuine := at == claimed
		if !genuine {
			genuine, err = w.isGenuine(at)
		}
		if genuine || err != nil {
			return at, h, genuine, err
		}
	}
}

// corroborate is how far behind a batch the log is looked at for what speaks for it. An index has entries closer than
// that.
const corroborate = 256 << 10

// isGenuine tells whether the batch at a position belongs to the log. The batches behind it have to follow each other,
// and a look-up of one of them, by an index entry, has to lead to the same place; or they have to lead to the very end
// of the segment. Where damage comes again so soon that neither is so, a few batches between are given up.
func (w *stretch) isGenuine(position int64) (bool, error) {
	walk := w.s.ScanHeaders(position, w.end)
	var last segment.Header
	for walk.Next() && last.Position-position < corroborate {
		h := walk.Header()
		if last.Size > 0 && !w.follows(&last, h.BaseOffset) {
			break
		}
		last = h
	}
	if err := walk.Err(); err != nil {
		return false, err
	}
	if k := walk.Tail().Kind; (k == segment.CleanEnd || k == segment.ZeroTail) && w.follows(&last, w.last+1) {
		return true, nil
	}
	at, _, found, err := w.s.Locate(last.LastOffset, w.end)
	if damage := (*segment.CorruptError)(nil); errors.As(err, &damage) {
		return false, nil
	}
	return found && at == last.Position, err
}

// follows tells whether a batch with the base offset next can come behind h.
func (w *stretch) follows(h *segment.Header, next int64) bool {
	return next == h.NextOffset() || w.gaps && next > h.NextOffset()
}

// confirms tells whether what comes behind a whole batch speaks for its offsets, which no checksum covers.
func (w *stretch) confirms(h segment.Header) (bool, error) {
	size, err := w.s.Size()
	if err != nil || h.LastOffset > w.last {
		return false, err
	}
	// Where the next one is one whose offset was changed, the one behind it speaks for both: it is whole, so it has as many
	// offsets as it says. Of several in a row a few are given up.
	const most = 8
	next, end := h, min(w.end, size)
	for range most {
		if next.End() >= end {
			return w.follows(&next, w.last+1), nil
		}
		n, err := w.s.HeaderAt(next.End(), end)
		if damage := (*segment.CorruptError)(nil); errors.As(err, &damage) {
			return true, nil // it is the next one that is damaged
		}
		if err != nil {
			return false, err
		}
		if w.follows(&next, n.BaseOffset) {
			return true, nil
		}
		whole := w.s.ScanWith(n.Position, n.End(), segment.ScanOptions{})
		if !whole.Next() {
			return whole.Err() == nil, whole.Err()
		}
		if w.gaps {
			return false, nil
		}
		n.LastOffset = next.LastOffset + 1 + n.LastOffset - n.BaseOffset
		next = n
	}
	return false, nil
}

// around finds, behind damage in a segment, the batch that holds an offset. It is not found where nothing of the segment is
// missing and the offset lies in a later one: then the damage is in bytes that held no offset. The error says which offsets
// the damage has taken, if this one is among them.
func (l *Log) around(set *segment.Set, s *segment.Segment, damage *segment.CorruptError, offset int64, e *ends) (at int64, found bool, err error) {
	w := l.stretch(set, s, e)
	if offset > w.last {
		return 0, false, nil
	}
	if missing, ok := errors.AsType[*segment.MissingError](damage.Err); ok {
		return 0, false, &UnreadableError{First: offset, Last: missing.Last, Path: damage.Path, Position: damage.Position, Err: damage.Err}
	}
	lowest := max(s.BaseOffset(), damage.LastOffset+1)
	hole := func(last int64) error {
		return &UnreadableError{First: offset, Last: last, Path: damage.Path, Position: damage.Position, Err: damage.Err}
	}
	for {
		at, _, found, err := w.resync(damage.Position, lowest)
		if err != nil {
			return 0, false, err
		}
		if !found {
			return 0, false, hole(w.last)
		}
		walk := s.ScanWith(at, w.end, segment.ScanOptions{})
		for walk.Next() {
			b := walk.Batch()
			if b.LastOffset() < offset {
				lowest = b.NextOffset()
				continue
			}
			h, err := s.HeaderAt(b.Position, w.end)
			if err != nil {
				return 0, false, err
			}
			confirmed, err := w.confirms(h)
			switch {
			case err != nil:
				return 0, false, err
			case !confirmed:
			case b.BaseOffset() <= offset:
				return b.Position, true, nil
			default:
				return 0, false, hole(b.BaseOffset() - 1)
			}
		}
		if err := walk.Err(); err != nil {
			return 0, false, err
		}
		t := walk.Tail()
		if t.Kind != segment.Damage && t.Kind != segment.Torn {
			return 0, false, hole(w.last)
		}
		damage = &segment.CorruptError{Path: damage.Path, Position: t.Position, LastOffset: t.LastOffset, Err: errors.Unwrap(t.Reason)}
	}
}

// batchAt returns the batch that holds an offset, verified. It belongs to the caller.
func (l *Log) batchAt(offset int64) (record.Batch, error) {
	for {
		f, err := l.Read(offset, ReadOptions{MaxBytes: 1, Isolation: LogEnd, MinOneMessage: true})
		if err != nil {
			return nil, err
		}
		p, err := f.Records.AppendTo(nil)
		err = errors.Join(err, f.Close())
		if errors.Is(err, segment.ErrCut) || errors.Is(err, segment.ErrClosed) {
			continue
		}
		if err != nil {
			return nil, err
		}
		b, _, err := record.Next(p)
		if err == nil {
			err = b.Validate()
		}
		if err == nil {
			p := piece{logEnd: f.Offsets.LogEnd, gaps: l.visible.load().gaps}
			err = p.inPlace(b, offset, false)
		}
		if err != nil {
			return nil, &UnreadableError{First: offset, Last: offset, Path: l.dir, Position: f.Position, Err: err}
		}
		return b, nil
	}
}
