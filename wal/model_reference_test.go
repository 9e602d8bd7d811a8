package wal

import (
	"bytes"
	"math"
	"slices"

	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/record"
)

// reference is a log as a list of batches. What it knows of producers and transactions it finds out anew each time, by
// going through all of them.
type reference struct {
	stored  [][]byte
	end     int64
	high    int64
	decided []refTxn // ended transactions that the high watermark has not passed
	manual  bool
}

type refTxn struct{ pid, first, marker int64 }

// refProducer is what a replay knows of a producer.
type refProducer struct {
	epoch   int16
	coord   int32
	time    int64
	txn     int64
	batches []producerstate.BatchMetadata
}

func (r *reference) replay() (producers map[int64]*refProducer, ended []refTxn, aborted []AbortedTxn) {
	producers = map[int64]*refProducer{}
	for _, s := range r.stored {
		b := record.Batch(s)
		if !b.HasProducerID() {
			continue
		}
		p := producers[b.ProducerID()]
		if p == nil {
			p = &refProducer{epoch: -1, coord: -1, txn: -1}
			producers[b.ProducerID()] = p
		}
		p.time = b.MaxTimestamp()
		if b.Attributes().IsControl() {
			m, err := b.EndTxnMarker()
			if err != nil {
				panic(err)
			}
			if p.txn >= 0 {
				ended = append(ended, refTxn{b.ProducerID(), p.txn, b.BaseOffset()})
				if m.Type == record.Abort {
					aborted = append(aborted, AbortedTxn{ProducerID: b.ProducerID(), FirstOffset: p.txn, LastOffset: b.BaseOffset()})
				}
			}
			if b.ProducerEpoch() > p.epoch {
				p.epoch, p.batches = b.ProducerEpoch(), nil
			}
			p.coord, p.txn = max(p.coord, m.CoordinatorEpoch), -1
			continue
		}
		if b.Attributes().IsTransactional() && p.txn < 0 {
			p.txn = b.BaseOffset()
		}
		p.push(b)
	}
	return producers, ended, aborted
}

// push remembers a batch, unless it lies behind what is remembered, which only a follower takes.
func (p *refProducer) push(b record.Batch) {
	if b.ProducerEpoch() < p.epoch {
		return
	}
	m := producerstate.BatchMetadata{LastSequence: b.LastSequence(), LastOffset: b.LastOffset(), OffsetDelta: b.LastOffsetDelta(), Timestamp: b.MaxTimestamp()}
	if b.ProducerEpoch() > p.epoch {
		p.epoch, p.batches = b.ProducerEpoch(), nil
	}
	if n := len(p.batches); n > 0 {
		if ahead := (int64(m.LastSequence) - int64(p.batches[n-1].LastSequence)) & math.MaxInt32; ahead == 0 || ahead > 1<<30 {
			return
		}
	}
	p.batches = append(p.batches, m)
	p.batches = p.batches[max(0, len(p.batches)-5):]
}

// next is the sequence that must come next.
func (p *refProducer) next() int32 {
	if len(p.batches) == 0 {
		return 0
	}
	return record.IncrementSequence(p.batches[len(p.batches)-1].LastSequence, 1)
}

// lead decides about a batch of a client, by the rules of a leader.
func (r *reference) lead(b record.Batch) (dup producerstate.BatchMetadata, isDup bool, err error) {
	producers, _, _ := r.replay()
	p := producers[b.ProducerID()]
	if p == nil {
		return dup, false, nil
	}
	if b.ProducerEpoch() == p.epoch {
		for _, m := range p.batches {
			if m.FirstSequence() == b.BaseSequence() && m.LastSequence == b.LastSequence() {
				return m, true, nil
			}
		}
	}
	switch {
	case b.ProducerEpoch() < p.epoch:
		return dup, false, ErrInvalidProducerEpoch
	case b.ProducerEpoch() > p.epoch && b.BaseSequence() != 0, b.ProducerEpoch() == p.epoch && b.BaseSequence() != p.next():
		return dup, false, ErrOutOfOrderSequence
	case p.txn >= 0 && !b.Attributes().IsTransactional():
		return dup, false, ErrInvalidTxnState
	}
	return dup, false, nil
}

// end decides about a marker of a coordinator.
func (r *reference) endTxn(id int64, epoch int16, coord int32, version int8) error {
	producers, _, _ := r.replay()
	p := producers[id]
	switch {
	case p == nil:
		return nil
	case epoch < p.epoch, version == 2 && epoch == p.epoch && p.txn >= 0:
		return ErrInvalidProducerEpoch
	case coord < p.coord:
		return ErrCoordinatorFenced
	}
	return nil
}

// store takes a batch that has its offsets.
func (r *reference) store(b record.Batch) {
	_, before, _ := r.replay()
	r.stored = append(r.stored, bytes.Clone(b))
	_, after, _ := r.replay()
	r.decided = append(r.decided, after[len(before):]...)
	r.end = b.NextOffset()
	if !r.manual {
		r.setHigh(r.end)
	}
}

func (r *reference) setHigh(offset int64) {
	r.high = offset
	r.decided = slices.DeleteFunc(r.decided, func(t refTxn) bool { return t.marker < offset })
}

func (r *reference) lastStable() int64 {
	stable := r.high
	producers, _, _ := r.replay()
	for _, p := range producers {
		if p.txn >= 0 {
			stable = min(stable, p.txn)
		}
	}
	for _, t := range r.decided {
		stable = min(stable, t.first)
	}
	return stable
}
