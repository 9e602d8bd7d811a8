package recovery

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// beyond tells whether bytes lie where the write that was interrupted at t cannot have put them.
func (w *scanner) beyond(s *segment.Segment, t segment.Tail) (beyond bool, err error) {
	reach := w.l.groupEnd(t.Position)
	if w.l.slot.Mode != SyncCommit {
		if reach, err = w.appendEnd(s, t.Position); err != nil {
			return false, err
		}
	}
	if _, beyond, err = s.FirstNonZero(reach, segment.ToEnd); err != nil {
		return false, fmt.Errorf("recovery: %w", err)
	}
	return beyond, nil
}

// appendEnd is the first byte that an append which the end of the process interrupted in the batch at position has left as
// it was, which is a zero. What is written is a beginning of the batch, so its last byte is missing, zeros that would be
// there anyway apart; nothing is behind it. Where the head of the batch is not one that an append writes, nothing is known.
func (w *scanner) appendEnd(s *segment.Segment, position int64) (int64, error) {
	size, err := s.FileSize()
	if err != nil {
		return 0, fmt.Errorf("recovery: %w", err)
	}
	h, believed, err := w.headAt(s, position, size)
	if err != nil || !believed || h.size > size-position {
		return segment.ToEnd, err
	}
	return position + h.size - 1 - h.zeros, nil
}

// block is what a device, or a kill, writes in one piece, or a multiple of it.
const block = 4096

// groupEnd is the first byte that a group which began at or below position cannot have touched. A device writes whole
// blocks, and one that it had begun may hold anything up to its end.
func (l *loader) groupEnd(position int64) int64 {
	end := position + l.slot.GroupBound
	if end < position || end > math.MaxInt64-block {
		return segment.ToEnd
	}
	return (end + block - 1) &^ (block - 1)
}

// mayFollow tells whether a segment with that base offset goes on where the one before it ends. Offsets that are missing
// between the two may never have been there, if offsets may jump, or were never synced: a power cut can take the end of one
// segment and leave the next one, and so can a truncation that was interrupted. What lies below the durable end was synced
// and stays, and in SyncCommit all of a segment is on disk before the next one is begun.
func (l *loader) mayFollow(end, base int64, untrue bool) bool {
	switch {
	case base == end:
		return true
	case base < end || !l.gaps:
		return false
	}
	return !l.us || base <= l.slot.Durable.Offset || l.slot.Mode == SyncCommit && !l.slot.Cutting || l.sameBoot && !untrue
}

// content is how many bytes from position on may have been written, and are kept when they are cut: to the end of the file,
// but for space that was reserved, which is zeros, at least a block of them, behind the last other byte and behind the end
// of the batch at position.
func (w *scanner) content(s *segment.Segment, position, size int64) (int64, error) {
	end, err := lastNonZero(s, position, size)
	if err != nil {
		return 0, err
	}
	h, believed, err := w.headAt(s, position, size)
	if err != nil {
		return 0, err
	}
	if believed {
		end = max(end, position+min(h.size, size-position))
	}
	if size-end < block {
		end = size
	}
	return end - position, nil
}

// plausible looks behind a bad place for a batch that a writer can have put there: whole, with a good checksum, and with
// an offset that can come there. Where the head of the bad batch itself can be believed, that is the one behind it, or
// lies behind its end: damage may have hit several in a row, but a batch that somebody stored inside a record's value is
// not evidence.
func (w *scanner) plausible(s *segment.Segment, t segment.Tail) (pos int64, found bool, err error) {
	size, err := s.FileSize()
	if err != nil || t.Kind == segment.CleanEnd || t.Kind == segment.ZeroTail {
		return 0, false, err
	}
	bad, believed, err := w.headAt(s, t.Position, size)
	if err != nil {
		return 0, false, err
	}
	gaps := w.l.gaps
	return s.FindBatch(t.Position, size, size, func(h segment.Header) bool {
		switch {
		case believed && (h.BaseOffset == bad.next || h.BaseOffset == bad.follows):
			return true
		case believed && h.Position < t.Position+bad.size:
			return false
		}
		return h.BaseOffset >= w.at.Offset && (gaps || h.BaseOffset-w.at.Offset <= segment.MaxRelativeOffset)
	})
}

// head is what the first bytes of a bad batch claim.
type head struct {
	size    int64 // bytes
	next    int64 // offset behind its last record
	follows int64 // the same if it had the offset that it must have
	zeros   int64 // its last bytes that are zeros as far as its format goes, whatever the records are
}

// headAt reads the head of the bad batch, and tells whether it can be believed: it has the offset that is expected, and
// everything else is in range.
func (w *scanner) headAt(s *segment.Segment, pos, size int64) (h head, believed bool, err error) {
	var b [record.Overhead]byte
	if size-pos < int64(len(b)) {
		return h, false, nil
	}
	f, err := s.File()
	if err == nil {
		_, err = f.ReadAt(b[:], pos)
	}
	if err != nil {
		return h, false, fmt.Errorf("recovery: %w", err)
	}
	base := int64(binary.BigEndian.Uint64(b[0:]))
	length := int64(int32(binary.BigEndian.Uint32(b[8:])))
	delta := int64(int32(binary.BigEndian.Uint32(b[23:])))
	// A whole batch with wrong offsets says by its checksum that it is one.
	misplaced := w.at.Offset != base && w.wholeAt(s, pos)
	if b[16] != record.Magic || length < record.Overhead-record.LogOverhead || delta < 0 ||
		base != w.at.Offset && !misplaced && !(w.l.gaps && base > w.at.Offset) {
		return h, false, nil
	}
	h = head{size: length + record.LogOverhead, next: base + delta + 1, follows: w.at.Offset + delta + 1}
	switch record.Attributes(binary.BigEndian.Uint16(b[21:])).Compression() {
	case record.None, record.Gzip: // no headers of the last record; the length of what was compressed
		h.zeros = 1
	case record.LZ4: // the mark of the end
		h.zeros = 4
	}
	return h, true, nil
}

func (w *scanner) wholeAt(s *segment.Segment, pos int64) bool {
	c := s.Scan(pos)
	return c.Next()
}
