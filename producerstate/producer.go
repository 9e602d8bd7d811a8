package producerstate

import "github.com/oncelog/oncelog/record"

// producer is the stored form of an Entry. It has no pointers, so that the garbage collector never looks at a table of
// millions, and no padding: 160 bytes.
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
	ring             [BatchesRetained]BatchMetadata
}

// unknown returns the state that stands for a producer of which nothing is known (Kafka: ProducerStateEntry.empty).
func unknown(id int64) producer {
	return producer{
		id: id, lastTimestamp: record.NoTimestamp, appendClock: record.NoTimestamp, txnFirst: NoOffset,
		coordinatorEpoch: -1, epoch: record.NoProducerEpoch,
	}
}

// at returns the i-th oldest batch.
func (p *producer) at(i uint8) *BatchMetadata {
	i += p.head
	if i >= BatchesRetained {
		i -= BatchesRetained
	}
	return &p.ring[i]
}

// last returns the newest batch, or nil.
func (p *producer) last() *BatchMetadata {
	if p.count == 0 {
		return nil
	}
	return p.at(p.count - 1)
}

// lastSequence returns the newest batch's last sequence number, or record.NoSequence.
func (p *producer) lastSequence() int32 {
	if p.count == 0 {
		return record.NoSequence
	}
	return p.at(p.count - 1).LastSequence
}

// push appends a batch, and drops the oldest if the ring is full.
func (p *producer) push(m BatchMetadata) {
	if p.count == BatchesRetained {
		p.ring[p.head] = m
		p.head++
		if p.head == BatchesRetained {
			p.head = 0
		}
		return
	}
	*p.at(p.count) = m
	p.count++
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
		if m := p.at(i); m.LastSequence == h.lastSequence && m.FirstSequence() == h.baseSequence {
			return *m, true
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
		e.batches[i] = *p.at(i)
	}
	return e
}

// fromEntry is the reverse of entry.
func fromEntry(e *Entry) producer {
	return producer{
		id: e.ProducerID, lastTimestamp: e.LastTimestamp, appendClock: e.AppendClock, txnFirst: e.CurrentTxnFirstOffset,
		coordinatorEpoch: e.CoordinatorEpoch, epoch: e.ProducerEpoch, count: e.count, ring: e.batches,
	}
}
