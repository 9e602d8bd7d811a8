package wal

import (
	"fmt"
	"slices"

	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/segment"
)

// AppendAt stores the records of which the first one has a count, each of them once, however they were divided into
// appends before: those that are stored are skipped, and Result.Skipped says how many, the rest is stored as one batch.
// It returns when all of them, the skipped ones too, are as durable as Options.Sync promises.
//
// So a program that does not know what became of an append appends again, from any count that it has the records of, in
// this process or in the next one. It has to append the same records at the same counts: the log compares the counts,
// not the contents.
//
// A count above the next one is a *CountError (ErrCountGap), one below the first record that the name ever stored here
// too (ErrCountTooLow). A name with transactions has no counts: ErrTransactionalName. Other errors are those of Append.
//
// Where all records were stored before, Result has their offsets if they lie in the last five batches of the name. Locate
// finds the others.
func (p *Producer) AppendAt(count uint64, recs ...Record) (Result, error) {
	return p.wait(p.appendAt(count, recs))
}

// AppendAtAsync is AppendAt as Log.AppendAsync is to Log.Append. If one of several in flight fails, those behind it
// fail too, with ErrCountGap, unless they were appended before; appending all of them again is safe.
func (p *Producer) AppendAtAsync(count uint64, recs ...Record) *Pending {
	r, ticket, err := p.appendAt(count, recs)
	return p.log.pend(r, ticket, err, p.ack)
}

func (p *Producer) appendAt(count uint64, recs []Record) (Result, uint64, error) {
	p.name.mu.Lock()
	defer p.name.mu.Unlock()
	s, err := p.mayAppend(recs)
	if err != nil {
		return Result{}, 0, err
	}
	first, next := p.first(&s), p.next(&s)
	if count < first || count > next {
		return Result{}, 0, &CountError{Name: p.name.name, Count: count, First: first, Next: next}
	}
	if stored := next - count; stored < uint64(len(recs)) {
		r, ticket, err := p.store(&s, next, recs[stored:], batchOptions{})
		r.Skipped = int(stored)
		return r, ticket, err
	}
	last := count + uint64(len(recs)) - 1
	r := Result{First: remembered(&s.entry, count), Last: remembered(&s.entry, last), Skipped: len(recs), Duplicate: true}
	return r, s.ticket, nil
}

// remembered is the offset of a record in the last five batches, or −1.
func remembered(e *producerstate.Entry, count uint64) int64 {
	for m := range e.Batches() {
		if m.LastSequence < 0 {
			continue
		}
		last := countOf(e.ProducerEpoch, m.LastSequence)
		if count <= last && last-count <= uint64(m.OffsetDelta) {
			return m.LastOffset - int64(last-count)
		}
	}
	return noOffset
}

// Locate returns the offset of the record with a count. It looks at the last five batches of the name and then searches
// the log, from its end on, which reads the header of each batch on the way. It is not found if no such record is
// durable, or if it has been deleted.
func (p *Producer) Locate(count uint64) (offset int64, found bool, err error) {
	l := p.log
	if l.isClosed.Load() {
		return noOffset, false, ErrClosed
	}
	s := l.nameState(p.name.id)
	if !s.known {
		return noOffset, false, nil
	}
	offset = remembered(&s.entry, count)
	if offset == noOffset && count < p.next(&s) && count >= p.first(&s) {
		err = l.observe(func(e *ends, set *segment.Set) (err error) {
			offset, err = searchCount(e, set, p.name.id, count)
			return err
		})
		if err != nil {
			return noOffset, false, fmt.Errorf("wal: search for count %d of producer %q: %w", count, p.name.name, err)
		}
	}
	view := l.visible.load()
	if offset < view.logStart || offset >= view.end.offset {
		return noOffset, false, nil
	}
	return offset, true, nil
}

// searchCount looks through the segments, the newest one first, since the counts of a name ascend with the offsets.
func searchCount(e *ends, set *segment.Set, id int64, count uint64) (int64, error) {
	for _, s := range slices.Backward(slices.Collect(set.From(e.logStart))) {
		w := s.ScanHeaders(0, endIn(s, e.end))
		lower := false
		for w.Next() {
			h := w.Header()
			if !isCounted(&h, id) {
				continue
			}
			first := countOf(h.ProducerEpoch, h.BaseSequence)
			if count >= first && count-first <= uint64(h.LastOffset-h.BaseOffset) {
				return h.BaseOffset + int64(count-first), nil
			}
			lower = lower || first < count
		}
		if err := scanError(w); err != nil {
			return noOffset, err
		}
		if lower {
			break // those above it would have been in a newer segment, or here
		}
	}
	return noOffset, nil
}
