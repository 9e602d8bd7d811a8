package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/kafkadir"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/recovery"
	"github.com/oncelog/oncelog/segment"
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

// check opens what a crash left and holds it against the ledger. It returns how many batches survived.
func (c *chain) check(m vfs.FS, led *ledger, o Options, kill bool) (survived int, err error) {
	l, err := OpenFS(context.Background(), m, simDir, o)
	if err != nil {
		return 0, fmt.Errorf("open after the crash: %w", err)
	}
	defer func() { err = errors.Join(err, abandonLog(l)) }()
	if survived, err = c.survivors(l, led, kill); err != nil {
		return survived, fmt.Errorf("%w\nreport %+v", err, l.RecoveryReport())
	}
	return survived, nil
}

func (c *chain) survivors(l *Log, led *ledger, kill bool) (survived int, err error) {
	// What Kafka's rule makes of a torn batch is called a problem.
	if r := l.RecoveryReport(); (r.Problems() && c.opts.DamagePolicy != PointInTime && !c.kind.damage) || len(r.Holes) > 0 {
		return 0, fmt.Errorf("a crash is reported as a problem: %v", r.Findings)
	}
	stored, err := readUpTo(l)
	if err != nil {
		return 0, err
	}
	must := led.durable
	if kill {
		must = led.acked
	}
	if len(stored) < must {
		return 0, fmt.Errorf("I1: %d batches survived, %d had been acknowledged for good", len(stored), must)
	}
	if len(stored) > len(led.sent) {
		return 0, fmt.Errorf("I7: %d batches survived of %d sent", len(stored), len(led.sent))
	}
	end := int64(0)
	for i, b := range stored {
		if !bytes.Equal(b, led.sent[i].stored) {
			return 0, fmt.Errorf("I4: batch %d is not the one sent there", i)
		}
		end = led.sent[i].last + 1
	}
	// A roll that a gap made may have moved the end to the batch that was to come.
	upTo := end
	if len(stored) < len(led.sent) {
		upTo = max(end, led.sent[len(stored)].first)
	}
	upTo = max(upTo, c.end)
	c.seen = l.Offsets().LogEnd
	if c.seen < end || c.seen > upTo {
		return 0, fmt.Errorf("I3: log end %d, the batches end at %d", c.seen, end)
	}
	if err := c.producers(l, stored); err != nil {
		return 0, err
	}
	if err := c.epochs(l, stored); err != nil {
		return 0, err
	}
	if err := c.times(l, stored); err != nil {
		return 0, err
	}
	return len(stored), c.retries(l, led, stored)
}

// times is I17 for the time index.
func (c *chain) times(l *Log, stored [][]byte) error {
	type stamped struct{ ms, offset int64 }
	var all []stamped
	for _, p := range stored {
		for r, err := range record.Batch(p).Records(record.Limits{}) {
			if err != nil {
				return err
			}
			all = append(all, stamped{r.Timestamp, r.Offset})
		}
	}
	for i := 0; i < len(all); i += 1 + len(all)/8 {
		want := all[slices.IndexFunc(all, func(s stamped) bool { return s.ms >= all[i].ms })]
		got, found, err := l.OffsetForTimestamp(all[i].ms)
		if err != nil || !found || got.Offset != want.offset || got.Timestamp != want.ms {
			return fmt.Errorf("I17: time %d is at offset %d, the time index says %+v, %v, %v", all[i].ms, want.offset, got, found, err)
		}
	}
	return nil
}

// spoil damages or deletes something that can be made anew: an index, a snapshot, a side file, a hint. It tells what.
func (c *chain) spoil(m *vfstest.Mem) (string, error) {
	entries, err := m.ReadDir(simDir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	var names []string
	for _, e := range entries {
		switch n := segment.Parse(e.Name); n.Kind {
		case segment.KindOffsetIndex, segment.KindTimeIndex, segment.KindSnapshot, segment.KindProducers, segment.KindState:
			names = append(names, e.Name)
		}
	}
	if err != nil || len(names) == 0 {
		return "", err
	}
	name := names[c.rand.IntN(len(names))]
	path := filepath.Join(simDir, name)
	hint := name == recovery.StateFileName
	if !hint && c.rand.IntN(3) == 0 {
		return "without " + name, m.Remove(path)
	}
	f, err := m.OpenFile(path, vfs.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	info, err := f.Stat()
	if err == nil && info.Size > 0 {
		at := c.rand.Int64N(info.Size)
		if hint {
			at = 8192 + c.rand.Int64N(512)
		}
		n := 1 + c.rand.IntN(8)
		if !hint && c.rand.IntN(3) == 0 {
			err = f.Truncate(at)
		} else {
			_, err = f.WriteAt(bytes.Repeat([]byte{byte(c.rand.Uint32())}, n), at)
		}
	}
	return "damage in " + name, errors.Join(err, f.Sync(), f.Close())
}

// readUpTo is readAll for a log that may end in a gap: behind its last batch no other comes.
func readUpTo(l *Log) (list [][]byte, err error) {
	for at := l.Offsets().LogStart; at < l.Offsets().LogEnd; {
		f, err := l.Read(at, ReadOptions{MaxBytes: 1 << 20, Isolation: LogEnd, MinOneMessage: true})
		if err != nil {
			return nil, err
		}
		n := 0
		for b, err := range f.Records.Batches() {
			if err != nil {
				return nil, errors.Join(err, f.Close())
			}
			list = append(list, bytes.Clone(b.Batch))
			at = b.NextOffset()
			n++
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
	}
	return list, nil
}

// chainState is what a replay says of a producer.
type chainState struct {
	epoch   int16
	batches []producerstate.BatchMetadata
	txn     int64
}

func (c *chain) producers(l *Log, stored [][]byte) error {
	want := map[int64]*chainState{}
	var aborted []AbortedTxn
	for _, p := range stored {
		b := record.Batch(p)
		if !b.HasProducerID() {
			continue
		}
		n := want[b.ProducerID()]
		if n == nil {
			n = &chainState{txn: -1}
			want[b.ProducerID()] = n
		}
		if b.Attributes().IsControl() {
			m, err := b.EndTxnMarker()
			if err != nil {
				return err
			}
			if m.Type == record.Abort && n.txn >= 0 {
				aborted = append(aborted, AbortedTxn{ProducerID: b.ProducerID(), FirstOffset: n.txn, LastOffset: b.BaseOffset()})
			}
			n.txn = -1
			continue
		}
		if b.ProducerEpoch() != n.epoch {
			n.epoch, n.batches = b.ProducerEpoch(), nil
		}
		if b.Attributes().IsTransactional() && n.txn < 0 {
			n.txn = b.BaseOffset()
		}
		n.batches = append(n.batches, producerstate.BatchMetadata{LastSequence: b.LastSequence(), LastOffset: b.LastOffset(),
			OffsetDelta: b.LastOffsetDelta(), Timestamp: b.MaxTimestamp()})
		n.batches = n.batches[max(0, len(n.batches)-5):]
	}
	got := map[int64]*chainState{}
	l.mu.Lock()
	for e := range l.producers.Active() {
		got[e.ProducerID] = &chainState{epoch: e.ProducerEpoch, batches: slices.Collect(e.Batches()), txn: e.CurrentTxnFirstOffset}
	}
	l.mu.Unlock()
	for id, w := range want {
		g := got[id]
		if c.weak && g != nil && len(g.batches) > 0 { // I9k; what a snapshot says of the time may be that of a marker
			w.batches = w.batches[max(0, len(w.batches)-len(g.batches)):]
			for i := range w.batches {
				w.batches[i].Timestamp = g.batches[i].Timestamp
			}
		}
		if g == nil || g.txn != w.txn || g.epoch != w.epoch || !slices.Equal(g.batches, w.batches) {
			return fmt.Errorf("I9: producer %d is %+v, a replay says %+v", id, g, w)
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("I9: %d producers, a replay says %d", len(got), len(want))
	}
	var indexed []AbortedTxn
	for s := range l.segments.Load().All() {
		txns, _, err := s.AbortedTxns(0, 1<<62)
		if err != nil {
			return err
		}
		for _, t := range txns {
			t.LastStableOffset = 0
			indexed = append(indexed, t)
		}
	}
	if !slices.Equal(indexed, aborted) {
		return fmt.Errorf("I17: transaction index %+v, a replay says %+v", indexed, aborted)
	}
	return nil
}

// epochs is I20.
func (c *chain) epochs(l *Log, stored [][]byte) error {
	type entry struct {
		epoch int32
		start int64
	}
	var want, got []entry
	for _, p := range stored {
		b := record.Batch(p)
		if e := b.PartitionLeaderEpoch(); len(want) == 0 || e > want[len(want)-1].epoch {
			want = append(want, entry{e, b.BaseOffset()})
		}
	}
	for _, e := range l.epochs.Entries() {
		got = append(got, entry{e.Epoch, e.StartOffset})
	}
	// An election counts from the log end on, wherever the next batch begins; and an epoch stays where its first batch was cut.
	if c.weak || c.kind.cuts {
		for i := range min(len(got), len(want)) {
			got[i].start = want[i].start
		}
	}
	if c.kind.cuts && len(want) == 0 && len(got) == 1 {
		return nil // the epoch of the log that was being removed
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("I20: leader epochs %v, a scan says %v", got, want)
	}
	return nil
}

// retries is I13: each of the last five batches of a producer's epoch is a duplicate with its first offsets.
func (c *chain) retries(l *Log, led *ledger, stored [][]byte) error {
	seen, epochs := map[int64]int{}, map[int64]int16{}
	for i := len(stored) - 1; i >= 0; i-- {
		b := record.Batch(bytes.Clone(stored[i]))
		id := b.ProducerID()
		if id < 0 || b.Attributes().IsControl() {
			continue
		}
		if seen[id] == 0 {
			epochs[id] = b.ProducerEpoch()
		}
		if seen[id]++; seen[id] > 5 || c.weak && seen[id] > 1 || epochs[id] != b.ProducerEpoch() {
			continue
		}
		b.SetBaseOffset(0)
		info, err := l.AppendAsLeader(b, LeaderAppend{TransactionVersion: NoTransactionVersion, LeaderEpoch: c.epoch})
		if err != nil || !info.Duplicate || info.FirstOffset != led.sent[i].first || info.LastOffset != led.sent[i].last {
			return fmt.Errorf("I13: retry of batch %d (offset %d): %+v, %v", i, led.sent[i].first, info, err)
		}
	}
	return nil
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

// hidden is a file system without the files of ours, as a broker sees it.
type hidden struct{ *vfstest.Mem }

func isOurs(name string) bool {
	base := filepath.Base(name)
	return strings.HasPrefix(base, "oncelog.") && base != lockFile
}

func (h hidden) ReadDir(dir string) ([]vfs.DirEntry, error) {
	list, err := h.Mem.ReadDir(dir)
	return slices.DeleteFunc(list, func(e vfs.DirEntry) bool { return isOurs(e.Name) }), err
}

func (h hidden) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	if isOurs(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return h.Mem.OpenFile(name, flag, perm)
}

// broker lets a broker open what a crash left, go on with it in a new leader epoch, and stop, in order or not. Compat is
// the broker, held against Kafka elsewhere.
func (c *chain) broker(m *vfstest.Mem, led ledger, kill bool) error {
	o := c.opts
	o.Compat, o.DamagePolicy, o.Sync = true, TolerateTornTail, SyncNone
	l, err := OpenFS(context.Background(), hidden{m}, simDir, o)
	if err != nil {
		return err
	}
	c.log = l
	defer func() { _ = abandonLog(l) }()
	stored, err := readUpTo(l)
	if err != nil {
		return err
	}
	must := led.durable
	if kill {
		must = led.acked
	}
	if len(stored) < must || len(stored) > len(led.sent) {
		return fmt.Errorf("I1: %d batches of %d, %d had been acknowledged for good", len(stored), len(led.sent), must)
	}
	for i, b := range stored {
		if !bytes.Equal(b, led.sent[i].stored) {
			return fmt.Errorf("I4: batch %d is not the one sent there", i)
		}
	}
	c.seen = l.Offsets().LogEnd
	c.adopt(m, led, len(stored), false)
	c.epoch++
	c.weak = true
	l.mu.Lock()
	if _, err = l.epochs.Assign(c.epoch, c.seen); err == nil { // it was elected
		err = l.flushEpochs()
	}
	l.mu.Unlock()
	if err != nil {
		return err
	}
	for range c.rand.IntN(12) {
		switch c.rand.IntN(8) {
		case 0:
			err = c.note("broker's roll", l.Roll())
		case 1:
			err = c.marker()
		default:
			err = c.append()
		}
		if err != nil {
			return err
		}
	}
	c.led.durable = c.led.acked
	c.seen = l.Offsets().LogEnd
	c.end = c.seen
	if c.rand.IntN(2) == 0 {
		c.steps = append(c.steps, "broker killed")
		m.SyncAll()
		return nil
	}
	if err := c.note("broker closed", l.Close()); err != nil {
		return err
	}
	f, err := m.OpenFile(filepath.Join("/data", kafkadir.MarkerFile), vfs.O_RDWR|vfs.O_CREATE, 0o644)
	if err == nil {
		err = f.Close()
	}
	m.SyncAll()
	return err
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
	seeds := uint64(1)
	switch {
	case testing.Short():
		seeds = 1
	case os.Getenv("ONCELOG_LONG") != "":
		seeds = 30
	}
	for _, kind := range chainKinds {
		for _, mode := range modes {
			if kind.modes && mode != SyncCommit {
				continue
			}
			t.Run(kind.name+"/"+mode.String(), func(t *testing.T) {
				t.Parallel()
				total := 0
				for seed := uint64(1); seed <= seeds; seed++ {
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
