package wal

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/oncelog/oncelog/record"
)

// producerBatch builds a batch as a producer sends it.
func producerBatch(t testing.TB, id int64, epoch int16, seq int32, values ...string) []byte {
	t.Helper()
	b := record.NewBuilder(record.BuilderOptions{Producer: &record.Producer{ID: id, Epoch: epoch, BaseSequence: seq}})
	for i, v := range values {
		if err := b.Append(1_700_000_000_000+int64(i), record.Record{Key: []byte("k"), Value: []byte(v)}); err != nil {
			t.Fatal(err)
		}
	}
	p, err := b.Batch()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte(nil), p...)
}

var modes = []SyncMode{SyncCommit, SyncInterval, SyncNone}

func openTest(t testing.TB, dir string, o Options) *Log {
	t.Helper()
	l, err := Open(context.Background(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil && !errors.Is(err, ErrClosed) {
			t.Errorf("close: %v", err)
		}
	})
	return l
}

func TestLog_AppendCloseReopen(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			dir := t.TempDir()
			o := Options{Sync: mode, SegmentBytes: 2000}
			l := openTest(t, dir, o)
			var batches [][]byte
			for i := range 50 {
				b := producerBatch(t, 7, 0, int32(2*i), fmt.Sprint("value ", i), "x")
				batches = append(batches, b)
				info, err := l.AppendAsLeader(append([]byte(nil), b...), LeaderAppend{})
				if err != nil {
					t.Fatal(err)
				}
				if info.FirstOffset != int64(2*i) || info.Duplicate {
					t.Fatalf("append %d: %+v", i, info)
				}
			}
			checkDuplicates := func(l *Log) {
				t.Helper()
				for i := 45; i < 50; i++ {
					info, err := l.AppendAsLeader(append([]byte(nil), batches[i]...), LeaderAppend{})
					if err != nil || !info.Duplicate || info.FirstOffset != int64(2*i) || info.LastOffset != int64(2*i+1) {
						t.Errorf("retry of batch %d: %+v, %v", i, info, err)
					}
				}
				if _, err := l.AppendAsLeader(append([]byte(nil), batches[44]...), LeaderAppend{}); !errors.Is(err, ErrOutOfOrderSequence) {
					t.Errorf("retry of the sixth last batch: %v", err)
				}
			}
			checkDuplicates(l)
			if o := l.Offsets(); o.LogEnd != 100 || o.HighWatermark != 100 || o.LastStable != 100 {
				t.Errorf("offsets %+v", o)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			l = openTest(t, dir, o)
			if r := l.RecoveryReport(); !r.Clean || r.BytesScanned != 0 || len(r.Findings) != 0 || r.LogEnd != 100 {
				t.Errorf("report after a clean close: %+v", r)
			}
			checkDuplicates(l)
			// A process that ends leaves everything that it wrote.
			for i := 50; i < 60; i++ {
				b := producerBatch(t, 7, 0, int32(2*i), fmt.Sprint("value ", i), "x")
				batches = append(batches, b)
				if _, err := l.AppendAsLeader(append([]byte(nil), b...), LeaderAppend{}); err != nil {
					t.Fatal(err)
				}
			}
			abandon(t, l)
			l = openTest(t, dir, o)
			if r := l.RecoveryReport(); r.Clean || r.LogEnd != 120 || r.Problems() {
				t.Errorf("report after a kill: %+v", r)
			}
			for i := 55; i < 60; i++ {
				info, err := l.AppendAsLeader(append([]byte(nil), batches[i]...), LeaderAppend{})
				if err != nil || !info.Duplicate || info.FirstOffset != int64(2*i) {
					t.Errorf("retry of batch %d after a kill: %+v, %v", i, info, err)
				}
			}
		})
	}
}

// abandon leaves a log as the end of its process would: the locks go, nothing is written.
func abandon(t testing.TB, l *Log) {
	t.Helper()
	if err := abandonLog(l); err != nil {
		t.Fatal(err)
	}
}

func abandonLog(l *Log) error {
	l.isClosed.Store(true)
	l.stopBackground()
	l.commit.lead()
	l.commit.fail(ErrClosed)
	l.commit.follow()
	l.driver.stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return l.unlock()
}
