package segment

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tally counts opens and closes by path.
type tally struct {
	sync.Mutex
	opens  map[string]int
	closes map[string]int
	all    int
}

func (c *tally) Before(vfstest.Op) vfstest.Fault { return vfstest.Fault{} }

func (c *tally) After(o vfstest.Op, err error) {
	c.Lock()
	defer c.Unlock()
	c.all++
	if err != nil {
		return
	}
	switch o.Kind {
	case vfstest.OpOpen, vfstest.OpCreate:
		c.opens[o.Path]++
	case vfstest.OpClose:
		c.closes[o.Path]++
	}
}

func (st *storage) count() *tally {
	c := &tally{opens: map[string]int{}, closes: map[string]int{}}
	st.FS = vfstest.Inject(st.FS, c)
	return c
}

func (c *tally) operations() int {
	c.Lock()
	defer c.Unlock()
	return c.all
}

func sealed(t testing.TB, st storage, base int64, n int) {
	t.Helper()
	s := st.create(t, base, Config{IndexIntervalBytes: 100}, row(t, base, n, 50)...)
	ok(t, s.AppendAborted(index.AbortedTxn{ProducerID: 1, FirstOffset: base, LastOffset: base + 1, LastStableOffset: base + 2}))
	ok(t, s.Seal())
	ok(t, s.Close())
}

// Opening is free, and each file is opened once, whoever comes first.
func TestOpen_LazyAndOnce(t *testing.T) {
	st := memory(t)
	sealed(t, st, 0, 50)
	c := st.count()
	s := Open(st.FS, st.dir, 0, Config{})
	if n := c.operations(); n != 0 {
		t.Fatalf("%d operations to open", n)
	}
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range 32 {
		wg.Go(func() {
			<-start
			o := int64(i)
			if _, h, found, err := s.Locate(o, ToEnd); err != nil || !found || h.BaseOffset != o {
				t.Errorf("%d: %+v %v %v", o, h, found, err)
			}
			if hit, found, err := s.OffsetByTimestamp(startTime+o, 0, ToEnd); err != nil || !found || hit.Offset != o {
				t.Errorf("%d: %+v %v %v", o, hit, found, err)
			}
			if txns, _, err := s.AbortedTxns(0, 100); err != nil || len(txns) != 1 {
				t.Errorf("%v %v", txns, err)
			}
			if ts, err := s.LargestTimestamp(); err != nil || ts != startTime+49 {
				t.Errorf("%d %v", ts, err)
			}
		})
	}
	close(start)
	wg.Wait()
	want := map[string]int{}
	for _, kind := range segmentKinds {
		want[st.path(kind, 0)] = 1
	}
	if diff := cmp.Diff(want, c.opens); diff != "" {
		t.Error(diff)
	}
	for range 3 {
		wg.Go(func() { ok(t, s.Close()) })
	}
	wg.Wait()
	if diff := cmp.Diff(want, c.closes); diff != "" {
		t.Error(diff)
	}
	if s.Acquire() {
		t.Error("a closed segment can be acquired")
	}
	for name, f := range map[string]func() error{
		"locate":    func() error { _, _, _, err := s.Locate(0, ToEnd); return err },
		"read":      func() error { _, err := s.Read(ReadOptions{MaxBytes: 1, MaxPosition: ToEnd}); return err },
		"scan":      func() error { c := s.Scan(0); c.Next(); return c.Err() },
		"by time":   func() error { _, _, err := s.OffsetByTimestamp(1, 0, ToEnd); return err },
		"aborted":   func() error { _, _, err := s.AbortedTxns(0, 1); return err },
		"truncate":  func() error { _, err := s.TruncateTo(1); return err },
		"reset":     s.ResetIndexes,
		"flush":     s.Flush,
		"park":      s.Park,
		"rename":    func() error { return s.Rename(SuffixDeleted) },
		"file":      func() error { _, err := s.File(); return err },
		"file size": func() error { _, err := s.FileSize(); return err },
		"bound":     func() error { _, _, err := s.UpperBound(0, 1, ToEnd); return err },
	} {
		if err := f(); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if diff := cmp.Diff(want, c.opens); diff != "" {
		t.Errorf("opened after close: %s", diff)
	}
}

// Files that are given back are opened again by those who read on.
func TestPark_BesideReaders(t *testing.T) {
	storages(t, func(t *testing.T, st storage) {
		sealed(t, st, 0, 50)
		s := Open(st.FS, st.dir, 0, Config{})
		defer s.Close()
		var stop atomic.Bool
		var wg sync.WaitGroup
		wg.Go(func() {
			for !stop.Load() {
				ok(t, s.Park())
			}
		})
		for i := range int64(500) {
			o := i % 50
			r, err := s.Read(ReadOptions{StartOffset: o, MaxBytes: 1 << 20, MaxPosition: ToEnd})
			ok(t, err)
			n := o
			for b, err := range r.Batches() {
				ok(t, err)
				if b.BaseOffset() != n {
					t.Fatalf("offset %d, want %d", b.BaseOffset(), n)
				}
				n++
			}
			if n != 50 {
				t.Fatalf("ends at %d", n)
			}
			ok(t, r.Close())
			ok(t, s.Flush())
		}
		stop.Store(true)
		wg.Wait()
		if s.Suspects() != 0 {
			t.Errorf("%d look-ups were misled", s.Suspects())
		}
	})
}

func TestRename_FollowsTheFiles(t *testing.T) {
	storages(t, func(t *testing.T, st storage) {
		sealed(t, st, 0, 20)
		s := Open(st.FS, st.dir, 0, Config{})
		defer s.Close()
		r, err := s.Read(ReadOptions{StartOffset: 3, MaxBytes: 1 << 20, MaxPosition: ToEnd})
		ok(t, err)
		want, err := r.AppendTo(nil)
		ok(t, err)
		for _, suffix := range []string{SuffixCleaned, SuffixSwap, "", SuffixDeleted} {
			ok(t, s.Rename(suffix))
			for _, kind := range segmentKinds {
				name := Name{Kind: kind, Suffix: suffix}
				if s.PathOf(kind) != name.Path(st.dir) || !st.exists(t, name.String()) {
					t.Errorf("%s: no %s", suffix, s.PathOf(kind))
				}
			}
			list, err := st.ReadDir(st.dir)
			if err != nil || len(list) != len(segmentKinds) {
				t.Errorf("%s: %v, %v", suffix, list, err)
			}
			if got, err := r.AppendTo(nil); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %d bytes, %v", suffix, len(got), err)
			}
			if _, h, found, err := s.Locate(7, ToEnd); err != nil || !found || h.BaseOffset != 7 {
				t.Errorf("%s: %+v %v %v", suffix, h, found, err)
			}
		}
		ok(t, r.Close())
		ok(t, s.Close())
		s = Open(st.FS, st.dir, 0, Config{Suffix: SuffixDeleted})
		defer s.Close()
		if n, err := s.NextOffset(); err != nil || n != 20 {
			t.Errorf("%d, %v", n, err)
		}
		ok(t, s.Remove())
		if list, err := st.ReadDir(st.dir); err != nil || len(list) != 0 {
			t.Errorf("left: %v, %v", list, err)
		}
	})
}

// A rename that fails half-way goes on where it stopped; until then each file is looked for under the name it has.
func TestRename_ErrorAtEveryStep(t *testing.T) {
	broken := errors.New("broken")
	for n := 1; n <= len(segmentKinds); n++ {
		st := memory(t)
		sealed(t, st, 0, 20)
		st.FS = vfstest.Inject(st.FS, vfstest.FailNth(vfstest.Kinds(vfstest.OpRename), n, vfstest.Fault{Err: broken}, false))
		s := Open(st.FS, st.dir, 0, Config{})
		if err := s.Rename(SuffixDeleted); !errors.Is(err, broken) {
			t.Fatal(err)
		}
		for _, kind := range segmentKinds {
			if _, err := st.Stat(s.PathOf(kind)); err != nil {
				t.Errorf("step %d: %v", n, err)
			}
		}
		if _, h, found, err := s.Locate(7, ToEnd); err != nil || !found || h.BaseOffset != 7 || s.Suspects() != 0 {
			t.Errorf("step %d: %+v %v %v", n, h, found, err)
		}
		ok(t, s.Rename(SuffixDeleted))
		for _, kind := range segmentKinds {
			if s.PathOf(kind) != (Name{Kind: kind, Suffix: SuffixDeleted}).Path(st.dir) {
				t.Errorf("step %d: %s", n, s.PathOf(kind))
			}
		}
		ok(t, s.Close())
	}
	st := memory(t)
	s := Open(st.FS, st.dir, 0, Config{})
	defer s.Close()
	if err := s.Rename(SuffixDeleted); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a log file: %v", err)
	}
}

// Whoever holds a segment reads it to the end after its removal, even if he had read nothing before.
func TestRemove_WithHolders(t *testing.T) {
	storages(t, func(t *testing.T, st storage) {
		sealed(t, st, 0, 20)
		c := st.count()
		s := Open(st.FS, st.dir, 0, Config{})
		if !s.Acquire() {
			t.Fatal("cannot be acquired")
		}
		ok(t, s.Remove())
		if list, err := st.ReadDir(st.dir); err != nil || len(list) != 0 {
			t.Errorf("left: %v, %v", list, err)
		}
		if s.Acquire() {
			t.Error("a removed segment can be acquired")
		}
		select {
		case <-s.Done():
			t.Fatal("closed while it is held")
		default:
		}
		if bases, tail := scan(t, s.Scan(0)); len(bases) != 20 || tail.Kind != CleanEnd {
			t.Errorf("%v %+v", bases, tail)
		}
		if _, h, found, err := s.Locate(7, ToEnd); err != nil || !found || h.BaseOffset != 7 {
			t.Errorf("%+v %v %v", h, found, err)
		}
		s.Release()
		<-s.Done()
		ok(t, s.Close())
		ok(t, s.Remove())
		if diff := cmp.Diff(c.opens, c.closes); diff != "" {
			t.Errorf("opens and closes: %s", diff)
		}
	})
}

func TestRelease_Unbalanced(t *testing.T) {
	s := Open(vfstest.NewMem(), "", 0, Config{})
	defer s.Close()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	s.Release()
}

// Preallocated space is not part of the log; sealing gives it back, and the cut survives a power cut.
func TestSeal_Preallocated(t *testing.T) {
	m := vfstest.NewMem()
	ok(t, m.MkdirAll("log", 0o755))
	ok(t, m.SyncDir("."))
	st := storage{m, "log"}
	batches := row(t, 0, 50, 500)
	whole := join(batches...)
	s := st.create(t, 0, Config{Preallocate: 1 << 20}, batches...)
	if n, err := s.FileSize(); err != nil || n != 1<<20 || size(t, s) != int64(len(whole)) {
		t.Fatalf("%d bytes, %d logical, %v", n, size(t, s), err)
	}
	if _, tail := scan(t, s.Scan(0)); tail.Kind != CleanEnd {
		t.Errorf("%+v", tail)
	}
	ok(t, st.SyncDir("log"))
	ok(t, s.Seal())
	ok(t, s.Seal())
	for seed := range uint64(20) {
		if p := (storage{m.Crash(vfstest.RandomCrash(seed)), "log"}).read(t, KindLog, 0); !bytes.Equal(p, whole) {
			t.Fatalf("seed %d: %d bytes after a power cut", seed, len(p))
		}
	}
	ok(t, s.Flush())
	if err := s.Append(some(t, 50, 1)); !errors.Is(err, ErrNotWritable) {
		t.Errorf("append: %v", err)
	}
	for seed := range uint64(20) {
		after := storage{m.Crash(vfstest.RandomCrash(seed)), "log"}
		if p := after.read(t, KindLog, 0); !bytes.Equal(p, whole) {
			t.Fatalf("seed %d: %d bytes after a power cut", seed, len(p))
		}
		for _, kind := range []Kind{KindOffsetIndex, KindTimeIndex} {
			if a, b := st.read(t, kind, 0), after.read(t, kind, 0); !bytes.Equal(a, b) || len(a) == 0 {
				t.Fatalf("seed %d: %d bytes of %d of an index", seed, len(b), len(a))
			}
		}
	}
	ok(t, s.Close())
	s = Open(m, "log", 0, Config{})
	defer s.Close()
	ok(t, s.OpenActive(int64(len(whole))))
	ok(t, s.Append(some(t, 50, 1)))
	if next, err := s.NextOffset(); err != nil || next != 51 {
		t.Errorf("%d, %v", next, err)
	}
	if err := s.OpenActive(1 << 30); err == nil {
		t.Error("a logical size behind the file was accepted")
	}
}

// Sealing cuts and syncs the log even if the time index does not take its last entry.
func TestSeal_IndexFails(t *testing.T) {
	st := memory(t)
	st.FS = vfstest.Inject(st.FS, vfstest.FailNth(func(o vfstest.Op) bool {
		return o.Kind == vfstest.OpAllocate && Parse(o.Path[4:]).Kind != KindLog
	}, 1, vfstest.Fault{Err: errors.New("broken")}, true))
	batches := row(t, 0, 5, 50)
	s := st.create(t, 0, Config{Preallocate: 4096}, batches...)
	var ie *IndexError
	if err := s.Seal(); !errors.As(err, &ie) {
		t.Errorf("%v", err)
	}
	if s.Writable() || len(st.read(t, KindLog, 0)) != len(join(batches...)) {
		t.Error("not sealed")
	}
}

// Flush reaches files that were never opened here: another process may have written them.
func TestFlush_UnopenedFiles(t *testing.T) {
	m := vfstest.NewMem()
	ok(t, m.MkdirAll("log", 0o755))
	st := storage{m, "log"}
	sealed(t, st, 0, 20)
	ok(t, st.SyncDir("log"))
	s := Open(m, "log", 0, Config{})
	defer s.Close()
	ok(t, s.Flush())
	if d := m.DirtySectors(); len(d) != 0 {
		t.Errorf("dirty after a flush: %v", d)
	}
	s2 := Open(m, "log", 50, Config{})
	if err := s2.Flush(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no log file: %v", err)
	}
	ok(t, s2.Close())
}

// Readers beside a writer, with the end loaded once per read, never see half a batch nor a byte too many.
func TestRead_BesideWriter(t *testing.T) {
	storages(t, func(t *testing.T, st storage) {
		s := st.create(t, 0, Config{IndexIntervalBytes: 2000})
		var published, offsets atomic.Int64
		var stop atomic.Bool
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				from := int64(0)
				for !stop.Load() {
					end := published.Load()
					r, err := s.Read(ReadOptions{StartOffset: from, MaxBytes: 200_000, MaxPosition: end, MinOneMessage: true})
					if err != nil {
						t.Error(err)
						return
					}
					if r.Position+int64(r.Size) > end {
						t.Errorf("%d bytes at %d, published %d", r.Size, r.Position, end)
					}
					for b, err := range r.Batches() {
						if err != nil || b.BaseOffset() != from && b.BaseOffset() > from {
							t.Errorf("offset %d, %v", b.BaseOffset(), err)
							return
						}
						from = b.NextOffset()
					}
					r.Close()
					if n := offsets.Load(); from >= n && n > 0 {
						from = max(0, n-20)
					}
				}
			})
		}
		deadline := time.Now().Add(300 * time.Millisecond)
		next := int64(0)
		for i := 0; time.Now().Before(deadline); i++ {
			batch := spec{base: next, records: 1 + i%3, value: 1 + i*977%20000}.batch(t)
			pos := size(t, s)
			if i%2 == 0 {
				ok(t, s.WriteAt(batch, pos))
				ok(t, s.Note(batch, pos))
			} else { // noted before it is written, as a group commit does
				ok(t, s.Note(batch, pos))
				ok(t, s.WriteAt(batch, pos))
			}
			next = batch.NextOffset()
			published.Store(pos + int64(len(batch)))
			offsets.Store(next)
		}
		stop.Store(true)
		wg.Wait()
		if s.Suspects() != 0 {
			t.Errorf("%d look-ups were misled", s.Suspects())
		}
		if bases, tail := scan(t, s.Scan(0)); tail.Kind != CleanEnd || tail.LastOffset != next-1 {
			t.Errorf("%d batches, %+v", len(bases), tail)
		}
	})
}

// A log file of no bytes is an empty segment.
func TestOpen_ZeroLengthFiles(t *testing.T) {
	storages(t, func(t *testing.T, st storage) {
		for _, kind := range segmentKinds {
			st.write(t, kind, 0, nil)
		}
		s := Open(st.FS, st.dir, 0, Config{})
		defer s.Close()
		if next, err := s.NextOffset(); err != nil || next != 0 {
			t.Errorf("%d, %v", next, err)
		}
		if _, _, found, err := s.Locate(0, ToEnd); err != nil || found {
			t.Errorf("%v, %v", found, err)
		}
		if _, found, err := s.FindMaxTimestamp(ToEnd); err != nil || found {
			t.Errorf("%v, %v", found, err)
		}
		if _, tail := scan(t, s.Scan(0)); tail != (Tail{Kind: CleanEnd, LastOffset: -1}) {
			t.Errorf("%+v", tail)
		}
		ok(t, s.OpenActive(0))
		ok(t, s.Append(some(t, 0, 1)))
		r, err := s.Read(ReadOptions{MaxBytes: 1 << 10, MaxPosition: ToEnd})
		ok(t, err)
		if n, err := r.WriteTo(io.Discard); err != nil || n == 0 {
			t.Errorf("%d, %v", n, err)
		}
		ok(t, r.Close())
	})
}
