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

// Is matches ErrCorrupt where a batch claims to be longer than the log: in front of the end that is damage.
func (e *UnreadableError) Is(target error) bool {
	return target == ErrCorrupt && errors.Is(e.Err, record.ErrTruncated)
}

// errAgain asks for another try: the log changed during the look-up.
var errAgain = errors.New("wal: the log changed")

// fail reports the batch at a position of the piece, which bears the next offset. It returns false, as the loop is over.
func (c *cursor) fail(p *piece, position int64, cause error) bool {
	e := &UnreadableError{First: c.at, Path: p.segment.Path(), Position: position, Err: cause}
	w := c.l.where(p.segment)
	_, h, found, err := w.resync(position, c.at)
	if err != nil {
		c.yield(Stored{}, errors.Join(e.Err, err))
		return false
	}
	e.Last = h.BaseOffset - 1
	if !found {
		e.Last = w.last
	}
	e.Last = max(e.Last, e.First)
	c.yield(Stored{}, e)
	return false
}

// stretch is what is visible of one segment.
type stretch struct {
	s    *segment.Segment
	end  int64 // byte
	last int64 // greatest offset that it may hold
	gaps bool
}

func (l *Log) where(s *segment.Segment) stretch {
	view := l.visible.load()
	return l.stretch(l.segments.Load(), s, &view)
}

func (l *Log) stretch(set *segment.Set, s *segment.Segment, e *ends) stretch {
	w := stretch{s: s, end: endIn(s, e.end), last: e.end.offset - 1, gaps: l.mayHaveGaps()}
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

// leadsOn tells whether the offsets of a batch, which no checksum covers, fit what comes behind it.
func (w *stretch) leadsOn(h *segment.Header) bool {
	next := w.last + 1
	if size, err := w.s.Size(); err != nil {
		return false
	} else if h.End() < min(w.end, size) {
		n, err := w.s.HeaderAt(h.End(), w.end)
		if err != nil {
			return false
		}
		next = n.BaseOffset
	}
	return w.follows(h, next)
}

// astray looks at a piece whose first batch begins above the next offset although the log has no gaps. Either the batch
// before is damaged in its offsets, so that the look-up passed over it, or this one is, so that the look-up ended here.
func (c *cursor) astray(p *piece) (piece, error) {
	w := c.l.where(p.segment)
	h, err := p.segment.HeaderAt(p.position, w.end)
	if err != nil {
		return *p, err
	}
	damage := &segment.CorruptError{Path: p.segment.Path(), Position: p.position, LastOffset: -1,
		Err: &segment.OrderError{BaseOffset: h.BaseOffset, LastOffset: h.LastOffset, Want: c.at}}
	if w.leadsOn(&h) {
		return *p, c.hole(damage, h.BaseOffset-1)
	}
	return c.behind(damage)
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
	w := l.stretch(set, s, &view)
	lowest := max(s.BaseOffset(), damage.LastOffset+1)
	for position := damage.Position; ; {
		at, _, found, err := w.resync(position, lowest)
		if err != nil {
			return p, err
		}
		if !found {
			return p, c.hole(damage, w.last)
		}
		walk := s.ScanWith(at, w.end, segment.ScanOptions{})
		for walk.Next() {
			b := walk.Batch()
			switch {
			case b.LastOffset() < c.at:
				lowest = b.NextOffset()
			case b.BaseOffset() <= c.at:
				return c.gather(set, s, walk, &view)
			default:
				h, err := s.HeaderAt(b.Position, w.end)
				if err != nil {
					return p, err
				}
				if w.leadsOn(&h) {
					return p, c.hole(damage, b.BaseOffset()-1)
				}
			}
		}
		if err := walk.Err(); err != nil {
			return p, err
		}
		if k := walk.Tail().Kind; k != segment.Damage && k != segment.Torn {
			return p, c.hole(damage, w.last)
		}
		position = walk.Tail().Position
	}
}

// hole is the error about offsets up to last that the damage has taken.
func (c *cursor) hole(damage *segment.CorruptError, last int64) error {
	return &UnreadableError{First: c.at, Last: max(last, c.at), Path: damage.Path, Position: damage.Position, Err: damage.Err}
}

// gather copies the batch that the walk stands on and some behind it.
func (c *cursor) gather(set *segment.Set, s *segment.Segment, w *segment.Scanner, view *ends) (p piece, err error) {
	stable, err := c.l.limit(view, TxnCommitted)
	if err != nil {
		return p, err
	}
	p = piece{segment: s, position: w.Batch().Position, next: c.at, logEnd: view.end.offset}
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
