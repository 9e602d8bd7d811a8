package recovery

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// SegmentSum stands for a set of segments. Being a sum, it can be had of any stretch of a log from two sums of its beginning.
// A count of 0 says nothing.
type SegmentSum struct {
	Count, Sum uint64
}

// Add adds the segment with that base offset.
func (s SegmentSum) Add(base int64) SegmentSum {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(base))
	return SegmentSum{s.Count + 1, s.Sum + xxhash.Sum64(b[:])}
}

// Sub takes a sum of some of the segments away.
func (s SegmentSum) Sub(t SegmentSum) SegmentSum { return SegmentSum{s.Count - t.Count, s.Sum - t.Sum} }

// sumSegments sums those segments up that the state file speaks of: from the one with the log start on, of which something
// is durable.
func (l *loader) sumSegments() (s SegmentSum) {
	for t := range l.segments.From(l.slot.LogStart) {
		if t.BaseOffset() < l.slot.Durable.Offset {
			s = s.Add(t.BaseOffset())
		}
	}
	return s
}

// suspects finds the segments below a base offset that have to be read although they lie below the recovery point: those
// whose indexes are made anew, and those that are not what they should be by the little that is cheap to see. wrong says that
// the set of segments is not that of the state file.
func (l *loader) suspects(below int64) (list []*segment.Segment, wrong bool, err error) {
	missing := l.segmentsWithoutIndex()
	known := l.us && !l.slot.Cutting && !l.slot.Replacing && l.slot.Segments.Count > 0
	wrong = known && l.sumSegments() != l.slot.Segments
	for s := range l.segments.All() {
		base := s.BaseOffset()
		if base >= below {
			break
		}
		if l.isDeleted(s) {
			continue
		}
		if err := l.ctx.Err(); err != nil {
			return nil, false, fmt.Errorf("recovery: %w", err)
		}
		suspect := l.readsWhole(s, missing)
		if next, more := l.segments.Higher(base); more && !suspect && (wrong || l.p.CheckSegments) {
			if suspect, err = l.looksOdd(s, next); err != nil {
				return nil, false, err
			}
		}
		if suspect {
			list = append(list, s)
		}
	}
	return list, wrong, nil
}

// readsWhole tells whether all of a segment is read: its indexes are made anew, or a bad batch has been met in it. missing
// has the segments that lack an index.
func (l *loader) readsWhole(s *segment.Segment, missing map[int64]string) bool {
	base := s.BaseOffset()
	return l.alsoRead[base] || l.asWriter() && (missing[base] != "" || base >= l.rebuildFrom || l.replaced[base])
}

// isDeleted tells whether a segment lies wholly below the log start. It is about to be deleted, or was, and came back, with
// some of its files.
func (l *loader) isDeleted(s *segment.Segment) bool {
	next, more := l.segments.Higher(s.BaseOffset())
	return more && next.BaseOffset() <= l.kafkaLogStart()
}

// looksOdd tells whether the ends of a segment are not where its name and that of the next one say. It reads the header of
// the first batch, and those behind the last index entry.
func (l *loader) looksOdd(s, next *segment.Segment) (odd bool, err error) {
	defer func() { err = errors.Join(err, s.Park()) }() // there may be more segments than a process may have files
	size, err := s.FileSize()
	if errors.Is(err, fs.ErrNotExist) && l.p.ReadOnly {
		return false, nil // deleted by a writer just now
	}
	if err != nil {
		return false, fmt.Errorf("recovery: %w", err)
	}
	c := s.ScanHeaders(0, size)
	if !c.Next() || l.us && !l.gaps && c.Header().Magic >= record.Magic && c.Header().BaseOffset != s.BaseOffset() {
		return true, c.Err()
	}
	pos, _, err := s.LastIndexed(size)
	if isDamaged(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("recovery: %w", err)
	}
	c = s.ScanHeaders(pos, size)
	end := s.BaseOffset()
	for c.Next() {
		h := c.Header()
		end = h.NextOffset()
	}
	if err := c.Err(); err != nil {
		return false, fmt.Errorf("recovery: %w", err)
	}
	return c.Tail().Kind != segment.CleanEnd || end > next.BaseOffset() || end < next.BaseOffset() && !l.gaps, nil
}

// readSuspects scans the suspects below a base offset, and judges where each of them ends. over says that the log ends in
// one of them, or that the open is refused for it.
func (l *loader) readSuspects(below int64) (j *judgement, over bool, err error) {
	list, wrong, err := l.suspects(below)
	if err != nil {
		return nil, false, err
	}
	j = &judgement{}
	found := len(l.report.Findings)
	for _, s := range list {
		next, _ := l.segments.Higher(s.BaseOffset())
		w := &scanner{l: l, at: Position{Offset: s.BaseOffset()}, place: placeInLog{segment: s.BaseOffset()}}
		stop, err := w.segment(s, next)
		if err != nil {
			return nil, false, err
		}
		j.cuts = append(j.cuts, w.j.cuts...)
		if len(l.report.Findings) > found && slices.ContainsFunc(l.report.Findings[found:], func(f Finding) bool { return f.Problem }) {
			wrong = false // what is wrong has been found
			if stop {
				j.end = w.at
				l.wholeSegment(s)
				return j, true, nil
			}
		}
	}
	if !wrong {
		return j, false, nil
	}
	return j, false, l.lost(Finding{Path: l.p.Dir, Problem: true, Position: -1, Bytes: -1,
		Offset: l.slot.LogStart, End: l.slot.Durable.Offset, Rule: "below the promised end",
		Reason: fmt.Sprintf("there are %d segments with such offsets, and they are not the %d that the state file knows", l.sumSegments().Count, l.slot.Segments.Count)})
}
