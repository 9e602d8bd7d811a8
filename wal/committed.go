package wal

import (
	"fmt"
	"slices"

	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// lastCommitted finds the last offset of the newest transaction of the name that was committed. It walks over the headers of
// the log from its end on, until it comes to one. The caller holds name.mu.
func (p *Producer) lastCommitted(s *nameState) (last int64, found bool, err error) {
	l := p.log
	below := p.log.promised(p.ack)
	err = l.observe(func(e *ends, set *segment.Set) (err error) {
		w := committedSearch{id: p.name.id, lowest: s.next(), end: e.end, below: below, last: noOffset}
		for _, s := range slices.Backward(slices.Collect(set.From(e.logStart))) {
			if found, err = w.segment(s); err != nil || found {
				break
			}
		}
		last = w.last
		if err == nil && !found && w.lowest > p.first(s) {
			err = &OffsetError{Offset: e.logStart - 1, LogStart: e.logStart, LogEnd: e.end.offset}
		}
		return err
	})
	if err != nil {
		return noOffset, false, fmt.Errorf("wal: last committed transaction of producer %q: %w", p.name.name, err)
	}
	return last, found, nil
}

// committedSearch walks backwards over the batches of one producer.
type committedSearch struct {
	id        int64
	end       place
	below     int64  // a commit at or above it does not count yet
	committed bool   // the batch before belongs to a transaction that was committed
	lowest    uint64 // lowest count met
	last      int64
}

// sighting is a batch of the producer.
type sighting struct {
	last              int64
	count             uint64
	isMarker, commits bool
}

func (w *committedSearch) segment(s *segment.Segment) (found bool, err error) {
	lists, err := sightings(s, endIn(s, w.end), w.below, func(id int64) bool { return id == w.id })
	return err == nil && w.take(lists[w.id]), err
}

// sightings collects the batches of some producers in a segment, in order. A commit at or above below does not count yet.
func sightings(s *segment.Segment, end, below int64, wanted func(id int64) bool) (map[int64][]sighting, error) {
	lists := map[int64][]sighting{}
	var buf []byte
	scan := s.ScanHeaders(0, end)
	for scan.Next() {
		h := scan.Header()
		if !wanted(h.ProducerID) {
			continue
		}
		b := sighting{last: h.LastOffset, isMarker: h.Attributes.IsControl()}
		if b.isMarker {
			batch, grown, err := s.ReadBatch(buf[:0], h)
			if err != nil {
				return nil, err
			}
			buf = grown
			marker, err := batch.EndTxnMarker()
			b.commits = err == nil && marker.Type == record.Commit && h.LastOffset < below
		} else {
			b.count = countOf(h.ProducerEpoch, h.BaseSequence)
		}
		lists[h.ProducerID] = append(lists[h.ProducerID], b)
	}
	return lists, scanError(scan)
}

// take walks backwards over the batches of one more segment and tells whether the search is over.
func (w *committedSearch) take(list []sighting) (found bool) {
	for _, b := range slices.Backward(list) {
		switch {
		case b.isMarker:
			w.committed = b.commits
		case w.committed:
			w.last = b.last
			return true
		default:
			w.lowest = min(w.lowest, b.count)
		}
	}
	return false
}

// lastCommittedOf finds the last offsets of the newest committed transactions of several producers, in one walk from the end
// of the log on. Those that have none are left out.
func lastCommittedOf(set segment.Set, end place, below int64, ids []int64) (offsets []int64, err error) {
	searches := map[int64]*committedSearch{}
	for _, id := range ids {
		searches[id] = &committedSearch{id: id}
	}
	wanted := func(id int64) bool { return searches[id] != nil }
	for _, s := range slices.Backward(slices.Collect(set.All())) {
		if len(searches) == 0 {
			break
		}
		lists, err := sightings(s, endIn(s, end), below, wanted)
		if err != nil {
			return nil, err
		}
		for id, list := range lists {
			if w := searches[id]; w.take(list) {
				offsets = append(offsets, w.last)
				delete(searches, id)
			}
		}
	}
	return offsets, nil
}
