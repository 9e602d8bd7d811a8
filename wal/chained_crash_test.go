package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
)

// chain is a log that lives through many crashes: what one of them leaves is recovered, written to again, and goes down
// again. The ledger is cut to what survived each time.
type chain struct {
	seed  uint64
	rand  *rand.Rand
	kind  chainKind
	mode  SyncMode
	opts  Options
	mem   *vfstest.Mem
	fsys  vfs.FS
	log   *Log
	now   time.Time
	epoch int32 // of the leader

	led   ledger
	end   int64 // log end at the open of this generation
	seen  int64 // log end that the last check saw
	weak  bool  // a broker wrote, and remembers one batch of each producer
	ids   map[int64]*chainProducer
	steps []string
}

// chainKind says what a chain does beside what all of them do.
type chainKind struct {
	name     string
	follower bool // appends with offsets of their own, with gaps, several batches at once
	kafka    bool // the parent is a log directory of Kafka
	modes    bool // each open may choose another mode
	policy   Policy
	policies bool // each open may choose PointInTime
	cuts     bool // truncates
	other    bool // between generations a broker may write
	damage   bool // what is derived is damaged or deleted between generations
	faults   bool // syncs and writes of one generation fail
	mapped   bool // dropping the cache leaves mapped files alone
}

// chainProducer is what the next batch of a producer has to carry.
type chainProducer struct {
	epoch int16
	seq   int32
	open  bool // a transaction
}

var chainKinds = []chainKind{
	{name: "leader"},
	{name: "follower", follower: true},
	{name: "kafka directory", kafka: true, follower: true},
	{name: "truncations", cuts: true},
	{name: "truncations follower", cuts: true, follower: true},
	{name: "truncations in a kafka directory", cuts: true, follower: true, kafka: true, modes: true},
	{name: "another program", kafka: true, other: true},
	{name: "another program follower", kafka: true, other: true, follower: true, modes: true},
	{name: "changing modes", modes: true},
	{name: "changing modes follower", modes: true, follower: true},
	{name: "point in time", policy: PointInTime},
	{name: "changing policies", policies: true, modes: true},
	{name: "damaged caches", damage: true},
	{name: "damaged caches follower", damage: true, follower: true, modes: true},
	{name: "failing syncs", faults: true, mapped: true},
	{name: "failing syncs follower", faults: true, follower: true, modes: true},
}

func newChain(seed uint64, kind chainKind, mode SyncMode) (*chain, error) {
	c := &chain{seed: seed, rand: rand.New(rand.NewPCG(seed, 17)), kind: kind, mode: mode, ids: map[int64]*chainProducer{},
		now: time.UnixMilli(1_700_000_000_000)}
	c.mem = vfstest.NewMemWith(vfstest.MemOptions{Seed: seed, KeepMapped: kind.mapped})
	c.opts = Options{
		SegmentBytes: int32(1500 + c.rand.IntN(3000)), IndexIntervalBytes: int32(c.rand.IntN(2) * 200), MaxIndexBytes: 4096,
		MaxMessageBytes: 1400, GroupBytes: 1400, CheckpointBytes: int64(700 + c.rand.IntN(3000)),
		DamagePolicy: kind.policy, Now: func() time.Time { return c.now }, manual: true,
	}
	if err := errors.Join(c.mem.MkdirAll("/data", 0o755), c.mem.SyncDir("/")); err != nil {
		return nil, err
	}
	if kind.kafka {
		tp := checkpoint.TopicPartition{Topic: "t"}
		for _, name := range []string{checkpoint.RecoveryPointFile, checkpoint.LogStartFile} {
			if err := checkpoint.WriteOffsets(c.mem, filepath.Join("/data", name), map[checkpoint.TopicPartition]int64{tp: 0}); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

func (c *chain) open() error {
	if c.kind.modes {
		c.mode = modes[c.rand.IntN(len(modes))]
	}
	if c.kind.policies {
		c.opts.DamagePolicy = Policy(c.rand.IntN(2)) * PointInTime
	}
	c.opts.Sync = c.mode
	l, err := OpenFS(context.Background(), c.fsys, simDir, c.opts)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	c.log = l
	c.led.sent, c.led.durable = c.led.sent[:c.led.acked:c.led.acked], c.led.acked
	c.end = l.Offsets().LogEnd
	return nil
}

func (c *chain) note(what string, err error) error {
	c.steps = append(c.steps, what)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// step does one random thing.
func (c *chain) step() error {
	c.now = c.now.Add(time.Duration(c.rand.IntN(1000)) * time.Millisecond)
	if c.kind.cuts && c.rand.IntN(10) == 0 {
		return c.truncate()
	}
	switch n := c.rand.IntN(100); {
	case n < 60:
		return c.append()
	case n < 68:
		return c.marker()
	case n < 73:
		return c.note("roll", c.log.Roll())
	case n < 80:
		return c.flushed("flush", c.log.Flush())
	case n < 87:
		return c.flushed("checkpoint", c.log.Checkpoint())
	case n < 91:
		if c.mode == SyncInterval && n < 89 {
			c.log.syncInterval()
			return c.flushed("sync", c.log.failure())
		}
		c.log.refreshState()
		return c.note("refresh", nil)
	case n < 95:
		c.epoch += int32(c.rand.IntN(2))
		return nil
	default:
		if err := c.flushed("close", c.log.Close()); err != nil {
			return err
		}
		return c.note("open", c.open())
	}
}

// truncate cuts the log anywhere, also inside a batch or a gap, or begins it anew.
func (c *chain) truncate() error {
	end := c.log.Offsets().LogEnd
	kept, to := 0, c.rand.Int64N(end+1)
	fully := c.rand.IntN(6) == 0
	if fully {
		to = end + c.rand.Int64N(20) - c.rand.Int64N(20)
		to = max(0, to)
	}
	for !fully && kept < len(c.led.sent) && c.led.sent[kept].last < to {
		kept++
	}
	// What is removed may be there as long as the cut is under way.
	c.led.acked, c.led.durable = min(c.led.acked, kept), min(c.led.durable, kept)
	c.end = max(c.end, to, end)
	var err error
	if fully {
		err = c.log.TruncateFullyAndStartAt(to, to)
	} else {
		_, err = c.log.TruncateTo(to)
	}
	if err == nil {
		c.led.sent = slices.Clone(c.led.sent[:kept])
		c.led.acked = kept
		c.end = c.log.Offsets().LogEnd
		c.resume()
		if c.end != to {
			err = fmt.Errorf("the log ends at %d", c.end)
		}
	}
	return c.note(fmt.Sprintf("truncate to %d of %d, fully %v, %d batches kept", to, end, fully, kept), err)
}

func (c *chain) flushed(what string, err error) error {
	if err == nil {
		c.led.durable = c.led.acked
	}
	return c.note(what, err)
}

func (c *chain) append() error {
	if !c.kind.follower || c.rand.IntN(3) == 0 {
		b, id, p, err := c.batch()
		if err != nil {
			return err
		}
		return c.leads(fmt.Sprintf("append of producer %d at %d", id, c.log.Offsets().LogEnd), b, p, LeaderAppend{TransactionVersion: NoTransactionVersion})
	}
	return c.follows()
}

// batch makes a batch of a random producer, and gives what is known of that once it is stored.
func (c *chain) batch() (record.Batch, int64, *chainProducer, error) {
	id := int64(c.rand.IntN(7)) - 1
	var o record.BuilderOptions
	n := 1 + c.rand.IntN(4)
	var p *chainProducer
	if id >= 0 {
		p = &chainProducer{seq: math.MaxInt32 - int32(c.rand.IntN(12))}
		if old := c.ids[id]; old != nil {
			*p = *old
			if c.rand.IntN(8) == 0 && !old.open {
				*p = chainProducer{epoch: old.epoch + 1}
			}
		}
		o.Producer = &record.Producer{ID: id, Epoch: p.epoch, BaseSequence: p.seq}
		p.seq = record.IncrementSequence(p.seq, int32(n))
		o.Transactional = id >= 4
		p.open = o.Transactional
	}
	w := record.NewBuilder(o)
	for i := range n {
		value := bytes.Repeat([]byte{byte('a' + c.rand.IntN(26))}, 20+c.rand.IntN(200))
		if err := w.Append(c.now.UnixMilli()+int64(i), record.Record{Key: []byte{byte(i)}, Value: value}); err != nil {
			return nil, 0, nil, err
		}
	}
	b, err := w.Batch()
	return bytes.Clone(b), id, p, err
}

func (c *chain) marker() error {
	var ids []int64
	for _, id := range slices.Sorted(maps.Keys(c.ids)) {
		if c.ids[id].open {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return c.append()
	}
	id := ids[c.rand.IntN(len(ids))]
	kind := record.Commit
	if c.rand.IntN(2) == 0 {
		kind = record.Abort
	}
	p := *c.ids[id]
	p.open = false
	b := record.AppendEndTxnMarker(nil, record.Producer{ID: id, Epoch: p.epoch}, record.EndTxnMarker{Type: kind}, c.now.UnixMilli())
	return c.leads(fmt.Sprintf("marker of producer %d", id), b, &p, LeaderAppend{Origin: Coordinator})
}

// leads appends as a leader. The batch is in the ledger before the log gets it, since a crash inside the call may leave it.
func (c *chain) leads(what string, b record.Batch, p *chainProducer, o LeaderAppend) error {
	o.LeaderEpoch = c.epoch
	stored := record.Batch(bytes.Clone(b))
	first := c.log.Offsets().LogEnd
	stored.SetBaseOffset(first)
	stored.SetPartitionLeaderEpoch(c.epoch)
	c.led.sent = append(c.led.sent, sentBatch{stored: stored, first: first, last: stored.LastOffset()})
	info, err := c.log.AppendAsLeader(b, o)
	if err == nil && (info.FirstOffset != first || info.Duplicate) {
		err = fmt.Errorf("appended at %d, want %d: %+v", info.FirstOffset, first, info)
	}
	if err == nil {
		c.acknowledged()
		if p != nil {
			c.ids[stored.ProducerID()] = p
		}
	}
	return c.note(what, err)
}

// follows appends up to four batches with offsets of their own, with or without gaps, and at times more than a group holds.
func (c *chain) follows() error {
	at := c.log.Offsets().LogEnd
	var p []byte
	before := len(c.led.sent)
	ids := maps.Clone(c.ids)
	for range 1 + c.rand.IntN(4) {
		b, id, known, err := c.batch()
		if err != nil {
			return err
		}
		if len(p)+b.Size() > int(c.opts.SegmentBytes) {
			break
		}
		if c.rand.IntN(4) == 0 {
			at += int64(c.rand.IntN(20))
		}
		b.SetBaseOffset(at)
		b.SetPartitionLeaderEpoch(c.epoch)
		at = b.NextOffset()
		p = append(p, b...)
		c.led.sent = append(c.led.sent, sentBatch{stored: b, first: b.BaseOffset(), last: b.LastOffset()})
		if known != nil {
			c.ids[id] = known
		}
	}
	info, err := c.log.AppendAsFollower(p, c.epoch)
	if err == nil && (info.FirstOffset != c.led.sent[before].first || info.LastOffset != at-1) {
		err = fmt.Errorf("appended %d to %d, want up to %d", info.FirstOffset, info.LastOffset, at-1)
	}
	if err == nil {
		c.acknowledged()
	} else {
		c.ids = ids
	}
	return c.note(fmt.Sprintf("follower append of %d batches, %d bytes, up to %d", len(c.led.sent)-before, len(p), at), err)
}

func (c *chain) acknowledged() {
	c.led.acked = len(c.led.sent)
	if c.mode == SyncCommit {
		c.led.durable = c.led.acked
	}
}

// adopt makes what a crash left the log that goes on.
func (c *chain) adopt(m *vfstest.Mem, led ledger, survived int, kill bool) {
	c.mem, c.end = m, c.seen
	c.led = ledger{sent: slices.Clone(led.sent[:survived]), acked: survived, durable: survived}
	if kill { // what a power cut before the next recovery has synced it may take
		c.led.durable = min(survived, led.durable)
		c.led.sent = slices.Clone(led.sent) // and it may bring back what was cut
		c.end = max(c.end, led.end())
	}
	c.resume()
}

// resume lets the producers go on where the log now ends.
func (c *chain) resume() {
	c.ids = map[int64]*chainProducer{}
	for _, s := range c.led.sent[:c.led.acked] {
		b := record.Batch(s.stored)
		if !b.HasProducerID() {
			continue
		}
		p := &chainProducer{epoch: b.ProducerEpoch()}
		if b.Attributes().IsControl() {
			if old := c.ids[b.ProducerID()]; old != nil {
				p.seq = old.seq
			}
		} else {
			p.seq = record.IncrementSequence(b.LastSequence(), 1)
			p.open = b.Attributes().IsTransactional()
		}
		c.ids[b.ProducerID()] = p
	}
}

// generation runs the log from an open to a crash, which is looked at in several ways at every operation. One of these
// crashes is what the next generation begins with.
func (c *chain) generation(steps, perOp, survivorAt int) (states int, err error) {
	var failure error
	type heir struct {
		mem  *vfstest.Mem
		led  ledger
		kill bool // all that was acknowledged is there
		mode vfstest.CrashMode
		what string
	}
	var next *heir
	n, ops := c.rand.Uint64()>>16, 0
	sawFault := false
	crash := func(op vfstest.Op, after bool) {
		if failure != nil || next != nil {
			return
		}
		ops++
		for range perOp {
			n++
			o := vfstest.RandomCrash(n)
			if n%3 == 0 {
				o = vfstest.CrashOptions{Mode: vfstest.Kill, Seed: n}
			}
			led := c.led
			states++
			kill := o.Mode == vfstest.Kill && !sawFault
			opts := c.opts
			if _, err := c.check(c.mem.Crash(o), &led, opts, kill); err != nil {
				failure = fmt.Errorf("state %d: %v\n%w", n, crashPoint{op, after, o}, err)
				return
			}
			if ops >= survivorAt {
				next = &heir{c.mem.Crash(o), led, kill, o.Mode, crashPoint{op, after, o}.String()}
				return
			}
		}
	}
	var inj vfstest.Injector = vfstest.Each(vfstest.Writes, crash)
	if c.kind.faults {
		kinds := vfstest.Kinds(vfstest.OpSyncData, vfstest.OpSync, vfstest.OpFlush, vfstest.OpWrite, vfstest.OpTruncate)
		fault := vfstest.Fault{Err: syscall.EIO, How: vfstest.How(c.rand.IntN(3))}
		nth := vfstest.FailNth(kinds, 1+c.rand.IntN(120), fault, c.rand.IntN(2) == 0)
		inj = vfstest.Chain(vfstest.Hook{BeforeOp: func(o vfstest.Op) vfstest.Fault {
			f := nth.Before(o)
			sawFault = sawFault || f.Err != nil
			return f
		}}, inj)
	}
	c.fsys = vfstest.Inject(c.mem, inj)
	c.log = nil
	if err = c.open(); err == nil {
		for i := 0; i < steps && failure == nil && next == nil && err == nil; i++ {
			err = c.step()
		}
	}
	if c.log != nil && !c.log.closed {
		_ = abandonLog(c.log)
	}
	if failure != nil {
		return states, failure
	}
	if err != nil && next == nil && !sawFault {
		return states, err
	}
	if next == nil { // an end by a kill, or by a power cut
		o := vfstest.RandomCrash(n)
		if c.rand.IntN(2) == 0 {
			o = vfstest.CrashOptions{Mode: vfstest.Kill, Seed: n}
		}
		next = &heir{c.mem.Crash(o), c.led, o.Mode == vfstest.Kill && !sawFault, o.Mode, fmt.Sprintf("crash %+v at the end", o)}
	}
	if c.kind.damage {
		for range c.rand.IntN(3) {
			what, err := c.spoil(next.mem)
			if err != nil {
				return states, err
			}
			next.what += ", " + what
		}
	}
	if c.kind.other && c.rand.IntN(2) == 0 {
		c.steps = append(c.steps, "--- "+next.what)
		if err := c.broker(next.mem, next.led, next.kill); err != nil {
			return states, fmt.Errorf("%s, then a broker: %w", next.what, err)
		}
		return states, nil
	}
	survived, err := c.check(next.mem.Crash(vfstest.CrashOptions{Seed: n}), &next.led, c.opts, next.kill)
	if err != nil {
		return states, fmt.Errorf("%s: %w", next.what, err)
	}
	c.adopt(next.mem, next.led, survived, next.mode == vfstest.Kill)
	c.steps = append(c.steps, "--- "+next.what)
	return states, nil
}

func runChain(seed uint64, kind chainKind, mode SyncMode, generations int) (states int, err error) {
	c, err := newChain(seed, kind, mode)
	if err != nil {
		return 0, err
	}
	for g := range generations {
		n, err := c.generation(12+c.rand.IntN(30), 1+c.rand.IntN(2), 1+c.rand.IntN(160))
		states += n
		if err != nil {
			return states, fmt.Errorf("seed %d, %s, %v, generation %d: %w\nsteps %q", seed, kind.name, c.mode, g, err, tail(c.steps, 25))
		}
	}
	return states, nil
}

func TestChainedCrashes(t *testing.T) {
	want := 1 // one seed
	if os.Getenv("ONCELOG_LONG") != "" {
		want = 1500
	}
	if *crashStates > 0 {
		want = *crashStates
	}
	for _, kind := range chainKinds {
		for _, mode := range modes {
			if kind.modes && mode != SyncCommit {
				continue
			}
			t.Run(kind.name+"/"+mode.String(), func(t *testing.T) {
				t.Parallel()
				total := 0
				for seed := uint64(1); total < want; seed++ {
					if *crashSeed != 0 {
						seed = *crashSeed
					}
					n, err := runChain(seed, kind, mode, 6)
					total += n
					if err != nil {
						t.Fatal(err)
					}
					if *crashSeed != 0 {
						break
					}
				}
				t.Logf("%d crash states", total)
			})
		}
	}
}
