package producerstate

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
)

const testDir = "/log"

// batchSpec describes a batch; its header is all that producer state looks at.
type batchSpec struct {
	pid       int64
	epoch     int16
	seq       int32
	n         int32 // records; 0 means 1
	txn       bool
	control   bool
	timestamp int64
}

// batch returns the header of a v2 batch without its records.
func (s batchSpec) batch() record.Batch {
	b := make([]byte, record.Overhead)
	n := max(s.n, 1)
	binary.BigEndian.PutUint32(b[8:], record.Overhead-record.LogOverhead)
	b[16] = record.Magic
	attrs := uint16(0)
	if s.txn {
		attrs |= 0x10
	}
	if s.control {
		attrs |= 0x20
	}
	binary.BigEndian.PutUint16(b[21:], attrs)
	binary.BigEndian.PutUint32(b[23:], uint32(n-1))
	binary.BigEndian.PutUint64(b[27:], uint64(s.timestamp))
	binary.BigEndian.PutUint64(b[35:], uint64(s.timestamp))
	binary.BigEndian.PutUint64(b[43:], uint64(s.pid))
	binary.BigEndian.PutUint16(b[51:], uint16(s.epoch))
	binary.BigEndian.PutUint32(b[53:], uint32(s.seq))
	count := n
	if s.control {
		count = 0
	}
	binary.BigEndian.PutUint32(b[57:], uint32(count))
	return b
}

// marker returns an end-transaction batch.
func marker(pid int64, epoch int16, kind record.ControlType, coordinator int32, ts int64) record.Batch {
	return record.AppendEndTxnMarker(nil, record.Producer{ID: pid, Epoch: epoch},
		record.EndTxnMarker{Type: kind, CoordinatorEpoch: coordinator}, ts)
}

// stored is a batch of the log with the clock it was appended at.
type stored struct {
	b     record.Batch
	at    int64
	clock int64
}

// testLog drives a Manager as a log does.
type testLog struct {
	t       *testing.T
	fsys    vfs.FS
	m       *Manager
	a       AppendInfo
	next    int64
	clock   int64
	guard   Guard
	version int8
	log     []stored
	ended   []CompletedTxn
	lso     []int64
}

// newLog returns an empty log in memory; its transactions need no verification unless verify is set.
func newLog(t *testing.T, c Config) *testLog {
	t.Helper()
	l := &testLog{t: t, fsys: newMemDir(t), clock: 1000}
	l.m = l.open(c)
	return l
}

// open returns a manager on the log's directory.
func (l *testLog) open(c Config) *Manager {
	l.t.Helper()
	m, err := Open(l.fsys, testDir, c)
	if err != nil {
		l.t.Fatal(err)
	}
	return m
}

// result is the answer to an append.
type result struct {
	first, last int64
	dup         bool
	timestamp   int64
}

// append analyses and publishes batches as one call, from offset l.next on.
func (l *testLog) append(origin Origin, batches ...record.Batch) (result, error) {
	l.m.Prepare(&l.a, AppendOptions{Origin: origin, Guard: l.guard, TransactionVersion: l.version, Clock: l.clock})
	next := l.next
	for _, b := range batches {
		dup, isDup, err := l.a.Append(b, OffsetMetadata{Offset: next, SegmentBase: 0, Position: next * 100})
		if err != nil {
			return result{}, err
		}
		if isDup {
			return result{dup.FirstOffset(), dup.LastOffset, true, dup.Timestamp}, nil
		}
		next += int64(b.LastOffsetDelta()) + 1
	}
	r := result{first: l.next, last: next - 1}
	for _, b := range batches {
		l.log = append(l.log, stored{b, l.next, l.clock})
		l.next += int64(b.LastOffsetDelta()) + 1
	}
	l.m.Publish(&l.a)
	for _, c := range l.a.Completed() {
		l.ended = append(l.ended, c)
		l.lso = append(l.lso, l.m.LastStableOffset(c))
		if err := l.m.CompleteTxn(c); err != nil {
			l.t.Fatal(err)
		}
	}
	l.m.UpdateMapEndOffset(l.next)
	return r, nil
}

// client appends one batch as a producer does.
func (l *testLog) client(s batchSpec) (result, error) { return l.append(Client, s.batch()) }

// commit and abort append a marker as a coordinator does.
func (l *testLog) commit(pid int64, epoch int16, coordinator int32) (result, error) {
	return l.append(Coordinator, marker(pid, epoch, record.Commit, coordinator, l.clock))
}

func (l *testLog) abort(pid int64, epoch int16, coordinator int32) (result, error) {
	return l.append(Coordinator, marker(pid, epoch, record.Abort, coordinator, l.clock))
}

// ok fails the test unless an append was accepted as new.
func (l *testLog) ok(r result, err error) result {
	l.t.Helper()
	if err != nil || r.dup {
		l.t.Fatalf("append: %+v, %v; want it accepted", r, err)
	}
	return r
}

// dup fails the test unless an append was answered with the batch that starts at first.
func (l *testLog) dup(first int64) func(result, error) {
	return func(r result, err error) {
		l.t.Helper()
		if err != nil || !r.dup || r.first != first {
			l.t.Fatalf("append: %+v, %v; want a duplicate of offset %d", r, err, first)
		}
	}
}

// refused fails the test unless an append failed with target, and changed nothing.
func (l *testLog) refused(target error) func(result, error) {
	before := l.m.state()
	return func(r result, err error) {
		l.t.Helper()
		if !errors.Is(err, target) {
			l.t.Fatalf("append: %+v, %v; want %v", r, err, target)
		}
		if d := diffStates(before, l.m.state()); d != "" {
			l.t.Fatalf("the refused append changed the state:\n%s", d)
		}
	}
}

// managerState is everything of a manager that callers can see, in comparable form.
type managerState struct {
	Producers map[int64]Entry
	Open      []Txn
	Decided   []Txn
	MapEnd    int64
}

func (m *Manager) state() managerState {
	s := managerState{Producers: map[int64]Entry{}, Open: m.OpenTxns(), Decided: m.DecidedTxns(), MapEnd: m.MapEndOffset()}
	for e := range m.Active() {
		for i := int(e.count); i < BatchesRetained; i++ {
			e.batches[i] = BatchMetadata{}
		}
		s.Producers[e.ProducerID] = e
	}
	return s
}

func diffStates(want, got managerState) string {
	return cmp.Diff(want, got, cmp.AllowUnexported(Entry{}))
}

// replay feeds the log from an offset on to another manager, as recovery does.
func (l *testLog) replay(m *Manager, from int64) {
	l.t.Helper()
	var a AppendInfo
	for _, s := range l.log {
		if s.at < from {
			continue
		}
		m.Prepare(&a, AppendOptions{Origin: Replication, Clock: s.clock, TransactionVersion: NoTransactionVersion})
		if _, _, err := a.Append(s.b, OffsetMetadata{Offset: s.at, SegmentBase: 0, Position: s.at * 100}); err != nil {
			l.t.Fatalf("replaying offset %d: %v", s.at, err)
		}
		m.Publish(&a)
		for _, c := range a.Completed() {
			if err := m.CompleteTxn(c); err != nil {
				l.t.Fatal(err)
			}
		}
		m.UpdateMapEndOffset(s.at + int64(s.b.LastOffsetDelta()) + 1)
	}
}

// noTxnCheck are the settings of most tests: transactions need no verification.
var noTxnCheck = Config{SkipVerification: true}

// newMemDir returns a file system in memory with an empty log directory.
func newMemDir(t testing.TB) *vfstest.Mem {
	t.Helper()
	mem := vfstest.NewMem()
	if err := mem.MkdirAll(testDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := mem.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	return mem
}
