package wal

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/kafkatest"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// compactFixture compacts all of a directory that a broker left, as if nothing in it had been compacted.
func compactFixture(t *testing.T, x *kafkatest.Fixture, dir string, at int64) CompactionStats {
	t.Helper()
	o := fixtureOptions(x)
	o.CleanupPolicy, o.MinDirtyRatio = CleanupCompact, 1e-9
	o.MaxIndexBytes, o.SegmentBytes = int32(number(t, x.Config["segment.index.bytes"])), int32(number(t, x.Config["internal.segment.bytes"]))
	o.IndexIntervalBytes = int32(number(t, x.Config["index.interval.bytes"]))
	o.DeleteRetention = max(1, time.Duration(number(t, x.Config["delete.retention.ms"]))*time.Millisecond)
	if err := checkpoint.WriteOffsets(vfs.OS, filepath.Join(filepath.Dir(dir), checkpoint.CleanerFile), nil); err != nil {
		t.Fatal(err)
	}
	l, err := Open(context.Background(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	stats, err := l.Compact(context.Background(), time.UnixMilli(at))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.RemoveDiscarded(o.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	return stats
}

func number(t *testing.T, s string) (n int64) {
	t.Helper()
	for _, c := range s {
		n = n*10 + int64(c-'0')
	}
	if n == 0 {
		t.Fatalf("setting %q", s)
	}
	return n
}

// Over what Kafka's cleaner left ours finds no record to remove, and no batch but those that get their delete horizon now.
func TestFixtures_CompactedByKafkaStays(t *testing.T) {
	for _, name := range []string{"compacted-txn", "compacted-txn-horizon", "compacted-horizon", "compacted-done"} {
		t.Run(name, func(t *testing.T) {
			x := kafkatest.LoadFixture(t, name)
			dir := x.Unpack(t).Partition
			before := logFiles(t, dir)
			stats := compactFixture(t, x, dir, x.LastTimestamp())
			t.Logf("%+v", stats)
			after := logFiles(t, dir)
			var was, is []record.Batch
			for _, f := range []struct {
				files map[int64][]byte
				list  *[]record.Batch
			}{{before, &was}, {after, &is}} {
				for _, base := range sortedKeys(f.files) {
					for b, err := range record.All(f.files[base]) {
						if err != nil {
							t.Fatal(err)
						}
						*f.list = append(*f.list, b)
					}
				}
			}
			if len(was) != len(is) {
				t.Fatalf("%d batches, were %d", len(is), len(was))
			}
			changed := 0
			for i := range was {
				if bytes.Equal(was[i], is[i]) {
					continue
				}
				changed++
				_, had := was[i].DeleteHorizon()
				_, has := is[i].DeleteHorizon()
				if had || !has || was[i].BaseOffset() != is[i].BaseOffset() || was[i].Count() != is[i].Count() {
					t.Errorf("batch %d was\n%x, is\n%x", was[i].BaseOffset(), was[i], is[i])
				}
			}
			t.Logf("%d batches, %d got a horizon", len(is), changed)
		})
	}
}

// What Kafka 4.4 replaced when it compacted partitions with batches of old formats is compacted by us to what it put there.
func TestFixtures_OldFormatsAreCompactedAsByKafka(t *testing.T) {
	// Of others the replaced segments come from several rounds.
	for _, name := range []string{"v2.8-magic0-native-cleaned-by-4.4", "v2.8-upgraded-cleaned-by-4.4"} {
		t.Run(name, func(t *testing.T) {
			x := kafkatest.LoadFixture(t, name)
			dir := x.Unpack(t).Partition
			want := logFiles(t, dir)
			retention := number(t, x.Config["delete.retention.ms"])
			now := x.LastTimestamp()
			for _, p := range want {
				for b := range record.All(p) {
					if horizon, ok := b.DeleteHorizon(); ok {
						now = horizon - retention
					}
				}
			}
			back(t, dir)
			compactFixture(t, x, dir, now)
			got := logFiles(t, dir)
			for base := range want {
				if diff := cmp.Diff(describe(t, want[base]), describe(t, got[base])); diff != "" {
					t.Errorf("segment %d (-Kafka +ours)\n%s", base, diff)
				}
			}
		})
	}
}

// back puts the segments that were replaced in the place of the new ones.
func back(t *testing.T, dir string) {
	t.Helper()
	last := int64(-1)
	for name := range readDir(t, dir) {
		if n := segment.Parse(name); n.HasSuffix(segment.SuffixDeleted) {
			last = max(last, n.Offset)
		}
	}
	for name := range readDir(t, dir) {
		n := segment.Parse(name)
		if n.Offset <= last && n.Suffix == "" && (n.Kind == segment.KindLog || n.Kind == segment.KindTimeIndex || n.Kind == segment.KindOffsetIndex || n.Kind == segment.KindTxnIndex) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name := range readDir(t, dir) {
		if plain, ok := strings.CutSuffix(name, segment.SuffixDeleted); ok {
			if err := os.Rename(filepath.Join(dir, name), filepath.Join(dir, plain)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// describe lists the batches with their records.
func describe(t *testing.T, p []byte) (list []string) {
	t.Helper()
	for b, err := range record.All(p) {
		if err != nil {
			t.Fatal(err)
		}
		line := formatBatch(b)
		for r, err := range b.Records(record.Limits{}) {
			if err != nil {
				t.Fatal(err)
			}
			line += "\n    " + formatRecord(r)
		}
		list = append(list, line)
	}
	return list
}

func formatBatch(b record.Batch) string {
	horizon, _ := b.DeleteHorizon()
	return fmt.Sprintf("%d-%d magic %d count %d producer %d %d %d leader epoch %d attributes %v %v horizon %d newest %d", b.BaseOffset(), b.LastOffset(),
		b.Magic(), b.Count(), b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.PartitionLeaderEpoch(),
		b.Attributes(), b.TimestampType(), horizon, b.MaxTimestamp())
}

func formatRecord(r record.Record) string {
	return fmt.Sprintf("%d %d %q %q %v %q", r.Offset, r.Timestamp, r.Key, r.Value, r.Value == nil, r.Headers)
}

func sortedKeys[V any](m map[int64]V) []int64 { return slices.Sorted(maps.Keys(m)) }
