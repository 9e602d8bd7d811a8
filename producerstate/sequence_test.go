package producerstate

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/oncelog/oncelog/record"
)

// The worked sequence of the specification: one producer, one record a batch.
func TestAppend_WorkedSequence(t *testing.T) {
	l := newLog(t, noTxnCheck)
	e := func(epoch int16, seq int32) batchSpec { return batchSpec{pid: 1, epoch: epoch, seq: seq} }
	l.ok(l.client(e(0, 0)))
	r := l.ok(l.client(e(0, 1)))
	l.dup(r.first)(l.client(e(0, 1)))
	l.refused(ErrOutOfOrderSequence)(l.client(e(0, 5)))
	l.ok(l.client(e(1, 0)))
	l.refused(ErrInvalidProducerEpoch)(l.client(e(0, 2)))
	l.refused(ErrOutOfOrderSequence)(l.client(e(2, 3)))

	l = newLog(t, noTxnCheck)
	l.ok(l.client(e(0, math.MaxInt32)))
	l.refused(ErrOutOfOrderSequence)(l.client(e(0, 1)))
	l.ok(l.client(e(0, 0)))

	l = newLog(t, noTxnCheck)
	for seq := range int32(6) {
		l.ok(l.client(e(0, seq)))
	}
	l.refused(ErrOutOfOrderSequence)(l.client(e(0, 0)))
	l.dup(1)(l.client(e(0, 1)))

	l = newLog(t, noTxnCheck)
	l.ok(l.client(batchSpec{pid: 1, n: 5}))
	l.refused(ErrOutOfOrderSequence)(l.client(batchSpec{pid: 1, n: 3}))
	l.dup(0)(l.client(batchSpec{pid: 1, n: 5}))

	l = newLog(t, noTxnCheck)
	l.ok(l.commit(1, 2, 0))
	l.refused(ErrInvalidProducerEpoch)(l.client(e(0, 0)))
	l.refused(ErrOutOfOrderSequence)(l.client(e(2, 17)))
	l.ok(l.client(e(2, 0)))
}

// The exact range decides, and the epoch belongs to it.
func TestAppend_DuplicateMatchesWholeRange(t *testing.T) {
	fill := func() *testLog {
		l := newLog(t, noTxnCheck)
		for i := range int32(6) {
			l.ok(l.client(batchSpec{pid: 7, epoch: 3, seq: 5 * i, n: 5, timestamp: 100 + int64(i)}))
		}
		return l
	}
	tests := []struct {
		name  string
		batch batchSpec
		dup   int64 // first offset, -1: none
		err   error
	}{
		{"newest", batchSpec{pid: 7, epoch: 3, seq: 25, n: 5}, 25, nil},
		{"fifth newest", batchSpec{pid: 7, epoch: 3, seq: 5, n: 5}, 5, nil},
		{"sixth newest", batchSpec{pid: 7, epoch: 3, seq: 0, n: 5}, -1, ErrOutOfOrderSequence},
		{"merged", batchSpec{pid: 7, epoch: 3, seq: 20, n: 10}, -1, ErrOutOfOrderSequence},
		{"split", batchSpec{pid: 7, epoch: 3, seq: 25, n: 3}, -1, ErrOutOfOrderSequence},
		{"end of one", batchSpec{pid: 7, epoch: 3, seq: 27, n: 3}, -1, ErrOutOfOrderSequence},
		{"next", batchSpec{pid: 7, epoch: 3, seq: 30, n: 5}, -1, nil},
		{"gap of one", batchSpec{pid: 7, epoch: 3, seq: 31, n: 5}, -1, ErrOutOfOrderSequence},
		{"same range, next epoch", batchSpec{pid: 7, epoch: 4, seq: 25, n: 5}, -1, ErrOutOfOrderSequence},
		{"next epoch from 0", batchSpec{pid: 7, epoch: 4, seq: 0, n: 5}, -1, nil},
		{"same range, older epoch", batchSpec{pid: 7, epoch: 2, seq: 25, n: 5}, -1, ErrInvalidProducerEpoch},
		{"another producer", batchSpec{pid: 8, epoch: 3, seq: 25, n: 5}, -1, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := fill()
			before := l.m.state()
			r, err := l.client(tt.batch)
			if !errors.Is(err, tt.err) || r.dup != (tt.dup >= 0) {
				t.Fatalf("append: %+v, %v; want duplicate of %d, error %v", r, err, tt.dup, tt.err)
			}
			if r.dup && (r.first != tt.dup || r.last != tt.dup+4 || r.timestamp != 100+tt.dup/5) {
				t.Errorf("duplicate of %+v, want the batch at %d", r, tt.dup)
			}
			if err != nil || r.dup {
				if d := diffStates(before, l.m.state()); d != "" {
					t.Errorf("the refused append changed the state:\n%s", d)
				}
			}
		})
	}
}

// With four remembered batches instead of five, a retry that a client may legally send would be stored twice or refused.
func TestAppend_FiveBatchesRemembered(t *testing.T) {
	l := newLog(t, noTxnCheck)
	for i := range int32(40) {
		l.ok(l.client(batchSpec{pid: 1, seq: i}))
		for back := range int32(min(i+1, 5)) {
			l.dup(int64(i - back))(l.client(batchSpec{pid: 1, seq: i - back}))
		}
		if i >= 5 {
			l.refused(ErrOutOfOrderSequence)(l.client(batchSpec{pid: 1, seq: i - 5}))
		}
		if e, _ := l.m.LastEntry(1); e.BatchCount() != int(min(i+1, 5)) || e.LastSequence() != i {
			t.Fatalf("after batch %d: %d batches, last sequence %d", i, e.BatchCount(), e.LastSequence())
		}
	}
}

func TestAppend_SequenceWrapsInsideBatch(t *testing.T) {
	l := newLog(t, noTxnCheck)
	l.next = 2000
	l.ok(l.append(Replication, batchSpec{pid: 1, seq: math.MaxInt32 - 10, n: 21}.batch()))
	e, _ := l.m.LastEntry(1)
	b, _ := e.LastBatch()
	if b.FirstSequence() != math.MaxInt32-10 || b.LastSequence != 9 || b.FirstOffset() != 2000 || b.LastOffset != 2020 {
		t.Errorf("remembered %+v", b)
	}
	l.dup(2000)(l.client(batchSpec{pid: 1, seq: math.MaxInt32 - 10, n: 21}))
	l.refused(ErrOutOfOrderSequence)(l.client(batchSpec{pid: 1, seq: 9}))
	l.ok(l.client(batchSpec{pid: 1, seq: 10}))
}

// Sequences wrap at 2^31 and nowhere else.
func TestAppend_SequenceWrapsNowhereElse(t *testing.T) {
	for bits := 2; bits < 31; bits++ {
		l := newLog(t, noTxnCheck)
		last := int32(1)<<bits - 1
		l.ok(l.client(batchSpec{pid: 1, seq: last - 1}))
		l.ok(l.client(batchSpec{pid: 1, seq: last}))
		l.refused(ErrOutOfOrderSequence)(l.client(batchSpec{pid: 1, seq: 0}))
		l.ok(l.client(batchSpec{pid: 1, seq: last + 1}))
	}
}

func TestSequenceError_Fields(t *testing.T) {
	l := newLog(t, Config{})
	l.ok(l.client(batchSpec{pid: 4, epoch: 1, seq: 150, n: 6}))
	l.ok(l.commit(5, 9, 0))
	tests := []struct {
		name string
		b    batchSpec
		want SequenceError
	}{
		{"gap", batchSpec{pid: 4, epoch: 1, seq: 158}, SequenceError{CurrentEpoch: 1, Expected: 156, Offset: 5, Known: true, Gap: 2, Reason: NotNext}},
		{"behind", batchSpec{pid: 4, epoch: 1, seq: 100}, SequenceError{CurrentEpoch: 1, Expected: 156, Offset: 5, Known: true, Gap: -1, Reason: NotNext}},
		{"overlap", batchSpec{pid: 4, epoch: 1, seq: 155}, SequenceError{CurrentEpoch: 1, Expected: 156, Offset: 5, Known: true, Gap: -1, Reason: NotNext}},
		{"far ahead", batchSpec{pid: 4, epoch: 1, seq: 156 + math.MaxInt32/2}, SequenceError{CurrentEpoch: 1, Expected: 156, Offset: 5, Known: true, Gap: math.MaxInt32 / 2, Reason: NotNext}},
		{"over half way", batchSpec{pid: 4, epoch: 1, seq: 157 + math.MaxInt32/2}, SequenceError{CurrentEpoch: 1, Expected: 156, Offset: 5, Known: true, Gap: -1, Reason: NotNext}},
		{"new epoch", batchSpec{pid: 4, epoch: 2, seq: 3}, SequenceError{CurrentEpoch: 1, Expected: 0, Offset: 5, Known: true, Gap: 3, Reason: NewEpochNotZero}},
		{"marker only", batchSpec{pid: 5, epoch: 9, seq: 3}, SequenceError{CurrentEpoch: 9, Expected: 0, Offset: -1, Gap: 3, Reason: NotNext}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := l.client(tt.b)
			var got *SequenceError
			if !errors.As(err, &got) || !errors.Is(err, ErrOutOfOrderSequence) {
				t.Fatalf("append: %v", err)
			}
			tt.want.ProducerID, tt.want.ProducerEpoch, tt.want.Sequence = tt.b.pid, tt.b.epoch, tt.b.seq
			tt.want.AtOffset = l.next
			if *got != tt.want {
				t.Errorf("got  %+v\nwant %+v", *got, tt.want)
			}
			if s := got.Error(); !strings.HasPrefix(s, "producerstate: out of order sequence number: producer ") {
				t.Errorf("text: %s", s)
			}
		})
	}
}

// The gap is counted across the wrap.
func TestSequenceError_GapAcrossWrap(t *testing.T) {
	l := newLog(t, noTxnCheck)
	l.ok(l.client(batchSpec{pid: 1, seq: math.MaxInt32}))
	_, err := l.client(batchSpec{pid: 1, seq: 4})
	var e *SequenceError
	if !errors.As(err, &e) || e.Expected != 0 || e.Gap != 4 {
		t.Errorf("got %+v", e)
	}
	_, err = l.client(batchSpec{pid: 1, seq: math.MaxInt32 - 1})
	if !errors.As(err, &e) || e.Expected != 0 || e.Gap != -1 {
		t.Errorf("got %+v", e)
	}
}

func TestAppend_UnknownProducerRules(t *testing.T) {
	at := func(rule UnknownRule, next int64) *testLog {
		l := newLog(t, Config{SkipVerification: true, UnknownProducers: rule})
		l.next = next
		return l
	}
	accept := func(*testLog) error { return nil }
	tests := []struct {
		rule  UnknownRule
		next  int64
		setup func(*testLog) error
		epoch int16
		want  error
	}{
		{UnknownKafka44, 0, accept, 0, nil},
		{UnknownKafka25, 0, accept, 0, nil},
		{UnknownRefused, 0, accept, 0, ErrUnknownProducerID},
		{UnknownRefused, 70, accept, 0, ErrUnknownProducerID},
		{UnknownAtLogStart, 0, accept, 0, ErrOutOfOrderSequence},
		{UnknownAtLogStart, 70, accept, 0, nil},
		{UnknownKafka44, 0, func(l *testLog) error { _, err := l.commit(3, 0, 0); return err }, 0, ErrOutOfOrderSequence},
		{UnknownRefused, 0, func(l *testLog) error { _, err := l.commit(3, 0, 0); return err }, 0, ErrUnknownProducerID},
		{UnknownRefused, 0, func(l *testLog) error { _, err := l.client(batchSpec{pid: 3}); return err }, 1, ErrOutOfOrderSequence},
	}
	for _, tt := range tests {
		l := at(tt.rule, tt.next)
		if err := tt.setup(l); err != nil {
			t.Fatal(err)
		}
		_, err := l.client(batchSpec{pid: 3, epoch: tt.epoch, seq: 5})
		if !errors.Is(err, tt.want) {
			t.Errorf("rule %d at offset %d: %v, want %v", tt.rule, tt.next, err, tt.want)
		}
		if err == nil {
			l.ok(l.client(batchSpec{pid: 3, seq: 6}))
		}
	}
	// A sequence of 0 passes under every rule.
	for rule := UnknownKafka44; rule <= UnknownAtLogStart; rule++ {
		l := at(rule, 0)
		l.ok(l.client(batchSpec{pid: 3}))
	}
}

func TestAppend_ClientCannotSend(t *testing.T) {
	l := newLog(t, noTxnCheck)
	l.refused(record.ErrInvalidRecord)(l.client(batchSpec{pid: 1, seq: -1}))
	l.refused(record.ErrInvalidRecord)(l.append(Client, marker(1, 0, record.Commit, 0, 1)))
	l.refused(record.ErrInvalidRecord)(l.client(batchSpec{pid: -5}))
	l.ok(l.client(batchSpec{pid: -1, epoch: -1, seq: -1}))
	if l.m.Len() != 0 || l.m.MapEndOffset() != 1 {
		t.Errorf("%d producers, map end %d", l.m.Len(), l.m.MapEndOffset())
	}
	// Kafka stores a negative id and remembers nothing.
	l = newLog(t, Config{Compat: true})
	l.ok(l.client(batchSpec{pid: -5}))
	if l.m.Len() != 0 {
		t.Errorf("%d producers", l.m.Len())
	}
}

// Ids at both ends of the range are ids like others.
func TestAppend_ProducerIDs(t *testing.T) {
	for _, pid := range []int64{0, 1, math.MaxInt32, 1 << 62, math.MaxInt64} {
		l := newLog(t, noTxnCheck)
		l.ok(l.client(batchSpec{pid: pid}))
		l.dup(0)(l.client(batchSpec{pid: pid}))
		l.ok(l.client(batchSpec{pid: pid, seq: 1}))
		l.refused(ErrOutOfOrderSequence)(l.client(batchSpec{pid: pid, seq: 3}))
	}
}

func TestAppend_SeveralBatchesInOneCall(t *testing.T) {
	l := newLog(t, noTxnCheck)
	b := func(pid int64, seq, n int32) record.Batch { return batchSpec{pid: pid, seq: seq, n: n}.batch() }
	l.ok(l.append(Client, b(1, 0, 2), b(2, 0, 1), b(1, 2, 3), b(2, 1, 1)))
	// The second batch breaks the rules: neither is stored.
	before := l.m.state()
	l.refused(ErrOutOfOrderSequence)(l.append(Client, b(1, 5, 1), b(1, 7, 1)))
	l.refused(ErrOutOfOrderSequence)(l.append(Client, b(1, 5, 1), b(1, 5, 1)))
	// A duplicate ends the call, also behind a new batch.
	r, err := l.append(Client, b(1, 5, 1), b(2, 1, 1))
	if err != nil || !r.dup || r.first != 6 {
		t.Errorf("got %+v, %v", r, err)
	}
	if d := diffStates(before, l.m.state()); d != "" {
		t.Errorf("state changed:\n%s", d)
	}
	// More than five in one call, of more producers than are searched one by one.
	var call []record.Batch
	for i := range int32(7) {
		for pid := range int64(20) {
			call = append(call, b(100+pid, i, 1))
		}
	}
	l.ok(l.append(Client, call...))
	for pid := range int64(20) {
		e, ok := l.m.LastEntry(100 + pid)
		if first, _ := e.LastBatch(); !ok || e.BatchCount() != 5 || first.LastSequence != 6 {
			t.Fatalf("producer %d: %+v", 100+pid, e)
		}
		l.dup(7 + 20*2 + pid)(l.client(batchSpec{pid: 100 + pid, seq: 2}))
		l.refused(ErrOutOfOrderSequence)(l.client(batchSpec{pid: 100 + pid, seq: 1}))
	}
}

// An append whose bytes did not reach the log is analysed and not published: nothing of it stays, in the table, in later
// appends or in a snapshot.
func TestAppend_AbandonedCallLeavesNothing(t *testing.T) {
	calls := map[string][]record.Batch{
		"next batch":      {batchSpec{pid: 1, seq: 1, n: 4}.batch()},
		"several batches": {batchSpec{pid: 1, seq: 1}.batch(), batchSpec{pid: 2}.batch(), batchSpec{pid: 1, seq: 2}.batch()},
		"transaction":     {txn(1, 0, 1).batch()},
		"new producer":    {batchSpec{pid: 3}.batch()},
	}
	for name, call := range calls {
		l := newLog(t, noTxnCheck)
		l.ok(l.client(batchSpec{pid: 1}))
		before := l.m.state()
		l.m.Prepare(&l.a, AppendOptions{Clock: 5000})
		for i, b := range call {
			if _, isDup, err := l.a.Append(b, OffsetOnly(int64(1+i))); isDup || err != nil {
				t.Fatal(name, isDup, err)
			}
		}
		if d := diffStates(before, l.m.state()); d != "" {
			t.Errorf("%s: state changed:\n%s", name, d)
		}
		l.ok(l.client(batchSpec{pid: 9}))
		l.ok(l.client(batchSpec{pid: 1, seq: 1}))
		l.snapshot()
		s, err := ReadPair(l.fsys, testDir, 3)
		if err != nil || s.Len() != 2 || s.NewestClock != l.clock {
			t.Fatalf("%s: %+v, %v", name, s, err)
		}
		if e, _ := s.Entry(1); e.BatchCount() != 2 || e.LastSequence() != 1 || e.CurrentTxnFirstOffset != NoOffset {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// The map that finds a producer's working copy among many starts anew with each call.
func TestAppend_ManyProducersCallAfterCall(t *testing.T) {
	l := newLog(t, noTxnCheck)
	for round := range int32(4) {
		var call []record.Batch
		for i := range int64(30) {
			pid := i * (1 + int64(round)*7) % 31
			call = append(call, batchSpec{pid: pid, seq: 2 * round}.batch(), batchSpec{pid: pid, seq: 2*round + 1}.batch())
		}
		if round == 0 {
			call = append(call, batchSpec{pid: 30}.batch(), batchSpec{pid: 30, seq: 1}.batch())
		}
		seen := map[int64]bool{}
		for _, b := range call {
			seen[b.ProducerID()] = true
		}
		for pid := range int64(31) {
			if !seen[pid] {
				call = append(call, batchSpec{pid: pid, seq: 2 * round}.batch(), batchSpec{pid: pid, seq: 2*round + 1}.batch())
			}
		}
		l.ok(l.append(Client, call...))
	}
	for e := range l.m.Active() {
		if e.LastSequence() != 7 || e.BatchCount() != 5 {
			t.Errorf("producer %d: %+v", e.ProducerID, e)
		}
	}
}

// A coordinator writes offsets without sequences, as often as it likes.
func TestAppend_CoordinatorWithoutSequences(t *testing.T) {
	l := newLog(t, noTxnCheck)
	for range 3 {
		l.ok(l.append(Coordinator, batchSpec{pid: 1, seq: -1, txn: true}.batch()))
	}
	e, _ := l.m.LastEntry(1)
	if e.LastSequence() != -1 || e.BatchCount() != 3 || e.CurrentTxnFirstOffset != 0 {
		t.Errorf("%+v", e)
	}
	b, _ := e.LastBatch()
	if b.FirstSequence() != math.MaxInt32 {
		t.Errorf("first sequence of a batch without one: %d", b.FirstSequence())
	}
}

// The hot path of a log: one producer known to the table, nothing allocated.
func TestAppend_AllocatesNothing(t *testing.T) {
	m, err := Open(newLog(t, noTxnCheck).fsys, testDir, noTxnCheck)
	if err != nil {
		t.Fatal(err)
	}
	var a AppendInfo
	b := batchSpec{pid: 9, seq: 0}.batch()
	seq := int32(0)
	step := func() {
		b[56], b[55], b[54], b[53] = byte(seq), byte(seq>>8), byte(seq>>16), byte(seq>>24)
		m.Prepare(&a, AppendOptions{Clock: int64(seq)})
		if _, _, err := a.Append(b, OffsetOnly(int64(seq))); err != nil {
			t.Fatal(err)
		}
		m.Publish(&a)
		m.UpdateMapEndOffset(int64(seq) + 1)
		seq++
	}
	step()
	if n := testing.AllocsPerRun(1000, step); n != 0 {
		t.Errorf("%v allocations per append", n)
	}
	dup := func() {
		m.Prepare(&a, AppendOptions{})
		if _, isDup, err := a.Append(b, OffsetOnly(5)); err != nil || !isDup {
			t.Fatal(isDup, err)
		}
	}
	if n := testing.AllocsPerRun(1000, dup); n != 0 {
		t.Errorf("%v allocations per duplicate", n)
	}
}
