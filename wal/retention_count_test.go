package wal

import (
	"strings"
	"testing"
	"time"
)

// RetentionCount keeps the newest offsets, by whole segments, and says so.
func TestRetentionCount(t *testing.T) {
	l, _ := openMem(t, Options{SegmentBytes: 300, RetentionCount: 10}) // four records a segment
	appendN(t, l, 0, 30)
	plan, err := l.ExplainRetention(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for _, s := range plan {
		goes := 30-s.EndOffset >= 10
		if goes {
			want++
		}
		if goes != (s.Verdict == DeleteTooMany) || s.Verdict.Deletes() != goes || !strings.Contains(s.Reason, "RetentionCount is 10") && s.Verdict != KeepLast {
			t.Errorf("%+v", s)
		}
	}
	n, err := l.DeleteOldSegments(time.Now())
	if err != nil || n != want || want == 0 {
		t.Errorf("%d segments went, want %d: %v", n, want, err)
	}
	if start := l.Offsets().LogStart; start > 20 || start < 14 {
		t.Errorf("the log starts at %d", start)
	}
	if err := l.Reconfigure(func(o *Options) { o.RetentionCount = 1 << 40 }); err != nil {
		t.Fatal(err)
	}
	if n, err := l.DeleteOldSegments(time.Now()); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := (Options{RetentionCount: -1}).Validate(); err == nil {
		t.Error("a negative count passes")
	}
}
