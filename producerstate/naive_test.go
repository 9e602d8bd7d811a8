package producerstate

import (
	"errors"
	"maps"
	"math"
	"slices"

	"github.com/oncelog/oncelog/record"
)

// naive is producer state written down as the rules say it, with maps and slices and without thought for speed. It knows
// nothing of the package's own types but those of results.
type naive struct {
	compat    bool
	skip      bool // transactions need no verification
	producers map[int64]*naiveProducer
	open      map[int64]int64 // first offset to producer
	decided   []Txn
	guards    map[int64]*naiveGuard
	lastGuard Guard
	newest    int64
}

type naiveProducer struct {
	epoch    int16
	coord    int32
	lastTime int64
	clock    int64
	txn      int64
	batches  []BatchMetadata
}

type naiveGuard struct {
	guard  Guard
	lowest int32
	epoch  int16
	bump   bool
}

// op is one batch of an append: data, or a marker if kind is not 0.
type op struct {
	batchSpec
	kind  int // 0 data, 1 commit, 2 abort
	coord int32
}

func (o op) batch() record.Batch {
	switch o.kind {
	case 1:
		return marker(o.pid, o.epoch, record.Commit, o.coord, o.timestamp)
	case 2:
		return marker(o.pid, o.epoch, record.Abort, o.coord, o.timestamp)
	}
	return o.batchSpec.batch()
}

func newNaive(compat bool) *naive {
	return &naive{compat: compat, producers: map[int64]*naiveProducer{}, open: map[int64]int64{}, guards: map[int64]*naiveGuard{}}
}

func (p *naiveProducer) clone() *naiveProducer {
	c := *p
	c.batches = slices.Clone(p.batches)
	return &c
}

func (m *naive) clone() *naive {
	c := newNaive(m.compat)
	for pid, p := range m.producers {
		c.producers[pid] = p.clone()
	}
	maps.Copy(c.open, m.open)
	c.newest, c.skip = m.newest, m.skip
	return c
}

func seqAfter(last int32) int32 {
	if last == math.MaxInt32 {
		return 0
	}
	return last + 1
}

func lastSeq(first, n int32) int32 {
	if first == -1 {
		return -1
	}
	return int32((int64(first) + int64(n) - 1) % (1 << 31))
}

// ring keeps the newest five.
func ring(b []BatchMetadata) []BatchMetadata { return b[max(0, len(b)-5):] }

// append decides about a single batch and, if it passes, applies it.
func (m *naive) append(origin Origin, guard Guard, version int8, clock, offset int64, o op) (result, error) {
	n := max(o.n, 1)
	txn, control := o.txn || o.kind > 0, o.kind > 0
	p, known := m.producers[o.pid]
	if origin == Client {
		if control || o.seq < 0 {
			return result{}, record.ErrInvalidRecord
		}
		if known && p.epoch == o.epoch {
			for _, b := range p.batches {
				if b.LastSequence == lastSeq(o.seq, n) && b.OffsetDelta == n-1 {
					return result{b.LastOffset - int64(b.OffsetDelta), b.LastOffset, true, b.Timestamp}, nil
				}
			}
		}
	}
	if txn && (origin == Client || origin == Coordinator) && !(known && p.txn >= 0 && p.epoch == o.epoch) {
		if known && o.epoch < p.epoch {
			return result{}, ErrInvalidProducerEpoch
		}
		if g := m.guards[o.pid]; !control && !m.skip && (g == nil || g.guard != guard || guard == 0) {
			return result{}, ErrInvalidTxnState
		}
	}
	if !known {
		p = &naiveProducer{epoch: -1, coord: -1, lastTime: -1, clock: -1, txn: -1}
	}
	p = p.clone()
	var err error
	if control {
		err = m.marker(p, origin, version, offset, o)
	} else {
		err = m.data(p, known, origin, offset, n, o)
	}
	if err != nil {
		return result{}, err
	}
	p.clock = max(p.clock, clock)
	m.producers[o.pid] = p
	if g := m.guards[o.pid]; txn && g != nil && !(control && g.bump && g.epoch == o.epoch) {
		delete(m.guards, o.pid)
	}
	return result{first: offset, last: offset + int64(n) - 1}, nil
}

func (m *naive) data(p *naiveProducer, known bool, origin Origin, offset int64, n int32, o op) error {
	if o.epoch < p.epoch && origin != Replication {
		return ErrInvalidProducerEpoch
	}
	if origin == Client {
		if g := m.guards[o.pid]; g != nil {
			if g.bump && o.seq != 0 && len(p.batches) == 0 {
				return ErrOutOfOrderSequence
			}
			if o.seq > g.lowest {
				return ErrOutOfOrderSequence
			}
		}
		switch {
		case p.epoch == -1:
		case o.epoch != p.epoch:
			if o.seq != 0 {
				return ErrOutOfOrderSequence
			}
		default:
			want := int32(0)
			if len(p.batches) > 0 {
				want = seqAfter(p.batches[len(p.batches)-1].LastSequence)
			}
			if o.seq != want {
				return ErrOutOfOrderSequence
			}
		}
	}
	if p.txn >= 0 && !o.txn {
		return ErrInvalidTxnState
	}
	if p.txn < 0 && o.txn {
		p.txn = offset
		m.open[offset] = o.pid
	}
	p.lastTime = o.timestamp
	b := BatchMetadata{LastOffset: offset + int64(n) - 1, Timestamp: o.timestamp, LastSequence: lastSeq(o.seq, n), OffsetDelta: n - 1}
	if !m.compat && (o.epoch < p.epoch || (o.epoch == p.epoch && o.seq >= 0 && m.behind(p, b))) {
		return nil
	}
	if o.epoch != p.epoch {
		p.batches, p.epoch = nil, o.epoch
	}
	p.batches = ring(append(p.batches, b))
	return nil
}

// behind: the steps from the last sequence to the new one, counted forwards, are more than half the circle and more than
// there are offsets for, or none.
func (m *naive) behind(p *naiveProducer, b BatchMetadata) bool {
	if len(p.batches) == 0 || p.batches[len(p.batches)-1].LastSequence < 0 {
		return false
	}
	last := p.batches[len(p.batches)-1]
	steps := int64(b.LastSequence) - int64(last.LastSequence)
	if steps < 0 {
		steps += 1 << 31
	}
	return steps == 0 || (steps >= 1<<30 && steps > b.LastOffset-last.LastOffset)
}

func (m *naive) marker(p *naiveProducer, origin Origin, version int8, offset int64, o op) error {
	if origin != Replication {
		switch {
		case version < 0 || version > 2:
			return ErrTransactionVersion
		case o.epoch < p.epoch:
			return ErrInvalidProducerEpoch
		case version == 2 && o.epoch == p.epoch && p.txn >= 0 && o.epoch != math.MaxInt16:
			return ErrInvalidProducerEpoch
		case o.coord < p.coord:
			return ErrCoordinatorFenced
		}
	}
	if p.txn >= 0 {
		m.decided = append(m.decided, Txn{ProducerID: o.pid, First: OffsetOnly(p.txn), LastOffset: offset})
		delete(m.open, p.txn)
	}
	if o.epoch > p.epoch || (m.compat && o.epoch != p.epoch) {
		p.batches, p.epoch = nil, o.epoch
	}
	if o.coord > p.coord || m.compat {
		p.coord = o.coord
	}
	p.lastTime, p.txn = o.timestamp, -1
	return nil
}

func (m *naive) verify(pid int64, seq int32, epoch int16, bump bool) (Guard, error) {
	if p, ok := m.producers[pid]; ok {
		if epoch < p.epoch {
			return 0, ErrInvalidProducerEpoch
		}
		if p.txn >= 0 && p.epoch == epoch {
			return 0, nil
		}
	}
	g := m.guards[pid]
	switch {
	case g == nil:
		m.lastGuard++
		g = &naiveGuard{m.lastGuard, seq, epoch, bump}
		m.guards[pid] = g
	case epoch > g.epoch:
		g.epoch, g.lowest = epoch, seq
	case epoch == g.epoch:
		g.lowest = min(g.lowest, seq)
	}
	return g.guard, nil
}

func (m *naive) highWatermark(hw int64) {
	m.decided = slices.DeleteFunc(m.decided, func(t Txn) bool { return t.LastOffset < hw })
}

// expire forgets by the rules of the chosen mode.
func (m *naive) expire(now, newest, limit int64) {
	if !m.compat {
		now = min(now, newest)
	}
	for pid, p := range m.producers {
		last := p.lastTime
		if !m.compat {
			last = max(last, p.clock)
			if pid >= MinNamedProducerID {
				continue
			}
		}
		if p.txn < 0 && now-last >= limit {
			delete(m.producers, pid)
		}
	}
}

// forgetOlderBatches is what a snapshot of Kafka does to the state.
func (m *naive) forgetOlderBatches() {
	for _, p := range m.producers {
		if n := len(p.batches); n > 0 {
			b := p.batches[n-1]
			b.Timestamp = p.lastTime
			p.batches = []BatchMetadata{b}
		}
		p.clock = -1
	}
}

// state returns the model in the form that a manager's state has.
func (m *naive) state(mapEnd int64) managerState {
	s := managerState{Producers: map[int64]Entry{}, MapEnd: mapEnd}
	for pid, p := range m.producers {
		e := Entry{
			ProducerID: pid, ProducerEpoch: p.epoch, CoordinatorEpoch: p.coord, LastTimestamp: p.lastTime,
			AppendClock: p.clock, CurrentTxnFirstOffset: p.txn,
		}
		for _, b := range p.batches {
			e.AddBatch(b)
		}
		s.Producers[pid] = e
	}
	for first, pid := range m.open {
		s.Open = append(s.Open, Txn{ProducerID: pid, First: OffsetOnly(first), LastOffset: NoOffset})
	}
	slices.SortFunc(s.Open, func(a, b Txn) int { return int(a.First.Offset - b.First.Offset) })
	s.Decided = append(s.Decided, m.decided...)
	return s
}

// sameError tells whether two errors mean the same answer.
func sameError(got, want error) bool {
	if want == nil {
		return got == nil
	}
	return errors.Is(got, want)
}
