package wal

import (
	"fmt"
	"testing"

	"github.com/oncelog/oncelog/record"
)

// BenchmarkAppend is one goroutine that appends batches on the simple floor, to a file system in use. In SyncCommit that is
// a sync an append; AppendAsync shows what is left without waiting for each.
func BenchmarkAppend(b *testing.B) {
	for _, mode := range []SyncMode{SyncNone, SyncCommit} {
		for _, how := range []string{"plain", "named", "async"} {
			for _, n := range []int{1, 10} {
				b.Run(fmt.Sprintf("sync=%v/how=%s/records=%d/value=100", mode, how, n), func(b *testing.B) {
					l := openTest(b, b.TempDir(), Options{Sync: mode})
					p := openProducer(b, l, "bench", 0)
					recs := make([]Record, n)
					for i := range recs {
						recs[i] = Record{Key: []byte("key"), Value: make([]byte, 100), Headers: []record.Header{{Key: "h", Value: []byte("v")}}}
					}
					var last *Pending
					b.ReportAllocs()
					b.SetBytes(int64(n * 100))
					for b.Loop() {
						var err error
						switch how {
						case "plain":
							_, err = l.Append(recs...)
						case "named":
							_, err = p.Append(recs...)
						case "async":
							last = l.AppendAsync(recs...)
						}
						if err != nil {
							b.Fatal(err)
						}
					}
					if last != nil {
						if _, err := last.Wait(b.Context()); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}

// BenchmarkRecords reads a log of 100-byte records in batches of 10 through the iterator, and so verifies each checksum.
// Reading a log of many segments costs about as much for each of them, however many there are.
func BenchmarkRecords_Segments(b *testing.B) {
	for _, n := range []int{300, 3000} {
		b.Run(fmt.Sprintf("segments=%d", n), func(b *testing.B) {
			l := openTest(b, b.TempDir(), Options{Sync: SyncNone, SegmentBytes: 100})
			fillSegments(b, l, n, 0)
			for b.Loop() {
				for _, err := range l.Records(0) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "µs/segment")
		})
	}
}

func BenchmarkRecords(b *testing.B) {
	for codec := record.None; codec <= record.Zstd; codec++ {
		b.Run("codec="+codec.String(), func(b *testing.B) {
			l := openTest(b, b.TempDir(), Options{Sync: SyncNone, Compression: Compression{Codec: codec}})
			recs := make([]Record, 10)
			for i := range recs {
				recs[i].Value = fmt.Appendf(nil, "%100d", i)
			}
			const batches = 10_000
			for range batches {
				if _, err := l.Append(recs...); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(batches * 10 * 100)
			b.ReportAllocs()
			for b.Loop() {
				n := 0
				for _, err := range l.Records(0) {
					if err != nil {
						b.Fatal(err)
					}
					n++
				}
				if n != batches*10 {
					b.Fatal(n)
				}
			}
		})
	}
}

// The simple floor allocates nothing of its own for an append.
func TestAppend_Allocations(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{Sync: SyncNone, manual: true})
	p := openProducer(t, l, "a", 0)
	recs := []Record{{Key: []byte("key"), Value: make([]byte, 100)}, {Value: make([]byte, 100)}}
	for how, f := range map[string]func() error{
		"plain": func() error { _, err := l.Append(recs...); return err },
		"named": func() error { _, err := p.Append(recs...); return err },
	} {
		n := testing.AllocsPerRun(1000, func() {
			if err := f(); err != nil {
				t.Fatal(err)
			}
		})
		// The pool of builders is emptied by the garbage collector now and then.
		if n >= 1 {
			t.Errorf("%s: %v allocations", how, n)
		}
	}
}
