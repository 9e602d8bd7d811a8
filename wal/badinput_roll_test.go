package wal

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/segment"
)

// A segment that could not be begun, and of which nothing is left, is an error of that append only: whatever the reason,
// the next one works when the reason is gone, and the log is as if it had not been tried.
func TestBadInput_SegmentThatCannotBeCreated(t *testing.T) {
	next := segment.FileName(segment.KindLog, 10)
	files := map[string]vfstest.Filter{
		"sync of the directory": func(o vfstest.Op) bool { return o.Kind == vfstest.OpSyncDir },
	}
	for _, k := range []segment.Kind{segment.KindLog, segment.KindOffsetIndex, segment.KindTimeIndex} {
		name := segment.FileName(k, 10)
		files["open of "+name] = func(o vfstest.Op) bool {
			return (o.Kind == vfstest.OpOpen || o.Kind == vfstest.OpCreate) && filepath.Base(o.Path) == name
		}
	}
	files["reservation"] = func(o vfstest.Op) bool {
		return o.Kind == vfstest.OpAllocate && filepath.Base(o.Path) == next
	}
	for what, filter := range files {
		for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.EACCES, vfstest.ErrNoSpace} {
			if what == "sync of the directory" && !outOfFiles(e) {
				continue // that one was begun, and what it has lost is not known
			}
			for _, mode := range modes {
				t.Run(fmt.Sprint(what, ", ", e, ", ", mode), func(t *testing.T) {
					m := caseDisk(t, vfstest.MemOptions{})
					on, hit := false, 0
					l := openCase(t, vfstest.Inject(m, vfstest.Hook{BeforeOp: func(o vfstest.Op) vfstest.Fault {
						if on && filter(o) {
							hit++
							return vfstest.Fault{Err: e}
						}
						return vfstest.Fault{}
					}}), withPreallocation(caseOptions(mode)))
					lead(t, l, 10)
					on = true
					for range 3 {
						_, err := l.AppendAsLeader(caseBatch(t, 0, 10), LeaderAppend{TransactionVersion: NoTransactionVersion})
						if !errors.Is(err, e) || errors.Is(err, ErrFailed) || l.failure() != nil {
							t.Fatalf("%v, the log failed with %v", err, l.failure())
						}
					}
					on = false
					if hit < 3 || l.Offsets().LogEnd != 10 {
						t.Fatalf("%d failures, the log ends at %d", hit, l.Offsets().LogEnd)
					}
					lead(t, l, 1) // has room in the segment there is
					wantNoStray(t, m.Crash(vfstest.CrashOptions{Mode: vfstest.AllLost}), 11)
					lead(t, l, 10)
					for _, mode := range []vfstest.CrashMode{vfstest.Kill, vfstest.AllKept} {
						again := openCase(t, m.Crash(vfstest.CrashOptions{Mode: mode}), caseOptions(l.opts.Sync))
						if r := again.RecoveryReport(); r.Problems() || r.LogEnd != 21 {
							t.Errorf("%v: %+v", mode, r)
						}
					}
					closeCase(t, l)
				})
			}
		}
	}
}

func withPreallocation(o Options) Options {
	o.Preallocate = true
	return o
}

// wantNoStray fails if a directory has files of a segment that never came to be.
func wantNoStray(t *testing.T, fsys vfs.FS, end int64) {
	t.Helper()
	list, err := fsys.ReadDir(simDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if n := segment.Parse(e.Name); n.Offset > 0 && n.Offset < end && (n.Kind == segment.KindLog || n.Kind == segment.KindOffsetIndex || n.Kind == segment.KindTimeIndex) {
			t.Errorf("%s is there", e.Name)
		}
	}
}
