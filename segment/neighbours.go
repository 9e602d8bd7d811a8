package segment

import "github.com/oncelog/oncelog/record"

// follow is find where each batch begins at the offset at which the one before ends. Where that is not so, or no batch
// comes, the one before is to blame if its checksum is wrong, which covers its count; its length, which led here, is then not
// to be believed either. Else offsets are missing in front of the next one, if what comes behind confirms those that it has;
// or it has other offsets than it was stored with, and those that it had follow from its place.
func (c *HeaderScanner) follow(offset, next int64) (h Header, found bool, err error) {
	want, more := c.w.s.base, true
	if c.header.Size > 0 {
		want = c.header.BaseOffset
	} else {
		more = c.Next()
	}
	for more {
		h = c.header
		if h.BaseOffset == want && offset <= want && h.LastOffset >= want {
			return h, true, nil // the offset is its first one, whatever its count may be
		}
		more = c.Next()
		if err := c.Err(); err != nil {
			return h, false, err
		}
		last := h.LastOffset
		if h.Magic >= record.Magic && h.BaseOffset != want || last < want || !c.continues(&h, next, more) {
			if err := c.whole(&h, want); err != nil {
				return h, false, err
			}
			d, err := c.w.s.explain(h, want, c.w.end, next)
			switch {
			case err != nil:
				return h, false, err
			case d == isExtra:
				continue
			case d == isBehindMissing && offset < h.BaseOffset:
				return h, false, c.w.s.missing(h.Position, want, h.BaseOffset)
			case d == isBehindMissing:
				want = h.BaseOffset
			}
			if h.Magic >= record.Magic {
				last = want + h.LastOffset - h.BaseOffset
			}
			if last >= offset && h.Magic >= record.Magic && h.BaseOffset != want || last < want {
				return h, false, c.outOfOrder(&h, want)
			}
		}
		if last >= offset {
			return h, true, nil
		}
		want = last + 1
	}
	if err := c.tail.failure(); err != nil || want >= next || offset >= next {
		return h, false, err
	}
	return h, false, c.w.s.missing(c.tail.Position, want, next)
}

// disorder is what a whole batch is that does not begin at the offset that is wanted.
type disorder uint8

const (
	isChanged       disorder = iota // it has other offsets than it was stored with
	isBehindMissing                 // the offsets in front of it are missing
	isExtra                         // it is there twice, or in the wrong place
)

// explain tells why a whole batch does not begin at the offset that is wanted. What comes behind it goes on where it ends,
// whichever that is: by its place, by the offsets that it has, or where it should have begun. A whole batch has as many
// offsets as it says, so if the next one fits nowhere, the one behind that speaks for both. That it
// is in the right, or one too many, is believed if two batches agree, or as many as there are: two changed ones may by chance.
func (s *Segment) explain(h Header, want, end, next int64) (disorder, error) {
	if h.Magic < record.Magic || h.BaseOffset == want {
		return isChanged, nil
	}
	const most = 16
	stored, placed := h.NextOffset(), want+h.NextOffset()-h.BaseOffset
	extra := want // where the log goes on if this batch does not count
	fits, believed := h.BaseOffset > want && stored <= next, isChanged
	c := s.ScanWith(h.End(), end, ScanOptions{})
	defer c.w.release()
	for range most {
		at, n, more := next, int64(0), c.Next()
		if more {
			p := parseHeader(c.batch.Batch, c.batch.Position, int64(len(c.batch.Batch)))
			if p.Magic < record.Magic {
				break
			}
			at, n = p.BaseOffset, p.NextOffset()-p.BaseOffset
		} else if k := c.tail.Kind; k != CleanEnd && k != ZeroTail {
			break
		}
		was := believed
		switch {
		case at == placed:
			return isChanged, nil
		case at == extra:
			extra, believed = extra+n, isExtra
		case at == stored && fits:
			believed = isBehindMissing
		default:
			was = isChanged
		}
		if !more || was != isChanged && was == believed {
			return believed, nil
		}
		stored, placed = stored+n, placed+n
	}
	return believed, c.Err()
}

// continues tells whether what comes behind a batch confirms the offset at which it ends. Of two old ones, which store only
// their last offsets, nothing can be said. Bytes that are no batch, or an old one behind a new one, may be where a wrong length
// has led.
func (c *HeaderScanner) continues(h *Header, next int64, more bool) bool {
	switch {
	case more && c.header.Magic < record.Magic:
		return h.Magic < record.Magic
	case more:
		return c.header.BaseOffset == h.LastOffset+1
	case c.tail.Kind == CleanEnd || c.tail.Kind == ZeroTail:
		return next == h.LastOffset+1
	}
	return false
}

// missing is the error about offsets that are not there, and behind which a batch begins at a position, or nothing.
func (s *Segment) missing(position, first, next int64) error {
	return &CorruptError{Path: s.Path(), Position: position, LastOffset: first - 1, Err: &MissingError{First: first, Last: next - 1}}
}

func (c *HeaderScanner) outOfOrder(h *Header, want int64) error {
	return &CorruptError{Path: c.w.s.Path(), Position: h.Position, LastOffset: want - 1,
		Err: &OrderError{BaseOffset: h.BaseOffset, LastOffset: h.LastOffset, Want: want}}
}
