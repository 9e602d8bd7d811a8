package producerstate

import (
	"flag"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
)

// Every history of two producers with two epochs, around the wrap of the sequences: appends, transactions, markers,
// snapshots, restarts and lost tails up to a depth. In each state reached, the state is compared with the naive model and
// with a replay of the whole log, and every batch of the log is sent again, with its neighbours.
func TestExhaustive(t *testing.T) {
	x := &explorer{t: t}
	// Once from nothing, and once with the ring nearly full.
	for _, before := range []int{0, 4} {
		w := x.start()
		for i := range int32(before) {
			o := op{batchSpec: batchSpec{seq: record.IncrementSequence(firstSequence, i)}}
			if _, err := x.append(w, Client, o, true); err != nil {
				t.Fatal(err)
			}
			w.path += " append0"
		}
		x.visit(w, *depthFlag)
	}
	t.Logf("depth %d: %d states, %d answers checked, %d restarts", *depthFlag, x.states, x.answers, x.restarts)
	if x.states < 1000 {
		t.Errorf("only %d states", x.states)
	}
}

var depthFlag = flag.Int("depth", 5, "how many steps TestExhaustive takes")

type explorer struct {
	t                         *testing.T
	states, answers, restarts int
}

// world is one state: the package's and the model's.
type world struct {
	mem   *vfstest.Mem
	m     *Manager
	model *naive
	log   []event
	next  int64
	path  string
}

const firstSequence = math.MaxInt32 - 1 // so that the third batch wraps

func (x *explorer) start() *world {
	mem := newMemDir(x.t)
	m, err := Open(mem, testDir, noTxnCheck)
	if err != nil {
		x.t.Fatal(err)
	}
	return &world{mem: mem, m: m, model: unverified()}
}

func unverified() *naive {
	n := newNaive(false)
	n.skip = true
	return n
}

// clone copies a world. The file system is shared: whoever writes to it takes a copy first.
func (w *world) clone(step string) *world {
	c := *w
	m := *w.m
	m.fsys = w.mem
	m.table = &table{}
	*m.table = *w.m.table
	m.table.index.items = slices.Clone(w.m.table.index.items)
	m.table.index.old = slices.Clone(w.m.table.index.old)
	m.table.chunks = nil
	for _, chunk := range w.m.table.chunks {
		m.table.chunks = append(m.table.chunks, append(make([]producer, 0, cap(chunk)), chunk...))
	}
	m.table.shared = slices.Clone(w.m.table.shared)
	m.open.txns = slices.Clone(w.m.open.txns)
	m.decided.txns, m.decided.lows = slices.Clone(w.m.decided.txns), slices.Clone(w.m.decided.lows)
	m.snapshots = slices.Clone(w.m.snapshots)
	c.m, c.model, c.log = &m, w.model.clone(), slices.Clone(w.log)
	c.model.decided = slices.Clone(w.model.decided)
	c.path = w.path + " " + step
	return &c
}

func (x *explorer) fail(w *world, format string, args ...any) {
	x.t.Helper()
	x.t.Fatalf("after%s: %s", w.path, fmt.Sprintf(format, args...))
}

func (x *explorer) visit(w *world, depth int) {
	x.states++
	x.check(w)
	if depth == 0 {
		return
	}
	for pid := range int64(2) {
		if pid == 1 && len(w.log) == 0 {
			break // the producers are alike
		}
		p := w.model.producers[pid]
		next := op{batchSpec: batchSpec{pid: pid, seq: firstSequence}}
		if p != nil {
			next.epoch, next.txn = p.epoch, p.txn >= 0
			next.seq = 0
			if len(p.batches) > 0 {
				next.seq = seqAfter(p.batches[len(p.batches)-1].LastSequence)
			}
		}
		x.branch(w, depth, "append", Client, next)
		if !next.txn {
			begin := next
			begin.txn = true
			x.branch(w, depth, "begin", Client, begin)
		}
		if p != nil && p.epoch == 0 {
			bumped := next
			bumped.epoch, bumped.seq = 1, 0
			x.branch(w, depth, "bump", Client, bumped)
		}
		if next.txn || p == nil {
			x.branch(w, depth, "abort", Coordinator, op{batchSpec: batchSpec{pid: pid, epoch: next.epoch}, kind: 2})
		}
	}
	if w.m.NeedsSnapshot() {
		x.snapshot(w, depth)
	}
	if len(w.log) > 0 {
		x.restart(w, depth, w.next, "restart")
		x.restart(w, depth, w.log[len(w.log)-1].at, "lose")
	}
}

// branch goes on with one append that must be accepted.
func (x *explorer) branch(w *world, depth int, step string, origin Origin, o op) {
	c := w.clone(fmt.Sprint(step, o.pid))
	if _, err := x.append(c, origin, o, true); err != nil {
		x.fail(c, "%v", err)
	}
	x.visit(c, depth-1)
}

// append sends a batch to both sides and compares the answers. With keep it must be new, and is stored.
func (x *explorer) append(w *world, origin Origin, o op, keep bool) (result, error) {
	x.answers++
	model := w.model
	if !keep {
		model = model.clone()
	}
	want, wantErr := model.append(origin, 0, 0, 1, w.next, o)
	var a AppendInfo
	w.m.Prepare(&a, AppendOptions{Origin: origin, Clock: 1})
	dup, isDup, err := a.Append(o.batch(), OffsetOnly(w.next))
	got := result{}
	switch {
	case isDup:
		got = result{dup.FirstOffset(), dup.LastOffset, true, dup.Timestamp}
	case err == nil:
		got = result{first: w.next, last: w.next}
	}
	if !sameError(err, wantErr) || got != want {
		x.fail(w, "%v %+v: got %+v, %v; want %+v, %v", origin, o, got, err, want, wantErr)
	}
	if keep && err == nil && !isDup {
		w.m.Publish(&a)
		for _, c := range a.Completed() {
			if err := w.m.CompleteTxn(c); err != nil {
				x.fail(w, "%v", err)
			}
		}
		w.log = append(w.log, event{at: w.next, clock: 1, op: o})
		w.next++
		w.m.UpdateMapEndOffset(w.next)
	}
	return got, err
}

func (x *explorer) snapshot(w *world, depth int) {
	c := w.clone("snapshot")
	c.mem = w.mem.Crash(vfstest.CrashOptions{Mode: vfstest.Kill})
	c.m.fsys = c.mem
	if err := c.m.TakeSnapshot(record.Identity{}); err != nil {
		x.fail(c, "%v", err)
	}
	x.visit(c, depth-1)
}

// restart opens the directory again, with the log cut at end, and replays what the newest snapshot does not hold. The
// result must be what a replay of the whole log gives.
func (x *explorer) restart(w *world, depth int, end int64, step string) {
	x.restarts++
	c := w.clone(step)
	c.log = slices.DeleteFunc(c.log, func(e event) bool { return e.at >= end })
	c.next = end
	c.mem = w.mem.Crash(vfstest.CrashOptions{Mode: vfstest.Kill})
	m, err := Open(c.mem, testDir, noTxnCheck)
	if err == nil {
		err = m.TruncateAndReload(0, end, 1)
	}
	if err != nil {
		x.fail(c, "%v", err)
	}
	c.m, c.model = m, unverified()
	from := m.MapEndOffset()
	var a AppendInfo
	for _, e := range c.log {
		if _, err := c.model.append(Replication, 0, -1, 1, e.at, e.op); err != nil {
			x.fail(c, "%v", err)
		}
		if e.at < from {
			continue
		}
		m.Prepare(&a, AppendOptions{Origin: Replication, Clock: 1})
		if _, _, err := a.Append(e.op.batch(), OffsetOnly(e.at)); err != nil {
			x.fail(c, "%v", err)
		}
		m.Publish(&a)
		for _, t := range a.Completed() {
			if err := m.CompleteTxn(t); err != nil {
				x.fail(c, "%v", err)
			}
		}
		m.UpdateMapEndOffset(e.at + 1)
	}
	c.model.decided = slices.DeleteFunc(c.model.decided, func(t Txn) bool { return t.LastOffset < from })
	x.visit(c, depth-1)
}

// check compares the states, and sends again what was sent before.
func (x *explorer) check(w *world) {
	if got, want := w.m.state(), w.model.state(w.next); !reflect.DeepEqual(got, want) {
		x.fail(w, "state differs:\n%s", diffStates(want, got))
	}
	latest := map[int64]int{}
	sent := slices.Clone(w.log)
	slices.Reverse(sent)
	for _, e := range sent {
		if e.op.kind > 0 {
			continue
		}
		retry := e.op
		got, err := x.append(w, Client, retry, false)
		p := w.model.producers[e.op.pid]
		if p.epoch == e.op.epoch {
			latest[e.op.pid]++
			if latest[e.op.pid] <= BatchesRetained && (err != nil || !got.dup || got.first != e.at) {
				x.fail(w, "retry of the batch at %d: %+v, %v", e.at, got, err)
			}
		}
		if err == nil && !got.dup {
			x.fail(w, "the batch at %d would be stored twice", e.at)
		}
		for _, change := range []func(o *op){
			func(o *op) { o.seq = record.DecrementSequence(o.seq, 1) },
			func(o *op) { o.seq = record.IncrementSequence(o.seq, 1) },
			func(o *op) { o.n = 2 },
			func(o *op) { o.epoch ^= 1 },
		} {
			o := e.op
			change(&o)
			_, _ = x.append(w, Client, o, false)
		}
	}
}
