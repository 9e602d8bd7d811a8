package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/recovery"
)

// finding is one thing that was seen in a directory, and what follows from it.
type finding struct {
	File     string `json:"file"`     // name in the directory; "." is the directory itself
	Problem  bool   `json:"problem"`  // not as a writer leaves it, not even one that was killed
	Decision string `json:"decision"` // what an open for writing does about it; empty if it would not notice, or has nothing to do

	Position   *int64 `json:"position"`   // first byte concerned
	End        *int64 `json:"end"`        // first byte behind those concerned
	Offset     *int64 `json:"offset"`     // first offset concerned
	LastOffset *int64 `json:"lastOffset"` // last offset concerned
	NextGood   *int64 `json:"nextGood"`   // the first offset behind them that can be read

	Rule   string `json:"rule,omitempty"` // row of the recovery table
	Reason string `json:"reason"`
	Kept   string `json:"kept,omitempty"` // file with a copy of what was cut
}

func known(n int64) *int64 { return &n }

// knownIf is n, or unknown where it stands for that.
func knownIf(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

// ofRecovery makes a finding of one of package recovery.
func ofRecovery(dir string, f recovery.Finding) finding {
	reason := strings.ReplaceAll(f.Reason, dir+string(filepath.Separator), "")
	g := finding{File: relative(dir, f.Path), Problem: f.Problem, Decision: f.Decision.String(), Position: knownIf(f.Position),
		Offset: knownIf(f.Offset), Rule: f.Rule, Reason: reason, Kept: f.Kept}
	if bad := (*producerstate.SnapshotError)(nil); errors.As(f.Err, &bad) {
		// The decision is about the state of the producers as a whole; the reader wants to know which file it is.
		g.File, g.Offset = filepath.Base(bad.Path), nil
	}
	if f.Decision == recovery.Keep || f.Decision == recovery.Note {
		g.Decision = ""
	}
	if f.Position >= 0 && f.Bytes > 0 {
		g.End = known(f.Position + f.Bytes)
	} else if f.Bytes <= 0 {
		g.Position = nil
	}
	if f.Offset >= 0 && f.End > f.Offset {
		g.LastOffset = known(f.End - 1)
		if f.Decision == recovery.Refuse {
			g.NextGood = known(f.End)
		}
	}
	return g
}

// refuses tells whether an open for writing would stop at it.
func (f *finding) refuses() bool { return f.Decision == recovery.Refuse.String() }

// line describes the finding in one line.
func (f *finding) line() string {
	var s strings.Builder
	if f.Problem {
		s.WriteString("problem  ")
	} else {
		s.WriteString("note     ")
	}
	s.WriteString(quote(f.File))
	switch {
	case f.Position != nil && f.End != nil && *f.End > *f.Position:
		fmt.Fprintf(&s, ", bytes %d to %d", *f.Position, *f.End-1)
	case f.Position != nil:
		fmt.Fprintf(&s, ", byte %d", *f.Position)
	}
	switch {
	case f.Offset != nil && f.LastOffset != nil && *f.LastOffset > *f.Offset:
		fmt.Fprintf(&s, ", offsets %d to %d", *f.Offset, *f.LastOffset)
	case f.Offset != nil && f.LastOffset != nil:
		fmt.Fprintf(&s, ", offset %d", *f.Offset)
	case f.Offset != nil:
		fmt.Fprintf(&s, ", offset %d on", *f.Offset)
	}
	if f.NextGood != nil {
		fmt.Fprintf(&s, ", next good offset %d", *f.NextGood)
	}
	fmt.Fprintf(&s, ": %s", escapeLines(f.Reason))
	if f.Rule != "" {
		fmt.Fprintf(&s, " [%s]", f.Rule)
	}
	if f.Decision != "" {
		fmt.Fprintf(&s, " -> %s", f.Decision)
	}
	if f.Kept != "" {
		fmt.Fprintf(&s, ", kept in %s", quote(f.Kept))
	}
	return s.String()
}

// findings is a list without repetitions: what an open would see and what a check of every byte finds is often the same.
type findings struct {
	list    []finding
	omitted int
}

// mostFindings bounds the list: a damaged disk has more to say than anybody reads.
const mostFindings = 1000

func (l *findings) add(f finding) {
	for i := range l.list {
		if old := &l.list[i]; old.sameAs(&f) {
			if f.Problem && !old.Problem {
				// Recovery judges where the log ends. That something whole lies there in the wrong place is more than it says.
				old.Problem, old.Reason = true, f.Reason+"; "+old.Reason
				if old.NextGood == nil && f.NextGood != nil {
					old.LastOffset, old.NextGood = f.LastOffset, f.NextGood
				}
			}
			return
		}
	}
	if len(l.list) >= mostFindings {
		l.omitted++
		return
	}
	l.list = append(l.list, f)
}

// sameAs tells whether two findings are about the same place.
func (f *finding) sameAs(g *finding) bool {
	if f.File != g.File {
		return false
	}
	if f.Position == nil || g.Position == nil {
		// One that is about the file as a whole covers others of it, unless it is merely a note.
		return f.Position == nil && g.Position == nil && (f.Reason == g.Reason || f.Decision != "" && g.Decision == "" && f.Problem)
	}
	return *f.Position == *g.Position
}

// trims tells whether an open has been found to give back the zeros from a position of a file on.
func (l *findings) trims(file string, position int64) bool {
	for i := range l.list {
		if f := &l.list[i]; f.File == file && f.Position != nil && *f.Position == position && f.Decision == recovery.TrimZeros.String() {
			return true
		}
	}
	return false
}

func (l *findings) problems() bool {
	for i := range l.list {
		if l.list[i].Problem {
			return true
		}
	}
	return l.omitted > 0
}

func (l *findings) refused() bool {
	for i := range l.list {
		if l.list[i].refuses() {
			return true
		}
	}
	return false
}
