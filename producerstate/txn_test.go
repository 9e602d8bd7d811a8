package producerstate

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"
)

func TestTxn_FirstOffsetMetadataIsKept(t *testing.T) {
	l := newLog(t, noTxnCheck)
	l.m.Prepare(&l.a, AppendOptions{})
	at := OffsetMetadata{Offset: 992342, SegmentBase: 990000, Position: 234224}
	if _, _, err := l.a.Append(txn(1, 0, 0).batch(), at); err != nil {
		t.Fatal(err)
	}
	if _, ok := l.m.FirstUnstableOffset(); ok {
		t.Error("seen before it was published")
	}
	l.m.Publish(&l.a)
	if got, ok := l.m.FirstUnstableOffset(); !ok || got != at {
		t.Errorf("got %+v, %v", got, ok)
	}
}

func TestTxn_NonTransactionalInside(t *testing.T) {
	l := newLog(t, noTxnCheck)
	l.ok(l.client(txn(1, 0, 0)))
	for _, origin := range []Origin{Client, Coordinator, Replication, RaftLeader} {
		_, err := l.append(origin, batchSpec{pid: 1, seq: 1}.batch())
		var e *TxnStateError
		if !errors.As(err, &e) || !errors.Is(err, ErrInvalidTxnState) || e.FirstOffset != 0 || e.Offset != 1 {
			t.Errorf("%v: %v", origin, err)
		}
	}
	l.ok(l.client(txn(1, 0, 1)))
}

func TestTxn_UnstableAndUndecided(t *testing.T) {
	l := newLog(t, noTxnCheck)
	check := func(undecided, unstable int64) {
		t.Helper()
		u, ok := l.m.FirstUndecidedOffset()
		if !ok {
			u = -1
		}
		f, ok := l.m.FirstUnstableOffset()
		if !ok {
			f.Offset = -1
		}
		if u != undecided || f.Offset != unstable {
			t.Errorf("undecided %d, unstable %d; want %d, %d", u, f.Offset, undecided, unstable)
		}
	}
	check(-1, -1)
	l.next = 99
	l.ok(l.client(txn(1, 0, 0)))
	check(99, 99)
	l.next = 105
	l.ok(l.client(txn(2, 0, 0)))
	check(99, 99)
	l.next = 109
	l.ok(l.commit(1, 0, 0))
	check(105, 99)
	l.m.AdvanceHighWatermark(109)
	check(105, 99)
	l.m.AdvanceHighWatermark(110)
	check(105, 105)
	l.next = 112
	l.ok(l.abort(2, 0, 0))
	check(-1, 105)
	l.m.AdvanceHighWatermark(113)
	check(-1, -1)
	// The last stable offsets that belong to them: the next open transaction, or the offset behind the marker.
	if l.lso[0] != 105 || l.lso[1] != 113 {
		t.Errorf("last stable offsets %v", l.lso)
	}
}

// The transaction that is being completed is not the one that holds back its own last stable offset.
func TestTxn_LastStableOffsetSkipsOwn(t *testing.T) {
	l := newLog(t, noTxnCheck)
	l.ok(l.client(txn(1, 0, 0)))
	l.ok(l.client(txn(2, 0, 0)))
	l.ok(l.client(txn(3, 0, 0)))
	l.ok(l.abort(2, 0, 0))
	l.ok(l.abort(1, 0, 0))
	l.ok(l.abort(3, 0, 0))
	if l.lso[0] != 0 || l.lso[1] != 2 || l.lso[2] != 6 {
		t.Errorf("got %v", l.lso)
	}
}

func TestTxn_StartedAndEndedInOneCall(t *testing.T) {
	l := newLog(t, noTxnCheck)
	l.ok(l.append(Replication, txn(1, 0, 0).batch(), marker(1, 0, 0, 0, 5), txn(1, 0, 1).batch()))
	if len(l.ended) != 1 || l.ended[0] != (CompletedTxn{1, 0, 1, true}) {
		t.Errorf("completed %+v", l.ended)
	}
	if open := l.m.OpenTxns(); len(open) != 1 || open[0].First.Offset != 2 {
		t.Errorf("open %+v", open)
	}
	if decided := l.m.DecidedTxns(); len(decided) != 1 || decided[0].LastOffset != 1 {
		t.Errorf("decided %+v", decided)
	}
}

func TestTxn_CompleteUnknown(t *testing.T) {
	l := newLog(t, noTxnCheck)
	l.ok(l.client(txn(1, 0, 0)))
	if err := l.m.CompleteTxn(CompletedTxn{ProducerID: 1, FirstOffset: 5, LastOffset: 9}); !errors.Is(err, ErrUnknownTxn) {
		t.Errorf("got %v", err)
	}
	if len(l.m.OpenTxns()) != 1 {
		t.Error("it changed something")
	}
}

func TestTxn_Late(t *testing.T) {
	l := newLog(t, Config{SkipVerification: true, MaxTransactionTimeout: 10 * time.Minute})
	limit := (15 * time.Minute).Milliseconds()
	at := func(pid, ts int64) { l.ok(l.client(batchSpec{pid: pid, txn: true, timestamp: ts})) }
	late := func(now int64, want bool) {
		t.Helper()
		if got := l.m.HasLateTransaction(now); got != want {
			t.Errorf("at %d: %v", now, got)
		}
	}
	late(1<<40, false)
	at(1, 1000)
	at(2, 1500)
	late(1000+limit, false)
	late(1001+limit, true)
	l.ok(l.commit(1, 0, 0))
	late(1001+limit, false)
	late(1501+limit, true)
	l.ok(l.commit(2, 0, 0))
	late(1<<40, false)
}

// The two sets against plain ones, with transactions that end in any order.
func TestTxnSets_Model(t *testing.T) {
	const seed = 7
	r := rand.New(rand.NewPCG(seed, seed))
	var open openTxns
	var decided decidedTxns
	model := map[int64]int64{} // open: first offset to pid
	var done []Txn
	next := int64(0)
	for step := range 200_000 {
		switch x := r.IntN(100); {
		case x < 45 && len(model) < 300:
			pid := r.Int64N(50)
			open.put(pid, OffsetOnly(next))
			model[next] = pid
			next++
		case x < 90 && len(model) > 0:
			var first int64
			for first = range model { // any
				break
			}
			if x < 60 {
				o, _ := open.first()
				first = o.first.Offset
			}
			o, ok := open.remove(first)
			if !ok || o.pid != model[first] {
				t.Fatalf("step %d: remove(%d) = %+v, %v", step, first, o, ok)
			}
			if _, again := open.remove(first); again {
				t.Fatalf("step %d: removed twice", step)
			}
			delete(model, first)
			d := Txn{o.pid, o.first, next}
			decided.put(d)
			done = append(done, d)
			next++
		default:
			hw := next - r.Int64N(60)
			decided.removeBelow(hw)
			for len(done) > 0 && done[0].LastOffset < hw {
				done = done[1:]
			}
		}
		if open.len() != len(model) || decided.len() != len(done) {
			t.Fatalf("step %d: %d open, want %d; %d decided, want %d", step, open.len(), len(model), decided.len(), len(done))
		}
		if step%16 == 0 {
			checkFirsts(t, step, &open, &decided, model, done)
		}
	}
}

func checkFirsts(t *testing.T, step int, open *openTxns, decided *decidedTxns, model map[int64]int64, done []Txn) {
	t.Helper()
	least, other := int64(1<<62), int64(1<<62)
	for f := range model {
		least = min(least, f)
	}
	for f, pid := range model {
		if pid != model[least] {
			other = min(other, f)
		}
	}
	if o, ok := open.first(); ok != (len(model) > 0) || (ok && o.first.Offset != least) {
		t.Fatalf("step %d: first open %+v, want %d", step, o, least)
	}
	if o, ok := open.firstOther(model[least]); ok != (other < 1<<62) || (ok && o.first.Offset != other) {
		t.Fatalf("step %d: first of another %+v, want %d", step, o, other)
	}
	lowest := int64(1 << 62)
	for _, d := range done {
		lowest = min(lowest, d.First.Offset)
	}
	if d, ok := decided.first(); ok != (len(done) > 0) || (ok && d.First.Offset != lowest) {
		t.Fatalf("step %d: first decided %+v, want %d", step, d, lowest)
	}
}

// A marker that comes out of order is sorted in.
func TestDecidedTxns_OutOfOrder(t *testing.T) {
	var d decidedTxns
	for _, x := range [][2]int64{{5, 10}, {1, 30}, {3, 20}, {7, 5}} {
		d.put(Txn{First: OffsetOnly(x[0]), LastOffset: x[1]})
	}
	for i, want := range []int64{5, 10, 20, 30} {
		if d.txns[i].LastOffset != want {
			t.Errorf("place %d: %d", i, d.txns[i].LastOffset)
		}
	}
	for _, step := range [][2]int64{{6, 1}, {11, 1}, {21, 1}} {
		d.removeBelow(step[0])
		if f, ok := d.first(); !ok || f.First.Offset != step[1] {
			t.Errorf("below %d: %+v, %v", step[0], f, ok)
		}
	}
	d.removeBelow(31)
	if _, ok := d.first(); ok {
		t.Error("not empty")
	}
}
