package producerstate

import (
	"fmt"
	"math"

	"github.com/oncelog/oncelog/record"
)

// checkNoProducer refuses a negative id that is not the one for "none". Kafka stores such a batch and remembers nothing.
func (a *AppendInfo) checkNoProducer(id int64) error {
	if id != record.NoProducerID && a.o.Origin == Client && !a.m.config.Compat {
		return fmt.Errorf("producerstate: %w: negative producer id %d", record.ErrInvalidRecord, id)
	}
	return nil
}

// clientError names what a client must not send with a producer id (Kafka: LogValidator.validateBatch).
func clientError(h *header) error {
	if h.control {
		return fmt.Errorf("producerstate: %w: control batch from a client: producer %d", record.ErrInvalidRecord, h.id)
	}
	return fmt.Errorf("producerstate: %w: producer %d with sequence %d", record.ErrInvalidRecord, h.id, h.baseSequence)
}

// appendData checks a data batch and applies it to the working copy (Kafka: ProducerAppendInfo.appendDataBatch).
func (a *AppendInfo) appendData(w *working, h *header, at OffsetMetadata) error {
	current := w.p.epoch
	if h.epoch < current {
		if a.o.Origin != Replication {
			return &EpochError{ProducerID: h.id, Epoch: h.epoch, CurrentEpoch: current, Offset: h.offset}
		}
		a.m.report(OldEpoch, h, int64(h.epoch), int64(current))
	}
	if a.o.Origin == Client {
		if err := a.checkSequence(w, h); err != nil {
			return err
		}
	}
	switch open := w.p.txnFirst >= 0; {
	case open && !h.transactional:
		return &TxnStateError{ProducerID: h.id, ProducerEpoch: h.epoch, FirstOffset: w.p.txnFirst, Offset: h.offset}
	case !open && h.transactional:
		w.p.txnFirst = h.offset
		a.started = append(a.started, startedTxn{pid: h.id, first: at})
	}
	w.emptyBatch = false
	w.p.lastTimestamp = h.maxTimestamp
	m := BatchMetadata{
		LastOffset: h.lastOffset, Timestamp: h.maxTimestamp, LastSequence: h.lastSequence, OffsetDelta: h.offsetDelta,
	}
	if !a.m.config.Compat {
		// What the log holds behind newer batches was superseded when it was written, however it got there. Going
		// back to it would let the same records be stored again.
		if h.epoch < current {
			return nil
		}
		if h.epoch == current && a.isBehind(w, h, m) {
			return nil
		}
	}
	w.p.setEpoch(h.epoch)
	w.p.push(m)
	return nil
}

// checkSequence decides whether a client's batch continues what is stored (Kafka: ProducerAppendInfo.checkSequence).
func (a *AppendInfo) checkSequence(w *working, h *header) error {
	seq := h.baseSequence
	rule := a.m.config.UnknownProducers
	if w.verifying {
		if w.epochBump && seq != 0 && w.wasCount == 0 && rule != UnknownKafka25 && rule != UnknownRefused {
			return a.sequenceError(w, h, 0, UnknownNotZero)
		}
		if seq > w.lowest {
			return a.sequenceError(w, h, w.lowest, AboveVerified)
		}
	}
	if h.epoch != w.p.epoch {
		switch {
		case seq == 0:
			return nil
		case w.p.epoch != record.NoProducerEpoch:
			return a.sequenceError(w, h, 0, NewEpochNotZero)
		}
		return a.checkUnknown(w, h)
	}
	last := w.lastSequence(h.epoch)
	if rule == UnknownRefused && last == record.NoSequence && seq != 0 {
		return a.sequenceError(w, h, 0, UnknownProducer)
	}
	if w.wasEpoch == record.NoProducerEpoch {
		return nil
	}
	next := record.IncrementSequence(last, 1) // of NoSequence that is 0
	if seq != next {
		return a.sequenceError(w, h, next, NotNext)
	}
	return nil
}

// checkUnknown applies the rule for a first sequence other than 0.
func (a *AppendInfo) checkUnknown(w *working, h *header) error {
	switch a.m.config.UnknownProducers {
	case UnknownRefused:
		return a.sequenceError(w, h, 0, UnknownProducer)
	case UnknownAtLogStart:
		if h.offset == 0 {
			return a.sequenceError(w, h, 0, UnknownNotZero)
		}
	}
	return nil
}

// lastSequence returns the last sequence of an epoch: of this append if it has any, else the stored one.
func (w *working) lastSequence(epoch int16) int32 {
	if w.p.count > 0 {
		return w.p.lastSequence()
	}
	if w.wasEpoch == epoch {
		return w.wasLast
	}
	return record.NoSequence
}

// lastOffset is the offset that belongs to lastSequence.
func (w *working) lastOffset(epoch int16) int64 {
	if last, ok := w.p.last(); ok {
		return last.LastOffset
	}
	if w.wasEpoch == epoch {
		return w.wasOffset
	}
	return NoOffset
}

// isBehind tells whether a batch of the current epoch ends at or behind the last sequence known. Sequences wrap, so a
// large step forward looks like one back; but every record has an offset of its own, so that a real step forward is
// covered by as many offsets.
func (a *AppendInfo) isBehind(w *working, h *header, m BatchMetadata) bool {
	last := w.lastSequence(h.epoch)
	if last < 0 || h.baseSequence < 0 {
		return false
	}
	ahead := (int64(m.LastSequence) - int64(last)) & math.MaxInt32
	offsets := m.LastOffset - w.lastOffset(h.epoch)
	behind := ahead > math.MaxInt32/2 && ahead > offsets
	if ahead == 0 {
		behind = offsets <= math.MaxInt32
	}
	if behind {
		a.m.report(OldSequence, h, int64(m.LastSequence), int64(last))
	}
	return behind
}

func (a *AppendInfo) sequenceError(w *working, h *header, expected int32, why SequenceReason) error {
	e := &SequenceError{
		ProducerID: h.id, ProducerEpoch: h.epoch, CurrentEpoch: w.p.epoch, Sequence: h.baseSequence, Expected: expected,
		Offset: w.lastOffset(w.p.epoch), Reason: why, Gap: -1, AtOffset: h.offset,
	}
	e.Known = e.Offset >= 0
	if ahead := (int64(h.baseSequence) - int64(expected)) & math.MaxInt32; ahead <= math.MaxInt32/2 {
		e.Gap = ahead
	}
	return e
}
