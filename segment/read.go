package segment

import (
	"fmt"
	"io"
	"io/fs"
	"iter"
	"sync/atomic"
)

// ReadOptions say what to read. The names are those of Kafka's LogSegment.read.
type ReadOptions struct {
	// StartOffset is the first offset that is wanted. The range begins with the batch that holds it, so records below it
	// may come first.
	StartOffset int64

	// MaxBytes is the most bytes to return; the last batch may be cut off. Negative is an error, 0 returns none.
	MaxBytes int

	// MaxPosition is the byte that the range must not reach beyond, an end of a batch: the high watermark or the last
	// stable offset, or ToEnd for the logical size. It is loaded once, so that a writer cannot move it during the read.
	// 0 reads nothing.
	MaxPosition int64

	// Next is the offset behind the last batch before MaxPosition, where the log has no gaps; see Extent.
	Next int64

	// Begin, if not 0, is the byte at which the batch that holds StartOffset begins, for a caller who knows it.
	Begin int64

	// MinOneMessage returns the whole first batch even if it exceeds MaxBytes.
	MinOneMessage bool
}

// Records is a range of the log file that was found by Read. The bytes are read when they are asked for. A Records that
// was found holds the segment until Close; it may be used by several goroutines, Close comes last. A truncation of the
// segment makes all further reads ErrCut, even where the range lies below the cut.
type Records struct {
	Found                bool   // there is a batch at or after the start offset below MaxPosition; if not, look in the next segment
	Position             int64  // byte at which the first batch begins
	Size                 int    // bytes in the range; it may end inside a batch
	First                Header // of the first batch, the checksum not verified
	FirstEntryIncomplete bool   // the range ends inside the first batch

	hold *hold
}

// hold is what all copies of a Records share.
type hold struct {
	s        *Segment
	cuts     int64 // truncations before the read
	end      int64 // MaxPosition, or the logical size if that was lower
	released atomic.Bool
}

// Read finds the range of whole and partial batches that the options describe. See Records for how long it is good.
// Close must be called on the result unless there is an error. A damaged place on the way to the start offset is a
// *CorruptError. Source: LogSegment.read.
func (s *Segment) Read(o ReadOptions) (Records, error) {
	if o.MaxBytes < 0 {
		return Records{}, fmt.Errorf("segment: read: max bytes %d is negative: %w", o.MaxBytes, fs.ErrInvalid)
	}
	if !s.Acquire() {
		return Records{}, fmt.Errorf("%w: base offset %d in %s", ErrClosed, s.base, s.dir)
	}
	r, err := s.read(o)
	if err != nil || !r.Found {
		s.Release()
	}
	return r, err
}

func (s *Segment) read(o ReadOptions) (Records, error) {
	cuts := s.cuts.Load()
	end, err := s.limit(o.MaxPosition)
	if err != nil {
		return Records{}, err
	}
	h, found := Header{}, true
	if o.Begin > 0 {
		h, err = s.HeaderAt(o.Begin, end)
	} else {
		h, found, err = s.LocateIn(o.StartOffset, Extent{End: end, Next: o.Next})
	}
	if err != nil || !found {
		return Records{}, err
	}
	pos := h.Position
	n := int64(o.MaxBytes)
	if o.MinOneMessage {
		n = max(n, h.Size)
	}
	return Records{
		Found:                true,
		Position:             pos,
		Size:                 int(min(n, end-pos)),
		First:                h,
		FirstEntryIncomplete: n < h.Size,
		hold:                 &hold{s: s, cuts: cuts, end: end},
	}, nil
}

// Close lets the segment go. Further reads are ErrClosed. Closing again, or closing a Records that was not found, does
// nothing.
func (r Records) Close() error {
	if r.hold != nil && !r.hold.released.Swap(true) {
		r.hold.s.Release()
	}
	return nil
}

// ReadAt reads from byte off of the range into p, like io.ReaderAt: fewer bytes than len(p) come with an error, io.EOF at
// the end of the range.
func (r Records) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("segment: read records: byte %d: %w", off, fs.ErrInvalid)
	}
	if off >= int64(r.Size) {
		return 0, io.EOF
	}
	var eof error
	if left := int64(r.Size) - off; int64(len(p)) > left {
		p, eof = p[:left], io.EOF
	}
	if err := r.readAt(p, r.Position+off); err != nil {
		return 0, err
	}
	return len(p), eof
}

func (r Records) readAt(p []byte, pos int64) error {
	if r.hold == nil || r.hold.released.Load() {
		return fmt.Errorf("%w: records closed", ErrClosed)
	}
	s := r.hold.s
	err := s.readAt(p, pos)
	// A truncation excludes reads while it cuts. One that came before the read has counted itself by now.
	if s.cuts.Load() != r.hold.cuts {
		return fmt.Errorf("%w: %s: byte %d", ErrCut, s.Path(), pos)
	}
	return err
}

// AppendTo appends the bytes of the range to dst. After an error dst is returned as it was.
func (r Records) AppendTo(dst []byte) ([]byte, error) {
	if r.Size == 0 {
		return dst, nil
	}
	n := len(dst)
	dst = grow(dst, r.Size)
	if err := r.readAt(dst[n:], r.Position); err != nil {
		return dst[:n], err
	}
	return dst, nil
}

// WriteTo writes the bytes of the range to w, in pieces of at most one mebibyte.
func (r Records) WriteTo(w io.Writer) (n int64, err error) {
	buf := scanBuffers.Get().(*[scanStep]byte)
	defer scanBuffers.Put(buf)
	for n < int64(r.Size) {
		p := buf[:min(scanStep, int64(r.Size)-n)]
		if err := r.readAt(p, r.Position+n); err != nil {
			return n, err
		}
		m, err := w.Write(p)
		n += int64(m)
		if err != nil {
			return n, err
		}
		if m < len(p) {
			return n, io.ErrShortWrite
		}
	}
	return n, nil
}

// Batches yields the whole batches of the range with their checksums verified, and that their offsets ascend. A batch that
// the end of the range cuts off is left out. A damaged batch ends the sequence with a *CorruptError, a failed read with its error. The bytes are valid
// until the next step.
func (r Records) Batches() iter.Seq2[BatchAt, error] {
	return func(yield func(BatchAt, error) bool) {
		if r.Size == 0 {
			return
		}
		if err := r.readAt(nil, r.Position); err != nil {
			yield(BatchAt{}, err)
			return
		}
		s := r.hold.s
		c := s.ScanWith(r.Position, r.Position+int64(r.Size), ScanOptions{Ordered: true})
		c.w.step = min(r.Size, maxStep)
		for c.Next() {
			if s.cuts.Load() != r.hold.cuts {
				break
			}
			if !yield(c.batch, nil) {
				return
			}
		}
		if s.cuts.Load() != r.hold.cuts {
			yield(BatchAt{}, fmt.Errorf("%w: %s: byte %d", ErrCut, s.Path(), c.tail.Position))
			return
		}
		if err := c.tail.failure(); err != nil && !r.cutsOff(c.tail) {
			yield(BatchAt{}, err)
		}
	}
}

// cutsOff tells whether the batch at the tail is one that the end of the range cuts off, rather than one whose length is
// damaged: it then ends before the end that the read was given.
func (r Records) cutsOff(t Tail) bool {
	end := r.Position + int64(r.Size)
	return t.Kind == Torn && end < r.hold.end && t.Position+t.Claimed <= r.hold.end
}
