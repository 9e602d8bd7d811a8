package wal

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
)

// failReads makes reads of .log files fail while it is set.
type failReads struct{ atomic.Bool }

func (f *failReads) Before(o vfstest.Op) vfstest.Fault {
	if f.Load() && o.Kind == vfstest.OpRead && strings.HasSuffix(o.Path, ".log") {
		return vfstest.Fault{Err: syscall.EIO}
	}
	return vfstest.Fault{}
}

func (f *failReads) After(vfstest.Op, error) {}

// Where a level ends may have to be looked up in the log. A look-up that fails is an error of the read, not an empty answer:
// a reader would take that for the end, and an iterator would step over the records.
func TestRead_LimitCannotBeRead(t *testing.T) {
	mem := vfstest.NewMem()
	if err := errors.Join(mem.MkdirAll("/data", 0o755), mem.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	bad := &failReads{}
	l := openFS(t, vfstest.Inject(mem, bad), Options{ManualHighWatermark: true, manual: true})
	for range 3 {
		put(t, l, values("x")...)
	}
	bad.Store(true)
	if high, err := l.UpdateHighWatermark(2); err != nil || high != 2 {
		t.Fatal(high, err)
	}
	for _, i := range []Isolation{HighWatermark, TxnCommitted} {
		if f, err := l.Read(0, ReadOptions{MaxBytes: 1000, Isolation: i}); !errors.Is(err, syscall.EIO) {
			t.Errorf("%v: %d bytes, %v", i, f.Records.Size, err)
		}
		if err := l.Wait(t.Context(), 1, i); !errors.Is(err, syscall.EIO) {
			t.Errorf("%v: wait: %v", i, err)
		}
	}
	var err error
	n := 0
	for _, err = range l.Records(0) {
		n++
	}
	if n != 1 || !errors.Is(err, syscall.EIO) {
		t.Errorf("%d steps, then %v", n, err)
	}
	for _, err = range l.Tail(t.Context(), 0) {
	}
	if !errors.Is(err, syscall.EIO) {
		t.Errorf("tail: %v", err)
	}
	bad.Store(false)
	wantContents(t, l, 0, "0:x", "1:x")

	// The log was closed since.
	if _, err := l.UpdateHighWatermark(1); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, err = range l.Tail(t.Context(), 0) {
	}
	if werr := l.Wait(t.Context(), 0, HighWatermark); !errors.Is(err, ErrClosed) || !errors.Is(werr, ErrClosed) {
		t.Errorf("tail %v, wait %v", err, werr)
	}
}

// A batch is read as a whole or not at all. A high watermark inside one stops readers in front of it, and they go on there
// when it has moved: nothing is stepped over, and nobody waits in circles.
func TestTail_HighWatermarkInsideABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := openMem(t, Options{ManualHighWatermark: true, TimestampAfterMax: Never})
		for range 2 {
			put(t, l, values("a", "b", "c", "d")...)
		}
		var seen []int64
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			var last error
			for s, err := range l.Tail(ctx, 0) {
				if last = err; err == nil {
					seen = append(seen, s.Offset)
				}
			}
			ended <- last
		}()
		for _, step := range []struct {
			high int64
			want int
		}{{2, 0}, {4, 4}, {6, 4}, {5, 4}, {8, 8}} {
			if _, err := l.UpdateHighWatermark(step.high); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if len(seen) != step.want {
				t.Errorf("high watermark %d: offsets %v, want %d", step.high, seen, step.want)
			}
			if n := len(contents(t, l, 0)); n != step.want {
				t.Errorf("high watermark %d: %d records", step.high, n)
			}
			if o := l.Offsets(); o.HighWatermark != step.high || o.LastStable != step.high {
				t.Errorf("high watermark %d: %+v", step.high, o)
			}
		}
		for i, o := range seen {
			if o != int64(i) {
				t.Errorf("offsets %v", seen)
				break
			}
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// In front of a gap readers go on behind it.
func TestTail_OverGaps(t *testing.T) {
	l, _ := openMem(t, Options{ManualHighWatermark: true, manual: true})
	for _, base := range []int64{5, 20, 30} {
		b := record.Batch(timedBatch(t, record.None, 1))
		b.SetBaseOffset(base)
		if _, err := l.AppendAsFollower(b, 0); err != nil {
			t.Fatal(err)
		}
	}
	for high, want := range map[int64]int{0: 0, 5: 0, 6: 1, 12: 1, 20: 1, 21: 2, 25: 2, 31: 3} {
		if _, err := l.UpdateHighWatermark(high); err != nil {
			t.Fatal(err)
		}
		for from := range int64(5) {
			if n := len(contents(t, l, from)); n != want {
				t.Errorf("high watermark %d, from %d: %d records, want %d", high, from, n, want)
			}
		}
	}
}
