package main

import (
	"fmt"
	"strings"

	"github.com/oncelog/oncelog/internal/verify"
)

// What inspect and recover report is that of package verify.
type (
	finding  = verify.Finding
	findings = verify.Findings
	checked  = verify.Checked
)

func known(n int64) *int64 { return verify.Known(n) }

func knownIf(n int64) *int64 { return verify.KnownIf(n) }

// lineOf describes the finding in one line.
func lineOf(f *finding) string {
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
