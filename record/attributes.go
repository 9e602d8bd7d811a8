package record

import "strconv"

// Attributes are the flags of a batch, 16 bits of which the format defines the lowest seven. Undefined bits are kept by
// everything that copies a batch, dropped by what writes attributes, and ignored by everything that reads one.
type Attributes int16

const (
	attrCompression   Attributes = 0x07
	attrLogAppendTime Attributes = 0x08
	attrTransactional Attributes = 0x10
	attrControl       Attributes = 0x20
	attrDeleteHorizon Attributes = 0x40

	attrDefined Attributes = 0x7f
)

// Compression returns the codec of the records. The values 5 to 7 are not assigned; reading such a batch is
// ErrUnsupportedCompression.
func (a Attributes) Compression() Compression { return Compression(a & attrCompression) }

// TimestampType returns CreateTime or LogAppendTime.
func (a Attributes) TimestampType() TimestampType {
	if a&attrLogAppendTime != 0 {
		return LogAppendTime
	}
	return CreateTime
}

// IsTransactional tells whether the batch belongs to a transaction; the marker that ends one belongs to it as well.
func (a Attributes) IsTransactional() bool { return a&attrTransactional != 0 }

// IsControl tells whether the batch holds a control record, which readers never see although its offset is consumed.
func (a Attributes) IsControl() bool { return a&attrControl != 0 }

// HasDeleteHorizon tells whether the base timestamp of the batch is a delete horizon.
func (a Attributes) HasDeleteHorizon() bool { return a&attrDeleteHorizon != 0 }

func (a Attributes) withTimestampType(t TimestampType) Attributes {
	a &= attrDefined
	if t == LogAppendTime {
		return a | attrLogAppendTime
	}
	return a &^ attrLogAppendTime
}

// Compression is the codec that a batch's records are stored with, as numbered by the format.
type Compression int8

// The codecs of the format.
const (
	None   Compression = 0
	Gzip   Compression = 1
	Snappy Compression = 2
	LZ4    Compression = 3
	Zstd   Compression = 4
)

// String returns the name that Kafka's configurations use, or the number of an unassigned codec in parentheses.
func (c Compression) String() string {
	switch c {
	case None:
		return "none"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case LZ4:
		return "lz4"
	case Zstd:
		return "zstd"
	}
	return "unknown(" + strconv.Itoa(int(c)) + ")"
}

// TimestampType says where the times of a batch come from.
type TimestampType int8

const (
	// NoTimestampType belongs to entries with magic 0, which have no times. It is not stored anywhere.
	NoTimestampType TimestampType = -1
	// CreateTime marks times that the producer gave, one for each record.
	CreateTime TimestampType = 0
	// LogAppendTime marks a batch whose records all have the time at which the leader appended them, its maximum
	// timestamp. The deltas still hold the producer's times.
	LogAppendTime TimestampType = 1
)

// String returns the name that Kafka's configurations use.
func (t TimestampType) String() string {
	switch t {
	case NoTimestampType:
		return "NoTimestampType"
	case CreateTime:
		return "CreateTime"
	case LogAppendTime:
		return "LogAppendTime"
	}
	return "unknown(" + strconv.Itoa(int(t)) + ")"
}
