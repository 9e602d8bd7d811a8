package producerstate

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/oncelog/oncelog/record"
)

// The package against the naive model: producers, epochs, retries, transactions, markers of every version, replication,
// restarts and truncations in random order. rapid prints how to replay a failure.
func TestModel(t *testing.T) {
	for i := range 15 { // rapid's flag gives the number of cases of each
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) { newModelRun(t, rt).run() })
		})
	}
}

const modelExpiration = 50

// modelRun holds both sides and what was appended.
type modelRun struct {
	rt      *rapid.T
	l       *testLog
	config  Config
	model   *naive
	history []event
	snaps   map[int64]*naive // the model as it was at each snapshot
	newest  int64            // newest clock
	hw      int64
}

// event is an append that was accepted.
type event struct {
	at    int64
	clock int64
	op    op
}

func newModelRun(t *testing.T, rt *rapid.T) *modelRun {
	compat := rapid.Bool().Draw(rt, "compat")
	c := Config{Compat: compat, ProducerIDExpiration: modelExpiration * time.Millisecond}
	l := newLog(t, c)
	l.clock = 10
	return &modelRun{rt: rt, l: l, config: c, model: newNaive(compat), snaps: map[int64]*naive{}, newest: -1}
}

func (r *modelRun) run() {
	draw := rapid.IntRange(0, 99)
	for range rapid.IntRange(1, 120).Draw(r.rt, "steps") {
		switch x := draw.Draw(r.rt, "op"); {
		case x < 60:
			r.appendOne()
		case x < 72:
			r.appendMarker()
		case x < 82:
			r.verify()
		case x < 87:
			r.hw = max(r.hw, r.l.next-int64(rapid.IntRange(0, 8).Draw(r.rt, "behind")))
			r.l.m.AdvanceHighWatermark(r.hw)
			r.model.highWatermark(r.hw)
		case x < 91:
			r.l.clock += int64(rapid.IntRange(0, 60).Draw(r.rt, "ms"))
		case x < 94:
			now := r.l.clock + int64(rapid.IntRange(0, 200).Draw(r.rt, "jump"))
			r.l.m.RemoveExpired(now)
			r.model.expire(now, r.newest, modelExpiration)
			r.expireGuards()
		case x < 97:
			r.restart()
		default:
			r.truncate()
		}
		r.compare()
	}
}

// expireGuards: the model does not keep when a verification began, so it follows the manager in this.
func (r *modelRun) expireGuards() {
	for pid := range r.model.guards {
		if _, ok := r.l.m.Verification(pid); !ok {
			delete(r.model.guards, pid)
		}
	}
}

func (r *modelRun) pid() int64 {
	return rapid.SampledFrom([]int64{0, 1, 2, MinNamedProducerID + 3}).Draw(r.rt, "pid")
}

func (r *modelRun) guard(pid int64) Guard {
	if g := r.model.guards[pid]; g != nil && rapid.IntRange(0, 4).Draw(r.rt, "right guard") > 0 {
		return g.guard
	}
	return Guard(rapid.IntRange(0, 3).Draw(r.rt, "guard"))
}

// data draws a batch that often is a likely one: the next, a retry of one of the last seven, one near by.
func (r *modelRun) data() op {
	o := op{}
	o.pid = r.pid()
	o.n = int32(rapid.IntRange(1, 4).Draw(r.rt, "n"))
	o.timestamp = r.l.clock - int64(rapid.IntRange(0, 30).Draw(r.rt, "age"))
	o.epoch = int16(rapid.IntRange(0, 3).Draw(r.rt, "epoch"))
	o.txn = rapid.IntRange(0, 2).Draw(r.rt, "txn") == 0
	o.seq = rapid.SampledFrom([]int32{0, 0, 1, 3, math.MaxInt32, math.MaxInt32 - 2}).Draw(r.rt, "seq")
	p := r.model.producers[o.pid]
	if p == nil {
		return o
	}
	if p.txn >= 0 {
		o.txn = rapid.IntRange(0, 9).Draw(r.rt, "inside") > 0
	}
	if rapid.IntRange(0, 9).Draw(r.rt, "same epoch") > 0 {
		o.epoch = p.epoch
	}
	if o.epoch != p.epoch || len(p.batches) == 0 {
		return o
	}
	switch k := rapid.IntRange(0, 9).Draw(r.rt, "which"); {
	case k < 6:
		o.seq = seqAfter(p.batches[len(p.batches)-1].LastSequence)
	case k < 9:
		if own := r.appendsOf(o.pid); len(own) > 0 {
			a := own[len(own)-1-min(rapid.IntRange(0, 6).Draw(r.rt, "back"), len(own)-1)]
			o.seq, o.n, o.epoch, o.txn = a.op.seq, max(a.op.n, 1), a.op.epoch, a.op.txn
		}
	}
	return o
}

func (r *modelRun) appendsOf(pid int64) []event {
	var own []event
	for _, a := range r.history {
		if a.op.pid == pid && a.op.kind == 0 {
			own = append(own, a)
		}
	}
	return own
}

func (r *modelRun) appendOne() {
	origin := rapid.SampledFrom([]Origin{Client, Client, Client, Client, Coordinator, Replication, RaftLeader}).Draw(r.rt, "origin")
	o := r.data()
	if origin == Coordinator && rapid.Bool().Draw(r.rt, "no sequence") {
		o.seq = -1
	}
	r.do(origin, r.guard(o.pid), 0, o)
}

func (r *modelRun) appendMarker() {
	o := op{kind: rapid.IntRange(1, 2).Draw(r.rt, "kind")}
	o.pid, o.timestamp = r.pid(), r.l.clock
	o.coord = int32(rapid.IntRange(0, 3).Draw(r.rt, "coordinator"))
	o.epoch = int16(rapid.IntRange(0, 4).Draw(r.rt, "epoch"))
	if p := r.model.producers[o.pid]; p != nil && rapid.Bool().Draw(r.rt, "near") {
		o.epoch = max(0, p.epoch+int16(rapid.IntRange(-1, 1).Draw(r.rt, "off")))
	}
	if rapid.IntRange(0, 30).Draw(r.rt, "top") == 0 {
		o.epoch = math.MaxInt16
	}
	version := rapid.SampledFrom([]int8{0, 1, 2, 2, -1, 3}).Draw(r.rt, "version")
	origin := rapid.SampledFrom([]Origin{Coordinator, Coordinator, Coordinator, Replication, Client}).Draw(r.rt, "origin")
	r.do(origin, 0, version, o)
}

// do appends on both sides and compares the answers.
func (r *modelRun) do(origin Origin, guard Guard, version int8, o op) {
	r.l.guard, r.l.version = guard, version
	at := r.l.next
	want, wantErr := r.model.append(origin, guard, version, r.l.clock, at, o)
	got, err := r.l.append(origin, o.batch())
	if !sameError(err, wantErr) || got != want {
		r.rt.Fatalf("%v %+v at %d: got %+v, %v; want %+v, %v", origin, o, at, got, err, want, wantErr)
	}
	if err == nil && !got.dup {
		r.history = append(r.history, event{at: at, clock: r.l.clock, op: o})
		r.newest = max(r.newest, r.l.clock)
	}
}

func (r *modelRun) verify() {
	pid, seq := r.pid(), int32(rapid.IntRange(0, 4).Draw(r.rt, "seq"))
	epoch, bump := int16(rapid.IntRange(0, 3).Draw(r.rt, "epoch")), rapid.Bool().Draw(r.rt, "bump")
	if p := r.model.producers[pid]; p != nil && rapid.IntRange(0, 3).Draw(r.rt, "likely") > 0 {
		epoch = max(p.epoch, 0)
		if len(p.batches) > 0 {
			seq = seqAfter(p.batches[len(p.batches)-1].LastSequence)
		}
	}
	got, err := r.l.m.MaybeStartVerification(pid, seq, epoch, bump, r.l.clock)
	want, wantErr := r.model.verify(pid, seq, epoch, bump)
	if !sameError(err, wantErr) || got != want {
		r.rt.Fatalf("verify %d: got %d, %v; want %d, %v", pid, got, err, want, wantErr)
	}
}

// restart takes a snapshot, opens another manager and loads it.
func (r *modelRun) restart() {
	if r.l.m.NeedsSnapshot() {
		c := r.model.clone()
		c.newest = r.newest
		r.snaps[r.l.next] = c
	}
	if err := r.l.m.TakeSnapshot(record.Identity{}); err != nil {
		r.rt.Fatal(err)
	}
	r.l.m = r.l.open(r.config)
	r.model.guards = map[int64]*naiveGuard{}
	r.model.lastGuard = 0
	r.newest = -1
	r.reload(r.l.next)
}

// truncate cuts the log back to a batch boundary.
func (r *modelRun) truncate() {
	if len(r.l.log) == 0 {
		return
	}
	cut := r.l.log[rapid.IntRange(0, len(r.l.log)-1).Draw(r.rt, "cut")].at
	r.history = slices.DeleteFunc(r.history, func(e event) bool { return e.at >= cut })
	r.l.log = slices.DeleteFunc(r.l.log, func(s stored) bool { return s.at >= cut })
	maps.DeleteFunc(r.snaps, func(o int64, _ *naive) bool { return o > cut })
	r.l.next, r.hw = cut, min(r.hw, cut)
	r.reload(cut)
}

// reload loads the newest snapshot at or below the log's end and replays the rest, on both sides.
func (r *modelRun) reload(end int64) {
	m := r.l.m
	moved := m.MapEndOffset() != end
	if err := m.TruncateAndReload(0, end, r.l.clock); err != nil {
		r.rt.Fatal(err)
	}
	if !moved {
		return
	}
	newest := int64(0)
	for o := range r.snaps {
		newest = max(newest, o)
	}
	from := m.MapEndOffset()
	if from != newest {
		r.rt.Fatalf("loaded offset %d, the newest snapshot is %d", from, newest)
	}
	r.l.replay(m, from)
	guards, last := r.model.guards, r.model.lastGuard
	r.model = newNaive(r.config.Compat)
	if s := r.snaps[from]; s != nil {
		r.model = s.clone()
		r.newest = max(r.newest, s.newest)
	}
	r.model.decided, r.model.guards, r.model.lastGuard = nil, guards, last
	if r.config.Compat {
		r.model.expire(r.l.clock, r.newest, modelExpiration)
		r.model.forgetOlderBatches()
	}
	for _, e := range r.history {
		if e.at < from {
			continue
		}
		if _, err := r.model.append(Replication, 0, -1, e.clock, e.at, e.op); err != nil {
			r.rt.Fatalf("replaying %+v: %v", e, err)
		}
		r.newest = max(r.newest, e.clock)
	}
}

// compare looks at all of the state.
func (r *modelRun) compare() {
	got, want := r.l.m.state(), r.model.state(r.l.next)
	for _, list := range [][]Txn{got.Open, got.Decided} {
		for i := range list {
			list[i].First = OffsetOnly(list[i].First.Offset)
		}
	}
	if !reflect.DeepEqual(got, want) {
		r.rt.Fatalf("state differs:\n%s", diffStates(want, got))
	}
	unstable := int64(math.MaxInt64)
	for _, t := range append(want.Open, want.Decided...) {
		unstable = min(unstable, t.First.Offset)
	}
	if f, ok := r.l.m.FirstUnstableOffset(); ok != (unstable < math.MaxInt64) || (ok && f.Offset != unstable) {
		r.rt.Fatalf("first unstable %+v, %v; want %d", f, ok, unstable)
	}
	if len(r.model.guards) != r.l.m.Stats().Verifications {
		r.rt.Fatalf("%d verifications, want %d", r.l.m.Stats().Verifications, len(r.model.guards))
	}
	for pid, g := range r.model.guards {
		v, ok := r.l.m.Verification(pid)
		if got := fmt.Sprint(v.Guard, v.LowestSequence, v.Epoch, v.SupportsEpochBump, ok); got != fmt.Sprint(g.guard, g.lowest, g.epoch, g.bump, true) {
			r.rt.Fatalf("verification of %d: %s, want %+v", pid, got, *g)
		}
	}
}
