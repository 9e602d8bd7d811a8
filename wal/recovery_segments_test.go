package wal

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/recovery"
	"github.com/oncelog/oncelog/segment"
)

// segmentsCase writes a log of several segments. What is behind the last checkpoint lies in the last one.
func segmentsCase(t *testing.T, mode SyncMode, closed bool) (*vfstest.Mem, *Log) {
	t.Helper()
	m := caseDisk(t, vfstest.MemOptions{})
	l := openCase(t, m, caseOptions(mode))
	for range 12 {
		lead(t, l, 5)
	}
	if l.Stats().Segments < 4 {
		t.Fatalf("%d segments", l.Stats().Segments)
	}
	if closed {
		closeCase(t, l)
	} else {
		abandonCase(t, l)
	}
	return m, l
}

// A segment that is gone is found by the names of the files alone, also in the middle of a log that was closed in order.
func TestOpen_SegmentGoneBelowTheCheckpoint(t *testing.T) {
	for _, closed := range []bool{true, false} {
		for _, mode := range modes {
			m, l := segmentsCase(t, mode, closed)
			for i := range l.set.Len() {
				if i == l.set.Len()-1 && !closed && mode != SyncCommit {
					continue // nothing of it was promised
				}
				base := l.set.At(i).BaseOffset()
				c := m.Crash(vfstest.CrashOptions{})
				for _, k := range []segment.Kind{segment.KindLog, segment.KindOffsetIndex, segment.KindTimeIndex} {
					if err := c.Remove(filepath.Join(simDir, segment.FileName(k, base))); err != nil {
						t.Fatal(err)
					}
				}
				_, err := OpenFS(context.Background(), c, simDir, caseOptions(mode))
				if !errors.Is(err, ErrRefused) {
					t.Errorf("%v, closed %v: without segment %d: %v", mode, closed, base, err)
				}
				o := caseOptions(mode)
				o.ReadOnly = true
				r, err := OpenFS(context.Background(), c, simDir, o)
				if err != nil {
					t.Errorf("%v, closed %v: without segment %d, read-only: %v", mode, closed, base, err)
					continue
				}
				if report := r.RecoveryReport(); !report.Refused() {
					t.Errorf("%v, closed %v: without segment %d, read-only: %v", mode, closed, base, report.Findings)
				}
				wantUnreadable(t, r, base)
				closeCase(t, r)
			}
		}
	}
}

// wantUnreadable walks the committed records and wants exactly one typed error, about records from an offset on.
func wantUnreadable(t *testing.T, l *Log, from int64) {
	t.Helper()
	var bad *UnreadableError
	n := int64(0)
	for _, err := range l.Records(l.Offsets().LogStart) {
		if errors.As(err, &bad) {
			break
		}
		if err != nil {
			t.Errorf("offset %d: %v", n, err)
			return
		}
		n++
	}
	if bad == nil {
		if from == l.report.Findings[0].Offset && l.Offsets().LogStart > from {
			return // the log begins behind it
		}
		t.Errorf("segment %d is gone, and %d records were read up to %d without an error", from, n, l.Offsets().LogEnd)
		return
	}
	if bad.First != from || !errors.Is(bad, ErrCorrupt) {
		t.Errorf("segment %d is gone: %v", from, bad)
	}
}

// With CheckSegments an open finds what is wrong with the ends of any segment.
func TestOpen_CheckSegments(t *testing.T) {
	m, l := segmentsCase(t, SyncCommit, true)
	middle := l.set.At(1)
	path := filepath.Join(simDir, segment.FileName(segment.KindLog, middle.BaseOffset()))
	size, err := m.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int64{0, 1, size.Size / 2, size.Size - 1, size.Size + 10} {
		c := m.Crash(vfstest.CrashOptions{})
		f, err := c.OpenFile(path, 2, 0)
		if err == nil {
			err = errors.Join(f.Truncate(n), f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		o := caseOptions(SyncCommit)
		o.CheckSegments = true
		l, err := OpenFS(context.Background(), c, simDir, o)
		if n > size.Size {
			if err != nil || l.RecoveryReport().BytesTrimmed != 10 {
				t.Errorf("%d bytes: %v", n, err)
			}
			closeCase(t, l)
			continue
		}
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), path) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// A log is known to be ours by more than its leader epochs: where only that file is lost, what was promised counts, and what
// of it is damaged is refused as before.
func TestOpen_LeaderEpochsLost(t *testing.T) {
	for _, closed := range []bool{true, false} {
		m := caseDisk(t, vfstest.MemOptions{})
		o := caseOptions(SyncCommit)
		o.SegmentBytes = 1 << 20
		l := openCase(t, m, o)
		for range 10 {
			lead(t, l, 5)
		}
		if closed {
			closeCase(t, l)
		} else {
			abandonCase(t, l)
		}
		if err := m.Remove(filepath.Join(simDir, recovery.LeaderEpochFileName)); err != nil {
			t.Fatal(err)
		}
		c := m.Crash(vfstest.CrashOptions{})
		again := openCase(t, c, o)
		r := again.RecoveryReport()
		if r.Writer != recovery.Us || r.Durable != 50 || r.LogEnd != 50 {
			t.Errorf("closed %v: %+v", closed, r)
		}
		if e, ok := again.epochs.Latest(); !ok || e.Epoch != 0 {
			t.Errorf("leader epochs %v", again.epochs.Entries())
		}
		closeCase(t, again)
		if r := openCase(t, c, o).RecoveryReport(); !r.Clean || r.Problems() {
			t.Errorf("closed %v, once more: %+v", closed, r)
		}
		if closed {
			continue
		}
		path := filepath.Join(simDir, segment.FileName(segment.KindLog, 0))
		f, err := m.OpenFile(path, 2, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte{0x55}, l.last.Position+80); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenFS(context.Background(), m, simDir, o); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "below the promised end") {
			t.Errorf("damage beside it: %v", err)
		}
	}
}
