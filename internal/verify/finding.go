package verify

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/recovery"
)

// Finding is one thing that was seen in a directory, and what follows from it.
type Finding struct {
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

// Known is n as a number that is known.
func Known(n int64) *int64 { return &n }

// KnownIf is n, or unknown where it stands for that.
func KnownIf(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

// OfRecovery makes a Finding of one of package recovery.
func OfRecovery(dir string, f recovery.Finding) Finding {
	reason := strings.ReplaceAll(f.Reason, dir+string(filepath.Separator), "")
	g := Finding{File: inside(dir, f.Path), Problem: f.Problem, Decision: f.Decision.String(), Position: KnownIf(f.Position),
		Offset: KnownIf(f.Offset), Rule: f.Rule, Reason: reason, Kept: f.Kept}
	if bad := (*producerstate.SnapshotError)(nil); errors.As(f.Err, &bad) {
		// The decision is about the state of the producers as a whole; the reader wants to know which file it is.
		g.File, g.Offset = filepath.Base(bad.Path), nil
	}
	if f.Decision == recovery.Keep || f.Decision == recovery.Note {
		g.Decision = ""
	}
	if f.Position >= 0 && f.Bytes > 0 {
		g.End = Known(f.Position + f.Bytes)
	} else if f.Bytes <= 0 {
		g.Position = nil
	}
	if f.Offset >= 0 && f.End > f.Offset {
		g.LastOffset = Known(f.End - 1)
		if f.Decision == recovery.Refuse {
			g.NextGood = Known(f.End)
		}
	}
	return g
}

// Refuses tells whether an open for writing would stop at it.
func (f *Finding) Refuses() bool { return f.Decision == recovery.Refuse.String() }

// Findings is a list without repetitions: what an open would see and what a check of every byte finds is often the same.
type Findings struct {
	List    []Finding
	Omitted int // how many more there are
}

// mostFindings bounds the list: a damaged disk has more to say than anybody reads.
const mostFindings = 1000

// Add adds a finding, unless one about the same place is there.
func (l *Findings) Add(f Finding) {
	for i := range l.List {
		if old := &l.List[i]; old.sameAs(&f) {
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
	if len(l.List) >= mostFindings {
		l.Omitted++
		return
	}
	l.List = append(l.List, f)
}

// sameAs tells whether two findings are about the same place.
func (f *Finding) sameAs(g *Finding) bool {
	if f.File != g.File {
		return false
	}
	if f.Position == nil || g.Position == nil {
		// One that is about the file as a whole covers others of it, unless it is merely a note.
		return f.Position == nil && g.Position == nil && (f.Reason == g.Reason || f.Decision != "" && g.Decision == "" && f.Problem)
	}
	return *f.Position == *g.Position
}

// Trims tells whether an open has been found to give back the zeros from a position of a file on.
func (l *Findings) Trims(file string, position int64) bool {
	for i := range l.List {
		if f := &l.List[i]; f.File == file && f.Position != nil && *f.Position == position && f.Decision == recovery.TrimZeros.String() {
			return true
		}
	}
	return false
}

// Problems tells whether one of them is a problem.
func (l *Findings) Problems() bool {
	for i := range l.List {
		if l.List[i].Problem {
			return true
		}
	}
	return l.Omitted > 0
}

// Refused tells whether an open for writing would be refused.
func (l *Findings) Refused() bool {
	for i := range l.List {
		if l.List[i].Refuses() {
			return true
		}
	}
	return false
}

// inside returns a path as seen from a directory.
func inside(dir, path string) string {
	if rel, err := filepath.Rel(dir, path); err == nil && !strings.HasPrefix(rel, "..") {
		return rel
	}
	return path
}

// count is a number with the noun that belongs to it.
func count(n int64, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "y"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(noun, "y"))
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
