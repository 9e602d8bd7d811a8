package wal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/record"
)

func openProducer(t testing.TB, l *Log, name string, startAt uint64) *Producer {
	t.Helper()
	p, err := l.Producer(name, ProducerOptions{StartAt: startAt})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// counted makes records whose values are their counts.
func counted(from uint64, n int) []Record {
	recs := make([]Record, n)
	for i := range recs {
		recs[i] = Record{Value: fmt.Append(nil, from+uint64(i))}
	}
	return recs
}

func TestNamedProducerID(t *testing.T) {
	// XXH64 with seed 0, from its specification.
	for name, want := range map[string]int64{"": 1<<62 | 0xef46db3751d8e999&(1<<62-1), "a": 1<<62 | 0xd24ec4f1a98c6e5b&(1<<62-1)} {
		if got := NamedProducerID(name); got != want {
			t.Errorf("%q: %#x, want %#x", name, got, want)
		}
	}
}

func TestProducer_RetryAfterRestart(t *testing.T) {
	for _, mode := range modes {
		for _, clean := range []bool{true, false} {
			t.Run(fmt.Sprint(mode, "/clean=", clean), func(t *testing.T) {
				dir := t.TempDir()
				l := openTest(t, dir, Options{Sync: mode})
				p := openProducer(t, l, "orders", 0)
				if n := p.NextSequence(); n != 0 {
					t.Errorf("fresh name: next %d", n)
				}
				if r, err := p.Append(counted(0, 3)...); err != nil || r != (Result{First: 0, Last: 2}) {
					t.Fatalf("%+v, %v", r, err)
				}
				if _, err := l.Append(values("other")...); err != nil {
					t.Fatal(err)
				}
				if r, err := p.AppendAt(3, counted(3, 2)...); err != nil || r != (Result{First: 4, Last: 5}) {
					t.Fatalf("%+v, %v", r, err)
				}
				if clean {
					if err := l.Close(); err != nil {
						t.Fatal(err)
					}
				} else {
					abandon(t, l)
				}
				l = openTest(t, dir, Options{Sync: mode})
				p = openProducer(t, l, "orders", 0)
				if n := p.NextSequence(); n != 5 {
					t.Errorf("next %d after the restart, want 5", n)
				}
				// Another division into appends, most of it stored before.
				r, err := p.AppendAt(1, counted(1, 6)...)
				if err != nil || r != (Result{First: 6, Last: 7, Skipped: 4}) {
					t.Errorf("%+v, %v", r, err)
				}
				r, err = p.AppendAt(2, counted(2, 2)...)
				if err != nil || r != (Result{First: 2, Last: 4, Skipped: 2, Duplicate: true}) {
					t.Errorf("%+v, %v", r, err)
				}
				wantContents(t, l, 0, "0:0", "1:1", "2:2", "3:other", "4:3", "5:4", "6:5", "7:6")
			})
		}
	}
}

func TestProducer_CountsOutOfRange(t *testing.T) {
	dir := t.TempDir()
	l := openTest(t, dir, Options{})
	p := openProducer(t, l, "a", 100)
	check := func(count uint64, first, next uint64, kind error) {
		t.Helper()
		var e *CountError
		_, err := p.AppendAt(count, counted(count, 3)...)
		if !errors.As(err, &e) || *e != (CountError{Name: "a", Count: count, First: first, Next: next}) || !errors.Is(err, kind) {
			t.Errorf("append at %d: %v", count, err)
		}
		if errors.Is(err, ErrCountGap) == errors.Is(err, ErrCountTooLow) {
			t.Errorf("append at %d matches both kinds, or none", count)
		}
		other := first
		if count > next {
			other = next
		}
		for _, n := range []uint64{count, other} {
			if !strings.Contains(err.Error(), fmt.Sprint(n)) {
				t.Errorf("%v does not say %d", err, n)
			}
		}
	}
	check(99, 100, 100, ErrCountTooLow)
	check(101, 100, 100, ErrCountGap)
	if _, err := p.AppendAt(100, counted(100, 3)...); err != nil {
		t.Fatal(err)
	}
	check(99, 100, 103, ErrCountTooLow)
	check(104, 100, 103, ErrCountGap)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = openTest(t, dir, Options{})
	p = openProducer(t, l, "a", 7) // what is stored counts, not StartAt
	check(99, 100, 103, ErrCountTooLow)
	check(104, 100, 103, ErrCountGap)
	if n := p.NextSequence(); n != 103 {
		t.Errorf("next %d", n)
	}
}

// The first count has to survive although nothing but the batches says it.
func TestProducer_FirstCountAfterACrash(t *testing.T) {
	dir := t.TempDir()
	o := Options{SegmentBytes: 400}
	l := openTest(t, dir, o)
	if _, err := openProducer(t, l, "a", 50).Append(counted(50, 2)...); err != nil {
		t.Fatal(err)
	}
	abandon(t, l)
	// Nobody opens the name in this run, which ends in order.
	l = openTest(t, dir, o)
	for range 20 {
		if _, err := l.Append(values("something")...); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = openTest(t, dir, o)
	if n, ok := l.producers.NamedProducer(NamedProducerID("a")); !ok || n.FirstCount != 50 || n.Name != "" {
		t.Errorf("%+v", n)
	}
	p := openProducer(t, l, "a", 0)
	if _, err := p.AppendAt(49, counted(49, 1)...); !errors.Is(err, ErrCountTooLow) {
		t.Errorf("%v", err)
	}
	if n, _ := l.producers.NamedProducer(p.ID()); n.FirstCount != 50 || n.Name != "a" {
		t.Errorf("%+v", n)
	}
}

// Where no side file knows the first count the log is searched.
func TestProducer_FirstCountBySearch(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{SegmentBytes: 300})
	p := openProducer(t, l, "a", 50)
	for i := range 10 {
		if _, err := p.Append(counted(uint64(50+i), 1)...); err != nil {
			t.Fatal(err)
		}
	}
	l.mu.Lock()
	l.producers.ForgetNamed(p.ID())
	l.mu.Unlock()
	l.names.byID = nil
	p = openProducer(t, l, "a", 0)
	if n, _ := l.producers.NamedProducer(p.ID()); n.FirstCount != 50 || n.Name != "a" {
		t.Errorf("%+v", n)
	}
	if r, err := p.AppendAt(50, counted(50, 11)...); err != nil || r.Skipped != 10 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestProducer_Fencing(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{})
	a := openProducer(t, l, "a", 0)
	if _, err := a.Append(counted(0, 1)...); err != nil {
		t.Fatal(err)
	}
	b := openProducer(t, l, "a", 0)
	for _, f := range []func() (Result, error){
		func() (Result, error) { return a.Append(counted(1, 1)...) },
		func() (Result, error) { return a.AppendAt(0, counted(0, 1)...) },
		func() (Result, error) { return a.AppendWithPosition(nil, counted(1, 1)...) },
		func() (Result, error) { return a.AppendAsync(counted(1, 1)...).Wait(context.Background()) },
	} {
		if _, err := f(); !errors.Is(err, ErrFencedHandle) {
			t.Errorf("fenced handle: %v", err)
		}
	}
	if n := a.NextSequence(); n != 1 {
		t.Errorf("next %d of the fenced handle", n)
	}
	if r, err := b.Append(counted(1, 1)...); err != nil || r.First != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestProducer_NameConflicts(t *testing.T) {
	dir := t.TempDir()
	l := openTest(t, dir, Options{})
	id := NamedProducerID("a")
	// Nobody will find two names with one id by hand, so one of them is put in place.
	if _, err := l.AppendAsLeader(producerBatch(t, id, 0, 0, "x"), LeaderAppend{}); err != nil {
		t.Fatal(err)
	}
	if err := l.setNamed(producerstate.Named{ID: id, Name: "other"}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Producer("a", ProducerOptions{}); !errors.Is(err, ErrNameConflict) {
		t.Errorf("stored name: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = openTest(t, dir, Options{})
	if _, err := l.Producer("a", ProducerOptions{}); !errors.Is(err, ErrNameConflict) {
		t.Errorf("stored name after a restart: %v", err)
	}
	l.names.byID = map[int64]*name{NamedProducerID("b"): {name: "other"}}
	if _, err := l.Producer("b", ProducerOptions{}); !errors.Is(err, ErrNameConflict) {
		t.Errorf("open name: %v", err)
	}
}

func TestProducer_Refused(t *testing.T) {
	dir := t.TempDir()
	l := openTest(t, dir, Options{MaxMessageBytes: 200})
	for _, name := range []string{"", strings.Repeat("n", 65536)} {
		if _, err := l.Producer(name, ProducerOptions{}); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("name of %d bytes: %v", len(name), err)
		}
	}
	if _, err := l.Producer("a", ProducerOptions{StartAt: MaxCount}); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("StartAt: %v", err)
	}
	p := openProducer(t, l, strings.Repeat("n", 65535), 0)
	if _, err := p.Append(); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("no records: %v", err)
	}
	if _, err := p.AppendAt(0); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("no records: %v", err)
	}
	if _, err := p.Append(Record{Value: make([]byte, 300)}); !errors.Is(err, ErrMessageTooLarge) {
		t.Errorf("large record: %v", err)
	}
	// Of a name that stored nothing nothing is kept.
	if n := l.Stats().Producers.Named; n != 0 {
		t.Errorf("%d names", n)
	}
	if _, err := p.Append(counted(0, 1)...); err != nil {
		t.Fatal(err)
	}
	if n := l.Stats().Producers.Named; n != 1 {
		t.Errorf("%d names", n)
	}
	ro := openTest(t, dir, Options{ReadOnly: true})
	if _, err := ro.Producer("a", ProducerOptions{}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("read-only: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Append(counted(1, 1)...); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if _, err := l.Producer("a", ProducerOptions{}); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if n := p.NextSequence(); n != 1 {
		t.Errorf("next %d after Close", n)
	}
	if _, _, err := p.LastPosition(); !errors.Is(err, ErrClosed) {
		t.Errorf("position after Close: %v", err)
	}
	if _, _, err := p.Locate(0); !errors.Is(err, ErrClosed) {
		t.Errorf("locate after Close: %v", err)
	}
}

func TestProducer_EpochBorder(t *testing.T) {
	const border = 1 << 31
	dir := t.TempDir()
	l := openTest(t, dir, Options{})
	p := openProducer(t, l, "a", border-3)
	r, err := p.AppendAt(border-3, counted(border-3, 5)...)
	if err != nil || r != (Result{First: 0, Last: 4}) {
		t.Fatalf("%+v, %v", r, err)
	}
	first, err1 := l.batchAt(0)
	second, err2 := l.batchAt(3)
	if err1 != nil || err2 != nil || first.Count() != 3 || first.ProducerEpoch() != 0 || first.LastSequence() != 1<<31-1 ||
		second.Count() != 2 || second.ProducerEpoch() != 1 || second.BaseSequence() != 0 {
		t.Errorf("batches %v and %v", first, second)
	}
	r, err = p.AppendAt(border-1, counted(border-1, 4)...)
	if err != nil || r != (Result{First: 5, Last: 5, Skipped: 3}) {
		t.Errorf("%+v, %v", r, err)
	}
	// Of the epoch before, nothing is remembered; it can be found.
	r, err = p.AppendAt(border-3, counted(border-3, 2)...)
	if err != nil || r != (Result{First: -1, Last: -1, Skipped: 2, Duplicate: true}) {
		t.Errorf("%+v, %v", r, err)
	}
	if o, found, err := p.Locate(border - 2); o != 1 || !found || err != nil {
		t.Errorf("%d, %v, %v", o, found, err)
	}
	abandon(t, l)
	l = openTest(t, dir, Options{})
	p = openProducer(t, l, "a", 0)
	if n := p.NextSequence(); n != border+3 {
		t.Errorf("next %d", n)
	}
	if _, err := p.AppendAt(border-4, counted(border-4, 1)...); !errors.Is(err, ErrCountTooLow) {
		t.Errorf("%v", err)
	}
}

func TestProducer_LastCounts(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{})
	p := openProducer(t, l, "a", MaxCount-2)
	if _, err := p.Append(counted(MaxCount-2, 3)...); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("%v", err)
	}
	if r, err := p.Append(counted(MaxCount-2, 2)...); err != nil || r.Last != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if n := p.NextSequence(); n != MaxCount {
		t.Errorf("next %d", n)
	}
	if _, err := p.Append(counted(MaxCount, 1)...); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("%v", err)
	}
	if r, err := p.AppendAt(MaxCount-1, counted(MaxCount-1, 1)...); err != nil || !r.Duplicate || r.First != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if b, err := l.batchAt(0); err != nil || b.ProducerEpoch() != 32767 {
		t.Errorf("epoch %d, %v", b.ProducerEpoch(), err)
	}
}

func TestProducer_OffsetsOfDuplicates(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{SegmentBytes: 400})
	p, q := openProducer(t, l, "a", 10), openProducer(t, l, "b", 0)
	offsets := map[uint64]int64{}
	for i := range 8 {
		first := uint64(10 + 2*i)
		r, err := p.Append(counted(first, 2)...)
		if err != nil {
			t.Fatal(err)
		}
		offsets[first], offsets[first+1] = r.First, r.Last
		if _, err := q.Append(counted(uint64(i), 1)...); err != nil {
			t.Fatal(err)
		}
	}
	for count, want := range offsets {
		r, err := p.AppendAt(count, counted(count, 1)...)
		inMemory := count >= 16
		if !inMemory && r.First != -1 || inMemory && r.First != want || r.First != r.Last || !r.Duplicate || err != nil {
			t.Errorf("count %d: %+v, %v, want offset %d", count, r, err, want)
		}
		if o, found, err := p.Locate(count); o != want || !found || err != nil {
			t.Errorf("count %d: located at %d, %v, %v, want %d", count, o, found, err, want)
		}
	}
	for _, count := range []uint64{0, 9, 26, 1 << 40} {
		if o, found, err := p.Locate(count); found || err != nil {
			t.Errorf("count %d: located at %d, %v", count, o, err)
		}
	}
	r, err := p.AppendAt(14, counted(14, 12)...)
	if err != nil || r.First != -1 || r.Last != offsets[25] || r.Skipped != 12 {
		t.Errorf("half remembered: %+v, %v", r, err)
	}
}

func TestProducer_Transactional(t *testing.T) {
	dir := t.TempDir()
	l := openTest(t, dir, Options{})
	id := NamedProducerID("a")
	b := record.NewBuilder(record.BuilderOptions{Producer: &record.Producer{ID: id}, Transactional: true})
	if err := b.Append(1_700_000_000_000, record.Record{Value: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	batch, err := b.Batch()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.AppendAsLeader(slices.Clone(batch), LeaderAppend{}); err != nil {
		t.Fatal(err)
	}
	check := func(want error) {
		t.Helper()
		p := openProducer(t, l, "a", 0)
		for _, f := range []func() error{
			func() error { _, err := p.AppendAt(0, counted(0, 1)...); return err },
			func() error { _, err := p.AppendAt(1, counted(1, 1)...); return err },
			func() error { _, err := p.Append(counted(1, 1)...); return err },
		} {
			if err := f(); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
	}
	check(ErrTransactionalName)
	if _, err := l.AppendEndTxnMarker(record.Producer{ID: id}, record.EndTxnMarker{Type: record.Abort}, MarkerAppend{}); err != nil {
		t.Fatal(err)
	}
	check(ErrTransactionalName)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = openTest(t, dir, Options{})
	check(ErrTransactionalName)
	// The last batch tells.
	if _, err := l.AppendAsLeader(producerBatch(t, id, 0, 1, "y"), LeaderAppend{}); err != nil {
		t.Fatal(err)
	}
	p := openProducer(t, l, "a", 0)
	for range 2 {
		if _, err := p.Append(counted(2, 1)...); err != nil {
			t.Error(err)
		}
	}
}

func TestProducer_Position(t *testing.T) {
	dir := t.TempDir()
	for _, codec := range []record.Compression{record.None, record.Zstd} {
		o := Options{Compression: Compression{Codec: codec}}
		l := openTest(t, dir, o)
		name := "cdc" + codec.String()
		p := openProducer(t, l, name, 0)
		check := func(want string, wantFound bool) {
			t.Helper()
			got, found, err := p.LastPosition()
			if string(got) != want || found != wantFound || err != nil {
				t.Errorf("position %q, %v, %v, want %q, %v", got, found, err, want, wantFound)
			}
		}
		check("", false)
		headers := make([]record.Header, 1, 4)
		headers[0].Key = "mine"
		recs := []Record{{Value: []byte("1")}, {Value: []byte("2"), Headers: headers}}
		if _, err := p.AppendWithPosition([]byte("0/16B3748"), recs...); err != nil {
			t.Fatal(err)
		}
		if headers[0].Key != "mine" || headers[:2][1].Key != "" {
			t.Error("the caller's headers were written to")
		}
		for s := range l.Records(l.Offsets().LogEnd - 1) {
			if h := s.Headers; len(h) != 2 || h[0].Key != "mine" || h[1].Key != PositionHeader {
				t.Errorf("stored headers %+v", h)
			}
		}
		check("0/16B3748", true)
		if _, err := p.Append(values("3")...); err != nil {
			t.Fatal(err)
		}
		check("", false)
		if _, err := p.AppendWithPosition(nil, values("4")...); err != nil {
			t.Fatal(err)
		}
		check("", true)
		if _, err := p.AppendWithPosition([]byte("p5"), values("5")...); err != nil {
			t.Fatal(err)
		}
		abandon(t, l)
		l = openTest(t, dir, o)
		p = openProducer(t, l, name, 0)
		check("p5", true)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestProducer_PositionAtTheEpochBorder(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{})
	p := openProducer(t, l, "a", 1<<31-2)
	if _, err := p.AppendWithPosition([]byte("p0"), counted(1<<31-2, 1)...); err != nil {
		t.Fatal(err)
	}
	if _, err := p.AppendWithPosition([]byte("p1"), counted(1<<31-1, 2)...); err != nil {
		t.Fatal(err)
	}
	for offset, want := range []string{"p0", "p0", "p1"} {
		b, err := l.batchAt(int64(offset))
		if err != nil {
			t.Fatal(err)
		}
		for r := range b.Records(record.Limits{}) {
			if got, _ := positionOf(r.Headers); string(got) != want {
				t.Errorf("offset %d: position %q, want %q", offset, got, want)
			}
		}
	}
}

func TestProducer_ManyGoroutines(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			l := openTest(t, t.TempDir(), Options{Sync: mode, SegmentBytes: 20_000})
			p := openProducer(t, l, "a", 0)
			const workers, each = 8, 50
			var all sync.WaitGroup
			var mu sync.Mutex
			var results []Result
			for w := range workers {
				all.Go(func() {
					for i := range each {
						r, err := p.Append(values(fmt.Sprint(w, ".", i), "+")...)
						if err != nil {
							t.Error(err)
						}
						if n := p.NextSequence(); n < uint64(r.Last) {
							t.Errorf("next %d after offset %d was acknowledged", n, r.Last)
						}
						mu.Lock()
						results = append(results, r)
						mu.Unlock()
					}
				})
			}
			all.Wait()
			if n := p.NextSequence(); n != 2*workers*each {
				t.Errorf("next %d", n)
			}
			slices.SortFunc(results, func(a, b Result) int { return int(a.First - b.First) })
			for i, r := range results {
				if r.First != int64(2*i) || r.Last != int64(2*i+1) {
					t.Fatalf("append %d is %+v", i, r)
				}
			}
			seen := [workers]int{}
			for _, c := range contents(t, l, 0) {
				var offset int64
				var w, i int
				if n, _ := fmt.Sscanf(c, "%d:%d.%d", &offset, &w, &i); n != 3 {
					continue
				}
				if seen[w] != i {
					t.Fatalf("%s: worker %d was at %d", c, w, seen[w])
				}
				seen[w]++
			}
		})
	}
}
