package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
)

// action is one call with everything that it needs, so that it can be made again on another log.
type action struct {
	kind  string
	now   time.Time
	bytes []byte
	lead  LeaderAppend
	epoch int32
	high  int64
}

// engine is a log under test.
type engine struct {
	mem  *vfstest.Mem
	opts Options
	l    *Log
	now  time.Time
}

func newEngine(o Options) (*engine, error) {
	e := &engine{mem: vfstest.NewMem(), opts: o, now: time.UnixMilli(1_700_000_000_000)}
	e.opts.Now = func() time.Time { return e.now }
	e.opts.manual = true
	if err := errors.Join(e.mem.MkdirAll("/data", 0o755), e.mem.SyncDir("/")); err != nil {
		return nil, err
	}
	return e, e.open()
}

func (e *engine) open() (err error) {
	e.l, err = OpenFS(context.Background(), e.mem, simDir, e.opts)
	return err
}

// do makes a call. An error of the call is part of the answer; err is one that no call may have.
func (e *engine) do(a *action) (info AppendInfo, answer error, err error) {
	e.now = a.now
	switch a.kind {
	case "lead":
		info, answer = e.l.AppendAsLeader(bytes.Clone(a.bytes), a.lead)
	case "follow":
		info, answer = e.l.AppendAsFollower(bytes.Clone(a.bytes), a.epoch)
	case "high":
		_, err = e.l.UpdateHighWatermark(a.high)
	case "roll":
		err = e.l.Roll()
	case "flush":
		err = e.l.Flush()
	case "checkpoint":
		err = e.l.Checkpoint()
	case "refresh":
		e.l.refreshState()
	case "reopen":
		if err = e.l.Close(); err == nil {
			if err = e.open(); err == nil && !e.l.RecoveryReport().Clean {
				err = fmt.Errorf("after Close: %+v", e.l.RecoveryReport())
			}
		}
	case "kill":
		if err = abandonLog(e.l); err == nil {
			err = e.open()
		}
	}
	if err == nil && (a.kind == "reopen" || a.kind == "kill") {
		if r := e.l.RecoveryReport(); r.Problems() {
			err = fmt.Errorf("problems: %+v", r)
		}
		_, herr := e.l.UpdateHighWatermark(math.MaxInt64)
		err = errors.Join(err, herr)
	}
	return info, answer, err
}

// machine drives an engine and the reference side by side.
type machine struct {
	*engine
	ref   reference
	epoch int32 // leader epoch
	acts  []action
	told  []string // what was answered, by act
}

func (m *machine) run(t *rapid.T, a action) (AppendInfo, error) {
	t.Helper()
	a.now = m.now
	info, answer, err := m.do(&a)
	if err != nil {
		t.Fatalf("%s: %v", a.kind, err)
	}
	m.acts = append(m.acts, a)
	m.told = append(m.told, told(info, answer))
	return info, answer
}

func told(info AppendInfo, err error) string {
	_, code := ErrorCode(err)
	return fmt.Sprintf("%+v %s %v", info, code, errors.Is(err, ErrUnexpectedOffset))
}

func (m *machine) batch(t *rapid.T, p *record.Producer, transactional bool) record.Batch {
	b := record.NewBuilder(record.BuilderOptions{Producer: p, Transactional: transactional})
	for i := range rapid.IntRange(1, 4).Draw(t, "records") {
		ts := m.now.UnixMilli() - int64(rapid.SampledFrom([]int{0, 0, 0, 1, 500, 100_000}).Draw(t, "age"))
		v := bytes.Repeat([]byte{byte('a' + i)}, rapid.IntRange(0, 60).Draw(t, "size"))
		if err := b.Append(ts, record.Record{Key: []byte(fmt.Sprint(len(m.acts))), Value: v}); err != nil {
			t.Fatal(err)
		}
	}
	p2, err := b.Batch()
	if err != nil {
		t.Fatal(err)
	}
	return record.Batch(bytes.Clone(p2))
}

// appendAsLeader sends a batch and compares the answer with that of the reference.
func (m *machine) appendAsLeader(t *rapid.T, b record.Batch) {
	t.Helper()
	dup, isDup, want := m.ref.lead(b)
	info, err := m.run(t, action{kind: "lead", bytes: bytes.Clone(b), lead: LeaderAppend{LeaderEpoch: m.epoch, TransactionVersion: NoTransactionVersion}})
	switch {
	case want != nil:
		if !errors.Is(err, want) {
			t.Fatalf("append: %+v, %v, want %v", info, err, want)
		}
	case err != nil:
		t.Fatalf("append: %v", err)
	case isDup:
		if !info.Duplicate || info.FirstOffset != dup.FirstOffset() || info.LastOffset != dup.LastOffset || info.LogAppendTime != dup.Timestamp {
			t.Fatalf("append: %+v, want a duplicate of %+v", info, dup)
		}
	default:
		m.storeAsLeader(t, b, info)
	}
}

func (m *machine) storeAsLeader(t *rapid.T, b record.Batch, info AppendInfo) {
	t.Helper()
	n := int64(b.Count())
	if info.Duplicate || info.FirstOffset != m.ref.end || info.LastOffset != m.ref.end+n-1 {
		t.Fatalf("append at %d: %+v", m.ref.end, info)
	}
	stored := record.Batch(bytes.Clone(b))
	stored.SetLastOffset(info.LastOffset)
	stored.SetPartitionLeaderEpoch(m.epoch)
	m.ref.store(stored)
}

// producerOf draws who sends a batch, with which epoch and sequence: mostly what is right.
func (m *machine) producerOf(t *rapid.T) (p record.Producer, transactional bool) {
	p.ID = rapid.SampledFrom([]int64{0, 1, 2, 3, NamedProducerID("a")}).Draw(t, "producer")
	producers, _, _ := m.ref.replay()
	known := producers[p.ID]
	if known == nil {
		p.Epoch = int16(rapid.IntRange(0, 2).Draw(t, "epoch"))
		p.BaseSequence = rapid.SampledFrom([]int32{0, 0, 5, math.MaxInt32 - 3, math.MaxInt32}).Draw(t, "sequence")
		return p, rapid.Bool().Draw(t, "transactional")
	}
	p.Epoch, p.BaseSequence = known.epoch, known.next()
	switch rapid.IntRange(0, 11).Draw(t, "fault") {
	case 0:
		p.BaseSequence = record.IncrementSequence(p.BaseSequence, int32(rapid.IntRange(1, 3).Draw(t, "gap")))
	case 1:
		p.Epoch = max(0, p.Epoch-1)
	case 2:
		p.Epoch, p.BaseSequence = p.Epoch+1, 0
	case 3:
		p.Epoch, p.BaseSequence = p.Epoch+1, 1
	case 4:
		p.BaseSequence = 0
	}
	transactional = known.txn >= 0
	if rapid.IntRange(0, 5).Draw(t, "other kind") == 0 {
		transactional = !transactional
	}
	return p, transactional
}

func (m *machine) actions() map[string]func(*rapid.T) {
	act := func(a action) func(*rapid.T) { return func(t *rapid.T) { m.run(t, a) } }
	lead := func(t *rapid.T) {
		p, transactional := m.producerOf(t)
		b := m.batch(t, &p, transactional)
		m.appendAsLeader(t, b)
	}
	return map[string]func(*rapid.T){
		"lead": lead, "lead again": lead, "lead more": lead,
		"lead plain": func(t *rapid.T) {
			if rapid.IntRange(0, 4).Draw(t, "new leader") == 0 {
				m.epoch++
			}
			m.appendAsLeader(t, m.batch(t, nil, false))
		},
		"retry":  m.retry,
		"follow": m.follow,
		"marker": m.marker, "marker again": m.marker,
		"read": m.read, "read more": m.read,
		"time": m.timestamp,
		"roll": act(action{kind: "roll"}), "flush": act(action{kind: "flush"}), "checkpoint": act(action{kind: "checkpoint"}),
		"refresh": act(action{kind: "refresh"}),
		"reopen":  func(t *rapid.T) { m.restart(t, "reopen") },
		"kill":    func(t *rapid.T) { m.restart(t, "kill") },
		"clock": func(t *rapid.T) {
			d := rapid.SampledFrom([]time.Duration{1, 1000, 3_600_000, -3_600_000, 40 * 86_400_000, -20 * 86_400_000}).Draw(t, "jump") * time.Millisecond
			m.now = time.UnixMilli(max(1_000_000_000_000, m.now.Add(d).UnixMilli()))
		},
		"high": func(t *rapid.T) {
			if !m.ref.manual {
				t.Skip("follows the end")
			}
			offset := rapid.Int64Range(0, m.ref.end+2).Draw(t, "high watermark")
			m.run(t, action{kind: "high", high: offset})
			m.ref.setHigh(min(offset, m.ref.end))
		},
		"": m.check,
	}
}

// retry sends one of the last seven batches of a producer again, as it was.
func (m *machine) retry(t *rapid.T) {
	id := rapid.SampledFrom([]int64{0, 1, 2, 3, NamedProducerID("a")}).Draw(t, "producer")
	var sent []record.Batch
	for _, s := range m.ref.stored {
		if b := record.Batch(s); b.ProducerID() == id && !b.Attributes().IsControl() {
			sent = append(sent, b)
		}
	}
	if len(sent) == 0 {
		t.Skip("nothing was sent")
	}
	b := record.Batch(bytes.Clone(sent[max(0, len(sent)-rapid.IntRange(1, 7).Draw(t, "back"))]))
	b.SetBaseOffset(0)
	b.SetPartitionLeaderEpoch(-1)
	m.appendAsLeader(t, b)
}

// follow appends batches of a leader: with gaps, and batches that this log as a leader would not take.
func (m *machine) follow(t *rapid.T) {
	next := m.ref.end
	if rapid.IntRange(0, 7).Draw(t, "below") == 0 && next > 0 {
		b := m.batch(t, nil, false)
		b.SetBaseOffset(next - 1)
		if _, err := m.run(t, action{kind: "follow", bytes: b, epoch: m.epoch}); !errors.Is(err, ErrUnexpectedOffset) {
			t.Fatalf("below the end: %v", err)
		}
		return
	}
	after := m.ref // the lists are only ever appended to
	after.decided = slices.Clone(after.decided)
	var p []byte
	for range rapid.IntRange(1, 3).Draw(t, "batches") {
		var b record.Batch
		if rapid.IntRange(0, 3).Draw(t, "plain") == 0 {
			b = m.batch(t, nil, false)
		} else {
			id := rapid.Int64Range(0, 3).Draw(t, "producer")
			producers, _, _ := after.replay()
			known := producers[id]
			if known == nil {
				known = &refProducer{txn: -1}
			}
			sequence := record.IncrementSequence(known.next(), int32(rapid.SampledFrom([]int{0, 0, 0, 3}).Draw(t, "jump")))
			if rapid.IntRange(0, 5).Draw(t, "old") == 0 {
				sequence = 0
			}
			b = m.batch(t, &record.Producer{ID: id, Epoch: known.epoch, BaseSequence: sequence}, known.txn >= 0 || rapid.Bool().Draw(t, "transactional"))
		}
		b.SetBaseOffset(next + int64(rapid.SampledFrom([]int{0, 0, 0, 4}).Draw(t, "gap")))
		b.SetPartitionLeaderEpoch(m.epoch)
		p = append(p, b...)
		after.store(b)
		next = after.end
	}
	info, err := m.run(t, action{kind: "follow", bytes: p, epoch: m.epoch})
	if err != nil || info.LastOffset != next-1 {
		t.Fatalf("follow: %+v, %v", info, err)
	}
	m.ref = after
}

// marker ends a transaction, or tries to.
func (m *machine) marker(t *rapid.T) {
	id := rapid.Int64Range(0, 3).Draw(t, "producer")
	producers, _, _ := m.ref.replay()
	epoch, coord := int16(0), int32(0)
	if p := producers[id]; p != nil {
		epoch, coord = p.epoch, max(0, p.coord)
	}
	epoch = max(0, epoch+rapid.SampledFrom([]int16{0, 0, 0, 1, -1}).Draw(t, "epoch"))
	coord = max(0, coord+rapid.SampledFrom([]int32{0, 0, 0, 1, -1}).Draw(t, "coordinator"))
	version := int8(rapid.IntRange(0, 2).Draw(t, "version"))
	kind := rapid.SampledFrom([]record.ControlType{record.Commit, record.Abort}).Draw(t, "kind")
	b := record.Batch(record.AppendEndTxnMarker(nil, record.Producer{ID: id, Epoch: epoch}, record.EndTxnMarker{Type: kind, CoordinatorEpoch: coord}, m.now.UnixMilli()))
	want := m.ref.endTxn(id, epoch, coord, version)
	info, err := m.run(t, action{kind: "lead", bytes: bytes.Clone(b), lead: LeaderAppend{LeaderEpoch: m.epoch, Origin: Coordinator, TransactionVersion: version}})
	switch {
	case want != nil && !errors.Is(err, want), want == nil && err != nil:
		t.Fatalf("marker of %d, epoch %d, coordinator %d, version %d: %v, want %v", id, epoch, coord, version, err, want)
	case want == nil:
		m.storeAsLeader(t, b, info)
	}
}

// read compares a range of bytes and the aborted list.
func (m *machine) read(t *rapid.T) {
	i := Isolation(rapid.IntRange(0, 2).Draw(t, "isolation"))
	start := rapid.Int64Range(0, m.ref.end).Draw(t, "start")
	o := ReadOptions{MaxBytes: rapid.SampledFrom([]int{0, 1, 60, 61, 100, 200, 500, 1 << 20}).Draw(t, "max"), Isolation: i, MinOneMessage: rapid.Bool().Draw(t, "one")}
	f, err := m.l.Read(start, o)
	if err != nil {
		t.Fatalf("read at %d: %v", start, err)
	}
	defer f.Close()
	got, err := f.Records.AppendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	limit := [...]int64{m.ref.end, m.ref.high, m.ref.lastStable()}[i]
	var want []byte
	first := 0
	for _, s := range m.ref.stored {
		b := record.Batch(s)
		if b.LastOffset() < start {
			continue
		}
		if b.LastOffset() >= limit {
			break
		}
		if want = append(want, s...); first == 0 {
			first = len(s)
		}
	}
	most := o.MaxBytes
	if o.MinOneMessage {
		most = max(most, first)
	}
	whole := min(most, len(want))
	if len(got) > whole || !bytes.Equal(got, want[:len(got)]) || len(got) < whole && (len(got) == 0 || !m.segmentEnds(got, want)) {
		t.Fatalf("read %+v at %d, limit %d: %d bytes, want %d of %d", o, start, limit, len(got), whole, len(want))
	}
	if i != TxnCommitted {
		if f.Aborted != nil {
			t.Fatalf("aborted list at %v", i)
		}
		return
	}
	m.checkAborted(t, start, got, &f)
}

// segmentEnds tells whether a read that is shorter than it may be ends where a segment does.
func (m *machine) segmentEnds(got, want []byte) bool {
	last := int64(-1)
	for b, err := range record.All(got) {
		if err != nil {
			return false
		}
		last = b.LastOffset()
	}
	s, ok := m.l.set.Higher(last)
	return ok && s.BaseOffset() <= record.Batch(want[len(got):]).BaseOffset()
}

// checkAborted filters the batches as a client does, by a filter of the test's own.
func (m *machine) checkAborted(t *rapid.T, start int64, got []byte, f *Fetch) {
	_, ended, aborted := m.ref.replay()
	isAborted := func(b record.Batch) bool {
		return b.Attributes().IsTransactional() && slices.ContainsFunc(aborted, func(a AbortedTxn) bool {
			return a.ProducerID == b.ProducerID() && a.FirstOffset <= b.BaseOffset() && b.BaseOffset() < a.LastOffset
		})
	}
	for _, a := range f.Aborted {
		a.LastStableOffset = 0
		if !slices.Contains(aborted, a) || a.LastOffset < start {
			t.Fatalf("aborted list %+v from %d: aborted are %+v, ended %+v", f.Aborted, start, aborted, ended)
		}
	}
	if f.Aborted == nil {
		t.Fatal("no aborted list")
	}
	queue := slices.Clone(f.Aborted)
	active := map[int64]bool{}
	for rest := got; len(rest) > 0; {
		b, tail, err := record.Next(rest)
		if err != nil {
			break // cut off
		}
		rest = tail
		if !b.HasProducerID() {
			continue
		}
		queue = slices.DeleteFunc(queue, func(a AbortedTxn) bool {
			if a.FirstOffset <= b.LastOffset() {
				active[a.ProducerID] = true
			}
			return a.FirstOffset <= b.LastOffset()
		})
		if b.Attributes().IsControl() {
			if marker, err := b.EndTxnMarker(); err == nil && marker.Type == record.Abort {
				delete(active, b.ProducerID())
			}
			continue
		}
		if skipped := b.Attributes().IsTransactional() && active[b.ProducerID()]; skipped != isAborted(b) {
			t.Fatalf("batch at %d: a client skips it: %v, it is aborted: %v; list %+v, aborted %+v", b.BaseOffset(), skipped, isAborted(b), f.Aborted, aborted)
		}
	}
}

// timestamp compares a look-up by time.
func (m *machine) timestamp(t *rapid.T) {
	ms := m.now.UnixMilli() - rapid.SampledFrom([]int64{-1, 0, 1, 1000, 100_000, 1 << 40}).Draw(t, "ago")
	got, found, err := m.l.OffsetForTimestamp(max(0, ms))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range m.ref.stored {
		for r, err := range record.Batch(s).Records(record.Limits{}) {
			if err != nil {
				t.Fatal(err)
			}
			if r.Timestamp >= max(0, ms) {
				if !found || got.Offset != r.Offset || got.Timestamp != r.Timestamp {
					t.Fatalf("first record at %d or later: %+v, want %d at %d", ms, got, r.Offset, r.Timestamp)
				}
				return
			}
		}
	}
	if found {
		t.Fatalf("first record at %d or later: %+v, there is none", ms, got)
	}
}

// check compares everything that can be seen between two calls.
func (m *machine) check(t *rapid.T) {
	want := Offsets{LogEnd: m.ref.end, HighWatermark: m.ref.high, LastStable: m.ref.lastStable()}
	got := m.l.Offsets()
	want.RecoveryPoint = got.RecoveryPoint
	if got != want || got.RecoveryPoint > got.LogEnd {
		t.Fatalf("offsets %+v, want %+v", got, want)
	}
	if err := m.compare(); err != nil {
		t.Fatal(err)
	}
	epochs := map[int32]int64{} // where each ends
	for _, s := range m.ref.stored {
		epochs[record.Batch(s).PartitionLeaderEpoch()] = record.Batch(s).NextOffset()
	}
	for _, e := range slices.Sorted(maps.Keys(epochs)) {
		at, end, found := m.l.OffsetForLeaderEpoch(e)
		next := m.ref.end
		for _, s := range slices.Backward(m.ref.stored) {
			if b := record.Batch(s); b.PartitionLeaderEpoch() > e {
				next = b.BaseOffset()
			}
		}
		if !found || at != e || end != next {
			t.Fatalf("epoch %d ends at %d (%v, %d), want %d", e, end, found, at, next)
		}
	}
}

// compare holds bytes, producers and transactions against a replay.
func (m *machine) compare() error {
	stored, err := readAll(m.l)
	if err != nil {
		return err
	}
	if !slices.EqualFunc(stored, m.ref.stored, bytes.Equal) {
		return fmt.Errorf("%d batches, want %d, or others", len(stored), len(m.ref.stored))
	}
	producers, _, aborted := m.ref.replay()
	n := 0
	for e := range m.l.Producers() {
		n++
		p := producers[e.ProducerID]
		if p == nil {
			return fmt.Errorf("producer %d is not known to a replay", e.ProducerID)
		}
		got := refProducer{epoch: e.ProducerEpoch, coord: e.CoordinatorEpoch, time: e.LastTimestamp, txn: e.CurrentTxnFirstOffset, batches: slices.Collect(e.Batches())}
		if !slices.Equal(got.batches, p.batches) || got.epoch != p.epoch || got.coord != p.coord || got.time != p.time || got.txn != p.txn {
			return fmt.Errorf("producer %d is %+v, a replay says %+v", e.ProducerID, got, *p)
		}
	}
	if n != len(producers) {
		return fmt.Errorf("%d producers, a replay says %d", n, len(producers))
	}
	var indexed []AbortedTxn
	for s := range m.l.set.All() {
		txns, _, err := s.AbortedTxns(0, math.MaxInt64)
		if err != nil {
			return err
		}
		for _, x := range txns {
			x.LastStableOffset = 0
			indexed = append(indexed, x)
		}
	}
	if !slices.Equal(indexed, aborted) {
		return fmt.Errorf("transaction index %+v, a replay says %+v", indexed, aborted)
	}
	return nil
}

// configurations are settings that must not change what a log answers.
var configurations = rapid.Custom(func(t *rapid.T) Options {
	return Options{
		Sync:               rapid.SampledFrom(modes).Draw(t, "mode"),
		SegmentBytes:       rapid.SampledFrom([]int32{2000, 3000, 1 << 20}).Draw(t, "segment"),
		SegmentAge:         rapid.SampledFrom([]time.Duration{time.Hour, Never}).Draw(t, "age"),
		IndexIntervalBytes: rapid.SampledFrom([]int32{1, 200, 4096}).Draw(t, "interval"),
		MaxIndexBytes:      rapid.SampledFrom([]int32{48, 4096}).Draw(t, "index"),
		MaxMessageBytes:    2000,
		GroupBytes:         rapid.SampledFrom([]int32{2000, 1 << 20}).Draw(t, "group"),
		CheckpointBytes:    rapid.SampledFrom([]int64{1, 700, 64 << 20}).Draw(t, "checkpoint"),
		SyncMessages:       rapid.SampledFrom([]int64{0, 1, 7}).Draw(t, "flush"),
		Preallocate:        rapid.Bool().Draw(t, "preallocate"),
		TimestampAfterMax:  Never,
	}
})

// The log answers as a list of batches would of which everything is found out anew at each step; and the same calls under
// other settings get the same answers and leave the same history.
func TestLog_Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := configurations.Draw(t, "configuration")
		o.ManualHighWatermark = rapid.Bool().Draw(t, "manual")
		e, err := newEngine(o)
		if err != nil {
			t.Fatal(err)
		}
		m := &machine{engine: e, ref: reference{manual: o.ManualHighWatermark}}
		defer func() { _ = m.l.Close() }()
		t.Repeat(m.actions())
		for range 2 {
			other := configurations.Draw(t, "other configuration")
			other.ManualHighWatermark = o.ManualHighWatermark
			m.again(t, other)
		}
	})
}

// again makes the calls on a log with other settings.
func (m *machine) again(t *rapid.T, o Options) {
	e, err := newEngine(o)
	if err != nil {
		t.Fatal(err)
	}
	twin := &machine{engine: e, ref: m.ref}
	defer func() { _ = twin.l.Close() }()
	for i := range m.acts {
		info, answer, err := twin.do(&m.acts[i])
		if err != nil {
			t.Fatalf("%s under %+v: %v", m.acts[i].kind, o, err)
		}
		if got := told(info, answer); got != m.told[i] {
			t.Fatalf("call %d, %s, under %+v: %s, was %s", i, m.acts[i].kind, o, got, m.told[i])
		}
	}
	got, want := twin.l.Offsets(), m.l.Offsets()
	got.RecoveryPoint = want.RecoveryPoint
	if got != want {
		t.Fatalf("under %+v: %+v, was %+v", o, got, want)
	}
	if err := twin.compare(); err != nil {
		t.Fatalf("under %+v: %v", o, err)
	}
}
