package wal

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/segment"
)

// Damage in what is compacted ends it with an error that says where, and nothing has changed.
func TestCompact_DamageChangesNothing(t *testing.T) {
	c := newCompactedLog(t, nil)
	c.put("a=1", "b=1", "|", "a=2", "|", "a=3")
	path := segment.Name{Kind: segment.KindLog}.Path(simDir)
	f, err := c.mem.OpenFile(path, vfs.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{0xff}, 65); err != nil {
		t.Fatal(err)
	}
	before := filesIn(t, c.mem)
	_, err = c.Compact(context.Background(), c.now)
	var bad *segment.CorruptError
	if !errors.As(err, &bad) || bad.Path != path || !errors.Is(err, ErrCorrupt) {
		t.Errorf("%v", err)
	}
	after := filesIn(t, c.mem)
	for name, p := range before {
		if n := segment.Parse(name).Kind; n == segment.KindLog && after[name] != p {
			t.Errorf("%s changed", name)
		}
	}
	for name := range after {
		if segment.Parse(name).Suffix != "" {
			t.Errorf("%s is left behind", name)
		}
	}
	c.put("a=4")
	if c.failure() != nil {
		t.Error(c.failure())
	}
}

func filesIn(t *testing.T, m vfs.FS) map[string]string {
	t.Helper()
	files := map[string]string{}
	if err := walkFiles(m, simDir, func(name string, p []byte) error {
		files[filepath.Base(name)] = string(p)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return files
}

func TestCompact_Refusals(t *testing.T) {
	l, err := OpenFS(context.Background(), vfstest.NewMem(), "/log", Options{manual: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Compact(context.Background(), time.Now()); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("a log that is not compacted: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	c := newCompactedLog(t, nil)
	c.put("a=1", "a=2", "|", "b=1")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.Compact(ctx, c.now); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	for _, o := range []Options{{MinDirtyRatio: 1.1}, {MinDirtyRatio: -1}, {MinCompactionLag: 2, MaxCompactionLag: time.Millisecond / 2},
		{MinCompactionLag: -1}, {DeleteRetention: -1}, {DedupeBufferBytes: -1}} {
		if err := o.Validate(); !errors.Is(err, ErrInvalidOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Compact(context.Background(), c.now); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	c.o.ReadOnly = true
	c.open()
	if _, err := c.Compact(context.Background(), c.now); !errors.Is(err, ErrReadOnly) {
		t.Errorf("read-only: %v", err)
	}
}

// Every fault of the disk while a log is compacted leaves one that opens and has all its values.
func TestCompact_FaultAtEveryOperation(t *testing.T) {
	broken := errors.New("broken")
	failed := 0
	for n := 1; ; n++ {
		c := newCompactedLog(t, nil)
		c.put("a=1", "b=1", "a=2", "|", "c=1", "b=2", "|", "a=3")
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		c.fs = vfstest.Inject(c.mem, vfstest.FailNth(nil, n+countOps(t, c), vfstest.Fault{Err: broken}, false))
		c.open()
		_, err := c.Compact(context.Background(), c.now)
		if err != nil && !errors.Is(err, broken) {
			t.Fatalf("operation %d: %v", n, err)
		}
		if c.failure() != nil {
			failed++
		} else {
			c.put("d=1")
		}
		if err := abandonLog(c.Log); err != nil {
			t.Fatal(err)
		}
		c.fs = c.mem
		c.open()
		if r := c.RecoveryReport(); len(r.Holes) > 0 {
			t.Fatalf("operation %d: %v", n, r.Findings)
		}
		got := strings.Fields(c.show())
		for _, want := range []string{"2:a=2", "3:c=1", "4:b=2", "5:a=3"} {
			if !slices.Contains(got, want) && want != "2:a=2" {
				t.Fatalf("operation %d: %v, want %s", n, got, want)
			}
		}
		if err == nil && n > 60 {
			break
		}
	}
	if failed == 0 {
		t.Error("no fault ended the log")
	}
}

// countOps counts the operations of an open.
func countOps(t *testing.T, c *compactedLog) int {
	t.Helper()
	var count vfstest.Count
	m := c.mem.Crash(vfstest.CrashOptions{Mode: vfstest.AllKept})
	l, err := OpenFS(context.Background(), vfstest.Inject(m, &count), simDir, c.o)
	if err != nil {
		t.Fatal(err)
	}
	n := count.Of()
	if err := abandonLog(l); err != nil {
		t.Fatal(err)
	}
	return n
}
