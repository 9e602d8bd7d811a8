package wal

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/record"
)

// sentBatch is a batch that a test handed to the log, with the bytes that the log must then hold.
type sentBatch struct {
	stored []byte // as stored, offsets and leader epoch set
	first  int64
	last   int64
}

// ledger is what a test knows of the appends it made, in order. The last one may be under way, and so may a truncation,
// which leaves what it was to remove in sent and takes it out of acked and durable.
type ledger struct {
	sent    []sentBatch
	acked   int // of sent
	durable int // of sent: acknowledged, and promised to survive a power cut

	logStart, highestStart int64 // the log start is between them: it may be moving
	compacted              int64 // batches below may have been compacted; 0: none was
}

// end is the offset behind everything sent.
func (l *ledger) end() int64 {
	if n := len(l.sent); n > 0 {
		return l.sent[n-1].last + 1
	}
	return 0
}

// durableEnd is the offset behind what is promised to survive a power cut.
func (l *ledger) durableEnd() int64 {
	if l.durable > 0 {
		return l.sent[l.durable-1].last + 1
	}
	return 0
}

// simulation drives a log on a simulated file system by a seed and keeps the ledger.
type simulation struct {
	seed   uint64
	rand   *rand.Rand
	mode   SyncMode
	opts   Options
	fsys   vfs.FS
	log    *Log
	ledger ledger
	seqs   map[int64]int32 // next sequence by producer
	open   map[int64]bool  // producers with an open transaction
	now    time.Time
	steps  []string

	compacts bool // the log is a compacted one
	replaced int  // segments by compaction
}

const simDir = "/data/t-0"

func newSimulation(seed uint64, mode SyncMode) *simulation {
	s := &simulation{seed: seed, rand: rand.New(rand.NewPCG(seed, 7)), mode: mode,
		seqs: map[int64]int32{}, open: map[int64]bool{}, now: time.UnixMilli(1_700_000_000_000)}
	s.opts = Options{
		Sync: mode, SegmentBytes: int32(1500 + s.rand.IntN(3000)), IndexIntervalBytes: 200, MaxIndexBytes: 4096,
		RetentionBytes: int64(3000 + s.rand.IntN(6000)), FileDeleteDelay: time.Second,
		CheckpointBytes: int64(700 + s.rand.IntN(3000)), Now: func() time.Time { return s.now }, manual: true,
	}
	return s
}

func (s *simulation) openLog() error {
	l, err := OpenFS(context.Background(), s.fsys, simDir, s.opts)
	if err != nil {
		return err
	}
	s.log = l
	return nil
}

// step does one random thing. Errors of the log are returned: a simulation without faults has none.
func (s *simulation) step() error {
	s.now = s.now.Add(time.Duration(s.rand.IntN(1000)) * time.Millisecond)
	if s.compacts && s.rand.IntN(8) == 0 {
		return s.compact()
	}
	switch n := s.rand.IntN(100); {
	case n < 62:
		return s.appendRandom()
	case n < 72:
		return s.endTxn()
	case n < 78:
		return s.note("roll", s.log.Roll())
	case n < 86:
		return s.flushed("flush", s.log.Flush())
	case n < 93:
		return s.flushed("checkpoint", s.log.Checkpoint())
	case n < 94:
		s.log.refreshState()
		return s.note("refresh", nil)
	case n < 96:
		return s.truncate()
	case n < 97:
		return s.deleteRecords()
	case n < 98:
		return s.deleteSegments()
	default:
		if err := s.flushed("close", s.log.Close()); err != nil {
			return err
		}
		return s.note("open", s.openLog())
	}
}

func (s *simulation) note(what string, err error) error {
	s.steps = append(s.steps, what)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func (s *simulation) flushed(what string, err error) error {
	if err == nil {
		s.ledger.durable = s.ledger.acked
	}
	return s.note(what, err)
}

func (s *simulation) appendRandom() error {
	id := int64(s.rand.IntN(6)) - 1
	if id < 0 {
		id = record.NoProducerID
	}
	n := 1 + s.rand.IntN(3)
	o := record.BuilderOptions{}
	if id >= 0 {
		o.Producer = &record.Producer{ID: id, Epoch: 0, BaseSequence: s.seqs[id]}
		if id >= 4 { // transactional producers
			o.Transactional = true
			s.open[id] = true
		}
	}
	b := record.NewBuilder(o)
	for i := range n {
		value := bytes.Repeat([]byte{byte('a' + s.rand.IntN(26))}, 20+s.rand.IntN(200))
		r := record.Record{Key: []byte{byte(i)}, Value: value}
		if s.compacts {
			s.keyed(&r)
		}
		if err := b.Append(s.now.UnixMilli()+int64(i), r); err != nil {
			return err
		}
	}
	p, err := b.Batch()
	if err != nil {
		return err
	}
	err = s.append(bytes.Clone(p), int32(n), LeaderAppend{TransactionVersion: NoTransactionVersion})
	if err == nil && id >= 0 {
		s.seqs[id] = record.IncrementSequence(s.seqs[id], int32(n))
	}
	return s.note(fmt.Sprintf("append of producer %d", id), err)
}

func (s *simulation) endTxn() error {
	ids := slices.Sorted(maps.Keys(s.open))
	if len(ids) == 0 {
		return s.appendRandom()
	}
	id := ids[s.rand.IntN(len(ids))]
	kind := record.Commit
	if s.rand.IntN(2) == 0 {
		kind = record.Abort
	}
	p := record.AppendEndTxnMarker(nil, record.Producer{ID: id}, record.EndTxnMarker{Type: kind}, s.now.UnixMilli())
	delete(s.open, id)
	return s.note(fmt.Sprintf("marker of producer %d", id), s.append(p, 1, LeaderAppend{Origin: Coordinator}))
}

// append writes the batch into the ledger before the log gets it, since a crash inside the call may leave it.
func (s *simulation) append(p []byte, n int32, o LeaderAppend) error {
	first := s.ledger.end()
	stored := record.Batch(bytes.Clone(p))
	stored.SetBaseOffset(first)
	stored.SetPartitionLeaderEpoch(0)
	s.ledger.sent = append(s.ledger.sent, sentBatch{stored: stored, first: first, last: first + int64(n) - 1})
	info, err := s.log.AppendAsLeader(p, o)
	if err != nil {
		return err
	}
	if info.FirstOffset != first || info.Duplicate {
		return fmt.Errorf("appended at %d, want %d: %+v", info.FirstOffset, first, info)
	}
	s.ledger.acked = len(s.ledger.sent)
	if s.mode == SyncCommit {
		s.ledger.durable = s.ledger.acked
	}
	return nil
}

// truncate cuts the log at the start of a batch.
func (s *simulation) truncate() error {
	kept := s.firstAt(max(s.log.Offsets().LogStart, s.ledger.compacted)) // what compaction removed does not come back
	if kept >= len(s.ledger.sent) {
		return s.appendRandom()
	}
	kept += s.rand.IntN(len(s.ledger.sent) - kept)
	s.ledger.acked, s.ledger.durable = min(s.ledger.acked, kept), min(s.ledger.durable, kept)
	cut, err := s.log.TruncateTo(s.ledger.sent[kept].first)
	if err == nil && !cut {
		err = errors.New("nothing was cut")
	}
	if err == nil {
		s.ledger.sent = s.ledger.sent[:kept:kept]
		s.resume()
	}
	return s.note(fmt.Sprintf("truncate to batch %d", kept), err)
}

// resume makes the producers go on where the log now ends.
func (s *simulation) resume() {
	s.seqs, s.open = map[int64]int32{}, map[int64]bool{}
	var stored [][]byte
	for _, b := range s.ledger.sent {
		stored = append(stored, b.stored)
	}
	producers, _ := replayNaively(stored)
	for id, p := range producers {
		if n := len(p.batches); n > 0 {
			s.seqs[id] = record.IncrementSequence(p.batches[n-1].LastSequence, 1)
		}
		if p.txn >= 0 {
			s.open[id] = true
		}
	}
}

// firstAt is the index of the first batch that begins at or behind an offset.
func (s *simulation) firstAt(offset int64) int {
	i, _ := slices.BinarySearchFunc(s.ledger.sent, offset, func(b sentBatch, o int64) int { return cmp.Compare(b.first, o) })
	return i
}

func (s *simulation) deleteRecords() error {
	i := s.firstAt(s.log.Offsets().LogStart)
	if i >= s.ledger.acked {
		return s.appendRandom()
	}
	to := s.ledger.sent[i+s.rand.IntN(s.ledger.acked-i)].first
	s.ledger.highestStart = max(s.ledger.highestStart, to)
	_, err := s.log.IncrementLogStartOffset(to)
	if err == nil {
		s.ledger.logStart = max(s.ledger.logStart, to)
	}
	return s.note(fmt.Sprintf("log start %d", to), err)
}

func (s *simulation) deleteSegments() error {
	s.ledger.highestStart = s.log.Offsets().LogEnd
	_, err := s.log.DeleteOldSegments(s.now)
	if err == nil {
		s.ledger.logStart = s.log.Offsets().LogStart
		s.ledger.highestStart = s.ledger.logStart
		_, err = s.log.RemoveDiscarded(s.now)
	}
	return s.note("delete segments", err)
}

// checkCrash opens what a crash left and holds it against the ledger: I1 no loss, I3 offsets, I4 and I7 a prefix of what
// was sent, byte for byte, I8 nothing is called damage, I9 producer state as a replay gives it, I13 retries answered
// with the first offsets.
func checkCrash(m vfs.FS, o Options, led *ledger, kill bool) error {
	l, err := OpenFS(context.Background(), m, simDir, o)
	if err != nil {
		return fmt.Errorf("open after the crash: %w", err)
	}
	defer l.Close()
	if err := checkSurvivors(l, led, kill); err != nil {
		return fmt.Errorf("%w\nreport %+v", err, l.RecoveryReport())
	}
	return nil
}

// checkPairs is I16 as far as it can be seen without opening: no moment leaves a snapshot whose side file is missing, which
// would remember one batch of each producer.
func checkPairs(m vfs.FS) error {
	pairs, err := producerstate.ListPairs(m, simDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, p := range pairs {
		if p.HasSnapshot && !p.HasSideFile && !p.HasNext {
			return fmt.Errorf("I16: the snapshot at %d has no side file", p.Offset)
		}
	}
	return err
}

func checkSurvivors(l *Log, led *ledger, kill bool) error {
	if r := l.RecoveryReport(); r.Problems() || len(r.Holes) > 0 {
		return fmt.Errorf("a crash is reported as a problem: %v", r.Findings)
	}
	if led.compacted > 0 {
		return checkCompactedSurvivors(l, led, kill)
	}
	stored, err := readAll(l)
	if err != nil {
		return err
	}
	must := led.durable
	if kill {
		must = led.acked
	}
	start := l.Offsets().LogStart
	// A power cut may take back records that the start had passed: then the log is empty where it ends.
	clamped := !kill && len(stored) == 0 && start >= led.durableEnd()
	if start < led.logStart && !clamped || start > led.highestStart {
		return fmt.Errorf("I3: log start %d, it was moved to %d and may have been moved to %d", start, led.logStart, led.highestStart)
	}
	below := 0 // batches below the log start
	for below < len(led.sent) && led.sent[below].first < start {
		below++
	}
	if below+len(stored) < must {
		return fmt.Errorf("I1: %d batches survived, %d had been acknowledged for good", below+len(stored), must)
	}
	if below+len(stored) > len(led.sent) {
		return fmt.Errorf("I7: %d batches survived of %d sent", below+len(stored), len(led.sent))
	}
	end := start
	for i, b := range stored {
		if !bytes.Equal(b, led.sent[below+i].stored) {
			return fmt.Errorf("I4: batch %d is not the one sent there", below+i)
		}
		end = led.sent[below+i].last + 1
	}
	if got := l.Offsets().LogEnd; got != end {
		return fmt.Errorf("I3: log end %d, the batches end at %d", got, end)
	}
	var all [][]byte
	for _, b := range led.sent[:below+len(stored)] {
		all = append(all, b.stored)
	}
	if err := checkProducers(l, all); err != nil {
		return err
	}
	return checkRetries(l, led, all)
}

// readAll returns the batches of the log, verified. They go up to the log end.
func readAll(l *Log) (list [][]byte, err error) {
	list, err = readLevel(l, LogEnd)
	at := l.Offsets().LogStart
	if len(list) > 0 {
		at = max(at, record.Batch(list[len(list)-1]).NextOffset())
	}
	if end := l.Offsets().LogEnd; err == nil && at < end {
		return nil, fmt.Errorf("nothing to read at %d, log end %d", at, end)
	}
	return list, err
}

// readLevel returns the batches below the end of a level, verified. A log may end in a gap: behind its last batch no other
// comes.
func readLevel(l *Log, level Isolation) (list [][]byte, err error) {
	for at := l.Offsets().LogStart; at < l.Offsets().LogEnd; {
		f, err := l.Read(at, ReadOptions{MaxBytes: 1 << 20, Isolation: level, MinOneMessage: true})
		if err != nil {
			return list, err
		}
		n := 0
		for b, err := range f.Records.Batches() {
			if err != nil {
				return list, errors.Join(err, f.Close())
			}
			list = append(list, bytes.Clone(b.Batch))
			at = b.NextOffset()
			n++
		}
		if err := f.Close(); err != nil || n == 0 {
			return list, err
		}
	}
	return list, nil
}

// naive is what a replay from the first batch on says of a producer.
type naive struct {
	batches []producerstate.BatchMetadata // at most five, oldest first
	txn     int64                         // first offset of the open transaction, −1
}

func replayNaively(stored [][]byte) (producers map[int64]*naive, aborted []AbortedTxn) {
	producers = map[int64]*naive{}
	for _, p := range stored {
		b := record.Batch(p)
		if !b.HasProducerID() {
			continue
		}
		n := producers[b.ProducerID()]
		if n == nil {
			n = &naive{txn: -1}
			producers[b.ProducerID()] = n
		}
		if b.Attributes().IsControl() {
			marker, err := b.EndTxnMarker()
			if err == nil && marker.Type == record.Abort && n.txn >= 0 {
				aborted = append(aborted, AbortedTxn{ProducerID: b.ProducerID(), FirstOffset: n.txn, LastOffset: b.BaseOffset()})
			}
			n.txn = -1
			continue
		}
		if b.Attributes().IsTransactional() && n.txn < 0 {
			n.txn = b.BaseOffset()
		}
		n.batches = append(n.batches, producerstate.BatchMetadata{LastSequence: b.LastSequence(), LastOffset: b.LastOffset(),
			OffsetDelta: b.LastOffsetDelta(), Timestamp: b.MaxTimestamp()})
		if len(n.batches) > 5 {
			n.batches = n.batches[1:]
		}
	}
	return producers, aborted
}

// checkProducers is I9, and I17 for the transaction index.
func checkProducers(l *Log, stored [][]byte) error { return checkReplay(l, stored, false) }

// checkReplay is checkProducers, for a compacted log from what it was before.
func checkReplay(l *Log, stored [][]byte, compacted bool) error {
	want, aborted := replayNaively(stored)
	got := map[int64]*naive{}
	l.mu.Lock()
	for e := range l.producers.Active() {
		got[e.ProducerID] = &naive{batches: slices.Collect(e.Batches()), txn: e.CurrentTxnFirstOffset}
	}
	l.mu.Unlock()
	for id, w := range want {
		g := got[id]
		if g == nil || g.txn != w.txn || !slices.Equal(g.batches, w.batches) {
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
	first := l.segments.Load().First().BaseOffset()
	aborted = slices.DeleteFunc(aborted, func(t AbortedTxn) bool { return t.LastOffset < first }) // gone with its segment
	if compacted {
		aborted = stillListed(aborted, indexed)
	}
	if !slices.Equal(indexed, aborted) {
		return fmt.Errorf("I17: transaction index %+v, a replay says %+v", indexed, aborted)
	}
	return nil
}

// checkRetries is I13 and I5: what survived is answered as a duplicate with its first offsets, up to five batches back,
// and nothing is stored twice.
func checkRetries(l *Log, led *ledger, stored [][]byte) error {
	seen := map[int64]int{}
	for i := len(stored) - 1; i >= 0; i-- {
		b := record.Batch(bytes.Clone(stored[i]))
		if !b.HasProducerID() || b.Attributes().IsControl() {
			continue
		}
		if seen[b.ProducerID()]++; seen[b.ProducerID()] > 5 {
			continue
		}
		b.SetBaseOffset(0)
		info, err := l.AppendAsLeader(b, LeaderAppend{TransactionVersion: NoTransactionVersion})
		if err != nil || !info.Duplicate || info.FirstOffset != led.sent[i].first || info.LastOffset != led.sent[i].last {
			return fmt.Errorf("I13: retry of batch %d (offset %d): %+v, %v", i, led.sent[i].first, info, err)
		}
	}
	end := l.Offsets().LogEnd
	// The batch that was lost, or under way, goes on where the log ends.
	if len(stored) < len(led.sent) {
		next := record.Batch(bytes.Clone(led.sent[len(stored)].stored))
		if !next.Attributes().IsControl() {
			next.SetBaseOffset(0)
			info, err := l.AppendAsLeader(next, LeaderAppend{TransactionVersion: NoTransactionVersion})
			if err != nil || info.Duplicate || info.FirstOffset != end {
				return fmt.Errorf("I13: the first lost batch sent again: %+v, %v", info, err)
			}
		}
	}
	return nil
}

// crashPoint is one moment at which the simulated machine goes down.
type crashPoint struct {
	op      vfstest.Op
	after   bool
	options vfstest.CrashOptions
}

func (c crashPoint) String() string {
	when := "before"
	if c.after {
		when = "after"
	}
	return fmt.Sprintf("%s %s %v, crash %+v", c.options.Mode, when, c.op, c.options)
}
