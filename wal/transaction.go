package wal

import (
	"errors"
	"fmt"

	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/record"
)

// ErrCountedName means a name whose records are counted, which cannot begin to have transactions: an aborted one would take
// counts for records that do not count.
var ErrCountedName = errors.New("wal: producer is counted")

// Transaction is a group of appends of a named producer that counts as a whole or not at all, also after a crash. Begin
// starts one. All methods may be called by any number of goroutines at once.
type Transaction struct {
	producer *Producer
	first    int64 // offset of its first record, −1 before there is one; guarded by name.mu
	over     error // why nothing can be appended any more; guarded by name.mu
}

// Begin starts a transaction. What is appended in it becomes visible to readers of committed records with Commit, all at
// once, and with Abort never; until then their Last Stable offset stays below it, and what others append behind it waits too.
//
// A name is counted (Append, AppendAt) or transactional, for good, and the first append decides. A program that starts
// again resumes a transactional name by LastPosition, which is that of the last transaction that was committed; AppendAt is
// ErrTransactionalName, and NextSequence counts the records of aborted transactions too. A transaction that a crash leaves open is
// aborted by the next Open, or where Options.ManualHighWatermark says that the log is a replica, by the next Producer of the
// name; so is one that is open when its name is opened again in the process. With either the older handle is fenced.
//
// Errors: ErrInvalidTxnState while a transaction of the name is open, ErrCountedName, ErrFencedHandle, ErrClosed, ErrReadOnly,
// ErrFailed. Nothing is written yet.
func (p *Producer) Begin() (*Transaction, error) {
	n := p.name
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := p.usable(); err != nil {
		return nil, err
	}
	if n.txn != nil {
		return nil, fmt.Errorf("%w: producer %q has an open transaction", ErrInvalidTxnState, n.name)
	}
	s := p.log.nameState(n.id)
	transactional, err := p.log.isTransactional(n, &s)
	if err != nil {
		return nil, err
	}
	if _, stored := s.entry.LastBatch(); stored && !transactional {
		return nil, fmt.Errorf("%w: %q", ErrCountedName, n.name)
	}
	n.txn = &Transaction{producer: p, first: noOffset}
	return n.txn, nil
}

// Append adds records to the transaction, as one batch. It does not wait until they are durable: Commit does, for all of them.
//
// An error other than ErrFailed means that the records are not in the transaction, which goes on; it is for the caller to append
// them again, or to abort. Errors are those of Producer.Append, and ErrInvalidTxnState once the transaction is over.
func (t *Transaction) Append(recs ...Record) (Result, error) { return t.append(recs, nil) }

// AppendWithPosition is Append that stores a position of the caller's source with the last record, for LastPosition. The
// position that counts is that of the last batch of a transaction.
func (t *Transaction) AppendWithPosition(position []byte, recs ...Record) (Result, error) {
	if position == nil {
		position = []byte{}
	}
	return t.append(recs, position)
}

func (t *Transaction) append(recs []Record, position []byte) (Result, error) {
	p := t.producer
	p.name.mu.Lock()
	defer p.name.mu.Unlock()
	if len(recs) == 0 {
		return Result{}, fmt.Errorf("%w: an append needs at least one record", ErrInvalidArgument)
	}
	s, err := t.state()
	if err != nil {
		return Result{}, err
	}
	r, _, err := p.store(&s, p.next(&s), recs, batchOptions{transactional: true, position: position})
	if t.first == noOffset {
		now := p.log.nameState(p.name.id)
		t.first = now.openTxn() // also of the first of two batches, if the second failed
	}
	return r, err
}

// state returns the state of the name if the transaction can go on. The caller holds name.mu.
func (t *Transaction) state() (s nameState, err error) {
	if t.over != nil {
		return s, t.over
	}
	if err := t.producer.usable(); err != nil {
		return s, err
	}
	s = t.producer.log.nameState(t.producer.name.id)
	if open := s.openTxn(); open != t.first {
		// A truncation, or a marker that somebody appended on the broker's floor.
		t.end(fmt.Errorf("%w: the transaction of producer %q from offset %d on was ended by somebody else", ErrInvalidTxnState, t.producer.name.name, t.first))
		return s, t.over
	}
	return s, nil
}

// openTxn is the first offset of the name's open transaction, −1 if none is open.
func (s *nameState) openTxn() int64 {
	if !s.known {
		return noOffset
	}
	return s.entry.CurrentTxnFirstOffset
}

// end lets go of the transaction. The caller holds name.mu.
func (t *Transaction) end(why error) {
	t.over = why
	if n := t.producer.name; n.txn == t {
		n.txn = nil
	}
}

// Commit makes the records of the transaction count. When it returns nil they and the commit are as durable as the producer's
// Ack promises. A transaction without records leaves no trace.
//
// With ErrFailed it is open whether the transaction is committed, until the log is opened again; LastPosition then tells. Any other
// error leaves it as it was: Commit and Abort may be called again. After a Commit that succeeded they are ErrInvalidTxnState.
func (t *Transaction) Commit() error { return t.finish(record.Commit) }

// Abort makes the records of the transaction not count. Readers of committed records never see them. After an Abort that
// succeeded Commit and Abort are ErrInvalidTxnState. The errors are those of Commit.
func (t *Transaction) Abort() error { return t.finish(record.Abort) }

func (t *Transaction) finish(kind record.ControlType) error {
	p := t.producer
	n := p.name
	n.mu.Lock()
	s, err := t.state()
	if err != nil {
		n.mu.Unlock()
		return err
	}
	var ticket uint64
	if t.first != noOffset {
		if ticket, err = p.log.appendNameMarker(&s.entry, kind); err != nil {
			n.mu.Unlock()
			return err
		}
	}
	over := "committed"
	if kind == record.Abort {
		over = "aborted"
	}
	t.end(fmt.Errorf("%w: the transaction of producer %q was %s", ErrInvalidTxnState, n.name, over))
	n.mu.Unlock()
	return p.acknowledge(ticket)
}

// appendNameMarker ends the open transaction of an entry with a marker that keeps the epoch, which is part of the count. The
// caller waits for the ticket.
func (l *Log) appendNameMarker(e *producerstate.Entry, kind record.ControlType) (ticket uint64, err error) {
	p := record.Producer{ID: e.ProducerID, Epoch: e.ProducerEpoch}
	m := record.EndTxnMarker{Type: kind, CoordinatorEpoch: max(0, e.CoordinatorEpoch)}
	b := record.AppendEndTxnMarker(nil, p, m, l.opts.Now().UnixMilli())
	_, ticket, err = l.appendAsLeader(b, LeaderAppend{LeaderEpoch: l.newestEpoch(), Origin: Coordinator}, true)
	return ticket, err
}

// abortLeftOpen aborts the transactions of named producers that an earlier writer left open: the lock says that it is gone.
// Where there is no room for a marker the open goes on, and the next Producer of the name tries again.
func (l *Log) abortLeftOpen() error {
	if l.opts.ReadOnly || l.opts.Compat || l.opts.ManualHighWatermark {
		return nil
	}
	for _, t := range l.producers.OpenTxns() {
		if t.ProducerID < producerstate.MinNamedProducerID {
			continue
		}
		if err := l.abortName(t.ProducerID); err != nil {
			if l.failure() != nil {
				return l.failure()
			}
			l.warn("abort of a transaction that was left open", err)
		}
	}
	return nil
}

// abortName aborts the open transaction of a name, if there is one, and waits until that is durable.
func (l *Log) abortName(id int64) error {
	e, known := l.ProducerEntry(id)
	if !known || e.CurrentTxnFirstOffset < 0 {
		return nil
	}
	ticket, err := l.appendNameMarker(&e, record.Abort)
	if err == nil {
		err = l.acknowledge(ticket)
	}
	if err != nil {
		return fmt.Errorf("wal: abort the transaction of producer %d that was left open: %w", id, err)
	}
	l.opts.Logger.Info("aborted a transaction that was left open", "dir", l.dir, "producer", id, "offset", e.CurrentTxnFirstOffset)
	return nil
}
