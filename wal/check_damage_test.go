package wal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/oncelog/oncelog/recovery"
	"github.com/oncelog/oncelog/segment"
)

// changeFile changes the bytes of a file. What change returns is its new content.
func changeFile(t testing.TB, path string, change func(p []byte) []byte) {
	t.Helper()
	p, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, change(p), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func mustCheck(t testing.TB, dir string) CheckResult {
	t.Helper()
	r, err := Check(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// closedExact is a closed log, and the path of its last segment.
func closedExact(t testing.TB) (dir, last string, o Options) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "t-0")
	l, o := exactLog(t, dir, 4096)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if r := mustCheck(t, dir); !r.Healthy {
		t.Fatalf("before anything changed: %+v", r)
	}
	return dir, filepath.Join(dir, segment.FileName(segment.KindLog, 2*exactRolls*exactPer)), o
}

// A closed log is opened without a look at its batches. One that is asked to look does, and so does a check.
func TestCheck_LastBatch(t *testing.T) {
	dir, last, o := closedExact(t)
	size := len(exactBatch(t, 0))
	o.CheckSegments = true
	for i := range size {
		flip := func(p []byte) []byte { p[len(p)-size+i] ^= 2; return p }
		changeFile(t, last, flip)
		if 12 <= i && i < 16 {
			changeFile(t, last, flip) // the leader epoch may be anything
			continue
		}
		if r := mustCheck(t, dir); r.Healthy {
			t.Errorf("byte %d of the last batch changed: healthy", i)
		}
		if l, err := Open(t.Context(), dir, o); !errors.Is(err, ErrRefused) {
			t.Errorf("byte %d of the last batch changed: an open that checks gives %v", i, err)
			if err == nil {
				t.Fatal(l.Close())
			}
		}
		changeFile(t, last, flip)
	}
}

// What lies behind the end of a closed log is none of its bytes. An open cuts it, and keeps it.
func TestCheck_BytesBehindTheEnd(t *testing.T) {
	for _, n := range []int{1, 300, 9000} {
		dir, last, o := closedExact(t)
		changeFile(t, last, func(p []byte) []byte {
			for i := range n {
				p = append(p, byte(i*7+1))
			}
			return p
		})
		if r := mustCheck(t, dir); r.Healthy || r.Refused {
			t.Errorf("%d bytes behind the end: %+v", n, r)
		}
		l := openTest(t, dir, o)
		if r := l.RecoveryReport(); r.BytesCut != int64(n) {
			t.Errorf("%d bytes behind the end: %d were cut", n, r.BytesCut)
		}
	}
}

// With the newest slot of the state file gone, nobody knows how far the log was durable. A reader then shows every whole
// batch, as the next writer will find them, and a check says what is wrong.
func TestCheck_StateFile(t *testing.T) {
	const all = exactBatches * exactPer
	changes := map[string]func(p []byte) []byte{
		"cut to one slot": func(p []byte) []byte { return p[:600] }, "cut to two slots": func(p []byte) []byte { return p[:8192] },
		"cut inside a slot": func(p []byte) []byte { return p[:8200] },
	}
	for slot := range 3 {
		for _, at := range []int{0, 9, 16, 32, 70, 200, 400, 504, 511} {
			changes[fmt.Sprintf("byte %d of slot %d", at, slot)] = func(p []byte) []byte { p[4096*slot+at] ^= 8; return p }
		}
	}
	for _, closed := range []bool{true, false} {
		dir := filepath.Join(t.TempDir(), "t-0")
		o := Options{SegmentBytes: int32(exactRolls * len(exactBatch(t, 0))), TimestampAfterMax: Never, manual: true} // SyncCommit
		l := openTest(t, dir, o)
		for i := range exactBatches {
			mustAppend(t, l, exactBatch(t, i))
		}
		if closed {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		} else {
			abandon(t, l)
		}
		path := filepath.Join(dir, recovery.StateFileName)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if r := mustCheck(t, dir); !r.Healthy {
			t.Fatalf("before anything changed: %+v", r)
		}
		ro := o
		ro.ReadOnly = true
		for name, change := range changes {
			changeFile(t, path, func([]byte) []byte { return change(append([]byte(nil), good...)) })
			if r := mustCheck(t, dir); r.Healthy {
				t.Errorf("closed %v, %s: healthy", closed, name)
			}
			r := openTest(t, dir, ro)
			list, holes := readAround(t, r, 0)
			if err := r.Refresh(t.Context()); err != nil || len(list) != all || len(holes) > 0 || r.Offsets().LogEnd != all {
				t.Errorf("closed %v, %s: %d records up to %d, holes %v, %v", closed, name, len(list), r.Offsets().LogEnd, holes, err)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
		w := openTest(t, dir, o) // with a slot that is damaged, which an open makes good
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if r := mustCheck(t, dir); !r.Healthy {
			t.Errorf("closed %v, after an open and a close: %+v", closed, r)
		}
	}
}
