package wal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// fill appends batches of one record each and returns the log.
func fill(t *testing.T, o Options, n int) *Log {
	t.Helper()
	l := openTest(t, t.TempDir(), o)
	for i := range n {
		if _, err := l.AppendAsLeader(producerBatch(t, 7, 0, int32(i), fmt.Sprint("value ", i)), LeaderAppend{}); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func reopenTest(t *testing.T, l *Log, o Options) *Log {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return openTest(t, l.dir, o)
}

func TestTruncateTo_TakesEverythingWithIt(t *testing.T) {
	for _, mode := range modes {
		o := Options{Sync: mode, SegmentBytes: 600}
		l := fill(t, o, 40)
		if cut, err := l.TruncateTo(40); cut || err != nil {
			t.Errorf("%v: at the end: %v, %v", mode, cut, err)
		}
		if cut, err := l.TruncateTo(17); !cut || err != nil {
			t.Fatalf("%v: %v, %v", mode, cut, err)
		}
		check := func(l *Log) {
			t.Helper()
			if o := l.Offsets(); o.LogEnd != 17 || o.HighWatermark != 17 || o.RecoveryPoint > 17 {
				t.Errorf("%v: offsets %+v", mode, o)
			}
			e, ok := l.ProducerEntry(7)
			if last, _ := e.LastBatch(); !ok || last.LastSequence != 16 || e.BatchCount() != 5 {
				t.Errorf("%v: producer state %+v", mode, e)
			}
		}
		check(l)
		if info, err := l.AppendAsLeader(producerBatch(t, 7, 0, 16, "value 16"), LeaderAppend{}); err != nil || !info.Duplicate || info.FirstOffset != 16 {
			t.Errorf("%v: retry of the last batch that is left: %+v, %v", mode, info, err)
		}
		l = reopenTest(t, l, o)
		check(l)
		if info, err := l.AppendAsLeader(producerBatch(t, 7, 0, 17, "another"), LeaderAppend{}); err != nil || info.Duplicate || info.FirstOffset != 17 {
			t.Errorf("%v: the next batch: %+v, %v", mode, info, err)
		}
	}
}

func TestTruncateTo_Arguments(t *testing.T) {
	l := fill(t, Options{}, 3)
	if _, err := l.TruncateTo(-1); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("negative: %v", err)
	}
	if err := l.TruncateFullyAndStartAt(5, 6); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("log start above the offset: %v", err)
	}
	if o := l.Offsets(); o.LogEnd != 3 {
		t.Errorf("offsets %+v", o)
	}
}

func TestTruncateFullyAndStartAt(t *testing.T) {
	o := Options{SegmentBytes: 600}
	l := fill(t, o, 20)
	if err := l.TruncateFullyAndStartAt(100, 90); err != nil {
		t.Fatal(err)
	}
	if o := l.Offsets(); o.LogStart != 90 || o.LogEnd != 100 || o.HighWatermark != 100 {
		t.Errorf("offsets %+v", o)
	}
	l = reopenTest(t, l, o)
	if o := l.Offsets(); o.LogStart != 100 || o.LogEnd != 100 {
		t.Errorf("offsets after a restart %+v", o) // nothing lies between the two
	}
	if info, err := l.AppendAsLeader(producerBatch(t, 7, 0, 0, "x"), LeaderAppend{}); err != nil || info.FirstOffset != 100 {
		t.Errorf("%+v, %v", info, err)
	}
}

// A reader that holds records of a segment that is cut gets an error, and never other bytes.
func TestTruncateTo_UnderAReader(t *testing.T) {
	l := fill(t, Options{}, 10)
	f, err := l.Read(0, ReadOptions{MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := l.TruncateTo(4); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Records.AppendTo(nil); !errors.Is(err, segment.ErrCut) {
		t.Errorf("read of a cut segment: %v", err)
	}
	stored, err := readAll(l)
	if err != nil || len(stored) != 4 {
		t.Errorf("%d batches, %v", len(stored), err)
	}
}

func TestIncrementLogStartOffset(t *testing.T) {
	o := Options{SegmentBytes: 600}
	l := fill(t, o, 20)
	if _, err := l.IncrementLogStartOffset(21); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("above the high watermark: %v", err)
	}
	for _, c := range []struct {
		to    int64
		moved bool
	}{{7, true}, {7, false}, {3, false}, {12, true}} {
		if moved, err := l.IncrementLogStartOffset(c.to); err != nil || moved != c.moved {
			t.Errorf("to %d: %v, %v", c.to, moved, err)
		}
	}
	if _, err := l.Read(11, ReadOptions{MaxBytes: 100}); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("read below the start: %v", err)
	}
	abandon(t, l)
	l = openTest(t, l.dir, o)
	if start := l.Offsets().LogStart; start != 12 {
		t.Errorf("log start after a kill: %d", start)
	}
	segments := l.set.Len()
	n, err := l.DeleteOldSegments(time.Now())
	if err != nil || n == 0 || l.set.Len() != segments-n || l.Offsets().LogStart != 12 {
		t.Errorf("%d of %d segments deleted, %v", n, segments, err)
	}
	if first := l.set.First().BaseOffset(); first > 12 {
		t.Errorf("the first segment begins at %d", first)
	}
}

// What a follower gets from below where its empty log begins is refused with the offsets that tell it how to go on.
func TestAppendAsFollower_BelowTheStartOfAnEmptyLog(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{})
	if err := l.TruncateFullyAndStartAt(7, 7); err != nil {
		t.Fatal(err)
	}
	b := record.Batch(producerBatch(t, 1, 0, 0, "a", "b", "c"))
	b.SetBaseOffset(4)
	var e *UnexpectedOffsetError
	if _, err := l.AppendAsFollower(b, 0); !errors.As(err, &e) || *e != (UnexpectedOffsetError{First: 4, Last: 6, LogEnd: 7}) {
		t.Fatalf("%v", err)
	}
	if err := l.TruncateFullyAndStartAt(e.First, e.First); err != nil {
		t.Fatal(err)
	}
	if info, err := l.AppendAsFollower(b, 0); err != nil || info.FirstOffset != 4 || l.Offsets().LogEnd != 7 {
		t.Errorf("%+v, %v, %+v", info, err, l.Offsets())
	}
}

// Index files that belong to no segment say nothing.
func TestOpen_IndexWithoutALog(t *testing.T) {
	l := fill(t, Options{}, 3)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []segment.Kind{segment.KindOffsetIndex, segment.KindTimeIndex, segment.KindTxnIndex} {
		if err := os.WriteFile(filepath.Join(l.dir, segment.FileName(kind, 5)), []byte("twelve bytes"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l = openTest(t, l.dir, Options{SegmentBytes: 200})
	for i := range 5 { // a segment of that base comes to be
		if _, err := l.AppendAsLeader(producerBatch(t, 7, 0, int32(3+i), "value"), LeaderAppend{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := l.set.Get(5); !ok {
		t.Fatal("no segment begins at 5")
	}
	n := 0
	for _, err := range l.Records(0) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if s := l.Stats(); n != 8 || s.IndexSuspects != 0 {
		t.Errorf("%d records, %+v", n, s)
	}
}

// A log that a truncation inside a batch left without a batch, and ending in a gap, keeps its end and its producers.
func TestTruncateTo_EmptyAndClosed(t *testing.T) {
	l, _ := openMem(t, Options{})
	mustAppend(t, l, openTxnBatch(t, 7, 0, "a"))
	endTxn(t, l, 7, record.Commit)
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(values("2", "3", "4")...); err != nil {
		t.Fatal(err)
	}
	if _, err := l.IncrementLogStartOffset(2); err != nil {
		t.Fatal(err)
	}
	if _, err := l.TruncateTo(4); err != nil {
		t.Fatal(err)
	}
	before := l.Offsets()
	l = reopen(t, l, Options{})
	if r := l.RecoveryReport(); !r.Clean || l.Offsets().LogEnd != before.LogEnd {
		t.Errorf("clean %t, log end %d, want %d", r.Clean, l.Offsets().LogEnd, before.LogEnd)
	}
	if _, known := l.ProducerEntry(7); !known {
		t.Error("the producer is forgotten")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// Where the log begins below its first segment a reader goes on to what there is.
func TestTruncateFully_ReadersBeginAtTheLogStart(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{})
	if err := l.TruncateFullyAndStartAt(82, 79); err != nil {
		t.Fatal(err)
	}
	for _, from := range []int64{79, 81, 82} {
		wantContents(t, l, from)
	}
	if _, err := l.Append(values("a", "b")...); err != nil {
		t.Fatal(err)
	}
	for _, from := range []int64{79, 81, 82} {
		wantContents(t, l, from, "82:a", "83:b")
		f, err := l.Read(from, ReadOptions{MaxBytes: 1000})
		if err != nil || f.Records.Size == 0 {
			t.Errorf("read from %d: %d bytes, %v", from, f.Records.Size, err)
		}
		f.Close()
	}
	var e *OffsetError
	if _, err := l.Read(78, ReadOptions{}); !errors.As(err, &e) || e.LogStart != 79 {
		t.Errorf("read below the log start: %v", err)
	}
}
