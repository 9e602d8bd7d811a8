package wal

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oncelog/oncelog/record"
)

// logBytes is the number of bytes of batches.
func logBytes(t *testing.T, l *Log) (n int64) {
	t.Helper()
	for s := range l.set.All() {
		size, err := s.Size()
		if err != nil {
			t.Fatal(err)
		}
		n += size
	}
	return n
}

// start is the clock of these tests, and the time of the records that producerBatch makes.
var start = time.UnixMilli(1_700_000_000_000)

// explained runs ExplainRetention, and holds it against what DeleteOldSegments then does.
func explained(t *testing.T, l *Log, now time.Time, delete bool) []SegmentRetention {
	t.Helper()
	plan, err := l.ExplainRetention(now)
	if err != nil {
		t.Fatal(err)
	}
	goes := 0
	for i, s := range plan {
		if s.Verdict.Deletes() {
			goes++
		}
		if s.Reason == "" || s.Verdict.Deletes() && goes != i+1 || i > 0 && plan[i-1].EndOffset != s.BaseOffset {
			t.Errorf("segment %d: %+v", i, s)
		}
	}
	if delete {
		if n, err := l.DeleteOldSegments(now); err != nil || n != goes {
			t.Fatalf("%d segments deleted, %d were to go, %v", n, goes, err)
		}
	}
	return plan
}

func verdicts(plan []SegmentRetention) (v []Verdict) {
	for _, s := range plan {
		v = append(v, s.Verdict)
	}
	return v
}

func TestExplainRetention(t *testing.T) {
	txn := func(t *testing.T, l *Log) {
		b := record.NewBuilder(record.BuilderOptions{Transactional: true, Producer: &record.Producer{ID: 9}})
		if err := b.Append(start.UnixMilli(), record.Record{Value: make([]byte, 400)}); err != nil {
			t.Fatal(err)
		}
		p, err := b.Batch()
		if err == nil {
			_, err = l.AppendAsLeader(p, LeaderAppend{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	data := func(at time.Duration) func(t *testing.T, l *Log) {
		return func(t *testing.T, l *Log) {
			put(t, l, Record{Value: make([]byte, 400), Time: start.Add(at)})
		}
	}
	several := func(n int, at time.Duration) (list []func(t *testing.T, l *Log)) {
		for range n {
			list = append(list, data(at))
		}
		return list
	}
	for name, c := range map[string]struct {
		options Options
		steps   []func(t *testing.T, l *Log)
		at      time.Duration
		want    []Verdict
		says    string // in the first reason of a segment that stays, or of the last
	}{
		"no rule": {steps: several(3, 0), at: time.Hour, want: []Verdict{KeepNoRule, KeepNoRule, KeepNoRule}, says: "no option"},
		"compact only": {options: Options{CleanupPolicy: CleanupCompact, RetentionAge: time.Minute},
			steps: []func(t *testing.T, l *Log){func(t *testing.T, l *Log) { put(t, l, Record{Key: []byte("k"), Value: make([]byte, 400)}) }},
			at:    time.Hour, want: []Verdict{KeepNoRule}, says: "no option"},
		"too old, all of it": {options: Options{RetentionAge: time.Minute}, steps: several(3, 0), at: time.Minute + time.Millisecond,
			want: []Verdict{DeleteTooOld, DeleteTooOld, DeleteTooOld}, says: "1m0.001s old, RetentionAge is 1m0s"},
		"just not too old": {options: Options{RetentionAge: time.Minute}, steps: several(2, 0), at: time.Minute,
			want: []Verdict{KeepNeeded, KeepNeeded}, says: "1m0s old"},
		"one from the future blocks": {options: Options{RetentionAge: time.Minute},
			steps: append([]func(*testing.T, *Log){data(30 * time.Minute)}, several(2, 0)...), at: 5 * time.Minute,
			want: []Verdict{KeepNeeded, KeepBehind, KeepBehind}, says: "-25m0s old"},
		"too much": {options: Options{RetentionBytes: 1000}, steps: several(4, 0),
			want: []Verdict{DeleteTooMuch, KeepNeeded, KeepNeeded, KeepNeeded}, says: "RetentionBytes is 1000"},
		"nothing retained":    {options: Options{RetentionBytes: RetainNothing}, steps: several(2, 0), want: []Verdict{DeleteTooMuch, DeleteTooMuch}},
		"everything retained": {options: Options{RetentionBytes: -1}, steps: several(2, 0), want: []Verdict{KeepNoRule, KeepNoRule}},
		"below the start, then too old": {options: Options{RetentionAge: time.Minute},
			steps: append([]func(*testing.T, *Log){data(time.Hour - time.Second), data(0), data(0)}, func(t *testing.T, l *Log) {
				if _, err := l.IncrementLogStartOffset(1); err != nil {
					t.Fatal(err)
				}
			}), at: 2 * time.Minute, want: []Verdict{DeleteBelowStart, DeleteTooOld, DeleteTooOld}},
		"an open transaction": {options: Options{RetentionAge: time.Minute}, at: time.Hour,
			steps: []func(*testing.T, *Log){data(0), txn, data(0)}, want: []Verdict{DeleteTooOld, KeepTransaction, KeepTransaction},
			says: "a transaction of producer 9 from offset 1 on is open"},
		"not replicated": {options: Options{RetentionAge: time.Minute, ManualHighWatermark: true}, at: time.Hour,
			steps: append(several(3, 0), func(t *testing.T, l *Log) {
				if _, err := l.UpdateHighWatermark(1); err != nil {
					t.Fatal(err)
				}
			}), want: []Verdict{DeleteTooOld, KeepNotReplicated, KeepNotReplicated}, says: "the high watermark is 1"},
		"an empty end": {options: Options{RetentionAge: time.Minute}, at: time.Hour,
			steps: append(several(2, 0), func(t *testing.T, l *Log) {
				if err := l.Roll(); err != nil {
					t.Fatal(err)
				}
			}), want: []Verdict{DeleteTooOld, DeleteTooOld, KeepLast}, says: "goes on"},
	} {
		t.Run(name, func(t *testing.T) {
			now := start
			o := c.options
			o.SegmentBytes, o.MaxMessageBytes, o.Now = 500, 500, func() time.Time { return now }
			l := openTest(t, t.TempDir(), o)
			for _, step := range c.steps {
				step(t, l)
			}
			now = now.Add(c.at)
			plan := explained(t, l, now, false)
			if got := verdicts(plan); !slices.Equal(got, c.want) {
				t.Fatalf("%v, want %v", got, c.want)
			}
			i := slices.IndexFunc(plan, func(s SegmentRetention) bool { return !s.Verdict.Deletes() })
			if i < 0 {
				i = len(plan) - 1
			}
			if !strings.Contains(plan[i].Reason, c.says) {
				t.Errorf("%q does not say %q", plan[i].Reason, c.says)
			}
			explained(t, l, now, true)
			if again := explained(t, l, now, true); again[0].Verdict.Deletes() {
				t.Errorf("a second pass: %v", verdicts(again))
			}
		})
	}
}

// A name whose last batch would go is written down twice before.
func TestExplainRetention_Names(t *testing.T) {
	now := start
	l := openTest(t, t.TempDir(), Options{SegmentBytes: 500, MaxMessageBytes: 500, RetentionBytes: 1, Now: func() time.Time { return now }})
	p, err := l.Producer("sensor", ProducerOptions{})
	if err == nil {
		_, err = p.Append(Record{Value: make([]byte, 400)})
	}
	if err != nil {
		t.Fatal(err)
	}
	put(t, l, Record{Value: make([]byte, 400)})
	l.mu.Lock()
	r := l.planRetention(now, noOffset)
	r.explain()
	l.mu.Unlock()
	if r.segments[0].Verdict != KeepName || !strings.Contains(r.segments[0].Reason, `"sensor", at 0`) {
		t.Errorf("%+v", r.segments[0])
	}
	if plan := explained(t, l, now, true); plan[0].Verdict != DeleteTooMuch {
		t.Errorf("%+v", plan)
	}
}

func TestPin(t *testing.T) {
	now := start
	o := Options{SegmentBytes: 500, MaxMessageBytes: 500, RetentionAge: time.Minute, Now: func() time.Time { return now }}
	l := openTest(t, t.TempDir(), o)
	for range 5 {
		put(t, l, Record{Value: make([]byte, 400)})
	}
	now = now.Add(time.Hour)
	late, err := l.Pin(3, "late")
	if err != nil {
		t.Fatal(err)
	}
	early, err := l.Pin(1, "early")
	if err != nil {
		t.Fatal(err)
	}
	plan := explained(t, l, now, true)
	if got := verdicts(plan); !slices.Equal(got, []Verdict{DeleteTooOld, KeepPinned, KeepPinned, KeepPinned, KeepPinned}) ||
		!strings.Contains(plan[1].Reason, `"early" holds the records from 1 on`) {
		t.Errorf("%+v", plan)
	}
	if err := early.Move(0); !errors.Is(err, ErrOffsetOutOfRange) || early.Offset() != 1 {
		t.Errorf("to where nothing is left: %v, %d", err, early.Offset())
	}
	if err := early.Move(2); err != nil || early.Offset() != 2 {
		t.Fatal(err)
	}
	if got := verdicts(explained(t, l, now, true)); !slices.Equal(got, []Verdict{DeleteTooOld, KeepPinned, KeepPinned, KeepPinned}) {
		t.Errorf("after the move: %v", got)
	}
	early.Release()
	early.Release()
	if err := early.Move(4); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("a pin that was released: %v", err)
	}
	if got := verdicts(explained(t, l, now, true)); !slices.Equal(got, []Verdict{DeleteTooOld, KeepPinned, KeepPinned}) {
		t.Errorf("with the later pin: %v", got)
	}
	late.Release()
	if n, err := l.DeleteOldSegments(now); err != nil || n != 2 {
		t.Errorf("without a pin: %d, %v", n, err)
	}
	for _, offset := range []int64{-1, 4, 6, math.MaxInt64} {
		if _, err := l.Pin(offset, "x"); !errors.Is(err, ErrOffsetOutOfRange) {
			t.Errorf("pin at %d: %v", offset, err)
		}
	}
}

// A clock that jumps forward while the log rests makes nothing old; time that passes while it is open does.
func TestDifference_ClockJumpDeletesNothing(t *testing.T) {
	for _, stamped := range []bool{true, false} {
		now := start
		o := Options{SegmentBytes: 500, MaxMessageBytes: 500, RetentionAge: 7 * 24 * time.Hour, Now: func() time.Time { return now }}
		l := openTest(t, t.TempDir(), o)
		for range 3 {
			put(t, l, Record{Value: make([]byte, 400)})
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		now = now.AddDate(10, 0, 0)
		l = openTest(t, l.dir, o)
		if n, err := l.DeleteOldSegments(now); err != nil || n != 0 {
			t.Errorf("after a jump of ten years: %d deleted, %v", n, err)
		}
		now = now.Add(8 * 24 * time.Hour)
		if stamped {
			// An append says that the time is right.
			put(t, l, Record{Value: make([]byte, 400)})
			if n, err := l.DeleteOldSegments(now); err != nil || n != 3 {
				t.Errorf("after an append with the new clock: %d deleted, %v", n, err)
			}
		} else if n, err := l.DeleteOldSegments(now); err != nil || n != 3 {
			t.Errorf("after eight days: %d deleted, %v", n, err)
		}
	}
}

func TestDeleteOldSegments_BySizeAndAge(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	o := Options{SegmentBytes: 600, RetentionBytes: 1500, FileDeleteDelay: time.Second, Now: func() time.Time { return now }}
	l := fill(t, o, 40)
	held, err := l.Read(0, ReadOptions{MaxBytes: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	n, err := l.DeleteOldSegments(now)
	if err != nil || n == 0 {
		t.Fatalf("%d, %v", n, err)
	}
	if size := logBytes(t, l); size < 1500 || size > 1500+600 {
		t.Errorf("%d bytes are left", size)
	}
	if o := l.Offsets(); o.LogStart != l.set.First().BaseOffset() {
		t.Errorf("log start %d", o.LogStart)
	}
	now = now.Add(2 * time.Second)
	if removed, err := l.RemoveDiscarded(now); err != nil || removed != n {
		t.Errorf("%d of %d segments removed, %v", removed, n, err)
	}
	if p, err := held.Records.AppendTo(nil); err != nil || len(p) != 100 {
		t.Errorf("a reader that held on: %d bytes, %v", len(p), err)
	}

	o.RetentionBytes, o.RetentionAge = 0, time.Hour
	l = reopenTest(t, l, o)
	now = now.Add(2 * time.Hour)
	end := l.Offsets().LogEnd
	if _, err := l.DeleteOldSegments(now); err != nil {
		t.Fatal(err)
	}
	if o := l.Offsets(); o.LogStart != end || o.LogEnd != end {
		t.Errorf("everything was too old: %+v", o)
	}
	l = reopenTest(t, l, o)
	if o := l.Offsets(); o.LogStart != end || o.LogEnd != end {
		t.Errorf("after a restart: %+v", o)
	}
	// The producer outlives its data.
	if info, err := l.AppendAsLeader(producerBatch(t, 7, 0, 39, "value 39"), LeaderAppend{}); err != nil || !info.Duplicate || info.FirstOffset != 39 {
		t.Errorf("retry of a batch that is deleted: %+v, %v", info, err)
	}
}

// A named producer goes on where it stopped, also when none of what it stored is left.
func TestDeleteOldSegments_NamesSurvive(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	o := Options{SegmentBytes: 600, RetentionBytes: 1, Now: func() time.Time { return now }}
	l := openTest(t, t.TempDir(), o)
	p, err := l.Producer("sensor", ProducerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if _, err := p.Append(Record{Value: []byte(fmt.Sprint(i))}); err != nil {
			t.Fatal(err)
		}
	}
	for range 40 {
		if _, err := l.Append(Record{Value: make([]byte, 100)}); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := l.DeleteOldSegments(now); err != nil || n == 0 || l.Offsets().LogStart < 10 {
		t.Fatalf("%d deleted, %v, %+v", n, err, l.Offsets())
	}
	for _, kill := range []bool{false, true} {
		if kill {
			abandon(t, l)
			l = openTest(t, l.dir, o)
		} else {
			l = reopenTest(t, l, o)
		}
		p, err := l.Producer("sensor", ProducerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if n := p.NextSequence(); n != 10 {
			t.Errorf("next sequence %d", n)
		}
		if r, err := p.AppendAt(8, Record{Value: []byte("8")}, Record{Value: []byte("9")}); err != nil || !r.Duplicate {
			t.Errorf("retry: %+v, %v", r, err)
		}
	}
}
