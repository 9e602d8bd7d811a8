package segment

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
)

// limits counts descriptors and maps, and refuses more of them than there may be, as the system does.
type limits struct {
	files, maps, mapped atomic.Int64
	mostFiles, mostMaps atomic.Int64
	maxFiles, maxMaps   int64
}

func (x *limits) over(fsys vfs.FS) vfs.FS {
	return vfstest.Inject(fsys, vfstest.Hook{
		BeforeOp: func(o vfstest.Op) vfstest.Fault {
			switch {
			case (o.Kind == vfstest.OpOpen || o.Kind == vfstest.OpCreate) && x.files.Load() >= x.maxFiles:
				return vfstest.Fault{Err: syscall.EMFILE}
			case o.Kind == vfstest.OpMap && x.maps.Load() >= x.maxMaps:
				return vfstest.Fault{Err: syscall.ENOMEM}
			}
			return vfstest.Fault{}
		},
		AfterOp: func(o vfstest.Op, err error) {
			switch {
			case o.Kind == vfstest.OpClose:
				x.files.Add(-1)
			case o.Kind == vfstest.OpUnmap:
				x.maps.Add(-1)
				x.mapped.Add(-o.N)
			case err != nil:
			case o.Kind == vfstest.OpOpen, o.Kind == vfstest.OpCreate:
				raise(&x.mostFiles, x.files.Add(1))
			case o.Kind == vfstest.OpMap:
				raise(&x.mostMaps, x.maps.Add(1))
				x.mapped.Add(o.N)
			}
		},
	})
}

func raise(most *atomic.Int64, n int64) {
	for m := most.Load(); n > m && !most.CompareAndSwap(m, n); {
		m = most.Load()
	}
}

// chain makes n sealed segments of per batches of one record each, and returns them opened anew.
func chain(t testing.TB, st storage, n, per int, c Config) Set {
	t.Helper()
	var list []*Segment
	for i := range n {
		base := int64(i * per)
		s, err := Create(st.FS, st.dir, base, Config{IndexIntervalBytes: 1})
		ok(t, err)
		for _, b := range row(t, base, per, 20) {
			ok(t, s.Append(b))
		}
		ok(t, errors.Join(s.Seal(), s.FlushIndexes(), s.Close()))
		list = append(list, Open(st.FS, st.dir, base, c))
	}
	t.Cleanup(func() {
		for _, s := range list {
			s.Close()
		}
	})
	return NewSet(list...)
}

// readAt reads the batch of an offset as a fetch of committed records does.
func readOffset(set Set, offset int64) error {
	s, found := set.Floor(offset)
	if !found {
		return fmt.Errorf("no segment for %d", offset)
	}
	r, err := s.Read(ReadOptions{StartOffset: offset, MaxBytes: 1, MaxPosition: ToEnd, MinOneMessage: true})
	if err != nil {
		return err
	}
	defer r.Close()
	for b, err := range r.Batches() {
		if err != nil || b.BaseOffset() != offset {
			return fmt.Errorf("batch at %d, want %d: %w", b.BaseOffset(), offset, err)
		}
	}
	if _, _, err = s.UpperBound(r.Position, int64(r.Size), ToEnd); err != nil {
		return err
	}
	if _, _, err = s.AbortedTxns(offset, offset+1); err != nil {
		return err
	}
	if hit, found, err := s.OffsetByTimestamp(startTime+offset, s.BaseOffset(), ToEnd); err != nil || !found || hit.Offset != offset {
		return fmt.Errorf("by time: %+v, %v, %w", hit, found, err)
	}
	return nil
}

// Three thousand segments are read, in order and at random, with the descriptors and maps of sixteen.
func TestPool_ThreeThousandSegments(t *testing.T) {
	const n, per, bound = 3000, 3, 16
	x := &limits{maxFiles: 3 * (bound + 1), maxMaps: 2 * (bound + 1)}
	st := memory(t)
	st.FS = x.over(st.FS)
	pool := NewPool(bound)
	set := chain(t, st, n, per, Config{Pool: pool})
	for o := range int64(n * per) {
		if err := readOffset(set, o); err != nil {
			t.Fatal(err)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		if err := readOffset(set, rng.Int64N(n*per)); err != nil {
			t.Fatal(err)
		}
	}
	if got := pool.Open(); got != bound {
		t.Errorf("%d segments are open, want %d", got, bound)
	}
	t.Logf("at most %d descriptors, %d maps", x.mostFiles.Load(), x.mostMaps.Load())
	for s := range set.All() {
		ok(t, s.Close())
	}
	if f, m, b, p := x.files.Load(), x.maps.Load(), x.mapped.Load(), pool.Open(); f != 0 || m != 0 || b != 0 || p != 0 {
		t.Errorf("after Close %d files, %d maps of %d bytes and %d segments are open", f, m, b, p)
	}
}

// The one that was used longest ago goes, and none that is written to, held, given away, or not flushed.
func TestPool_WhatStays(t *testing.T) {
	st := memory(t)
	pool := NewPool(3)
	set := chain(t, st, 8, 1, Config{Pool: pool})
	use := func(i int) {
		t.Helper()
		ok(t, readOffset(set, int64(i)))
	}
	open := func(want ...int) {
		t.Helper()
		var got []int
		for i := range set.Len() {
			if set.At(i).files.log.p.Load() != nil {
				got = append(got, i)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("open are %v, want %v", got, want)
		}
	}
	use(0)
	use(1)
	use(2)
	open(0, 1, 2)
	use(0)
	use(3)
	open(0, 2, 3)

	if !set.At(0).Acquire() {
		t.Fatal("closed")
	}
	use(4)
	use(5)
	open(0, 4, 5)
	set.At(0).Release()
	use(6)
	use(7)
	open(5, 6, 7)

	ok(t, set.At(7).OpenActive(size(t, set.At(7))))
	use(0)
	use(1)
	use(2)
	open(1, 2, 7)
	ok(t, set.At(7).Seal()) // may have added an entry
	use(3)
	use(4)
	use(5)
	open(4, 5, 7)
	ok(t, set.At(7).FlushIndexes())
	use(0)
	use(1)
	use(2)
	open(0, 1, 2)

	_, err := set.At(1).File()
	ok(t, err)
	use(3)
	use(4)
	use(5)
	open(1, 4, 5)
	ok(t, set.At(1).Park())
	use(6)
	open(4, 5, 6)
}

// A recovery makes the indexes of many segments anew before any is flushed. None of the entries is lost when the files are
// closed, and a flush that failed is not taken for one that did not.
func TestPool_Unflushed(t *testing.T) {
	const n, bound = 40, 4
	for _, broken := range []bool{false, true} {
		st := memory(t)
		mem := st.FS.(*vfstest.Mem)
		var failing atomic.Bool
		st.FS = vfstest.Inject(mem, vfstest.Hook{BeforeOp: func(o vfstest.Op) vfstest.Fault {
			if failing.Load() && !strings.HasSuffix(o.Path, ".log") && (o.Kind == vfstest.OpSync || o.Kind == vfstest.OpSyncData) {
				return vfstest.Fault{Err: syscall.EIO}
			}
			return vfstest.Fault{}
		}})
		pool := NewPool(bound)
		set := chain(t, st, n, 4, Config{Pool: pool, IndexIntervalBytes: 1})
		ok(t, errors.Join(st.SyncDir(st.dir), st.SyncDir(".")))
		failing.Store(broken)
		for s := range set.All() {
			end := size(t, s)
			ok(t, s.ResetIndexes())
			for c := s.ScanWith(0, end, ScanOptions{}); c.Next(); {
				ok(t, s.Note(c.Batch().Batch, c.Batch().Position))
			}
			ok(t, s.AppendAborted(index.AbortedTxn{ProducerID: 1, FirstOffset: s.BaseOffset(), LastOffset: s.BaseOffset() + 1, LastStableOffset: s.BaseOffset() + 2}))
			ok(t, s.Seal())
		}
		failing.Store(false)
		if got := pool.Open(); !broken && got > 2*bound+1 {
			t.Errorf("%d are open", got)
		}
		failed := 0
		for s := range set.All() {
			if err := s.FlushIndexes(); errors.Is(err, syscall.EIO) {
				failed++
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if (failed > 0) != broken {
			t.Errorf("broken %v: %d flushes say so", broken, failed)
		}
		if broken {
			continue
		}
		ok(t, st.SyncDir(st.dir))
		after := storage{mem.Crash(vfstest.CrashOptions{Mode: vfstest.AllLost}), st.dir}
		for i := range n {
			s := Open(after.FS, after.dir, int64(4*i), Config{})
			offsets, times := entries(t, s)
			txns, _, err := s.AbortedTxns(s.BaseOffset(), s.BaseOffset()+4)
			if err != nil || len(offsets) != 3 || len(times) != 3 || len(txns) != 1 {
				t.Errorf("segment %d after a power cut: %d and %d entries, %d transactions, %v", i, len(offsets), len(times), len(txns), err)
			}
			ok(t, s.Close())
		}
	}
}

// Readers, holders, parking, truncation and removal go on beside each other, with one or two segments open.
func TestPool_Concurrent(t *testing.T) {
	storages(t, func(t *testing.T, st storage) {
		const n, per = 60, 4
		x := &limits{maxFiles: 80, maxMaps: 60}
		st.FS = x.over(st.FS)
		pool := NewPool(2)
		set := chain(t, st, n, per, Config{Pool: pool})
		var removed atomic.Int64 // segments
		var wg sync.WaitGroup
		for g := range 4 {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			wg.Go(func() {
				for range 400 {
					o := rng.Int64N(n * per)
					err := readOffset(set, o)
					if errors.Is(err, ErrClosed) && o < removed.Load()*per {
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Go(func() {
			for i := range int64(20) {
				s := set.At(int(i))
				held := s.Acquire()
				removed.Store(i + 1)
				if err := s.Remove(); err != nil || !held {
					t.Error(err)
				}
				// What a holder has not read yet can be read still.
				if _, _, found, err := s.Locate(i*per+per-1, ToEnd); err != nil || !found {
					t.Errorf("removed segment %d: %v", i, err)
				}
				s.Release()
			}
		})
		wg.Wait()
		for s := range set.All() {
			ok(t, s.Close())
		}
		if f, m, p := x.files.Load(), x.maps.Load(), pool.Open(); f != 0 || m != 0 || p != 0 {
			t.Errorf("after Close %d files, %d maps and %d segments are open", f, m, p)
		}
	})
}

// The default leaves three quarters of the descriptors that a process may have to others.
func TestDefaultOpen(t *testing.T) {
	for limit, want := range map[int]int{0: 2, 64: 4, 256: 16, 1024: 64, 2048: 128, 1 << 20: 128} {
		if got := defaultOpen(limit); got != want {
			t.Errorf("%d descriptors: %d segments, want %d", limit, got, want)
		}
	}
}
