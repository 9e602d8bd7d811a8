package segment

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
)

// benchLog writes a sealed segment of about n bytes in batches whose values have the given size.
func benchLog(b *testing.B, n, value int) (*Segment, int64) {
	b.Helper()
	st := storage{vfs.OS, b.TempDir()}
	s := st.create(b, 0, Config{})
	batch := spec{base: 0, records: 1, value: value}.batch(b)
	next := int64(0)
	for size := 0; size < n; size += len(batch) {
		batch.SetBaseOffset(next)
		ok(b, s.Append(batch))
		next++
	}
	ok(b, s.Seal())
	return s, next
}

// BenchmarkScan measures a full walk of a file in the page cache with every checksum verified. Beside it stands what the
// checksums alone cost over the same bytes in memory, in the same batches (crc), and what reading them costs (pread); the
// ratio of walk to their sum is the overhead of framing.
func BenchmarkScan(b *testing.B) {
	for _, value := range []int{950, 16 << 10} {
		s, n := benchLog(b, 128<<20, value)
		bytes, err := s.Size()
		ok(b, err)
		whole := make([]byte, bytes)
		ok(b, s.readAt(whole, 0))
		run := func(kind string, f func() int) {
			b.Run(fmt.Sprintf("%s/value=%d", kind, value), func(b *testing.B) {
				b.SetBytes(bytes)
				for b.Loop() {
					if got := f(); got != int(n) {
						b.Fatalf("%d batches, want %d", got, n)
					}
				}
			})
		}
		run("walk", func() int {
			k := 0
			c := s.Scan(0)
			for c.Next() {
				k++
			}
			return k
		})
		run("headers", func() int {
			k := 0
			c := s.ScanHeaders(0, ToEnd)
			for c.Next() {
				k++
			}
			return k
		})
		run("floor-crc", func() int {
			k := 0
			for batch := range record.All(whole) {
				if batch.CRC() == record.Checksum(batch[21:]) {
					k++
				}
			}
			return k
		})
		run("floor-pread", func() int {
			buf := make([]byte, scanStep)
			for pos := int64(0); pos < bytes; pos += scanStep {
				ok(b, s.readAt(buf[:min(scanStep, bytes-pos)], pos))
			}
			return int(n)
		})
	}
}

// BenchmarkLocate measures a look-up of a random offset, index entry and header walk included, with the file cached. The
// floor is one read of eight kibibytes, which is what the walk needs at least.
func BenchmarkLocate(b *testing.B) {
	for _, value := range []int{100, 950, 16 << 10} {
		s, n := benchLog(b, 64<<20, value)
		rng := rand.New(rand.NewPCG(1, 2))
		for name, x := range map[string]Extent{"": {End: ToEnd}, "/no-gaps": {End: ToEnd, Next: n}} {
			b.Run(fmt.Sprintf("value=%d%s", value, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					o := rng.Int64N(n)
					if h, found, err := s.LocateIn(o, x); err != nil || !found || h.BaseOffset != o {
						b.Fatal(h, found, err)
					}
				}
			})
		}
	}
	s, _ := benchLog(b, 64<<20, 950)
	b.Run("floor-pread-8K", func(b *testing.B) {
		rng := rand.New(rand.NewPCG(1, 2))
		buf := make([]byte, minStep)
		for b.Loop() {
			ok(b, s.readAt(buf, rng.Int64N(60<<20)))
		}
	})
}

// BenchmarkNote measures the bookkeeping of a kibibyte batch alone.
func BenchmarkNote(b *testing.B) {
	st := storage{vfs.OS, b.TempDir()}
	s := st.create(b, 0, Config{})
	batch := spec{base: 0, records: 1, value: 950}.batch(b)
	pos := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		if pos > 1<<30 {
			b.StopTimer()
			ok(b, s.TruncateToPosition(0))
			s.writable.Store(true)
			pos = 0
			batch.SetBaseOffset(0)
			b.StartTimer()
		}
		if err := s.Note(batch, pos); err != nil {
			b.Fatal(err)
		}
		pos += int64(len(batch))
		batch.SetBaseOffset(batch.NextOffset())
	}
}

// BenchmarkAppend measures write and bookkeeping of a kibibyte batch.
func BenchmarkAppend(b *testing.B) {
	st := storage{vfs.OS, b.TempDir()}
	s := st.create(b, 0, Config{})
	batch := spec{base: 0, records: 1, value: 950}.batch(b)
	b.SetBytes(int64(len(batch)))
	b.ReportAllocs()
	for b.Loop() {
		if s.size.Load() > 256<<20 {
			b.StopTimer()
			_, err := s.TruncateTo(0)
			ok(b, err)
			batch.SetBaseOffset(0)
			b.StartTimer()
		}
		if err := s.Append(batch); err != nil {
			b.Fatal(err)
		}
		batch.SetBaseOffset(batch.NextOffset())
	}
}

// BenchmarkPool measures a read of one batch through the offset index: of a segment whose files are open, without a pool and
// with one, and of one whose files have to be opened again and another's closed.
func BenchmarkPool(b *testing.B) {
	const n, per = 256, 64
	st := storage{vfs.OS, b.TempDir()}
	chain(b, st, n, per, Config{})
	open := func(p *Pool) Set {
		var list []*Segment
		for i := range int64(n) {
			s := Open(st.FS, st.dir, i*per, Config{Pool: p})
			list = append(list, s)
			b.Cleanup(func() { s.Close() })
		}
		return NewSet(list...)
	}
	run := func(name string, set Set, width int64) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			buf := make([]byte, 0, 1<<10)
			i := int64(0)
			for b.Loop() {
				o := i%width*per + per/2
				i++
				s, _ := set.Floor(o)
				r, err := s.Read(ReadOptions{StartOffset: o, MaxBytes: 100, MaxPosition: ToEnd})
				if err != nil || r.First.BaseOffset != o {
					b.Fatal(r.First, err)
				}
				_, err = r.AppendTo(buf)
				ok(b, err)
				ok(b, r.Close())
			}
		})
	}
	run("no-pool", open(nil), 64)
	run("cached", open(NewPool(64)), 64)
	run("evicted", open(NewPool(64)), n)
	run("evicted-of-2", open(NewPool(2)), n)
}
