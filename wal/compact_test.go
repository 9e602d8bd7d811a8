package wal

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// compactOptions are those of a small log that is compacted whenever it can be.
func compactOptions(w *keyedLoad, mode SyncMode) Options {
	return Options{SegmentBytes: int32(1200 + w.rand.IntN(3000)), IndexIntervalBytes: 200, MaxIndexBytes: 4096, Sync: mode,
		CheckpointBytes: int64(500 + w.rand.IntN(5000)), CleanupPolicy: CleanupCompact, MinDirtyRatio: 1e-9,
		DeleteRetention: 5 * time.Second, FileDeleteDelay: time.Second, Now: func() time.Time { return w.now }, manual: true}
}

// sentRecord is a record that was appended.
type sentRecord struct {
	record.Record
	transactional, aborted, undecided bool
}

// sentRecords lists what was appended by offset.
func sentRecords(sent [][]byte) (map[int64]*sentRecord, error) {
	all := map[int64]*sentRecord{}
	open := map[int64][]*sentRecord{}
	for _, p := range sent {
		b := record.Batch(p)
		if b.Attributes().IsControl() {
			m, err := b.EndTxnMarker()
			if err != nil {
				return nil, err
			}
			for _, r := range open[b.ProducerID()] {
				r.undecided, r.aborted = false, m.Type == record.Abort
			}
			delete(open, b.ProducerID())
			continue
		}
		for r, err := range b.Records(record.Limits{}) {
			if err != nil {
				return nil, err
			}
			s := &sentRecord{Record: record.Record{Offset: r.Offset, Timestamp: r.Timestamp, Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value)}}
			if r.Value != nil && s.Value == nil {
				s.Value = []byte{}
			}
			for _, h := range r.Headers {
				s.Headers = append(s.Headers, record.Header{Key: h.Key, Value: bytes.Clone(h.Value)})
			}
			if b.Attributes().IsTransactional() {
				s.transactional, s.undecided = true, true
				open[b.ProducerID()] = append(open[b.ProducerID()], s)
			}
			all[r.Offset] = s
		}
	}
	return all, nil
}

// latest is the value of each key after the records in [from, below); a deleted key has none.
func latest(all map[int64]*sentRecord, from, below int64, counts func(*sentRecord) bool) map[string]string {
	values := map[string]string{}
	for _, offset := range slices.Sorted(maps.Keys(all)) {
		r := all[offset]
		switch {
		case offset < from || offset >= below || !counts(r):
		case r.Value == nil:
			delete(values, string(r.Key))
		default:
			values[string(r.Key)] = string(r.Value)
		}
	}
	return values
}

func isCommitted(r *sentRecord) bool { return !r.aborted && !r.undecided }

// checkCompacted holds a log against what was appended to it: whatever is left is what was appended at its offset, and each
// key has, for readers of every kind, the value that it had before.
func checkCompacted(l *Log, all map[int64]*sentRecord) error {
	o := l.Offsets()
	seen := map[int64]*sentRecord{}
	last := int64(-1)
	for r, err := range l.Records(o.LogStart) {
		if err != nil {
			return err
		}
		want := all[r.Offset]
		switch {
		case want == nil || !isCommitted(want):
			return fmt.Errorf("record %d is yielded, which was not committed", r.Offset)
		case r.Offset <= last:
			return fmt.Errorf("offset %d after %d", r.Offset, last)
		case !bytes.Equal(r.Key, want.Key) || !bytes.Equal(r.Value, want.Value) || (r.Value == nil) != (want.Value == nil) ||
			len(r.Headers) != len(want.Headers) || r.Time.UnixMilli() != want.Timestamp:
			return fmt.Errorf("record %d is %q %q %v, was %q %q %v", r.Offset, r.Key, r.Value, r.Time.UnixMilli(), want.Key, want.Value, want.Timestamp)
		}
		last, seen[r.Offset] = r.Offset, want
	}
	if got, want := latest(seen, o.LogStart, o.LastStable, isCommitted), latest(all, o.LogStart, o.LastStable, isCommitted); !maps.Equal(got, want) {
		return fmt.Errorf("committed values below %d are %v, were %v", o.LastStable, got, want)
	}
	for _, level := range []Isolation{LogEnd, HighWatermark} {
		stored, err := readLevel(l, level)
		if err != nil {
			return err
		}
		if level == LogEnd {
			if err := checkTimes(l, stored); err != nil {
				return err
			}
		}
		raw := map[int64]*sentRecord{}
		next := o.LogStart
		for _, p := range stored {
			b := record.Batch(p)
			if b.LastOffset() < next || b.BaseOffset() < next && next > o.LogStart {
				return fmt.Errorf("batch %d to %d after offset %d", b.BaseOffset(), b.LastOffset(), next)
			}
			next = b.NextOffset()
			if b.Attributes().IsControl() {
				continue
			}
			for r, err := range b.Records(record.Limits{}) {
				if err != nil {
					return err
				}
				if raw[r.Offset] = all[r.Offset]; raw[r.Offset] == nil || !bytes.Equal(raw[r.Offset].Value, r.Value) {
					return fmt.Errorf("record %d was not appended like this", r.Offset)
				}
			}
		}
		// What was aborted may be gone or not. What is undecided is not touched.
		counts := func(r *sentRecord) bool { return !r.aborted }
		if got, want := latest(raw, o.LogStart, o.LogEnd, counts), latest(all, o.LogStart, o.LogEnd, counts); !maps.Equal(got, want) {
			return fmt.Errorf("values at level %d are %v, were %v", level, got, want)
		}
	}
	return nil
}

// checkTimes holds look-ups by time against the records that are there.
func checkTimes(l *Log, stored [][]byte) error {
	var all []TimestampOffset
	for _, p := range stored {
		b := record.Batch(p)
		for r, err := range b.Records(record.Limits{}) {
			if err != nil {
				return err
			}
			if r.Offset >= l.Offsets().LogStart {
				all = append(all, TimestampOffset{Timestamp: r.Timestamp, Offset: r.Offset, LeaderEpoch: b.PartitionLeaderEpoch()})
			}
		}
	}
	for i := 0; i < len(all); i += 1 + len(all)/10 {
		want := all[slices.IndexFunc(all, func(r TimestampOffset) bool { return r.Timestamp >= all[i].Timestamp })]
		if got, found, err := l.OffsetForTimestamp(all[i].Timestamp); err != nil || !found || got != want {
			return fmt.Errorf("time %d is at %+v, %v, %v, want %+v", all[i].Timestamp, got, found, err, want)
		}
	}
	return nil
}

// What a compaction leaves is the log as far as anybody can tell who asks for the latest values; offsets, producers and
// transactions stay as they were, also after a reopen, and a second compaction at the same time finds nothing to do.
func TestCompact_Model(t *testing.T) {
	removed := 0
	rapid.Check(t, func(r *rapid.T) {
		w := newKeyedLoad(rapid.Uint64().Draw(r, "seed"))
		mem := vfstest.NewMem()
		if err := mem.MkdirAll(filepath.Dir(simDir), 0o755); err != nil {
			t.Fatal(err)
		}
		o := compactOptions(w, modes[w.rand.IntN(len(modes))])
		o.DedupeBufferBytes = int64(1 + w.rand.IntN(6000))
		o.MinCompactionLag = time.Duration(w.rand.IntN(2)*w.rand.IntN(4000)) * time.Millisecond
		l, err := OpenFS(context.Background(), mem, simDir, o)
		if err != nil {
			r.Fatal(err)
		}
		for range rapid.IntRange(1, 4).Draw(r, "rounds") {
			for range w.rand.IntN(60) {
				if err := w.append(l); err != nil {
					r.Fatal(err)
				}
			}
			w.now = w.now.Add(time.Duration(w.rand.IntN(8000)) * time.Millisecond)
			all, err := sentRecords(w.sent)
			if err != nil {
				r.Fatal(err)
			}
			before, offsets := statesOf(l), l.Offsets()
			stats, err := l.Compact(context.Background(), w.now)
			if err != nil {
				r.Fatal(err)
			}
			removed += stats.SegmentsReplaced
			if got := l.Offsets(); got.LogEnd != offsets.LogEnd || got.LastStable != offsets.LastStable || got.LogStart != offsets.LogStart {
				r.Fatalf("offsets %+v, were %+v", got, offsets)
			}
			if err := checkCompacted(l, all); err != nil {
				r.Fatal(err)
			}
			for range 2 {
				if again, err := l.Compact(context.Background(), w.now); err != nil || again.SegmentsWritten > 0 && again.FirstDirty == again.NextDirty {
					r.Fatalf("again: %+v, %v", again, err)
				}
			}
			if _, err := l.RemoveDiscarded(w.now.Add(time.Duration(w.rand.IntN(3000)) * time.Millisecond)); err != nil {
				r.Fatal(err)
			}
			if w.rand.IntN(2) == 0 {
				if err := l.Close(); err != nil {
					r.Fatal(err)
				}
				if l, err = OpenFS(context.Background(), mem, simDir, o); err != nil {
					r.Fatal(err)
				}
				if rep := l.RecoveryReport(); rep.Problems() || !rep.Clean {
					r.Fatalf("reopened: %+v", rep)
				}
				if err := checkCompacted(l, all); err != nil {
					r.Fatal(err)
				}
			}
			if after := statesOf(l); !maps.EqualFunc(before, after, func(a, b producerstate.Entry) bool {
				return slices.Equal(slices.Collect(a.Batches()), slices.Collect(b.Batches())) && a.CurrentTxnFirstOffset == b.CurrentTxnFirstOffset
			}) {
				r.Fatalf("producers %v, were %v", after, before)
			}
			if err := checkRetriesOf(l, w.sent); err != nil {
				r.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			r.Fatal(err)
		}
	})
	if removed == 0 {
		t.Error("no segment was ever replaced")
	}
}

// The last batch of each producer stays in the log itself, so that also without snapshots its next sequence is known.
func TestCompact_ProducersWithoutSnapshots(t *testing.T) {
	for seed := range uint64(10) {
		w := newKeyedLoad(seed)
		mem := vfstest.NewMem()
		if err := mem.MkdirAll(filepath.Dir(simDir), 0o755); err != nil {
			t.Fatal(err)
		}
		l, err := OpenFS(context.Background(), mem, simDir, compactOptions(w, SyncNone))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 60 {
			if i == 40 {
				err = w.endAll(l)
			}
			if err = firstError(err, w.append(l)); err != nil {
				t.Fatal(err)
			}
			if i%20 == 19 {
				if _, err := l.Compact(context.Background(), w.now); err != nil {
					t.Fatal(err)
				}
				w.now = w.now.Add(6 * time.Second)
			}
		}
		before := statesOf(l)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		list, err := mem.ReadDir(simDir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if k := segment.Parse(e.Name).Kind; k == segment.KindSnapshot || k == segment.KindProducers {
				if err := mem.Remove(filepath.Join(simDir, e.Name)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if l, err = OpenFS(context.Background(), mem, simDir, l.Options()); err != nil {
			t.Fatal(err)
		}
		for id, was := range before {
			is, known := l.ProducerEntry(id)
			a, _ := was.LastBatch()
			b, _ := is.LastBatch()
			b.Timestamp = a.Timestamp // that of the records that are left
			if !known || a != b || is.CurrentTxnFirstOffset != was.CurrentTxnFirstOffset {
				t.Errorf("seed %d: producer %d was %+v, is %+v, %v", seed, id, a, b, known)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func statesOf(l *Log) map[int64]producerstate.Entry {
	m := map[int64]producerstate.Entry{}
	for e := range l.Producers() {
		m[e.ProducerID] = e
	}
	return m
}

// checkRetriesOf sends the last five batches of each producer again.
func checkRetriesOf(l *Log, sent [][]byte) error {
	times := map[int64]int{}
	for _, p := range slices.Backward(sent) {
		b := record.Batch(bytes.Clone(p))
		if !b.HasProducerID() || b.Attributes().IsControl() {
			continue
		}
		if times[b.ProducerID()]++; times[b.ProducerID()] > 5 {
			continue
		}
		first := b.BaseOffset()
		b.SetBaseOffset(0)
		info, err := l.AppendAsLeader(b, LeaderAppend{TransactionVersion: NoTransactionVersion})
		if err != nil || !info.Duplicate || info.FirstOffset != first {
			return fmt.Errorf("batch at %d of producer %d sent again: %+v, %v", first, b.ProducerID(), info, err)
		}
	}
	return nil
}
