package wal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
)

func named(t testing.TB, l *Log, name string) *Producer {
	t.Helper()
	return openProducer(t, l, name, 0)
}

func begin(t testing.TB, p *Producer, values ...string) *Transaction {
	t.Helper()
	txn, err := p.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		if _, err := txn.Append(Record{Value: []byte(v)}); err != nil {
			t.Fatal(err)
		}
	}
	return txn
}

// committed is what readers of committed records see.
func committed(t testing.TB, l *Log) (list []string) {
	t.Helper()
	for r, err := range l.Records(l.Offsets().LogStart) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, string(r.Value))
	}
	return list
}

func sees(t testing.TB, l *Log, want ...string) {
	t.Helper()
	if got := committed(t, l); !slices.Equal(got, want) {
		t.Errorf("readers see %q, want %q", got, want)
	}
}

func TestTransaction(t *testing.T) {
	for _, mode := range modes {
		for _, verify := range []bool{false, true} {
			o := Options{Sync: mode, VerifyTransactions: verify}
			l := openTest(t, t.TempDir(), o)
			p, q := named(t, l, "p"), named(t, l, "q")
			a, b := begin(t, p, "a1", "a2"), begin(t, q, "b1")
			put(t, l, Record{Value: []byte("plain")})
			sees(t, l)
			if err := b.Abort(); err != nil {
				t.Fatal(err)
			}
			if err := a.Commit(); err != nil {
				t.Fatal(err)
			}
			sees(t, l, "a1", "a2", "plain")
			for _, over := range []*Transaction{a, b} {
				_, err := over.Append(Record{})
				for _, err := range []error{err, over.Commit(), over.Abort()} {
					if !errors.Is(err, ErrInvalidTxnState) {
						t.Errorf("a transaction that is over: %v", err)
					}
				}
			}
			if err := begin(t, q, "b2").Commit(); err != nil {
				t.Fatal(err)
			}
			end := l.Offsets().LogEnd
			if err := begin(t, p).Commit(); err != nil || l.Offsets().LogEnd != end {
				t.Errorf("a transaction without records: %v, log end %d, was %d", err, l.Offsets().LogEnd, end)
			}
			l = reopenTest(t, l, o)
			sees(t, l, "a1", "a2", "plain", "b2")
			if txns := l.OpenTransactions(); len(txns) != 0 {
				t.Errorf("open: %+v", txns)
			}
			if err := begin(t, named(t, l, "p"), "a3").Commit(); err != nil {
				t.Fatal(err)
			}
			sees(t, l, "a1", "a2", "plain", "b2", "a3")
		}
	}
}

// A name is counted or transactional, and stays so.
func TestTransaction_NamesAreOfOneKind(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{})
	counted := named(t, l, "counted")
	if _, err := counted.Append(Record{}); err != nil {
		t.Fatal(err)
	}
	if _, err := counted.Begin(); !errors.Is(err, ErrCountedName) || !strings.Contains(err.Error(), "counted") {
		t.Errorf("begin of a counted name: %v", err)
	}
	p := named(t, l, "transactional")
	txn := begin(t, p)
	if _, err := p.Begin(); !errors.Is(err, ErrInvalidTxnState) {
		t.Errorf("a second transaction: %v", err)
	}
	refused := func(when string) {
		t.Helper()
		_, err := p.Append(Record{})
		_, errAt := p.AppendAt(0, Record{})
		if !errors.Is(err, ErrTransactionalName) || !errors.Is(errAt, ErrTransactionalName) {
			t.Errorf("%s: %v, %v", when, err, errAt)
		}
	}
	refused("begun")
	if _, err := txn.Append(Record{}); err != nil {
		t.Fatal(err)
	}
	refused("open")
	if err := txn.Abort(); err != nil {
		t.Fatal(err)
	}
	refused("aborted")
	if _, err := l.Producer("transactional", ProducerOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Begin(); !errors.Is(err, ErrFencedHandle) {
		t.Errorf("begin of an older handle: %v", err)
	}
}

// What is open when the process ends, or when its name is opened again, is aborted.
func TestTransaction_LeftOpen(t *testing.T) {
	for _, mode := range modes {
		o := Options{Sync: mode}
		l := openTest(t, t.TempDir(), o)
		p := named(t, l, "p")
		if err := begin(t, p, "kept").Commit(); err != nil {
			t.Fatal(err)
		}
		first := begin(t, p, "x")
		second := named(t, l, "p")
		if _, err := first.Append(Record{}); !errors.Is(err, ErrFencedHandle) {
			t.Errorf("append of the older handle: %v", err)
		}
		if err := first.Commit(); !errors.Is(err, ErrFencedHandle) {
			t.Errorf("commit of the older handle: %v", err)
		}
		sees(t, l, "kept")
		begin(t, second, "y", "z")
		put(t, l, Record{Value: []byte("plain")})
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		if h, held := l.HeldBack(); !held || h.Transaction.Name != "p" || h.LastStable != h.Transaction.FirstOffset || h.HighWatermark != l.Offsets().LogEnd {
			t.Errorf("held back: %v, %+v", held, h)
		}
		abandon(t, l)
		l = openTest(t, l.dir, Options{ReadOnly: true})
		sees(t, l, "kept")
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = openTest(t, l.dir, o)
		sees(t, l, "kept", "plain")
		if h, held := l.HeldBack(); held {
			t.Errorf("held back: %+v", h)
		}
	}
}

// A replica writes no marker of its own: the leader's will come. Once it appends under the name, it leads.
func TestTransaction_LeftOpenInAReplica(t *testing.T) {
	o := Options{ManualHighWatermark: true}
	l := openTest(t, t.TempDir(), o)
	begin(t, named(t, l, "p"), "x")
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	abandon(t, l)
	l = openTest(t, l.dir, o)
	if end := l.Offsets().LogEnd; end != 1 || len(l.OpenTransactions()) != 1 {
		t.Errorf("log end %d, open %+v", end, l.OpenTransactions())
	}
	named(t, l, "p")
	if end := l.Offsets().LogEnd; end != 2 || len(l.OpenTransactions()) != 0 {
		t.Errorf("log end %d, open %+v", end, l.OpenTransactions())
	}
}

func TestTransaction_LastPosition(t *testing.T) {
	o := Options{SegmentBytes: 300}
	l := openTest(t, t.TempDir(), o)
	check := func(p *Producer, want string) {
		t.Helper()
		if got, found, err := p.LastPosition(); err != nil || found != (want != "") || string(got) != want {
			t.Errorf("position %q, %v, %v, want %q", got, found, err, want)
		}
	}
	p := named(t, l, "p")
	check(p, "")
	with := func(position string) *Transaction {
		txn := begin(t, p, "first")
		if _, err := txn.AppendWithPosition([]byte(position), Record{Value: make([]byte, 150)}); err != nil {
			t.Fatal(err)
		}
		return txn
	}
	if err := with("aborted").Abort(); err != nil {
		t.Fatal(err)
	}
	check(p, "")
	if err := with("at 10").Commit(); err != nil {
		t.Fatal(err)
	}
	check(p, "at 10")
	for range 5 {
		if err := with("aborted").Abort(); err != nil {
			t.Fatal(err)
		}
	}
	with("open")
	check(p, "at 10")
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	abandon(t, l)
	l = openTest(t, l.dir, o)
	p = named(t, l, "p")
	check(p, "at 10")
	if l.set.Len() < 5 {
		t.Errorf("%d segments: the search was not put to work", l.set.Len())
	}
	// Its records deleted, the position is not known any more; that is not the same as none.
	if _, err := l.IncrementLogStartOffset(l.Offsets().LogEnd); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.LastPosition(); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("after its records were deleted: %v", err)
	}
}

// A transaction goes on over the border of an epoch, and over a roll.
func TestTransaction_OverAnEpoch(t *testing.T) {
	for _, verify := range []bool{false, true} {
		l := openTest(t, t.TempDir(), Options{SegmentBytes: 400, VerifyTransactions: verify})
		p, err := l.Producer("p", ProducerOptions{StartAt: 1<<31 - 3})
		if err != nil {
			t.Fatal(err)
		}
		txn := begin(t, p)
		var want []string
		for i := range 5 {
			var recs []Record
			for j := range 2 {
				want = append(want, fmt.Sprint(i, j))
				recs = append(recs, Record{Value: []byte(fmt.Sprint(i, j))})
			}
			if _, err := txn.Append(recs...); err != nil {
				t.Fatal(err)
			}
		}
		sees(t, l)
		if err := txn.Commit(); err != nil {
			t.Fatal(err)
		}
		sees(t, l, want...)
		if err := begin(t, p, "x").Abort(); err != nil {
			t.Fatal(err)
		}
		sees(t, l, want...)
	}
}

// Somebody who ends the transaction from outside ends the handle's.
func TestTransaction_EndedFromOutside(t *testing.T) {
	for name, end := range map[string]func(l *Log, p *Producer) error{
		"abort": func(l *Log, p *Producer) error { _, err := l.AbortTransaction(p.ID()); return err },
		"marker": func(l *Log, p *Producer) error {
			_, err := l.AppendEndTxnMarker(record.Producer{ID: p.ID()}, record.EndTxnMarker{Type: record.Abort}, MarkerAppend{})
			return err
		},
		"truncation": func(l *Log, p *Producer) error { _, err := l.TruncateTo(0); return err },
	} {
		l := openTest(t, t.TempDir(), Options{})
		p := named(t, l, "p")
		txn := begin(t, p, "x")
		if err := end(l, p); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_, err := txn.Append(Record{})
		for _, err := range []error{err, txn.Commit(), txn.Abort()} {
			if !errors.Is(err, ErrInvalidTxnState) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := begin(t, p, "y").Commit(); err != nil {
			t.Errorf("%s: the next one: %v", name, err)
		}
		sees(t, l, "y")
	}
}

// A hanging transaction of any producer is listed, said to be late, and can be ended.
func TestAbortTransaction_Hanging(t *testing.T) {
	now := start
	l := openTest(t, t.TempDir(), Options{Now: func() time.Time { return now }})
	put(t, l, Record{Value: []byte("before")})
	if _, err := l.AppendAsLeader(txnRecord(t, record.Producer{ID: 7, Epoch: 3}), LeaderAppend{}); err != nil {
		t.Fatal(err)
	}
	put(t, l, Record{Value: []byte("behind")})
	sees(t, l, "before")
	h, held := l.HeldBack()
	if !held || h.LastStable != 1 || h.HighWatermark != 3 || h.Ended || h.MarkerOffset != -1 || h.Transaction.ProducerID != 7 ||
		h.Transaction.Epoch != 3 || h.Transaction.CoordinatorEpoch != -1 || h.Transaction.FirstOffset != 1 || h.Transaction.Late {
		t.Errorf("%v, %+v", held, h)
	}
	now = now.Add(21 * time.Minute)
	if txns := l.OpenTransactions(); len(txns) != 1 || !txns[0].Late {
		t.Errorf("%+v", txns)
	}
	if _, err := l.AbortTransaction(8); !errors.Is(err, ErrInvalidTxnState) {
		t.Errorf("a producer without a transaction: %v", err)
	}
	if _, err := l.AbortTransaction(7); err != nil {
		t.Fatal(err)
	}
	sees(t, l, "before", "behind")
	if _, held := l.HeldBack(); held {
		t.Error("still held back")
	}
	if _, err := l.AbortTransaction(7); !errors.Is(err, ErrInvalidTxnState) {
		t.Errorf("again: %v", err)
	}
}

// A transaction whose marker is not replicated holds readers back as well.
func TestHeldBack_NotReplicated(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{ManualHighWatermark: true})
	if err := begin(t, named(t, l, "p"), "x", "y").Commit(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.UpdateHighWatermark(2); err != nil {
		t.Fatal(err)
	}
	if h, held := l.HeldBack(); !held || !h.Ended || h.MarkerOffset != 2 || h.LastStable != 0 || h.HighWatermark != 2 || h.Transaction.Name != "p" {
		t.Errorf("%v, %+v", held, h)
	}
	if _, err := l.UpdateHighWatermark(3); err != nil {
		t.Fatal(err)
	}
	if _, held := l.HeldBack(); held {
		t.Error("still held back")
	}
}

// A full disk refuses an append, and the transaction goes on.
func TestTransaction_FullDisk(t *testing.T) {
	l, mem := openMem(t, Options{Sync: SyncNone, manual: true})
	txn := begin(t, named(t, l, "p"), "x")
	mem.SetCapacity(mem.Used())
	var err error
	for err == nil {
		_, err = txn.Append(Record{Value: make([]byte, 100_000)})
	}
	if errors.Is(err, ErrFailed) || errors.Is(err, ErrInvalidTxnState) {
		t.Fatal(err)
	}
	mem.SetCapacity(mem.Used() + 10<<20)
	if err := txn.Commit(); err != nil {
		t.Fatal(err)
	}
	if got := committed(t, l); len(got) == 0 || got[0] != "x" {
		t.Errorf("%d records", len(got))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = OpenFS(context.Background(), mem.Crash(vfstest.CrashOptions{}), simDir, Options{manual: true}); err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}

// Several goroutines in a transaction, several names at once: each reader sees whole transactions only.
func TestTransaction_Concurrent(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{Sync: SyncNone, SegmentBytes: 4000})
	var wg sync.WaitGroup
	for n := range 3 {
		p := named(t, l, fmt.Sprint("p", n))
		wg.Go(func() {
			for i := range 20 {
				txn, err := p.Begin()
				if err != nil {
					t.Error(err)
					return
				}
				var in sync.WaitGroup
				for j := range 3 {
					in.Go(func() {
						if _, err := txn.Append(Record{Value: []byte(fmt.Sprint(n, " ", i, " ", j))}); err != nil {
							t.Error(err)
						}
					})
				}
				in.Wait()
				end := txn.Commit
				if i%3 == 0 {
					end = txn.Abort
				}
				if err := end(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	count := map[string]int{}
	for _, v := range committed(t, l) {
		count[v[:strings.LastIndex(v, " ")]]++
	}
	if len(count) != 3*13 {
		t.Errorf("%d transactions are there", len(count))
	}
	for txn, n := range count {
		var i int
		if _, err := fmt.Sscanf(txn, "%d %d", new(int), &i); err != nil || n != 3 || i%3 == 0 {
			t.Errorf("transaction %s: %d records", txn, n)
		}
	}
}

// A reader in another process sees a transaction when it is committed, and learns what it waits for.
func TestTransaction_SeenByAReaderBeside(t *testing.T) {
	for _, mode := range modes {
		o := Options{Sync: mode}
		w := openTest(t, t.TempDir(), o)
		p := named(t, w, "p")
		if err := begin(t, p, "a").Commit(); err != nil {
			t.Fatal(err)
		}
		r := openTest(t, w.dir, Options{ReadOnly: true})
		look := func(want ...string) {
			t.Helper()
			if err := errors.Join(w.Flush(), r.Refresh(t.Context())); err != nil {
				t.Fatal(err)
			}
			sees(t, r, want...)
		}
		look("a")
		txn := begin(t, p, "b", "c")
		put(t, w, Record{Value: []byte("plain")})
		look("a")
		if h, held := r.HeldBack(); !held || h.Transaction.ProducerID != p.ID() || h.LastStable != 2 || h.HighWatermark != 5 {
			t.Errorf("%v: held back: %v, %+v", mode, held, h)
		}
		if err := txn.Commit(); err != nil {
			t.Fatal(err)
		}
		look("a", "b", "c", "plain")
		if h, held := r.HeldBack(); held {
			t.Errorf("%v: held back: %+v", mode, h)
		}
		begin(t, p, "x")
		look("a", "b", "c", "plain")
		abandon(t, w)
		w = openTest(t, w.dir, o)
		put(t, w, Record{Value: []byte("behind")})
		look("a", "b", "c", "plain", "behind")
		if _, err := r.AbortTransaction(p.ID()); !errors.Is(err, ErrReadOnly) {
			t.Errorf("%v: a reader that aborts: %v", mode, err)
		}
		if _, err := r.Pin(0, "x"); !errors.Is(err, ErrReadOnly) {
			t.Errorf("%v: a reader that pins: %v", mode, err)
		}
		if plan, err := r.ExplainRetention(time.Now()); err != nil || len(plan) != 1 {
			t.Errorf("%v: a reader that asks: %+v, %v", mode, plan, err)
		}
	}
}
