package producerstate

import (
	"errors"
	"fmt"

	"github.com/oncelog/oncelog/record"
)

// The conditions that callers tell apart with errors.Is. Each of those about appends is one protocol error code.
var (
	// ErrOutOfOrderSequence is matched by *SequenceError: code 45, OUT_OF_ORDER_SEQUENCE_NUMBER.
	ErrOutOfOrderSequence = errors.New("producerstate: out of order sequence number")

	// ErrUnknownProducerID is matched by *SequenceError where Config.UnknownProducers asks for it: code 59,
	// UNKNOWN_PRODUCER_ID.
	ErrUnknownProducerID = errors.New("producerstate: unknown producer id")

	// ErrInvalidProducerEpoch is matched by *EpochError: code 47, INVALID_PRODUCER_EPOCH.
	ErrInvalidProducerEpoch = errors.New("producerstate: invalid producer epoch")

	// ErrInvalidTxnState is matched by *TxnStateError: code 48, INVALID_TXN_STATE.
	ErrInvalidTxnState = errors.New("producerstate: invalid transaction state")

	// ErrCoordinatorFenced is matched by *CoordinatorError: code 52, TRANSACTION_COORDINATOR_FENCED.
	ErrCoordinatorFenced = errors.New("producerstate: transaction coordinator fenced")

	// ErrTransactionVersion says that a coordinator appended a marker without telling the version of the transaction,
	// or one that does not exist. Kafka has no code for it.
	ErrTransactionVersion = errors.New("producerstate: transaction version of a marker is none of 0, 1 and 2")

	// ErrUnknownTxn says that a transaction was completed that is not open. It is a fault of the program.
	ErrUnknownTxn = errors.New("producerstate: completed transaction is not open")

	// ErrSnapshotCorrupt is matched by every *SnapshotError but one about an unknown version.
	ErrSnapshotCorrupt = errors.New("producerstate: corrupt snapshot")

	// ErrUnsupportedVersion is matched by a *SnapshotError about a version this package does not know.
	ErrUnsupportedVersion = record.ErrUnsupportedVersion

	// ErrReadOnly says that the manager was opened to read only.
	ErrReadOnly = errors.New("producerstate: opened read-only")

	// ErrNamedConflict says that a producer id is already known under another name.
	ErrNamedConflict = errors.New("producerstate: two names with one producer id")
)

// SequenceReason says which rule a sequence broke.
type SequenceReason uint8

const (
	// NotNext is a sequence other than the one behind the producer's last. See SequenceError.Gap.
	NotNext SequenceReason = iota + 1
	// NewEpochNotZero is an epoch above the known one that does not start at 0.
	NewEpochNotZero
	// AboveVerified is a sequence above the lowest one that is under verification: an earlier batch is on its way.
	AboveVerified
	// UnknownNotZero is a producer of which no batch is known, and whose first sequence the rules want to be 0.
	UnknownNotZero
	// UnknownProducer is the same under UnknownRefused, which has an error code of its own for it.
	UnknownProducer
)

// String returns the reason in words.
func (r SequenceReason) String() string {
	switch r {
	case NotNext:
		return "not the next one"
	case NewEpochNotZero:
		return "a new epoch starts at 0"
	case AboveVerified:
		return "an earlier one is under verification"
	case UnknownNotZero, UnknownProducer:
		return "no batch of the producer is known"
	}
	return "unknown reason"
}

// SequenceError says that a batch does not continue what is stored of its producer. Nothing was changed. The package
// documentation tells how to read the numbers.
type SequenceError struct {
	// ProducerID is the producer of the batch.
	ProducerID int64
	// ProducerEpoch is the epoch of the batch.
	ProducerEpoch int16
	// CurrentEpoch is the epoch known of the producer, or record.NoProducerEpoch.
	CurrentEpoch int16
	// Sequence is the batch's first sequence number.
	Sequence int32
	// Expected is the only first sequence number that would have been accepted.
	Expected int32
	// Offset is the offset of the last record known of the producer, or NoOffset.
	Offset int64
	// Known tells whether a batch of the producer is remembered in its current epoch. If not, Expected comes from the
	// rules, not from data.
	Known bool
	// Gap is how many records lie between Expected and Sequence, modulo the wrap, so at least 1, or -1 if the batch
	// lies at or behind what is stored: a retry older than the batches remembered, or an overlap.
	Gap int64
	// Reason names the rule.
	Reason SequenceReason
	// AtOffset is the offset that the batch would have got.
	AtOffset int64
}

// Error names the producer, the sequences and what they mean.
func (e *SequenceError) Error() string {
	what := "out of order sequence number"
	if e.Reason == UnknownProducer {
		what = "unknown producer id"
	}
	s := fmt.Sprintf("producerstate: %s: producer %d epoch %d: sequence %d, want %d (%s)",
		what, e.ProducerID, e.ProducerEpoch, e.Sequence, e.Expected, e.Reason)
	switch {
	case e.Gap > 0:
		s += fmt.Sprintf("; %d records are missing before it", e.Gap)
	default:
		s += "; it is at or behind what is stored"
	}
	if e.Known {
		return s + fmt.Sprintf("; last record stored at offset %d in epoch %d", e.Offset, e.CurrentEpoch)
	}
	return s + "; no batch of this epoch is remembered"
}

// Is matches ErrOutOfOrderSequence, or ErrUnknownProducerID under UnknownRefused.
func (e *SequenceError) Is(target error) bool {
	if e.Reason == UnknownProducer {
		return target == ErrUnknownProducerID
	}
	return target == ErrOutOfOrderSequence
}

// EpochError says that a batch or marker comes from an epoch that has been superseded: its writer is a zombie.
type EpochError struct {
	// ProducerID is the producer of the batch.
	ProducerID int64
	// Epoch is the epoch of the batch.
	Epoch int16
	// CurrentEpoch is the epoch known of the producer.
	CurrentEpoch int16
	// Offset is the offset that the batch would have got, or NoOffset when a verification was asked for.
	Offset int64
	// Marker tells that the batch is an end-transaction marker. With transaction version 2 its epoch must be above the
	// current one while a transaction is open.
	Marker bool
}

// Error names the producer and both epochs.
func (e *EpochError) Error() string {
	what := "batch"
	if e.Marker {
		what = "marker"
	}
	return fmt.Sprintf("producerstate: invalid producer epoch: producer %d: %s of epoch %d, current epoch is %d",
		e.ProducerID, what, e.Epoch, e.CurrentEpoch)
}

// Is matches ErrInvalidProducerEpoch.
func (e *EpochError) Is(target error) bool { return target == ErrInvalidProducerEpoch }

// TxnStateError says that a batch does not fit the producer's transaction.
type TxnStateError struct {
	// ProducerID is the producer of the batch.
	ProducerID int64
	// ProducerEpoch is the epoch of the batch.
	ProducerEpoch int16
	// FirstOffset is where the open transaction begins, or NoOffset if none is open.
	FirstOffset int64
	// Offset is the offset that the batch would have got.
	Offset int64
}

// Error names the producer and what contradicts its transaction.
func (e *TxnStateError) Error() string {
	if e.FirstOffset >= 0 {
		return fmt.Sprintf("producerstate: invalid transaction state: producer %d epoch %d: batch outside of a transaction while one is open since offset %d",
			e.ProducerID, e.ProducerEpoch, e.FirstOffset)
	}
	return fmt.Sprintf("producerstate: invalid transaction state: producer %d epoch %d: transactional batch, but no transaction is open and its start was not verified",
		e.ProducerID, e.ProducerEpoch)
}

// Is matches ErrInvalidTxnState.
func (e *TxnStateError) Is(target error) bool { return target == ErrInvalidTxnState }

// CoordinatorError says that a marker comes from a transaction coordinator that has been superseded.
type CoordinatorError struct {
	// ProducerID is the producer that the marker is for.
	ProducerID int64
	// Epoch is the coordinator epoch in the marker.
	Epoch int32
	// CurrentEpoch is the greatest coordinator epoch seen.
	CurrentEpoch int32
	// Offset is the offset that the marker would have got.
	Offset int64
}

// Error names the producer and both coordinator epochs.
func (e *CoordinatorError) Error() string {
	return fmt.Sprintf("producerstate: transaction coordinator fenced: producer %d: marker of coordinator epoch %d, current one is %d",
		e.ProducerID, e.Epoch, e.CurrentEpoch)
}

// Is matches ErrCoordinatorFenced.
func (e *CoordinatorError) Is(target error) bool { return target == ErrCoordinatorFenced }
