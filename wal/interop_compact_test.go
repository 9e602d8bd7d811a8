package wal

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oncelog/oncelog/interop"
)

// Random logs with transactions, deletions and several codecs are compacted again and again, by us and by Kafka's own
// cleaner, each from the same bytes and at the same time: both leave the same segments with the same batches and records.
func TestKafka_CompactionIsThatOfKafkasCleaner(t *testing.T) {
	d := interop.Start(t)
	seeds := uint64(8)
	if os.Getenv("ONCELOG_LONG") != "" {
		seeds = 100
	}
	segments, dropped := 0, int64(0)
	for seed := uint64(1); seed <= seeds; seed++ {
		n, records := compareCompaction(t, d, seed)
		segments, dropped = segments+n, dropped+records
	}
	t.Logf("%d logs, %d segments compared, %d records removed", seeds, segments, dropped)
	if dropped == 0 {
		t.Error("nothing was removed")
	}
}

func compareCompaction(t *testing.T, d *interop.Driver, seed uint64) (segments int, dropped int64) {
	t.Helper()
	dir := kafkaLogDir(t)
	w := newKeyedLoad(seed)
	o := Options{SegmentBytes: int32(1500 + w.rand.IntN(4000)), IndexIntervalBytes: 300, MaxIndexBytes: int32(96 + w.rand.IntN(2000)),
		CleanupPolicy: CleanupCompact, MinDirtyRatio: 1e-9, DeleteRetention: time.Duration(1+w.rand.IntN(20)) * time.Second,
		Sync: modes[w.rand.IntN(len(modes))], Now: func() time.Time { return w.now }, manual: true}
	// In several passes the markers see more of them, and so get their horizons and go earlier: then the data is compared.
	passes := seed%4 == 0
	if passes {
		o.DedupeBufferBytes = 400
	}
	firstDirty := int64(0)
	for round := range 6 {
		l, err := Open(context.Background(), dir, o)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 + w.rand.IntN(60) {
			if err := w.append(l); err != nil {
				t.Fatal(err)
			}
		}
		if w.rand.IntN(3) > 0 {
			err = w.endAll(l)
		}
		// What the newest segment holds is compacted by neither.
		if err == nil && w.rand.IntN(2) == 0 {
			err = l.Roll()
		}
		for range 2 {
			if err == nil {
				err = w.append(l)
			}
		}
		if err = firstError(err, l.Close()); err != nil {
			t.Fatal(err)
		}
		w.now = w.now.Add(time.Duration(w.rand.IntN(15)) * time.Second)

		theirs := filepath.Join(t.TempDir(), "t-0")
		if err := os.CopyFS(theirs, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		request := interop.SessionRequest{Dir: theirs, Clean: true, RecoveryPoint: l.Offsets().LogEnd, Clock: w.now.UnixMilli(),
			Settings: interop.Settings{SegmentBytes: int64(o.SegmentBytes), SegmentIndexBytes: int64(o.MaxIndexBytes),
				IndexIntervalBytes: int64(o.IndexIntervalBytes), CleanupPolicy: "compact", DeleteRetentionMs: o.DeleteRetention.Milliseconds()}}
		done, err := d.Clean(request, interop.Clean{FirstDirty: &firstDirty})
		if err != nil {
			t.Fatalf("seed %d, round %d: Kafka: %v", seed, round, err)
		}
		if l, err = Open(context.Background(), dir, o); err != nil {
			t.Fatal(err)
		}
		stats, err := l.Compact(context.Background(), w.now)
		if err = firstError(err, l.Close()); err != nil {
			t.Fatalf("seed %d, round %d: %v", seed, round, err)
		}
		if stats.FirstDirty != firstDirty || stats.Passes > 0 && (stats.NextDirty != done.NextDirty || stats.RecordsKept != done.MessagesWritten && !passes) {
			t.Errorf("seed %d, round %d: from %d, %+v\nKafka %+v", seed, round, firstDirty, stats, done)
		}
		firstDirty = stats.NextDirty
		end := l.Offsets().LogEnd
		if opened, err := d.Open(interop.OpenRequest{Dir: dir, Clean: true, RecoveryPoint: end, Clock: w.now.UnixMilli()}); err != nil ||
			!opened.Loaded || opened.LogEnd != end || len(opened.Deleted) > 0 {
			t.Errorf("seed %d, round %d: Kafka opens what we compacted: %+v, %v; it ends at %d", seed, round, opened, err, end)
		}
		what := fmt.Sprintf("seed %d, round %d, %d passes", seed, round, stats.Passes)
		if passes {
			sameData(t, d, dir, theirs, what)
		} else {
			segments += sameSegments(t, d, dir, theirs, what)
		}
		dropped += stats.RecordsRead - stats.RecordsKept
		if t.Failed() {
			t.FailNow()
		}
	}
	return segments, dropped
}

func firstError(list ...error) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}

// sameData compares the records of two directories, markers apart.
func sameData(t *testing.T, d *interop.Driver, ours, theirs, what string) {
	t.Helper()
	data := map[string][]interop.Record{}
	for _, dir := range []string{ours, theirs} {
		list, err := d.Dump(dir, true)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			for _, b := range s.Batches {
				if !b.Control {
					data[dir] = append(data[dir], b.Records...)
				}
			}
		}
	}
	if diff := cmp.Diff(data[theirs], data[ours]); diff != "" {
		t.Errorf("%s: (-Kafka +ours)\n%s", what, diff)
	}
}

// sameSegments compares two directories as Kafka's classes read them, and the transaction indexes byte for byte.
func sameSegments(t *testing.T, d *interop.Driver, ours, theirs, what string) int {
	t.Helper()
	var got, want []interop.SegmentDump
	for dir, list := range map[string]*[]interop.SegmentDump{ours: &got, theirs: &want} {
		var err error
		if *list, err = d.Dump(dir, true); err != nil {
			t.Fatal(err)
		}
		for i := range *list {
			s := &(*list)[i]
			if s.ValidBytes != s.Size {
				t.Errorf("%s: %s: segment %d has %d bytes, %d of them valid", what, dir, s.Base, s.Size, s.ValidBytes)
			}
			compressed := false
			for j := range s.Batches {
				b := &s.Batches[j]
				if b.Compression != "none" { // two compressors agree on what they hold, not on the bytes
					compressed, b.CRC, b.Size = true, 0, 0
				}
				if compressed {
					b.Position, s.Size, s.ValidBytes = 0, 0, 0
				}
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: (-Kafka +ours)\n%s", what, diff)
	}
	a, b := globDir(ours, "*.txnindex"), globDir(theirs, "*.txnindex")
	read := func(list []string) map[string]string {
		m := map[string]string{}
		for _, name := range list {
			p, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if len(bytes.TrimSpace(p)) > 0 {
				m[filepath.Base(name)] = fmt.Sprintf("%x", p)
			}
		}
		return m
	}
	if diff := cmp.Diff(read(b), read(a)); diff != "" {
		t.Errorf("%s: transaction indexes (-Kafka +ours)\n%s", what, diff)
	}
	return len(got)
}
