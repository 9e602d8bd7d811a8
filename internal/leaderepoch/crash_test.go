package leaderepoch_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/oncelog/oncelog/internal/leaderepoch"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
)

// TestFlush_PowerCut takes the power away around every operation of a Flush: what is found is the old file or the new
// one, and once Flush has returned, the new one.
func TestFlush_PowerCut(t *testing.T) {
	const path = "/t-0/" + leaderepoch.FileName
	mem := vfstest.NewMem()
	if err := errors.Join(mem.MkdirAll("/t-0", 0o755), mem.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	var fill []leaderepoch.Entry // longer than a sector
	c := leaderepoch.New(mem, path, false)
	for i := range 100 {
		fill = append(fill, leaderepoch.Entry{Epoch: int32(i), StartOffset: int64(i) * 1000})
		if _, err := c.Assign(int32(i), int64(i)*1000); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	next := append(slices.Clip(fill), leaderepoch.Entry{Epoch: 100, StartOffset: 1 << 40})
	var old, changed int
	look := func(returned bool) {
		for seed := range uint64(30) {
			got, err := leaderepoch.Read(mem.Crash(vfstest.RandomCrash(seed)), path)
			switch {
			case err == nil && slices.Equal(got, next):
				changed++
			case err == nil && slices.Equal(got, fill) && !returned:
				old++
			default:
				t.Errorf("returned %v, seed %d: %d entries, %v", returned, seed, len(got), err)
			}
		}
	}
	fsys := vfstest.Inject(mem, vfstest.Hook{AfterOp: func(vfstest.Op, error) { look(false) }})
	c, err := leaderepoch.Open(fsys, path, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Assign(100, 1<<40); err != nil {
		t.Fatal(err)
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	look(true)
	if old == 0 || changed == 0 {
		t.Errorf("%d times the old file, %d times the new one", old, changed)
	}
}

// TestFlush_Error lets the sync of the new file fail: the cache stays dirty, the old file is there, and the next Flush
// writes again from the start.
func TestFlush_Error(t *testing.T) {
	for _, kind := range []vfstest.Kind{vfstest.OpCreate, vfstest.OpWrite, vfstest.OpSync, vfstest.OpRename, vfstest.OpSyncDir} {
		t.Run(kind.String(), func(t *testing.T) {
			mem := vfstest.NewMem()
			broken, failed := errors.New("broken"), false
			fsys := vfstest.Inject(mem, vfstest.Hook{BeforeOp: func(o vfstest.Op) vfstest.Fault {
				if o.Kind == kind && !failed {
					failed = true
					return vfstest.Fault{Err: broken}
				}
				return vfstest.Fault{}
			}})
			c, err := leaderepoch.Open(fsys, "/f", false)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Assign(3, 30); err != nil {
				t.Fatal(err)
			}
			if err := c.Flush(); !errors.Is(err, broken) || !c.Dirty() {
				t.Errorf("dirty %v, %v", c.Dirty(), err)
			}
			if err := c.Flush(); err != nil || c.Dirty() {
				t.Errorf("again: dirty %v, %v", c.Dirty(), err)
			}
			got, err := leaderepoch.Read(mem.Crash(vfstest.CrashOptions{Mode: vfstest.AllLost}), "/f")
			if err != nil || !slices.Equal(got, []leaderepoch.Entry{{Epoch: 3, StartOffset: 30}}) {
				t.Errorf("after a power cut: %v, %v", got, err)
			}
		})
	}
}
