package producerstate

import (
	"testing"
	"time"
)

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
