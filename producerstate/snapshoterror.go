package producerstate

import "fmt"

// SnapshotFault says what kind of thing is wrong with a snapshot or a side file.
type SnapshotFault uint8

const (
	// TooShort is a file that ends inside its header.
	TooShort SnapshotFault = iota + 1
	// BadVersion is a version that this package does not know; the file may be fine.
	BadVersion
	// BadChecksum is a file whose bytes are not those that were written.
	BadChecksum
	// BadCount is a number of entries that the file's size contradicts.
	BadCount
	// TrailingBytes is a file with more bytes than its entries take, under a right checksum.
	TrailingBytes
	// StaleTail is a whole snapshot followed by the end of a longer one that was there before: Kafka overwrites a
	// snapshot in place and does not cut it.
	StaleTail
	// Inconsistent is a file that was written as it is and cannot be true, for instance offsets at or above its own.
	Inconsistent
	// NotAPair is a side file that does not belong to the snapshot beside it.
	NotAPair
	// NoSideFile is a snapshot without a side file.
	NoSideFile
	// NotAccepted is a pair that Config.Accept turned down.
	NotAccepted
)

// String returns the kind in words.
func (k SnapshotFault) String() string {
	switch k {
	case TooShort:
		return "too short"
	case BadVersion:
		return "unsupported version"
	case BadChecksum:
		return "checksum mismatch"
	case BadCount:
		return "wrong count"
	case TrailingBytes:
		return "trailing bytes"
	case StaleTail:
		return "stale tail"
	case Inconsistent:
		return "inconsistent"
	case NotAPair:
		return "side file of another snapshot"
	case NoSideFile:
		return "no side file"
	case NotAccepted:
		return "contradicts the log"
	}
	return "unknown fault"
}

// SnapshotError says that a snapshot or a side file cannot be used. The state is then rebuilt from an older one and the
// log. It matches ErrSnapshotCorrupt, or for BadVersion ErrUnsupportedVersion, or neither for NoSideFile and NotAccepted,
// which say nothing against the file.
type SnapshotError struct {
	// Path is the file.
	Path string
	// Offset is the offset in its name.
	Offset int64
	// Kind is what is wrong.
	Kind SnapshotFault
	// Pos is the byte in the file at which it shows.
	Pos int64
	// Reason says it in words, with the values.
	Reason string
}

// Error names the file, the place in it and what is wrong there.
func (e *SnapshotError) Error() string {
	return fmt.Sprintf("producerstate: %s: byte %d: %s: %s", e.Path, e.Pos, e.Kind, e.Reason)
}

// Is matches ErrSnapshotCorrupt or ErrUnsupportedVersion.
func (e *SnapshotError) Is(target error) bool {
	switch e.Kind {
	case BadVersion:
		return target == ErrUnsupportedVersion
	case NoSideFile, NotAccepted:
		return false
	}
	return target == ErrSnapshotCorrupt
}

// isDamage tells whether a file is useless for good.
func (e *SnapshotError) isDamage() bool { return e.Is(ErrSnapshotCorrupt) }
