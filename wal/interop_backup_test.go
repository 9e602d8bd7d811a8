package wal

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/interop"
)

// Kafka opens a backup as it opens any log: same batches, same end, same producers. It does not open half a backup.
func TestKafka_OpensABackup(t *testing.T) {
	d := interop.Start(t)
	for i, mode := range modes {
		source := filepath.Join(t.TempDir(), "s-0")
		w, err := newBesideWriterIn(vfs.OS, source, 60+uint64(i), mode)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "t-0")
		for range 4 {
			for range 25 {
				if err := w.step(); err != nil {
					t.Fatal(err)
				}
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := w.log.Backup(ended, dir); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			open := interop.OpenRequest{Dir: dir, Clean: true, Settings: interop.Settings{SegmentBytes: 2000, IndexIntervalBytes: 200}}
			if half, err := d.Open(open); err == nil && half.Loaded {
				t.Fatalf("%v: Kafka opens half a backup", mode)
			}
			r, err := w.log.Backup(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, clean := range []bool{true, false} {
				open.Clean, open.RecoveryPoint = clean, r.LogStart
				if clean {
					open.RecoveryPoint = r.LogEnd
				}
				got, err := d.Open(open)
				if err != nil || !got.Loaded {
					t.Fatalf("%v, clean %t: %v, %v", mode, clean, err, got.Failure)
				}
				stored, err := storedBatches(dir)
				if err != nil {
					t.Fatal(err)
				}
				want, err := readLevel(w.log, LogEnd)
				if err != nil {
					t.Fatal(err)
				}
				if got.LogEnd != r.LogEnd || len(got.Deleted) > 0 {
					t.Errorf("%v, clean %t: Kafka's log ends at %d, want %d; it deleted %v", mode, clean, got.LogEnd, r.LogEnd, got.Deleted)
				}
				if below := len(stored) - len(want); below < 0 || cmp.Diff(want, stored[below:]) != "" {
					t.Errorf("%v: batches differ", mode)
				}
				if !clean {
					continue // a recovery knows what the batches that are left tell
				}
				ids := map[int64]bool{}
				for _, p := range got.Producers {
					e, ok := w.log.ProducerEntry(p.ID)
					last, _ := e.LastBatch()
					if batches := slices.Collect(e.Batches()); !ok || len(batches) > 0 && (p.LastSeq != last.LastSequence || p.LastOffset != last.LastOffset) ||
						p.CurrentTxnFirstOffset != e.CurrentTxnFirstOffset {
						t.Errorf("%v: Kafka knows producer %+v, we %+v", mode, p, e)
					}
					ids[p.ID] = true
				}
				for e := range w.log.Producers() {
					if !ids[e.ProducerID] {
						t.Errorf("%v: Kafka does not know producer %d", mode, e.ProducerID)
					}
				}
			}
		}
		if err := w.log.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
