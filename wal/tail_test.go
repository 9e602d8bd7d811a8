package wal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncelog/oncelog/record"
)

func TestTail_Waits(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, _ := openMem(t, Options{Sync: mode, SegmentBytes: 1000, TimestampAfterMax: Never})
				if _, err := l.Append(values("0", "1", "2")...); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				var got []string
				var end error
				done := make(chan struct{})
				go func() {
					defer close(done)
					for s, err := range l.Tail(ctx, 1) {
						if err != nil {
							end = err
							continue // it is the last element
						}
						got = append(got, string(s.Value))
					}
				}()
				synctest.Wait()
				if !slices.Equal(got, []string{"1", "2"}) {
					t.Errorf("%v", got)
				}
				for i := 3; i < 30; i++ {
					time.Sleep(time.Second)
					if _, err := l.Append(values(fmt.Sprint(i))...); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					if len(got) != i || got[i-1] != fmt.Sprint(i) {
						t.Fatalf("%d records at %d: %v", len(got), i, tail(got, 3))
					}
				}
				mustAppend(t, l, openTxnBatch(t, 1, 0, "txn"))
				if _, err := l.Append(values("behind")...); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if len(got) != 29 {
					t.Errorf("an open transaction holds nothing back: %v", tail(got, 3))
				}
				endTxn(t, l, 1, record.Commit)
				synctest.Wait()
				if !slices.Equal(got[29:], []string{"txn", "behind"}) {
					t.Errorf("%v", got[29:])
				}
				cancel()
				<-done
				if !errors.Is(end, context.Canceled) {
					t.Errorf("ended with %v", end)
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestTail_Ends(t *testing.T) {
	dir := t.TempDir()
	l := openTest(t, dir, Options{})
	if _, err := l.Append(values("0")...); err != nil {
		t.Fatal(err)
	}
	last := func(ctx context.Context, l *Log, from int64) (n int, err error) {
		for _, err = range l.Tail(ctx, from) {
			n++
		}
		return n, err
	}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	if n, err := last(canceled, l, 0); n != 1 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d elements, %v", n, err)
	}
	if _, err := last(context.Background(), l, 2); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("%v", err)
	}
	ro := openTest(t, dir, Options{ReadOnly: true})
	n, closed, err := 0, make(chan error, 1), error(nil)
	for _, err = range ro.Tail(context.Background(), 0) {
		if n++; n == 1 {
			time.AfterFunc(10*time.Millisecond, func() { _ = ro.Close() })
		}
	}
	if n != 2 || !errors.Is(err, ErrClosed) {
		t.Errorf("%d elements, %v", n, err)
	}
	n = 0
	for _, err = range l.Tail(context.Background(), 0) {
		if n++; n == 1 {
			time.AfterFunc(10*time.Millisecond, func() { closed <- l.Close() })
		}
	}
	if n != 2 || !errors.Is(err, ErrClosed) {
		t.Errorf("%d elements, %v", n, err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// The loop may do anything with the log: close it, too.
func TestRecords_LoopClosesTheLog(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{SegmentBytes: 4096})
	for range 1000 {
		if _, err := l.Append(Record{Value: make([]byte, 500)}); err != nil {
			t.Fatal(err)
		}
	}
	var end error
	for _, err := range l.Records(0) {
		if end = err; err != nil {
			break
		}
		_ = l.Close()
	}
	if !errors.Is(end, ErrClosed) {
		t.Errorf("ended with %v", end)
	}
}
