package wal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
)

// besideWriter is a writer that does at random what a writer may do, for readers in other processes.
type besideWriter struct {
	fsys  vfs.FS
	dir   string
	r     *rand.Rand
	mode  SyncMode
	keyed bool // records have keys, and the log is compacted
	log   *Log
	n     int
	steps []string

	versions map[string]bool // "offset:value" of every record there ever was
}

func newBesideWriter(fsys vfs.FS, seed uint64, mode SyncMode) (*besideWriter, error) {
	return newBesideWriterIn(fsys, simDir, seed, mode)
}

func newBesideWriterIn(fsys vfs.FS, dir string, seed uint64, mode SyncMode) (*besideWriter, error) {
	w := &besideWriter{fsys: fsys, dir: dir, r: rand.New(rand.NewPCG(seed, 7)), mode: mode, keyed: seed%2 == 1, versions: map[string]bool{}}
	return w, w.begin()
}

func (w *besideWriter) options() Options {
	o := Options{Sync: w.mode, SegmentBytes: 2000, IndexIntervalBytes: 200, CheckpointBytes: 3000, TimestampAfterMax: Never, manual: true}
	if w.keyed {
		o.CleanupPolicy, o.MinDirtyRatio = CleanupCompact|CleanupDelete, 1e-9
	}
	return o
}

func (w *besideWriter) begin() (err error) {
	w.log, err = OpenFS(context.Background(), w.fsys, w.dir, w.options())
	return err
}

// step does one thing.
func (w *besideWriter) step() error {
	l, n := w.log, w.r.IntN(100)
	off := l.Offsets()
	note := func(s string) { w.steps = append(w.steps, s) }
	switch {
	case n < 45:
		note("append")
		var recs []Record
		for range 1 + w.r.IntN(3) {
			recs = append(recs, w.record())
		}
		r, err := l.Append(recs...)
		w.note(r.First, recs)
		return err
	case n < 60:
		id := int64(1 + w.r.IntN(3))
		note(fmt.Sprintf("transaction of %d", id))
		rec, seq := w.record(), int32(0)
		if e, ok := l.ProducerEntry(id); ok {
			seq = e.LastSequence() + 1
		}
		b := record.NewBuilder(record.BuilderOptions{Producer: &record.Producer{ID: id, BaseSequence: seq}, Transactional: true})
		if err := b.Append(1, record.Record{Key: rec.Key, Value: rec.Value}); err != nil {
			return err
		}
		p, err := b.Batch()
		if err != nil {
			return err
		}
		info, err := l.AppendAsLeader(slices.Clone(p), LeaderAppend{TransactionVersion: NoTransactionVersion})
		w.note(info.FirstOffset, []Record{rec})
		return err
	case n < 72:
		open := l.OpenTransactions()
		if len(open) == 0 {
			return nil
		}
		id, kind := open[0].ProducerID, record.Commit
		if w.r.IntN(2) == 0 {
			kind = record.Abort
		}
		note(fmt.Sprintf("%v of %d", kind, id))
		_, err := l.AppendEndTxnMarker(record.Producer{ID: id}, record.EndTxnMarker{Type: kind}, MarkerAppend{})
		return err
	case n < 78:
		note("roll")
		return l.Roll()
	case n < 84 && off.HighWatermark > off.LogStart:
		to := off.LogStart + w.r.Int64N(off.HighWatermark-off.LogStart)
		note(fmt.Sprintf("log start %d", to))
		if _, err := l.IncrementLogStartOffset(to); err != nil {
			return err
		}
		_, err := l.DeleteOldSegments(time.Now())
		return err
	case n < 87 && off.LogEnd > off.LogStart:
		to := off.LogStart + w.r.Int64N(off.LogEnd-off.LogStart)
		note(fmt.Sprintf("truncate to %d", to))
		_, err := l.TruncateTo(to)
		return err
	case n < 88:
		to := w.r.Int64N(off.LogEnd + 20)
		note(fmt.Sprintf("begin anew at %d", to))
		return l.TruncateFullyAndStartAt(to, to)
	case n < 90:
		note("flush")
		return l.Flush()
	case n < 92:
		if !w.keyed {
			return nil
		}
		note("compact")
		_, err := l.Compact(context.Background(), time.Now())
		return err
	case n < 96:
		note("close")
		return errors.Join(l.Close(), w.begin())
	case n < 98:
		note("kill")
		return errors.Join(abandonLog(l), w.begin())
	}
	_, err := l.RemoveDiscarded(time.Now().Add(time.Hour))
	note("remove discarded")
	return err
}

func (w *besideWriter) record() Record {
	w.n++
	r := Record{Value: fmt.Appendf(nil, "record %d %*d", w.n, w.r.IntN(150), 0)}
	if w.keyed {
		r.Key = fmt.Appendf(nil, "key %d", w.r.IntN(10))
	}
	return r
}

func (w *besideWriter) note(first int64, recs []Record) {
	for i, r := range recs {
		w.versions[fmt.Sprintf("%d:%s", first+int64(i), r.Value)] = true
	}
}

// everything is what a reader of all of the log gets.
func everything(l *Log) (list []string, err error) {
	for s, err := range l.Records(l.Offsets().LogStart) {
		if err != nil {
			return list, err
		}
		list = append(list, fmt.Sprintf("%d:%s", s.Offset, s.Value))
	}
	return list, nil
}

func besideSeeds() uint64 {
	switch {
	case testing.Short():
		return 3
	case os.Getenv("ONCELOG_LONG") != "":
		return 300
	}
	return 12
}

func memSim(t *testing.T) *vfstest.Mem {
	t.Helper()
	mem := vfstest.NewMem()
	if err := mem.MkdirAll(simDir, 0o755); err != nil {
		t.Fatal(err)
	}
	mem.SyncAll()
	return mem
}

// A log that is open read-only is, after each Refresh, what the writer's is, whatever the writer has done in between.
func TestFollow_IsTheWritersLog(t *testing.T) {
	for _, mode := range modes {
		for seed := range besideSeeds() {
			mem := memSim(t)
			w, err := newBesideWriter(mem, seed, mode)
			if err != nil {
				t.Fatal(err)
			}
			reader, err := OpenFS(t.Context(), mem, simDir, Options{ReadOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 150 {
				if err := w.step(); err != nil {
					t.Fatalf("%v, seed %d: %v after %q", mode, seed, err, tail(w.steps, 5))
				}
				if w.r.IntN(3) > 0 {
					continue
				}
				if err := reader.Refresh(t.Context()); err != nil {
					t.Fatalf("%v, seed %d, step %d: %v after %q", mode, seed, i, err, tail(w.steps, 5))
				}
				if err := sameLog(w.log, reader); err != nil {
					t.Fatalf("%v, seed %d, step %d: %v after %q", mode, seed, i, err, tail(w.steps, 9))
				}
			}
			if err := errors.Join(reader.Close(), w.log.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func sameLog(writer, reader *Log) error {
	for _, t := range writer.OpenTransactions() {
		if t.FirstOffset < writer.Offsets().LogStart {
			return nil // whoever opens the log later may not find it
		}
	}
	want, err := everything(writer)
	if err != nil {
		return fmt.Errorf("writer: %w", err)
	}
	got, err := everything(reader)
	if err != nil {
		return fmt.Errorf("reader: %w", err)
	}
	if d := cmp.Diff(want, got); d != "" {
		return fmt.Errorf("records differ (-writer +reader):\n%s", d)
	}
	w, r := writer.Offsets(), reader.Offsets()
	w.RecoveryPoint, r.RecoveryPoint = 0, 0
	if w != r {
		return fmt.Errorf("offsets are %+v, the reader says %+v", w, r)
	}
	open := func(l *Log) (list []string) {
		for _, t := range l.OpenTransactions() {
			// Below the log start it depends on whether the log was opened since.
			list = append(list, fmt.Sprint(t.ProducerID, max(t.FirstOffset, l.Offsets().LogStart)))
		}
		return list
	}
	if d := cmp.Diff(open(writer), open(reader)); d != "" {
		return fmt.Errorf("open transactions differ:\n%s", d)
	}
	return nil
}

// Between any two operations of a reader the writer may do anything: what is yielded was there, ascends, and in the end all
// is the same.
func TestFollow_BetweenAnyTwoOperations(t *testing.T) {
	for _, mode := range modes {
		for seed := range besideSeeds() {
			if err := followBetween(t, seed, mode); err != nil {
				t.Fatalf("%v, seed %d: %v", mode, seed, err)
			}
		}
	}
}

func followBetween(t *testing.T, seed uint64, mode SyncMode) error {
	mem := memSim(t)
	w, err := newBesideWriter(mem, seed, mode)
	if err != nil {
		return err
	}
	var writerErr error
	steps := 0
	often := 2 + w.r.IntN(60)
	fsys := vfstest.Inject(mem, vfstest.Hook{BeforeOp: func(vfstest.Op) vfstest.Fault {
		if writerErr == nil && steps < 200 && w.r.IntN(often) == 0 {
			steps++
			writerErr = w.step()
		}
		return vfstest.Fault{}
	}})
	reader, err := OpenFS(context.Background(), fsys, simDir, Options{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("%w after %q", err, tail(w.steps, 9))
	}
	for range 60 {
		if err := reader.Refresh(t.Context()); err != nil || writerErr != nil {
			return fmt.Errorf("%w after %q", errors.Join(err, writerErr), tail(w.steps, 9))
		}
		last := int64(-1)
		for s, err := range reader.Records(reader.Offsets().LogStart) {
			if errors.Is(err, ErrOffsetOutOfRange) {
				break // the writer removed it
			}
			if err != nil {
				return fmt.Errorf("%w after %q", err, tail(w.steps, 9))
			}
			if !w.versions[fmt.Sprintf("%d:%s", s.Offset, s.Value)] || s.Offset <= last {
				return fmt.Errorf("record %d is %q, which never was there, after %q", s.Offset, s.Value, tail(w.steps, 9))
			}
			last = s.Offset
		}
	}
	steps = 1000
	if err := errors.Join(writerErr, reader.Refresh(t.Context())); err != nil {
		return err
	}
	return errors.Join(sameLog(w.log, reader), reader.Close(), w.log.Close())
}

// Tail of a log that is open read-only waits for what another process appends.
func TestFollow_Tail(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, mem := openMem(t, Options{Sync: mode, SegmentBytes: 300, TimestampAfterMax: Never})
				if _, err := l.Append(values("0")...); err != nil {
					t.Fatal(err)
				}
				ro := openFS(t, mem, Options{ReadOnly: true})
				ctx, cancel := context.WithCancel(t.Context())
				var got []string
				done := make(chan error)
				go func() {
					for s, err := range ro.Tail(ctx, 0) {
						if err != nil {
							done <- err
							return
						}
						got = append(got, string(s.Value))
					}
				}()
				want := []string{"0"}
				for i := 1; i < 30; i++ {
					want = append(want, fmt.Sprint(i))
					if _, err := l.Append(values(fmt.Sprint(i))...); err != nil {
						t.Fatal(err)
					}
					time.Sleep(mostPause + time.Millisecond)
					synctest.Wait()
					if !slices.Equal(got, want) {
						t.Fatalf("got %v, want %v", tail(got, 3), tail(want, 3))
					}
				}
				cancel()
				if err := <-done; !errors.Is(err, context.Canceled) {
					t.Errorf("ended with %v", err)
				}
				if err := errors.Join(ro.Close(), l.Close()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A look at a log in which nothing happens costs the state file, the head of the next batch and a look for the next segment.
func TestFollow_CostOfALook(t *testing.T) {
	l, mem := openMem(t, Options{Sync: SyncNone})
	for range 100 {
		if _, err := l.Append(Record{Value: make([]byte, 1000)}); err != nil {
			t.Fatal(err)
		}
	}
	n := map[string]int{}
	counting := vfstest.Inject(mem, vfstest.Hook{BeforeOp: func(o vfstest.Op) vfstest.Fault {
		n[fmt.Sprint(o.Kind)]++
		return vfstest.Fault{}
	}})
	ro := openFS(t, counting, Options{ReadOnly: true})
	clear(n)
	if err := ro.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, c := range n {
		total += c
	}
	if total > 8 {
		t.Errorf("%v", n)
	}
	if err := errors.Join(ro.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
}

// In SyncCommit a reader in another process does not see what the writer has not synced, not even at its open.
func TestFollow_SeesWhatIsOnDisk(t *testing.T) {
	l, mem := openMem(t, Options{Sync: SyncCommit, TimestampAfterMax: Never})
	if _, err := l.Append(values("durable")...); err != nil {
		t.Fatal(err)
	}
	ro := openFS(t, mem, Options{ReadOnly: true})
	// As a writer that is between its write and its sync.
	b := record.NewBuilder(record.BuilderOptions{BaseOffset: 1})
	if err := b.Append(1, record.Record{Value: []byte("not yet")}); err != nil {
		t.Fatal(err)
	}
	p, err := b.Batch()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.active.WriteAt(p, l.end.position); err != nil {
		t.Fatal(err)
	}
	late := openFS(t, mem, Options{ReadOnly: true})
	if err := ro.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*Log{ro, late} {
		if end := r.Offsets().LogEnd; end != 1 {
			t.Errorf("the log ends at %d, want 1", end)
		}
	}
	// After a power cut and a restart what is there is on disk.
	late2 := openFS(t, mem.Crash(vfstest.CrashOptions{Mode: vfstest.AllKept}), Options{ReadOnly: true})
	if end := late2.Offsets().LogEnd; end != 2 {
		t.Errorf("after a restart the log ends at %d, want 2", end)
	}
	if err := errors.Join(ro.Close(), late.Close(), late2.Close(), abandonLog(l)); err != nil {
		t.Fatal(err)
	}
}

// A segment that a writer removes or cuts between a reader's listing and his look at it makes the reader list again, though
// the state file has not changed; one that is not to be read however often he looks is an error.
func TestFollow_SegmentsGoneWhileOpening(t *testing.T) {
	mem := vfstest.NewMem()
	l := openFS(t, mem, Options{SegmentBytes: 200})
	for n := range 20 {
		put(t, l, Record{Value: fmt.Append(nil, n)})
	}
	for _, c := range []struct {
		kind     vfstest.Kind
		err, met error
	}{{vfstest.OpOpen, fs.ErrNotExist, fs.ErrNotExist}, {vfstest.OpRead, io.EOF, io.ErrUnexpectedEOF}} {
		for _, times := range []int{1, 2, 10, 1000} {
			looks := 0
			fsys := vfstest.Inject(mem, vfstest.Hook{BeforeOp: func(o vfstest.Op) vfstest.Fault {
				if o.Kind == c.kind && strings.HasSuffix(o.Path, ".log") {
					if looks++; looks <= times {
						return vfstest.Fault{Err: c.err}
					}
				}
				return vfstest.Fault{}
			}})
			r, err := OpenFS(context.Background(), fsys, simDir, Options{ReadOnly: true})
			if times == 1000 {
				if !errors.Is(err, c.met) {
					t.Errorf("%v for good: %v", c.err, err)
				}
				continue
			}
			if err != nil || looks <= times {
				t.Fatalf("%v, %d times: %d looks, %v", c.err, times, looks, err)
			}
			if list, err := readAll(r); len(list) != 20 || err != nil {
				t.Errorf("%v, %d times: %d batches, %v", c.err, times, len(list), err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
