package producerstate

import (
	"errors"
	"testing"

	"github.com/oncelog/oncelog/record"
)

func start(t *testing.T, l *testLog, pid int64, seq int32, epoch int16, bump bool) Guard {
	t.Helper()
	g, err := l.m.MaybeStartVerification(pid, seq, epoch, bump, l.clock)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestVerification_GuardsTheFirstBatch(t *testing.T) {
	for _, origin := range []Origin{Client, Coordinator} {
		l := newLog(t, Config{})
		b := func(seq int32) record.Batch { return txn(1, 0, seq).batch() }
		l.refused(ErrInvalidTxnState)(l.append(origin, b(0)))
		g := start(t, l, 1, 0, 0, false)
		if g == NoGuard {
			t.Fatal("no guard")
		}
		if again := start(t, l, 1, 0, 0, false); again != g {
			t.Errorf("guard %d, then %d", g, again)
		}
		// A batch outside of transactions does not use the guard up.
		l.ok(l.append(origin, batchSpec{pid: 1}.batch()))
		if _, running := l.m.Verification(1); !running {
			t.Error("ended by a batch without a transaction")
		}
		l.guard = g + 1
		l.refused(ErrInvalidTxnState)(l.append(origin, txn(1, 0, 1).batch()))
		g = start(t, l, 1, 0, 0, false)
		l.guard = g
		if origin == Client {
			l.refused(ErrOutOfOrderSequence)(l.append(origin, b(1))) // 1 is above the lowest sequence, 0
			l = newLog(t, Config{})
			l.guard = start(t, l, 1, 0, 0, false)
			l.ok(l.append(origin, b(0)))
		} else {
			l.ok(l.append(origin, b(1)))
		}
		if _, running := l.m.Verification(1); running {
			t.Error("not ended by its batch")
		}
		if g := start(t, l, 1, 5, 0, false); g != NoGuard {
			t.Errorf("guard %d while the transaction is open", g)
		}
		l.guard = NoGuard
		l.ok(l.append(origin, txn(1, 0, 1+map[Origin]int32{Coordinator: 1}[origin]).batch()))
		l.ok(l.abort(1, 0, 0))
		// A late retry with the guard of the transaction before must not open another.
		l.guard = g
		l.refused(ErrInvalidTxnState)(l.append(origin, txn(1, 0, 9).batch()))
		if next := start(t, l, 1, 9, 0, false); next == g || next == NoGuard {
			t.Errorf("guard %d again", next)
		}
	}
}

func TestVerification_NotForReplicationOrMarkers(t *testing.T) {
	l := newLog(t, Config{})
	l.ok(l.append(Replication, txn(1, 0, 0).batch()))
	l.ok(l.commit(1, 0, 0))
	l.ok(l.commit(2, 0, 0))
	l.m.Configure(Config{SkipVerification: true})
	l.ok(l.client(txn(3, 0, 0)))
}

func TestVerification_EntryUpdates(t *testing.T) {
	l := newLog(t, Config{})
	steps := []struct {
		seq       int32
		epoch     int16
		bump      bool
		wantSeq   int32
		wantEpoch int16
	}{
		{5, 1, false, 5, 1},
		{2, 1, false, 2, 1}, // lower sequence
		{7, 1, true, 2, 1},  // higher one; the version stays that of the first call
		{9, 3, false, 9, 3}, // higher epoch
		{1, 2, false, 9, 3}, // lower epoch
		{8, 3, false, 8, 3},
	}
	for i, s := range steps {
		g := start(t, l, 1, s.seq, s.epoch, s.bump)
		v, ok := l.m.Verification(1)
		want := Verification{ProducerID: 1, Guard: g, Since: l.clock, LowestSequence: s.wantSeq, Epoch: s.wantEpoch}
		if !ok || v != want || g != 1 {
			t.Errorf("step %d: %+v, want %+v", i, v, want)
		}
	}
	n := 0
	for range l.m.Verifications() {
		n++
	}
	if n != 1 {
		t.Errorf("%d verifications", n)
	}
}

// A later batch that overtook the first one waits for it, also when verification is off.
func TestVerification_LowestSequence(t *testing.T) {
	l := newLog(t, Config{})
	start(t, l, 1, 5, 0, false)
	l.guard = start(t, l, 1, 2, 0, false)
	_, err := l.client(txn(1, 0, 5))
	var e *SequenceError
	if !errors.As(err, &e) || e.Reason != AboveVerified || e.Expected != 2 || e.Gap != 3 || e.Known {
		t.Errorf("got %+v", e)
	}
	l.ok(l.client(batchSpec{pid: 1, seq: 2, n: 3, txn: true}))
	l.guard = NoGuard
	l.ok(l.client(txn(1, 0, 5)))

	l = newLog(t, noTxnCheck)
	start(t, l, 1, 2, 0, false)
	l.refused(ErrOutOfOrderSequence)(l.client(txn(1, 0, 5)))
	l.refused(ErrOutOfOrderSequence)(l.client(batchSpec{pid: 1, seq: 5}))
}

// It also binds batches of an epoch below the one verified, as in Kafka.
func TestVerification_BindsOlderEpoch(t *testing.T) {
	l := newLog(t, Config{})
	l.guard = start(t, l, 1, 0, 2, false)
	l.ok(l.client(txn(1, 2, 0)))
	start(t, l, 1, 0, 3, false)
	l.refused(ErrOutOfOrderSequence)(l.client(txn(1, 2, 1)))
}

func TestVerification_Version2UnknownProducer(t *testing.T) {
	tests := []struct {
		name   string
		bump   bool
		marker bool
		rule   UnknownRule
		seq    int32
		want   error
	}{
		{"version 2", true, false, UnknownKafka44, 3, ErrOutOfOrderSequence},
		{"version 2, known by a marker", true, true, UnknownKafka44, 3, ErrOutOfOrderSequence},
		{"version 2, from 0", true, false, UnknownKafka44, 0, nil},
		{"version 1", false, false, UnknownKafka44, 3, nil},
		{"version 2 before the rule", true, false, UnknownKafka25, 3, nil},
	}
	for _, tt := range tests {
		l := newLog(t, Config{UnknownProducers: tt.rule})
		if tt.marker {
			l.ok(l.commit(1, 0, 0))
		}
		l.guard = start(t, l, 1, tt.seq, 0, tt.bump)
		_, err := l.client(txn(1, 0, tt.seq))
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
		var e *SequenceError
		if errors.As(err, &e) && (e.Expected != 0 || e.Gap != 3 || e.Known) {
			t.Errorf("%s: %+v", tt.name, e)
		}
	}
}

// The verification of the next transaction may overtake the marker of the one before. With version 2 the marker carries
// the next epoch already and does not end it; any other marker does.
func TestVerification_AndMarkers(t *testing.T) {
	tests := []struct {
		name        string
		bump        bool
		entryEpoch  int16
		markerEpoch int16
		kept        bool
	}{
		{"version 2, same epoch", true, 1, 1, true},
		{"version 2, marker above", true, 1, 2, false},
		{"version 1, same epoch", false, 1, 1, false},
	}
	for _, tt := range tests {
		l := newLog(t, noTxnCheck)
		l.ok(l.client(txn(1, 0, 0)))
		start(t, l, 1, 0, tt.entryEpoch, tt.bump)
		l.ok(l.commit(1, tt.markerEpoch, 0))
		if _, kept := l.m.Verification(1); kept != tt.kept {
			t.Errorf("%s: kept %v", tt.name, kept)
		}
	}
}

func TestVerification_StaleEpoch(t *testing.T) {
	l := newLog(t, Config{})
	l.ok(l.append(Replication, batchSpec{pid: 1, epoch: 4, seq: 0}.batch()))
	_, err := l.m.MaybeStartVerification(1, 0, 3, false, l.clock)
	var e *EpochError
	if !errors.As(err, &e) || e.CurrentEpoch != 4 || e.Epoch != 3 {
		t.Errorf("start: %v", err)
	}
	// The epoch is looked at before the guard, for batches and for markers.
	l.refused(ErrInvalidProducerEpoch)(l.client(txn(1, 3, 0)))
	l.refused(ErrInvalidProducerEpoch)(l.commit(1, 3, 0))
	// A transaction open in an older epoch does not stand for one of this epoch.
	l.ok(l.append(Replication, txn(1, 4, 1).batch()))
	l.refused(ErrInvalidTxnState)(l.client(txn(1, 5, 0)))
	l.guard = start(t, l, 1, 0, 5, false)
	l.ok(l.client(txn(1, 5, 0)))
	if e, _ := l.m.LastEntry(1); e.CurrentTxnFirstOffset != 1 || e.ProducerEpoch != 5 {
		t.Errorf("%+v", e)
	}
}

// Only the first batch of a call is covered: it ends the verification, and the transaction is not open before the call
// is published. A request of a client has one batch a partition.
func TestVerification_SecondBatchOfACall(t *testing.T) {
	l := newLog(t, Config{})
	l.guard = start(t, l, 1, 0, 0, false)
	l.refused(ErrInvalidTxnState)(l.append(Client, txn(1, 0, 0).batch(), txn(1, 0, 1).batch()))
}

// A duplicate is found before anything about transactions is looked at.
func TestVerification_DuplicateComesFirst(t *testing.T) {
	l := newLog(t, Config{})
	l.guard = start(t, l, 1, 0, 0, false)
	l.ok(l.client(txn(1, 0, 0)))
	l.guard = NoGuard
	l.ok(l.commit(1, 0, 0))
	l.dup(0)(l.client(txn(1, 0, 0)))
}

// A guard of an earlier manager must not pass in a later one, whose guards begin elsewhere.
func TestVerification_GuardsOfAnEarlierRun(t *testing.T) {
	stale := start(t, newLog(t, Config{}), 1, 0, 0, false)
	l := newLog(t, Config{GuardsAbove: 1 << 32})
	if g := start(t, l, 1, 0, 0, false); g <= 1<<32 {
		t.Errorf("guard %d", g)
	}
	l.guard = stale
	l.refused(ErrInvalidTxnState)(l.append(Client, txn(1, 0, 0).batch()))
}
