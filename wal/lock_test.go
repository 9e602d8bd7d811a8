package wal

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/oncelog/oncelog/internal/kafkadir"
	"github.com/oncelog/oncelog/internal/vfs"
)

// An open that comes to nothing leaves a lock file only where there was one.
func TestOpen_FailedLeavesNoLockFile(t *testing.T) {
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, there := range []bool{false, true} {
		parent := t.TempDir()
		dir := filepath.Join(parent, "events-0")
		lock := filepath.Join(dir, lockFile)
		l := openTest(t, dir, Options{})
		put(t, l, Record{Value: []byte("a")})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		check := func(how string) {
			t.Helper()
			if _, err := os.Stat(lock); there != (err == nil) {
				t.Errorf("%s: lock file: %v, it was there: %v", how, err, there)
			}
		}
		if !there {
			if err := os.Remove(lock); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Open(canceled, dir, Options{}); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		check("interrupted")
		if err := os.WriteFile(filepath.Join(parent, "meta.properties"), []byte("version=1\nbroker.id=0\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		broker, err := vfs.OS.Lock(filepath.Join(parent, kafkadir.LockFile), 0, 1<<62, true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(context.Background(), dir, Options{}); !errors.Is(err, ErrLocked) {
			t.Fatalf("beside a broker: %v", err)
		}
		check("beside a broker")
		if err := broker.Close(); err != nil {
			t.Fatal(err)
		}
		openTest(t, dir, Options{})
		if _, err := Open(context.Background(), dir, Options{}); !errors.Is(err, ErrLocked) {
			t.Fatalf("beside a writer: %v", err)
		}
		there = true
		check("beside a writer")
	}
}

// While lock files come and go, one at a time has the directory.
func TestLockDir_FailedOpensBesideOthers(t *testing.T) {
	dir := t.TempDir()
	var inside, got atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 300 {
				l := &Log{fsys: vfs.OS, dir: dir}
				err := l.lockDir()
				if err != nil {
					if !errors.Is(err, ErrLocked) {
						t.Error(err)
					}
					continue
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d have the lock", n)
				}
				got.Add(1)
				runtime.Gosched()
				inside.Add(-1)
				if err := l.unlockRefused(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got.Load() == 0 {
		t.Error("nobody got the lock")
	}
}
