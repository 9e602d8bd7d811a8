package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// maxBatchBytes is the largest batch of the format: positions and sizes of batches are int32 throughout Kafka.
const maxBatchBytes = math.MaxInt32

// Producer identifies the idempotent producer of a batch. The zero value is a valid one: producer 0, epoch 0, sequence 0.
type Producer struct {
	// ID is the producer id, at least 0.
	ID int64
	// Epoch is the producer epoch, at least 0.
	Epoch int16
	// BaseSequence is the sequence number of the batch's first record, at least 0. The others follow, wrapping as
	// IncrementSequence does.
	BaseSequence int32
}

var noProducer = Producer{ID: NoProducerID, Epoch: NoProducerEpoch, BaseSequence: NoSequence}

// BuilderOptions say what a Builder puts into the header of its batch. The zero value is an uncompressed batch without a
// producer, at base offset 0 and leader epoch 0, as a client would send it; whoever appends it to a log overwrites offset
// and leader epoch.
type BuilderOptions struct {
	// Producer makes the batch idempotent; nil leaves its three fields at the values that stand for none.
	Producer *Producer
	// Transactional marks the batch as part of the producer's open transaction. It needs a Producer.
	Transactional bool
	// Compression is the codec of the records.
	Compression Compression
	// CompressionLevel is the codec's level as Kafka's configuration counts it; 0 is the codec's default.
	CompressionLevel int
	// TimestampType is CreateTime, or LogAppendTime to give all records the time AppendTime.
	TimestampType TimestampType
	// AppendTime is the maximum timestamp of a LogAppendTime batch in milliseconds, at least 0. Not used otherwise.
	AppendTime int64
	// BaseOffset is the offset of the first record, at least 0.
	BaseOffset int64
	// PartitionLeaderEpoch is the epoch of the leader that appends the batch, or NoPartitionLeaderEpoch.
	PartitionLeaderEpoch int32
	// Rebuild is set to write a batch again with fewer records, as compaction does; nil for a new batch.
	Rebuild *Rebuild
}

// Rebuild holds what a batch keeps when it is written again without some of its records. See Batch.RebuildOptions.
type Rebuild struct {
	// LastOffsetDelta is kept from the original batch. The records' OffsetDelta fields are stored as they are given:
	// they must increase, with gaps allowed, and not exceed it.
	LastOffsetDelta int32
	// Control marks a control batch.
	Control bool
	// HasDeleteHorizon stores DeleteHorizon, a time in milliseconds of at least 0, as the base timestamp.
	HasDeleteHorizon bool
	DeleteHorizon    int64
}

// Validate reports every option that no batch can have; each error matches ErrInvalidOptions. With Rebuild set the
// producer may be any, since stored batches hold such.
func (o BuilderOptions) Validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrInvalidOptions}, args...)...))
	}
	if p := o.Producer; o.Rebuild == nil && p != nil {
		if p.ID < 0 {
			bad("Producer.ID: %d, want at least 0, or no Producer", p.ID)
		}
		if p.Epoch < 0 {
			bad("Producer.Epoch: %d, want at least 0", p.Epoch)
		}
		if p.BaseSequence < 0 {
			bad("Producer.BaseSequence: %d, want at least 0", p.BaseSequence)
		}
	}
	if o.Transactional && o.Producer == nil {
		bad("Transactional without a Producer")
	}
	if err := o.Compression.ValidateLevel(o.CompressionLevel); err != nil {
		bad("Compression: %w", err)
	}
	if o.TimestampType != CreateTime && o.TimestampType != LogAppendTime {
		bad("TimestampType: %v, want CreateTime or LogAppendTime", o.TimestampType)
	}
	if o.TimestampType == LogAppendTime && o.AppendTime < 0 {
		bad("AppendTime: %d, want at least 0", o.AppendTime)
	}
	if o.BaseOffset < 0 {
		bad("BaseOffset: %d, want at least 0", o.BaseOffset)
	}
	if o.PartitionLeaderEpoch < NoPartitionLeaderEpoch {
		bad("PartitionLeaderEpoch: %d, want at least -1", o.PartitionLeaderEpoch)
	}
	if r := o.Rebuild; r != nil {
		if r.LastOffsetDelta < 0 {
			bad("Rebuild.LastOffsetDelta: %d, want at least 0", r.LastOffsetDelta)
		}
		if r.HasDeleteHorizon && r.DeleteHorizon < 0 {
			bad("Rebuild.DeleteHorizon: %d, want at least 0", r.DeleteHorizon)
		}
	}
	return errors.Join(errs...)
}

// Builder writes one batch at a time. It encodes records as they are appended, compresses them when the batch is taken,
// and uses its buffers again after Reset; so it holds on to as much memory as its largest batch needed. A Builder comes
// from NewBuilder and serves one goroutine.
type Builder struct {
	head     batchHeader
	codec    Compression
	level    int
	rebuild  bool
	horizon  bool
	err      error // of the options
	plain    []byte
	packed   []byte // the batch with its records compressed
	last     int32  // offset delta of the last record, -1 before the first
	maxDelta int32
	maxTime  int64
	batch    Batch // what Batch returned, nil before
}

// NewBuilder returns a Builder for a batch with these options. Options that Validate refuses make Append and Batch return
// its error.
func NewBuilder(o BuilderOptions) *Builder {
	b := &Builder{}
	b.Reset(o)
	return b
}

// Reset makes the Builder start over with an empty batch. A batch taken before becomes invalid: its bytes are used again.
// What the options point to is copied.
func (b *Builder) Reset(o BuilderOptions) {
	b.head = batchHeader{
		baseOffset: o.BaseOffset, leaderEpoch: o.PartitionLeaderEpoch, producer: noProducer,
		baseTimestamp: NoTimestamp, maxTimestamp: NoTimestamp,
	}
	b.head.attributes = Attributes(o.Compression).withTimestampType(o.TimestampType)
	b.codec, b.level = o.Compression, o.CompressionLevel
	b.err = o.Validate()
	b.last, b.maxTime, b.maxDelta = -1, NoTimestamp, math.MaxInt32-1
	b.batch = nil
	if o.Producer != nil {
		b.head.producer = *o.Producer
	}
	if o.Transactional {
		b.head.attributes |= attrTransactional
	}
	if o.TimestampType == LogAppendTime {
		b.head.maxTimestamp = o.AppendTime
	}
	b.rebuild, b.horizon = o.Rebuild != nil, false
	if r := o.Rebuild; r != nil {
		b.maxDelta = r.LastOffsetDelta
		if r.Control {
			b.head.attributes |= attrControl
		}
		if r.HasDeleteHorizon {
			b.horizon = true
			b.head.attributes |= attrDeleteHorizon
			b.head.baseTimestamp = r.DeleteHorizon
		}
	}
	if cap(b.plain) < Overhead {
		b.plain = make([]byte, Overhead, 512)
	}
	b.plain = b.plain[:Overhead]
}

// Append adds a record with the time ts in milliseconds. Of r it uses Key, Value, Headers and, when rebuilding, OffsetDelta;
// their bytes are copied. An error leaves the batch as it was:
//   - ErrInvalidTimestamp if ts is negative and not NoTimestamp;
//   - ErrBatchTooLarge if the batch would exceed 2^31-1 bytes before compression, 2^31-1 records or the last offset;
//   - ErrInvalidRecord if OffsetDelta does not exceed the previous record's or exceeds LastOffsetDelta, when rebuilding;
//   - ErrBuilderState after Batch; ErrInvalidOptions from the options.
func (b *Builder) Append(ts int64, r Record) error {
	delta, err := b.check(ts, r)
	if err != nil {
		return err
	}
	base := b.baseFor(ts)
	size := bodySize(ts-base, delta, r)
	if total := b.sizeWith(size); total > maxBatchBytes {
		return fmt.Errorf("%w: %d bytes with record %d, limit %d", ErrBatchTooLarge, total, b.head.count, maxBatchBytes)
	}
	b.plain = appendRecord(b.plain, int32(size), ts-base, delta, r)
	b.head.baseTimestamp = base
	b.head.count++
	b.last = delta
	b.maxTime = max(b.maxTime, ts)
	return nil
}

// check returns the offset delta that a record would get.
func (b *Builder) check(ts int64, r Record) (int32, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.batch != nil {
		return 0, fmt.Errorf("%w: Append after Batch: call Reset", ErrBuilderState)
	}
	if ts < NoTimestamp {
		return 0, fmt.Errorf("%w: %d, want at least 0, or -1 for none", ErrInvalidTimestamp, ts)
	}
	delta := b.last
	if b.rebuild {
		if r.OffsetDelta <= delta || r.OffsetDelta > b.maxDelta {
			return 0, fmt.Errorf("%w: offset delta %d, want above %d and at most %d", ErrInvalidRecord, r.OffsetDelta, delta, b.maxDelta)
		}
		delta = r.OffsetDelta
	} else if delta++; delta > b.maxDelta {
		return 0, fmt.Errorf("%w: %d records", ErrBatchTooLarge, b.head.count)
	}
	if int64(delta) > math.MaxInt64-1-b.head.baseOffset {
		return 0, fmt.Errorf("%w: offset %d is the last one", ErrBatchTooLarge, int64(math.MaxInt64-1))
	}
	return delta, nil
}

// baseFor returns the base timestamp that the batch has once a record with time ts is in it: the first record's time,
// which need not be the smallest, or the delete horizon.
func (b *Builder) baseFor(ts int64) int64 {
	if b.head.count == 0 && !b.horizon {
		return ts
	}
	return b.head.baseTimestamp
}

func (b *Builder) sizeWith(body int64) int64 {
	if body > math.MaxInt32 {
		return int64(len(b.plain)) + maxVarintBytes + body
	}
	return int64(len(b.plain)) + int64(sizeVarint(int32(body))) + body
}

// Count returns how many records have been appended.
func (b *Builder) Count() int { return int(b.head.count) }

// Size returns the size of the batch in bytes: exact for an uncompressed batch and after Batch, and what it would be
// without compression before.
func (b *Builder) Size() int {
	if b.batch != nil {
		return len(b.batch)
	}
	return len(b.plain)
}

// SizeWith returns what Size would be after Append of this record, so that a caller can stop before a limit. It changes
// nothing. It may exceed what a batch can hold.
func (b *Builder) SizeWith(ts int64, r Record) int64 {
	delta := b.last + 1
	if b.rebuild {
		delta = r.OffsetDelta
	}
	return b.sizeWith(bodySize(ts-b.baseFor(ts), delta, r))
}

// Batch finishes the batch and returns it, checksum included. It belongs to the Builder and is valid until Reset; its
// setters may be used. Calling Batch again returns the same batch. The error is ErrBuilderState if no record was appended
// (see AppendEmptied for batches without records), that of the options or the codec, or ErrBatchTooLarge if
// compression made the batch larger than 2^31-1 bytes.
func (b *Builder) Batch() (Batch, error) {
	if b.err != nil {
		return nil, b.err
	}
	if b.batch != nil {
		return b.batch, nil
	}
	if b.head.count == 0 {
		return nil, fmt.Errorf("%w: Batch before Append", ErrBuilderState)
	}
	p := b.plain
	if b.codec != None {
		packed := append(b.packed[:0], b.plain[:Overhead]...)
		packed, err := appendCompressed(packed, b.codec, b.level, b.plain[Overhead:])
		if err != nil {
			return nil, fmt.Errorf("record: compressing %d records: %w", b.head.count, err)
		}
		b.packed = packed
		if int64(len(packed)) > maxBatchBytes {
			return nil, fmt.Errorf("%w: %d bytes after compression, limit %d", ErrBatchTooLarge, len(packed), maxBatchBytes)
		}
		p = packed
	}
	b.head.lastOffsetDelta = b.last
	if b.rebuild {
		b.head.lastOffsetDelta = b.maxDelta
	}
	if b.head.attributes.TimestampType() == CreateTime {
		b.head.maxTimestamp = b.maxTime
	}
	b.head.put(p)
	b.batch = Batch(p[:len(p):len(p)])
	return b.batch, nil
}

// batchHeader holds the fields of a v2 header but for those that follow from the bytes: length, magic and CRC.
type batchHeader struct {
	baseOffset                  int64
	leaderEpoch                 int32
	attributes                  Attributes
	lastOffsetDelta             int32
	baseTimestamp, maxTimestamp int64
	producer                    Producer
	count                       int32
}

// put writes the header in front of the records that are already in p, and computes the checksum.
func (h *batchHeader) put(p []byte) {
	_ = p[posRecords-1]
	binary.BigEndian.PutUint64(p[posBaseOffset:], uint64(h.baseOffset))
	binary.BigEndian.PutUint32(p[posLength:], uint32(len(p)-LogOverhead))
	binary.BigEndian.PutUint32(p[posPartitionLeaderEpoch:], uint32(h.leaderEpoch))
	p[posMagic] = Magic
	binary.BigEndian.PutUint16(p[posAttributes:], uint16(h.attributes))
	binary.BigEndian.PutUint32(p[posLastOffsetDelta:], uint32(h.lastOffsetDelta))
	binary.BigEndian.PutUint64(p[posBaseTimestamp:], uint64(h.baseTimestamp))
	binary.BigEndian.PutUint64(p[posMaxTimestamp:], uint64(h.maxTimestamp))
	binary.BigEndian.PutUint64(p[posProducerID:], uint64(h.producer.ID))
	binary.BigEndian.PutUint16(p[posProducerEpoch:], uint16(h.producer.Epoch))
	binary.BigEndian.PutUint32(p[posBaseSequence:], uint32(h.producer.BaseSequence))
	binary.BigEndian.PutUint32(p[posCount:], uint32(h.count))
	Batch(p).updateCRC()
}
