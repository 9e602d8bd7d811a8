package producerstate

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
)

// benchManager returns a manager with n producers that have five batches each, in the order in which the benchmarks go
// through them, which is not that of their ids.
func benchManager(b *testing.B, n int) (*Manager, []int64) {
	b.Helper()
	m, err := Open(vfs.OS, b.TempDir(), Config{SkipVerification: true})
	if err != nil {
		b.Fatal(err)
	}
	pids := make([]int64, n)
	x := uint64(1)
	for i := range pids {
		x = x*6364136223846793005 + 1442695040888963407
		pids[i] = int64(x >> 2)
	}
	for _, pid := range pids {
		p := unknown(pid)
		p.epoch, p.lastTimestamp, p.appendClock = 0, 1, 1
		for k := range int32(5) {
			p.push(BatchMetadata{LastOffset: int64(k), LastSequence: k, Timestamp: 1})
		}
		m.table.add(p)
	}
	m.table.index.move(len(m.table.index.old))
	m.UpdateMapEndOffset(10)
	return m, pids
}

var benchSizes = []int{1, 1e3, 1e5, 1e6}

func setBatch(b record.Batch, pid int64, seq int32) {
	binary.BigEndian.PutUint64(b[43:], uint64(pid))
	binary.BigEndian.PutUint32(b[53:], uint32(seq))
}

// BenchmarkAppend is the whole of an append without its bytes: check, staging, publication.
func BenchmarkAppend(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprintf("producers=%d", n), func(b *testing.B) {
			m, pids := benchManager(b, n)
			batch := batchSpec{}.batch()
			var a AppendInfo
			seq, i := int32(5), 0
			b.ReportAllocs()
			for b.Loop() {
				setBatch(batch, pids[i], seq)
				m.Prepare(&a, AppendOptions{Clock: 2})
				if _, _, err := a.Append(batch, OffsetOnly(int64(seq))); err != nil {
					b.Fatal(err)
				}
				m.Publish(&a)
				if i++; i == n {
					i, seq = 0, seq+1
				}
			}
		})
	}
}

// BenchmarkAppendWithoutProducer is the same for a batch without a producer id: the difference is what the checks cost.
func BenchmarkAppendWithoutProducer(b *testing.B) {
	m, _ := benchManager(b, 1)
	batch := batchSpec{pid: record.NoProducerID, epoch: -1, seq: -1}.batch()
	var a AppendInfo
	seq := int32(5)
	for b.Loop() {
		setBatch(batch, record.NoProducerID, seq)
		m.Prepare(&a, AppendOptions{Clock: 2})
		if _, _, err := a.Append(batch, OffsetOnly(int64(seq))); err != nil {
			b.Fatal(err)
		}
		m.Publish(&a)
		seq++
	}
}

// BenchmarkDuplicate is the answer to a retry of the newest and of the oldest remembered batch.
func BenchmarkDuplicate(b *testing.B) {
	for _, n := range benchSizes {
		for _, seq := range []int32{4, 0} {
			b.Run(fmt.Sprintf("producers=%d/age=%d", n, 4-seq), func(b *testing.B) {
				m, pids := benchManager(b, n)
				batch := batchSpec{}.batch()
				var a AppendInfo
				i := 0
				for b.Loop() {
					setBatch(batch, pids[i], seq)
					m.Prepare(&a, AppendOptions{})
					if _, isDup, err := a.Append(batch, OffsetOnly(10)); !isDup || err != nil {
						b.Fatal(isDup, err)
					}
					if i++; i == n {
						i = 0
					}
				}
			})
		}
	}
}

// BenchmarkNewProducer is the first batch of a producer, with all that growing takes.
func BenchmarkNewProducer(b *testing.B) {
	m, err := Open(vfs.OS, b.TempDir(), Config{})
	if err != nil {
		b.Fatal(err)
	}
	batch := batchSpec{}.batch()
	var a AppendInfo
	pid := int64(0)
	for b.Loop() {
		setBatch(batch, pid, 0)
		m.Prepare(&a, AppendOptions{Clock: 2})
		if _, _, err := a.Append(batch, OffsetOnly(pid)); err != nil {
			b.Fatal(err)
		}
		m.Publish(&a)
		pid++
	}
}

// BenchmarkMemory prints what a producer takes, as the table counts it and as the heap shows it.
func BenchmarkMemory(b *testing.B) {
	for _, n := range benchSizes[1:] {
		b.Run(fmt.Sprintf("producers=%d", n), func(b *testing.B) {
			for b.Loop() {
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				m, pids := benchManager(b, n)
				runtime.GC()
				runtime.ReadMemStats(&after)
				heap := int64(after.HeapAlloc) - int64(before.HeapAlloc) - 8*int64(len(pids))
				b.ReportMetric(float64(m.Stats().TableBytes)/float64(n), "B/producer")
				b.ReportMetric(float64(heap)/float64(n), "heap-B/producer")
				runtime.KeepAlive(pids)
			}
		})
	}
}

// BenchmarkSnapshot writes and reads the files of a state, with and without the side file.
func BenchmarkSnapshot(b *testing.B) {
	for _, n := range []int{1e3, 1e6} {
		m, _ := benchManager(b, n)
		f := m.Freeze()
		run := func(name string, op func() error) {
			b.Run(fmt.Sprintf("op=%s/producers=%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := op(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		run("freeze", func() error { m.Freeze(); return nil })
		run("write-bare", func() error { return WriteSnapshot(vfs.OS, m.dir, f) })
		run("read-bare", func() error { _, err := ReadSnapshot(vfs.OS, snapshotPath(m.dir, 10)); return err })
		run("write-pair", func() error { return WritePair(vfs.OS, m.dir, f, record.Identity{}) })
		run("read-pair", func() error { _, err := ReadPair(vfs.OS, m.dir, 10); return err })
		for _, name := range []string{snapshotPath(m.dir, 10), sidePath(m.dir, 10)} {
			if info, err := os.Stat(name); err == nil {
				b.Logf("%s: %d bytes", name, info.Size())
			}
		}
	}
}

// BenchmarkAppendAfterFreeze is the append that copies a chunk of the table, since a frozen view may be reading it.
func BenchmarkAppendAfterFreeze(b *testing.B) {
	m, _ := benchManager(b, 1e5)
	for b.Loop() {
		m.table.shared[0] = true
		m.table.mut(0)
	}
}

// BenchmarkRemoveExpired looks at a million producers and finds none expired, and then all.
func BenchmarkRemoveExpired(b *testing.B) {
	m, _ := benchManager(b, 1e6)
	m.NoteTime(2)
	b.Run("expired=none", func(b *testing.B) {
		for b.Loop() {
			m.RemoveExpired(2)
		}
	})
	b.Run("expired=all", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			m, _ := benchManager(b, 1e6)
			m.NoteTime(1 << 40)
			b.StartTimer()
			if m.RemoveExpired(1<<40) != 1e6 {
				b.Fatal("not all expired")
			}
		}
	})
}
