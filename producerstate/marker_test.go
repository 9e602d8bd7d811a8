package producerstate

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/oncelog/oncelog/record"
)

func txn(pid int64, epoch int16, seq int32) batchSpec {
	return batchSpec{pid: pid, epoch: epoch, seq: seq, txn: true}
}

// The second half of the worked sequence: transactions of version 2.
func TestMarker_Version2WorkedSequence(t *testing.T) {
	l := newLog(t, noTxnCheck)
	l.version = 2
	l.ok(l.client(txn(1, 0, 0)))
	l.refused(ErrInvalidProducerEpoch)(l.commit(1, 0, 0))
	l.ok(l.commit(1, 1, 0))
	l.ok(l.abort(1, 1, 0))
	if len(l.ended) != 1 || l.ended[0] != (CompletedTxn{ProducerID: 1, FirstOffset: 0, LastOffset: 1}) {
		t.Errorf("completed %+v", l.ended)
	}
	l.refused(ErrOutOfOrderSequence)(l.client(txn(1, 1, 3)))
	l.ok(l.client(txn(1, 1, 0)))
	if _, err := l.m.MaybeStartVerification(1, 0, 0, true, l.clock); !errors.Is(err, ErrInvalidProducerEpoch) {
		t.Errorf("verification with epoch 0: %v", err)
	}
}

// Every version against every relation of the marker's epoch to the stored one, with and without an open transaction.
func TestMarker_EpochRules(t *testing.T) {
	tests := []struct {
		version int8
		stored  int16
		open    bool
		epoch   int16
		want    error
	}{
		{0, 5, true, 4, ErrInvalidProducerEpoch}, {0, 5, true, 5, nil}, {0, 5, true, 6, nil},
		{0, 5, false, 4, ErrInvalidProducerEpoch}, {0, 5, false, 5, nil}, {0, 5, false, 6, nil},
		{1, 5, true, 4, ErrInvalidProducerEpoch}, {1, 5, true, 5, nil}, {1, 5, true, 6, nil},
		{1, 5, false, 4, ErrInvalidProducerEpoch}, {1, 5, false, 5, nil}, {1, 5, false, 6, nil},
		{2, 5, true, 4, ErrInvalidProducerEpoch}, {2, 5, true, 5, ErrInvalidProducerEpoch}, {2, 5, true, 6, nil},
		{2, 5, false, 4, ErrInvalidProducerEpoch}, {2, 5, false, 5, nil}, {2, 5, false, 6, nil},
		{2, math.MaxInt16, true, math.MaxInt16, nil}, {2, math.MaxInt16, false, math.MaxInt16, nil},
		{2, math.MaxInt16, true, math.MaxInt16 - 1, ErrInvalidProducerEpoch},
		{-1, 5, true, 6, ErrTransactionVersion}, {3, 5, true, 6, ErrTransactionVersion},
	}
	for _, tt := range tests {
		l := newLog(t, noTxnCheck)
		l.ok(l.client(batchSpec{pid: 1, epoch: tt.stored, txn: tt.open}))
		l.version = tt.version
		_, err := l.abort(1, tt.epoch, 3)
		if !errors.Is(err, tt.want) {
			t.Errorf("%+v: %v", tt, err)
			continue
		}
		e, _ := l.m.LastEntry(1)
		if err != nil {
			if e.CoordinatorEpoch != -1 || (e.CurrentTxnFirstOffset >= 0) != tt.open {
				t.Errorf("%+v: state changed: %+v", tt, e)
			}
			continue
		}
		if e.ProducerEpoch != tt.epoch || e.CoordinatorEpoch != 3 || e.CurrentTxnFirstOffset != NoOffset {
			t.Errorf("%+v: state %+v", tt, e)
		}
		if kept := e.BatchCount() == 1; kept != (tt.epoch == tt.stored) {
			t.Errorf("%+v: batches kept: %v", tt, kept)
		}
		if len(l.ended) != map[bool]int{true: 1}[tt.open] {
			t.Errorf("%+v: completed %+v", tt, l.ended)
		}
	}
}

func TestMarker_CoordinatorFencing(t *testing.T) {
	l := newLog(t, noTxnCheck)
	for _, c := range []int32{1, 1, 2} {
		l.ok(l.commit(1, 0, c))
	}
	_, err := l.commit(1, 0, 1)
	var e *CoordinatorError
	if !errors.As(err, &e) || !errors.Is(err, ErrCoordinatorFenced) ||
		*e != (CoordinatorError{ProducerID: 1, Epoch: 1, CurrentEpoch: 2, Offset: 3}) {
		t.Errorf("got %v", err)
	}
}

// A marker of an unknown producer leaves an entry, so that fencing outlives the data.
func TestMarker_FencesZombie(t *testing.T) {
	l := newLog(t, noTxnCheck)
	l.ok(l.client(txn(1, 0, 0)))
	l.ok(l.client(txn(1, 0, 1)))
	l.ok(l.abort(1, 1, 0))
	var e *EpochError
	if _, err := l.client(txn(1, 0, 2)); !errors.As(err, &e) || e.CurrentEpoch != 1 {
		t.Errorf("zombie: %v", err)
	}
	l.refused(ErrOutOfOrderSequence)(l.client(txn(1, 1, 2)))
	l.refused(ErrOutOfOrderSequence)(l.client(txn(1, 2, 2)))
	l.ok(l.client(txn(1, 1, 0)))
}

func TestMarker_Timestamp(t *testing.T) {
	l := newLog(t, noTxnCheck)
	l.ok(l.client(batchSpec{pid: 1, txn: true, timestamp: 50}))
	l.clock = 7777
	l.ok(l.commit(1, 0, 0))
	e, _ := l.m.LastEntry(1)
	if b, _ := e.LastBatch(); e.LastTimestamp != 7777 || b.Timestamp != 50 {
		t.Errorf("last timestamp %d, batch %d", e.LastTimestamp, b.Timestamp)
	}
}

// A control batch that compaction emptied says nothing.
func TestMarker_Emptied(t *testing.T) {
	l := newLog(t, noTxnCheck)
	l.ok(l.client(txn(1, 0, 0)))
	before := l.m.state()
	empty := batchSpec{pid: 1, epoch: 0, seq: -1, txn: true, control: true}
	l.ok(l.append(Replication, empty.batch()))
	before.MapEnd++
	if d := diffStates(before, l.m.state()); d != "" {
		t.Errorf("state changed:\n%s", d)
	}
	empty.pid = 2
	l.ok(l.append(Replication, empty.batch()))
	if _, known := l.m.LastEntry(2); known {
		t.Error("an emptied marker made its producer known")
	}
}

// controlBatch returns a control batch with one record of the given key and value.
func controlBatch(pid int64, key, value []byte) record.Batch {
	b := append([]byte(nil), batchSpec{pid: pid, seq: -1, txn: true, control: true}.batch()...)
	body := []byte{0, 0, 0}
	body = binary.AppendVarint(body, int64(len(key)))
	body = append(body, key...)
	body = binary.AppendVarint(body, int64(len(value)))
	body = append(body, value...)
	body = append(body, 0)
	b = binary.AppendVarint(b, int64(len(body)))
	b = append(b, body...)
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-record.LogOverhead))
	binary.BigEndian.PutUint32(b[57:], 1)
	return b
}

func TestMarker_Malformed(t *testing.T) {
	commit := []byte{0, 0, 0, 1}
	tests := []struct {
		name       string
		key, value []byte
		ok         bool
	}{
		{"right", commit, []byte{0, 0, 0, 0, 0, 3}, true},
		{"newer version and more bytes", []byte{0, 9, 0, 1, 7}, []byte{0, 9, 0, 0, 0, 3, 1, 2}, true},
		{"key of three bytes", commit[:3], []byte{0, 0, 0, 0, 0, 3}, false},
		{"negative key version", []byte{0x80, 0, 0, 1}, []byte{0, 0, 0, 0, 0, 3}, false},
		{"value of five bytes", commit, []byte{0, 0, 0, 0, 0}, false},
		{"negative value version", commit, []byte{0x80, 0, 0, 0, 0, 3}, false},
	}
	for _, tt := range tests {
		for _, origin := range []Origin{Coordinator, Replication} {
			l := newLog(t, noTxnCheck)
			l.ok(l.client(txn(1, 0, 0)))
			before := l.m.state()
			_, err := l.append(origin, controlBatch(1, tt.key, tt.value))
			if (err == nil) != tt.ok || (err != nil && !errors.Is(err, record.ErrInvalidRecord)) {
				t.Errorf("%s, %v: %v", tt.name, origin, err)
			}
			if d := diffStates(before, l.m.state()); err != nil && d != "" {
				t.Errorf("%s, %v: state changed:\n%s", tt.name, origin, d)
			}
		}
	}
}

// A control record of another type, with a producer id, is skipped in a log and refused from a coordinator.
func TestMarker_UnknownType(t *testing.T) {
	for _, kind := range []byte{2, 5, 77} {
		var found []Finding
		c := Config{SkipVerification: true, Report: func(f Finding) { found = append(found, f) }}
		l := newLog(t, c)
		l.ok(l.client(txn(1, 0, 0)))
		b := controlBatch(1, []byte{0, 0, 0, kind}, []byte{0, 0, 0, 0, 0, 3})
		l.refused(record.ErrInvalidRecord)(l.append(Coordinator, b))
		l.ok(l.append(Replication, b))
		if len(found) != 1 || found[0].Kind != UnknownControl || found[0].Offset != 1 || found[0].Got != int64(kind) {
			t.Errorf("type %d: findings %+v", kind, found)
		}
		if e, _ := l.m.LastEntry(1); e.CurrentTxnFirstOffset != 0 {
			t.Errorf("type %d ended the transaction", kind)
		}
		l = newLog(t, Config{Compat: true})
		l.refused(record.ErrInvalidRecord)(l.append(Replication, b))
	}
}

// Replayed batches of an older epoch: taken into account, reported, and never a step back. Kafka goes back.
func TestReplication_OlderEpoch(t *testing.T) {
	for _, compat := range []bool{false, true} {
		var found []Finding
		l := newLog(t, Config{Compat: compat, SkipVerification: true, Report: func(f Finding) { found = append(found, f) }})
		l.ok(l.append(Replication, batchSpec{pid: 1, epoch: 3, seq: 7}.batch()))
		l.ok(l.append(Replication, marker(1, 2, record.Commit, 5, 1)))
		l.ok(l.append(Replication, marker(1, 3, record.Commit, 4, 1)))
		l.ok(l.append(Replication, batchSpec{pid: 1, epoch: 1, seq: 90, txn: true}.batch()))
		e, _ := l.m.LastEntry(1)
		if e.CurrentTxnFirstOffset != 3 {
			t.Errorf("compat %v: transaction at %d", compat, e.CurrentTxnFirstOffset)
		}
		if compat {
			if e.ProducerEpoch != 1 || e.CoordinatorEpoch != 4 || e.LastSequence() != 90 {
				t.Errorf("as Kafka: %+v", e)
			}
		} else if e.ProducerEpoch != 3 || e.CoordinatorEpoch != 5 || e.LastSequence() != 7 {
			t.Errorf("went back: %+v", e)
		}
		want := []FindingKind{OldEpoch, OldCoordinatorEpoch, OldEpoch}
		if len(found) != len(want) {
			t.Fatalf("compat %v: findings %+v", compat, found)
		}
		for i, k := range want {
			if found[i].Kind != k || found[i].Offset != int64(i+1) {
				t.Errorf("compat %v: finding %d: %+v, want kind %v", compat, i, found[i], k)
			}
		}
	}
}

// Batches that are not checked can lie behind others. A real step forward, however large, is told from one back.
func TestReplication_OlderSequence(t *testing.T) {
	const half = math.MaxInt32/2 + 1
	tests := []struct {
		name   string
		offset int64 // of the second batch; the first, 0 to 4, is at 10 to 14
		seq, n int32
		want   int32 // last sequence afterwards
	}{
		{"next", 15, 5, 5, 9},
		{"small gap", 15, 9, 1, 9},
		{"repeated", 15, 0, 5, 4},
		{"split", 15, 0, 2, 4},
		{"overlap that goes on", 15, 3, 4, 6},
		{"behind the wrap", 15, math.MaxInt32 - 3, 2, 4},
		{"far ahead, offsets agree", 15 + half, half + 5, 1, half + 5},
		{"far ahead, offsets do not agree", 15, half + 5, 1, 4},
	}
	for _, tt := range tests {
		l := newLog(t, noTxnCheck)
		l.next = 10
		l.ok(l.append(Replication, batchSpec{pid: 1, n: 5}.batch()))
		l.next = tt.offset
		l.ok(l.append(Replication, batchSpec{pid: 1, seq: tt.seq, n: tt.n}.batch()))
		if e, _ := l.m.LastEntry(1); e.LastSequence() != tt.want {
			t.Errorf("%s: last sequence %d, want %d", tt.name, e.LastSequence(), tt.want)
		}
	}
}

func TestReplication_AcceptsGapsAndUnknownProducers(t *testing.T) {
	l := newLog(t, noTxnCheck)
	l.ok(l.client(batchSpec{pid: 1}))
	l.refused(ErrOutOfOrderSequence)(l.client(batchSpec{pid: 1, seq: 3}))
	l.ok(l.append(Replication, batchSpec{pid: 1, seq: 3}.batch()))
	l.ok(l.append(Replication, batchSpec{pid: 2, epoch: 5, seq: 16}.batch()))
	if e, _ := l.m.LastEntry(1); e.LastSequence() != 3 {
		t.Errorf("%+v", e)
	}
	if e, _ := l.m.LastEntry(2); e.ProducerEpoch != 5 || e.LastSequence() != 16 {
		t.Errorf("%+v", e)
	}
}

// A raft leader's batches are held to epochs, not to sequences or verification.
func TestRaftLeader(t *testing.T) {
	l := newLog(t, Config{})
	l.ok(l.append(RaftLeader, batchSpec{pid: 1, epoch: 2, seq: 9, txn: true}.batch()))
	l.ok(l.append(RaftLeader, batchSpec{pid: 1, epoch: 2, seq: 3, txn: true}.batch()))
	l.refused(ErrInvalidProducerEpoch)(l.append(RaftLeader, batchSpec{pid: 1, epoch: 1, seq: 10, txn: true}.batch()))
}
