package wal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/recovery"
)

// logSyncs is an injector that counts the syncs of .log files, and on request holds the next one up.
type logSyncs struct {
	count atomic.Int64

	mu      sync.Mutex
	entered chan struct{} // closed when a sync is held up; nil unless one is to be
	leave   chan struct{}
}

func (s *logSyncs) Before(vfstest.Op) vfstest.Fault { return vfstest.Fault{} }

// After holds up what has been done and is not known to have been.
func (s *logSyncs) After(o vfstest.Op, _ error) {
	if o.Kind != vfstest.OpSyncData && o.Kind != vfstest.OpSync || !strings.HasSuffix(o.Path, ".log") {
		return
	}
	s.count.Add(1)
	s.mu.Lock()
	entered, leave := s.entered, s.leave
	s.entered = nil
	s.mu.Unlock()
	if entered != nil {
		close(entered)
		<-leave
	}
}

// hold makes the next sync wait until release is called; entered is closed when it has come.
func (s *logSyncs) hold() (entered <-chan struct{}, release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, l := make(chan struct{}), make(chan struct{})
	s.entered, s.leave = e, l
	return e, sync.OnceFunc(func() { close(l) })
}

// openSlow opens a log whose syncs are counted and can be held up.
func openSlow(t testing.TB, o Options) (*Log, *logSyncs, *vfstest.Mem) {
	t.Helper()
	mem := vfstest.NewMem()
	if err := errors.Join(mem.MkdirAll("/data", 0o755), mem.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	s := &logSyncs{}
	l := openFS(t, vfstest.Inject(mem, s), o)
	s.count.Store(0)
	return l, s, mem
}

// survivors is how many records a power cut at this moment leaves, if it takes everything that was not synced.
func survivors(t testing.TB, mem vfs.FS, o Options) int64 {
	t.Helper()
	o.manual = true
	l, err := OpenFS(context.Background(), mem, simDir, o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if r := l.RecoveryReport(); r.Problems() {
		t.Errorf("a power cut is reported as a problem: %v", r.Findings)
	}
	return l.Offsets().LogEnd
}

func wantSurvivors(t testing.TB, mem *vfstest.Mem, o Options, when string, want int64) {
	t.Helper()
	if n := survivors(t, mem.Crash(vfstest.CrashOptions{Mode: vfstest.AllLost}), o); n != want {
		t.Errorf("%s: %d records survive a power cut, want %d", when, n, want)
	}
}

func put(t testing.TB, l *Log, recs ...Record) Result {
	t.Helper()
	r, err := l.Append(recs...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSyncInterval_ByTime(t *testing.T) {
	for _, every := range []time.Duration{50 * time.Millisecond, time.Second, 10 * time.Second} {
		t.Run(every.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := Options{Sync: SyncInterval, SyncEvery: every}
				l, syncs, mem := openSlow(t, o)
				time.Sleep(every + every/4) // a tick is behind us
				synctest.Wait()
				for range 3 {
					put(t, l, values("x")...)
				}
				wantSurvivors(t, mem, o, "before the time", 0)
				time.Sleep(every)
				synctest.Wait()
				wantSurvivors(t, mem, o, "after the time", 3)
				time.Sleep(10 * every)
				synctest.Wait()
				if n := syncs.count.Load(); n != 1 {
					t.Errorf("%d syncs of a log that rests, want the one", n)
				}
				for range 100 {
					put(t, l, values("x")...)
					time.Sleep(every / 10)
				}
				synctest.Wait()
				if n := syncs.count.Load(); n < 10 || n > 12 {
					t.Errorf("%d syncs in ten intervals", n-1)
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				wantSurvivors(t, mem, o, "after Close", 103)
			})
		})
	}
}

func TestSyncInterval_ByBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{Sync: SyncInterval, SyncEvery: time.Hour, SyncBytes: 1000}
		l, syncs, mem := openSlow(t, o)
		time.Sleep(2 * time.Second)
		big := Record{Value: make([]byte, 420)}
		put(t, l, big)
		put(t, l, big)
		synctest.Wait()
		wantSurvivors(t, mem, o, "below the bytes", 0)
		put(t, l, big)
		synctest.Wait()
		wantSurvivors(t, mem, o, "above the bytes", 3)

		// What comes during a sync is not covered by it.
		put(t, l, Record{})
		entered, release := syncs.hold()
		flushed := make(chan error)
		go func() { flushed <- l.Flush() }()
		<-entered
		put(t, l, big)
		put(t, l, Record{Value: make([]byte, 250)})
		release()
		if err := <-flushed; err != nil {
			t.Fatal(err)
		}
		wantSurvivors(t, mem, o, "after a flush", 4)
		put(t, l, Record{Value: make([]byte, 250)})
		synctest.Wait()
		wantSurvivors(t, mem, o, "more bytes than allowed since the sync began", 7)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// In SyncNone the page cache is all there is, until a roll, a checkpoint or Close.
func TestSyncNone_WhenItSyncs(t *testing.T) {
	for name, sync := range map[string]func(l *Log) error{
		"roll": (*Log).Roll, "checkpoint": (*Log).Checkpoint, "flush": (*Log).Flush, "close": (*Log).Close,
		"full segment": func(l *Log) error { _, err := l.Append(Record{Value: make([]byte, 900)}); return err },
		"full checkpoint": func(l *Log) error {
			if err := l.Reconfigure(func(o *Options) { o.CheckpointBytes = 1 }); err != nil {
				return err
			}
			_, err := l.Append(Record{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Sync: SyncNone, SegmentBytes: 1000, manual: true}
			l, syncs, mem := openSlow(t, o)
			for range 3 {
				put(t, l, values("x")...)
			}
			if n := syncs.count.Load(); n != 0 {
				t.Errorf("%d syncs of appends", n)
			}
			wantSurvivors(t, mem, o, "before", 0)
			want := int64(3)
			if name == "full checkpoint" {
				want = 4
			}
			if err := sync(l); err != nil {
				t.Fatal(err)
			}
			wantSurvivors(t, mem, o, "after", want)
		})
	}
}

// SyncMessages syncs once for so many records, not each append from then on.
func TestSyncMessages(t *testing.T) {
	for _, mode := range []SyncMode{SyncInterval, SyncNone} {
		o := Options{Sync: mode, SyncMessages: 10, SyncEvery: time.Hour, manual: true}
		l, syncs, mem := openSlow(t, o)
		for i := range 95 {
			put(t, l, values("x")...)
			if n := syncs.count.Load(); n != int64(i+1)/10 {
				t.Fatalf("%v: %d syncs of %d records", mode, n, i+1)
			}
		}
		wantSurvivors(t, mem, o, mode.String(), 90)
	}
}

// Callers that wait for a sync share the next one.
func TestSyncCommit_SharesSyncs(t *testing.T) {
	const n = 64
	l, syncs, _ := openSlow(t, Options{Sync: SyncCommit, manual: true})
	entered, release := syncs.hold()
	defer release()
	var all sync.WaitGroup
	appendOne := func() {
		r, err := l.Append(values("x")...)
		if end := l.Offsets().HighWatermark; err != nil || end <= r.Last {
			t.Errorf("%+v, high watermark %d, %v", r, end, err)
		}
	}
	all.Go(appendOne)
	<-entered
	for range n {
		all.Go(appendOne)
	}
	for l.tickets.Load() != n+1 {
		time.Sleep(time.Millisecond)
	}
	if end := l.Offsets().LogEnd; end != 0 {
		t.Errorf("readers see up to %d, and nothing is on disk", end)
	}
	release()
	all.Wait()
	if got := syncs.count.Load(); got != 2 {
		t.Errorf("%d syncs for one append and %d behind it, want 2", got, n)
	}
}

// A sync that takes its time holds up neither readers nor, where they do not wait for it, appends; Close waits for it.
func TestSlowSync(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			l, syncs, mem := openSlow(t, Options{Sync: mode, SyncEvery: time.Hour, manual: true})
			put(t, l, values("a")...)
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
			entered, release := syncs.hold()
			defer release()
			acked := make(chan error, 2)
			go func() {
				_, err := l.Append(values("b")...)
				acked <- err
				if mode != SyncCommit {
					acked <- l.Flush()
				}
			}()
			<-entered
			visible := []string{"0:a"}
			if mode != SyncCommit {
				put(t, l, values("c")...)
				visible = append(visible, "1:b", "2:c")
				if err := <-acked; err != nil {
					t.Error(err)
				}
			}
			wantContents(t, l, 0, visible...)
			for _, i := range []Isolation{LogEnd, HighWatermark, TxnCommitted} {
				f, err := l.Read(0, ReadOptions{MaxBytes: 100, Isolation: i})
				if err != nil {
					t.Fatal(err)
				}
				f.Close()
			}
			if _, _, err := l.OffsetForTimestamp(0); err != nil {
				t.Error(err)
			}
			closed := make(chan error)
			go func() { closed <- l.Close() }()
			for !l.isClosed.Load() {
				time.Sleep(time.Millisecond)
			}
			if _, err := l.Append(values("d")...); !errors.Is(err, ErrClosed) {
				t.Errorf("append beside Close: %v", err)
			}
			select {
			case err := <-closed:
				t.Errorf("Close did not wait for the sync: %v", err)
			case err := <-acked:
				t.Errorf("acknowledged before the sync: %v", err)
			case <-time.After(20 * time.Millisecond):
			}
			release()
			// A flush may be too late for the log, an append that was accepted is not.
			if err := <-acked; err != nil {
				t.Errorf("under way when Close came: %v", err)
			}
			if err := <-closed; err != nil {
				t.Error(err)
			}
			wantSurvivors(t, mem, Options{Sync: mode}, "after Close", int64(max(2, len(visible))))
		})
	}
}

// A checkpoint that waits while the log is closed comes too late: it must not write its state behind Close's last word.
func TestClose_HasTheLastWord(t *testing.T) {
	for name, late := range map[string]func(l *Log) error{
		"checkpoint": (*Log).checkpoint,
		"flush":      (*Log).flush,
		"roll":       func(l *Log) error { return l.exclusively(func() error { return l.roll(l.end.offset, l.opts.Now()) }) },
		"job":        func(l *Log) error { l.due.Store(true); l.runJobs(); return ErrClosed },
	} {
		for _, mode := range modes {
			t.Run(fmt.Sprint(name, "/", mode), func(t *testing.T) {
				o := Options{Sync: mode, CheckpointBytes: 1 << 20, manual: true}
				l, mem := openMem(t, o)
				put(t, l, values("a")...)
				l.isClosed.Store(true)
				if err := l.closeWriter(); err != nil {
					t.Fatal(err)
				}
				set := *l.settings()
				set.CheckpointBytes = 1
				l.configured.current.Store(&set)
				if err := late(l); !errors.Is(err, ErrClosed) {
					t.Errorf("after the last word: %v", err)
				}
				if n := l.Stats().Warnings; n != 0 {
					t.Errorf("%d warnings", n)
				}
				abandon(t, l)
				l = openFS(t, mem, o)
				if r := l.RecoveryReport(); !r.Clean || r.LogEnd != 1 {
					t.Errorf("%+v", r)
				}
			})
		}
	}
}

// A Roll that Close has overtaken does nothing: Close syncs the segments that it knows.
func TestRoll_BesideClose(t *testing.T) {
	l, _ := openMem(t, Options{Sync: SyncNone, manual: true})
	put(t, l, values("a")...)
	l.commit.lead()
	rolled := make(chan error)
	go func() { rolled <- l.Roll() }() // finds the log open
	time.Sleep(5 * time.Millisecond)
	l.isClosed.Store(true)
	l.commit.follow()
	if err := <-rolled; !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	if n := l.Stats().Segments; n != 1 {
		t.Errorf("%d segments", n)
	}
	abandon(t, l)
}

// A hint is made under the lock and written without it. One that comes to be written behind a newer slot would bring back
// what that one replaced: here, that a file had the content from before, so that our own change of it looked like another
// program's, which costs the memory of all but one batch of each producer.
func TestState_NeverGoesBack(t *testing.T) {
	mem := vfstest.NewMem()
	if err := errors.Join(mem.MkdirAll("/data", 0o755), mem.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	o := Options{Sync: SyncCommit, manual: true}
	l := openFS(t, mem, o)
	add := func(epoch int32, seq int32) {
		t.Helper()
		if _, err := l.AppendAsLeader(producerBatch(t, 7, 0, seq, "x"), LeaderAppend{LeaderEpoch: epoch}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range int32(5) {
		add(0, i)
	}
	for i, late := range []func(){
		func() {
			l.mu.Lock()
			slot := l.slot()
			l.mu.Unlock()
			add(1, 5)
			l.hint(slot)
		},
		func() {
			l.mu.Lock()
			slot := l.slot()
			l.mu.Unlock()
			add(2, 6)
			if err := l.syncState(slot); err != nil {
				t.Fatal(err)
			}
		},
	} {
		late()
		for _, crash := range []vfstest.CrashMode{vfstest.Kill, vfstest.AllLost} {
			after := openFS(t, mem.Crash(vfstest.CrashOptions{Mode: crash}), o)
			e, ok := after.ProducerEntry(7)
			r := after.RecoveryReport()
			if n := e.BatchCount(); !ok || n != 5 || r.Writer != recovery.Us {
				t.Errorf("slot %d, then %v: %d batches are remembered, written by %v; %v", i, crash, n, r.Writer, r.Findings)
			}
			if err := after.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A sync in the background that fails ends the log like any other: nothing is taken any more, and whoever waits learns it.
func TestSyncInterval_SyncFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := errors.New("bad disk")
		mem := vfstest.NewMem()
		if err := errors.Join(mem.MkdirAll("/data", 0o755), mem.SyncDir("/")); err != nil {
			t.Fatal(err)
		}
		o := Options{Sync: SyncInterval, SyncEvery: time.Second}
		var armed atomic.Bool
		l := openFS(t, vfstest.Inject(mem, failSyncs(func() error {
			if armed.Load() {
				return bad
			}
			return nil
		})), o)
		put(t, l, values("a")...)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		armed.Store(true)
		put(t, l, values("b")...)
		waiting := make(chan error)
		go func() { waiting <- l.Wait(t.Context(), 2, LogEnd) }()
		if err := <-waiting; !errors.Is(err, ErrFailed) || !errors.Is(err, bad) {
			t.Errorf("wait: %v", err)
		}
		armed.Store(false)
		if _, err := l.Append(values("c")...); !errors.Is(err, ErrFailed) {
			t.Errorf("append: %v", err)
		}
		if err := l.Flush(); !errors.Is(err, ErrFailed) {
			t.Errorf("flush: %v", err)
		}
		wantContents(t, l, 0, "0:a", "1:b")
		if err := l.Close(); !errors.Is(err, ErrFailed) {
			t.Errorf("close: %v", err)
		}
		wantSurvivors(t, mem, o, "after the failure", 1)
	})
}

// A reading of the ends is one that the writer made, never a mix of two.
func TestPublished_NeverTorn(t *testing.T) {
	var p published
	at := func(n int64) *ends {
		x := place{n, n, n, n}
		return &ends{logStart: n, recovery: n, truncations: n, end: place{n, n, n, 0}, high: x, unstable: x}
	}
	p.store(at(0))
	var stop atomic.Bool
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for last := int64(0); !stop.Load(); {
				e := p.load()
				if e != *at(e.logStart) || e.logStart < last {
					t.Errorf("%+v after %d", e, last)
					return
				}
				last = e.logStart
			}
		})
	}
	for n := range int64(500_000) {
		p.store(at(n))
	}
	stop.Store(true)
	all.Wait()
}
