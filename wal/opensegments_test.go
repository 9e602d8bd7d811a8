package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/oncelog/oncelog/internal/vfs/vfstest"
)

// A log of many segments has few of them open, whoever reads, appends, rolls, removes and closes meanwhile, and gives all
// descriptors back.
func TestOpenSegments_Bound(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			var files atomic.Int64
			// Two segments, those that are written and rolled, three readers with up to two each, and what a checkpoint opens.
			const most = 4*(2+2+2*3) + 8
			fsys := vfstest.Inject(vfstest.NewMem(), vfstest.Hook{
				BeforeOp: func(o vfstest.Op) vfstest.Fault {
					if (o.Kind == vfstest.OpOpen || o.Kind == vfstest.OpCreate) && files.Load() >= most {
						return vfstest.Fault{Err: syscall.EMFILE}
					}
					return vfstest.Fault{}
				},
				AfterOp: func(o vfstest.Op, err error) {
					if o.Kind == vfstest.OpClose {
						files.Add(-1)
					} else if (o.Kind == vfstest.OpOpen || o.Kind == vfstest.OpCreate) && err == nil {
						files.Add(1)
					}
				},
			})
			o := Options{Sync: mode, SegmentBytes: 300, IndexIntervalBytes: 1, OpenSegments: 2}
			l := openFS(t, fsys, o)
			fill := func(n int) {
				for range n {
					next := l.Offsets().LogEnd
					if r, err := l.Append(Record{Value: fmt.Append(nil, next)}); err != nil || r.First != next {
						t.Errorf("append: %+v, %v", r, err)
						return
					}
				}
			}
			fill(300)
			var stop atomic.Bool
			var readers, writers sync.WaitGroup
			for g := range 3 {
				rng := rand.New(rand.NewPCG(uint64(g), 7))
				readers.Go(func() {
					for !stop.Load() {
						at := l.Offsets()
						from := at.LogStart + rng.Int64N(max(1, at.LogEnd-at.LogStart))
						for r, err := range l.Records(from) {
							if errors.Is(err, ErrOffsetOutOfRange) {
								break // removed meanwhile
							}
							if err != nil || string(r.Value) != fmt.Sprint(r.Offset) {
								t.Errorf("offset %d: %q, %v", r.Offset, r.Value, err)
								return
							}
							if r.Offset > from+5 {
								break
							}
						}
					}
				})
			}
			writers.Go(func() { fill(300) })
			writers.Go(func() {
				for range 20 {
					at := l.Offsets()
					if _, err := l.IncrementLogStartOffset(at.LogStart + 5); err != nil {
						t.Error(err)
					}
					if _, err := l.DeleteOldSegments(time.Now()); err != nil {
						t.Error(err)
					}
				}
			})
			writers.Wait()
			stop.Store(true)
			readers.Wait()
			// What was in use or not yet flushed when its place was wanted stays until the next segment is opened.
			if err := l.Flush(); err != nil {
				t.Error(err)
			}
			for tries := 0; l.pool.Open() > 3; tries++ {
				if tries == 100 {
					t.Fatalf("%d segments are open, want 2 and the active one at most", l.pool.Open())
				}
				for _, err := range l.Records(l.Offsets().LogStart) {
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if n := files.Load(); n != 0 {
				t.Errorf("%d files are open after Close", n)
			}
		})
	}
}

// A segment that was deleted while a reader had it at hand is opened again by that reader, and closed with the log.
func TestClose_DeletedSegmentOpenedAgain(t *testing.T) {
	var files atomic.Int64
	fsys := vfstest.Inject(vfstest.NewMem(), vfstest.Hook{AfterOp: func(o vfstest.Op, err error) {
		if o.Kind == vfstest.OpClose {
			files.Add(-1)
		} else if (o.Kind == vfstest.OpOpen || o.Kind == vfstest.OpCreate) && err == nil {
			files.Add(1)
		}
	}})
	l := openFS(t, fsys, Options{SegmentBytes: 200, FileDeleteDelay: time.Hour})
	for n := range 20 {
		put(t, l, Record{Value: fmt.Append(nil, n)})
	}
	first := l.set.First()
	if _, err := l.IncrementLogStartOffset(10); err != nil {
		t.Fatal(err)
	}
	if n, err := l.DeleteOldSegments(time.Now()); err != nil || n == 0 {
		t.Fatalf("%d segments deleted, %v", n, err)
	}
	if _, err := first.HeaderAt(0, 100); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if n := files.Load(); n != 0 {
		t.Errorf("%d files are open after Close", n)
	}
}
