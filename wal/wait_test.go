package wal

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncelog/oncelog/record"
)

// Whoever waits is woken by each change, however the change and the wait meet: synctest ends the test if one is not.
func TestWait_NoLostWakeUp(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 400
				l, _ := openMem(t, Options{Sync: mode, SegmentBytes: 4000})
				var all sync.WaitGroup
				for w := range 6 {
					level := Isolation(w % 3)
					all.Go(func() {
						for at := int64(0); at < n; at++ {
							if err := l.Wait(t.Context(), at, level); err != nil {
								t.Errorf("wait for %d: %v", at, err)
								return
							}
							f, err := l.Read(at, ReadOptions{MaxBytes: 1, MinOneMessage: true, Isolation: level})
							if err != nil || f.Records.Size == 0 {
								t.Errorf("read at %d after the wait: %d bytes, %v", at, f.Records.Size, err)
							}
							f.Close()
						}
					})
				}
				for range 2 {
					all.Go(func() {
						next := int64(0)
						for s, err := range l.Tail(t.Context(), 0) {
							if err != nil || s.Offset != next {
								t.Errorf("tail at %d: %d, %v", next, s.Offset, err)
							}
							if next++; err != nil || next == n {
								return
							}
						}
					})
				}
				for range 4 {
					all.Go(func() {
						for range n / 4 {
							put(t, l, values("x")...)
						}
					})
				}
				all.Wait()
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Each isolation level wakes by what moves it, and everything ends a wait: its context, Close, a failure.
func TestWait_WhatWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := openMem(t, Options{Sync: SyncNone, ManualHighWatermark: true, TimestampAfterMax: Never})
		wait := func(i Isolation, at int64) <-chan error {
			c := make(chan error, 1)
			go func() { c <- l.Wait(t.Context(), at, i) }()
			synctest.Wait()
			return c
		}
		woken := func(what string, c <-chan error, want bool) {
			t.Helper()
			synctest.Wait()
			select {
			case err := <-c:
				if err != nil || !want {
					t.Errorf("%s: woke with %v", what, err)
				}
			default:
				if want {
					t.Errorf("%s: sleeps on", what)
				}
			}
		}
		end, high, stable := wait(LogEnd, 0), wait(HighWatermark, 0), wait(TxnCommitted, 0)
		if _, err := l.AppendAsLeader(txnRecord(t, record.Producer{ID: 7}), LeaderAppend{}); err != nil {
			t.Fatal(err)
		}
		woken("end after an append", end, true)
		woken("high watermark after an append", high, false)
		if _, err := l.UpdateHighWatermark(1); err != nil {
			t.Fatal(err)
		}
		woken("high watermark after its move", high, true)
		woken("stable offset in a transaction", stable, false)
		if _, err := l.AppendEndTxnMarker(record.Producer{ID: 7}, record.EndTxnMarker{Type: record.Commit}, MarkerAppend{}); err != nil {
			t.Fatal(err)
		}
		woken("stable offset behind an unreplicated marker", stable, false)
		if _, err := l.UpdateHighWatermark(2); err != nil {
			t.Fatal(err)
		}
		woken("stable offset behind the marker", stable, true)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := l.Wait(ctx, 9, LogEnd); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		closing := wait(TxnCommitted, 2)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-closing; !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
	})
}
