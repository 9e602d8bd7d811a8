package record

import "math"

// IncrementSequence returns the sequence number n records after seq. Sequence numbers live in [0, 2^31-1]; the successor
// of the last one is 0. seq must be in that range and n must not be negative (Kafka: DefaultRecordBatch.incrementSequence).
// The result is in the range whatever the arguments are, and never NoSequence.
func IncrementSequence(seq, n int32) int32 {
	// There are 2^31 numbers, so the sum modulo 2^31 is its low 31 bits.
	return int32((int64(seq) + int64(n)) & math.MaxInt32)
}

// DecrementSequence returns the sequence number n records before seq; it undoes IncrementSequence (Kafka:
// DefaultRecordBatch.decrementSequence).
func DecrementSequence(seq, n int32) int32 {
	return int32((int64(seq) - int64(n)) & math.MaxInt32)
}
