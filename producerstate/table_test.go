package producerstate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"
)

func TestProducer_Size(t *testing.T) {
	if n := unsafe.Sizeof(producer{}); n != 160 {
		t.Errorf("a producer takes %d bytes", n)
	}
}

// The table against a map, with ids of every kind, through growth, removal and reuse of slots.
func TestTable_Model(t *testing.T) {
	const seed = 3
	r := rand.New(rand.NewPCG(seed, seed))
	ids := []func() int64{
		func() int64 { return r.Int64N(4000) },      // dense
		func() int64 { return r.Int64N(500) << 40 }, // differ in high bits only
		func() int64 { return math.MaxInt64 - r.Int64N(500) },
		func() int64 { return MinNamedProducerID + r.Int64()>>2 },
	}
	tb := newTable()
	model := map[int64]int16{}
	for step := range 300_000 {
		id := ids[r.IntN(len(ids))]()
		slot, known := tb.find(id)
		epoch, want := model[id]
		if known != want || (known && (tb.at(slot).id != id || tb.at(slot).epoch != epoch)) {
			t.Fatalf("step %d: find(%d) = %d, %v; want %v", step, id, slot, known, want)
		}
		grow := step/50_000%2 == 0
		switch {
		case !known && (grow || r.IntN(4) == 0):
			p := unknown(id)
			p.epoch = int16(step)
			tb.add(p)
			model[id] = p.epoch
		case known && r.IntN(3) == 0 && !grow:
			tb.remove(slot)
			delete(model, id)
		case known:
			tb.mut(slot).epoch++
			model[id]++
		}
		if !grow && r.IntN(2000) == 0 {
			tb.shrink()
		}
		if r.IntN(5000) == 0 {
			frozen := tb.freeze()
			_ = frozen
		}
		if tb.live != len(model) || tb.index.live != len(model) {
			t.Fatalf("step %d: %d producers, want %d", step, tb.live, len(model))
		}
	}
	n := 0
	for p := range all(tb.chunks) {
		if model[p.id] != p.epoch {
			t.Fatalf("producer %d: epoch %d, want %d", p.id, p.epoch, model[p.id])
		}
		n++
	}
	if n != len(model) || n == 0 {
		t.Errorf("%d producers yielded, want %d", n, len(model))
	}
	for id := range model {
		slot, ok := tb.find(id)
		if !ok {
			t.Fatalf("producer %d is lost", id)
		}
		tb.remove(slot)
	}
	if tb.live != 0 || tb.index.live != 0 {
		t.Errorf("%d left", tb.live)
	}
	for _, v := range tb.index.items {
		if v != 0 {
			t.Fatal("an item is left in the index")
		}
	}
}

// A removal while the items are moving to a larger array must not bring the producer back.
func TestTable_RemoveWhileGrowing(t *testing.T) {
	for removed := range int64(60) {
		tb := newTable()
		for id := int64(0); tb.index.old == nil || tb.live < 48; id++ {
			tb.add(unknown(id))
		}
		n := tb.live
		slot, ok := tb.find(removed)
		if !ok {
			continue
		}
		tb.remove(slot)
		for id := int64(1000); id < 1400; id++ {
			tb.add(unknown(id))
			if _, back := tb.find(removed); back {
				t.Fatalf("producer %d came back", removed)
			}
		}
		for id := range int64(n) {
			if _, ok := tb.find(id); ok == (id == removed) {
				t.Fatalf("producer %d after %d was removed: %v", id, removed, ok)
			}
		}
	}
}

// What is frozen does not change, whatever happens to the table.
func TestFreeze_IsolatedFromLaterChanges(t *testing.T) {
	l := newLog(t, noTxnCheck)
	var frozen []*Frozen
	var states [][]Entry
	r := rand.New(rand.NewPCG(1, 2))
	seqs := map[int64]int32{}
	for range 4000 {
		pid := r.Int64N(900)
		l.ok(l.client(batchSpec{pid: pid, seq: seqs[pid]}))
		seqs[pid]++
		if r.IntN(200) == 0 {
			f := l.m.Freeze()
			frozen = append(frozen, f)
			states = append(states, slices.Collect(f.Entries()))
		}
		if r.IntN(300) == 0 {
			if slot, ok := l.m.table.find(pid); ok {
				l.m.table.remove(slot)
				delete(seqs, pid)
			}
		}
	}
	for i, f := range frozen {
		if !slices.Equal(slices.Collect(f.Entries()), states[i]) || f.Len() != len(states[i]) {
			t.Errorf("frozen view %d changed", i)
		}
	}
}

// Writing what was frozen goes on beside appends; the race detector watches.
func TestFreeze_WrittenBesideAppends(t *testing.T) {
	l := newLog(t, noTxnCheck)
	for pid := range int64(3000) {
		l.ok(l.client(batchSpec{pid: pid}))
	}
	f := l.m.Freeze()
	want := slices.Collect(f.Entries())
	done := make(chan error)
	go func() { done <- WritePair(l.fsys, testDir, f, goldenLast) }()
	for pid := range int64(3000) {
		l.ok(l.client(batchSpec{pid: pid, seq: 1}))
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	l.m.NoteSnapshot(f.Offset())
	s, err := ReadPair(l.fsys, testDir, f.Offset())
	if err != nil || !slices.Equal(slices.Collect(s.Entries()), want) {
		t.Errorf("read back: %v", err)
	}
}

// Growing to a million producers never makes one of them wait for all the others.
func TestTable_GrowsWithoutLongPauses(t *testing.T) {
	tb := newTable()
	var longest time.Duration
	copied := 0
	for id := range int64(1 << 20) {
		before := tb.index.oldNext
		start := time.Now()
		tb.add(unknown(id))
		longest = max(longest, time.Since(start))
		if tb.index.old != nil && before <= tb.index.oldNext {
			copied = max(copied, tb.index.oldNext-before)
		}
	}
	// Time depends on the machine; the work does not.
	if copied > moveStep {
		t.Errorf("one insertion moved %d items", copied)
	}
	t.Logf("longest insertion %v, %d bytes a producer", longest, tb.bytes()/int64(tb.live))
	if perProducer := float64(tb.bytes()) / float64(tb.live); perProducer > 184 {
		t.Errorf("%.1f bytes a producer", perProducer)
	}
}

func TestTable_ShrinksWhenFewAreLeft(t *testing.T) {
	tb := newTable()
	for id := range int64(100_000) {
		tb.add(unknown(id))
	}
	for id := range int64(100_000) {
		if id%100 != 0 {
			slot, _ := tb.find(id)
			tb.remove(slot)
		}
	}
	before := tb.bytes()
	tb.shrink()
	if tb.live != 1000 || tb.bytes()*20 > before {
		t.Errorf("%d producers in %d bytes, %d before", tb.live, tb.bytes(), before)
	}
	for id := int64(0); id < 100_000; id += 100 {
		if _, ok := tb.find(id); !ok {
			t.Fatalf("producer %d is lost", id)
		}
	}
}
