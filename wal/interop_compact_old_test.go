package wal

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/kafkatest"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/interop"
)

// Every partition that an undamaged broker left, of whatever version and format, is compacted by us as by Kafka's cleaner.
func TestKafka_CompactionOfBrokersDirectories(t *testing.T) {
	d := interop.Start(t)
	compared, refused, removed := 0, 0, int64(0)
	kafkatest.EachFixture(t, func(t *testing.T, x *kafkatest.Fixture) {
		if x.Kind != kafkatest.KindPartition || len(x.DamageDone) > 0 || !x.CleanShutdown {
			t.Skip("not a partition that was stopped in order")
		}
		dir := x.Unpack(t).Partition
		theirs := filepath.Join(t.TempDir(), filepath.Base(dir))
		if err := os.CopyFS(theirs, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		if err := checkpoint.WriteOffsets(vfs.OS, filepath.Join(filepath.Dir(dir), checkpoint.CleanerFile), nil); err != nil {
			t.Fatal(err)
		}
		o := fixtureOptions(x)
		o.CleanupPolicy, o.MinDirtyRatio, o.DeleteRetention = CleanupCompact, 1e-9, time.Minute
		l, err := Open(context.Background(), dir, o)
		if err != nil {
			t.Fatal(err)
		}
		logStart := l.Offsets().LogStart
		stats, err := l.Compact(context.Background(), o.Now())
		if err = firstError(err, l.Close()); err != nil {
			t.Fatal(err)
		}
		r := interop.SessionRequest{Dir: theirs, Clean: true, LogStart: logStart, Clock: o.Now().UnixMilli(), RecoveryPoint: l.Offsets().LogEnd,
			Settings: interop.Settings{SegmentBytes: int64(o.SegmentBytes), SegmentIndexBytes: int64(o.MaxIndexBytes),
				IndexIntervalBytes: int64(o.IndexIntervalBytes), CleanupPolicy: "compact", DeleteRetentionMs: o.DeleteRetention.Milliseconds()}}
		if _, err := d.Clean(r, interop.Clean{}); err != nil {
			refused++
			t.Skipf("Kafka's cleaner fails: %v", err)
		}
		if stats.Passes == 0 && len(logFiles(t, dir)) > 1 && !strings.Contains(x.Name, "empty") {
			t.Logf("nothing was compacted: %+v", stats)
		}
		sameSegments(t, d, dir, theirs, x.Name)
		compared++
		removed += stats.RecordsRead - stats.RecordsKept
	})
	t.Logf("%d directories compared, %d records removed; Kafka's cleaner fails over %d", compared, removed, refused)
}
