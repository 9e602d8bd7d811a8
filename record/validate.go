package record

import (
	"fmt"
	"math"
)

// Validate verifies the checksum of the entry, CRC-32C over everything from the attributes on, and for legacy entries
// CRC-32 (IEEE) over everything from the magic on. With a size that fits the magic, which Next has seen to, that is all
// that Kafka calls valid (DefaultRecordBatch.isValid): offset, length and leader epoch are not covered, whether the numbers
// agree is told by CheckHeader, and whether the records can be read by Records. The error is a *CorruptError whose cause is
// ErrChecksum.
func (b Batch) Validate() error {
	if b.isLegacy() {
		return legacyValidate(b)
	}
	if got, want := b.CRC(), Checksum(b[posAttributes:]); got != want {
		return &CorruptError{Field: "crc", Pos: posCRC, Got: int64(got), Want: int64(want), Err: ErrChecksum}
	}
	return nil
}

// CheckHeader verifies what holds for the header of every batch in a sound log, beyond what Kafka calls valid:
//   - the base offset is not negative, and no offset of the batch nor the one after it exceeds 2^63-1;
//   - lastOffsetDelta is not negative;
//   - recordsCount is not negative and not above lastOffsetDelta plus one; compaction makes it smaller, even 0;
//   - the codec is assigned, else the error matches ErrUnsupportedCompression.
//
// For a legacy entry the first and the last hold. It reads no records and computes no checksum. A *CorruptError names the
// first field that is wrong. A broker stores some batches that break these rules, from followers and coordinators, whose
// appends it does not check; where its behaviour is to be matched, report the error and go on.
func (b Batch) CheckHeader() error {
	stored := b.storedOffset()
	if stored < 0 {
		return &CorruptError{Field: "baseOffset", Pos: posBaseOffset, Got: stored, Rule: "at least"}
	}
	span := int64(0)
	if !b.isLegacy() {
		delta, count := b.LastOffsetDelta(), b.Count()
		if delta < 0 {
			return &CorruptError{Field: "lastOffsetDelta", Pos: posLastOffsetDelta, Got: int64(delta), Rule: "at least"}
		}
		if count < 0 {
			return &CorruptError{Field: "recordsCount", Pos: posCount, Got: int64(count), Rule: "at least"}
		}
		if span = int64(delta); int64(count) > span+1 {
			return &CorruptError{Field: "recordsCount", Pos: posCount, Got: int64(count), Want: span + 1, Rule: "at most"}
		}
	}
	if limit := math.MaxInt64 - 1 - span; stored > limit {
		return &CorruptError{Field: "baseOffset", Pos: posBaseOffset, Got: stored, Want: limit, Rule: "at most"}
	}
	if c := b.Attributes().Compression(); c > Zstd || b.isLegacy() && c > LZ4 {
		return fmt.Errorf("%w: codec %s in an entry with magic %d", ErrUnsupportedCompression, c, b.Magic())
	}
	return nil
}
