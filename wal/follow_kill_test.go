//go:build unix

package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/oncelog/oncelog/internal/vfs"
)

// These tests do not run in parallel: a process that one of them starts would hold the locks of the others until it runs.

// A reader in this process tails what a child appends, which is killed and started again, and gets each acknowledged record
// once, at its offset.
func TestFollow_WriterIsKilled(t *testing.T) {
	for i, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			k := &killParent{rand: rand.New(rand.NewPCG(5, uint64(i)))}
			k.life.Dir, k.life.Mode = t.TempDir(), mode
			if err := openTest(t, k.life.Dir, killOptions(mode)).Close(); err != nil {
				t.Fatal(err)
			}
			reader := openTest(t, k.life.Dir, Options{ReadOnly: true})
			ctx, cancel := context.WithCancel(t.Context())
			got := map[int64]string{}
			tailed := make(chan error, 1)
			go func() {
				next := int64(0)
				for s, err := range reader.Tail(ctx, 0) {
					if err == nil && s.Offset != next {
						err = fmt.Errorf("offset %d comes, want %d", s.Offset, next)
					}
					if err != nil {
						tailed <- err
						return
					}
					got[s.Offset] = string(s.Value)
					next++
				}
			}()
			for n := range 4 {
				if err := k.run(n%2 == 1); err != nil {
					t.Fatal(err)
				}
				k.next()
			}
			// The last writer was killed: what it wrote and did not acknowledge is decided by the next one.
			l := openTest(t, k.life.Dir, killOptions(mode))
			end := l.Offsets().LogEnd
			if err := reader.Wait(t.Context(), end-1, TxnCommitted); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * mostPause) // Tail looks by itself
			cancel()
			if err := <-tailed; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			if int64(len(got)) != end {
				t.Errorf("%d records came, the log ends at %d", len(got), end)
			}
			for p, list := range k.acked {
				for _, b := range list {
					for n := range killRecords(p, b.Index) {
						if want := string(killValue(p, b.Index, int(n))); got[b.First+int64(n)] != want {
							t.Fatalf("offset %d is %.40q, want %.40q", b.First+int64(n), got[b.First+int64(n)], want)
						}
					}
				}
			}
		})
	}
}

const followVar = "ONCELOG_FOLLOW_CHILD"

// TestFollow_Child is a writer that also truncates, deletes and begins anew, until it is killed.
func TestFollow_Child(t *testing.T) {
	dir := os.Getenv(followVar)
	if dir == "" {
		return // it runs in a process of its own
	}
	w, err := newBesideWriterIn(vfs.OS, dir, uint64(time.Now().UnixNano()), SyncMode(os.Getenv("ONCELOG_FOLLOW_MODE")[0]-'0'))
	for err == nil {
		err = w.step()
	}
	fmt.Fprintf(os.Stderr, "%v after %q\n", err, tail(w.steps, 5))
	os.Exit(3)
}

// The writer does whatever a writer may do, and is killed. The reader sees whole records of the log in ascending order, and
// in the end the same log as the next writer.
func TestFollow_WriterCutsAndDeletes(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			dir := t.TempDir()
			if err := openTest(t, dir, Options{Sync: mode}).Close(); err != nil {
				t.Fatal(err)
			}
			reader := openTest(t, dir, Options{ReadOnly: true})
			for range 2 {
				runFollowChild(t, dir, mode, reader)
			}
			l := openTest(t, dir, Options{Sync: mode})
			if err := reader.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := sameLog(l, reader); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func runFollowChild(t *testing.T, dir string, mode SyncMode, reader *Log) {
	t.Helper()
	var said bytes.Buffer
	cmd := exec.Command(os.Args[0], "-test.run=^TestFollow_Child$", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), followVar+"="+dir, fmt.Sprintf("ONCELOG_FOLLOW_MODE=%d", mode))
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	for ctx.Err() == nil {
		last := int64(-1)
		for s, err := range reader.Tail(ctx, reader.Offsets().LogStart) {
			if errors.Is(err, ErrOffsetOutOfRange) || errors.Is(err, context.DeadlineExceeded) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if s.Offset <= last || !bytes.HasPrefix(s.Value, []byte("record ")) {
				t.Fatalf("offset %d after %d: %.40q", s.Offset, last, s.Value)
			}
			last = s.Offset
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("the child ended by itself: %v\n%s", err, said.Bytes())
	}
}
