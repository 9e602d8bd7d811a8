package wal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
)

func openMem(t testing.TB, o Options) (*Log, *vfstest.Mem) {
	t.Helper()
	mem := vfstest.NewMem()
	if err := mem.MkdirAll("/data", 0o755); err != nil {
		t.Fatal(err)
	}
	return openFS(t, mem, o), mem
}

func openFS(t testing.TB, fsys vfs.FS, o Options) *Log {
	t.Helper()
	l, err := OpenFS(context.Background(), fsys, simDir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestAppendAsync_InOrderAndDurable(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			dir := t.TempDir()
			l := openTest(t, dir, Options{Sync: mode, SegmentBytes: 3000})
			var flying []*Pending
			for i := range 500 {
				flying = append(flying, l.AppendAsync(values(fmt.Sprint(i))...))
			}
			for i, p := range flying {
				r, err := p.Wait(context.Background())
				if err != nil || r != (Result{First: int64(i), Last: int64(i)}) {
					t.Fatalf("append %d: %+v, %v", i, r, err)
				}
				if end := l.Offsets().LogEnd; end <= r.Last {
					t.Fatalf("append %d was acknowledged, readers see up to %d", i, end)
				}
				select {
				case <-p.Done():
				default:
					t.Errorf("append %d is not done", i)
				}
			}
			abandon(t, l)
			l = openTest(t, dir, Options{Sync: mode, SegmentBytes: 3000})
			if got := contents(t, l, 0); len(got) != 500 || got[499] != "499:499" {
				t.Errorf("%d records", len(got))
			}
		})
	}
}

// What an append waits for happens although nobody waits.
func TestAppendAsync_NobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := openMem(t, Options{Sync: SyncCommit})
		p := l.AppendAsync(values("x")...)
		synctest.Wait()
		if end := l.Offsets().LogEnd; end != 1 {
			t.Errorf("readers see up to %d", end)
		}
		select {
		case <-p.Done():
		default:
			t.Error("not done")
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestAppendAsync_Refused(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{MaxMessageBytes: 200})
	ctx := context.Background()
	if _, err := l.AppendAsync().Wait(ctx); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("%v", err)
	}
	if _, err := l.AppendAsync(Record{Value: make([]byte, 300)}).Wait(ctx); !errors.Is(err, ErrMessageTooLarge) {
		t.Errorf("%v", err)
	}
	before := l.AppendAsync(values("x")...)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if r, err := before.Wait(ctx); err != nil || r.Last != 0 {
		t.Errorf("an append before Close: %+v, %v", r, err)
	}
	if _, err := l.AppendAsync(values("x")...).Wait(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
}

func TestPending_ContextEnds(t *testing.T) {
	p := &Pending{result: Result{First: 5, Last: 5}}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := p.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	p.finish(nil)
	if r, err := p.Wait(ctx); err != nil || r.First != 5 { // known is known
		t.Errorf("%+v, %v", r, err)
	}
}

// Memory stays bounded: what waits for its sync never exceeds a group.
func TestAppendAsync_BackPressure(t *testing.T) {
	l, mem := openMem(t, Options{Sync: SyncCommit, MaxMessageBytes: 4096, GroupBytes: 4096})
	_ = mem
	var last *Pending
	for range 2000 {
		last = l.AppendAsync(Record{Value: make([]byte, 500)})
		l.mu.Lock()
		n := len(l.pending.buf)
		l.mu.Unlock()
		if n > 4096 {
			t.Fatalf("%d bytes wait", n)
		}
	}
	if r, err := last.Wait(context.Background()); err != nil || r.Last != 1999 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A sync that fails ends the log: every append that waited gets the error, none is acknowledged.
func TestAppendAsync_SyncFails(t *testing.T) {
	mem := vfstest.NewMem()
	if err := mem.MkdirAll("/data", 0o755); err != nil {
		t.Fatal(err)
	}
	bad := errors.New("bad disk")
	armed := false
	var mu sync.Mutex
	fsys := vfstest.Inject(mem, failSyncs(func() error {
		mu.Lock()
		defer mu.Unlock()
		if armed {
			return bad
		}
		return nil
	}))
	l := openFS(t, fsys, Options{Sync: SyncCommit})
	if _, err := l.Append(values("good")...); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	armed = true
	mu.Unlock()
	p := openProducer(t, l, "a", 0)
	var flying []*Pending
	for i := range 20 {
		flying = append(flying, l.AppendAsync(values("bad")...), p.AppendAsync(counted(uint64(i), 1)...))
	}
	for i, f := range flying {
		if _, err := f.Wait(context.Background()); !errors.Is(err, ErrFailed) || !errors.Is(err, bad) {
			t.Errorf("append %d: %v", i, err)
		}
	}
	if n := p.NextSequence(); n != 0 {
		t.Errorf("next %d although nothing is durable", n)
	}
	wantContents(t, l, 0, "0:good")
	err := error(nil)
	for _, err = range l.Tail(context.Background(), 1) {
	}
	if !errors.Is(err, ErrFailed) {
		t.Errorf("Tail: %v", err)
	}
}

// In SyncCommit the sequence stops at what is durable, however much is in flight.
func TestProducer_NextSequenceIsDurable(t *testing.T) {
	for _, start := range []uint64{0, 100, 1<<31 - 8} {
		t.Run(fmt.Sprint(start), func(t *testing.T) {
			l, _ := openMem(t, Options{Sync: SyncCommit})
			p := openProducer(t, l, "a", start)
			want := start
			check := func() {
				t.Helper()
				if n := p.NextSequence(); n != want {
					t.Errorf("next %d, want %d", n, want)
				}
			}
			check()
			sent := start
			accept := func(n int) { // without a sync
				t.Helper()
				if _, _, err := p.appendNext(counted(0, n), nil); err != nil {
					t.Fatal(err)
				}
				if _, found, err := p.Locate(sent); found || err != nil {
					t.Errorf("count %d located before it is durable (%v)", sent, err)
				}
				sent += uint64(n)
			}
			for range 3 {
				accept(2)
				accept(1)
				check()
			}
			l.commit.lead()
			l.commitGroup()
			l.commit.follow()
			want += 9
			check()
			for range 9 {
				accept(1)
				check()
			}
			if r, _, err := p.appendAt(start, counted(start, 9)); err != nil || !r.Duplicate {
				t.Errorf("%+v, %v", r, err)
			}
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
			want += 9
			check()
			for range 7 { // and nobody looks meanwhile
				accept(1)
			}
			check()
		})
	}
}

// The first batch of a new epoch makes the log forget the batches before it, which are durable.
func TestProducer_NextSequenceAtTheEpochBorder(t *testing.T) {
	l, mem := openMem(t, Options{Sync: SyncCommit})
	p := openProducer(t, l, "a", 1<<31-2)
	if _, err := p.Append(counted(1<<31-2, 2)...); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = openFS(t, mem, Options{Sync: SyncCommit})
	p = openProducer(t, l, "a", 0)
	if _, _, err := p.appendNext(counted(1<<31, 1), nil); err != nil { // no sync
		t.Fatal(err)
	}
	if n := p.NextSequence(); n != 1<<31 {
		t.Errorf("next %d", n)
	}
	if _, found, err := p.LastPosition(); found || err != nil {
		t.Errorf("%v, %v", found, err)
	}
}

// The answer to a duplicate of a batch that waits for its sync waits as well.
func TestProducer_DuplicateWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := openMem(t, Options{Sync: SyncCommit})
		p := openProducer(t, l, "a", 0)
		l.commit.lead() // nobody else can sync
		first := p.AppendAsync(counted(0, 1)...)
		again := p.AppendAtAsync(0, counted(0, 1)...)
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, f := range []*Pending{first, again} {
			select {
			case <-f.Done():
				t.Error("acknowledged before the sync")
			default:
			}
		}
		l.commit.follow()
		if r, err := again.Wait(t.Context()); err != nil || r != (Result{Skipped: 1, Duplicate: true}) {
			t.Errorf("%+v, %v", r, err)
		}
		if r, err := first.Wait(t.Context()); err != nil || r != (Result{}) {
			t.Errorf("%+v, %v", r, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestAppendAsync_BesideClose(t *testing.T) {
	for range 30 {
		l := openTest(t, t.TempDir(), Options{Sync: SyncCommit})
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for {
					_, err := l.AppendAsync(values("x")...).Wait(context.Background())
					if errors.Is(err, ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		time.Sleep(time.Millisecond)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		all.Wait()
	}
}

// failSyncs makes syncs of log files fail while the function returns an error.
type failSyncs func() error

func (f failSyncs) Before(o vfstest.Op) vfstest.Fault {
	if o.Kind == vfstest.OpSyncData {
		return vfstest.Fault{Err: f()}
	}
	return vfstest.Fault{}
}

func (f failSyncs) After(vfstest.Op, error) {}
