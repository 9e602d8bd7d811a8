package producerstate

import (
	"fmt"
	"math"

	"github.com/oncelog/oncelog/record"
)

// appendControl applies a control batch to the working copy.
func (a *AppendInfo) appendControl(w *working, b record.Batch, h *header) error {
	if b.Count() == 0 {
		return nil // compaction took the marker together with the whole transaction
	}
	var first record.Record
	for r, err := range b.Records(record.Limits{}) {
		if err != nil {
			return fmt.Errorf("producerstate: producer %d: marker at offset %d: %w", h.id, h.offset, err)
		}
		first = r
		break
	}
	kind, _, err := record.ParseControl(first)
	if err != nil {
		return fmt.Errorf("producerstate: producer %d: marker at offset %d: %w", h.id, h.offset, err)
	}
	if kind != record.Abort && kind != record.Commit {
		return a.skipControl(h, kind)
	}
	marker, err := b.EndTxnMarker()
	if err != nil {
		return fmt.Errorf("producerstate: producer %d: marker at offset %d: %w", h.id, h.offset, err)
	}
	return a.appendMarker(w, h, marker, first.Timestamp)
}

// skipControl passes over a control record that says nothing about producers. Unlike Kafka, which fails to load a log
// that holds one with a producer id; only a coordinator, which could have known better, is refused.
func (a *AppendInfo) skipControl(h *header, kind record.ControlType) error {
	if a.o.Origin != Replication || a.m.config.Compat {
		return fmt.Errorf("producerstate: %w: producer %d: control record of type %d", record.ErrInvalidRecord, h.id, kind)
	}
	a.m.report(UnknownControl, h, int64(kind), int64(record.Commit))
	return nil
}

// appendMarker ends the open transaction, whatever its epoch. Without one only the epochs and the time are taken over,
// also of a producer not known before: so fencing survives retention (Kafka: ProducerAppendInfo.appendEndTxnMarker).
func (a *AppendInfo) appendMarker(w *working, h *header, marker record.EndTxnMarker, timestamp int64) error {
	if err := a.checkMarkerEpoch(w, h); err != nil {
		return err
	}
	coordinator := marker.CoordinatorEpoch
	if coordinator < w.p.coordinatorEpoch {
		if a.o.Origin != Replication {
			return &CoordinatorError{
				ProducerID: h.id, Epoch: coordinator, CurrentEpoch: w.p.coordinatorEpoch, Offset: h.offset,
			}
		}
		a.m.report(OldCoordinatorEpoch, h, int64(coordinator), int64(w.p.coordinatorEpoch))
		if !a.m.config.Compat {
			coordinator = w.p.coordinatorEpoch
		}
	}
	if w.p.txnFirst >= 0 {
		a.completed = append(a.completed, CompletedTxn{
			ProducerID: h.id, FirstOffset: w.p.txnFirst, LastOffset: h.offset, Aborted: marker.Type == record.Abort,
		})
	}
	w.emptyBatch = false
	if h.epoch > w.p.epoch || a.m.config.Compat {
		w.p.setEpoch(h.epoch)
	}
	w.p.coordinatorEpoch, w.p.lastTimestamp, w.p.txnFirst = coordinator, timestamp, NoOffset
	return nil
}

// checkMarkerEpoch compares a marker's epoch by the rule of its transaction's version. From version 2 on each end of a
// transaction raises the epoch, so a marker of the current epoch comes late, from the transaction before; unless none is
// open, when it is the repetition of a marker already written, or there is no higher epoch to raise it to.
func (a *AppendInfo) checkMarkerEpoch(w *working, h *header) error {
	if a.o.Origin == Replication {
		if h.epoch < w.p.epoch {
			a.m.report(OldEpoch, h, int64(h.epoch), int64(w.p.epoch))
		}
		return nil
	}
	version := a.o.TransactionVersion
	if version < 0 || version > 2 {
		return fmt.Errorf("%w: %d", ErrTransactionVersion, version)
	}
	late := h.epoch < w.p.epoch
	if version == 2 && h.epoch == w.p.epoch && w.p.txnFirst >= 0 && h.epoch != math.MaxInt16 {
		late = true
	}
	if late {
		return &EpochError{ProducerID: h.id, Epoch: h.epoch, CurrentEpoch: w.p.epoch, Offset: h.offset, Marker: true}
	}
	return nil
}
