package producerstate

import (
	"iter"

	"github.com/oncelog/oncelog/record"
)

// BatchesRetained is how many of a producer's newest batches are remembered, and so how many requests a producer may have
// in flight and still have each of them recognised when it is sent again (Kafka: ProducerStateEntry.NUM_BATCHES_TO_RETAIN).
const BatchesRetained = 5

// NoOffset stands for a missing offset: no open transaction, no batch remembered.
const NoOffset int64 = -1

// BatchMetadata is what is remembered of one stored batch.
type BatchMetadata struct {
	// LastOffset is the offset of the batch's last record.
	LastOffset int64
	// Timestamp is the batch's greatest timestamp in milliseconds, which a duplicate is answered with.
	Timestamp int64
	// LastSequence is the sequence number of the last record, or record.NoSequence for a batch that a coordinator
	// wrote without sequence numbers.
	LastSequence int32
	// OffsetDelta is LastOffset less the batch's base offset: the number of its records less one.
	OffsetDelta int32
}

// FirstSequence returns the sequence number of the first record; the numbers may wrap inside a batch.
func (m BatchMetadata) FirstSequence() int32 {
	return record.DecrementSequence(m.LastSequence, m.OffsetDelta)
}

// FirstOffset returns the offset of the first record.
func (m BatchMetadata) FirstOffset() int64 { return m.LastOffset - int64(m.OffsetDelta) }

// Entry is a copy of what is known of one producer. It holds no reference to the table.
type Entry struct {
	// ProducerID is 0 or above.
	ProducerID int64
	// LastTimestamp is the greatest timestamp of the newest data batch or the timestamp of the newest marker, whichever
	// was appended later, in milliseconds; record.NoTimestamp before any.
	LastTimestamp int64
	// AppendClock is the log's clock in milliseconds when the producer last appended, or record.NoTimestamp where it
	// is not known, as after loading what Kafka wrote.
	AppendClock int64
	// CurrentTxnFirstOffset is the first offset of the open transaction, or NoOffset.
	CurrentTxnFirstOffset int64
	// CoordinatorEpoch is the epoch of the transaction coordinator that wrote the newest marker, or -1.
	CoordinatorEpoch int32
	// ProducerEpoch is the newest epoch, or record.NoProducerEpoch.
	ProducerEpoch int16

	count   uint8
	batches [BatchesRetained]BatchMetadata // oldest first
}

// Batches yields the remembered batches, oldest first. All are of ProducerEpoch.
func (e *Entry) Batches() iter.Seq[BatchMetadata] {
	return func(yield func(BatchMetadata) bool) {
		for _, m := range e.batches[:e.count] {
			if !yield(m) {
				return
			}
		}
	}
}

// BatchCount returns how many batches are remembered, at most BatchesRetained.
func (e *Entry) BatchCount() int { return int(e.count) }

// LastBatch returns the newest remembered batch. A producer known by a marker only has none.
func (e *Entry) LastBatch() (BatchMetadata, bool) {
	if e.count == 0 {
		return BatchMetadata{}, false
	}
	return e.batches[e.count-1], true
}

// LastSequence returns the sequence number of the newest remembered batch, or record.NoSequence.
func (e *Entry) LastSequence() int32 {
	if m, ok := e.LastBatch(); ok {
		return m.LastSequence
	}
	return record.NoSequence
}

// FindDuplicate returns the remembered batch that b repeats: of the same epoch and with the same first and last sequence
// number. A batch that only overlaps is none (Kafka: ProducerStateEntry.findDuplicateBatch).
func (e *Entry) FindDuplicate(b record.Batch) (BatchMetadata, bool) {
	if b.ProducerEpoch() != e.ProducerEpoch {
		return BatchMetadata{}, false
	}
	first, last := b.BaseSequence(), b.LastSequence()
	for _, m := range e.batches[:e.count] {
		if m.LastSequence == last && m.FirstSequence() == first {
			return m, true
		}
	}
	return BatchMetadata{}, false
}

// AddBatch appends m as the newest batch, dropping the oldest of BatchesRetained. It is for programs that build an entry
// to be written with AppendSnapshot; entries of a Manager change by appends only.
func (e *Entry) AddBatch(m BatchMetadata) {
	if e.count == BatchesRetained {
		copy(e.batches[:], e.batches[1:])
		e.count--
	}
	e.batches[e.count] = m
	e.count++
}
