package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/recovery"
	"github.com/oncelog/oncelog/segment"
)

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
	stored, err := readLevel(l, LogEnd)
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
