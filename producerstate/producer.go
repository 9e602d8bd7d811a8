package producerstate

import "github.com/oncelog/oncelog/record"

// producer is the stored form of an Entry. It has no pointers, so that the garbage collector never looks at a table of
// millions, and no padding: 160 bytes. The batches are kept field by field, because the check of an append looks at
// sequences only: they share the first cache line with the rest of what it needs.
//
// A free slot of the slab holds ^next in id, where next is the number of the next free slot plus one.
type producer struct {
	id               int64
	lastTimestamp    int64
	appendClock      int64
	txnFirst         int64 // NoOffset: no transaction open
	coordinatorEpoch int32
	epoch            int16
	count            uint8 // batches held
	head             uint8 // place of the oldest of them
	sequences        [BatchesRetained]int32
	deltas           [BatchesRetained]int32
	offsets          [BatchesRetained]int64
	timestamps       [BatchesRetained]int64
}

// unknown returns the state that stands for a producer of which nothing is known (Kafka: ProducerStateEntry.empty).
func unknown(id int64) producer {
	return producer{
		id: id, lastTimestamp: record.NoTimestamp, appendClock: record.NoTimestamp, txnFirst: NoOffset,
		coordinatorEpoch: -1, epoch: record.NoProducerEpoch,
	}
}

// place returns where the i-th oldest batch is kept.
func (p *producer) place(i uint8) uint8 {
	i += p.head
	if i >= BatchesRetained {
		i -= BatchesRetained
	}
	return i
}

// batch returns the i-th oldest batch.
func (p *producer) batch(i uint8) BatchMetadata {
	k := p.place(i)
	return BatchMetadata{
		LastOffset: p.offsets[k], Timestamp: p.timestamps[k], LastSequence: p.sequences[k], OffsetDelta: p.deltas[k],
	}
}

// last returns the newest batch.
func (p *producer) last() (m BatchMetadata, ok bool) {
	if p.count == 0 {
		return m, false
	}
	return p.batch(p.count - 1), true
}

// lastSequence returns the newest batch's last sequence number, or record.NoSequence.
func (p *producer) lastSequence() int32 {
	if p.count == 0 {
		return record.NoSequence
	}
	return p.sequences[p.place(p.count-1)]
}

// push appends a batch, and drops the oldest if the ring is full.
func (p *producer) push(m BatchMetadata) {
	k := p.head
	if p.count < BatchesRetained {
		k = p.place(p.count)
		p.count++
	} else if p.head++; p.head == BatchesRetained {
		p.head = 0
	}
	p.offsets[k], p.timestamps[k], p.sequences[k], p.deltas[k] = m.LastOffset, m.Timestamp, m.LastSequence, m.OffsetDelta
}

// setEpoch forgets the batches if the epoch changes: sequences start anew with each (Kafka:
// ProducerStateEntry.maybeUpdateProducerEpoch).
func (p *producer) setEpoch(epoch int16) {
	if p.epoch != epoch {
		p.epoch = epoch
		p.count, p.head = 0, 0
	}
}

// duplicate returns the remembered batch with exactly this epoch and range of sequences. Should a log hold the range
// twice, the older one is the answer, as in Kafka.
func (p *producer) duplicate(h *header) (BatchMetadata, bool) {
	if p.epoch != h.epoch {
		return BatchMetadata{}, false
	}
	for i := range p.count {
		if p.sequences[p.place(i)] != h.lastSequence {
			continue
		}
		if m := p.batch(i); m.FirstSequence() == h.baseSequence {
			return m, true
		}
	}
	return BatchMetadata{}, false
}

// entry copies the producer into its public form.
func (p *producer) entry() Entry {
	e := Entry{
		ProducerID: p.id, LastTimestamp: p.lastTimestamp, AppendClock: p.appendClock, CurrentTxnFirstOffset: p.txnFirst,
		CoordinatorEpoch: p.coordinatorEpoch, ProducerEpoch: p.epoch, count: p.count,
	}
	for i := range p.count {
		e.batches[i] = p.batch(i)
	}
	return e
}

// fromEntry is the reverse of entry.
func fromEntry(e *Entry) producer {
	p := producer{
		id: e.ProducerID, lastTimestamp: e.LastTimestamp, appendClock: e.AppendClock, txnFirst: e.CurrentTxnFirstOffset,
		coordinatorEpoch: e.CoordinatorEpoch, epoch: e.ProducerEpoch,
	}
	for _, m := range e.batches[:e.count] {
		p.push(m)
	}
	return p
}
