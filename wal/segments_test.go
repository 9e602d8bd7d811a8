package wal

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
)

// countLooks counts the files that are opened or looked for.
func countLooks(fsys vfs.FS) (vfs.FS, *atomic.Int64) {
	n := new(atomic.Int64)
	kinds := vfstest.Kinds(vfstest.OpOpen, vfstest.OpCreate, vfstest.OpStat)
	return vfstest.Inject(fsys, vfstest.Each(kinds, func(o vfstest.Op, after bool) {
		if !after {
			n.Add(1)
		}
	})), n
}

// fillSegments appends records, each with its offset as value, until there are n segments, and returns the offsets of those
// that count. Every abortEvery-th one belongs to a transaction that is aborted right behind it, in the next segment.
func fillSegments(tb testing.TB, l *Log, n, abortEvery int) (want []int64) {
	tb.Helper()
	aborting := named(tb, l, "aborting")
	for i := 1; l.segments.Load().Len() < n; i++ {
		at := l.Offsets().LogEnd
		if abortEvery > 0 && i%abortEvery == 0 {
			if err := begin(tb, aborting, fmt.Sprint(at)).Abort(); err != nil {
				tb.Fatal(err)
			}
			continue
		}
		put(tb, l, Record{Value: fmt.Append(nil, at)})
		want = append(want, at)
	}
	return want
}

// A read from one end to the other opens each segment a few times, however many others there are, and knows which records
// belong to aborted transactions.
func TestRecords_FilesOpenedBySegments(t *testing.T) {
	for name, c := range map[string]struct {
		abortEvery int
		long       bool // a transaction is open from the first segment to the last
	}{
		"no transactions":           {},
		"aborted":                   {abortEvery: 10},
		"aborted beside a long one": {abortEvery: 10, long: true},
	} {
		t.Run(name, func(t *testing.T) {
			const segments = 300
			fsys, looks := countLooks(vfstest.NewMem())
			o := Options{Sync: SyncNone, SegmentBytes: 100, IndexIntervalBytes: 1, OpenSegments: 4}
			l := openFS(t, fsys, o)
			var long *Transaction
			var want []int64
			if c.long {
				long = begin(t, named(t, l, "long"), "0")
				want = []int64{0}
			}
			want = append(want, fillSegments(t, l, segments, c.abortEvery)...)
			if c.long {
				if err := long.Commit(); err != nil {
					t.Fatal(err)
				}
			}
			read := func(how string) {
				t.Helper()
				looks.Store(0)
				var got []int64
				for r, err := range l.Records(0) {
					if err != nil {
						t.Fatal(err)
					}
					if string(r.Value) != fmt.Sprint(r.Offset) {
						t.Fatalf("offset %d: %q", r.Offset, r.Value)
					}
					got = append(got, r.Offset)
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%s: offsets\n%v, want\n%v", how, got, want)
				}
				if n := looks.Load(); n > 10*segments {
					t.Errorf("%s: %d files were opened or looked for, of %d segments", how, n, segments)
				}
			}
			read("by the writer")
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			l = openFS(t, fsys, o)
			read("opened again")
			abandon(t, l)
			o.ReadOnly = true
			l = openFS(t, fsys, o)
			read("read-only")
		})
	}
}
