package wal

import (
	"encoding/binary"
	"hash/crc32"
	"math"

	"github.com/oncelog/oncelog/internal/kafkatest"
	"github.com/oncelog/oncelog/record"
)

// liveBatch is a batch to be built.
type liveBatch struct {
	producer      record.Producer // of an ID below 0: none
	transactional bool
	count         int
	base          int64 // offset
	leaderEpoch   int32
}

var (
	idempotent     = []int64{1, 2, 3}
	transactionals = []int64{11, 12, 13}
)

// build makes the bytes, of records and times that do not matter.
func (m *liveMaker) build(b liveBatch) []byte {
	o := record.BuilderOptions{BaseOffset: b.base, PartitionLeaderEpoch: b.leaderEpoch, Transactional: b.transactional}
	if b.producer.ID >= 0 {
		b.producer.Epoch = max(0, b.producer.Epoch) // behind the greatest, or of a spoilt batch
		o.Producer = &b.producer
	}
	if m.one(5) {
		o.Compression = pick(m, record.Gzip, record.Snappy, record.LZ4, record.Zstd)
	}
	ts := m.r.kafka.now - m.Int64N(1000)
	switch m.IntN(25) {
	case 0:
		ts = record.NoTimestamp
	case 1:
		ts -= m.Int64N(300_000)
	case 2:
		ts += m.Int64N(8_000_000) // up to two hours, of which one is allowed by default
	}
	size := pick(m, m.IntN(20), m.IntN(100), m.IntN(300))
	builder := record.NewBuilder(o)
	for i := range b.count {
		r := record.Record{Key: []byte{byte('a' + m.IntN(8))}, Value: m.bytes(size)}
		if m.one(40) {
			r.Key = nil
		}
		if m.one(20) {
			r.Headers = []record.Header{{Key: "h", Value: m.bytes(3)}}
		}
		at := ts
		if ts != record.NoTimestamp {
			at = max(0, ts+int64(pick(m, 0, i, -i, m.IntN(50))))
		}
		m.must(builder.Append(at, r))
	}
	p, err := builder.Batch()
	m.must(err)
	return p
}

func (m *liveMaker) must(err error) {
	if err != nil {
		m.r.t.Helper()
		m.r.t.Fatal(err)
	}
}

func (m *liveMaker) bytes(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = 'a' + byte(i)%8 // compresses well
		if i < 4 {
			p[i] = byte(m.Uint32())
		}
	}
	return p
}

// entry is what the log knows of a producer, nil if nothing.
func (m *liveMaker) entry(id int64) *kafkatest.ProducerState {
	s := m.state()
	for i := range s.Producers {
		if s.Producers[i].ProducerID == id {
			return &s.Producers[i]
		}
	}
	return nil
}

// next is what a producer would send now that knows what the log knows.
func (m *liveMaker) next(id int64) record.Producer {
	e := m.entry(id)
	switch {
	case e == nil && id == 3: // its sequences wrap soon
		return record.Producer{ID: id, BaseSequence: math.MaxInt32 - int32(m.IntN(12))}
	case e == nil:
		return record.Producer{ID: id}
	case e.LastSequence < 0:
		return record.Producer{ID: id, Epoch: e.Epoch}
	}
	return record.Producer{ID: id, Epoch: e.Epoch, BaseSequence: record.IncrementSequence(e.LastSequence, 1)}
}

func (m *liveMaker) count() int { return 1 + m.IntN(4)*m.IntN(2) }

// leader is an append as a leader.
func (m *liveMaker) leader(p []byte) *kafkatest.Op {
	op := &kafkatest.Op{Kind: "append", Batch: p, LeaderEpoch: m.leaderEpoch(), Origin: "client", TransactionVersion: -1}
	switch m.IntN(40) {
	case 0:
		op.Origin = pick(m, "replication", "coordinator", "raft")
	case 1, 2, 3, 4:
		op.TransactionVersion = int16(m.IntN(3))
	}
	return op
}

func (m *liveMaker) append() *kafkatest.Op {
	b := liveBatch{producer: record.Producer{ID: -1}, count: m.count(), leaderEpoch: -1}
	if m.one(2) {
		b.producer = m.next(pick(m, idempotent...))
		if m.one(20) { // began again with a new epoch
			b.producer.Epoch, b.producer.BaseSequence = b.producer.Epoch+1, 0
		}
	}
	return m.leader(m.build(b))
}

// repeat sends one of the batches again that the log remembers.
func (m *liveMaker) repeat() *kafkatest.Op {
	id := pick(m, append(idempotent, transactionals...)...)
	e := m.entry(id)
	if e == nil || len(e.Batches) == 0 {
		return nil
	}
	old := e.Batches[m.IntN(len(e.Batches))]
	b := liveBatch{producer: record.Producer{ID: id, Epoch: e.Epoch, BaseSequence: int32(old[0])}, leaderEpoch: -1,
		count: int((old[1]-old[0])&math.MaxInt32) + 1, transactional: id > 10 && !m.one(20)}
	if b.count > 50 {
		return nil
	}
	if m.one(10) {
		b.count++ // like it, but not it
	}
	op := m.leader(m.build(b))
	op.Guard = m.r.guards[id]
	return op
}

// misfit does not go on where its producer is.
func (m *liveMaker) misfit() *kafkatest.Op {
	id := pick(m, append(idempotent, transactionals...)...)
	b := liveBatch{producer: m.next(id), count: m.count(), leaderEpoch: -1, transactional: id > 10 && !m.one(4)}
	p := &b.producer
	switch m.IntN(7) {
	case 0, 1: // a gap, or the sixth last
		p.BaseSequence = record.IncrementSequence(p.BaseSequence, 1+int32(m.IntN(5)))
	case 2, 3:
		p.BaseSequence = max(0, p.BaseSequence-1-int32(m.IntN(10)))
	case 4: // replaced
		p.Epoch = max(0, p.Epoch-1)
	case 5:
		p.Epoch, p.BaseSequence = p.Epoch+int16(1+m.IntN(2)), pick(m, 0, 1, p.BaseSequence)
	case 6:
		p.BaseSequence = pick[int32](m, 0, 1, math.MaxInt32, math.MaxInt32-1)
	}
	op := m.leader(m.build(b))
	op.Guard = m.r.guards[id]
	return op
}

func (m *liveMaker) transactional() *kafkatest.Op {
	id := pick(m, transactionals...)
	op := m.leader(m.build(liveBatch{producer: m.next(id), count: m.count(), transactional: true, leaderEpoch: -1}))
	if !m.one(8) {
		op.Guard = m.r.guards[id]
	}
	return op
}

func (m *liveMaker) verify() *kafkatest.Op {
	p := m.next(pick(m, transactionals...))
	if m.one(15) {
		p.Epoch = max(0, p.Epoch+int16(m.IntN(3))-1)
	}
	if m.one(15) {
		p.BaseSequence = max(0, p.BaseSequence+int32(m.IntN(5))-2)
	}
	return &kafkatest.Op{Kind: "verify", ProducerID: p.ID, Epoch: int32(p.Epoch), Sequence: p.BaseSequence, SupportsEpochBump: m.one(2)}
}

func (m *liveMaker) marker() *kafkatest.Op {
	op := &kafkatest.Op{Kind: "marker", ProducerID: pick(m, transactionals...), Type: pick(m, "commit", "abort"),
		Origin: "coordinator", TransactionVersion: int16(m.IntN(3))}
	if open := m.state().OngoingTxns; len(open) > 0 && !m.one(8) {
		op.ProducerID = open[m.IntN(len(open))][0]
	}
	if e := m.entry(op.ProducerID); e != nil {
		op.Epoch = int32(e.Epoch)
		op.CoordinatorEpoch = max(0, e.CoordinatorEpoch)
	}
	if op.TransactionVersion == 2 && !m.one(6) || m.one(12) {
		op.Epoch++
	} else if m.one(20) {
		op.Epoch = max(0, op.Epoch-1)
	}
	switch m.IntN(20) {
	case 0:
		op.CoordinatorEpoch++
	case 1:
		op.CoordinatorEpoch = max(0, op.CoordinatorEpoch-1)
	case 2:
		op.Timestamp = new(m.r.kafka.now - m.Int64N(100_000))
	case 3:
		op.TransactionVersion = -1
	case 4:
		op.Origin = pick(m, "client", "replication")
	}
	op.Epoch = max(0, min(op.Epoch, math.MaxInt16))
	if m.one(4) {
		op.LeaderEpoch = m.leaderEpoch()
	}
	return op
}

// follower brings one to three batches as a leader has stored them.
func (m *liveMaker) follower() *kafkatest.Op {
	op := &kafkatest.Op{Kind: "appendFollower"}
	epoch, at := m.leaderEpoch(), m.state().LogEnd
	for range 1 + m.IntN(3)*m.IntN(2) {
		if m.one(6) {
			at += m.Int64N(4) // a gap that compaction left
		}
		b := liveBatch{producer: record.Producer{ID: -1}, count: m.count(), base: at, leaderEpoch: epoch}
		if m.one(3) {
			id := pick(m, append(idempotent, transactionals...)...)
			b.producer, b.transactional = m.next(id), id > 10
			if m.one(8) {
				b.producer.BaseSequence = record.IncrementSequence(b.producer.BaseSequence, int32(m.IntN(5)))
			}
		}
		if m.one(6) && b.producer.ID > 10 {
			b.producer.Epoch = max(0, b.producer.Epoch)
			p := record.Batch(record.AppendEndTxnMarker(nil, b.producer, record.EndTxnMarker{
				Type: pick(m, record.Commit, record.Abort), CoordinatorEpoch: int32(m.IntN(2))}, m.r.kafka.now))
			p.SetBaseOffset(at)
			p.SetPartitionLeaderEpoch(epoch)
			op.Batch = append(op.Batch, p...)
			at++
			continue
		}
		op.Batch = append(op.Batch, m.build(b)...)
		at += int64(b.count)
		if m.one(10) {
			epoch++
		}
	}
	op.LeaderEpoch = epoch
	return op
}

// oddFollower brings what a leader in its right mind does not send.
func (m *liveMaker) oddFollower() *kafkatest.Op {
	op := m.follower()
	switch m.IntN(6) {
	case 0:
		record.Batch(op.Batch).SetBaseOffset(max(0, m.offset()))
	case 1:
		op.LeaderEpoch = max(0, op.LeaderEpoch-1)
	case 2:
		if m.one(3) {
			record.Batch(op.Batch).SetBaseOffset(m.state().LogEnd + pick[int64](m, math.MaxInt32, math.MaxInt32-3, 1<<33))
		}
	case 3:
		op.Batch = op.Batch[:m.IntN(len(op.Batch))]
	case 4:
		op.Batch = append(op.Batch, m.bytes(m.IntN(80))...)
	case 5:
		m.spoil(op.Batch)
	}
	return op
}

// spoilt is a leader append of a batch in which something is wrong.
func (m *liveMaker) spoilt() *kafkatest.Op {
	op := pick(m, (*liveMaker).append, (*liveMaker).transactional)(m)
	switch m.IntN(8) {
	case 0: // several batches
		op.Batch = append(op.Batch, m.append().Batch...)
	case 1:
		op.Batch = op.Batch[:m.IntN(len(op.Batch))]
	case 2:
		op.Batch = append(op.Batch, m.bytes(m.IntN(80))...)
	case 3: // larger than allowed
		op.Batch = m.build(liveBatch{producer: record.Producer{ID: -1}, count: 12, leaderEpoch: -1})
	default:
		m.spoil(op.Batch)
	}
	return op
}

// spoil changes a field of the header of the first batch, or a byte of its records.
func (m *liveMaker) spoil(p []byte) {
	if len(p) < record.Overhead {
		return
	}
	type field struct{ at, size int }
	f := pick(m, field{0, 8}, field{8, 4}, field{12, 4}, field{16, 1}, field{17, 4}, field{21, 2}, field{21, 2}, field{23, 4}, field{27, 8},
		field{35, 8}, field{43, 8}, field{51, 2}, field{53, 4}, field{57, 4}, field{57, 4}, field{record.Overhead + m.IntN(len(p)-record.Overhead), 1})
	at := p[f.at : f.at+f.size]
	var b [8]byte
	copy(b[8-f.size:], at)
	v := int64(binary.BigEndian.Uint64(b[:])) << (64 - 8*f.size) >> (64 - 8*f.size) // with its sign
	v = pick(m, v+1, v-1, -1, 0, 1, v^1<<m.IntN(8*f.size), math.MaxInt64>>(64-8*f.size), math.MinInt64>>(64-8*f.size))
	binary.BigEndian.PutUint64(b[:], uint64(v))
	copy(at, b[8-f.size:])
	if f.at != 17 && m.IntN(5) > 0 {
		reseal(p)
	}
}

// reseal gives the first batch a checksum that is right, if its length is.
func reseal(p []byte) {
	const from = 21
	end := 12 + int64(int32(binary.BigEndian.Uint32(p[8:])))
	if end < from || end > int64(len(p)) {
		return
	}
	binary.BigEndian.PutUint32(p[17:], crc32.Checksum(p[from:end], crc32.MakeTable(crc32.Castagnoli)))
}
