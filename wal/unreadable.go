package wal

import (
	"errors"
	"fmt"
	"math"

	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// UnreadableError says that the records of a range of offsets cannot be read. Err tells why: it matches ErrCorrupt where
// bytes are damaged, ErrUnsupportedVersion and ErrUnsupportedCompression where this program does not know the format. Last + 1 is the next
// offset that can be read, or the end of the log.
//
// How many offsets damage has taken is told by the next batch that is whole. If several batches lie between, all of them
// are in the range.
type UnreadableError struct {
	First, Last int64
	Path        string // of the .log file
	Position    int64  // byte in it where the bad batch begins
	Err         error
}

// Error gives the offsets, the file, the byte and the reason.
func (e *UnreadableError) Error() string {
	return fmt.Sprintf("wal: offsets %d to %d cannot be read: %s, byte %d: %v", e.First, e.Last, e.Path, e.Position, e.Err)
}

// Unwrap returns the reason.
func (e *UnreadableError) Unwrap() error { return e.Err }

// errAgain asks for another try: the log changed during the look-up.
var errAgain = errors.New("wal: the log changed")

// fail reports the batch at a position of the piece, which bears the next offset. It returns false, as the loop is over.
func (c *cursor) fail(p *piece, position int64, cause error) bool {
	e := &UnreadableError{First: c.at, Path: p.segment.Path(), Position: position, Err: cause}
	view := c.l.visible.load()
	set := c.l.segments.Load()
	end := endIn(p.segment, view.end)
	_, h, found, err := resync(p.segment, position, end, c.at)
	if err != nil {
		c.yield(Stored{}, errors.Join(e.Err, err))
		return false
	}
	e.Last = h.BaseOffset - 1
	if !found {
		e.Last = lastIn(set, p.segment, &view)
	}
	e.Last = max(e.Last, e.First)
	c.yield(Stored{}, e)
	return false
}

// lastIn is the last offset that a segment may hold.
func lastIn(set *segment.Set, s *segment.Segment, e *ends) int64 {
	if next, ok := set.Higher(s.BaseOffset()); ok && next.BaseOffset() <= e.end.offset {
		return next.BaseOffset() - 1
	}
	return e.end.offset - 1
}

// resync finds the first whole batch behind a bad one at position, all of whose offsets lie above after − 1. Bytes
// inside a record's value may look like a batch: where the length of the bad batch does not lead to the next one, that
// one has to lead to its successor.
func resync(s *segment.Segment, position, end, after int64) (at int64, h segment.Header, found bool, err error) {
	claimed := int64(-1)
	if h, err := s.HeaderAt(position, end); err == nil {
		claimed = h.End()
	}
	for from := position; ; from = at {
		at, found, err = s.FindBatch(from, end, math.MaxInt32, func(h segment.Header) bool { return h.BaseOffset >= after })
		if errors.Is(err, segment.ErrSearchLimit) {
			return 0, h, false, nil
		}
		if err != nil || !found {
			return 0, h, false, err
		}
		if h, err = s.HeaderAt(at, end); err != nil {
			return 0, h, false, err
		}
		if at == claimed || leadsOn(s, &h, end) {
			return at, h, true, nil
		}
	}
}

// leadsOn tells whether a batch is followed by another one, or is the last.
func leadsOn(s *segment.Segment, h *segment.Header, end int64) bool {
	if size, err := s.Size(); err == nil && h.End() >= min(end, size) {
		return true
	}
	next, err := s.HeaderAt(h.End(), end)
	return err == nil && next.BaseOffset >= h.NextOffset()
}

// behind reads from the next offset on where a look-up met damage before it got there.
func (c *cursor) behind(damage *segment.CorruptError) (p piece, err error) {
	l := c.l
	view := l.visible.load()
	set := l.segments.Load()
	s, ok := set.Floor(c.at)
	for ok && s.Path() != damage.Path {
		s, ok = set.Higher(s.BaseOffset())
	}
	if !ok || !s.Acquire() {
		return p, errAgain
	}
	defer s.Release()
	end := endIn(s, view.end)
	after := max(s.BaseOffset(), damage.LastOffset+1)
	for position := damage.Position; ; {
		at, _, found, err := resync(s, position, end, after)
		if err != nil {
			return p, err
		}
		if !found {
			return p, c.hole(damage, lastIn(set, s, &view))
		}
		w := s.ScanWith(at, end, segment.ScanOptions{})
		for w.Next() {
			b := w.Batch()
			after = b.NextOffset()
			switch {
			case b.LastOffset() < c.at:
			case b.BaseOffset() > c.at:
				return p, c.hole(damage, b.BaseOffset()-1)
			default:
				return c.gather(set, s, w, &view)
			}
		}
		if err := w.Err(); err != nil {
			return p, err
		}
		if w.Tail().Kind != segment.Damage && w.Tail().Kind != segment.Torn {
			return p, c.hole(damage, lastIn(set, s, &view))
		}
		position = w.Tail().Position
	}
}

// hole is the error about offsets up to last that the damage has taken.
func (c *cursor) hole(damage *segment.CorruptError, last int64) error {
	return &UnreadableError{First: c.at, Last: max(last, c.at), Path: damage.Path, Position: damage.Position, Err: damage.Err}
}

// gather copies the batch that the walk stands on and some behind it.
func (c *cursor) gather(set *segment.Set, s *segment.Segment, w *segment.Scanner, view *ends) (p piece, err error) {
	stable := c.l.limit(view, TxnCommitted)
	p = piece{segment: s, position: w.Batch().Position, next: c.at, stable: stable.offset, logEnd: view.end.offset}
	stop := limitIn(s, stable)
	for more := true; more; more = w.Next() {
		b := w.Batch()
		if b.Position+int64(b.Size()) > stop || len(p.bytes) > 0 && len(p.bytes)+b.Size() > c.size {
			break
		}
		p.bytes = append(p.bytes, b.Batch...)
	}
	if err := w.Err(); err != nil {
		return p, err
	}
	r := segment.Records{Position: p.position, Size: len(p.bytes)}
	p.aborted, err = aborted(set, s, &r, c.at, endIn(s, view.end), view.end.offset)
	if c.l.visible.load().truncations != view.truncations {
		return p, errAgain
	}
	return p, err
}

// batchAt returns the batch that holds an offset, verified. It belongs to the caller.
func (l *Log) batchAt(offset int64) (record.Batch, error) {
	c := cursor{l: l, at: offset}
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
			err = c.inPlace(b, offset, false, f.Offsets.LogEnd)
		}
		if err != nil {
			return nil, &UnreadableError{First: offset, Last: offset, Path: l.dir, Position: f.Position, Err: err}
		}
		return b, nil
	}
}
