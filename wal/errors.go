package wal

import (
	"errors"
	"fmt"
	"strings"

	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/recovery"
)

// Errors that callers test for with errors.Is. Those of other packages are named here so that one import will do.
var (
	// ErrCorrupt is matched by every report of damaged bytes, in an append as well as in the log.
	ErrCorrupt = record.ErrCorrupt

	// ErrUnsupportedVersion means bytes of a version that this program does not know, or does not write. They are not
	// damaged, and nothing was changed.
	ErrUnsupportedVersion = record.ErrUnsupportedVersion

	// ErrUnsupportedCompression means a codec number without a codec.
	ErrUnsupportedCompression = record.ErrUnsupportedCompression

	// ErrInvalidRecord means a batch that a log of this kind does not take; see also RecordsError.
	ErrInvalidRecord = errors.New("wal: invalid record")

	// ErrInvalidTimestamp means a record timestamp outside TimestampBeforeMax and TimestampAfterMax, or of a kind that
	// only the log may set.
	ErrInvalidTimestamp = errors.New("wal: invalid timestamp")

	// ErrMessageTooLarge means a batch above MaxMessageBytes.
	ErrMessageTooLarge = errors.New("wal: message too large")

	// ErrBatchTooLarge means an append above SegmentBytes: no segment could hold it.
	ErrBatchTooLarge = errors.New("wal: append larger than a segment")

	// ErrOutOfOrderSequence means a gap or an overlap in a producer's sequence; see producerstate.SequenceError.
	ErrOutOfOrderSequence = producerstate.ErrOutOfOrderSequence

	// ErrUnknownProducerID means a producer that the log does not know and that does not begin at 0, where
	// Options.UnknownProducers refuses it.
	ErrUnknownProducerID = producerstate.ErrUnknownProducerID

	// ErrTransactionVersion means a marker whose transaction version is none of 0, 1 and 2.
	ErrTransactionVersion = producerstate.ErrTransactionVersion

	// ErrInvalidProducerEpoch means that a newer incarnation of the producer has written: the caller is a zombie.
	ErrInvalidProducerEpoch = producerstate.ErrInvalidProducerEpoch

	// ErrInvalidTxnState means a batch that contradicts the state of its producer's transaction.
	ErrInvalidTxnState = producerstate.ErrInvalidTxnState

	// ErrCoordinatorFenced means a marker of a transaction coordinator that another one has replaced.
	ErrCoordinatorFenced = producerstate.ErrCoordinatorFenced

	// ErrOffsetOutOfRange is matched by OffsetError.
	ErrOffsetOutOfRange = errors.New("wal: offset out of range")

	// ErrUnexpectedOffset is matched by UnexpectedOffsetError.
	ErrUnexpectedOffset = errors.New("wal: follower append does not continue the log")

	// ErrOffsetsOutOfOrder means a follower append whose batches do not ascend.
	ErrOffsetsOutOfOrder = errors.New("wal: offsets out of order")

	// ErrInvalidArgument means a call that can never be right, such as a negative offset.
	ErrInvalidArgument = errors.New("wal: invalid argument")

	// ErrInvalidOptions is matched by each complaint of Options.Validate.
	ErrInvalidOptions = errors.New("wal: invalid options")

	// ErrFailed means that an earlier write or sync of the log's own data failed. Nothing can be appended any more:
	// close the log and open it again, and recovery finds out what is on disk. It wraps the first error.
	ErrFailed = errors.New("wal: log failed")

	// ErrClosed means a call after Close.
	ErrClosed = errors.New("wal: log is closed")

	// ErrReadOnly means a change of a log that was opened read-only.
	ErrReadOnly = errors.New("wal: log is open read-only")

	// ErrLocked means that another writer has the directory open: this library, or a Kafka broker.
	ErrLocked = errors.New("wal: directory is in use")

	// ErrNotLog means a directory that holds no log, and other files.
	ErrNotLog = errors.New("wal: not a log directory")

	// ErrUnfinishedBackup means a directory into which a backup was interrupted. Do it again; until then it is no log.
	ErrUnfinishedBackup = recovery.ErrUnfinishedBackup

	// ErrNotBackup means that a backup would overwrite what is no backup of the same log.
	ErrNotBackup = errors.New("wal: not a backup of this log")

	// ErrRefused is matched by *recovery.RefusedError: Open will not guess about damaged bytes.
	ErrRefused = recovery.ErrRefused
)

// OffsetError is a read outside the log. It matches ErrOffsetOutOfRange.
type OffsetError struct {
	Offset, LogStart, LogEnd int64
}

// Error names the offset and where the log begins and ends.
func (e *OffsetError) Error() string {
	return fmt.Sprintf("wal: offset %d is out of range: the log starts at %d and ends at %d", e.Offset, e.LogStart, e.LogEnd)
}

// Is reports whether target is ErrOffsetOutOfRange.
func (e *OffsetError) Is(target error) bool { return target == ErrOffsetOutOfRange }

// UnexpectedOffsetError is a follower append that begins below the log end. It matches ErrUnexpectedOffset. First and
// Last are the offsets of the append. Where the log is empty and First lies above its start's batch, truncating the log
// fully to First is the way on (Kafka: UnexpectedAppendOffsetException).
type UnexpectedOffsetError struct {
	First, Last, LogEnd int64
}

// Error names the offsets.
func (e *UnexpectedOffsetError) Error() string {
	return fmt.Sprintf("wal: follower append of offsets %d to %d, but the log already ends at %d", e.First, e.Last, e.LogEnd)
}

// Is reports whether target is ErrUnexpectedOffset.
func (e *UnexpectedOffsetError) Is(target error) bool { return target == ErrUnexpectedOffset }

// RecordError is what is wrong with one record of an append.
type RecordError struct {
	Index  int // of the record in its batch, from 0
	Reason string
}

// RecordsError lists the records for which an append was refused, all of them. It matches Err, which is
// ErrInvalidTimestamp if one of them is about a timestamp, else ErrInvalidRecord.
type RecordsError struct {
	Records []RecordError
	Err     error
}

// Error names up to three of the records.
func (e *RecordsError) Error() string {
	const most = 3
	var s strings.Builder
	s.WriteString(e.Err.Error())
	for i, r := range e.Records {
		if i == most {
			fmt.Fprintf(&s, "; and %d more", len(e.Records)-most)
			break
		}
		fmt.Fprintf(&s, "; record %d: %s", r.Index, r.Reason)
	}
	return s.String()
}

// Unwrap returns the kind of the error.
func (e *RecordsError) Unwrap() error { return e.Err }

// protocolErrors maps errors to the codes of Kafka's protocol, first match first.
var protocolErrors = []struct {
	err  error
	code int16
	name string
}{
	{ErrClosed, 56, "KAFKA_STORAGE_ERROR"},
	{ErrFailed, 56, "KAFKA_STORAGE_ERROR"},
	{ErrOffsetOutOfRange, 1, "OFFSET_OUT_OF_RANGE"},
	{ErrMessageTooLarge, 10, "MESSAGE_TOO_LARGE"},
	{ErrBatchTooLarge, 18, "RECORD_LIST_TOO_LARGE"},
	{ErrOffsetNotAvailable, 78, "OFFSET_NOT_AVAILABLE"},
	{ErrInvalidTimestamp, 32, "INVALID_TIMESTAMP"},
	{ErrOutOfOrderSequence, 45, "OUT_OF_ORDER_SEQUENCE_NUMBER"},
	{ErrInvalidProducerEpoch, 47, "INVALID_PRODUCER_EPOCH"},
	{ErrInvalidTxnState, 48, "INVALID_TXN_STATE"},
	{ErrCoordinatorFenced, 52, "TRANSACTION_COORDINATOR_FENCED"},
	{ErrUnsupportedCompression, 76, "UNSUPPORTED_COMPRESSION_TYPE"},
	{ErrUnknownProducerID, 59, "UNKNOWN_PRODUCER_ID"},
	{ErrInvalidRecord, 87, "INVALID_RECORD"},
	{record.ErrInvalidRecord, 87, "INVALID_RECORD"},
	{record.ErrMagic, 2, "CORRUPT_MESSAGE"},
	{ErrUnsupportedVersion, 43, "UNSUPPORTED_FOR_MESSAGE_FORMAT"},
	{ErrCorrupt, 2, "CORRUPT_MESSAGE"},
	{record.ErrTruncated, 2, "CORRUPT_MESSAGE"},
}

// ErrorCode returns the code and the name that a Kafka broker would answer with: 0 and NONE for nil, −1 and
// UNKNOWN_SERVER_ERROR for an error that the protocol has no code for. An append that was a duplicate has no error.
func ErrorCode(err error) (code int16, name string) {
	if err == nil {
		return 0, "NONE"
	}
	for _, e := range protocolErrors {
		if errors.Is(err, e.err) {
			return e.code, e.name
		}
	}
	return -1, "UNKNOWN_SERVER_ERROR"
}
