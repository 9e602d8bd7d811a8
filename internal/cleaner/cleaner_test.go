package cleaner

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

const (
	testDir  = "/log"
	testTime = int64(1_700_000_000_000)
)

// testLog is a log of sealed segments on a simulated disk.
type testLog struct {
	t    testing.TB
	mem  *vfstest.Mem
	fsys vfs.FS
	set  segment.Set
	next int64
}

func newTestLog(t testing.TB) *testLog {
	t.Helper()
	l := &testLog{t: t, mem: vfstest.NewMem()}
	l.fsys = l.mem
	if err := l.mem.MkdirAll(testDir, 0o755); err != nil {
		t.Fatal(err)
	}
	return l
}

// add makes a segment of batches, each of which begins where the one before ends.
func (l *testLog) add(batches ...record.Batch) *segment.Segment {
	l.t.Helper()
	s, err := segment.Create(l.mem, testDir, l.next, segment.Config{IndexIntervalBytes: 1})
	if err != nil {
		l.t.Fatal(err)
	}
	for _, b := range batches {
		b.SetBaseOffset(l.next)
		l.next = b.NextOffset()
		if err := s.Append(b); err != nil {
			l.t.Fatal(err)
		}
	}
	if err := s.Seal(); err != nil {
		l.t.Fatal(err)
	}
	l.set = l.set.With(s)
	return s
}

// batch makes a batch of "key=value" records; "key" alone is a deletion, "=value" has no key.
func (l *testLog) batch(o record.BuilderOptions, records ...string) record.Batch {
	l.t.Helper()
	w := record.NewBuilder(o)
	for i, r := range records {
		key, value, has := strings.Cut(r, "=")
		x := record.Record{Key: []byte(key)}
		if has {
			x.Value = []byte(value)
		}
		if key == "" {
			x.Key = nil
		}
		if err := w.Append(testTime+int64(i), x); err != nil {
			l.t.Fatal(err)
		}
	}
	b, err := w.Batch()
	if err != nil {
		l.t.Fatal(err)
	}
	return bytes.Clone(b)
}

func producer(id int64, seq int32) record.BuilderOptions {
	return record.BuilderOptions{Producer: &record.Producer{ID: id, BaseSequence: seq}}
}

func inTxn(id int64, seq int32) record.BuilderOptions {
	o := producer(id, seq)
	o.Transactional = true
	return o
}

func marker(id int64, t record.ControlType) record.Batch {
	return record.AppendEndTxnMarker(nil, record.Producer{ID: id}, record.EndTxnMarker{Type: t}, testTime)
}

func (l *testLog) options() Options {
	return Options{FS: l.fsys, Dir: testDir, Segment: segment.Config{IndexIntervalBytes: 1}, SegmentBytes: 1 << 20, MaxIndexBytes: 1 << 20,
		MapBytes: 1 << 20, DeleteRetention: 1000 * time.Millisecond, Stop: func() error { return nil }}
}

func (l *testLog) round() Round {
	return Round{Set: l.set, End: l.next, HighWatermark: math.MaxInt64, Now: time.UnixMilli(testTime)}
}

// clean does a round and puts what it wrote in the place of what it read.
func (l *testLog) clean(o Options, r Round) (Stats, int64, error) {
	c := New(o, r)
	next, err := c.Index()
	if err != nil {
		return c.Stats(), next, err
	}
	groups, err := c.Groups()
	if err != nil {
		return c.Stats(), next, err
	}
	for _, g := range groups {
		s, err := c.Clean(g)
		if err != nil {
			return c.Stats(), next, err
		}
		if s == nil {
			continue
		}
		for _, old := range g {
			if err := old.Remove(); err != nil {
				l.t.Fatal(err)
			}
			l.set = l.set.Without(old.BaseOffset())
		}
		if err := s.Rename(""); err != nil {
			l.t.Fatal(err)
		}
		l.set = l.set.With(s)
	}
	return c.Stats(), next, nil
}

// show lists the batches: "base-last:" and the records, a marker as C or A, a batch with a horizon followed by its distance.
func (l *testLog) show() []string {
	l.t.Helper()
	var out []string
	for s := range l.set.All() {
		w := s.Scan(0)
		for w.Next() {
			b := w.Batch()
			line := fmt.Sprintf("%d-%d:", b.BaseOffset(), b.LastOffset())
			for r, err := range b.Records(record.Limits{}) {
				switch {
				case err != nil:
					l.t.Fatal(err)
				case b.Attributes().IsControl():
					line += " " + map[byte]string{0: "A", 1: "C"}[r.Key[3]]
				case r.Value == nil:
					line += fmt.Sprintf(" %d %s", r.Offset, r.Key)
				default:
					line += fmt.Sprintf(" %d %s=%s", r.Offset, r.Key, r.Value)
				}
			}
			if h, ok := b.DeleteHorizon(); ok {
				line += fmt.Sprintf(" +%d", h-testTime)
			}
			out = append(out, line)
		}
		if k := w.Tail().Kind; k != segment.CleanEnd {
			l.t.Fatalf("%s: %v", s.Path(), k)
		}
	}
	return out
}

func (l *testLog) aborted() (list []index.AbortedTxn) {
	l.t.Helper()
	for s := range l.set.All() {
		txns, _, err := s.AbortedTxns(0, math.MaxInt64)
		if err != nil {
			l.t.Fatal(err)
		}
		list = append(list, txns...)
	}
	return list
}

// onlyLast lets the batch that ends at an offset be the last of its producer.
func onlyLast(offset int64) func(r *Round) {
	return func(r *Round) { r.Producers.Last = []int64{offset} }
}

func TestClean_WhatStays(t *testing.T) {
	plain := record.BuilderOptions{}
	late := func(r *Round) { r.Now = r.Now.Add(time.Second) }
	for _, x := range []struct {
		name   string
		build  func(l *testLog)
		rounds []func(r *Round) // changes to each round, nil for none
		want   []string
	}{
		{"latest of each key", func(l *testLog) {
			l.add(l.batch(plain, "a=1", "b=1"), l.batch(plain, "a=2", "c=1", "a=3"))
			l.add(l.batch(plain, "b=2"))
		}, nil, []string{"2-4: 3 c=1 4 a=3", "5-5: 5 b=2"}},
		{"an empty key is one, no key goes", func(l *testLog) {
			w := record.NewBuilder(plain)
			for range 2 {
				if err := w.Append(testTime, record.Record{Key: []byte{}, Value: []byte("x")}); err != nil {
					l.t.Fatal(err)
				}
			}
			b, err := w.Batch()
			if err != nil {
				l.t.Fatal(err)
			}
			l.add(b, l.batch(plain, "=1", "a=1"))
		}, nil, []string{"0-1: 1 =x", "2-3: 3 a=1"}},
		{"a deletion gets a horizon", func(l *testLog) {
			l.add(l.batch(plain, "a=1", "b=1"), l.batch(plain, "a"))
		}, nil, []string{"0-1: 1 b=1", "2-2: 2 a +1000"}},
		{"before the horizon it stays, and the horizon too", func(l *testLog) {
			l.add(l.batch(plain, "a=1"), l.batch(plain, "a", "c=1"))
		}, []func(r *Round){nil, func(r *Round) { r.Now = r.Now.Add(999 * time.Millisecond) }}, []string{"1-2: 1 a 2 c=1 +1000"}},
		{"at the horizon it goes", func(l *testLog) {
			l.add(l.batch(plain, "a=1"), l.batch(plain, "a", "c=1"))
		}, []func(r *Round){nil, late}, []string{"1-2: 2 c=1 +1000"}},
		{"the last batch of a producer stays, empty", func(l *testLog) {
			l.add(l.batch(producer(1, 0), "a=1", "b=1"), l.batch(producer(1, 2), "a=2"), l.batch(plain, "a=3", "b=2"))
		}, []func(r *Round){func(r *Round) { r.Producers.Last = []int64{2} }}, []string{"2-2:", "3-4: 3 a=3 4 b=2"}},
		{"what ends at the high watermark stays, empty", func(l *testLog) {
			l.add(l.batch(plain, "a=1"), l.batch(plain, "b=1"), l.batch(plain, "a=3", "b=2"))
		}, []func(r *Round){func(r *Round) { r.HighWatermark = 2 }}, []string{"1-1:", "2-3: 2 a=3 3 b=2"}},
		{"a record that is asked for stays", func(l *testLog) {
			l.add(l.batch(producer(1, 0), "a=1", "a=2"), l.batch(plain, "a=3"))
		}, []func(r *Round){func(r *Round) { r.Producers = Producers{Last: []int64{1}, Whole: []int64{1}} }}, []string{"0-1: 1 a=2", "2-2: 2 a=3"}},
		{"a marker goes one round after its data and the horizon", func(l *testLog) {
			l.add(l.batch(inTxn(1, 0), "a=1"), marker(1, record.Commit), l.batch(plain, "a=2"))
		}, []func(r *Round){nil, nil, late}, []string{"2-2: 2 a=2"}},
		{"a marker has a horizon when its data is gone", func(l *testLog) {
			l.add(l.batch(inTxn(1, 0), "a=1"), marker(1, record.Commit), l.batch(plain, "a=2"))
		}, []func(r *Round){nil, nil}, []string{"1-1: C +1000", "2-2: 2 a=2"}},
		{"the marker of a producer without batches stays, empty", func(l *testLog) {
			l.add(marker(1, record.Commit), l.batch(plain, "a=2"))
		}, []func(r *Round){nil, func(r *Round) { late(r); r.Producers.Markers = map[int64]int16{1: 0} }}, []string{"0-0:", "1-1: 1 a=2"}},
		{"a key like that of a marker is none", func(l *testLog) {
			l.add(l.batch(inTxn(1, 0), "a=1"), marker(1, record.Commit), l.batch(plain, "\x00\x00\x00\x01=x"))
		}, nil, []string{"0-0: 0 a=1", "1-1: C", "2-2: 2 \x00\x00\x00\x01=x"}},
		{"a marker stays with an empty batch of its transaction, also in another segment", func(l *testLog) {
			l.add(l.batch(inTxn(1, 0), "a=1"))
			l.add(marker(1, record.Commit), l.batch(plain, "a=2"))
		}, []func(r *Round){onlyLast(0), onlyLast(0), func(r *Round) { late(r); onlyLast(0)(r) }}, []string{"0-0:", "1-1: C", "2-2: 2 a=2"}},
		{"it goes when a later batch of the producer is there", func(l *testLog) {
			l.add(l.batch(inTxn(1, 0), "a=1"))
			l.add(marker(1, record.Commit), l.batch(plain, "a=2"))
		}, []func(r *Round){onlyLast(0), nil, late, func(r *Round) { r.Now = r.Now.Add(3 * time.Second) }}, []string{"2-2: 2 a=2"}},
		{"of batches with the same sequences the one with the last offset stays", func(l *testLog) {
			l.add(l.batch(producer(1, 0), "a=1"), l.batch(producer(1, 0), "a=2"), l.batch(plain, "a=3"))
		}, []func(r *Round){onlyLast(1)}, []string{"1-1:", "2-2: 2 a=3"}},
		{"batches of which nothing stays, one after the other", func(l *testLog) {
			var list []record.Batch
			for range 50 {
				list = append(list, l.batch(plain, "a="+strings.Repeat("x", 5000)))
			}
			l.add(append(list, l.batch(plain, "a=1"))...)
		}, nil, []string{"50-50: 50 a=1"}},
		{"an emptied marker is not missed", func(l *testLog) {
			m := marker(1, record.Abort)
			l.add(record.AppendEmptied(nil, m), l.batch(plain, "a=2"))
		}, nil, []string{"1-1: 1 a=2"}},
		{"what is not dirty loses what is", func(l *testLog) {
			l.add(l.batch(plain, "a=1"))
			l.add(l.batch(plain, "b=1", "a=2"))
		}, []func(r *Round){func(r *Round) { r.FirstDirty = 1 }}, []string{"1-2: 1 b=1 2 a=2"}},
		{"what lies behind the bound stays and replaces nothing", func(l *testLog) {
			l.add(l.batch(plain, "a=1", "a=2"))
			l.add(l.batch(plain, "a=3", "a=4"))
		}, []func(r *Round){func(r *Round) { r.End = 2 }}, []string{"0-1: 1 a=2", "2-3: 2 a=3 3 a=4"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			l := newTestLog(t)
			x.build(l)
			rounds := x.rounds
			if rounds == nil {
				rounds = []func(*Round){nil}
			}
			for _, change := range rounds {
				r := l.round()
				if change != nil {
					change(&r)
				}
				if _, next, err := l.clean(l.options(), r); err != nil || next != r.End {
					t.Fatalf("next %d, want %d, %v", next, r.End, err)
				}
			}
			if diff := cmp.Diff(x.want, l.show()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Aborted data goes in the first round, and replaces nothing; the index lists the transaction as long as a batch of it
// was seen; then the marker gets its horizon, and goes.
func TestClean_AbortedTransaction(t *testing.T) {
	l := newTestLog(t)
	plain := record.BuilderOptions{}
	first := l.add(l.batch(plain, "a=1"), l.batch(inTxn(7, 0), "a=2", "b=1"))
	l.add(l.batch(inTxn(7, 2), "c=1"), marker(7, record.Abort), l.batch(plain, "d=1"))
	second, _ := l.set.Get(3)
	entry := index.AbortedTxn{ProducerID: 7, FirstOffset: 1, LastOffset: 4, LastStableOffset: 5}
	if err := second.AppendAborted(entry); err != nil {
		t.Fatal(err)
	}
	_ = first
	for i, x := range []struct {
		after time.Duration
		want  []string
		index []index.AbortedTxn
	}{
		{0, []string{"0-0: 0 a=1", "4-4: A", "5-5: 5 d=1"}, []index.AbortedTxn{entry}},
		{0, []string{"0-0: 0 a=1", "4-4: A +1000", "5-5: 5 d=1"}, nil},
		{500 * time.Millisecond, []string{"0-0: 0 a=1", "4-4: A +1000", "5-5: 5 d=1"}, nil},
		{time.Second, []string{"0-0: 0 a=1", "5-5: 5 d=1"}, nil},
	} {
		r := l.round()
		r.Now = r.Now.Add(x.after)
		if _, _, err := l.clean(l.options(), r); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(x.want, l.show()) + cmp.Diff(x.index, l.aborted()); diff != "" {
			t.Errorf("round %d:\n%s", i, diff)
		}
	}
}

// The last batch of a producer stays although it was aborted, and with it the marker and the entry of the index.
func TestClean_AbortedBatchThatIsTheLast(t *testing.T) {
	l := newTestLog(t)
	s := l.add(l.batch(inTxn(7, 0), "a=1"), marker(7, record.Abort), l.batch(record.BuilderOptions{}, "b=1"))
	entry := index.AbortedTxn{ProducerID: 7, FirstOffset: 0, LastOffset: 1, LastStableOffset: 2}
	if err := s.AppendAborted(entry); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		r := l.round()
		r.Now = r.Now.Add(time.Duration(i) * time.Hour)
		r.Producers.Last = []int64{0}
		if _, _, err := l.clean(l.options(), r); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"0-0:", "1-1: A", "2-2: 2 b=1"}, l.show()) + cmp.Diff([]index.AbortedTxn{entry}, l.aborted()); diff != "" {
			t.Errorf("round %d:\n%s", i, diff)
		}
	}
}

// A transaction that its marker aborts and no index lists would be taken for a committed one, and its records for later
// values of their keys.
func TestClean_UnlistedAbortChangesNothing(t *testing.T) {
	l := newTestLog(t)
	l.add(l.batch(record.BuilderOptions{}, "a=1"), l.batch(inTxn(7, 0), "a=2"), marker(7, record.Abort))
	before := l.show()
	_, _, err := l.clean(l.options(), l.round())
	var unlisted *UnlistedAbortError
	if !errors.As(err, &unlisted) || unlisted.ProducerID != 7 || unlisted.Offset != 2 || !strings.Contains(unlisted.Path, ".log") {
		t.Errorf("%v", err)
	}
	if diff := cmp.Diff(before, l.show()); diff != "" {
		t.Error(diff)
	}
}

// Two keys with one hash are two keys.
func TestClean_CollidingHashesLoseNothing(t *testing.T) {
	l := newTestLog(t)
	var all []string
	for i := range 100 {
		all = append(all, fmt.Sprintf("key-%d=%d", i, i))
	}
	l.add(l.batch(record.BuilderOptions{}, all...))
	before := l.show()
	r := l.round()
	c := New(l.options(), r)
	c.keys.hash = func([]byte) uint64 { return 42 }
	if _, err := c.Index(); err != nil {
		t.Fatal(err)
	}
	groups, err := c.Groups()
	if err != nil {
		t.Fatal(err)
	}
	if s, err := c.Clean(groups[0]); err != nil || s != nil {
		t.Fatalf("%v, %v: want nothing to change", s, err)
	}
	if diff := cmp.Diff(before, l.show()); diff != "" || c.Stats().Keys != 100 || c.Stats().RecordsKept != 100 {
		t.Errorf("%+v %s", c.Stats(), diff)
	}
}

// With room for one batch of keys the log is compacted all the same, a batch a round.
func TestClean_SmallMap(t *testing.T) {
	l := newTestLog(t)
	var batches []record.Batch
	want := map[string]string{}
	for i := range 40 {
		key, value := fmt.Sprintf("k%d", i%7), fmt.Sprint(i)
		batches = append(batches, l.batch(record.BuilderOptions{}, key+"="+value, strings.Repeat(key, 600)+"=x"))
		want[key] = value
	}
	l.add(batches[:20]...)
	l.add(batches[20:]...)
	o, rounds := l.options(), 0
	o.MapBytes = 2000
	for from := int64(0); from < l.next; rounds++ {
		r := l.round()
		r.FirstDirty = from
		s, next, err := l.clean(o, r)
		if err != nil || next <= from || s.MapFull != (next < l.next) {
			t.Fatalf("from %d to %d, %+v, %v", from, next, s, err)
		}
		from = next
	}
	if rounds < 10 {
		t.Errorf("%d rounds", rounds)
	}
	kept := 0
	for _, line := range l.show() {
		for _, r := range strings.Fields(line)[1:] {
			if key, value, ok := strings.Cut(r, "="); ok && len(key) < 4 {
				kept++
				if want[key] != value {
					t.Errorf("%s, want %s", r, want[key])
				}
			}
		}
	}
	if kept != len(want) {
		t.Errorf("%d keys, want %d", kept, len(want))
	}
}

func TestGroups(t *testing.T) {
	sizes := func(o Options, r Round, l *testLog) (out []int) {
		c := New(o, r)
		if _, err := c.Index(); err != nil {
			t.Fatal(err)
		}
		groups, err := c.Groups()
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range groups {
			out = append(out, len(g))
		}
		return out
	}
	l := newTestLog(t)
	one := l.batch(record.BuilderOptions{}, "a=1", "b=1", "c=1")
	for range 5 {
		l.add(bytes.Clone(one), bytes.Clone(one))
	}
	o := l.options()
	size := int64(2 * len(one))
	for _, x := range []struct {
		name string
		set  func(o *Options, r *Round)
		want []int
	}{
		{"all", func(*Options, *Round) {}, []int{5}},
		{"two fit", func(o *Options, _ *Round) { o.SegmentBytes = 2 * size }, []int{2, 2, 1}},
		{"a byte less", func(o *Options, _ *Round) { o.SegmentBytes = 2*size - 1 }, []int{1, 1, 1, 1, 1}},
		{"offset indexes of one entry each", func(o *Options, _ *Round) { o.MaxIndexBytes = 36 }, []int{3, 2}},
		{"up to the bound", func(_ *Options, r *Round) { r.End = 18 }, []int{3}},
	} {
		o, r := o, l.round()
		x.set(&o, &r)
		if got := sizes(o, r, l); !slices.Equal(got, x.want) {
			t.Errorf("%s: %v, want %v", x.name, got, x.want)
		}
	}
	// Offsets must fit 31 bits from the first one of the group.
	far := newTestLog(t)
	far.add(far.batch(record.BuilderOptions{}, "a=1"))
	far.next = math.MaxInt32
	far.add(far.batch(record.BuilderOptions{}, "b=1"))
	far.add(far.batch(record.BuilderOptions{}, "c=1"))
	if got := sizes(far.options(), far.round(), far); !slices.Equal(got, []int{2, 1}) {
		t.Errorf("far offsets: %v", got)
	}
}
