package segment

import (
	"fmt"
	"hash/crc32"

	"github.com/oncelog/oncelog/record"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The bytes that the checksum of an entry covers begin here. Format.
const (
	coveredFrom       = 21
	coveredFromLegacy = 16
	posCRC            = 17
	posCRCLegacy      = 12
)

// verify computes the checksum of a batch in pieces of bounded size. A wrong one is the *record.CorruptError that
// record.Batch.Validate would give.
func (s *Segment) verify(h Header) error {
	from, at, table := int64(coveredFrom), posCRC, castagnoli
	if h.Magic < record.Magic {
		from, at, table = coveredFromLegacy, posCRCLegacy, crc32.IEEETable
	}
	buf := scanBuffers.Get().(*[scanStep]byte)
	defer scanBuffers.Put(buf)
	sum := uint32(0)
	for pos := h.Position + from; pos < h.End(); {
		p := buf[:min(scanStep, h.End()-pos)]
		if err := s.readAt(p, pos); err != nil {
			return err
		}
		sum = crc32.Update(sum, table, p)
		pos += int64(len(p))
	}
	if sum != h.CRC {
		return &record.CorruptError{Field: "crc", Pos: at, Got: int64(h.CRC), Want: int64(sum), Err: record.ErrChecksum}
	}
	return nil
}

// HeaderAt decodes the header of the batch at position pos, which must end at or before end. The checksum is not
// verified. Bytes that are no batch are a *CorruptError.
func (s *Segment) HeaderAt(pos, end int64) (Header, error) {
	end, err := s.limit(end)
	if err != nil {
		return Header{}, err
	}
	if pos < 0 || pos >= end {
		return Header{}, s.outside(pos, end)
	}
	w := window{s: s, end: end}
	defer w.release()
	head, size, err := w.entry(pos)
	if err != nil {
		return Header{}, s.corrupt(pos, err)
	}
	return parseHeader(head, pos, size), nil
}

// ReadBatch appends the bytes of the batch with header h to dst and returns it as a Batch, whose checksum has been
// verified, together with the extended dst. Other bytes than those that gave the header are a *CorruptError.
func (s *Segment) ReadBatch(dst []byte, h Header) (record.Batch, []byte, error) {
	end, err := s.limit(ToEnd)
	if err != nil {
		return nil, dst, err
	}
	if h.Position < 0 || h.Size < smallestV0 || h.Size > end-h.Position {
		return nil, dst, s.outside(h.Position+h.Size, end)
	}
	if h.Size >= pieceSize {
		if err := s.verify(h); err != nil {
			return nil, dst, s.corrupt(h.Position, err)
		}
	}
	n := len(dst)
	dst = grow(dst, int(h.Size))
	p := dst[n:]
	if err := s.readAt(p, h.Position); err != nil {
		return nil, dst[:n], err
	}
	b, rest, err := record.Next(p)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%w: the batch has %d bytes, its header said %d", record.ErrCorrupt, len(b), len(p))
	}
	if err == nil {
		err = b.Validate()
	}
	if err != nil {
		return nil, dst[:n], s.corrupt(h.Position, err)
	}
	return b, dst, nil
}

// corrupt puts the position to an error about bytes; errors of reads stay as they are.
func (s *Segment) corrupt(pos int64, err error) error {
	if isReadError(err) {
		return err
	}
	return &CorruptError{Path: s.Path(), Position: pos, LastOffset: -1, Err: err}
}

// grow extends dst by n bytes of any content.
func grow(dst []byte, n int) []byte {
	if len(dst)+n <= cap(dst) {
		return dst[:len(dst)+n]
	}
	return append(dst, make([]byte, n)...)
}
