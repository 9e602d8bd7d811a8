package wal

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// An open after a close opens of the sealed segments the transaction indexes that there are, and reads each of their entries
// once, however many segments there are.
func TestOpen_TransactionIndexesOnly(t *testing.T) {
	mem := vfstest.NewMem()
	opened, read := map[string]int{}, int64(0)
	fsys := vfstest.Inject(mem, vfstest.Each(vfstest.Kinds(vfstest.OpOpen, vfstest.OpRead), func(o vfstest.Op, after bool) {
		switch n := segment.Parse(filepath.Base(o.Path)); {
		case after || n.Kind != segment.KindLog && n.Kind != segment.KindOffsetIndex && n.Kind != segment.KindTimeIndex && n.Kind != segment.KindTxnIndex:
		case o.Kind == vfstest.OpOpen:
			opened[n.String()]++
		case n.Kind == segment.KindTxnIndex:
			read += o.N
		}
	}))
	o := Options{Sync: SyncNone}
	l := openFS(t, fsys, o)
	const segments, aborts, entries = 60, 20, 7
	p := record.Producer{ID: 7}
	for i := range segments {
		for range entries {
			if _, err := l.AppendAsLeader(txnRecord(t, p), LeaderAppend{}); err != nil {
				t.Fatal(err)
			}
			p.BaseSequence++
			kind := record.Commit
			if i%aborts == 0 {
				kind = record.Abort
			}
			if _, err := l.AppendEndTxnMarker(p, record.EndTxnMarker{Type: kind}, MarkerAppend{Time: l.opts.Now()}); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Roll(); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	active := l.active.BaseOffset()
	for _, readOnly := range []bool{true, false} {
		clear(opened)
		read, o.ReadOnly = 0, readOnly
		l, err := OpenFS(context.Background(), fsys, l.dir, o)
		if err != nil {
			t.Fatal(err)
		}
		if r := l.RecoveryReport(); !r.Clean || r.BytesReplayed > 0 {
			t.Errorf("read-only %t: %+v", readOnly, r)
		}
		n := 0
		for name := range opened {
			f := segment.Parse(name)
			if f.Offset == active {
				continue
			}
			// The log file before holds the batch that the state file names.
			if f.Kind == segment.KindTxnIndex {
				n++
			} else if next, ok := l.set.Higher(f.Offset); !ok || next.BaseOffset() != active {
				t.Errorf("read-only %t: %s was opened", readOnly, name)
			}
		}
		if n != segments/aborts || read != segments/aborts*entries*34 {
			t.Errorf("read-only %t: %d transaction indexes opened and %d bytes of them read, want %d and %d", readOnly, n, read,
				segments/aborts, segments/aborts*entries*34)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
