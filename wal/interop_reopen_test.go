package wal

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/kafkadir"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/interop"
	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/recovery"
)

const interopTime = 1_700_000_000_000

var (
	interopSettings = interop.Settings{SegmentBytes: 1 << 20, SegmentIndexBytes: 8192, IndexIntervalBytes: 200,
		Other: map[string]string{"transaction.partition.verification.enable": "false"}}
	interopPartition = checkpoint.TopicPartition{Topic: "t"}
)

func interopOptions(mode SyncMode) Options {
	return Options{Sync: mode, SegmentBytes: 1 << 20, MaxIndexBytes: 8192, IndexIntervalBytes: 200,
		Now: func() time.Time { return time.UnixMilli(interopTime) }, manual: true}
}

// kafkaLogDir makes a log directory of Kafka with an empty partition.
func kafkaLogDir(t testing.TB) (partition string) {
	t.Helper()
	parent := t.TempDir()
	partition = filepath.Join(parent, "t-0")
	if err := os.Mkdir(partition, 0o755); err != nil {
		t.Fatal(err)
	}
	writeCheckpoints(t, partition, interop.Checkpoint{})
	return partition
}

// writeCheckpoints does what a log manager does with what it remembers of a partition.
func writeCheckpoints(t testing.TB, partition string, c interop.Checkpoint) {
	t.Helper()
	for name, offset := range map[string]int64{checkpoint.RecoveryPointFile: c.RecoveryPoint, checkpoint.LogStartFile: c.LogStart} {
		lines := map[checkpoint.TopicPartition]int64{}
		if offset > 0 {
			lines[interopPartition] = offset
		}
		if err := checkpoint.WriteOffsets(vfs.OS, filepath.Join(filepath.Dir(partition), name), lines); err != nil {
			t.Fatal(err)
		}
	}
}

// brokerRun is a seeded run of Kafka's own log.
type brokerRun struct {
	t     testing.TB
	rand  *rand.Rand
	s     *interop.Session
	epoch int32
	seqs  map[int64]int32
	open  map[int64]bool
}

func newBrokerRun(t testing.TB, s *interop.Session, seed uint64) *brokerRun {
	return &brokerRun{t: t, rand: rand.New(rand.NewPCG(seed, 11)), s: s, seqs: map[int64]int32{}, open: map[int64]bool{}}
}

func (r *brokerRun) step() error {
	var err error
	switch n := r.rand.IntN(100); {
	case n < 65:
		err = r.append()
	case n < 77:
		ids := slices.Sorted(maps.Keys(r.open))
		if len(ids) == 0 {
			return r.append()
		}
		id := ids[r.rand.IntN(len(ids))]
		delete(r.open, id)
		_, err = r.s.Marker(interop.Marker{Producer: id, Commit: r.rand.IntN(2) == 0, LeaderEpoch: r.epoch, Timestamp: interopTime})
	case n < 84:
		_, err = r.s.Roll()
	case n < 90:
		_, err = r.s.Flush(true)
	case n < 95:
		_, err = r.s.TakeSnapshot()
	default:
		r.epoch++
	}
	return err
}

func (r *brokerRun) append() error {
	id := int64(r.rand.IntN(5))
	o := record.BuilderOptions{Producer: &record.Producer{ID: id, BaseSequence: r.seqs[id]}, Transactional: id >= 3}
	if id >= 3 {
		r.open[id] = true
	}
	b := record.NewBuilder(o)
	n := 1 + r.rand.IntN(3)
	for i := range n {
		if err := b.Append(interopTime+int64(i), record.Record{Key: []byte{byte(i)}, Value: make([]byte, 20+r.rand.IntN(200))}); err != nil {
			return err
		}
	}
	p, err := b.Batch()
	if err == nil {
		_, err = r.s.Append(interop.Append{Batch: p, LeaderEpoch: r.epoch, TransactionVersion: interop.UnknownTransactionVersion})
	}
	r.seqs[id] = record.IncrementSequence(r.seqs[id], int32(n))
	return err
}

// damageTail makes the end of the last log file look like that of a write that was interrupted, and tells how.
func (r *brokerRun) damageTail(dir string) string {
	names := globDir(dir, "*.log")
	name := names[len(names)-1]
	p, err := os.ReadFile(name)
	if err != nil {
		r.t.Fatal(err)
	}
	what := "whole"
	switch r.rand.IntN(4) {
	case 1:
		p = p[:len(p)-min(len(p), r.rand.IntN(300))]
		what = "cut"
	case 2:
		for range 1 + r.rand.IntN(300) {
			p = append(p, byte(r.rand.IntN(256)))
		}
		what = "garbage behind it"
	case 3:
		p = append(p, make([]byte, r.rand.IntN(3000))...)
		what = "zeros behind it"
	}
	if err := os.WriteFile(name, p, 0o644); err != nil {
		r.t.Fatal(err)
	}
	return what
}

// What Kafka's log leaves when its process ends, with a last write that was interrupted, opens with the default policy and
// ends where Kafka's own recovery ends it.
func TestKafka_WhatItsCrashesLeaveOpens(t *testing.T) {
	d := interop.Start(t)
	runs := uint64(60)
	tails := map[string]int{}
	for seed := uint64(1); seed <= runs; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			dir := kafkaLogDir(t)
			s, _, err := d.OpenSession(interop.SessionRequest{Dir: dir, Settings: interopSettings})
			if err != nil {
				t.Fatal(err)
			}
			r := newBrokerRun(t, s, seed)
			point := int64(0)
			for i := range 40 {
				if err := r.step(); err != nil {
					t.Fatal(err)
				}
				if i == 20 && seed%2 == 0 {
					state, err := s.State(false)
					if err != nil {
						t.Fatal(err)
					}
					point = state.RecoveryPoint
				}
			}
			if err := s.Crash(); err != nil {
				t.Fatal(err)
			}
			writeCheckpoints(t, dir, interop.Checkpoint{RecoveryPoint: point})
			tail := "whole"
			if point == 0 {
				tail = r.damageTail(dir)
			}
			tails[tail]++
			want, err := d.Open(interop.OpenRequest{Dir: dir, RecoveryPoint: point, Settings: interopSettings})
			if err != nil || !want.Loaded {
				t.Fatal(err, want)
			}
			l, err := Open(context.Background(), dir, interopOptions(modes[seed%3]))
			if err != nil {
				t.Fatalf("tail %s: %v", tail, err)
			}
			defer l.Close()
			compareLogs(t, l, want.Log)
			if point == 0 {
				stored, err := storedBatches(dir)
				if err == nil {
					err = checkProducers(l, trimmed(stored, want.LogEnd))
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	t.Logf("%d directories; last file %v", runs, tails)
}

// trimmed leaves out batches behind an offset.
func trimmed(stored [][]byte, end int64) [][]byte {
	return slices.DeleteFunc(stored, func(p []byte) bool { return record.Batch(p).BaseOffset() >= end })
}

// compareLogs wants the same ends, leader epochs and producers. Of batches we may remember more than Kafka, which keeps one
// of each producer in a snapshot, and gives it the time of the marker that came behind it.
func compareLogs(t testing.TB, l *Log, want interop.Log) {
	t.Helper()
	got := l.Offsets()
	if got.LogEnd != want.LogEnd || got.LogStart != want.LogStart {
		t.Errorf("log from %d to %d, Kafka's from %d to %d; %v", got.LogStart, got.LogEnd, want.LogStart, want.LogEnd, l.RecoveryReport().Findings)
	}
	epochs := []interop.LeaderEpoch{}
	for _, e := range l.epochs.Entries() {
		epochs = append(epochs, interop.LeaderEpoch{Epoch: e.Epoch, Start: e.StartOffset})
	}
	if !slices.Equal(epochs, want.LeaderEpochs) {
		t.Errorf("leader epochs %v, Kafka's are %v", epochs, want.LeaderEpochs)
	}
	n := 0
	for e := range l.Producers() {
		n++
		i := slices.IndexFunc(want.Producers, func(p interop.Producer) bool { return p.ID == e.ProducerID })
		if i < 0 {
			t.Errorf("producer %d is not known to Kafka", e.ProducerID)
			continue
		}
		if err := compareEntry(e, want.Producers[i]); err != nil {
			t.Errorf("producer %d: %v", e.ProducerID, err)
		}
	}
	if n != len(want.Producers) {
		t.Errorf("%d producers, Kafka knows %d", n, len(want.Producers))
	}
}

func compareEntry(e producerstate.Entry, p interop.Producer) error {
	if e.ProducerEpoch != p.Epoch || e.CoordinatorEpoch != p.CoordinatorEpoch || e.CurrentTxnFirstOffset != p.CurrentTxnFirstOffset {
		return fmt.Errorf("%+v, Kafka has %+v", e, p)
	}
	batches := slices.Collect(e.Batches())
	if len(batches) < len(p.Batches) {
		return fmt.Errorf("%d batches, Kafka remembers %d", len(batches), len(p.Batches))
	}
	for i, want := range p.Batches {
		b := batches[len(batches)-len(p.Batches)+i]
		if b.LastSequence != want.LastSeq || b.LastOffset != want.LastOffset || b.FirstOffset() != want.FirstOffset ||
			i > 0 && b.Timestamp != want.Timestamp {
			return fmt.Errorf("batch %+v, Kafka has %+v", b, want)
		}
	}
	return nil
}

// handedOver is a log of ours in a log directory of Kafka, closed in order, with the batches of three producers, one of them
// named: ids from 2^62 on, which Kafka's own allocator never gives.
func handedOver(t *testing.T, dir string, mode SyncMode) map[int64][][]byte {
	t.Helper()
	l := openTest(t, dir, interopOptions(mode))
	sent := map[int64][][]byte{}
	for i := range 8 {
		for _, id := range []int64{7, producerstate.MinNamedProducerID, producerstate.MinNamedProducerID + 0x123456789ab} {
			b := producerBatch(t, id, 0, int32(2*i), fmt.Sprint("value ", i), "x")
			sent[id] = append(sent[id], b)
			if _, err := l.AppendAsLeader(slices.Clone(b), LeaderAppend{TransactionVersion: NoTransactionVersion}); err != nil {
				t.Fatal(err)
			}
		}
		if i == 4 {
			if err := l.Roll(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return sent
}

// A log that we closed opens in Kafka as one that was stopped in order; Kafka goes on with it, and so do we afterwards, who
// notice that another program was there.
func TestKafka_GoesOnWithOurLogAndWeWithIts(t *testing.T) {
	d := interop.Start(t)
	for _, mode := range modes {
		for _, end := range []string{"close", "crash", "crash in our leader epoch"} {
			t.Run(mode.String()+"/"+end, func(t *testing.T) {
				dir := kafkaLogDir(t)
				sent := handedOver(t, dir, mode)
				compareClean(t, d, dir, mode)
				epoch := int32(1)
				if end == "crash in our leader epoch" {
					epoch = 0
				}
				after := kafkaGoesOn(t, d, dir, sent, epoch, end == "close")
				l := openTest(t, dir, interopOptions(mode))
				r := l.RecoveryReport()
				if noticed := r.Writer == recovery.Another; noticed != (epoch > 0) || r.LogEnd != after || r.Problems() {
					t.Errorf("report %+v, want log end %d and another writer", r, after)
				}
				weGoOn(t, l, sent, after)
			})
		}
	}
}

// compareClean lets Kafka load the log as after a clean stop, without recovery.
func compareClean(t *testing.T, d *interop.Driver, dir string, mode SyncMode) {
	t.Helper()
	o := interopOptions(mode)
	o.ReadOnly = true
	l := openTest(t, dir, o)
	got, err := d.Open(interop.OpenRequest{Dir: dir, Clean: true, RecoveryPoint: l.Offsets().LogEnd, Settings: interopSettings})
	if err != nil || !got.Loaded {
		t.Fatal(err, got)
	}
	compareLogs(t, l, got.Log)
	if len(got.Deleted) > 0 || got.LogEnd != 48 || len(got.Producers) != 3 {
		t.Errorf("Kafka ends at %d, knows %d producers, set aside %v", got.LogEnd, len(got.Producers), got.Deleted)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// kafkaGoesOn lets Kafka recognise the last batch of each producer, store another two and a segment, and leave.
func kafkaGoesOn(t *testing.T, d *interop.Driver, dir string, sent map[int64][][]byte, epoch int32, inOrder bool) (end int64) {
	t.Helper()
	s, at, err := d.OpenSession(interop.SessionRequest{Dir: dir, Clean: true, RecoveryPoint: 48, Settings: interopSettings})
	if err != nil {
		t.Fatal(err)
	}
	add := func(p []byte) interop.Appended {
		t.Helper()
		a, err := s.Append(interop.Append{Batch: slices.Clone(p), LeaderEpoch: epoch, TransactionVersion: interop.UnknownTransactionVersion})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	end = at.LogEnd
	for i := range 2 {
		for id := range maps.Keys(sent) {
			last := sent[id][len(sent[id])-1]
			if a := add(last); !a.Duplicate || a.LastOffset >= end {
				t.Errorf("Kafka stores the last batch of producer %d once more: %+v", id, a)
			}
			next := producerBatch(t, id, 0, record.Batch(last).LastSequence()+1, "by Kafka", "y")
			if a := add(next); a.Duplicate || a.FirstOffset != end {
				t.Errorf("Kafka does not go on with producer %d: %+v", id, a)
			}
			sent[id] = append(sent[id], next)
			end += 2
		}
		if i == 0 {
			if _, err := s.Roll(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !inOrder {
		if err := s.Crash(); err != nil {
			t.Fatal(err)
		}
		return end
	}
	c, err := s.Close()
	if err != nil {
		t.Fatal(err)
	}
	writeCheckpoints(t, dir, c)
	if err := kafkadir.WriteMarker(vfs.OS, filepath.Dir(dir), 5); err != nil {
		t.Fatal(err)
	}
	return end
}

// weGoOn wants the last batch of each producer recognised, the next one stored, and the log whole from its start.
func weGoOn(t *testing.T, l *Log, sent map[int64][][]byte, end int64) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(filepath.Dir(l.Dir()), kafkadir.MarkerFile)); err == nil {
		t.Error("the mark of a clean stop is still there while we write")
	}
	for id := range maps.Keys(sent) {
		last := sent[id][len(sent[id])-1]
		info, err := l.AppendAsLeader(slices.Clone(last), LeaderAppend{LeaderEpoch: 2, TransactionVersion: NoTransactionVersion})
		if err != nil || !info.Duplicate || info.LastOffset >= end {
			t.Errorf("the last batch of producer %d, stored by Kafka: %+v, %v", id, info, err)
		}
		next := producerBatch(t, id, 0, record.Batch(last).LastSequence()+1, "by us again")
		info, err = l.AppendAsLeader(next, LeaderAppend{LeaderEpoch: 2, TransactionVersion: NoTransactionVersion})
		if err != nil || info.Duplicate || info.FirstOffset != l.Offsets().LogEnd-1 {
			t.Errorf("producer %d goes on: %+v, %v", id, info, err)
		}
	}
	stored, err := readAll(l)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[int64]int{}
	for _, p := range stored {
		counts[record.Batch(p).ProducerID()]++
	}
	for id := range sent {
		if counts[id] != len(sent[id])+1 {
			t.Errorf("%d batches of producer %d, %d were sent", counts[id], id, len(sent[id])+1)
		}
	}
}
