package wal

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// Errors of named producers.
var (
	// ErrFencedHandle means a Producer whose name was opened again in this process: the newer handle goes on.
	ErrFencedHandle = errors.New("wal: producer was opened again")

	// ErrNameConflict means two names with the same producer id. It is a coincidence with a probability of about 1e-7 for
	// a million names; another name is the way out.
	ErrNameConflict = producerstate.ErrNamedConflict

	// ErrTransactionalName means a name whose last batch belongs to a transaction. Its counts are not those of records
	// that count, since aborted ones have taken some.
	ErrTransactionalName = errors.New("wal: producer is transactional")

	// ErrCountGap is matched by a CountError about records that were left out.
	ErrCountGap = errors.New("wal: records are missing")

	// ErrCountTooLow is matched by a CountError about records from before the first one that the log got.
	ErrCountTooLow = errors.New("wal: records from before the first one")
)

// CountError is an AppendAt that does not continue what the log holds of the name. It matches ErrCountGap if Count lies
// above Next, and ErrCountTooLow if it lies below First. Nothing was stored.
type CountError struct {
	Name  string
	Count uint64 // of the first record of the append
	First uint64 // count of the first record that the log ever stored of the name
	Next  uint64 // count that the next record must have
}

// Error gives the name and the numbers.
func (e *CountError) Error() string {
	if e.Count > e.Next {
		return fmt.Sprintf("wal: producer %q: append at count %d, but the next one is %d: missing are %d",
			e.Name, e.Count, e.Next, e.Count-e.Next)
	}
	return fmt.Sprintf("wal: producer %q: append at count %d, but the first record of the name has %d", e.Name, e.Count, e.First)
}

// Is reports whether target is ErrCountGap or ErrCountTooLow, whichever it is.
func (e *CountError) Is(target error) bool {
	if e.Count > e.Next {
		return target == ErrCountGap
	}
	return target == ErrCountTooLow
}

// MaxCount is the count at which a name is used up: counts have 46 bits.
const MaxCount uint64 = 1 << 46

// Counts are stored as an epoch and a sequence of this many bits.
const sequenceBits = 31

// NamedProducerID returns the producer id that the batches of a name carry: 2^62 and the low 62 bits of the name's XXH64.
// No Kafka cluster gives such an id to a producer, and a broker takes and deduplicates it like any other.
func NamedProducerID(name string) int64 {
	return producerstate.MinNamedProducerID | int64(xxhash.Sum64String(name)&(1<<62-1))
}

func countOf(epoch int16, sequence int32) uint64 {
	return uint64(epoch)<<sequenceBits | uint64(sequence)
}

// name is a name that is open, shared by the handles of it that there were.
type name struct {
	id   int64
	name string

	// mu orders the appends of the name. It is taken before all locks of the log's.
	mu      sync.Mutex
	current *Producer     // the handle that may append; guarded by mu
	flying  []storedCount // accepted, waited for, and not known to be durable, oldest first; guarded by mu
	durable storedCount   // of those that were, the newest; guarded by mu
	counted int64         // last offset of a batch known to belong to no transaction, −1; guarded by mu
	txn     *Transaction  // that is open, of the current handle; guarded by mu
}

// storedCount is the end of a batch of a name.
type storedCount struct {
	next uint64 // count behind it
	last int64  // its last offset
}

// names are the names that are open.
type names struct {
	mu   sync.Mutex
	byID map[int64]*name // guarded by mu
}

// nameState is what the log knows of a name at one moment.
type nameState struct {
	entry   producerstate.Entry
	known   bool // entry is there
	named   producerstate.Named
	isNamed bool
	durable int64  // end of what readers see
	synced  int64  // end of what is on disk
	ticket  uint64 // of the newest append
}

func (l *Log) nameState(id int64) (s nameState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.entry, s.known = l.producers.LastEntry(id)
	s.named, s.isNamed = l.producers.NamedProducer(id)
	s.durable, s.synced, s.ticket = l.ends.end.offset, l.durable.Offset, l.tickets.Load()
	return s
}

// next is the count behind everything that was accepted of the name.
func (s *nameState) next() uint64 {
	last, ok := s.entry.LastBatch()
	if !ok || last.LastSequence < 0 {
		return countOf(max(s.entry.ProducerEpoch, 0), 0)
	}
	return countOf(s.entry.ProducerEpoch, last.LastSequence) + 1
}

// openName enters a name, or finds it, and makes sure that its first count is known.
func (l *Log) openName(s string) (*name, error) {
	l.names.mu.Lock()
	defer l.names.mu.Unlock()
	id := NamedProducerID(s)
	if n, ok := l.names.byID[id]; ok {
		if n.name != s {
			return nil, fmt.Errorf("%w: %d is %q, not %q", ErrNameConflict, id, n.name, s)
		}
		return n, nil
	}
	state := l.nameState(id)
	if state.known && !state.isNamed {
		first, err := l.firstCount(id, &state)
		if err != nil {
			return nil, err
		}
		state.named.FirstCount = int64(first)
	}
	if state.known {
		// Also where the name is there already: another one is a conflict.
		if err := l.setNamed(producerstate.Named{ID: id, FirstCount: state.named.FirstCount, Name: s}); err != nil {
			return nil, err
		}
	}
	n := &name{id: id, name: s, counted: noOffset}
	if l.names.byID == nil {
		l.names.byID = map[int64]*name{}
	}
	l.names.byID[id] = n
	return n, nil
}

func (l *Log) setNamed(n producerstate.Named) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if err := l.producers.SetNamed(n); err != nil {
		return fmt.Errorf("wal: producer %q: %w", n.Name, err)
	}
	return nil
}

// forgetUnused takes a name back of which nothing was stored after all.
func (l *Log) forgetUnused(id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.producers.LastEntry(id); !known {
		l.producers.ForgetNamed(id)
	}
}

// firstCount finds the count of the first record that the log still holds of an id. It is for a name whose first batch
// nobody wrote down, as when a broker has rewritten the producer state.
func (l *Log) firstCount(id int64, state *nameState) (first uint64, err error) {
	err = l.observe(func(e *ends, set *segment.Set) error {
		first = state.next()
		for s := range set.From(e.logStart) {
			w := s.ScanHeaders(0, endIn(s, e.end))
			for w.Next() {
				if h := w.Header(); isCounted(&h, id) {
					first = countOf(h.ProducerEpoch, h.BaseSequence)
					return nil
				}
			}
			if err := scanError(w); err != nil {
				return fmt.Errorf("wal: first batch of producer %d: %w", id, err)
			}
		}
		return nil
	})
	return first, err
}

func isCounted(h *segment.Header, id int64) bool {
	return h.ProducerID == id && h.BaseSequence >= 0 && !h.Attributes.IsControl()
}

// scanError is why a walk over good bytes ended before their end, nil if it did not.
func scanError(w *segment.HeaderScanner) error {
	if err := w.Err(); err != nil {
		return err
	}
	if t := w.Tail(); t.Kind == segment.Torn || t.Kind == segment.Damage {
		return t.Reason
	}
	return nil
}

// isTransactional tells whether the last batch of a name belongs to a transaction. If it cannot be read any more, a name
// that ever had a transaction counts as one that still has. The caller holds n.mu.
func (l *Log) isTransactional(n *name, s *nameState) (bool, error) {
	if !s.known || s.entry.CurrentTxnFirstOffset >= 0 {
		return s.known, nil
	}
	if s.entry.CoordinatorEpoch < 0 {
		return false, nil // no marker ever ended one
	}
	last, ok := s.entry.LastBatch()
	if !ok {
		return true, nil
	}
	if last.LastOffset == n.counted {
		return false, nil
	}
	b, err := l.batchAt(last.LastOffset)
	if errors.Is(err, ErrOffsetOutOfRange) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("wal: last batch of producer %q: %w", n.name, err)
	}
	if b.ProducerID() != n.id || b.Attributes().IsTransactional() {
		return true, nil
	}
	n.counted = last.LastOffset
	return false, nil
}

// accepted notes a batch of the name that the log has taken. The caller holds mu.
func (n *name) accepted(b storedCount, transactional, waits bool, durable int64) {
	if !transactional {
		n.counted = b.last
	}
	if !waits {
		return
	}
	n.settle(durable)
	// A truncation may have taken offsets back that are given again here.
	for len(n.flying) > 0 && n.flying[len(n.flying)-1].last >= b.last {
		n.flying = n.flying[:len(n.flying)-1]
	}
	n.flying = append(n.flying, b)
}

// settle moves what has become durable. The caller holds mu.
func (n *name) settle(durable int64) {
	k := 0
	for k < len(n.flying) && n.flying[k].last < durable {
		n.durable = n.flying[k]
		k++
	}
	n.flying = append(n.flying[:0], n.flying[k:]...)
}

// durableEnd is the newest durable batch of the name. The caller holds mu.
func (n *name) durableEnd(s *nameState) (end storedCount, ok bool) {
	n.settle(s.durable)
	for m := range s.entry.Batches() {
		if m.LastOffset < s.durable && m.LastSequence >= 0 {
			end, ok = storedCount{next: countOf(s.entry.ProducerEpoch, m.LastSequence) + 1, last: m.LastOffset}, true
		}
	}
	if ok {
		n.durable = end // a batch of the next epoch makes the state forget it
	}
	if !ok && s.known && s.entry.BatchCount() > 0 && n.durable.next > 0 {
		return n.durable, true
	}
	return end, ok
}

// producer is the producer of a batch whose first record has a count.
func (n *name) producer(count uint64) record.Producer {
	return record.Producer{ID: n.id, Epoch: int16(count >> sequenceBits), BaseSequence: int32(count & (1<<sequenceBits - 1))}
}
