package wal

import (
	"fmt"
	"time"

	"github.com/oncelog/oncelog/record"
)

// MarkerAppend says how the marker of a transaction's end is appended. The zero value is a transaction of version 0 in
// leader epoch 0.
type MarkerAppend struct {
	LeaderEpoch int32

	// TransactionVersion of the transaction, 0, 1 or 2. With 0 and 1 the marker's producer epoch must not be below the
	// known one, with 2 it must be above it while a transaction is open (KIP-890, KIP-1228).
	TransactionVersion int8

	// Time that the marker carries; the zero Time stands for Options.Now.
	Time time.Time
}

// AppendEndTxnMarker ends the open transaction of a producer, as the transaction coordinator does through the leader of
// the partition: with record.Commit its records count, with record.Abort they do not and the transaction index says so.
// The producer's base sequence means nothing. A marker without an open transaction is stored as well: it sets the
// producer's epoch, and so fences older ones. Durability is that of AppendAsLeader.
//
// Errors are those of AppendAsLeader, among them ErrInvalidProducerEpoch and ErrCoordinatorFenced; ErrInvalidArgument for
// a producer, type or time that no marker can have. Kafka: MemoryRecords.withEndTransactionMarker.
func (l *Log) AppendEndTxnMarker(p record.Producer, m record.EndTxnMarker, o MarkerAppend) (AppendInfo, error) {
	at := o.Time
	if at.IsZero() {
		at = l.opts.Now()
	}
	switch {
	case p.ID < 0 || p.Epoch < 0:
		return AppendInfo{}, fmt.Errorf("%w: a marker needs a producer, id %d and epoch %d are none", ErrInvalidArgument, p.ID, p.Epoch)
	case m.Type != record.Abort && m.Type != record.Commit:
		return AppendInfo{}, fmt.Errorf("%w: %v ends no transaction", ErrInvalidArgument, m.Type)
	case at.UnixMilli() < record.NoTimestamp:
		return AppendInfo{}, fmt.Errorf("%w: marker time %v", ErrInvalidArgument, at)
	}
	return l.AppendAsLeader(record.AppendEndTxnMarker(nil, p, m, at.UnixMilli()),
		LeaderAppend{LeaderEpoch: o.LeaderEpoch, Origin: Coordinator, TransactionVersion: o.TransactionVersion})
}
