package segment

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/oncelog/oncelog/index"
)

// kafkaFiles copies what a broker wrote into memory.
func kafkaFiles(t *testing.T) storage {
	st := memory(t)
	dir := filepath.Join("testdata", "kafka-4.4.0")
	list, err := os.ReadDir(dir)
	ok(t, err)
	for _, e := range list {
		p, err := os.ReadFile(filepath.Join(dir, e.Name()))
		ok(t, err)
		n := Parse(e.Name())
		if n.Kind == KindUnknown || n.String() != e.Name() {
			t.Fatalf("%s is parsed as %+v", e.Name(), n)
		}
		st.write(t, n.Kind, n.Offset, p)
	}
	return st
}

// kafkaInterval is an index interval that gives the broker's entries.
const kafkaInterval = 500

// A broker's finished segment is read with its own indexes, and indexes made anew are the same bytes.
func TestKafka_FinishedSegment(t *testing.T) {
	st := kafkaFiles(t)
	s := Open(st.FS, st.dir, 0, Config{IndexIntervalBytes: kafkaInterval})
	defer s.Close()
	var batches []Header
	c := s.ScanWith(0, ToEnd, ScanOptions{Ordered: true})
	newest := int64(-1)
	for c.Next() {
		h := parseHeader(c.Batch().Bytes(), c.Batch().Position, int64(c.Batch().Size()))
		batches = append(batches, h)
		newest = max(newest, h.MaxTimestamp)
	}
	if tail := c.Tail(); tail.Kind != CleanEnd || tail.LastOffset != 232 {
		t.Fatalf("%+v", tail)
	}
	for _, h := range batches {
		for _, o := range []int64{h.BaseOffset, h.LastOffset} {
			if pos, got, found, err := s.Locate(o, ToEnd); err != nil || !found || pos != h.Position || got != h {
				t.Fatalf("%d: %+v %v %v", o, got, found, err)
			}
		}
	}
	if got, err := s.MaxTimestamp(); err != nil || got.Timestamp != newest {
		t.Errorf("%+v, want %d, %v", got, newest, err)
	}
	if txns, _, err := s.AbortedTxns(0, 233); err != nil || len(txns) != 5 {
		t.Errorf("%d aborted transactions, %v", len(txns), err)
	}
	if n := s.Suspects(); n != 0 {
		t.Errorf("%d look-ups were misled", n)
	}
	offsets, times := st.read(t, KindOffsetIndex, 0), st.read(t, KindTimeIndex, 0)
	ok(t, s.ResetIndexes())
	c = s.Scan(0)
	for c.Next() {
		ok(t, s.Note(c.Batch().Batch, c.Batch().Position))
	}
	ok(t, s.Seal())
	if !bytes.Equal(offsets, st.read(t, KindOffsetIndex, 0)) || !bytes.Equal(times, st.read(t, KindTimeIndex, 0)) {
		t.Error("other indexes than the broker's")
	}
}

// The active segment of a broker that was killed has zeros in its indexes; Kafka counts them, the answers are right anyway.
func TestKafka_ActiveSegmentAfterKill(t *testing.T) {
	for _, kafka := range []bool{false, true} {
		st := kafkaFiles(t)
		s := Open(st.FS, st.dir, 443, Config{IndexIntervalBytes: kafkaInterval, KafkaIndexes: kafka})
		ok(t, s.WithIndexes(func(o *index.Offset, x *index.Time, _ *index.Txn) error {
			if kafka != (o.Entries() == 512) || kafka != (x.Entries() == 341) {
				t.Errorf("kafka %v: %d and %d entries", kafka, o.Entries(), x.Entries())
			}
			return nil
		}))
		bases, tail := scan(t, s.ScanWith(0, ToEnd, ScanOptions{Ordered: true}))
		if tail.Kind != CleanEnd || tail.LastOffset != 447 || len(bases) == 0 {
			t.Fatalf("%v %+v", bases, tail)
		}
		for _, o := range bases {
			if _, h, found, err := s.Locate(o, ToEnd); err != nil || !found || h.BaseOffset != o {
				t.Errorf("%d: %+v %v %v", o, h, found, err)
			}
		}
		if next, err := s.NextOffset(); err != nil || next != 448 {
			t.Errorf("%d, %v", next, err)
		}
		if ts, err := s.LargestTimestamp(); err != nil || ts <= startTime/2 {
			t.Errorf("%d, %v", ts, err)
		}
		ok(t, s.Close())
	}
}
