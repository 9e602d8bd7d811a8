package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
	"github.com/oncelog/oncelog/wal"
)

// BenchmarkCompact compacts a log of 64 MiB, with -short 16 MiB, in segments of 8 MiB, of batches of ten records of 100 bytes
// with keys of 16 bytes, all of it in the page cache and none compacted before.
//
//	kept=1        each key comes once: nothing is removed and nothing written
//	kept=0.1      each key comes ten times
//	kept=0.1/codec=zstd
//	kept=0.5/map=half   each key comes twice, and memory holds less than half of them: several passes
//
// The floor is a walk over the same segments that verifies each checksum: compaction cannot do with less, since it has to read
// what it removes. Metrics: MB/s of what there was, key-B a key in memory, and heap-MB, the most that was in use more than
// before.
func BenchmarkCompact(b *testing.B) {
	for _, c := range []struct {
		name  string
		times int // that each key comes
		codec record.Compression
		small bool
	}{
		{"kept=1", 1, record.None, false},
		{"kept=0.1", 10, record.None, false},
		{"kept=0.1/codec=zstd", 10, record.Zstd, false},
		{"kept=0.5/map=half", 2, record.None, true},
	} {
		b.Run(c.name, func(b *testing.B) { benchCompact(b, c.times, c.codec, c.small) })
	}
}

func benchCompact(b *testing.B, times int, codec record.Compression, small bool) {
	size := int64(64 << 20)
	if testing.Short() {
		size = 16 << 20
	}
	const perBatch = 10
	o := wal.Options{Sync: wal.SyncNone, SegmentBytes: 8 << 20, CleanupPolicy: wal.CleanupCompact, MinDirtyRatio: 1e-9,
		Compression: wal.Compression{Codec: codec}}
	template := b.TempDir()
	l := openLog(b, vfs.OS, template, o)
	records := size / 120
	distinct := records / int64(times)
	value := make([]byte, 84)
	for i := int64(0); i < records; i += perBatch {
		var list []wal.Record
		for j := range int64(perBatch) {
			_, err := noise.Read(value[:42])
			ok(b, err)
			list = append(list, wal.Record{Key: fmt.Appendf(nil, "key-%012d", (i+j)*7919%distinct), Value: slices.Clone(value)})
		}
		_, err := l.Append(list...)
		ok(b, err)
	}
	ok(b, l.Roll())
	_, err := l.Append(wal.Record{Key: []byte("end")})
	ok(b, err)
	ok(b, l.Close())
	if small {
		o.DedupeBufferBytes = distinct * 50 / 2
	}

	var took, floors []time.Duration
	var stats wal.CompactionStats
	heap := uint64(0)
	for b.Loop() {
		b.StopTimer()
		dir := filepath.Join(b.TempDir(), "log")
		ok(b, os.CopyFS(dir, os.DirFS(template)))
		l := openLog(b, vfs.OS, dir, o)
		floors = append(floors, scanAll(b, dir))
		ok(b, l.Checkpoint()) // the copy is on disk before the clock runs
		before := heapInUse()
		stop := make(chan struct{})
		peak := make(chan uint64)
		go watchHeap(stop, peak)
		begin := time.Now()
		b.StartTimer()
		stats, err = l.Compact(context.Background(), time.Now())
		b.StopTimer()
		took = append(took, time.Since(begin))
		close(stop)
		heap = max(heap, max(<-peak, before)-before)
		ok(b, err)
		ok(b, l.Close())
		ok(b, os.RemoveAll(dir))
		b.StartTimer()
	}
	mid := func(d []time.Duration) float64 { slices.Sort(d); return float64(d[len(d)/2]) }
	b.ReportMetric(mid(took), "ns/op")
	b.ReportMetric(mid(floors), "floor-ns/op")
	b.ReportMetric(mid(took)/mid(floors), "x-floor")
	b.ReportMetric(float64(stats.DirtyBytes)/mid(took)*1e3, "MB/s")
	b.ReportMetric(float64(stats.KeyBytes)/float64(stats.Keys), "key-B")
	b.ReportMetric(float64(heap)/1e6, "heap-MB")
	b.ReportMetric(float64(stats.Passes), "passes")
}

// scanAll walks the segments of a log and verifies each checksum.
func scanAll(b *testing.B, dir string) time.Duration {
	names, err := filepath.Glob(filepath.Join(dir, "*.log"))
	ok(b, err)
	begin := time.Now()
	for _, name := range names {
		s := segment.Open(vfs.OS, dir, segment.Parse(filepath.Base(name)).Offset, segment.Config{ReadOnly: true})
		w := s.Scan(0)
		for w.Next() {
			_ = w.Batch()
		}
		ok(b, w.Err())
		ok(b, s.Close())
	}
	return time.Since(begin)
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// watchHeap reports the most memory in use that it sees.
func watchHeap(stop <-chan struct{}, peak chan<- uint64) {
	var m runtime.MemStats
	most := uint64(0)
	for {
		select {
		case <-stop:
			peak <- most
			return
		case <-time.After(5 * time.Millisecond):
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
		}
	}
}
