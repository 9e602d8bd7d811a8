package wal

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/oncelog/oncelog/record"
)

// Typed is a view of a log whose keys and values have types. It holds nothing: any number of views, of any types, may be of
// one log, beside its own methods. All methods may be called by any number of goroutines at once.
type Typed[K, V any] struct {
	log    *Log
	keys   Codec[K]
	values Codec[V]
}

// NewTyped returns a view of a log.
func NewTyped[K, V any](l *Log, keys Codec[K], values Codec[V]) *Typed[K, V] {
	return &Typed[K, V]{log: l, keys: keys, values: values}
}

// TypedRecord is a record with a typed key and value. NoKey and NoValue say that they are null, which is another thing than
// the zero value of the type: in a compacted log a record without a value deletes its key.
type TypedRecord[K, V any] struct {
	Key            K
	Value          V
	NoKey, NoValue bool
	Headers        []record.Header
	Time           time.Time
}

// TypedStored is a record of the log with its offset.
type TypedStored[K, V any] struct {
	Offset int64
	TypedRecord[K, V]
}

// DecodeError says that a stored key or value is none of its type. The record is whole, and the log is in order: other
// records can be read, and this one with Log.Get.
type DecodeError struct {
	Offset int64
	Part   string // "key" or "value"
	Err    error  // of the codec
}

// Error names offset and part.
func (e *DecodeError) Error() string {
	return fmt.Sprintf("wal: offset %d: the %s cannot be decoded: %v", e.Offset, e.Part, e.Err)
}

// Unwrap returns the error of the codec.
func (e *DecodeError) Unwrap() error { return e.Err }

// Log returns the log.
func (t *Typed[K, V]) Log() *Log { return t.log }

// Append is Log.Append. An error of a codec names the record by its number in the call, and nothing was stored.
func (t *Typed[K, V]) Append(recs ...TypedRecord[K, V]) (Result, error) {
	list, err := t.Encode(recs...)
	if err != nil {
		return Result{}, err
	}
	return t.log.Append(list...)
}

// Encode turns records into those that Log.AppendAsync, a Producer and a transaction take.
func (t *Typed[K, V]) Encode(recs ...TypedRecord[K, V]) ([]Record, error) {
	list := make([]Record, len(recs))
	for i, r := range recs {
		list[i] = Record{Headers: r.Headers, Time: r.Time}
		var err error
		if !r.NoKey {
			if list[i].Key, err = t.keys.Encode(r.Key); err != nil {
				return nil, fmt.Errorf("%w: record %d: the key cannot be encoded: %w", ErrInvalidArgument, i, err)
			}
			list[i].Key = notNil(list[i].Key)
		}
		if !r.NoValue {
			if list[i].Value, err = t.values.Encode(r.Value); err != nil {
				return nil, fmt.Errorf("%w: record %d: the value cannot be encoded: %w", ErrInvalidArgument, i, err)
			}
			list[i].Value = notNil(list[i].Value)
		}
	}
	return list, nil
}

// Decode gives a record of the log its types, also one that a Cursor yielded. An error is a *DecodeError; what could be
// decoded is there.
func (t *Typed[K, V]) Decode(s Stored) (r TypedStored[K, V], err error) {
	r.Offset, r.Headers, r.Time = s.Offset, s.Headers, s.Time
	r.NoKey, r.NoValue = s.Key == nil, s.Value == nil
	var errs []error
	if !r.NoKey {
		if r.Key, err = t.keys.Decode(s.Key); err != nil {
			errs = append(errs, &DecodeError{Offset: s.Offset, Part: "key", Err: err})
		}
	}
	if !r.NoValue {
		if r.Value, err = t.values.Decode(s.Value); err != nil {
			errs = append(errs, &DecodeError{Offset: s.Offset, Part: "value", Err: err})
		}
	}
	if len(errs) == 1 {
		return r, errs[0]
	}
	return r, errors.Join(errs...)
}

// Records is Log.Records. A record that cannot be decoded comes with a *DecodeError, and the loop may go on behind it; every
// other error is the last element.
func (t *Typed[K, V]) Records(from int64) iter.Seq2[TypedStored[K, V], error] {
	return t.decoded(t.log.Records(from))
}

// Tail is Log.Tail, with errors as in Records.
func (t *Typed[K, V]) Tail(ctx context.Context, from int64) iter.Seq2[TypedStored[K, V], error] {
	return t.decoded(t.log.Tail(ctx, from))
}

func (t *Typed[K, V]) decoded(seq iter.Seq2[Stored, error]) iter.Seq2[TypedStored[K, V], error] {
	return func(yield func(TypedStored[K, V], error) bool) {
		for s, err := range seq {
			var r TypedStored[K, V]
			if err == nil {
				r, err = t.Decode(s)
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// Get is Log.Get; the error may also be a *DecodeError.
func (t *Typed[K, V]) Get(offset int64) (TypedStored[K, V], error) {
	s, err := t.log.Get(offset)
	if err != nil {
		return TypedStored[K, V]{}, err
	}
	return t.Decode(s)
}
