package wal

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
)

// Codec turns values of one type into bytes and back. Its methods are called by several goroutines at once.
type Codec[T any] interface {
	// Encode returns the bytes of v, which may be v itself: they are only read, and only during the append.
	Encode(v T) ([]byte, error)

	// Decode returns the value of p, which belongs to the value: it may keep p.
	Decode(p []byte) (T, error)
}

// Bytes is the codec of byte slices as they are. Empty and nil are the same to it; null is said beside the value.
type Bytes struct{}

// Encode returns v.
func (Bytes) Encode(v []byte) ([]byte, error) { return notNil(v), nil }

// Decode returns p.
func (Bytes) Decode(p []byte) ([]byte, error) { return p, nil }

// String is the codec of strings. Kafka: StringSerializer.
type String struct{}

// Encode returns the bytes of v.
func (String) Encode(v string) ([]byte, error) { return notNil([]byte(v)), nil }

// Decode returns p as a string, of whatever bytes.
func (String) Decode(p []byte) (string, error) { return string(p), nil }

// JSON is the codec of encoding/json.
type JSON[T any] struct{}

// Encode returns v as JSON.
func (JSON[T]) Encode(v T) ([]byte, error) { return json.Marshal(v) }

// Decode reads JSON.
func (JSON[T]) Decode(p []byte) (v T, err error) {
	err = json.Unmarshal(p, &v)
	return v, err
}

// Int64 is the codec of integers as eight bytes, big-endian. Kafka: LongSerializer.
type Int64 struct{}

// Encode returns eight bytes.
func (Int64) Encode(v int64) ([]byte, error) {
	return binary.BigEndian.AppendUint64(nil, uint64(v)), nil
}

// Decode reads eight bytes, and takes no other number of them.
func (Int64) Decode(p []byte) (int64, error) {
	if len(p) != 8 {
		return 0, fmt.Errorf("%d bytes are no integer of 8", len(p))
	}
	return int64(binary.BigEndian.Uint64(p)), nil
}

// Int32 is the codec of integers as four bytes, big-endian. Kafka: IntegerSerializer.
type Int32 struct{}

// Encode returns four bytes.
func (Int32) Encode(v int32) ([]byte, error) {
	return binary.BigEndian.AppendUint32(nil, uint32(v)), nil
}

// Decode reads four bytes, and takes no other number of them.
func (Int32) Decode(p []byte) (int32, error) {
	if len(p) != 4 {
		return 0, fmt.Errorf("%d bytes are no integer of 4", len(p))
	}
	return int32(binary.BigEndian.Uint32(p)), nil
}

// notNil is p, or an empty slice: null is another thing.
func notNil(p []byte) []byte {
	if p == nil {
		return []byte{}
	}
	return p
}
