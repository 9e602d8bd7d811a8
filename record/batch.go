package record

import "encoding/binary"

// Sizes and numbers of the format. None of them is computed from another one; the relations are checked below.
const (
	// LogOverhead is the size of the offset and the length that precede every entry, in bytes. The length field counts
	// what follows it, so an entry is LogOverhead plus its length long.
	LogOverhead = 12

	// HeaderUpToMagic is how many bytes of an entry must be there to tell its size and its magic.
	HeaderUpToMagic = 17

	// Overhead is the size of a v2 batch header: a batch without records is that long.
	Overhead = 61

	// Magic is the version of the batch format that this package writes.
	Magic = 2
)

// Sizes of the smallest legacy entries: a message with a null key and a null value, the 12 bytes in front included.
const (
	legacyOverheadV0 = 26
	legacyOverheadV1 = 34
)

// The values that stand for "there is none", as the format stores them.
const (
	// NoTimestamp stands for a missing time: an emptied batch has no base timestamp, magic 0 has no times at all.
	NoTimestamp int64 = -1
	// NoProducerID is the producer id of a batch that is not idempotent.
	NoProducerID int64 = -1
	// NoProducerEpoch is the producer epoch of a batch that is not idempotent.
	NoProducerEpoch int16 = -1
	// NoSequence is the base sequence of a batch without sequence numbers. Control batches have it although they
	// have a producer id.
	NoSequence int32 = -1
	// NoPartitionLeaderEpoch is the leader epoch of a batch that no leader has appended yet.
	NoPartitionLeaderEpoch int32 = -1
	// NoCount is what Count and LastOffsetDelta say about a compressed legacy entry, which stores neither.
	NoCount int32 = -1
)

// Positions of the fields in an entry. Offset, length and magic are at the same place in every format.
const (
	posBaseOffset           = 0
	posLength               = 8
	posPartitionLeaderEpoch = 12
	posMagic                = 16
	posCRC                  = 17
	posAttributes           = 21
	posLastOffsetDelta      = 23
	posBaseTimestamp        = 27
	posMaxTimestamp         = 35
	posProducerID           = 43
	posProducerEpoch        = 51
	posBaseSequence         = 53
	posCount                = 57
	posRecords              = 61

	posLegacyCRC        = 12
	posLegacyAttributes = 17
	posLegacyTimestamp  = 18
)

// Relations between the numbers above: a wrong one makes an array length negative or an index too large.
var (
	_ [posRecords - Overhead]struct{}
	_ [Overhead - posRecords]struct{}
	_ [LogOverhead - posLength - 4]struct{}
	_ [HeaderUpToMagic - posMagic - 1]struct{}
	_ [posRecords - posCount - 4]struct{}
	_ [legacyOverheadV0 - posLegacyTimestamp - 8]struct{}
)

// Batch is one whole entry of a log: a v2 batch or, where Magic is below 2, a legacy message or compressed wrapper. It
// is a view of the bytes it was cut from, which it neither copies nor owns; each accessor decodes one field in place.
//
// A Batch comes from Next, All, a Builder or one of the Append functions of this package, which guarantee that its length
// is the one it states and that its header is complete. On any other slice the accessors may panic. Nothing but that is
// known of a Batch: Validate tells whether its bytes are those that were written, CheckHeader whether its numbers agree.
//
// Reading a Batch from several goroutines is safe while none uses a setter.
type Batch []byte

// Bytes returns the batch as the plain bytes that a file holds. They are not copied.
func (b Batch) Bytes() []byte { return b }

// Size returns the length of the entry in bytes, offset and length fields included.
func (b Batch) Size() int { return len(b) }

// Magic returns the version of the entry's format: 0, 1 or 2.
func (b Batch) Magic() int8 { return int8(b[posMagic]) }

func (b Batch) isLegacy() bool { return b.Magic() < Magic }

// BaseOffset returns the offset of the first record that the batch was written with; compaction may have removed it
// since. The CRC does not cover it. A compressed legacy entry does not store it: there the entries inside are
// decompressed to find it, and if they cannot be read the result is the stored offset, which is the last one.
func (b Batch) BaseOffset() int64 {
	if b.isLegacy() {
		return legacyBaseOffset(b)
	}
	return b.storedOffset()
}

// storedOffset is the first field of an entry: a v2 batch stores its first offset there, a legacy entry its last one.
func (b Batch) storedOffset() int64 { return int64(binary.BigEndian.Uint64(b[posBaseOffset:])) }

// LastOffset returns the offset of the last record that the batch was written with, whether or not that record is still
// in it. The log end offset is computed from it, never from the records that are left.
func (b Batch) LastOffset() int64 {
	if b.isLegacy() {
		return b.storedOffset()
	}
	return b.storedOffset() + int64(b.LastOffsetDelta())
}

// NextOffset returns LastOffset plus one, the offset that a gapless log goes on with.
func (b Batch) NextOffset() int64 { return b.LastOffset() + 1 }

// LastOffsetDelta returns the distance from BaseOffset to LastOffset, which is also the number of sequence numbers of the
// batch less one. Compaction keeps it. It is 0 for an uncompressed legacy entry and NoCount for a compressed one.
func (b Batch) LastOffsetDelta() int32 {
	if b.isLegacy() {
		if b.Attributes().Compression() != None {
			return NoCount
		}
		return 0
	}
	return int32(binary.BigEndian.Uint32(b[posLastOffsetDelta:]))
}

// Count returns how many records the batch says it holds. A fresh batch holds LastOffsetDelta plus one; compaction leaves
// fewer, even none. It is 1 for an uncompressed legacy entry and NoCount for a compressed one. The value is a claim: do
// not size anything by it.
func (b Batch) Count() int32 {
	if b.isLegacy() {
		if b.Attributes().Compression() != None {
			return NoCount
		}
		return 1
	}
	return int32(binary.BigEndian.Uint32(b[posCount:]))
}

// PartitionLeaderEpoch returns the epoch of the leader that appended the batch, or NoPartitionLeaderEpoch. The CRC does
// not cover it, so that a leader can set it without reading the batch. Legacy entries have none.
func (b Batch) PartitionLeaderEpoch() int32 {
	if b.isLegacy() {
		return NoPartitionLeaderEpoch
	}
	return int32(binary.BigEndian.Uint32(b[posPartitionLeaderEpoch:]))
}

// CRC returns the stored checksum. Validate compares it with the bytes.
func (b Batch) CRC() uint32 {
	if b.isLegacy() {
		return binary.BigEndian.Uint32(b[posLegacyCRC:])
	}
	return binary.BigEndian.Uint32(b[posCRC:])
}

// Attributes returns the flags of the batch. A legacy entry stores one byte of them, of which only the bits that its
// format defines are returned.
func (b Batch) Attributes() Attributes {
	switch b.Magic() {
	case 0:
		return Attributes(b[posLegacyAttributes]) & attrCompression
	case 1:
		return Attributes(b[posLegacyAttributes]) & (attrCompression | attrLogAppendTime)
	}
	return Attributes(binary.BigEndian.Uint16(b[posAttributes:]))
}

// TimestampType returns what the times of the batch mean; NoTimestampType for magic 0, which has none.
func (b Batch) TimestampType() TimestampType {
	if b.Magic() == 0 {
		return NoTimestampType
	}
	return b.Attributes().TimestampType()
}

// BaseTimestamp returns the time in milliseconds that the records' timestamp deltas are relative to. It is the first
// record's time in a fresh batch, the delete horizon where DeleteHorizon reports one, and NoTimestamp in an emptied batch
// and in legacy entries.
func (b Batch) BaseTimestamp() int64 {
	if b.isLegacy() {
		return NoTimestamp
	}
	return int64(binary.BigEndian.Uint64(b[posBaseTimestamp:]))
}

// MaxTimestamp returns the greatest record time in milliseconds, or with LogAppendTime the time of every record. It is
// NoTimestamp for magic 0 and, by convention of the writers, where no record has a time.
func (b Batch) MaxTimestamp() int64 {
	switch b.Magic() {
	case 0:
		return NoTimestamp
	case 1:
		return int64(binary.BigEndian.Uint64(b[posLegacyTimestamp:]))
	}
	return int64(binary.BigEndian.Uint64(b[posMaxTimestamp:]))
}

// DeleteHorizon returns the time in milliseconds from which the batch's tombstones and marker may be removed, if
// compaction has set one.
func (b Batch) DeleteHorizon() (ms int64, ok bool) {
	if b.isLegacy() || !b.Attributes().HasDeleteHorizon() {
		return NoTimestamp, false
	}
	return b.BaseTimestamp(), true
}

// ProducerID returns the id of the producer, or NoProducerID.
func (b Batch) ProducerID() int64 {
	if b.isLegacy() {
		return NoProducerID
	}
	return int64(binary.BigEndian.Uint64(b[posProducerID:]))
}

// HasProducerID tells whether the batch belongs to a producer: any id of 0 or above is one. A negative id other than
// NoProducerID is stored as it came and means the same (Kafka: RecordBatch.hasProducerId).
func (b Batch) HasProducerID() bool { return b.ProducerID() > NoProducerID }

// ProducerEpoch returns the epoch of the producer, or NoProducerEpoch.
func (b Batch) ProducerEpoch() int16 {
	if b.isLegacy() {
		return NoProducerEpoch
	}
	return int16(binary.BigEndian.Uint16(b[posProducerEpoch:]))
}

// BaseSequence returns the sequence number of the first record that the batch was written with, or NoSequence.
func (b Batch) BaseSequence() int32 {
	if b.isLegacy() {
		return NoSequence
	}
	return int32(binary.BigEndian.Uint32(b[posBaseSequence:]))
}

// LastSequence returns the sequence number of the last record that the batch was written with, or NoSequence. It is below
// BaseSequence where the numbers wrap inside the batch.
func (b Batch) LastSequence() int32 {
	base := b.BaseSequence()
	if base == NoSequence {
		return NoSequence
	}
	return IncrementSequence(base, b.LastOffsetDelta())
}

// Identity names one stored batch: where it lies and what it is. Two batches with equal identities are, for all
// practical purposes, the same bytes at the same place.
type Identity struct {
	// SegmentBase is the base offset of the segment that holds the batch.
	SegmentBase int64
	// Position is the byte at which the batch starts in that segment's log file.
	Position int64
	// BaseOffset is the offset field of the stored entry; for a legacy entry that is its last offset.
	BaseOffset int64
	// Size is the length of the entry in bytes.
	Size int32
	// CRC is the stored checksum.
	CRC uint32
}

// Identity returns the identity of the batch as stored at position in the segment with base offset segmentBase.
func (b Batch) Identity(segmentBase, position int64) Identity {
	return Identity{
		SegmentBase: segmentBase, Position: position,
		BaseOffset: b.storedOffset(), Size: int32(len(b)), CRC: b.CRC(),
	}
}

// SetBaseOffset writes the base offset. The CRC does not cover it and stays right. It panics on a legacy entry, which
// nothing may rewrite.
func (b Batch) SetBaseOffset(offset int64) {
	b.mustBeWritable("SetBaseOffset")
	binary.BigEndian.PutUint64(b[posBaseOffset:], uint64(offset))
}

// SetLastOffset writes the base offset that makes LastOffset return offset. It panics on a legacy entry.
func (b Batch) SetLastOffset(offset int64) {
	b.mustBeWritable("SetLastOffset")
	b.SetBaseOffset(offset - int64(b.LastOffsetDelta()))
}

// SetPartitionLeaderEpoch writes the leader epoch. The CRC does not cover it and stays right. It panics on a legacy entry.
func (b Batch) SetPartitionLeaderEpoch(epoch int32) {
	b.mustBeWritable("SetPartitionLeaderEpoch")
	binary.BigEndian.PutUint32(b[posPartitionLeaderEpoch:], uint32(epoch))
}

// SetMaxTimestamp writes the type of the times and the greatest of them, in milliseconds, as a leader does at append. The
// CRC covers both: it is computed again over the whole batch if one of them changes, and left alone if none does, so that
// the call does not turn a damaged batch into a valid one by itself. With a change, undefined attribute bits become 0
// (Kafka: DefaultRecordBatch.setMaxTimestamp). Validate the batch first. It panics on a legacy entry and on a type other than CreateTime and LogAppendTime.
func (b Batch) SetMaxTimestamp(t TimestampType, ms int64) {
	b.mustBeWritable("SetMaxTimestamp")
	if t != CreateTime && t != LogAppendTime {
		panic("record: SetMaxTimestamp: a batch cannot have timestamp type " + t.String())
	}
	a := b.Attributes()
	if a.TimestampType() == t && b.MaxTimestamp() == ms {
		return
	}
	binary.BigEndian.PutUint16(b[posAttributes:], uint16(a.withTimestampType(t)))
	binary.BigEndian.PutUint64(b[posMaxTimestamp:], uint64(ms))
	b.updateCRC()
}

func (b Batch) updateCRC() { binary.BigEndian.PutUint32(b[posCRC:], Checksum(b[posAttributes:])) }

func (b Batch) mustBeWritable(method string) {
	if b.isLegacy() {
		panic("record: " + method + " on an entry with magic below 2")
	}
}
