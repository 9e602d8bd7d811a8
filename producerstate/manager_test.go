package producerstate

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
)

// snapshotAt takes a snapshot and fails the test if it cannot.
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

// Both kinds of restart: ours brings all five batches back, Kafka's the newest.
func TestReload_RemembersFive(t *testing.T) {
	for _, compat := range []bool{false, true} {
		l := newLog(t, Config{Compat: compat})
		for i := range int32(7) {
			l.clock += 10
			l.ok(l.client(batchSpec{pid: 1, seq: i, timestamp: 500 + int64(i)}))
		}
		l.snapshot()
		before := l.m.state()
		l.m = l.open(Config{Compat: compat})
		l.reload(l.m, 0, l.next, l.clock)
		if !compat {
			if d := diffStates(before, l.m.state()); d != "" {
				t.Errorf("after the restart:\n%s", d)
			}
		}
		for back := range int32(6) {
			seq := 6 - back
			remembered := back < 5 && (back == 0 || !compat)
			if remembered {
				l.dup(int64(seq))(l.client(batchSpec{pid: 1, seq: seq}))
			} else {
				l.refused(ErrOutOfOrderSequence)(l.client(batchSpec{pid: 1, seq: seq}))
			}
		}
		l.ok(l.client(batchSpec{pid: 1, seq: 7}))
	}
}

func TestReload_OpenTransaction(t *testing.T) {
	l := newLog(t, noTxnCheck)
	l.ok(l.client(txn(1, 0, 0)))
	l.ok(l.client(txn(1, 0, 1)))
	l.snapshot()
	m := l.open(noTxnCheck)
	l.reload(m, 0, l.next, l.clock)
	if f, ok := m.FirstUnstableOffset(); !ok || f != OffsetOnly(0) {
		t.Errorf("first unstable %+v, %v", f, ok)
	}
	l.m = m
	l.ok(l.client(txn(1, 0, 2)))
	l.ok(l.abort(1, 0, 0))
	l.snapshot()
	m = l.open(noTxnCheck)
	l.reload(m, 0, l.next, l.clock)
	if _, ok := m.FirstUnstableOffset(); ok {
		t.Error("a transaction is open")
	}
	if e, _ := m.LastEntry(1); e.LastSequence() != 2 {
		t.Errorf("%+v", e)
	}
}

func TestReload_FirstUnstableAfterTruncation(t *testing.T) {
	l := newLog(t, noTxnCheck)
	l.next = 99
	l.ok(l.client(txn(1, 0, 0)))
	l.snapshot()
	l.next = 105
	l.ok(l.commit(1, 0, 0))
	l.m.AdvanceHighWatermark(106)
	l.snapshot()
	l.ok(l.client(batchSpec{pid: 1, seq: 1}))
	l.reload(l.m, 0, 106, l.clock)
	if f, ok := l.m.FirstUnstableOffset(); ok {
		t.Errorf("first unstable %+v", f)
	}
	l.reload(l.m, 0, 100, l.clock)
	if f, ok := l.m.FirstUnstableOffset(); !ok || f.Offset != 99 {
		t.Errorf("first unstable %+v, %v", f, ok)
	}
}

func TestReload_LateTransaction(t *testing.T) {
	l := newLog(t, noTxnCheck)
	l.next = 100
	l.ok(l.client(batchSpec{pid: 1, txn: true, timestamp: 10}))
	l.snapshot()
	late := (DefaultMaxTransactionTimeout + lateTxnBuffer).Milliseconds() + 11
	m := l.open(noTxnCheck)
	l.reload(m, 0, l.next, l.clock)
	if !m.HasLateTransaction(late) {
		t.Error("lateness did not survive the reload")
	}
	l.reload(m, 0, 80, l.clock)
	if m.HasLateTransaction(late) {
		t.Error("late although it was cut off")
	}
	if err := l.m.TruncateFullyAndStartAt(150); err != nil || l.m.HasLateTransaction(late) {
		t.Error("late although everything was cut off", err)
	}
}

func TestReload_RemovesOutOfRangeSnapshots(t *testing.T) {
	for _, compat := range []bool{false, true} {
		l := newLog(t, Config{Compat: compat})
		for i := range int32(5) {
			l.ok(l.client(batchSpec{pid: 1, seq: i}))
			l.snapshot()
		}
		l.wantFiles(1, 2, 3, 4, 5)
		l.reload(l.m, 1, 3, l.clock)
		// Kafka removes the one at the log start, too.
		if compat {
			l.wantFiles(2, 3)
		} else {
			l.wantFiles(1, 2, 3)
		}
		if e, _ := l.m.LastEntry(1); e.LastSequence() != 2 || l.m.MapEndOffset() != 3 {
			t.Errorf("%+v, map end %d", e, l.m.MapEndOffset())
		}
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
	if removed, err := RemoveOrphans(l.fsys, testDir); err != nil || len(removed) != 0 {
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

// The newest snapshot is damaged in ways that Kafka's own tests use: the older one is loaded, the damaged one removed.
func TestReload_DamagedSnapshot(t *testing.T) {
	damage := map[string]func(data []byte) []byte{
		"emptied":     func([]byte) []byte { return nil },
		"cut in half": func(b []byte) []byte { return b[:len(b)/2] },
		"zeros":       func(b []byte) []byte { return append(b[:20], make([]byte, 37)...) },
		"version 2":   func(b []byte) []byte { b[1] = 2; return b },
		"future":      func(b []byte) []byte { b[31] = 99; return seal(b) },
	}
	for name, change := range damage {
		for _, compat := range []bool{false, true} {
			l := newLog(t, Config{Compat: compat})
			l.ok(l.client(batchSpec{pid: 1}))
			l.snapshot()
			l.ok(l.client(batchSpec{pid: 1, seq: 1}))
			l.snapshot()
			path := snapshotPath(testDir, 2)
			data, err := vfs.ReadFile(l.fsys, path, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if err := vfs.WriteFileAtomic(l.fsys, path, 0o644, change(data)); err != nil {
				t.Fatal(err)
			}
			var found []Finding
			m := l.open(Config{Compat: compat, Report: func(f Finding) { found = append(found, f) }})
			l.reload(m, 0, 2, l.clock)
			if e, ok := m.LastEntry(1); !ok || e.LastSequence() != 0 || m.MapEndOffset() != 1 {
				t.Errorf("%s, compat %v: %+v, map end %d", name, compat, e, m.MapEndOffset())
			}
			if len(found) != 1 || found[0].Kind != SnapshotRejected || found[0].Offset != 2 || found[0].Err == nil {
				t.Errorf("%s, compat %v: findings %+v", name, compat, found)
			}
			want := []int64{1}
			if name == "version 2" && !compat {
				want = []int64{1, 2} // of a newer program perhaps: passed over, not removed
			}
			if got := l.files(); !slices.Equal(got, want) {
				t.Errorf("%s, compat %v: left %v", name, compat, got)
			}
		}
	}
}

// An error of the disk is no reason to remove anything.
func TestReload_ReadError(t *testing.T) {
	l := newLog(t, noTxnCheck)
	l.ok(l.client(batchSpec{pid: 1}))
	l.snapshot()
	boom := errors.New("boom")
	broken := vfstest.Inject(l.fsys, vfstest.FailNth(vfstest.Kinds(vfstest.OpRead), 1, vfstest.Fault{Err: boom}, true))
	m, err := Open(broken, testDir, noTxnCheck)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.TruncateAndReload(0, 1, 0); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	l.wantFiles(1)
}

// A snapshot without its side file is passed over, because replaying more brings five batches back, unless the directory
// is one that Kafka wrote.
func TestReload_BareSnapshot(t *testing.T) {
	for _, allow := range []bool{false, true} {
		l := newLog(t, noTxnCheck)
		for i := range int32(3) {
			l.ok(l.client(batchSpec{pid: 1, seq: i}))
			if i == 0 {
				l.snapshot()
			}
		}
		l.snapshot()
		if err := l.fsys.Remove(sidePath(testDir, 3)); err != nil {
			t.Fatal(err)
		}
		m := l.open(Config{AllowBareSnapshots: allow})
		l.reload(m, 0, 3, l.clock)
		want := map[bool]int64{false: 1, true: 3}[allow]
		if m.MapEndOffset() != want {
			t.Errorf("allowed %v: loaded %d", allow, m.MapEndOffset())
		}
		l.replay(m, m.MapEndOffset())
		e, _ := m.LastEntry(1)
		if e.BatchCount() != map[bool]int{false: 3, true: 1}[allow] || e.LastSequence() != 2 {
			t.Errorf("allowed %v: %+v", allow, e)
		}
		l.wantFiles(1, 3)
	}
}

func TestReload_Accept(t *testing.T) {
	l := newLog(t, noTxnCheck)
	for i := range int32(3) {
		l.ok(l.client(batchSpec{pid: 1, seq: i}))
		l.snapshot()
	}
	var asked []int64
	c := Config{Accept: func(offset int64, last record.Identity) bool {
		asked = append(asked, offset)
		return last.BaseOffset == offset-1 && offset < 3
	}}
	m := l.open(c)
	l.reload(m, 0, 3, l.clock)
	if m.MapEndOffset() != 2 || !slices.Equal(asked, []int64{3, 2}) {
		t.Errorf("loaded %d, asked %v", m.MapEndOffset(), asked)
	}
	l.wantFiles(1, 2, 3)
}

func TestReload_NewerSideFileIsRefused(t *testing.T) {
	l := newLog(t, noTxnCheck)
	l.ok(l.client(batchSpec{pid: 1}))
	l.snapshot()
	data, err := vfs.ReadFile(l.fsys, sidePath(testDir, 1), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	data[11] = 2
	if err := vfs.WriteFileAtomic(l.fsys, sidePath(testDir, 1), 0o644, sealSide(data)); err != nil {
		t.Fatal(err)
	}
	m := l.open(noTxnCheck)
	if err := m.TruncateAndReload(0, 1, 0); !errors.Is(err, ErrUnsupportedVersion) {
		t.Errorf("got %v", err)
	}
	l.wantFiles(1)
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

func TestExpiry_Kafka(t *testing.T) {
	day := DefaultProducerIDExpiration.Milliseconds()
	l := newLog(t, Config{Compat: true, SkipVerification: true})
	l.clock = 1 << 50 // is not looked at
	l.ok(l.client(batchSpec{pid: 1, timestamp: 1000}))
	l.ok(l.client(batchSpec{pid: 2, txn: true, timestamp: 1000}))
	l.ok(l.client(batchSpec{pid: 3, timestamp: 1001}))
	l.ok(l.client(batchSpec{pid: MinNamedProducerID, timestamp: 1000}))
	if n := l.m.RemoveExpired(1000 + day - 1); n != 0 {
		t.Errorf("%d expired early", n)
	}
	l.snapshot()
	if n := l.m.RemoveExpired(1000 + day); n != 2 || l.m.Len() != 2 {
		t.Errorf("%d expired", n)
	}
	// An expired producer is one never seen.
	l.ok(l.client(batchSpec{pid: 1, seq: 77}))

	m := l.open(Config{Compat: true})
	l.reload(m, 0, 4, 1000+day)
	if _, ok := m.LastEntry(1); ok || m.Len() != 2 {
		t.Errorf("%d loaded", m.Len())
	}
}

func TestExpiry_Ours(t *testing.T) {
	hour := time.Hour.Milliseconds()
	l := newLog(t, Config{SkipVerification: true, ProducerIDExpiration: time.Hour})
	l.clock = 100 * hour
	l.ok(l.client(batchSpec{pid: 1, timestamp: 5}))            // ancient records, appended now
	l.ok(l.client(batchSpec{pid: 2, timestamp: 102 * hour}))   // a producer whose clock is ahead
	l.ok(l.client(batchSpec{pid: 3, txn: true, timestamp: 5})) // an open transaction
	l.ok(l.client(batchSpec{pid: MinNamedProducerID + 1}))     // a name
	l.ok(l.client(batchSpec{pid: 4, timestamp: 100 * hour}))   // goes on
	gone := func(now int64, want int) {
		t.Helper()
		if n := l.m.RemoveExpired(now); n != want {
			t.Errorf("at %d: %d expired, want %d", now, n, want)
		}
	}
	gone(100*hour, 0)
	gone(200*hour, 0) // the clock jumped, the log has not moved
	l.clock = 101 * hour
	l.ok(l.client(batchSpec{pid: 4, seq: 1, timestamp: 100 * hour}))
	gone(101*hour-1, 0)
	gone(200*hour, 1) // 1 is one hour behind the log's newest clock
	if _, ok := l.m.LastEntry(1); ok {
		t.Error("the wrong one expired")
	}
	l.snapshot()
	m := l.open(Config{ProducerIDExpiration: time.Hour})
	l.reload(m, 0, l.next, 1000*hour)
	if m.Len() != 4 || m.RemoveExpired(1000*hour) != 0 || m.NewestTime() != 101*hour {
		t.Errorf("after a restart with a jump: %d producers, newest time %d", m.Len(), m.NewestTime())
	}
	m.NoteTime(103 * hour)
	if n := m.RemoveExpired(1000 * hour); n != 2 || m.Len() != 2 {
		t.Errorf("%d expired, %d left", n, m.Len())
	}
}

// Loaded from what Kafka wrote there are no clocks: the batches' own times count.
func TestExpiry_WithoutClocks(t *testing.T) {
	l := newLog(t, Config{})
	if err := WriteSnapshot(l.fsys, testDir, stateOf(100, 5000, 1).Freeze()); err != nil {
		t.Fatal(err)
	}
	m := l.open(Config{AllowBareSnapshots: true, ProducerIDExpiration: time.Second})
	l.reload(m, 0, 100, 0)
	if m.NewestTime() != 5000 || m.RemoveExpired(1<<40) != 0 {
		t.Errorf("newest time %d, %d producers", m.NewestTime(), m.Len())
	}
	m.NoteTime(6000)
	if m.RemoveExpired(1<<40) != 1 {
		t.Error("not expired")
	}
}

func TestExpiry_Verifications(t *testing.T) {
	l := newLog(t, Config{ProducerIDExpiration: time.Second})
	if _, err := l.m.MaybeStartVerification(1, 0, 0, false, 5000); err != nil {
		t.Fatal(err)
	}
	l.m.RemoveExpired(5999)
	if _, ok := l.m.Verification(1); !ok {
		t.Error("expired early")
	}
	l.m.RemoveExpired(6000)
	if _, ok := l.m.Verification(1); ok {
		t.Error("not expired")
	}
}

func TestSweep_InParts(t *testing.T) {
	l := newLog(t, Config{ProducerIDExpiration: time.Second})
	for pid := range int64(1000) {
		l.ok(l.client(batchSpec{pid: pid}))
	}
	l.m.NoteTime(1 << 30)
	total, calls := 0, 0
	for done := false; !done; calls++ {
		var n int
		n, done = l.m.Sweep(1<<30, 64)
		total += n
	}
	if total != 1000 || l.m.Len() != 0 || calls != 16 {
		t.Errorf("%d expired in %d calls", total, calls)
	}
}

func TestNamed(t *testing.T) {
	l := newLog(t, noTxnCheck)
	a := Named{ID: MinNamedProducerID + 5, FirstCount: 3, Name: "orders"}
	for _, bad := range []Named{{ID: 5, Name: "x"}, {ID: a.ID}, {ID: a.ID, Name: string(make([]byte, MaxNameBytes+1))}} {
		if l.m.SetNamed(bad) == nil {
			t.Errorf("accepted id %d, name of %d bytes", bad.ID, len(bad.Name))
		}
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
	if err := l.m.SetNamed(Named{ID: MinNamedProducerID, Name: "first"}); err != nil {
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
	m.ForgetNamed(MinNamedProducerID)
	m.ForgetNamed(MinNamedProducerID)
	if n, ok := m.NamedProducer(a.ID); !ok || n != a || len(m.NamedProducers()) != 1 {
		t.Errorf("%+v", m.NamedProducers())
	}
}

// Kafka wrote in between, forgot the name's producer, and removed our snapshots: the side file that it left still knows.
func TestReload_AdoptsNamed(t *testing.T) {
	l := newLog(t, noTxnCheck)
	named := Named{ID: MinNamedProducerID + 5, FirstCount: 3, Name: "orders"}
	if err := l.m.SetNamed(named); err != nil {
		t.Fatal(err)
	}
	l.ok(l.client(batchSpec{pid: named.ID, seq: 4}))
	l.ok(l.client(batchSpec{pid: 1, seq: 4}))
	l.snapshot()
	if err := l.fsys.Remove(snapshotPath(testDir, 2)); err != nil {
		t.Fatal(err)
	}
	if err := WriteSnapshot(l.fsys, testDir, stateOf(50, 9, 1).Freeze()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []Config{{AllowBareSnapshots: true}, {}} {
		m := l.open(c)
		l.reload(m, 0, 60, 0)
		e, ok := m.LastEntry(named.ID)
		if n, _ := m.NamedProducer(named.ID); !ok || n != named || e.LastSequence() != 4 {
			t.Errorf("%+v: %+v, %+v", c, n, e)
		}
		if _, ok := m.LastEntry(1); ok {
			t.Error("a producer without a name was adopted")
		}
	}
}
