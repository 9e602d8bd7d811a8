package wal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Appends, reads, deletions from the start and checkpoints go on while the log is compacted again and again: no reader sees
// the values of a key go back, and in the end each key has its last one.
func TestCompact_BesideEverythingElse(t *testing.T) {
	const writers, keys = 3, 5
	rounds := 50
	if os.Getenv("ONCELOG_LONG") != "" {
		rounds = 1000
	}
	l, err := Open(context.Background(), t.TempDir(), Options{CleanupPolicy: CleanupCompact | CleanupDelete, MinDirtyRatio: 1e-9, SegmentBytes: 4000,
		IndexIntervalBytes: 200, MaxIndexBytes: 4096, DedupeBufferBytes: 4000, FileDeleteDelay: time.Millisecond, Sync: SyncNone, CheckpointBytes: 20_000})
	if err != nil {
		t.Fatal(err)
	}
	var writing, others sync.WaitGroup
	done := make(chan struct{})
	fail := func(what string, err error) {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for w := range writers {
		writing.Go(func() {
			for i := range rounds {
				_, err := l.Append(Record{Key: fmt.Appendf(nil, "%d-%d", w, i%keys), Value: fmt.Append(nil, i)},
					Record{Key: fmt.Appendf(nil, "%d-%d", w, (i+1)%keys), Value: fmt.Appendf(nil, "%d", i)})
				fail("append", err)
			}
		})
	}
	loop := func(what string, f func() error) {
		others.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					fail(what, f())
				}
			}
		})
	}
	loop("read", func() error { return valuesRise(l) })
	compacted := 0
	loop("compact", func() error {
		s, err := l.Compact(context.Background(), time.Now())
		compacted += s.SegmentsReplaced
		return err
	})
	loop("delete", func() error {
		_, err := l.DeleteOldSegments(time.Now())
		_, err2 := l.RemoveDiscarded(time.Now())
		time.Sleep(time.Millisecond)
		return errors.Join(err, err2, l.Checkpoint())
	})
	writing.Wait()
	close(done)
	others.Wait()
	fail("roll", l.Roll())
	_, err = l.Append(Record{Key: []byte("end"), Value: []byte("0")})
	fail("append", err)
	_, err = l.Compact(context.Background(), time.Now())
	fail("compact", err)
	last := map[string]string{}
	count := 0
	for r, err := range l.Records(l.Offsets().LogStart) {
		fail("read", err)
		last[string(r.Key)] = string(r.Value)
		count++
	}
	for w := range writers {
		for k := range keys {
			want := 0
			for i := range rounds {
				if i%keys == k || (i+1)%keys == k {
					want = i
				}
			}
			if got := last[fmt.Sprintf("%d-%d", w, k)]; got != strconv.Itoa(want) {
				t.Errorf("key %d-%d is %s, want %d", w, k, got, want)
			}
		}
	}
	if compacted == 0 || count != writers*keys+1 {
		t.Errorf("%d segments replaced, %d records are left of %d keys", compacted, count, writers*keys+1)
	}
	fail("close", l.Close())
}

// valuesRise walks over the log and wants the values of each key in the order in which they were appended.
func valuesRise(l *Log) error {
	seen := map[string]int{}
	for r, err := range l.Records(l.Offsets().LogStart) {
		if errors.Is(err, ErrOffsetOutOfRange) {
			return nil // the start was deleted meanwhile
		}
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(r.Value))
		if err != nil || n < seen[string(r.Key)] {
			return fmt.Errorf("key %s is %q at %d, was %d before", r.Key, r.Value, r.Offset, seen[string(r.Key)])
		}
		seen[string(r.Key)] = n
	}
	return nil
}

// Close ends a compaction that is under way, and waits for it.
func TestCompact_Close(t *testing.T) {
	for range 4 {
		dir := t.TempDir()
		o := Options{CleanupPolicy: CleanupCompact, MinDirtyRatio: 1e-9, SegmentBytes: 20_000, Sync: SyncNone}
		l, err := Open(context.Background(), dir, o)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 200 {
			if _, err := l.Append(Record{Key: fmt.Appendf(nil, "k%d", i%50), Value: []byte(strings.Repeat("v", 100))}); err != nil {
				t.Fatal(err)
			}
		}
		result := make(chan error, 1)
		go func() {
			_, err := l.Compact(context.Background(), time.Now())
			result <- err
		}()
		time.Sleep(50 * time.Microsecond)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-result; err != nil && !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
		if l, err = Open(context.Background(), dir, o); err != nil {
			t.Fatal(err)
		}
		if r := l.RecoveryReport(); r.Problems() || !r.Clean {
			t.Errorf("%+v", r)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A reader in another process, here another Log, follows a writer that compacts: it never meets what looks like damage, and in
// the end sees what the writer sees.
func TestCompact_ReaderBesideFollows(t *testing.T) {
	dir := t.TempDir()
	o := Options{CleanupPolicy: CleanupCompact, MinDirtyRatio: 1e-9, SegmentBytes: 900, IndexIntervalBytes: 100, MaxIndexBytes: 4096, Sync: SyncNone}
	w, err := Open(context.Background(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	o.ReadOnly = true
	r, err := Open(context.Background(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			if err := valuesRise(r); err != nil {
				t.Errorf("read %d beside the writer: %v", i, err)
				return
			}
			if i%2 == 0 {
				if err := r.Refresh(context.Background()); err != nil {
					t.Errorf("refresh %d: %v", i, err)
					return
				}
			}
		}
	})
	for i := range 120 {
		if _, err := w.Append(Record{Key: fmt.Appendf(nil, "k%d", i%7), Value: fmt.Append(nil, i)}); err != nil {
			t.Fatal(err)
		}
		if i%10 == 9 {
			if _, err := w.Compact(context.Background(), time.Now()); err != nil {
				t.Fatal(err)
			}
			if _, err := w.RemoveDiscarded(time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(done)
	reading.Wait()
	if err := r.Refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	list := func(l *Log) (all []string) {
		for x, err := range l.Records(0) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprintf("%d:%s=%s", x.Offset, x.Key, x.Value))
		}
		return all
	}
	if want, got := list(w), list(r); !slices.Equal(want, got) {
		t.Errorf("the reader sees\n%v\nthe writer\n%v", got, want)
	}
	if err := errors.Join(r.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
}
