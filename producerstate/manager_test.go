package producerstate

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
)

// snapshot takes a snapshot and fails the test if it cannot.
func (l *testLog) snapshot() {
	l.t.Helper()
	if err := l.m.TakeSnapshot(record.Identity{Size: 61, BaseOffset: l.next - 1}); err != nil {
		l.t.Fatal(err)
	}
}

func (l *testLog) reload(m *Manager, start, end, now int64) {
	l.t.Helper()
	if err := m.TruncateAndReload(start, end, now); err != nil {
		l.t.Fatal(err)
	}
}

// files returns the offsets of the snapshots in the directory.
func (l *testLog) files() []int64 {
	l.t.Helper()
	pairs, err := ListPairs(l.fsys, testDir)
	if err != nil {
		l.t.Fatal(err)
	}
	var o []int64
	for _, p := range pairs {
		if p.HasSnapshot {
			o = append(o, p.Offset)
		}
	}
	return o
}

func (l *testLog) wantFiles(want ...int64) {
	l.t.Helper()
	if got := l.files(); !slices.Equal(got, want) {
		l.t.Errorf("snapshots %v, want %v", got, want)
	}
	if got := l.m.Snapshots(); !slices.Equal(got, want) {
		l.t.Errorf("listed snapshots %v, want %v", got, want)
	}
}

func TestTakeSnapshot_OnlyWhenMoved(t *testing.T) {
	l := newLog(t, noTxnCheck)
	l.snapshot()
	l.wantFiles()
	l.ok(l.client(batchSpec{pid: 1}))
	if !l.m.NeedsSnapshot() {
		t.Error("no snapshot needed")
	}
	l.snapshot()
	l.snapshot()
	l.wantFiles(1)
	if l.m.NeedsSnapshot() || l.m.LastSnapshotOffset() != 1 {
		t.Errorf("last snapshot %d", l.m.LastSnapshotOffset())
	}
}

func TestSnapshots_DeletedAndRetired(t *testing.T) {
	l := newLog(t, noTxnCheck)
	for i := range int32(6) {
		l.ok(l.client(batchSpec{pid: 1, seq: i}))
		l.snapshot()
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(l.m.DeleteSnapshotsBefore(2))
	l.wantFiles(2, 3, 4, 5, 6)
	must(l.m.DeleteSnapshotsAfter(5))
	l.wantFiles(2, 3, 4, 5)
	must(l.m.DeleteSnapshot(3))
	must(l.m.DeleteSnapshot(3))
	l.wantFiles(2, 4, 5)
	name, err := l.m.RetireSnapshot(4)
	if err != nil || name != SnapshotName(4)+".deleted" {
		t.Errorf("retired as %q, %v", name, err)
	}
	if _, err := l.fsys.Stat(filepath.Join(testDir, name)); err != nil {
		t.Error(err)
	}
	l.wantFiles(2, 5)
	if name, err := l.m.RetireSnapshot(4); name != "" || err != nil {
		t.Errorf("again: %q, %v", name, err)
	}
	if removed, err := RemoveOrphans(l.fsys, testDir, nil); err != nil || len(removed) != 0 {
		t.Errorf("orphans left: %v, %v", removed, err)
	}
	if o, ok := l.m.OldestSnapshotOffset(); !ok || o != 2 {
		t.Errorf("oldest %d, %v", o, ok)
	}
	if o, ok := l.m.LatestSnapshotOffset(); !ok || o != 5 || !l.m.HasSnapshot(5) || l.m.HasSnapshot(4) {
		t.Errorf("latest %d, %v", o, ok)
	}
}

func TestTruncateFully(t *testing.T) {
	l := newLog(t, noTxnCheck)
	l.ok(l.client(txn(1, 0, 0)))
	l.snapshot()
	if err := l.m.TruncateFullyAndStartAt(0); err != nil {
		t.Fatal(err)
	}
	l.wantFiles()
	if !l.m.IsEmpty() || l.m.MapEndOffset() != 0 || l.m.LastSnapshotOffset() != 0 {
		t.Errorf("%+v", l.m.Stats())
	}
	l.next = 0
	l.ok(l.client(batchSpec{pid: 1}))
	l.snapshot()
	l.wantFiles(1)
	// Files that came from elsewhere are listed again.
	if err := WriteSnapshot(l.fsys, testDir, stateOf(7, 1, 1).Freeze()); err != nil {
		t.Fatal(err)
	}
	if err := l.m.TruncateFullyAndReloadSnapshots(); err != nil {
		t.Fatal(err)
	}
	l.wantFiles(7)
}

func TestRemoveStraySnapshots(t *testing.T) {
	tests := []struct {
		compat      bool
		have, bases []int64
		want        []int64
	}{
		{true, []int64{2, 5, 42}, []int64{5}, []int64{5, 42}},
		{true, []int64{2, 5, 42}, []int64{42}, []int64{42}},
		{true, []int64{1, 2, 3, 4}, []int64{1, 2, 4}, []int64{1, 2, 4}},
		{true, []int64{1, 2, 3}, nil, []int64{3}},
		{true, nil, []int64{5}, nil},
		{true, []int64{3, 7, 8}, []int64{0, 5}, []int64{8}},
		{false, []int64{2, 5, 42}, []int64{5}, []int64{5, 42}},
		{false, []int64{3, 7, 8, 9}, []int64{0, 5}, []int64{8, 9}},
		{false, []int64{3, 8}, []int64{0, 5}, []int64{8}},
		{false, []int64{1, 2, 3}, nil, []int64{2, 3}},
	}
	for _, tt := range tests {
		l := newLog(t, Config{Compat: tt.compat})
		for _, o := range tt.have {
			write(t, l.fsys, stateOf(o, 1, 1))
		}
		if err := l.m.RemoveStraySnapshots(tt.bases); err != nil {
			t.Fatal(err)
		}
		if got := l.files(); !slices.Equal(got, tt.want) {
			t.Errorf("%+v: left %v", tt, got)
		}
	}
}

func TestOnLogStartIncremented(t *testing.T) {
	l := newLog(t, noTxnCheck)
	l.ok(l.client(txn(1, 0, 0)))
	l.ok(l.commit(1, 0, 0))
	l.ok(l.client(txn(1, 0, 1)))
	l.ok(l.commit(1, 0, 0))
	l.m.OnLogStartIncremented(2)
	if f, ok := l.m.FirstUnstableOffset(); !ok || f.Offset != 2 {
		t.Errorf("first unstable %+v, %v", f, ok)
	}
	if l.m.MapEndOffset() != 4 || l.m.LastSnapshotOffset() != 2 || l.m.Len() != 1 {
		t.Errorf("map end %d, last snapshot %d", l.m.MapEndOffset(), l.m.LastSnapshotOffset())
	}
	l.snapshot()
	l.m.OnLogStartIncremented(9)
	if l.m.MapEndOffset() != 9 || l.m.LastSnapshotOffset() != 4 || l.m.Len() != 1 {
		t.Errorf("map end %d, last snapshot %d", l.m.MapEndOffset(), l.m.LastSnapshotOffset())
	}
}

func TestReadOnly_TouchesNothing(t *testing.T) {
	l := newLog(t, noTxnCheck)
	for i := range int32(3) {
		l.ok(l.client(batchSpec{pid: 1, seq: i}))
		l.snapshot()
	}
	data := []byte{1}
	if err := vfs.WriteFileAtomic(l.fsys, snapshotPath(testDir, 3), 0o644, data); err != nil {
		t.Fatal(err)
	}
	var count vfstest.Count
	m, err := Open(vfstest.Inject(l.fsys, &count), testDir, Config{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	l.reload(m, 2, 3, l.clock)
	if m.MapEndOffset() != 2 {
		t.Errorf("loaded %d", m.MapEndOffset())
	}
	l.reload(m, 0, 1, l.clock)
	if e, _ := m.LastEntry(1); m.MapEndOffset() != 1 || e.LastSequence() != 0 {
		t.Errorf("loaded %d", m.MapEndOffset())
	}
	m.UpdateMapEndOffset(10)
	if err := m.TakeSnapshot(record.Identity{}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("snapshot: %v", err)
	}
	if _, err := m.RetireSnapshot(1); !errors.Is(err, ErrReadOnly) {
		t.Errorf("retire: %v", err)
	}
	if err := errors.Join(m.RemoveStraySnapshots(nil), m.TruncateFullyAndStartAt(5)); err != nil {
		t.Error(err)
	}
	if n := count.Of(vfstest.OpCreate, vfstest.OpRemove, vfstest.OpRename, vfstest.OpWrite, vfstest.OpSyncDir); n != 0 {
		t.Errorf("%d operations that write", n)
	}
}

func TestNamed(t *testing.T) {
	l := newLog(t, noTxnCheck)
	a := Named{ID: MinNamedProducerID + 5, FirstCount: 3, Name: "orders"}
	for _, bad := range []Named{{ID: 5, Name: "x"}, {ID: a.ID, Name: "x", FirstCount: -1}, {ID: a.ID, Name: string(make([]byte, MaxNameBytes+1))}} {
		if l.m.SetNamed(bad) == nil {
			t.Errorf("accepted id %d, name of %d bytes", bad.ID, len(bad.Name))
		}
	}
	// A replay knows the first count before the program tells the name.
	if err := l.m.SetNamed(Named{ID: a.ID, FirstCount: 3}); err != nil {
		t.Fatal(err)
	}
	if err := l.m.SetNamed(a); err != nil {
		t.Fatal(err)
	}
	if err := l.m.SetNamed(Named{ID: a.ID, Name: "other"}); !errors.Is(err, ErrNamedConflict) {
		t.Errorf("got %v", err)
	}
	l.ok(l.client(batchSpec{pid: a.ID, seq: 4}))
	f := l.m.Freeze()
	a.FirstCount = 2
	if err := l.m.SetNamed(a); err != nil {
		t.Fatal(err)
	}
	if err := l.m.SetNamed(Named{ID: MinNamedProducerID, FirstCount: 7}); err != nil {
		t.Fatal(err)
	}
	if len(f.named) != 1 || f.named[0].FirstCount != 3 {
		t.Errorf("the frozen view changed: %+v", f.named)
	}
	l.snapshot()
	m := l.open(noTxnCheck)
	l.reload(m, 0, l.next, 0)
	if n, ok := m.NamedProducer(a.ID); !ok || n != a || len(m.NamedProducers()) != 2 {
		t.Errorf("%+v", m.NamedProducers())
	}
	if n, ok := m.NamedProducer(MinNamedProducerID); !ok || n.Name != "" || n.FirstCount != 7 {
		t.Errorf("an id without a known name came back as %+v", n)
	}
	m.ForgetNamed(MinNamedProducerID)
	m.ForgetNamed(MinNamedProducerID)
	if n, ok := m.NamedProducer(a.ID); !ok || n != a || len(m.NamedProducers()) != 1 {
		t.Errorf("%+v", m.NamedProducers())
	}
}
