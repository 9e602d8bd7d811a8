package segment

import (
	"encoding/binary"

	"github.com/oncelog/oncelog/record"
)

// Header is the header of one stored batch, decoded without looking at the rest of it: its checksum has not been
// verified. For a legacy entry the fields it has not got hold record's No… values, and both offsets are the stored one,
// which in a compressed wrapper is the last.
type Header struct {
	Position             int64 // byte of the log file at which the batch begins
	Size                 int64 // bytes, offset and length fields included
	BaseOffset           int64
	LastOffset           int64
	BaseTimestamp        int64 // milliseconds, or the delete horizon if the attributes say so
	MaxTimestamp         int64 // milliseconds
	ProducerID           int64
	PartitionLeaderEpoch int32
	CRC                  uint32
	BaseSequence         int32
	Count                int32 // records, as claimed
	ProducerEpoch        int16
	Attributes           record.Attributes
	Magic                int8
}

// End returns the position after the batch.
func (h *Header) End() int64 { return h.Position + h.Size }

// NextOffset returns the offset after the last one of the batch.
func (h *Header) NextOffset() int64 { return h.LastOffset + 1 }

// Identity returns the identity of the batch in the segment with that base offset, as record.Batch.Identity does.
func (h *Header) Identity(segmentBase int64) record.Identity {
	return record.Identity{
		SegmentBase: segmentBase, Position: h.Position, BaseOffset: h.BaseOffset, Size: int32(h.Size), CRC: h.CRC,
	}
}

// parseHeader decodes the header of the entry of size bytes at pos. The head is at least record.Overhead long, or as long
// as a smaller entry. The positions are those of the format tables in package record.
func parseHeader(head []byte, pos, size int64) Header {
	if int8(head[16]) < record.Magic {
		return legacyHeader(record.Batch(head), pos, size)
	}
	_ = head[60]
	base := int64(binary.BigEndian.Uint64(head))
	return Header{
		Position:             pos,
		Size:                 size,
		BaseOffset:           base,
		LastOffset:           base + int64(int32(binary.BigEndian.Uint32(head[23:]))),
		BaseTimestamp:        int64(binary.BigEndian.Uint64(head[27:])),
		MaxTimestamp:         int64(binary.BigEndian.Uint64(head[35:])),
		ProducerID:           int64(binary.BigEndian.Uint64(head[43:])),
		PartitionLeaderEpoch: int32(binary.BigEndian.Uint32(head[12:])),
		CRC:                  binary.BigEndian.Uint32(head[17:]),
		BaseSequence:         int32(binary.BigEndian.Uint32(head[53:])),
		Count:                int32(binary.BigEndian.Uint32(head[57:])),
		ProducerEpoch:        int16(binary.BigEndian.Uint16(head[51:])),
		Attributes:           record.Attributes(binary.BigEndian.Uint16(head[21:])),
		Magic:                int8(head[16]),
	}
}

// legacyHeader asks the accessors of b that look at no more than the header, which is all that b holds.
func legacyHeader(b record.Batch, pos, size int64) Header {
	return Header{
		Position:             pos,
		Size:                 size,
		BaseOffset:           b.LastOffset(),
		LastOffset:           b.LastOffset(),
		BaseTimestamp:        record.NoTimestamp,
		MaxTimestamp:         b.MaxTimestamp(),
		ProducerID:           record.NoProducerID,
		PartitionLeaderEpoch: record.NoPartitionLeaderEpoch,
		CRC:                  b.CRC(),
		BaseSequence:         record.NoSequence,
		Count:                b.Count(),
		ProducerEpoch:        record.NoProducerEpoch,
		Attributes:           b.Attributes(),
		Magic:                b.Magic(),
	}
}
