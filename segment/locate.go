package segment

import (
	"errors"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/record"
)

const (
	// stepsBack is how many index entries are passed over to find one whose batch begins below the end of a look-up, before
	// the log is walked from its start. An append waits for its write with at most a few hundred entries noted.
	stepsBack = 1024
	// triesBack is how many entries are compared with the log, from the best one downwards. After a crash the last entries
	// may be about batches that are torn or gone.
	triesBack = 16
)

// Locate returns position and header of the first batch whose last offset is offset or higher, among those that end at or
// before byte end. It is not found if all of them lie below offset; a tail of zeros is an end as well. Bytes on the way
// that are no batch are a *CorruptError with the position, whose LastOffset tells how far the log is good.
//
// An entry of the offset index is a hint: it is used only if a batch begins at its position whose offsets fit the entry.
// If not, or if the walk from there meets bytes that are no batch, the log is walked from its start, and the look-up counts
// in Suspects. The answer is the same with any index, damaged or missing. Source: LogSegment.translateOffset, where the
// index is believed.
func (s *Segment) Locate(offset, end int64) (pos int64, h Header, found bool, err error) {
	h, found, err = s.LocateIn(offset, Extent{End: end})
	return h.Position, h, found, err
}

// Extent is the part of a segment that a look-up may see.
type Extent struct {
	End int64 // byte at which it ends, behind a batch; ToEnd for the logical size

	// Next is the offset that comes behind the last batch before End, in a log whose offsets have no gaps. 0 says that
	// offsets may jump, or that it is not known.
	Next int64
}

// LocateIn is Locate for a log whose offsets may be known to have no gaps. There a batch is found by what its neighbours say,
// since no checksum covers its base offset: one that was changed is a *CorruptError for the offsets that it had, and for no
// other. The first batch then begins at the segment's base offset, each at the end of the one before, and the last one ends
// at Next; what is missing is a *CorruptError with a *MissingError, for the missing offsets and no others.
func (s *Segment) LocateIn(offset int64, x Extent) (h Header, found bool, err error) {
	end, err := s.limit(x.End)
	if err == nil && end <= 0 && s.base <= offset && offset < x.Next {
		err = s.missing(0, s.base, x.Next)
	}
	if err != nil || end <= 0 {
		return Header{}, false, err
	}
	c, err := s.hint(offset, end, x.Next > 0)
	if err != nil {
		return Header{}, false, err
	}
	hinted := c.header.Position > 0
	h, found, err = c.find(offset, x.Next)
	if err != nil && hinted && !isReadError(err) {
		// Either the log is damaged, or the hint was wrong and looked right.
		h2, found2, err2 := s.ScanHeaders(0, end).find(offset, x.Next)
		if err2 == nil {
			s.suspects.Add(1)
		}
		h, found, err = h2, found2, err2
	}
	return h, found, err
}

// find goes on, from the present batch if there is one, to the first batch whose last offset is offset or higher, and ends
// the walk. For next see Extent.
func (c *HeaderScanner) find(offset, next int64) (h Header, found bool, err error) {
	if next > 0 {
		h, found, err = c.follow(offset, next)
	} else {
		h, found, err = c.pass(offset)
	}
	c.done = true
	c.w.release()
	return h, found, err
}

// pass is find where offsets may jump, so that what a header says has to be believed.
func (c *HeaderScanner) pass(offset int64) (h Header, found bool, err error) {
	before := c.header
	found = c.header.Size > 0 && c.header.LastOffset >= offset
	for !found && err == nil {
		if before = c.header; !c.Next() {
			break
		}
		found = c.header.LastOffset >= offset
		err = c.belowBase()
	}
	h = c.header
	if err == nil {
		err = c.tail.failure()
	}
	if before.Size > 0 && before.LastOffset < offset && !isReadError(err) && (err != nil || !found || h.BaseOffset > offset) {
		// The one before led here, past the offset or to bytes that are no batch: its length or its offsets may be wrong.
		if bad := c.whole(&before, -1); bad != nil {
			return before, false, bad
		}
	}
	return h, found, err
}

// whole is the error about a batch with a wrong checksum, in front of which the log is good below want.
func (c *HeaderScanner) whole(h *Header, want int64) error {
	err := c.w.s.verify(*h)
	if err != nil && !isReadError(err) {
		err = &CorruptError{Path: c.w.s.Path(), Position: h.Position, LastOffset: want - 1, Err: err}
	}
	return err
}

// belowBase is the error about a batch with an offset below the segment's: it was changed after it was stored, and to pass
// over it would be to deny that it exists. Too large an offset is another matter: old brokers wrote such.
func (c *HeaderScanner) belowBase() error {
	h, base := &c.header, c.w.s.base
	if h.BaseOffset >= base {
		return nil
	}
	return &CorruptError{Path: c.w.s.Path(), Position: h.Position, LastOffset: -1,
		Err: &OrderError{BaseOffset: h.BaseOffset, LastOffset: h.LastOffset, Want: base}}
}

// failure returns why a walk over bytes that should be good ended before their end.
func (t *Tail) failure() error {
	if t.Kind == CleanEnd || t.Kind == ZeroTail {
		return nil
	}
	return t.Reason
}

// hint returns a walk that begins at or before the first batch whose last offset is offset or higher: at the position of
// an index entry, standing on the batch there, if the entry stands the test, else at 0. In a log without gaps, which is our
// own, entry and batch have to agree exactly.
func (s *Segment) hint(offset, end int64, exact bool) (*HeaderScanner, error) {
	misled := false
	for range triesBack {
		e, odd, err := s.lookup(offset, end)
		if errors.Is(err, ErrClosed) {
			return nil, err
		}
		misled = misled || odd || err != nil
		if err != nil || e.Position == 0 {
			break
		}
		c := s.ScanHeaders(int64(e.Position), end)
		if c.Next() && s.fits(&c.header, e) && (!exact || c.header.LastOffset == e.Offset) {
			if misled {
				s.suspects.Add(1)
			}
			return c, nil
		}
		c.w.release()
		if err := c.Err(); err != nil {
			return nil, err
		}
		misled = true
		if e.Offset <= s.base {
			break
		}
		offset = e.Offset - 1
	}
	if misled {
		s.suspects.Add(1)
	}
	return s.ScanHeaders(0, end), nil
}

// lookup asks the offset index for the greatest entry that is not above offset and whose batch begins below end. It is odd
// if an entry cannot be right on its face. Without an entry the position is 0.
func (s *Segment) lookup(offset, end int64) (e index.OffsetPosition, odd bool, err error) {
	size, err := s.Size()
	if err != nil {
		return e, false, err
	}
	if err := s.enter(); err != nil {
		return e, false, err
	}
	defer s.leave()
	x, err := s.files.offset.get(s, openOffsetIndex)
	if err != nil {
		return e, false, err
	}
	for range stepsBack {
		e, err = x.Lookup(offset)
		if err != nil || int64(e.Position) < end {
			return e, odd, err
		}
		odd = odd || int64(e.Position) >= size
		if e.Offset <= s.base {
			break
		}
		offset = e.Offset - 1
	}
	return index.OffsetPosition{Offset: s.base}, true, nil
}

// fits tells whether an index entry can be about the batch at its position. Kafka writes the last offset of the batch; up to
// 3.8 the last offset of an append of several batches with the position of the first; an entry with any offset of the batch
// is a right bound too. A random place passes with a probability of about 2^-40: the magic, the length, and 64 bits of
// offset have to fit.
func (s *Segment) fits(h *Header, e index.OffsetPosition) bool {
	if h.Magic < record.Magic {
		// The stored offset is the last one, the first is not stored.
		return h.LastOffset >= s.base && h.LastOffset <= e.Offset
	}
	return h.BaseOffset >= s.base && h.BaseOffset <= e.Offset && h.LastOffset >= h.BaseOffset
}

// Suspects returns how many look-ups found an index entry that does not fit the log, or could not use an index at all.
// They were answered from the log. If it is not 0, the indexes are worth a rebuild: ResetIndexes, Note for each batch of a
// scan, Seal.
func (s *Segment) Suspects() int64 { return s.suspects.Load() }

// NextOffset returns the offset after the last batch, or the base offset if there is none: what the next append to this
// segment would get. It is remembered from Note, else the headers are walked from the last index entry to the logical
// size; a torn batch at the end does not count. Damage in between is a *CorruptError, with the offset up to there. Source:
// LogSegment.readNextOffset.
func (s *Segment) NextOffset() (int64, error) {
	s.noted.Lock()
	next := s.noted.next
	s.noted.Unlock()
	if next >= 0 {
		return next, nil
	}
	end, err := s.Size()
	if err != nil {
		return 0, err
	}
	next, err = s.nextOffset(end)
	if err == nil {
		s.noted.Lock()
		if s.noted.next < 0 {
			s.noted.next = next
		}
		s.noted.Unlock()
	}
	return next, err
}

// nextOffset returns the offset after the last batch below end.
func (s *Segment) nextOffset(end int64) (int64, error) {
	c, err := s.hint(maxOffset(s.base), end, false)
	if err != nil {
		return 0, err
	}
	hinted := c.header.Position > 0
	next, tail := c.last(s.base)
	if tail.Kind == Damage && hinted {
		next, tail = s.ScanHeaders(0, end).last(s.base)
		if tail.Kind != Damage {
			s.suspects.Add(1)
		}
	}
	if tail.Kind == Damage || tail.Kind == Unfinished {
		return next, tail.Reason
	}
	return next, nil
}

// last goes to the end of the walk and returns the offset after the last batch, or base if there is none.
func (c *HeaderScanner) last(base int64) (next int64, t Tail) {
	next = base
	if c.header.Size > 0 {
		next = c.header.NextOffset()
	}
	for c.Next() {
		next = c.header.NextOffset()
	}
	return next, c.tail
}

// maxOffset is the greatest offset that a segment with that base offset can hold.
func maxOffset(base int64) int64 {
	if base > 1<<63-1-MaxRelativeOffset {
		return 1<<63 - 1
	}
	return base + MaxRelativeOffset
}
