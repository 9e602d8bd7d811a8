package wal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/producerstate"
)

const backupDir = "/backup/t-0"

// isBackupOf opens a backup as a log and holds it against the log that it was made of.
func isBackupOf(fsys vfs.FS, l *Log) error {
	b, err := OpenFS(context.Background(), fsys, backupDir, Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer b.Close()
	if r := b.RecoveryReport(); !r.Clean || r.Problems() {
		return fmt.Errorf("it does not open clean: %+v", r)
	}
	if err := sameLog(l, b); err != nil {
		return err
	}
	if d := cmp.Diff(entriesByID(l), entriesByID(b)); d != "" {
		return fmt.Errorf("producers differ:\n%s", d)
	}
	return nil
}

func entriesByID(l *Log) map[int64]string {
	list := map[int64]string{}
	for e := range l.Producers() {
		list[e.ProducerID] = fmt.Sprintf("%+v", struct {
			Epoch   int16
			Batches []producerstate.BatchMetadata
			Txn     int64
		}{e.ProducerEpoch, slices.Collect(e.Batches()), e.CurrentTxnFirstOffset})
	}
	return list
}

// After anything that a writer may do, a backup into the same directory is the log as it is.
func TestBackup_OfAnyLog(t *testing.T) {
	for _, mode := range modes {
		kept := 0
		for seed := range besideSeeds() {
			mem := memSim(t)
			w, err := newBesideWriter(mem, seed, mode)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 120 {
				if err := w.step(); err != nil {
					t.Fatalf("%v, seed %d: %v after %q", mode, seed, err, tail(w.steps, 5))
				}
				if w.r.IntN(8) > 0 {
					continue
				}
				from := w.log
				if w.r.IntN(3) == 0 {
					from = openFS(t, mem, Options{ReadOnly: true}) // as from another process
				}
				r, err := from.Backup(t.Context(), backupDir)
				if from != w.log {
					err = errors.Join(err, from.Close())
				}
				if err != nil {
					t.Fatalf("%v, seed %d, step %d: %v after %q", mode, seed, i, err, tail(w.steps, 9))
				}
				kept += r.Segments - r.Copied - r.Extended
				if err := isBackupOf(mem, w.log); err != nil {
					t.Fatalf("%v, seed %d, step %d: %v\nreport %+v after %q", mode, seed, i, err, r, tail(w.steps, 9))
				}
				if w.r.IntN(4) > 0 {
					continue
				}
				// It is a log of its own, which may be written to; the next backup takes that back.
				b, err := OpenFS(t.Context(), mem, backupDir, w.options())
				if err == nil {
					_, err = b.Append(Record{Key: []byte("key"), Value: []byte("of the backup")})
					err = errors.Join(err, b.Close())
				}
				if err != nil {
					t.Fatalf("%v, seed %d: %v", mode, seed, err)
				}
			}
			if err := w.log.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if kept == 0 {
			t.Errorf("%v: no segment was kept from one backup to the next", mode)
		}
	}
}

// A second backup copies what is new, and nothing else.
func TestBackup_CopiesWhatIsNew(t *testing.T) {
	l, _ := openMem(t, Options{SegmentBytes: 10_000})
	for range 43 {
		if _, err := l.Append(Record{Value: make([]byte, 1000)}); err != nil {
			t.Fatal(err)
		}
	}
	first, err := l.Backup(t.Context(), backupDir)
	if err != nil {
		t.Fatal(err)
	}
	size := func() (n int64) {
		for s := range l.set.All() {
			size, err := s.Size()
			if err != nil {
				t.Fatal(err)
			}
			n += size
		}
		return n
	}
	before := size()
	if first.BytesCopied != before || first.Copied != first.Segments || first.Segments < 4 || first.Extended > 0 {
		t.Errorf("%+v, the log has %d bytes", first, before)
	}
	if _, err := l.Append(Record{Value: make([]byte, 1000)}); err != nil {
		t.Fatal(err)
	}
	second, err := l.Backup(t.Context(), backupDir)
	if err != nil {
		t.Fatal(err)
	}
	if second.BytesCopied != size()-before || second.Copied != 0 || second.Extended != 1 || second.Compared != 0 || second.Resumed {
		t.Errorf("%+v, %d bytes are new", second, size()-before)
	}
	third, err := l.Backup(t.Context(), backupDir)
	if err != nil || third.BytesCopied != 0 || third.Copied+third.Extended != 0 || third.LogEnd != 44 {
		t.Errorf("%+v, %v", third, err)
	}
	c := openCursor(t, l, "reader", CursorOptions{})
	if err := c.Commit(40); err != nil {
		t.Fatal(err)
	}
	if _, err := l.TruncateTo(42); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(Record{Value: make([]byte, 1000)}, Record{Value: make([]byte, 999)}); err != nil {
		t.Fatal(err)
	}
	cut, err := l.Backup(t.Context(), backupDir)
	if err != nil || cut.Compared == 0 || cut.Copied != 1 {
		t.Errorf("after a truncation %+v, %v", cut, err)
	}
	if list, err := readCursors(l.fsys, backupDir); err != nil || len(list) != 1 || list[0].offset != 40 {
		t.Errorf("cursors of the backup: %+v, %v", list, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestBackup_Refuses(t *testing.T) {
	l, mem := openMem(t, Options{})
	if _, err := l.Append(values("one")...); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Backup(t.Context(), simDir); !errors.Is(err, ErrNotBackup) {
		t.Errorf("onto itself: %v", err)
	}
	other, err := OpenFS(t.Context(), mem, "/data/other-0", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Backup(t.Context(), "/data/other-0"); !errors.Is(err, ErrNotBackup) {
		t.Errorf("onto another log: %v", err)
	}
	if other, err = OpenFS(t.Context(), mem, "/data/other-0", Options{}); err != nil {
		t.Fatalf("the other log was touched: %v", err)
	}
	if _, err := other.Backup(t.Context(), backupDir); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Backup(t.Context(), backupDir); !errors.Is(err, ErrNotBackup) {
		t.Errorf("onto the backup of another log: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Backup(ended, "/backup/u-0"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	for _, o := range []Options{{}, {ReadOnly: true}} {
		if _, err := OpenFS(t.Context(), mem, "/backup/u-0", o); !errors.Is(err, ErrUnfinishedBackup) {
			t.Errorf("half a backup opens: %v", err)
		}
	}
	if r, err := l.Backup(t.Context(), "/backup/u-0"); err != nil || !r.Resumed {
		t.Errorf("%+v, %v", r, err)
	}
	own, err := OpenFS(t.Context(), mem, "/backup/u-0", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Backup(t.Context(), "/backup/u-0"); !errors.Is(err, ErrLocked) {
		t.Errorf("onto a backup that is open as a log: %v", err)
	}
	if err := errors.Join(own.Close(), other.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Backup(t.Context(), "/backup/u-0"); !errors.Is(err, ErrClosed) {
		t.Errorf("of a closed log: %v", err)
	}
}

// A damaged batch is not copied as if it were good.
func TestBackup_FindsDamage(t *testing.T) {
	l, mem := openMem(t, Options{})
	if _, err := l.Append(values("one")...); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(values("two")...); err != nil {
		t.Fatal(err)
	}
	f, err := mem.OpenFile(l.active.Path(), vfs.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xff}, l.end.position-1); err != nil {
		t.Fatal(err)
	}
	var unreadable *UnreadableError
	if _, err := l.Backup(t.Context(), backupDir); !errors.As(err, &unreadable) || unreadable.First != 1 {
		t.Errorf("%v", err)
	}
	if err := errors.Join(f.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
}

// A power cut at any operation of a backup leaves the earlier backup, the new one, or one that nobody opens; and the next
// backup is whole.
func TestCrash_Backup(t *testing.T) {
	for seed := range uint64(2) {
		mem := memSim(t)
		w, err := newBesideWriter(mem, 40+seed, SyncCommit)
		if err != nil {
			t.Fatal(err)
		}
		steps := func(n int) {
			for range n {
				if err := w.step(); err != nil {
					t.Fatal(err)
				}
			}
		}
		steps(40)
		if seed > 0 {
			if _, err := w.log.Backup(t.Context(), backupDir); err != nil {
				t.Fatal(err)
			}
			steps(25)
		}
		mem.SyncAll()
		old, err := everythingIn(mem)
		if err != nil && seed > 0 {
			t.Fatal(err)
		}
		now, err := everything(w.log)
		if err != nil {
			t.Fatal(err)
		}
		n, states := 0, 0
		fsys := vfstest.Inject(mem, vfstest.Hook{BeforeOp: func(o vfstest.Op) vfstest.Fault {
			n++
			if !o.Kind.Writes() {
				return vfstest.Fault{}
			}
			for range 2 {
				states++
				crashed := mem.Crash(vfstest.RandomCrash(uint64(states)))
				if err := afterBackupCrash(crashed, w.options(), old, now); err != nil {
					t.Fatalf("seed %d, before operation %d, %v: %v", seed, n, o, err)
				}
			}
			return vfstest.Fault{}
		}})
		w.log.fsys = fsys
		if _, err := w.log.Backup(t.Context(), backupDir); err != nil {
			t.Fatal(err)
		}
		w.log.fsys = mem
		mem = mem.Crash(vfstest.CrashOptions{Mode: vfstest.AllLost})
		if got, err := everythingIn(mem); err != nil || cmp.Diff(now, got) != "" {
			t.Errorf("the backup was not durable when it returned: %v\n%s", err, cmp.Diff(now, got))
		}
		t.Logf("%d states", states)
		if err := abandonLog(w.log); err != nil {
			t.Fatal(err)
		}
	}
}

func everythingIn(fsys vfs.FS) ([]string, error) {
	b, err := OpenFS(context.Background(), fsys, backupDir, Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer b.Close()
	if r := b.RecoveryReport(); !r.Clean || r.Problems() {
		return nil, fmt.Errorf("it does not open clean: %+v", r)
	}
	return everything(b)
}

func afterBackupCrash(mem *vfstest.Mem, o Options, old, now []string) error {
	got, err := everythingIn(mem)
	switch {
	case errors.Is(err, ErrUnfinishedBackup), errors.Is(err, ErrNotLog), errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case cmp.Diff(old, got) != "" && cmp.Diff(now, got) != "":
		return fmt.Errorf("the backup is neither the old one nor the new one: %q", got)
	}
	l, err := OpenFS(context.Background(), mem, simDir, o)
	if err != nil {
		return err
	}
	if _, err := l.Backup(context.Background(), backupDir); err != nil {
		return fmt.Errorf("the next backup: %w", err)
	}
	err = isBackupOf(mem, l)
	if err != nil {
		err = fmt.Errorf("the next backup: %w", err)
	}
	return errors.Join(err, l.Close())
}

// Appends, retention, rolls and reads go on during a backup, and each backup is the log at one moment.
func TestBackup_OfARunningLog(t *testing.T) {
	for _, mode := range modes {
		dir, to := t.TempDir(), t.TempDir()+"/b"
		l := openTest(t, dir, Options{Sync: mode, SegmentBytes: 20_000, RetentionBytes: 100_000})
		p, err := l.Producer("steady", ProducerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := p.Append(Record{Value: fmt.Appendf(nil, "%0500d", n)}); err != nil {
					t.Error(err)
					return
				}
				if n%50 == 0 {
					if _, err := l.DeleteOldSegments(time.Now()); err != nil {
						t.Error(err)
					}
					if _, err := l.RemoveDiscarded(time.Now().Add(time.Hour)); err != nil {
						t.Error(err)
					}
				}
			}
		})
		for range 5 {
			r, err := l.Backup(t.Context(), to)
			if err != nil {
				t.Fatal(err)
			}
			b := openTest(t, to, Options{ReadOnly: true})
			next := r.LogStart
			for s, err := range b.Records(r.LogStart) {
				if err != nil {
					t.Fatal(err)
				}
				if s.Offset != next || string(s.Value) != fmt.Sprintf("%0500d", next) {
					t.Fatalf("offset %d holds %.600q, want %d", s.Offset, s.Value, next)
				}
				next++
			}
			if next != r.LogEnd {
				t.Errorf("the backup ends at %d, want %d", next, r.LogEnd)
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
		}
		close(stop)
		wg.Wait()
		if _, err := l.Backup(t.Context(), to); err != nil {
			t.Fatal(err)
		}
		// The name goes on in the backup where it was.
		b := openTest(t, to, Options{})
		q, err := b.Producer("steady", ProducerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if q.NextSequence() != p.NextSequence() {
			t.Errorf("the name goes on at %d, want %d", q.NextSequence(), p.NextSequence())
		}
	}
}
