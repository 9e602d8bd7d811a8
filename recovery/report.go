package recovery

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// ErrRefused is matched by RefusedError.
var ErrRefused = errors.New("recovery: refused")

// ErrUnsupportedVersion means a file of a version that this program does not know. It is not damaged and was not changed.
var ErrUnsupportedVersion = record.ErrUnsupportedVersion

// ErrUnfinishedBackup means a directory into which a backup was interrupted.
var ErrUnfinishedBackup = errors.New("recovery: unfinished backup")

// ErrNotLog means a directory without a log.
var ErrNotLog = errors.New("recovery: no log in the directory")

// Decision is what recovery does, or would do, about a file.
type Decision uint8

// The decisions.
const (
	Keep         Decision = iota // nothing
	TrimZeros                    // reserved space at the end of a log file is given back
	CutTail                      // bytes at the end of a log file are kept aside and cut off
	CutSegment                   // a whole later segment is kept aside and removed
	Rebuild                      // an index, or the leader epochs, are made anew from the log
	CompleteSwap                 // the renames of an interrupted replacement are finished
	RemoveStale                  // a left-over file is removed
	FallBack                     // a producer snapshot cannot be used: an older one is, and more of the log replayed
	Clamp                        // an offset outside the log is moved to its border
	Note                         // nothing can be done, or has to be, but somebody should know
	Refuse                       // a person has to decide
)

var decisionNames = [...]string{"keep", "trim zeros", "cut tail", "cut segment", "rebuild", "complete swap", "remove stale",
	"fall back", "clamp", "note", "refuse"}

// String returns the decision in words.
func (d Decision) String() string {
	if int(d) < len(decisionNames) {
		return decisionNames[d]
	}
	return fmt.Sprintf("Decision(%d)", uint8(d))
}

// MarshalText makes reports readable as JSON.
func (d Decision) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Finding is one thing that recovery saw and what follows from it.
type Finding struct {
	Path     string   // file, or the directory
	Decision Decision // what is done about it
	Position int64    // byte in the file where it begins, −1 if it is about the whole file
	Bytes    int64    // how many bytes it is about, −1 if that is not known
	Offset   int64    // first offset concerned, −1 if it is not about offsets
	End      int64    // first offset behind those concerned, −1 if that is not known
	Rule     string   // row of the recovery table that decided, if one did
	Reason   string   // what was seen, and why that follows
	Kept     string   // file that holds a copy of what was cut
	Problem  bool     // the directory was not as a writer leaves it, not even one that was killed
	Err      error    `json:"-"` // the error that was met, if any
}

// String describes the finding in a line.
func (f Finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %v", f.Path, f.Decision)
	if f.Position >= 0 {
		fmt.Fprintf(&b, " at byte %d", f.Position)
	}
	if f.Bytes >= 0 {
		fmt.Fprintf(&b, ", %d bytes", f.Bytes)
	}
	switch {
	case f.Offset >= 0 && f.End > f.Offset:
		fmt.Fprintf(&b, ", offsets %d to %d", f.Offset, f.End-1)
	case f.Offset >= 0:
		fmt.Fprintf(&b, ", offset %d on", f.Offset)
	}
	if f.Rule != "" {
		fmt.Fprintf(&b, " (%s)", f.Rule)
	}
	fmt.Fprintf(&b, ": %s", f.Reason)
	if f.Kept != "" {
		fmt.Fprintf(&b, "; kept in %s", f.Kept)
	}
	return b.String()
}

// Hole is a range of offsets that cannot be read.
type Hole struct {
	Path     string
	Position int64 // first bad byte
	Next     int64 // where good batches begin again, or the end of the file
	Offset   int64 // first offset that is missing
	End      int64 // first offset that is there again, −1 if none is
}

// Report tells what recovery found and did. With dry runs it tells what would be done.
type Report struct {
	Dir      string
	Writer   Writer // who changed the directory last
	SameBoot bool
	Mode     SyncMode // of the last writer, if it was us
	Clean    bool     // the log had been closed in order, and no batch was read
	DryRun   bool

	Findings []Finding
	Holes    []Hole // read-only opens of a damaged log

	SegmentsScanned int
	BytesScanned    int64 // of log files, whose checksums were verified
	BytesReplayed   int64 // of log files, read for producer state and indexes
	BytesCut        int64 // kept aside, then cut off or removed
	BytesTrimmed    int64 // zeros
	CutFiles        int   // files of bytes kept aside, of this and earlier recoveries; nothing removes them by itself

	LogStart, LogEnd int64
	Durable          int64 // the end that is known to have been acknowledged as durable, −1 if nothing is known
	RecoveryPoint    int64 // where the scan began
	Producers        int
	OpenTxns         int
	Elapsed          time.Duration
}

// Problems tells whether anything was found that an undisturbed writer, killed or not, does not leave behind.
func (r *Report) Problems() bool {
	for i := range r.Findings {
		if r.Findings[i].Problem {
			return true
		}
	}
	return false
}

// Refused tells whether an open for writing would be refused.
func (r *Report) Refused() bool {
	for i := range r.Findings {
		if r.Findings[i].Decision == Refuse {
			return true
		}
	}
	return false
}

// RefusedError says that the directory was not opened for writing, because what it holds cannot have been left by a
// writer that was merely interrupted. Nothing was changed. It matches ErrRefused and record.ErrCorrupt.
type RefusedError struct {
	Dir      string
	Findings []Finding
	Report   *Report
}

// Error names the findings that a person has to look at, and the ways on.
func (e *RefusedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "recovery: %s is damaged and was not opened for writing", e.Dir)
	cut := ", or with the policy PointInTime to cut there and keep a copy"
	for _, f := range e.Findings {
		fmt.Fprintf(&b, "; %v", f)
		if errors.Is(f.Err, segment.ErrOffsetOverflow) {
			cut = "" // there is nothing to cut
		}
	}
	b.WriteString("; open it read-only to read around the damage" + cut)
	return b.String()
}

// Is reports whether target is ErrRefused or record.ErrCorrupt.
func (e *RefusedError) Is(target error) bool {
	return target == ErrRefused || target == record.ErrCorrupt
}
