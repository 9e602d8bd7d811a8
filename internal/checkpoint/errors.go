package checkpoint

import (
	"errors"
	"fmt"
)

var (
	// ErrCorrupt is matched by every *CorruptError.
	ErrCorrupt = errors.New("checkpoint: corrupt file")

	// ErrUnsupportedVersion means that a file carries a version that this package does not know. It says nothing bad
	// about the file: a newer program may have written it. It must not be overwritten.
	ErrUnsupportedVersion = errors.New("checkpoint: unsupported version")
)

// CorruptError says where a checkpoint file breaks the grammar.
type CorruptError struct {
	Path   string // the file as it was opened
	Line   int    // counted from 1
	Reason string // what is wrong there, in words
}

// Error names the file, the line and the reason.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("checkpoint: corrupt file: %s: line %d: %s", e.Path, e.Line, e.Reason)
}

// Is reports whether target is ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }
