package wal

import (
	"fmt"

	"github.com/oncelog/oncelog/producerstate"
)

// ProducerOptions say how a named producer begins. The zero value is a name that starts at 0.
type ProducerOptions struct {
	// StartAt is the count of the name's first record. It means something only until one is stored, so a program may give
	// it at every start.
	StartAt uint64

	// Ack is what appends and commits wait for; default AckSync. AckNone is an error: who waits for no answer has nothing to
	// append again, and a name would promise what it cannot keep. With AckDisk NextSequence and LastPosition, too, tell only
	// what is on disk.
	Ack Ack
}

// Producer appends records under a name, so that a record that is appended again is stored once, also when the program
// was restarted in between and when the answer of an append was lost.
//
// The records of a name are counted. The count goes into the batches that store them, as the epoch and the sequence
// number of an idempotent Kafka producer, and so the log knows after any restart how far the name has come: a program
// that can produce its records again from a count on asks NextSequence, or simply appends again with AppendAt. A program
// whose source has positions that cannot be counted stores them with AppendWithPosition and asks LastPosition.
//
// A name is not forgotten, however long it is silent: the number of names is bounded by the program alone. Each takes about
// 400 bytes of memory while the log is open and up to 220 in each snapshot and its side file, and its own length in both. So
// names are for sources, such as devices or tables, not for requests or sessions.
//
// A name has one user: opening it again fences the handle before, and other processes cannot write to the log at all. There
// is nothing to close.
type Producer struct {
	log     *Log
	name    *name
	startAt uint64
	ack     Ack
}

// Producer opens a name of 1 to 65535 bytes. Earlier handles of the name in this process are fenced: their appends
// return ErrFencedHandle. A name whose first batch is not known any more, because a Kafka broker has written to the
// directory meanwhile, makes the call search the log for it.
//
// Errors: ErrNameConflict, ErrInvalidArgument, ErrClosed, ErrReadOnly, and ErrInvalidOptions with Options.Compat, where
// the log forgets silent producers as a broker does.
func (l *Log) Producer(name string, o ProducerOptions) (*Producer, error) {
	if err := l.writable(); err != nil {
		return nil, err
	}
	switch {
	case len(name) == 0 || len(name) > producerstate.MaxNameBytes:
		return nil, fmt.Errorf("%w: producer name of %d bytes, it must have 1 to %d", ErrInvalidArgument, len(name), producerstate.MaxNameBytes)
	case o.StartAt >= MaxCount:
		return nil, fmt.Errorf("%w: StartAt %d, counts end at %d", ErrInvalidArgument, o.StartAt, MaxCount-1)
	case l.opts.Compat:
		return nil, fmt.Errorf("%w: Producer %q with Options.Compat: the log forgets silent producers then, so that a name makes no retry safe",
			ErrInvalidOptions, name)
	case o.Ack == AckNone:
		return nil, fmt.Errorf("%w: Producer %q with Ack AckNone: a name stores each record once by appending again what has no answer; Log.AppendAck waits for none",
			ErrInvalidOptions, name)
	}
	if err := o.Ack.validate(); err != nil {
		return nil, err
	}
	n, err := l.openName(name)
	if err != nil {
		return nil, err
	}
	if err := l.mayStartAt(n, o.StartAt); err != nil {
		return nil, err
	}
	p := &Producer{log: l, name: n, startAt: o.StartAt, ack: o.Ack}
	n.mu.Lock()
	defer n.mu.Unlock()
	if t := n.txn; t != nil {
		t.end(fmt.Errorf("%w: %q, and its transaction is aborted", ErrFencedHandle, name))
	}
	n.current = p
	if err := l.abortName(n.id); err != nil {
		return nil, err
	}
	if o.Ack == AckDisk {
		// What an earlier handle did not wait for is not to be forgotten, and not to be told before it is on disk.
		if err := l.await(l.tickets.Load(), AckDisk); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// mayStartAt refuses a first count that the log would take for a producer's lost beginning.
func (l *Log) mayStartAt(n *name, count uint64) error {
	rule := l.settings().UnknownProducers
	s := l.nameState(n.id)
	refuses := rule == UnknownRefused || rule == UnknownAtLogStart && l.visible.load().end.offset == 0
	if s.known || !refuses || count&(1<<sequenceBits-1) == 0 {
		return nil
	}
	return fmt.Errorf("%w: Producer %q with StartAt %d and Options.UnknownProducers, which refuses a first sequence other than 0",
		ErrInvalidOptions, n.name, count)
}

// Name returns the name.
func (p *Producer) Name() string { return p.name.name }

// ID returns the producer id that the name's batches carry, NamedProducerID of the name.
func (p *Producer) ID() int64 { return p.name.id }

// NextSequence returns the count of the next record: where a restarted program goes on. In SyncCommit it counts only
// what is durable, so that nobody acts on a record that a power cut takes back. While appends are in flight it lies
// behind what Append takes next. It works after Close and of a fenced handle too.
func (p *Producer) NextSequence() uint64 {
	p.name.mu.Lock()
	defer p.name.mu.Unlock()
	s := p.log.nameState(p.name.id)
	if end, ok := p.durableEnd(&s); ok {
		return end.next
	}
	switch {
	case s.known && s.entry.BatchCount() > 0 && s.isNamed:
		return uint64(s.named.FirstCount) // nothing is durable yet
	case s.known:
		return s.next()
	}
	return p.startAt
}

// Append stores the records with the next counts, as one batch, and returns when it is as durable as Options.Sync
// promises. Goroutines that append at the same time get their counts in the order in which the log takes their records.
// It is for records that nobody will append again after an error; AppendAt is for those.
//
// Errors are those of Log.Append, ErrFencedHandle, ErrTransactionalName, and ErrInvalidArgument at MaxCount. Once in 2^31
// records an append is stored as two batches, which other appends may separate.
func (p *Producer) Append(recs ...Record) (Result, error) {
	return p.wait(p.appendNext(recs, nil))
}

// AppendAsync is Append as Log.AppendAsync is to Log.Append.
func (p *Producer) AppendAsync(recs ...Record) *Pending {
	r, ticket, err := p.appendNext(recs, nil)
	return p.log.pend(r, ticket, err, p.ack)
}

func (p *Producer) wait(r Result, ticket uint64, err error) (Result, error) {
	if err != nil {
		return Result{}, err
	}
	if err := p.acknowledge(ticket); err != nil {
		return Result{}, err
	}
	return r, nil
}

func (p *Producer) appendNext(recs []Record, position []byte) (Result, uint64, error) {
	p.name.mu.Lock()
	defer p.name.mu.Unlock()
	s, err := p.mayAppend(recs)
	if err != nil {
		return Result{}, 0, err
	}
	return p.store(&s, p.next(&s), recs, batchOptions{position: position})
}

// mayAppend checks everything that does not depend on the count. The caller holds name.mu.
func (p *Producer) mayAppend(recs []Record) (s nameState, err error) {
	if err := p.usable(); err != nil {
		return s, err
	}
	if len(recs) == 0 {
		return s, fmt.Errorf("%w: an append needs at least one record", ErrInvalidArgument)
	}
	s = p.log.nameState(p.name.id)
	transactional, err := p.log.isTransactional(p.name, &s)
	if err == nil && (transactional || p.name.txn != nil) {
		err = fmt.Errorf("%w: %q", ErrTransactionalName, p.name.name)
	}
	return s, err
}

// usable tells whether the handle may change anything. The caller holds name.mu.
func (p *Producer) usable() error {
	if err := p.log.writable(); err != nil {
		return err
	}
	if p.name.current != p {
		return fmt.Errorf("%w: %q", ErrFencedHandle, p.name.name)
	}
	return nil
}

// acknowledge waits for what the producer's appends promise.
func (p *Producer) acknowledge(ticket uint64) error { return p.log.await(ticket, p.ack) }

// durableEnd is the newest batch of the name that is what the producer's Ack promises. The caller holds name.mu.
func (p *Producer) durableEnd(s *nameState) (end storedCount, ok bool) {
	if p.ack == AckDisk {
		s.durable = min(s.durable, s.synced)
	}
	return p.name.durableEnd(s)
}

// next is the count that the next record gets, and first the lowest one that the log may be asked about.
func (p *Producer) next(s *nameState) uint64 {
	if !s.known {
		return p.startAt
	}
	return s.next()
}

func (p *Producer) first(s *nameState) uint64 {
	if !s.known {
		return p.startAt
	}
	return uint64(s.named.FirstCount)
}

// store appends records that have the next counts. The caller holds name.mu.
func (p *Producer) store(s *nameState, count uint64, recs []Record, o batchOptions) (r Result, ticket uint64, err error) {
	if uint64(len(recs)) > MaxCount-count {
		return r, 0, fmt.Errorf("%w: producer %q: %d records from count %d, counts end at %d",
			ErrInvalidArgument, p.name.name, len(recs), count, MaxCount-1)
	}
	if !s.known {
		// Before the batch, so that no checkpoint knows the batch and not where the name began.
		n := producerstate.Named{ID: p.name.id, FirstCount: int64(count), Name: p.name.name}
		if err := p.log.setNamed(n); err != nil {
			return r, 0, err
		}
		defer func() {
			if err != nil {
				p.log.forgetUnused(p.name.id)
			}
		}()
	}
	p.durableEnd(s) // while the state still has it
	room := 1<<sequenceBits - count&(1<<sequenceBits-1)
	if uint64(len(recs)) <= room {
		return p.storeBatch(count, recs, o)
	}
	// The epoch changes inside: two batches. Should a crash separate them, the position is still the one before.
	before := o
	before.position = nil
	if o.position != nil && !o.transactional {
		if err := p.acknowledge(s.ticket); err != nil {
			return r, 0, err
		}
		now := p.log.nameState(p.name.id)
		if before.position, _, err = p.lastPosition(&now); err != nil {
			return r, 0, err
		}
	}
	head, _, err := p.storeBatch(count, recs[:room], before)
	if err != nil {
		return r, 0, err
	}
	r, ticket, err = p.storeBatch(count+room, recs[room:], o)
	r.First = head.First
	return r, ticket, err
}

func (p *Producer) storeBatch(count uint64, recs []Record, o batchOptions) (r Result, ticket uint64, err error) {
	o.named, o.producer = true, p.name.producer(count)
	r, ticket, err = p.log.accept(recs, &o)
	if err != nil {
		return Result{}, 0, err
	}
	if r.Duplicate {
		return Result{}, 0, fmt.Errorf("%w: producer %q: count %d was appended by somebody else", ErrOutOfOrderSequence, p.name.name, count)
	}
	p.name.accepted(storedCount{next: count + uint64(len(recs)), last: r.Last}, o.transactional, p.log.waits(p.ack), p.log.promised(p.ack))
	return r, ticket, nil
}
