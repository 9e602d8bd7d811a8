package record

import (
	"encoding/binary"
	"hash/crc32"
	"iter"
	"math"
)

// Entries with magic 0 and 1, the formats before version 2. They are read and never written.
//
//	offset  size  field
//	0       8     offset of the record, of a wrapper that of its last record
//	8       4     length of what follows
//	12      4     CRC-32 (IEEE) of everything from the magic on
//	16      1     magic, 0 or 1
//	17      1     attributes: bits 0-2 codec, with magic 1 bit 3 timestamp type
//	18      8     timestamp, magic 1 only
//	…       4     key length, negative for null
//	…       …     key
//	…       4     value length, negative for null
//	…       …     value
//
// An entry with a codec is a wrapper: its value is a compressed sequence of entries with a record each. The offsets inside
// a wrapper with magic 0 are those of the log. Inside one with magic 1 they are relative: the last of them stands for the
// wrapper's own offset. Bytes behind the value are ignored, as Kafka does.
const (
	legacyPrefixV0 = 18 // what comes before the key length
	legacyPrefixV1 = 26
)

// What a fault of a legacy entry is called, besides the reasons that all formats share.
const (
	reasonNull     = "null in a compressed entry"
	reasonNone     = "none in a compressed entry"
	reasonNested   = "compressed inside a compressed entry"
	reasonBehind   = "of the last record inside is above the entry's own"
	reasonMismatch = "mismatch"
	reasonUnknown  = "unknown"
	reasonSmall    = "too small"
)

func legacyValidate(b Batch) error {
	if want := legacyChecksum(b); b.CRC() != want {
		return &CorruptError{Field: "crc", Pos: posLegacyCRC, Got: int64(b.CRC()), Want: int64(want), Err: ErrChecksum}
	}
	return nil
}

func legacyChecksum(b Batch) uint32 { return crc32.ChecksumIEEE(b[posMagic:]) }

// legacyKeyValue sets the key and the value of r to views of b. The positions in a fault count from the start of b.
func legacyKeyValue(b Batch, r *Record) fault {
	d := decoder{body: b, pos: legacyPrefixV1}
	if b.Magic() == 0 {
		d.pos = legacyPrefixV0
	}
	r.Key = d.legacyBytes("keyLength", "key")
	r.Value = d.legacyBytes("valueLength", "value")
	return d.fault
}

// legacyBytes reads a length of four bytes and that many bytes; any negative length is null.
func (d *decoder) legacyBytes(lengthField, field string) []byte {
	length := d.take(lengthField, 4)
	if d.failed() {
		return nil
	}
	n := int32(binary.BigEndian.Uint32(length))
	if n < 0 {
		return nil
	}
	return d.take(field, n)
}

// legacyRecords is Batch.Records for an entry with magic 0 or 1. The checksums inside a wrapper are verified, the entry's
// own is not. An inner magic that differs from the wrapper's is accepted, for old cleaners wrote such wrappers; the
// wrapper's decides how the offsets are meant. Unlike Kafka, which takes a sequence that is cut inside an entry for
// complete, it reports what is cut. Kafka: AbstractLegacyRecordBatch.DeepRecordsIterator.
func legacyRecords(b Batch, l Limits) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if b.Attributes().Compression() == None {
			r := Record{Offset: b.storedOffset(), Timestamp: b.MaxTimestamp(), Sequence: NoSequence}
			if f := legacyKeyValue(b, &r); f.field != "" {
				yield(Record{}, recordFault(0, f, 0))
				return
			}
			yield(r, nil)
			return
		}
		if err := wrappedRecords(b, l, yield); err != nil {
			yield(Record{}, err)
		}
	}
}

// wrappedRecords yields the records of a wrapper until yield asks it to stop. An error is returned, not yielded.
func wrappedRecords(b Batch, l Limits, yield func(Record, error) bool) error {
	base, err := innerBase(b)
	if err != nil {
		return err
	}
	w, err := openWrapper(b, l.maxRecordBytes())
	if err != nil {
		return err
	}
	defer w.close()
	first := int64(0)
	for {
		inner, err := w.next()
		if err != nil || inner == nil {
			return err
		}
		r := Record{Offset: base + inner.storedOffset(), Timestamp: inner.MaxTimestamp(), Sequence: NoSequence}
		if inner.Magic() == 1 && b.TimestampType() == LogAppendTime {
			r.Timestamp = b.MaxTimestamp()
		}
		if err := w.decode(inner, &r); err != nil {
			return err
		}
		if w.index == 1 {
			first = r.Offset
		}
		delta := r.Offset - first
		if delta < math.MinInt32 || delta > math.MaxInt32 {
			return w.fault(fault{field: "offset", reason: reasonLimit, got: r.Offset, want: first + math.MaxInt32})
		}
		r.OffsetDelta = int32(delta)
		if !yield(r, nil) {
			return nil
		}
	}
}

// innerBase returns what has to be added to the offsets inside a wrapper. With magic 1 it follows from the last of them,
// so that the wrapper is decompressed once for its offsets alone, which takes no memory, and then again for its records.
// A wrapper with offset 0 is different: some producers stored it so whatever it holds, and the base is 0.
func innerBase(b Batch) (int64, error) {
	if b.Magic() == 0 || b.storedOffset() == 0 {
		return 0, nil
	}
	_, last, err := innerOffsets(b)
	if err != nil {
		return 0, err
	}
	if last > b.storedOffset() {
		return 0, &RecordError{Index: -1, Field: "offset", Reason: reasonBehind, Got: last, Want: b.storedOffset()}
	}
	return b.storedOffset() - last, nil
}

// innerOffsets returns the first and the last offset inside a wrapper, as stored.
func innerOffsets(b Batch) (first, last int64, err error) {
	w, err := openWrapper(b, math.MaxInt32)
	if err != nil {
		return 0, 0, err
	}
	defer w.close()
	for {
		offset, ok, err := w.skip()
		if err != nil {
			return 0, 0, err
		}
		if !ok {
			return first, last, nil
		}
		if w.index == 1 {
			first = offset
		}
		last = offset
	}
}

// legacyBaseOffset returns the offset of the first record of an entry, or its stored offset where that can't be found.
func legacyBaseOffset(b Batch) int64 {
	if b.Attributes().Compression() == None {
		return b.storedOffset()
	}
	base, err := innerBase(b)
	if err != nil {
		return b.storedOffset()
	}
	w, err := openWrapper(b, math.MaxInt32)
	if err != nil {
		return b.storedOffset()
	}
	defer w.close()
	first, ok, err := w.skip()
	if err != nil || !ok {
		return b.storedOffset()
	}
	return base + first
}
