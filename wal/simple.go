package wal

import (
	"fmt"
	"time"

	"github.com/oncelog/oncelog/record"
)

// Record is what the simple floor appends and reads.
//
// Key and Value may be nil, which is not the same as empty: in a compacted log a nil Value deletes its Key, and a Key is
// needed. Time is stored in milliseconds; the zero Time stands for now when appending, and for none when reading.
type Record struct {
	Key, Value []byte
	Headers    []record.Header // names with values, kept in order; names may repeat
	Time       time.Time
}

// Stored is a record of the log with its offset.
type Stored struct {
	Offset int64
	Record
}

// Result says where the records of an append are.
type Result struct {
	// First and Last are the offsets of the first and the last record that the call appended; those between them follow
	// each other. If it appended none because they were stored before, they are the offsets from then, each −1 where the
	// log does not remember it; Producer.Locate finds it.
	First, Last int64

	// Skipped is how many records, from the first one on, were stored before. Only a Producer's appends skip records.
	Skipped int

	// Duplicate says that all of them were stored before, and nothing was appended.
	Duplicate bool
}

// Append stores the records as one batch: all of them or none, next to each other. It returns when they are as durable as
// Options.Sync promises; appends of several goroutines share a sync. The records' bytes are read during the call only.
//
// An error means that nothing was stored, except ErrFailed, which leaves it open until the log is opened again: to
// append again then may store the records twice. A Producer stores them once. Other errors are *TooLargeError,
// *RecordsError for records that a log of this kind does not take, ErrInvalidArgument for no records, ErrBatchTooLarge,
// ErrClosed, ErrReadOnly, and a full disk, after which an append works again when there is room.
func (l *Log) Append(recs ...Record) (Result, error) {
	r, ticket, err := l.accept(recs, &batchOptions{})
	if err != nil {
		return Result{}, err
	}
	if err := l.acknowledge(ticket); err != nil {
		return Result{}, err
	}
	return r, nil
}

// accept makes a batch of the records and gives it to the log. The caller waits for the ticket.
func (l *Log) accept(recs []Record, o *batchOptions) (r Result, ticket uint64, err error) {
	if err := l.writable(); err != nil {
		return r, 0, err
	}
	if len(recs) == 0 {
		return r, 0, fmt.Errorf("%w: an append needs at least one record", ErrInvalidArgument)
	}
	b := builders.Get().(*batchBuilder)
	defer b.release()
	batch, err := b.build(l, recs, o)
	if err != nil {
		return r, 0, err
	}
	how := LeaderAppend{LeaderEpoch: l.newestEpoch(), TransactionVersion: NoTransactionVersion}
	if o.transactional && l.settings().VerifyTransactions {
		// There is no coordinator to ask: the handle knows that the transaction is open.
		if how.Guard, err = l.VerifyTransaction(o.producer, false); err != nil {
			return r, 0, err
		}
	}
	info, ticket, err := l.appendAsLeader(batch, how, true)
	if err != nil {
		return r, 0, err
	}
	return Result{First: info.FirstOffset, Last: info.LastOffset, Duplicate: info.Duplicate}, ticket, nil
}

// newestEpoch is the leader epoch that appends of the simple floor go on with: where a broker wrote before, a lower one
// would erase what the log knows of the later ones.
func (l *Log) newestEpoch() int32 {
	if e, ok := l.epochs.Latest(); ok {
		return e.Epoch
	}
	return 0
}
