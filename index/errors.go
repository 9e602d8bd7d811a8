package index

import (
	"errors"
	"fmt"
)

// Errors that callers test for with errors.Is.
var (
	// ErrFull means that the index has no room for another entry. The segment should be rolled.
	ErrFull = errors.New("index: full")

	// ErrInvalidOffset means that an appended offset does not follow the last one.
	ErrInvalidOffset = errors.New("index: offset does not follow the last entry")

	// ErrInvalidTimestamp means that an appended timestamp is below the last one.
	ErrInvalidTimestamp = errors.New("index: timestamp below the last entry")

	// ErrInvalidPosition means that an appended position is negative.
	ErrInvalidPosition = errors.New("index: negative position")

	// ErrOffsetOverflow means that an offset lies below the base offset or more than 2^31-1 above it, so that it
	// has no place in this segment. The segment should be rolled.
	ErrOffsetOverflow = errors.New("index: offset out of the range of the segment")

	// ErrInvalidTxn means that the numbers of an appended transaction cannot belong together.
	ErrInvalidTxn = errors.New("index: impossible transaction")

	// ErrInvalidEntries means that a number of entries was asked for that the file does not hold.
	ErrInvalidEntries = errors.New("index: no such entry")

	// ErrInvalidSize means that a maximum size has no room for a single entry.
	ErrInvalidSize = errors.New("index: maximum size below one entry")

	// ErrClosed means that the index was used after Close.
	ErrClosed = errors.New("index: closed")

	// ErrReadOnly means that the index was opened read-only.
	ErrReadOnly = errors.New("index: opened read-only")

	// ErrCorrupt is matched by every *CorruptError.
	ErrCorrupt = errors.New("index: corrupt")

	// ErrUnsupportedVersion is matched by every *VersionError.
	ErrUnsupportedVersion = errors.New("index: unsupported version")

	// ErrFault is matched by every *FaultError.
	ErrFault = errors.New("index: fault in mapped memory")
)

// CorruptError says what is wrong with an index. The log is not touched by it: the index can be rebuilt from it.
type CorruptError struct {
	Path   string
	Entry  int // number of the entry, from 0; -1 when the file as a whole is meant
	Reason string
}

// Error gives the path, the entry and the reason.
func (e *CorruptError) Error() string {
	if e.Entry < 0 {
		return fmt.Sprintf("index: %s: corrupt: %s; rebuild it from the log", e.Path, e.Reason)
	}
	return fmt.Sprintf("index: %s: entry %d: corrupt: %s; rebuild it from the log", e.Path, e.Entry, e.Reason)
}

// Is reports whether target is ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// VersionError says that an entry of a transaction index has a version other than 0. Kafka does not take such a file for a
// corrupt one; whoever knows that no newer program wrote it may.
type VersionError struct {
	Path    string
	Entry   int
	Version int16
}

// Error gives the path, the entry and its version.
func (e *VersionError) Error() string {
	return fmt.Sprintf("index: %s: entry %d: version %d, only 0 is supported; a newer program wrote this file, or it is damaged",
		e.Path, e.Entry, e.Version)
}

// Is reports whether target is ErrUnsupportedVersion.
func (e *VersionError) Is(target error) bool { return target == ErrUnsupportedVersion }

// FaultError says that the system could not provide a mapped page: the file was cut by somebody else while it was
// mapped, the device failed, or space that had been promised was not there. The process goes on; the index should be
// closed and opened again, and rebuilt if it is still too short.
type FaultError struct {
	Path  string
	Entry int // number of the entry that was touched, from 0
}

// Error gives the path and the entry.
func (e *FaultError) Error() string {
	return fmt.Sprintf("index: %s: entry %d: fault in mapped memory; the file was cut or its device failed",
		e.Path, e.Entry)
}

// Is reports whether target is ErrFault.
func (e *FaultError) Is(target error) bool { return target == ErrFault }
