package wal

import (
	"fmt"
	"time"

	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/record"
)

// OpenTransaction is a transaction without a marker.
type OpenTransaction struct {
	ProducerID       int64
	Name             string // of a named producer, if the log knows it
	Epoch            int16
	CoordinatorEpoch int32     // of the producer's last marker, −1 if there was none
	FirstOffset      int64     // of its first record
	LastAppend       time.Time // greatest timestamp of the producer's last batch

	// Late says that nothing was appended to it for longer than Options.MaxTransactionTimeout and five minutes: its coordinator
	// has forgotten it, and readers of committed records wait at it until somebody ends it.
	Late bool
}

// OpenTransactions returns the transactions that are open, the one that began first in front: it holds back the last stable
// offset. The slice belongs to the caller.
func (l *Log) OpenTransactions() []OpenTransaction {
	now := l.opts.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []OpenTransaction
	for _, t := range l.producers.OpenTxns() {
		list = append(list, l.openTransaction(&t, now))
	}
	return list
}

// openTransaction describes one. The caller holds mu.
func (l *Log) openTransaction(t *producerstate.Txn, now time.Time) OpenTransaction {
	e, _ := l.producers.LastEntry(t.ProducerID)
	named, _ := l.producers.NamedProducer(t.ProducerID)
	o := OpenTransaction{ProducerID: t.ProducerID, Name: named.Name, Epoch: e.ProducerEpoch, CoordinatorEpoch: e.CoordinatorEpoch,
		FirstOffset: t.First.Offset}
	if e.LastTimestamp >= 0 {
		o.LastAppend = time.UnixMilli(e.LastTimestamp)
		o.Late = e.LastTimestamp > 0 && now.Sub(o.LastAppend) > l.settings().MaxTransactionTimeout+lateTransactionBuffer
	}
	return o
}

// lateTransactionBuffer is ProducerStateManager.LATE_TRANSACTION_BUFFER_MS.
const lateTransactionBuffer = 5 * time.Minute

// HasLateTransaction tells whether the oldest open transaction has had no append for longer than
// Options.MaxTransactionTimeout and five minutes: its coordinator has forgotten it, and readers of committed records wait
// at it until somebody appends its marker. Kafka: UnifiedLog.hasLateTransaction.
func (l *Log) HasLateTransaction(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.producers.HasLateTransaction(now.UnixMilli())
}

// HeldBack says how far readers of committed records are held back, and by whom.
type HeldBack struct {
	LastStable    int64 // where they stop
	HighWatermark int64 // where they could go on to

	// Transaction is the one that they wait for. With Ended it has its marker, at MarkerOffset, and they wait for the high
	// watermark to pass that.
	Transaction  OpenTransaction
	Ended        bool
	MarkerOffset int64 // −1 while it is open
}

// HeldBack tells whether readers of committed records stop below the high watermark, and what for. Records that wait for their
// sync, as those of a transaction may until its Commit, hold nobody back yet.
func (l *Log) HeldBack() (h HeldBack, held bool) {
	now := l.opts.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	stable := l.ends.lastStable().offset
	t, ended, ok := l.firstUnstable()
	if !ok || stable >= l.ends.high.offset {
		return HeldBack{}, false
	}
	h = HeldBack{LastStable: stable, HighWatermark: l.ends.high.offset, Transaction: l.openTransaction(&t, now), MarkerOffset: noOffset}
	if ended {
		h.Ended, h.MarkerOffset, h.Transaction.Late = true, t.LastOffset, false
	}
	return h, true
}

// firstUnstable is the transaction that comes first of those that committed readers wait for. The caller holds mu.
func (l *Log) firstUnstable() (first producerstate.Txn, ended, ok bool) {
	if open := l.producers.OpenTxns(); len(open) > 0 {
		first, ok = open[0], true
	}
	for _, d := range l.producers.DecidedTxns() {
		if !ok || d.First.Offset < first.First.Offset {
			first, ended, ok = d, true, true
		}
	}
	return first, ended, ok
}

// AbortTransaction ends the open transaction of a producer that nobody will end: it appends an ABORT marker with the epoch and
// the coordinator epoch that the log knows, as kafka-transactions does to a hanging transaction. Its records do not count. If
// the transaction is one of a named producer's handle in this process, the handle learns of it by ErrInvalidTxnState.
//
// ErrInvalidTxnState means that the producer has no open transaction. Other errors and the durability are those of
// AppendEndTxnMarker.
func (l *Log) AbortTransaction(producerID int64) (AppendInfo, error) {
	if err := l.writable(); err != nil {
		return AppendInfo{}, err
	}
	l.names.mu.Lock()
	n := l.names.byID[producerID]
	l.names.mu.Unlock()
	if n != nil {
		n.mu.Lock()
		defer n.mu.Unlock()
	}
	e, known := l.ProducerEntry(producerID)
	if !known || e.CurrentTxnFirstOffset < 0 {
		return AppendInfo{}, fmt.Errorf("%w: producer %d has no open transaction", ErrInvalidTxnState, producerID)
	}
	return l.AppendEndTxnMarker(record.Producer{ID: producerID, Epoch: e.ProducerEpoch},
		record.EndTxnMarker{Type: record.Abort, CoordinatorEpoch: max(0, e.CoordinatorEpoch)}, MarkerAppend{LeaderEpoch: l.newestEpoch()})
}
