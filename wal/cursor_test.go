package wal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
)

func openCursor(t testing.TB, l *Log, name string, o CursorOptions) *Cursor {
	t.Helper()
	c, err := l.Cursor(name, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func appendN(t testing.TB, l *Log, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if _, err := l.Append(values(fmt.Sprint(i))...); err != nil {
			t.Fatal(err)
		}
	}
}

// reopen closes a log and opens it again.
func reopen(t testing.TB, l *Log, o Options) *Log {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return openFS(t, l.fsys, o)
}

func TestCursor_Resumes(t *testing.T) {
	l, _ := openMem(t, Options{})
	appendN(t, l, 0, 10)
	c := openCursor(t, l, "reader", CursorOptions{})
	if s := c.Start(); !s.New || s.Offset != 0 || s.CutFrom != -1 {
		t.Errorf("a new one begins at %+v", s)
	}
	for s, err := range c.Records() {
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Commit(s.Offset + 1); err != nil {
			t.Fatal(err)
		}
		if s.Offset == 3 {
			break
		}
	}
	if _, err := l.Cursor("reader", CursorOptions{}); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("a name is open twice: %v", err)
	}
	if err := c.Commit(2); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("commit backwards: %v", err)
	}
	if err := c.Commit(11); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("commit behind the end: %v", err)
	}
	latest := openCursor(t, l, "latest", CursorOptions{StartAt: -1})
	l = reopen(t, l, Options{})
	if err := c.Commit(5); !errors.Is(err, ErrClosed) {
		t.Errorf("of a log that is closed: %v", err)
	}
	c = openCursor(t, l, "reader", CursorOptions{})
	if s := c.Start(); s.New || s.Offset != 4 || s.Committed != 4 || s.Deleted != 0 || c.Offset() != 4 {
		t.Errorf("goes on at %+v", s)
	}
	if o := openCursor(t, l, latest.Name(), CursorOptions{}).Offset(); o != 10 {
		t.Errorf("the one that began at the end goes on at %d", o)
	}
	var got []string
	for s, err := range c.Records() {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(s.Value))
	}
	if !slices.Equal(got, []string{"4", "5", "6", "7", "8", "9"}) {
		t.Errorf("%v", got)
	}
	if err := c.Reset(1); err != nil || c.Offset() != 1 {
		t.Errorf("%v, %d", err, c.Offset())
	}
	if removed, err := l.RemoveCursor("latest"); !removed || err != nil {
		t.Errorf("%t, %v", removed, err)
	}
	l = reopen(t, l, Options{})
	list, err := l.Cursors()
	if err != nil || len(list) != 1 || list[0].Name != "reader" || list[0].Offset != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	ro := openFS(t, l.fsys, Options{ReadOnly: true})
	if _, err := ro.Cursor("reader", CursorOptions{}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("%v", err)
	}
	if list, err := ro.Cursors(); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	if err := errors.Join(ro.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
}

// A log that was cut below a cursor, or whose start has passed it, says so.
func TestCursor_IsTold(t *testing.T) {
	l, _ := openMem(t, Options{})
	appendN(t, l, 0, 10)
	c := openCursor(t, l, "reader", CursorOptions{StartAt: 8})
	early := openCursor(t, l, "early", CursorOptions{StartAt: 2})
	if _, err := l.TruncateTo(6); err != nil {
		t.Fatal(err)
	}
	if c.Offset() != 6 {
		t.Errorf("at %d after a truncation to 6", c.Offset())
	}
	appendN(t, l, 6, 12)
	if _, err := l.IncrementLogStartOffset(5); err != nil {
		t.Fatal(err)
	}
	if early.Offset() != 5 {
		t.Errorf("at %d, the log starts at 5", early.Offset())
	}
	l = reopen(t, l, Options{})
	c, early = openCursor(t, l, "reader", CursorOptions{}), openCursor(t, l, "early", CursorOptions{})
	if s := c.Start(); s != (CursorStart{Offset: 6, Committed: 8, CutFrom: 8}) {
		t.Errorf("%+v", s)
	}
	if s := early.Start(); s != (CursorStart{Offset: 5, Committed: 2, Deleted: 3, CutFrom: -1}) {
		t.Errorf("%+v", s)
	}
	if err := c.Commit(7); err != nil {
		t.Fatal(err)
	}
	l = reopen(t, l, Options{})
	if s := openCursor(t, l, "reader", CursorOptions{}).Start(); s != (CursorStart{Offset: 7, Committed: 7, CutFrom: -1}) {
		t.Errorf("%+v", s)
	}
	if err := l.TruncateFullyAndStartAt(3, 3); err != nil {
		t.Fatal(err)
	}
	for _, i := range must2(l.Cursors()) {
		if i.Offset > 3 {
			t.Errorf("%+v lies behind the end, 3", i)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func must2[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestCursor_Pins(t *testing.T) {
	o := Options{SegmentBytes: 300, RetentionBytes: 1}
	l, _ := openMem(t, o)
	appendN(t, l, 0, 20)
	c := openCursor(t, l, "slow", CursorOptions{Pin: true})
	if err := c.Commit(7); err != nil {
		t.Fatal(err)
	}
	start := func() int64 {
		t.Helper()
		for range 3 { // named producers apart, one is enough
			if _, err := l.DeleteOldSegments(time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		return l.Offsets().LogStart
	}
	if at := start(); at == 0 || at > 7 {
		t.Errorf("the log starts at %d", at)
	}
	l = reopen(t, l, o)
	if at := start(); at > 7 {
		t.Errorf("before the name is open again the log starts at %d", at)
	}
	c = openCursor(t, l, "slow", CursorOptions{Pin: true})
	if err := c.Commit(13); err != nil {
		t.Fatal(err)
	}
	if at := start(); at <= 7 || at > 13 {
		t.Errorf("after a commit the log starts at %d", at)
	}
	c.Close()
	if at := start(); at > 13 {
		t.Errorf("after Close the log starts at %d", at)
	}
	if _, err := l.RemoveCursor("slow"); err != nil {
		t.Fatal(err)
	}
	if at := start(); at <= 13 {
		t.Errorf("after RemoveCursor the log starts at %d", at)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestCursor_DamagedFile(t *testing.T) {
	l, mem := openMem(t, Options{})
	appendN(t, l, 0, 3)
	openCursor(t, l, "a", CursorOptions{})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := mem.OpenFile(simDir+"/"+cursorsFile, vfs.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("x"), 20); err != nil {
		t.Fatal(err)
	}
	l = openFS(t, mem, Options{})
	if _, err := l.Cursor("a", CursorOptions{}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("%v", err)
	}
	if _, err := l.Cursors(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("%v", err)
	}
	appendN(t, l, 3, 4)
	if err := errors.Join(f.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	if p, err := vfsRead(mem, simDir+"/"+cursorsFile); err != nil || p[20] != 'x' {
		t.Errorf("a damaged file was replaced: %v", err)
	}
}

func vfsRead(fsys vfs.FS, name string) ([]byte, error) {
	f, err := fsys.OpenFile(name, vfs.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	p := make([]byte, info.Size)
	_, err = f.ReadAt(p, 0)
	return p, errors.Join(err, f.Close())
}

// Readers that commit at the same time share writes, and all of it is there afterwards.
func TestCursor_ManyAtOnce(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{Sync: SyncNone})
	appendN(t, l, 0, 40)
	var wg sync.WaitGroup
	for i := range 20 {
		c := openCursor(t, l, fmt.Sprintf("reader %d", i), CursorOptions{})
		wg.Go(func() {
			for n := range int64(10) {
				if err := c.Commit(n*3 + int64(i)%4); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = openTest(t, l.dir, Options{})
	for i := range 20 {
		if o := openCursor(t, l, fmt.Sprintf("reader %d", i), CursorOptions{}).Offset(); o != 27+int64(i)%4 {
			t.Errorf("reader %d is at %d", i, o)
		}
	}
}

// A crash at any operation leaves each cursor at a commit that was asked for, the last acknowledged one or a later one,
// never behind the end of the log, and where it is taken back it says so.
func TestCrash_Cursors(t *testing.T) {
	seeds := uint64(4)
	if testing.Short() {
		seeds = 2
	}
	for _, mode := range modes {
		for seed := range seeds {
			if err := crashCursors(t, seed, mode); err != nil {
				t.Fatalf("%v, seed %d: %v", mode, seed, err)
			}
		}
	}
}

type cursorLedger struct{ acked, asked int64 }

func crashCursors(t *testing.T, seed uint64, mode SyncMode) error {
	mem := memSim(t)
	r := rand.New(rand.NewPCG(seed, 3))
	o := Options{Sync: mode, SegmentBytes: 1000, CheckpointBytes: 700, TimestampAfterMax: Never, manual: true}
	names := []string{"a", "b"}
	led := map[string]*cursorLedger{}
	cutTo := int64(1 << 62) // the lowest truncation since the commits
	var failed error
	n := 0
	fsys := vfstest.Inject(mem, vfstest.Hook{BeforeOp: func(op vfstest.Op) vfstest.Fault {
		if n++; failed == nil && op.Kind.Writes() && r.IntN(4) == 0 {
			crashed := mem.Crash(vfstest.RandomCrash(seed<<20 | uint64(n)))
			if err := cursorsAfterCrash(crashed, o, led, cutTo); err != nil {
				failed = fmt.Errorf("before operation %d, %v: %w", n, op, err)
			}
		}
		return vfstest.Fault{}
	}})
	l, err := OpenFS(context.Background(), fsys, simDir, o)
	if err != nil {
		return err
	}
	open := map[string]*Cursor{}
	for range 60 {
		if failed != nil {
			return failed
		}
		name := names[r.IntN(len(names))]
		end := l.Offsets().LogEnd
		switch k := r.IntN(20); {
		case k < 8:
			appendN(t, l, 0, 1+r.IntN(3))
		case k < 15:
			c := open[name]
			if c == nil {
				led[name] = &cursorLedger{acked: -1}
				if c, err = l.Cursor(name, CursorOptions{}); err != nil {
					return err
				}
				open[name] = c
				led[name].acked = 0
			}
			to := c.Offset() + r.Int64N(end-c.Offset()+1)
			led[name].asked = to
			if err := c.Commit(to); err != nil {
				return err
			}
			led[name].acked = to
		case k < 16 && end > 0:
			to := r.Int64N(end)
			cutTo = to
			if _, err := l.TruncateTo(to); err != nil {
				return err
			}
			for _, a := range led {
				a.acked, a.asked = min(a.acked, to), min(a.asked, to)
			}
			cutTo = 1 << 62
		case k < 17:
			if err := l.Flush(); err != nil {
				return err
			}
		case k < 18:
			if err := l.Close(); err != nil {
				return err
			}
			if l, err = OpenFS(context.Background(), fsys, simDir, o); err != nil {
				return err
			}
			open = map[string]*Cursor{}
			for name := range led {
				if open[name], err = l.Cursor(name, CursorOptions{}); err != nil {
					return err
				}
			}
		}
	}
	return errors.Join(failed, l.Close())
}

func cursorsAfterCrash(mem *vfstest.Mem, o Options, led map[string]*cursorLedger, cutTo int64) error {
	l, err := OpenFS(context.Background(), mem, simDir, o)
	if errors.Is(err, ErrNotLog) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = abandonLog(l) }()
	end := l.Offsets().LogEnd
	list, err := l.Cursors()
	if err != nil {
		return err
	}
	found := map[string]CursorInfo{}
	for _, c := range list {
		found[c.Name] = c
	}
	for name, a := range led {
		c, ok := found[name]
		if !ok {
			if a.acked >= 0 {
				return fmt.Errorf("cursor %q is gone", name)
			}
			continue
		}
		committed := c.Offset
		if c.CutFrom >= 0 {
			committed = c.CutFrom
		}
		switch {
		case c.Offset > end:
			return fmt.Errorf("cursor %q is at %d, the log ends at %d", name, c.Offset, end)
		case c.Offset > a.asked:
			return fmt.Errorf("cursor %q is at %d, and was never asked to be behind %d", name, c.Offset, a.asked)
		case committed < min(a.acked, cutTo) || c.CutFrom < 0 && c.Offset < min(a.acked, cutTo):
			return fmt.Errorf("cursor %q is at %d (%+v), committed was %d", name, c.Offset, c, a.acked)
		}
	}
	return nil
}
