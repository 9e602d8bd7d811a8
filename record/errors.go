package record

import (
	"errors"
	"fmt"
)

// The conditions that callers tell apart with errors.Is.
var (
	// ErrCorrupt is matched by every error that says bytes are not what a writer of the format produces: *CorruptError
	// and *RecordError. Neither a batch that is cut off nor one of an unknown version is corrupt.
	ErrCorrupt = errors.New("record: corrupt batch")

	// ErrTruncated is matched by *TruncatedError: the bytes end inside a batch. At the end of a buffer or of a file that
	// is being written this is what an incomplete last batch looks like.
	ErrTruncated = errors.New("record: batch runs past the end of its buffer")

	// ErrChecksum is the cause inside the *CorruptError of a batch whose stored CRC is not that of its bytes.
	ErrChecksum = errors.New("record: checksum mismatch")

	// ErrUnsupportedVersion is matched by every error about something newer than this package, as far as it can tell.
	ErrUnsupportedVersion = errors.New("record: unsupported version")

	// ErrMagic is matched by *MagicError: the magic byte is none of 0, 1 and 2. Such an error matches
	// ErrUnsupportedVersion as well.
	ErrMagic = errors.New("record: unsupported magic")

	// ErrUnsupportedCompression says that the codec number of a batch is not assigned, or not in its format version.
	ErrUnsupportedCompression = errors.New("record: unsupported compression")

	// ErrInvalidRecord is matched by *RecordError, and by errors about a record that a batch cannot hold. A broker
	// answers it with INVALID_RECORD, other corruption with CORRUPT_MESSAGE: test for it before ErrCorrupt.
	ErrInvalidRecord = errors.New("record: invalid record")

	// ErrInvalidTimestamp says that a record's time is negative and not NoTimestamp.
	ErrInvalidTimestamp = errors.New("record: invalid timestamp")

	// ErrBatchTooLarge says that a record does not fit: a batch is at most 2^31-1 bytes long and holds at most 2^31-1
	// records. The builder is unchanged; the record belongs into the next batch.
	ErrBatchTooLarge = errors.New("record: batch too large")

	// ErrInvalidOptions is matched by every error of BuilderOptions.Validate.
	ErrInvalidOptions = errors.New("record: invalid builder options")

	// ErrBuilderState says that a Builder was used out of order: no record was appended, or its batch was already
	// taken and Reset not called since.
	ErrBuilderState = errors.New("record: builder used out of order")

	// ErrNoMarker says that a batch holds no end-transaction marker: it is no control batch, or compaction emptied it,
	// or its control record is of another type. It does not mean that the batch is damaged.
	ErrNoMarker = errors.New("record: no end-transaction marker")
)

// CorruptError says which field of a batch header cannot be right. It matches ErrCorrupt and its cause.
type CorruptError struct {
	// Field names the field as the format table of the package does.
	Field string
	// Pos is where the field starts, in bytes from the start of the batch.
	Pos int
	// Got is the stored value.
	Got int64
	// Want is the value it should have, or where Rule is set the bound that it breaks.
	Want int64
	// Rule relates Got to Want where equality was not asked for, for instance "at least".
	Rule string
	// Err is the cause, ErrChecksum or nil.
	Err error
}

// Error names the field, its place, and the value found and wanted.
func (e *CorruptError) Error() string {
	if errors.Is(e.Err, ErrChecksum) {
		return fmt.Sprintf("record: corrupt batch: %s at byte %d: 0x%08x, want 0x%08x as computed", e.Field, e.Pos, e.Got, e.Want)
	}
	rule := e.Rule
	if rule != "" {
		rule += " "
	}
	return fmt.Sprintf("record: corrupt batch: %s at byte %d: %d, want %s%d", e.Field, e.Pos, e.Got, rule, e.Want)
}

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error { return e.Err }

// Is matches ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// TruncatedError says that the bytes end before the batch does. It matches ErrTruncated and not ErrCorrupt.
type TruncatedError struct {
	// Have is how many bytes there are, from the start of the batch.
	Have int64
	// Need is how many the batch claims, or HeaderUpToMagic where the header itself is cut off. It comes from a length
	// field that no checksum covers.
	Need int64
}

// Error names how many bytes are needed and how many are there.
func (e *TruncatedError) Error() string {
	return fmt.Sprintf("record: batch runs past the end of its buffer: needs %d bytes, has %d", e.Need, e.Have)
}

// Is matches ErrTruncated.
func (e *TruncatedError) Is(target error) bool { return target == ErrTruncated }

// MagicError says that an entry is of no format this package knows. It matches ErrMagic and ErrUnsupportedVersion, and not
// ErrCorrupt: whether the byte is damaged or from the future cannot be told.
type MagicError struct {
	// Magic is the byte found at position 16 of the entry.
	Magic int8
}

// Error names the magic that was found.
func (e *MagicError) Error() string {
	return fmt.Sprintf("record: unsupported magic at byte %d: %d, want 0, 1 or 2", posMagic, e.Magic)
}

// Is matches ErrMagic and ErrUnsupportedVersion.
func (e *MagicError) Is(target error) bool {
	return target == ErrMagic || target == ErrUnsupportedVersion
}

// RecordError says which record of a batch cannot be read and why. It matches ErrInvalidRecord, ErrCorrupt and its cause.
type RecordError struct {
	// Index counts the records of the batch from 0. It equals the number of records when the error is about what
	// follows the last one, and is -1 when it is about the records as a whole.
	Index int
	// Field names the part of the record, as the format table of the package does.
	Field string
	// Reason says what is wrong with it.
	Reason string
	// Pos is where the field starts, in bytes from the first byte of the records: in the stored batch where they are
	// uncompressed (add Overhead for the position in the batch), else in the decompressed stream.
	Pos int64
	// Got is the value that was found, and Want the bound that it breaks or the value it should have.
	Got, Want int64
	// Err is the cause, such as a decompressor's error, or nil.
	Err error
}

// Error names the record, the field, its place and what is wrong with it.
func (e *RecordError) Error() string {
	which := "records"
	if e.Index >= 0 {
		which = fmt.Sprintf("record %d", e.Index)
	}
	s := fmt.Sprintf("record: invalid %s: %s at byte %d of the records: %s", which, e.Field, e.Pos, e.Reason)
	if e.Err != nil {
		return s + ": " + e.Err.Error()
	}
	return fmt.Sprintf("%s: %d, limit %d", s, e.Got, e.Want)
}

// Unwrap returns the cause.
func (e *RecordError) Unwrap() error { return e.Err }

// Is matches ErrInvalidRecord and ErrCorrupt.
func (e *RecordError) Is(target error) bool {
	return target == ErrInvalidRecord || target == ErrCorrupt
}

func isUnsupported(err error) bool { return errors.Is(err, ErrUnsupportedCompression) }
