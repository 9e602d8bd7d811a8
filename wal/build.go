package wal

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/oncelog/oncelog/record"
)

// batchBuilder makes batches of records for the simple floor. It is used again, so that an append allocates nothing.
type batchBuilder struct {
	builder  *record.Builder
	producer record.Producer
	headers  []record.Header
}

// keepBuilder is the largest batch whose buffers are kept for the next append.
const keepBuilder = 1 << 20

var builders = sync.Pool{New: func() any { return &batchBuilder{builder: record.NewBuilder(record.BuilderOptions{})} }}

func (b *batchBuilder) release() {
	if b.builder.Size() <= keepBuilder {
		clear(b.headers)
		builders.Put(b)
	}
}

// batchOptions say what a batch of the simple floor carries beside its records.
type batchOptions struct {
	named         bool            // the batch belongs to producer
	transactional bool            // and to its transaction
	producer      record.Producer // with its first sequence
	position      []byte          // becomes a header of the last record; nil for none
}

// build encodes one batch. It belongs to the builder.
func (b *batchBuilder) build(l *Log, recs []Record, o *batchOptions) (record.Batch, error) {
	set := l.settings()
	codec := set.Compression
	settings := record.BuilderOptions{Compression: codec.Codec, CompressionLevel: codec.Level}
	if o.named {
		b.producer = o.producer
		settings.Producer, settings.Transactional = &b.producer, o.transactional
	}
	b.builder.Reset(settings)
	now := l.opts.Now()
	for i := range recs {
		ts, err := timestamp(recs[i].Time, now)
		if err != nil {
			return nil, &RecordsError{Records: []RecordError{{Index: i, Reason: err.Error()}}, Err: ErrInvalidTimestamp}
		}
		r := record.Record{Key: recs[i].Key, Value: recs[i].Value, Headers: recs[i].Headers}
		if o.position != nil && i == len(recs)-1 {
			b.headers = append(append(b.headers[:0], r.Headers...), record.Header{Key: PositionHeader, Value: o.position})
			r.Headers = b.headers
		}
		if codec.Codec == record.None {
			// Found before the bytes are copied, so that a giant record costs no memory.
			if err := set.fits(len(recs), b.builder.SizeWith(ts, r)); err != nil {
				return nil, err
			}
		}
		if err := b.builder.Append(ts, r); errors.Is(err, record.ErrBatchTooLarge) {
			return nil, &TooLargeError{Records: len(recs), Bytes: b.builder.SizeWith(ts, r), Limit: int64(set.MaxMessageBytes)}
		} else if err != nil {
			return nil, fmt.Errorf("wal: append: record %d: %w", i, err)
		}
	}
	batch, err := b.builder.Batch()
	if err != nil {
		return nil, fmt.Errorf("wal: append: %w", err)
	}
	return batch, set.fits(len(recs), int64(batch.Size()))
}

func (o *Options) fits(records int, bytes int64) error {
	if limit := int64(o.MaxMessageBytes); bytes > limit {
		return &TooLargeError{Records: records, Bytes: bytes, Limit: limit}
	}
	return nil
}

// timestamp is the time of a record in milliseconds. The format has no times before 1970; −1 means none.
func timestamp(t, now time.Time) (int64, error) {
	if t.IsZero() {
		t = now
	}
	if s := t.Unix(); s < 0 || s > math.MaxInt64/1000-1 {
		return 0, fmt.Errorf("time %v lies outside of what can be stored, 1970 and later", t)
	}
	return t.UnixMilli(), nil
}

// TooLargeError is an append whose records do not fit into one batch of at most Options.MaxMessageBytes. It matches
// ErrMessageTooLarge. Append fewer records at a time, or raise the limit; readers that are Kafka consumers have limits
// too.
type TooLargeError struct {
	Records int   // of the append
	Bytes   int64 // size of the batch, or what it would have been at least
	Limit   int64 // MaxMessageBytes
}

// Error names the number of records, their bytes and the limit.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%v: %d records make a batch of at least %d bytes, the log takes %d (MaxMessageBytes)",
		ErrMessageTooLarge, e.Records, e.Bytes, e.Limit)
}

// Is reports whether target is ErrMessageTooLarge.
func (e *TooLargeError) Is(target error) bool { return target == ErrMessageTooLarge }
