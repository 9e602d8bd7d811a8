package wal

import (
	"errors"
	"testing"
	"time"

	"github.com/oncelog/oncelog/recovery"
)

func TestStat(t *testing.T) {
	l, mem := openMem(t, Options{Sync: SyncInterval, SegmentBytes: 300, TimestampAfterMax: Never})
	first, last := time.UnixMilli(1_700_000_000_000).UTC(), time.UnixMilli(1_700_000_009_000).UTC()
	for i := range 10 {
		if _, err := l.Append(Record{Value: []byte("some value"), Time: first.Add(time.Duration(i) * time.Second)}); err != nil {
			t.Fatal(err)
		}
	}
	mustAppend(t, l, openTxnBatch(t, 5, 0, "a"))
	openCursor(t, l, "reader", CursorOptions{})
	check := func(clean bool) {
		t.Helper()
		st, err := StatFS(t.Context(), mem, simDir)
		if err != nil {
			t.Fatal(err)
		}
		bytes := int64(0)
		for s := range l.segments.Load().All() {
			size, err := s.Size()
			if err != nil {
				t.Fatal(err)
			}
			bytes += size
		}
		if st.Offsets.LogEnd != 11 || st.Offsets.LastStable != 10 || st.Segments != l.segments.Load().Len() || st.Segments < 3 || st.Bytes != bytes ||
			!st.First.Equal(first) || !st.Last.Equal(last) || st.Writer != recovery.Us || st.Mode != SyncInterval || st.Clean != clean ||
			st.Producers != 1 || st.OpenTransactions != 1 || st.Cursors != 1 || st.Report.Problems() {
			t.Errorf("clean %t: %+v, want %d bytes", clean, st, bytes)
		}
	}
	check(false)
	bytesBefore := l.segments.Load().Len()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = openFS(t, mem, Options{ReadOnly: true})
	if l.segments.Load().Len() != bytesBefore {
		t.Errorf("%d segments", l.segments.Load().Len())
	}
	check(true)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := mem.MkdirAll("/data/empty", 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := StatFS(t.Context(), mem, "/data/empty"); !errors.Is(err, ErrNotLog) {
		t.Errorf("%v", err)
	}
}
