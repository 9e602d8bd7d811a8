package segment

import (
	"errors"
	"fmt"

	"github.com/oncelog/oncelog/record"
)

// Errors that callers test for with errors.Is.
var (
	// ErrSegmentFull means that a write would carry the log file past MaxBytes. Nothing was written; roll.
	ErrSegmentFull = errors.New("segment: full")

	// ErrOffsetOverflow means that an offset lies below the base offset or more than 2^31-1 above it, so that it has
	// no place in this segment. Nothing was written; roll, or split a segment that was found like this.
	ErrOffsetOverflow = errors.New("segment: offset out of the range of the segment")

	// ErrNotWritable means that the segment was opened read-only, or only for reading (Open), or is sealed.
	ErrNotWritable = errors.New("segment: not open for writing")

	// ErrClosed means that the segment was used after Close or Remove.
	ErrClosed = errors.New("segment: closed")

	// ErrCut means that the segment was truncated after the bytes to be read had been chosen: what lies there now may
	// be other bytes. Start the read again.
	ErrCut = errors.New("segment: truncated during the read")

	// ErrOrder is matched by *OrderError.
	ErrOrder = errors.New("segment: offsets out of order")

	// ErrSearchLimit means that FindBatch gave up: the bytes look like so many batches that checking them all would
	// take more than time linear in their number. Whether there is a batch is not known.
	ErrSearchLimit = errors.New("segment: too many places that look like a batch")

	// ErrIndex is matched by *IndexError.
	ErrIndex = errors.New("segment: index not written")
)

// CorruptError says where in a log file the bytes stop being what a writer produces. It matches what its cause
// matches: record.ErrTruncated for a batch that runs past the end, record.ErrUnsupportedVersion for an unknown magic,
// record.ErrCorrupt for everything else.
type CorruptError struct {
	Path       string
	Position   int64 // byte at which the bad batch begins
	LastOffset int64 // last offset of the good batch before it, -1 if this walk has seen none
	Err        error // what is wrong with it
}

// Error gives the path, the position, the last good offset and the cause.
func (e *CorruptError) Error() string {
	after := ""
	if e.LastOffset >= 0 {
		after = fmt.Sprintf(", after offset %d", e.LastOffset)
	}
	return fmt.Sprintf("segment: %s: bad batch at byte %d%s: %v", e.Path, e.Position, after, e.Err)
}

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error { return e.Err }

// OrderError says that a batch with a good checksum has offsets that cannot follow those before it. Kafka does not look
// for this; it comes only from a walk that was asked to. It matches ErrOrder and record.ErrCorrupt.
type OrderError struct {
	BaseOffset, LastOffset int64 // of the batch
	Want                   int64 // the smallest base offset that is in order here
}

// Error gives the offsets of the batch and the smallest base offset that would do.
func (e *OrderError) Error() string {
	return fmt.Sprintf("segment: offsets out of order: batch %d to %d, want a base offset of at least %d",
		e.BaseOffset, e.LastOffset, e.Want)
}

// Is matches ErrOrder and record.ErrCorrupt.
func (e *OrderError) Is(target error) bool { return target == ErrOrder || target == record.ErrCorrupt }

// MissingError says that a log without gaps lacks offsets: what begins where they should is a batch with later ones, or the
// end. It matches ErrOrder and record.ErrCorrupt.
type MissingError struct {
	First, Last int64
}

// Error gives the offsets.
func (e *MissingError) Error() string {
	return fmt.Sprintf("segment: offsets %d to %d are missing here", e.First, e.Last)
}

// Is matches ErrOrder and record.ErrCorrupt.
func (e *MissingError) Is(target error) bool {
	return target == ErrOrder || target == record.ErrCorrupt
}

// IndexError says that an entry could not be added to an index. The log and the bookkeeping of the segment are not
// concerned: look-ups near that entry walk further, and a rebuild brings it back. It matches ErrIndex and its cause.
type IndexError struct {
	Path     string
	Offset   int64 // last offset of the batch the entry is about
	Position int64 // its first byte
	Err      error
}

// Error gives the path of the log, the batch and the cause.
func (e *IndexError) Error() string {
	return fmt.Sprintf("segment: %s: no index entry for offset %d at byte %d: %v", e.Path, e.Offset, e.Position, e.Err)
}

// Unwrap returns the cause.
func (e *IndexError) Unwrap() error { return e.Err }

// Is matches ErrIndex.
func (e *IndexError) Is(target error) bool { return target == ErrIndex }

// readError marks an error of the file system, as opposed to one about the bytes that were read.
type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }
func (e *readError) Unwrap() error { return e.err }

func isReadError(err error) bool {
	var r *readError
	return errors.As(err, &r)
}
