package segment

import (
	"errors"
	"io"
	"math"

	"github.com/oncelog/oncelog/record"
)

// TailKind says how a walk over the batches of a log file ended.
type TailKind uint8

// The ways in which a walk ends.
const (
	Unfinished TailKind = iota // not at its end yet, or a read failed: nothing is known about the bytes from Position on
	CleanEnd                   // the bytes end with a batch
	ZeroTail                   // nothing but zeros follow, up to the very end: reserved space
	Torn                       // the header, or the batch that it claims, runs past the end
	Damage                     // anything else: bad length, magic, checksum, or offsets out of order if that was asked
)

// String returns the kind in words.
func (k TailKind) String() string {
	switch k {
	case CleanEnd:
		return "clean end"
	case ZeroTail:
		return "zeros to the end"
	case Torn:
		return "torn batch"
	case Damage:
		return "damage"
	}
	return "unfinished"
}

// Tail describes the place where a walk ended.
type Tail struct {
	Kind       TailKind
	Position   int64 // end of the last good batch, where the walk went no further
	Claimed    int64 // bytes that the entry at Position claims to have, 0 if it is too short or too odd to tell
	LastOffset int64 // last offset of the last good batch, -1 if there was none
	Reason     error // Torn, Damage: a *CorruptError; Unfinished: the error of the read, if there was one
}

// ToEnd is an end of a walk or look-up that leaves it to the logical size, which is read once when it begins.
const ToEnd = math.MaxInt64

// ScanOptions say what to check beyond framing and checksum.
type ScanOptions struct {
	// Ordered reports a batch as damaged whose offsets do not lie above those of the batch before it, or below
	// After, or below the base offset of the segment, or whose last offset lies below its first. Kafka does not look.
	Ordered bool

	// Unchecked leaves the checksum out, as Kafka does where it wants no more than the headers.
	Unchecked bool

	// After is the smallest base offset that the first batch may have, if Ordered.
	After int64
}

// BatchAt is a batch and where it is stored.
type BatchAt struct {
	Position int64
	record.Batch
}

// Scanner walks the whole batches of a log file and verifies each checksum. It reads ahead in steps of one mebibyte into
// one buffer; a larger batch makes the buffer grow to its size, after its checksum has been verified in pieces where it
// is huge. A Scanner is for one goroutine. It holds no file open between calls of Next.
type Scanner struct {
	w     window
	o     ScanOptions
	want  int64 // Ordered: smallest base offset of the next batch
	batch BatchAt
	tail  Tail
	done  bool
}

// Scan returns a Scanner over the batches from the given position to the logical size. Kafka's LogSegment.recover walks
// like this.
func (s *Segment) Scan(from int64) *Scanner { return s.ScanWith(from, ToEnd, ScanOptions{}) }

// ScanWith returns a Scanner over the batches from position from, where one must begin, to position end, as if the file
// ended there. The end is at most the logical size; beside a writer it must not be above what has been published.
func (s *Segment) ScanWith(from, end int64, o ScanOptions) *Scanner {
	c := &Scanner{w: window{s: s, step: scanStep}, o: o, want: max(s.base, o.After)}
	c.tail = Tail{Position: from, LastOffset: -1}
	c.w.end, c.done = s.walkEnd(&c.tail, end)
	return c
}

// limit returns end, or the logical size if that is lower.
func (s *Segment) limit(end int64) (int64, error) {
	size, err := s.Size()
	return min(end, size), err
}

// walkEnd returns the end of a walk, and true with the error in the tail if it cannot begin.
func (s *Segment) walkEnd(t *Tail, end int64) (int64, bool) {
	end, err := s.limit(end)
	if err != nil {
		t.Reason = &readError{err}
		return 0, true
	}
	if t.Position < 0 || t.Position > end {
		t.Reason = &readError{s.outside(t.Position, end)}
		return 0, true
	}
	return end, false
}

// Next advances to the next batch and tells whether there is one.
func (c *Scanner) Next() bool {
	if c.done {
		return false
	}
	pos := c.tail.Position
	b, claimed, err := c.read(pos)
	if err != nil {
		c.done, c.batch = true, BatchAt{}
		c.w.finish(&c.tail, claimed, err)
		c.w.release()
		return false
	}
	c.batch = BatchAt{pos, b}
	c.tail.Position = pos + int64(len(b))
	c.tail.LastOffset = b.LastOffset()
	c.want = c.tail.LastOffset + 1
	return true
}

// read returns the batch at pos after all checks.
func (c *Scanner) read(pos int64) (b record.Batch, claimed int64, err error) {
	head, size, err := c.w.entry(pos)
	if err != nil {
		return nil, size, err
	}
	if size >= pieceSize && !c.o.Unchecked {
		if err := c.w.s.verify(parseHeader(head, pos, size)); err != nil {
			return nil, size, err
		}
	}
	p, err := c.w.view(pos, size)
	if err != nil {
		return nil, size, err
	}
	if b, _, err = record.Next(p); err != nil {
		return nil, size, err
	}
	if !c.o.Unchecked {
		if err := b.Validate(); err != nil {
			return nil, size, err
		}
	}
	if c.o.Ordered {
		// The stored offset, not BaseOffset, which decompresses legacy wrappers.
		h := parseHeader(p, pos, size)
		if h.BaseOffset < c.want || h.LastOffset < h.BaseOffset || h.LastOffset == math.MaxInt64 {
			return nil, size, &OrderError{BaseOffset: h.BaseOffset, LastOffset: h.LastOffset, Want: c.want}
		}
	}
	return b, size, nil
}

// Batch returns the present batch. Its bytes are valid until the next call of Next.
func (c *Scanner) Batch() BatchAt { return c.batch }

// Tail describes the end of the walk after Next has returned false. If a read failed, the kind is Unfinished and the
// reason is the error: that says nothing about the bytes, and nothing may be cut because of it.
func (c *Scanner) Tail() Tail { return c.tail }

// Err returns the error of a read that failed, nil if the walk reached its end.
func (c *Scanner) Err() error { return c.tail.readError() }

func (t *Tail) readError() error {
	if t.Kind == Unfinished {
		return t.Reason
	}
	return nil
}

// finish classifies the end of a walk at t.Position, where entry or a check returned err.
func (w *window) finish(t *Tail, claimed int64, err error) {
	t.Claimed = claimed
	switch {
	case errors.Is(err, io.EOF) && !isReadError(err):
		t.Kind = CleanEnd
		return
	case isReadError(err):
		t.Reason = err
		return
	}
	zeros, zerr := w.zerosFrom(t.Position)
	switch {
	case zerr != nil:
		t.Reason = zerr
		return
	case zeros:
		t.Kind, t.Claimed = ZeroTail, 0
		return
	case errors.Is(err, record.ErrTruncated):
		t.Kind = Torn
	default:
		t.Kind = Damage
	}
	t.Reason = &CorruptError{Path: w.s.Path(), Position: t.Position, LastOffset: t.LastOffset, Err: err}
}

// zerosFrom tells whether there are only zeros from pos to the end of the window.
func (w *window) zerosFrom(pos int64) (bool, error) {
	for pos < w.end {
		n := min(w.end-pos, max(int64(w.step), minStep))
		p, err := w.view(pos, n)
		if err != nil {
			return false, err
		}
		if firstNonZero(p) < len(p) {
			return false, nil
		}
		pos += n
	}
	return true, nil
}
