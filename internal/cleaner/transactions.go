package cleaner

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// transactions follows the transactions of the batches that are read, in the order of the log, and tells which batches
// need not stay. Kafka: CleanedTransactionMetadata.
type transactions struct {
	ahead     []index.AbortedTxn       // whose first batch is still to come, ascending by it
	aborted   map[int64]*abortedTxn    // by producer: the aborted transaction that the walk is in
	committed map[int64]bool           // by producer: batches of a committed one have come; true if with records
	left      func(t index.AbortedTxn) // an aborted transaction of which a batch is left
}

type abortedTxn struct {
	index.AbortedTxn
	seen bool // a batch of it has come
}

func newTransactions(left func(index.AbortedTxn)) transactions {
	return transactions{aborted: map[int64]*abortedTxn{}, committed: map[int64]bool{}, left: left}
}

// add enters the aborted transactions that have batches in [from, to).
func (t *transactions) add(set segment.Set, from, to int64) error {
	for s := range set.From(from) {
		list, complete, err := s.AbortedTxns(from, to)
		if err != nil {
			return err
		}
		t.ahead = append(t.ahead, list...)
		if complete {
			break
		}
	}
	slices.SortStableFunc(t.ahead, func(a, b index.AbortedTxn) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
	return nil
}

// read takes the next batch and tells whether nobody needs it: a batch of an aborted transaction, or a marker that no batch
// of its transaction has preceded.
func (t *transactions) read(b segment.BatchAt) (discard bool, err error) {
	for last := b.LastOffset(); len(t.ahead) > 0 && t.ahead[0].FirstOffset <= last; t.ahead = t.ahead[1:] {
		id := t.ahead[0].ProducerID
		if t.aborted[id] == nil {
			t.aborted[id] = &abortedTxn{AbortedTxn: t.ahead[0]}
		}
	}
	a := b.Attributes()
	switch {
	case a.IsControl():
		return t.control(b)
	case !a.IsTransactional():
		return false, nil
	}
	if x := t.aborted[b.ProducerID()]; x != nil {
		x.seen = true
		return true, nil
	}
	t.committed[b.ProducerID()] = t.committed[b.ProducerID()] || b.Count() > 0
	return false, nil
}

func (t *transactions) control(b segment.BatchAt) (discard bool, err error) {
	if b.Count() == 0 {
		return true, nil // a marker that has been emptied before
	}
	m, err := b.EndTxnMarker()
	if errors.Is(err, record.ErrNoMarker) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	id := b.ProducerID()
	if m.Type == record.Commit {
		_, seen := t.committed[id]
		delete(t.committed, id)
		return !seen, nil
	}
	x := t.aborted[id]
	delete(t.aborted, id)
	if x == nil && t.committed[id] {
		return false, &UnlistedAbortError{ProducerID: id, Offset: b.BaseOffset()}
	}
	if x == nil || !x.seen {
		return true, nil
	}
	if t.left != nil {
		t.left(x.AbortedTxn)
	}
	return false, nil
}

// UnlistedAbortError says that a transaction was aborted, as its marker tells, but no transaction index lists it: entries are
// missing. Reading goes by the index, and so takes the records for committed.
type UnlistedAbortError struct {
	Path       string // of the segment with the marker
	ProducerID int64
	Offset     int64 // of the marker
}

// Error says what is missing and how to get it back.
func (e *UnlistedAbortError) Error() string {
	return fmt.Sprintf("cleaner: %s: the transaction of producer %d that the marker at offset %d aborts is in no transaction index; "+
		"close the log and remove the .txnindex and .index files of this segment: an open makes them anew", e.Path, e.ProducerID, e.Offset)
}
