package recovery

import (
	"errors"
	"fmt"
	"slices"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// replay applies the batches of a stretch of the log to producer state, as a follower would. Damage that is not known yet lets the
// load begin anew and scan the segment, and ends one for writing. A reader goes on behind it, and knows no end of the
// transactions that were open there (Doubt).
type replay struct {
	l       *loader
	m       *producerstate.Manager
	staging producerstate.AppendInfo
	aborted func(*segment.Segment, index.AbortedTxn) error // takes the aborted transactions, by the segment of their marker
	quiet   bool                                           // it is not the first one: nothing is to be said of what its batches are
	strict  bool                                           // a batch that contradicts its producer's state ends the load, as in Kafka
	lenient bool                                           // damage ends the walk through its segment only

	from, to int64
	next     int64 // offset behind the last batch
}

// run replays [from, to).
func (r *replay) run(from, to int64) error {
	if from >= to {
		return nil
	}
	r.next = max(from, r.l.segments.First().BaseOffset()) // that the first segments are gone is found elsewhere
	for s := range r.l.segments.From(from) {
		if s.BaseOffset() >= to {
			break
		}
		if err := r.l.ctx.Err(); err != nil {
			return fmt.Errorf("recovery: %w", err)
		}
		if base := s.BaseOffset(); !r.lenient && !r.l.mayFollow(r.next, base, false) && base > r.next {
			if err := r.missing(base); err != nil {
				return err
			}
		}
		if err := r.segment(s, from, to); err != nil {
			return err
		}
	}
	return nil
}

// segment replays what one segment holds of [from, to).
func (r *replay) segment(s *segment.Segment, from, to int64) error {
	r.from, r.to = from, to
	r.next = max(r.next, s.BaseOffset())
	size, err := s.Size()
	if err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	pos, expect := int64(0), s.BaseOffset()
	if from > s.BaseOffset() {
		at, _, found, err := s.Locate(from, size)
		switch {
		case err == nil && !found, isDamaged(err) && r.lenient:
			return nil
		case err == nil:
			pos, expect = at, -1
		case !isDamaged(err):
			return fmt.Errorf("recovery: %w", err)
		}
	}
	for {
		tail, err := r.walk(s, pos, size, expect)
		if err != nil || r.lenient || tail.Kind != segment.Damage && tail.Kind != segment.Torn {
			return err
		}
		more := false
		if pos, more, err = r.behind(s, tail); err != nil || !more {
			return err
		}
		expect = r.next
	}
}

// walk replays the good batches from a byte on. expect is the offset that the first one must have, −1 if that is not known.
func (r *replay) walk(s *segment.Segment, pos, size, expect int64) (segment.Tail, error) {
	end := r.l.end.Offset // of the offsets that belong here
	if later, ok := r.l.segments.Higher(s.BaseOffset()); ok {
		end = later.BaseOffset()
	}
	c := s.ScanWith(pos, size, segment.ScanOptions{Ordered: !r.lenient, Unchecked: r.l.p.Compat, After: expect})
	for c.Next() {
		b := c.Batch()
		base, next := b.BaseOffset(), b.NextOffset()
		if !r.lenient && b.Magic() >= record.Magic && (next > end || expect >= 0 && base != expect && !r.l.gaps) {
			return segment.Tail{Kind: segment.Damage, Position: b.Position, Claimed: int64(b.Size()), LastOffset: expect - 1,
				Reason: &segment.CorruptError{Path: s.Path(), Position: b.Position, LastOffset: expect - 1,
					Err: &segment.OrderError{BaseOffset: base, LastOffset: b.LastOffset(), Want: max(expect, s.BaseOffset())}}}, nil
		}
		if base >= r.to {
			return segment.Tail{}, nil
		}
		if next > r.from {
			if err := r.batch(s, b); err != nil {
				return segment.Tail{}, err
			}
		}
		expect = next
		r.next = max(r.next, next)
	}
	r.l.report.BytesReplayed += c.Tail().Position - pos
	if err := c.Err(); err != nil {
		return segment.Tail{}, fmt.Errorf("recovery: %w", err)
	}
	return c.Tail(), nil
}

// behind ends the walk where it met damage, or returns where good batches begin again.
func (r *replay) behind(s *segment.Segment, t segment.Tail) (pos int64, more bool, err error) {
	l := r.l
	if !r.passes(s.BaseOffset()) {
		return 0, false, fmt.Errorf("recovery: %w", t.Reason)
	}
	size, err := s.FileSize()
	if err != nil {
		return 0, false, fmt.Errorf("recovery: %w", err)
	}
	h := Hole{Path: l.pathOf(s), Position: t.Position, Next: size, Offset: r.next, End: l.end.Offset}
	if next, ok := l.segments.Higher(s.BaseOffset()); ok {
		h.End = next.BaseOffset()
	}
	w := scanner{l: l, at: Position{Offset: r.next}}
	pos, more, err = w.plausible(s, t)
	if err != nil && !errors.Is(err, segment.ErrSearchLimit) {
		return 0, false, fmt.Errorf("recovery: %w", err)
	}
	if more {
		head, err := s.HeaderAt(pos, segment.ToEnd)
		if err != nil {
			return 0, false, fmt.Errorf("recovery: %w", err)
		}
		h.Next, h.End = pos, head.BaseOffset
	}
	r.hole(h, t.Reason)
	return pos, more, nil
}

// missing is the case that no segment has the offsets up to base.
func (r *replay) missing(base int64) error {
	reason := fmt.Errorf("%w: the next segment begins at offset %d, and there are no records from %d on", record.ErrCorrupt, base, r.next)
	if s, ok := r.l.segments.Floor(base - 1); ok && !r.passes(s.BaseOffset()) {
		size, err := s.Size()
		if err != nil {
			return fmt.Errorf("recovery: %w", err)
		}
		return fmt.Errorf("recovery: %w", &segment.CorruptError{Path: s.Path(), Position: size, LastOffset: r.next - 1, Err: reason})
	}
	r.hole(Hole{Path: r.l.p.Dir, Position: -1, Next: -1, Offset: r.next, End: base}, reason)
	return nil
}

// passes tells whether the walk goes on behind damage in a segment, which it does where the scan has seen it.
func (r *replay) passes(base int64) bool {
	l := r.l
	known := l.alsoRead[base] || slices.ContainsFunc(l.report.Holes, func(h Hole) bool { return h.Offset == r.next })
	return known && l.goesAround()
}

// hole notes a hole, unless the scan has found it, and that the transactions that are open there may have ended in it.
func (r *replay) hole(h Hole, reason error) {
	l := r.l
	if h.End <= r.from {
		r.next = max(r.next, h.End)
		return // the state that the replay began with is that of an offset behind it
	}
	if !slices.ContainsFunc(l.report.Holes, func(o Hole) bool { return o.Offset == h.Offset }) {
		l.report.Holes = append(l.report.Holes, h)
		f := Finding{Path: h.Path, Decision: Refuse, Position: h.Position, Bytes: -1, Offset: h.Offset, End: h.End, Problem: true, Err: reason,
			Reason: "these bytes were reported durable, so something changed them later: " + reason.Error()}
		if h.Next >= 0 {
			f.Bytes = h.Next - h.Position
		}
		l.find(f)
	}
	l.doubt(r.m, h)
	r.next = max(r.next, h.End)
}

func (r *replay) batch(s *segment.Segment, b segment.BatchAt) error {
	if !b.HasProducerID() {
		r.m.UpdateMapEndOffset(b.NextOffset())
		return nil
	}
	r.m.Prepare(&r.staging, producerstate.AppendOptions{Origin: producerstate.Replication,
		TransactionVersion: producerstate.NoTransactionVersion, Clock: record.NoTimestamp})
	at := producerstate.OffsetMetadata{Offset: b.BaseOffset(), SegmentBase: s.BaseOffset(), Position: b.Position}
	if _, _, err := r.staging.Append(b.Batch, at); err != nil {
		if r.strict {
			return fmt.Errorf("recovery: %s at byte %d: %w", s.Path(), b.Position, err)
		}
		// The log is what it is: a batch that its producer should not have been allowed to write keeps nobody from
		// reading the others.
		if r.quiet {
			r.m.UpdateMapEndOffset(b.NextOffset())
			return nil
		}
		r.l.find(Finding{Path: r.l.pathOf(s), Decision: Note, Position: b.Position, Bytes: int64(b.Size()), Offset: b.BaseOffset(),
			End: b.NextOffset(), Reason: "contradicts the state of its producer, which stays as it was: " + err.Error(), Err: err, Problem: true})
		r.m.UpdateMapEndOffset(b.NextOffset())
		return nil
	}
	_, known := r.m.LastEntry(b.ProducerID())
	r.m.Publish(&r.staging)
	r.noteFirstCount(b.Batch, known)
	for _, c := range r.staging.Completed() {
		stable := r.m.LastStableOffset(c)
		if c.Aborted && r.aborted != nil {
			err := r.aborted(s, index.AbortedTxn{ProducerID: c.ProducerID, FirstOffset: c.FirstOffset,
				LastOffset: c.LastOffset, LastStableOffset: stable})
			if err != nil {
				return fmt.Errorf("recovery: transaction index: %w", err)
			}
		}
		if err := r.m.CompleteTxn(c); err != nil {
			return fmt.Errorf("recovery: %w", err)
		}
	}
	r.m.UpdateMapEndOffset(b.NextOffset())
	return nil
}

// noteFirstCount keeps the count of the first record of a named producer that was not known before, which a later open
// of the name needs. The name itself is not in the batch.
func (r *replay) noteFirstCount(b record.Batch, known bool) {
	id := b.ProducerID()
	if known || id < producerstate.MinNamedProducerID || b.BaseSequence() < 0 || r.l.p.Compat {
		return
	}
	if _, ok := r.m.NamedProducer(id); ok {
		return
	}
	first := int64(b.ProducerEpoch())<<31 | int64(b.BaseSequence())
	// Nothing here can be out of range; and without the entry the open of the name searches the log.
	_ = r.m.SetNamed(producerstate.Named{ID: id, FirstCount: first})
}
