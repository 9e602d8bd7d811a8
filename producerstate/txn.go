package producerstate

import (
	"fmt"

	"github.com/oncelog/oncelog/record"
)

// LastStableOffset returns the last stable offset that belongs to a transaction about to be completed, which the
// transaction index keeps for aborted ones: the first offset of the next open transaction of another producer, else the
// offset behind the marker. Call it before CompleteTxn. (Kafka: lastStableOffset.)
func (m *Manager) LastStableOffset(t CompletedTxn) int64 {
	if o, ok := m.open.firstOther(t.ProducerID); ok {
		return o.first.Offset
	}
	return t.LastOffset + 1
}

// CompleteTxn moves a transaction from the open ones to those that wait for the high watermark to pass their marker. One
// that is not open is ErrUnknownTxn, and nothing changes. (Kafka: completeTxn.)
func (m *Manager) CompleteTxn(t CompletedTxn) error {
	o, ok := m.open.remove(t.FirstOffset)
	if !ok {
		return fmt.Errorf("%w: producer %d, first offset %d", ErrUnknownTxn, t.ProducerID, t.FirstOffset)
	}
	m.decided.put(Txn{ProducerID: o.pid, First: o.first, LastOffset: t.LastOffset})
	return nil
}

// FirstUnstableOffset returns where the first transaction begins that is open or whose marker has not been replicated, if
// there is one. Readers of committed data stop there. (Kafka: firstUnstableOffset.)
func (m *Manager) FirstUnstableOffset() (OffsetMetadata, bool) {
	o, isOpen := m.open.first()
	d, isDecided := m.decided.first()
	switch {
	case isOpen && (!isDecided || o.first.Offset < d.First.Offset):
		return o.first, true
	case isDecided:
		return d.First, true
	}
	return OffsetMetadata{}, false
}

// FirstUndecidedOffset returns the first offset of the first open transaction, if one is open (Kafka:
// firstUndecidedOffset).
func (m *Manager) FirstUndecidedOffset() (int64, bool) {
	o, ok := m.open.first()
	return o.first.Offset, ok
}

// OpenTxns returns the open transactions in order of their first offsets.
func (m *Manager) OpenTxns() []Txn { return m.open.list() }

// DropOpenTxns forgets the open transactions, not their producers, and returns them: for a reader of a damaged log, in which
// their ends may have been among what cannot be read.
func (m *Manager) DropOpenTxns() []Txn {
	list := m.open.list()
	for _, t := range list {
		if slot, ok := m.table.find(t.ProducerID); ok {
			m.table.mut(slot).txnFirst = NoOffset
		}
	}
	m.open.clear()
	return list
}

// DecidedTxns returns the transactions that have ended above the high watermark, in order of their markers.
func (m *Manager) DecidedTxns() []Txn { return append([]Txn(nil), m.decided.txns...) }

// AdvanceHighWatermark drops the ended transactions whose markers lie below offset (Kafka: onHighWatermarkUpdated).
func (m *Manager) AdvanceHighWatermark(offset int64) { m.decided.removeBelow(offset) }

// HasLateTransaction tells whether the oldest open transaction has had no append for longer than any transaction may
// take: its coordinator has forgotten it, and somebody has to end it. nowMs is the clock in milliseconds. (Kafka:
// hasLateTransaction.)
func (m *Manager) HasLateTransaction(nowMs int64) bool {
	o, ok := m.open.first()
	if !ok {
		return false
	}
	last := record.NoTimestamp
	if slot, ok := m.table.find(o.pid); ok {
		last = m.table.at(slot).lastTimestamp
	}
	return last > 0 && elapsed(last, nowMs) > m.config.lateTxnMs()
}
