package producerstate

import (
	"errors"
	"slices"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
)

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

// A state that ends where the log does is kept, although no snapshot has it.
func TestReload_NothingToDo(t *testing.T) {
	l := newLog(t, noTxnCheck)
	l.ok(l.client(batchSpec{pid: 1}))
	l.snapshot()
	l.ok(l.client(txn(1, 0, 1)))
	before := l.m.state()
	l.reload(l.m, 1, 2, l.clock)
	if d := diffStates(before, l.m.state()); d != "" {
		t.Errorf("changed:\n%s", d)
	}
	l.reload(l.m, 0, 1, l.clock)
	if e, _ := l.m.LastEntry(1); e.LastSequence() != 0 || l.m.MapEndOffset() != 1 {
		t.Errorf("after a cut: %+v", e)
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

// A damaged side file beside a snapshot that Kafka wrote or left alone does not cost the snapshot.
func TestReload_BareSnapshotBesideDamage(t *testing.T) {
	l := newLog(t, noTxnCheck)
	l.ok(l.client(batchSpec{pid: 1}))
	l.ok(l.client(batchSpec{pid: 1, seq: 1}))
	l.snapshot()
	if err := vfs.WriteFileAtomic(l.fsys, sidePath(testDir, 2), 0o644, make([]byte, 150)); err != nil {
		t.Fatal(err)
	}
	m := l.open(Config{AllowBareSnapshots: true})
	l.reload(m, 0, 2, l.clock)
	if e, _ := m.LastEntry(1); m.MapEndOffset() != 2 || e.BatchCount() != 1 || e.LastSequence() != 1 {
		t.Errorf("loaded %d: %+v", m.MapEndOffset(), e)
	}
	l.wantFiles(2)
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
	for _, allow := range []bool{false, true} {
		m := l.open(Config{AllowBareSnapshots: allow})
		if err := m.TruncateAndReload(0, 1, 0); !errors.Is(err, ErrUnsupportedVersion) {
			t.Errorf("bare snapshots allowed %v: %v", allow, err)
		}
	}
	l.wantFiles(1)
}

// Kafka wrote in between, forgot the name's producer, and removed our snapshots: the side file that it left still knows.
func TestReload_AdoptsNamed(t *testing.T) {
	l := newLog(t, noTxnCheck)
	named := Named{ID: MinNamedProducerID + 5, FirstCount: 3, Name: "orders"}
	if err := l.m.SetNamed(named); err != nil {
		t.Fatal(err)
	}
	l.ok(l.client(txn(named.ID, 0, 4)))
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
		// Whether its transaction is still open is for the log to say.
		if _, open := m.FirstUndecidedOffset(); open || e.CurrentTxnFirstOffset != NoOffset {
			t.Errorf("%+v: a transaction is open: %+v", c, e)
		}
		if _, ok := m.LastEntry(1); ok {
			t.Error("a producer without a name was adopted")
		}
	}
}
