package wal

import (
	"errors"
	"fmt"
	"time"

	"github.com/oncelog/oncelog/record"
)

// checked is a leader's append after everything was checked that does not depend on the log, with the timestamps and
// the codec as they will be stored. Only the offsets and the leader epoch are missing, both outside the CRC.
type checked struct {
	bytes        []byte
	records      int64 // records, and so offsets, of the append
	maxTimestamp int64
	appendTime   int64 // record.NoTimestamp unless the log stamps its own time
	mayHaveGrown bool  // a batch was rebuilt: its size must be looked at again
}

// check is what a leader does to the batches of an append before it gives them offsets. Kafka:
// LogValidator.validateMessagesAndAssignOffsets.
func check(a *analysis, o *Options, origin Origin, now time.Time) (c checked, err error) {
	c = checked{bytes: a.bytes, maxTimestamp: record.NoTimestamp, appendTime: record.NoTimestamp}
	if o.TimestampType == record.LogAppendTime {
		c.appendTime = now.UnixMilli()
	}
	target := a.codec
	if o.Compression.Recompress {
		target = o.Compression.Codec
	}
	b, rest, err := record.Next(a.bytes)
	if err != nil {
		return c, err
	}
	if len(rest) > 0 && (b.Magic() >= record.Magic || target != record.None || a.codec != record.None) {
		return c, invalid("%d batches in one append of a leader, which takes one", a.batches)
	}
	if err := checkBatch(b, origin); err != nil {
		return c, err
	}
	w := recordWalk{opts: o, now: now.UnixMilli(), max: record.NoTimestamp, deltasInOrder: true}
	for each, err := range record.All(a.bytes) {
		if err == nil && each.Magic() != b.Magic() {
			err = invalid("batches of format %d and %d in one append", b.Magic(), each.Magic())
		}
		if err == nil {
			err = w.batch(each)
		}
		if err != nil {
			return c, err
		}
	}
	if err := w.err(); err != nil {
		return c, err
	}
	c.records = int64(w.count)
	codec := b.Attributes().Compression()
	inPlace := b.Magic() >= record.Magic && (codec == target || codec == record.None && b.Attributes().IsControl())
	switch {
	case inPlace && target != record.None && !w.deltasInOrder:
		// Kafka would build the batch anew with the codec it has, and fails on it.
		return c, invalid("offset deltas of a compressed batch must be 0, 1, 2 and so on")
	case inPlace:
		// Offsets of a batch kept as it is come from its header: the two must agree, or it would reach below the end.
		if int64(b.LastOffsetDelta())+1 != c.records {
			return c, invalid("last offset delta is %d for %d records", b.LastOffsetDelta(), c.records)
		}
	default:
		if c.bytes, err = rebuild(a.bytes, b, target, o); err != nil {
			return c, err
		}
		c.mayHaveGrown = true
		b = record.Batch(c.bytes)
	}
	c.stamp(b, w.max, o)
	if c.mayHaveGrown && b.Size() > int(o.MaxMessageBytes) {
		return c, fmt.Errorf("%w: batch grew to %d bytes when it was compressed anew, the log takes %d (MaxMessageBytes)",
			ErrMessageTooLarge, b.Size(), o.MaxMessageBytes)
	}
	return c, nil
}

// stamp sets type and greatest timestamp as the log wants them.
func (c *checked) stamp(b record.Batch, greatest int64, o *Options) {
	if c.appendTime != record.NoTimestamp {
		greatest = c.appendTime
	}
	b.SetMaxTimestamp(o.TimestampType, greatest)
	c.maxTimestamp = greatest
}

// checkBatch is Kafka's LogValidator.validateBatch.
func checkBatch(b record.Batch, origin Origin) error {
	if origin != Client || b.Magic() < record.Magic {
		return nil
	}
	span, count := int64(b.LastOffsetDelta())+1, b.Count()
	switch {
	case span <= 0:
		return invalid("last offset delta is %d", b.LastOffsetDelta())
	case count <= 0:
		return invalid("record count is %d", count)
	case span != int64(count):
		return invalid("record count is %d, but the offsets span %d", count, span)
	case b.Attributes().IsControl():
		return invalid("a producer may not write control batches")
	case b.HasProducerID() && b.BaseSequence() < 0:
		return invalid("producer %d gives no sequence number (%d)", b.ProducerID(), b.BaseSequence())
	}
	return nil
}

// recordWalk checks the records of an append.
type recordWalk struct {
	opts *Options
	now  int64 // the clock, milliseconds

	count         int
	max           int64 // greatest timestamp
	deltasInOrder bool
	errs          []RecordError
	timestamps    bool // one of errs is about a timestamp
}

func (w *recordWalk) batch(b record.Batch) error {
	for r, err := range b.Records(w.opts.limits()) {
		if err != nil {
			if errors.Is(err, record.ErrUnsupportedCompression) {
				return fmt.Errorf("wal: append: %w", err)
			}
			return fmt.Errorf("%w: %w", ErrInvalidRecord, err)
		}
		if int(r.OffsetDelta) != w.count {
			w.deltasInOrder = false
		}
		w.one(b, &r)
		w.max = max(w.max, r.Timestamp)
		w.count++
	}
	return nil
}

func (w *recordWalk) err() error {
	if len(w.errs) == 0 {
		return nil
	}
	kind := ErrInvalidRecord
	if w.timestamps {
		kind = ErrInvalidTimestamp
	}
	return &RecordsError{Records: w.errs, Err: kind}
}

// one is Kafka's LogValidator.validateRecord and validateTimestamp.
func (w *recordWalk) one(b record.Batch, r *record.Record) {
	o := w.opts
	if o.CleanupPolicy&CleanupCompact != 0 && r.Key == nil {
		w.bad(ErrInvalidRecord, "a compacted log needs a key")
		return
	}
	if o.TimestampType == record.CreateTime && r.Timestamp != record.NoTimestamp {
		if before, after := o.TimestampBeforeMax, o.TimestampAfterMax; exceeds(w.now, r.Timestamp, before) || exceeds(r.Timestamp, w.now, after) {
			w.bad(ErrInvalidTimestamp, fmt.Sprintf("timestamp %d is not within %v before and %v after the clock, %d", r.Timestamp, before, after, w.now))
		}
	} else if b.TimestampType() == record.LogAppendTime {
		w.bad(ErrInvalidTimestamp, "a producer may not set LogAppendTime")
	}
}

// exceeds tells whether a lies more than limit behind b, where a difference that overflows counts as one, as in Kafka.
func exceeds(a, b int64, limit time.Duration) bool {
	if a <= b {
		return false
	}
	d := a - b
	return d < 0 || limit != Never && d > limit.Milliseconds()
}

func (w *recordWalk) bad(kind error, reason string) {
	w.timestamps = w.timestamps || kind == ErrInvalidTimestamp
	w.errs = append(w.errs, RecordError{Index: w.count, Reason: reason})
}

// rebuild writes the records of an append into one new batch with another codec, and in the present format. Kafka:
// LogValidator.buildRecordsAndAssignOffsets and convertAndAssignOffsetsNonCompressed.
func rebuild(p []byte, first record.Batch, codec record.Compression, opts *Options) ([]byte, error) {
	o := record.BuilderOptions{
		Transactional: first.Attributes().IsTransactional(), Compression: codec, CompressionLevel: opts.Compression.Level,
		TimestampType: record.CreateTime, // the leader epoch comes with the offsets, whatever the producer sent
	}
	if first.HasProducerID() {
		o.Producer = &record.Producer{ID: first.ProducerID(), Epoch: first.ProducerEpoch(), BaseSequence: first.BaseSequence()}
	}
	w := record.NewBuilder(o)
	for b, err := range record.All(p) {
		if err != nil {
			return nil, err
		}
		for r, err := range b.Records(opts.limits()) {
			if err != nil {
				return nil, fmt.Errorf("%w: %w", ErrInvalidRecord, err)
			}
			if err := w.Append(r.Timestamp, r); err != nil {
				return nil, fmt.Errorf("wal: build anew: %w", err)
			}
		}
	}
	return w.Batch()
}
