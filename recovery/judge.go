package recovery

import (
	"errors"
	"fmt"

	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// judgement is what is to be done about the log files: a list of cuts, in the order of the log.
type judgement struct {
	end  Position // of the log after them
	cuts []cut
}

// cut removes the bytes of a segment from a position on, or the whole segment.
type cut struct {
	segment  *segment.Segment
	position int64 // 0 with whole
	whole    bool
	keep     int64 // bytes from there on that are kept aside; zeros behind them are space that was reserved
	finding  int   // in the report, to be completed when the bytes have been kept; −1 if they are zeros
}

// judge finds out where the log ends, and what has to go for it to end there. It changes nothing in the log files.
func (l *loader) judge() (*judgement, error) {
	if err := l.checkStart(); err != nil {
		return nil, err
	}
	l.knowNewest()
	clean, err := l.closedInOrder()
	if err != nil {
		return nil, err
	}
	from, expect := placeInLog{segment: unlimited}, l.slot.Durable
	if !clean {
		if from, expect, err = l.scanStart(); err != nil {
			return nil, err
		}
		if _, ok := l.segments.Get(from.segment); !ok {
			if err := l.lostRecoveryPoint(from); err != nil {
				return nil, err
			}
			from, expect = l.wholeSegment(l.segments.First()) // all that is left is looked at
		}
	}
	if s, ok := l.segments.Get(from.segment); ok && from.position > 0 && l.readsWhole(s, l.segmentsWithoutIndex()) {
		from, expect = l.wholeSegment(s)
	}
	j, over, err := l.readSuspects(from.segment)
	if err != nil {
		return nil, err
	}
	if clean && !over {
		l.setClean()
		j.end = l.slot.Durable
		return j, nil
	}
	if over {
		return j, nil
	}
	untrue := false
	if !l.p.ReadOnly {
		if untrue, err = l.syncBeforeTrust(from); err != nil {
			return nil, err
		}
	}
	l.scanned, l.scannedFrom = true, from
	l.report.RecoveryPoint = min(l.derivedOffset, max(expect.Offset, l.slot.Recovery.Offset))
	behind, err := l.scan(from, expect, untrue || l.slot.SyncFailed && l.us)
	if err != nil {
		return nil, err
	}
	j.end, j.cuts = behind.end, append(j.cuts, behind.cuts...)
	if d := l.slot.Durable; l.us && j.end.Offset < d.Offset && j.end.Last == d.Last {
		j.end.Offset = d.Offset // the log ends in a gap, where a truncation inside a batch left it
	}
	if l.p.ReadOnly && !l.p.dryRun && l.us {
		l.endAsWriter(j)
	}
	for _, c := range j.cuts {
		// The indexes may name batches that go.
		if at := (placeInLog{c.segment.BaseOffset(), c.position}); c.finding >= 0 && at.less(l.derivedFrom) {
			l.wholeSegment(c.segment)
		}
	}
	return j, nil
}

// setClean takes the state file at its word: the log was closed in order.
func (l *loader) setClean() {
	l.report.Clean = true
	l.recoveryPoint, l.snapshotOffset = l.slot.Recovery, l.slot.SnapshotOffset
	l.report.RecoveryPoint = l.slot.Durable.Offset
}

// knowNewest tells the segment that the recovery point is in what was the greatest timestamp below it, where the state file
// knows. The slot spoke of all batches of the then active segment, so it is of use only if that timestamp came before the
// recovery point. A segment that turns out to be another one is cut or refused further on.
func (l *loader) knowNewest() {
	r, newest := l.slot.Recovery, l.slot.Newest
	if !l.us || r.Last.Size == 0 || newest.Offset < r.Last.SegmentBase || newest.Offset >= r.Offset {
		return
	}
	if s, ok := l.segments.Get(r.Last.SegmentBase); ok {
		s.KnowNewest(r.EndPosition(), newest)
	}
}

// closedInOrder tells whether the last writer closed the log and nothing was touched since: then no batch is read.
func (l *loader) closedInOrder() (bool, error) {
	if !l.us || !l.slot.Clean || l.segments.Len() == 0 {
		return false, nil
	}
	d := l.slot.Durable
	active := l.segments.Active()
	size, err := active.FileSize()
	if err != nil {
		return false, err
	}
	switch {
	case d.Last.Size > 0 && active.BaseOffset() == d.Last.SegmentBase:
		if size != d.EndPosition() {
			return false, nil
		}
	case size != 0 || active.BaseOffset() > d.Offset || d.Last.Size > 0 && active.BaseOffset() < d.Last.SegmentBase:
		return false, nil // an empty one may begin below the end, where a truncation inside a batch left a gap
	}
	return l.identityIsThere(d.Last)
}

// identityIsThere tells whether the batch that an identity names is where it says. An identity of size 0 names none.
func (l *loader) identityIsThere(id record.Identity) (bool, error) {
	if id.Size == 0 {
		return true, nil
	}
	s, ok := l.segments.Get(id.SegmentBase)
	if !ok {
		return false, nil
	}
	size, err := s.FileSize()
	if err != nil {
		return false, err
	}
	if size < id.Position+int64(id.Size) {
		return false, nil
	}
	if l.p.CheckSegments {
		c := s.ScanWith(id.Position, id.Position+int64(id.Size), segment.ScanOptions{})
		if !c.Next() {
			return false, c.Err()
		}
	}
	h, err := s.HeaderAt(id.Position, id.Position+int64(id.Size))
	if errors.Is(err, record.ErrCorrupt) || errors.Is(err, record.ErrTruncated) || errors.Is(err, record.ErrUnsupportedVersion) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return h.Identity(id.SegmentBase) == id, nil
}

// scanStart returns where the scan begins, and the position of the log there. It begins with the batch below the
// recovery point, so that a log whose bytes are not those of the state file is noticed.
func (l *loader) scanStart() (placeInLog, Position, error) {
	offset := l.foreign.RecoveryPoint()
	switch {
	case l.us && l.slot.Recovery.Last.Size > 0 && l.slot.Recovery.Last.SegmentBase >= l.segments.First().BaseOffset():
		r := l.slot.Recovery
		if s, ok := l.segments.Get(r.Last.SegmentBase); ok {
			if there, err := l.identityIsThere(r.Last); err != nil || !there {
				// What batches there are instead, only a scan of all of it can tell.
				from, expect := l.wholeSegment(s)
				return from, expect, err
			}
		}
		l.derivedFrom, l.derivedOffset = placeInLog{r.Last.SegmentBase, r.EndPosition()}, r.Offset
		return placeInLog{r.Last.SegmentBase, r.Last.Position}, Position{Offset: r.Last.BaseOffset}, nil
	case l.us:
		offset = l.slot.Recovery.Offset
	case l.foreign.Marker:
		return l.cleanTail()
	}
	s, ok := l.segments.Floor(offset)
	if !ok {
		s = l.segments.First()
	}
	from, expect := l.wholeSegment(s)
	return from, expect, nil
}

// wholeSegment lets everything be made anew from the first byte of a segment on, and returns the place.
func (l *loader) wholeSegment(s *segment.Segment) (placeInLog, Position) {
	base := s.BaseOffset()
	l.derivedFrom, l.derivedOffset = placeInLog{segment: base}, base
	return placeInLog{segment: base}, Position{Offset: base}
}

// cleanTail is where the last segment is looked at after another program stopped in order: from its last index entry
// on, which is where that program would look for the end of the log.
func (l *loader) cleanTail() (placeInLog, Position, error) {
	s := l.segments.Active()
	at := placeInLog{segment: s.BaseOffset()}
	size, err := s.FileSize()
	if err != nil {
		return at, Position{}, err
	}
	pos, expect, err := s.LastIndexed(size)
	if err != nil {
		return at, Position{}, fmt.Errorf("recovery: %w", err)
	}
	at.position = pos
	return at, Position{Offset: expect}, nil
}

// scanner walks the log from one segment to the next and stops where a segment does not go on.
type scanner struct {
	l      *loader
	at     Position // end of the last good batch
	place  placeInLog
	untrue bool
	seen   bool // the batch below the durable end
	j      judgement
}

// scan walks from a place to the end of the log and judges each place where a segment stops.
func (l *loader) scan(from placeInLog, at Position, untrue bool) (*judgement, error) {
	w := &scanner{l: l, at: at, place: from, untrue: untrue}
	w.seen = l.us && (l.slot.Durable.Last.Size == 0 || placeInLog{l.slot.Durable.Last.SegmentBase, l.slot.Durable.Last.Position}.less(from))
	s, _ := l.segments.Get(from.segment)
	for {
		if err := l.ctx.Err(); err != nil {
			return nil, fmt.Errorf("recovery: %w", err)
		}
		next, more := l.segments.Higher(s.BaseOffset())
		stop, err := w.segment(s, next)
		if err != nil {
			return nil, err
		}
		if stop || !more {
			break
		}
		s = next
		w.place = placeInLog{segment: s.BaseOffset()}
		w.at.Offset = max(w.at.Offset, s.BaseOffset())
	}
	w.j.end = w.at
	return &w.j, nil
}

// checkStart refuses a log whose first segments are gone. Where they were deleted on purpose the log start says so, which is
// on disk before the first file goes; or all of the log was being removed.
func (l *loader) checkStart() error {
	first := l.segments.First().BaseOffset()
	if !l.beginsLate() {
		return nil
	}
	l.report.Holes = append(l.report.Holes, Hole{Path: l.p.Dir, Position: -1, Next: -1, Offset: l.slot.LogStart, End: first})
	return l.lost(Finding{Path: l.p.Dir, Problem: true, Position: -1, Bytes: -1,
		Offset: l.slot.LogStart, End: first, Rule: "below the promised end",
		Reason: fmt.Sprintf("the segments of offsets %d to %d are gone, although the log begins at %[1]d", l.slot.LogStart, first-1)})
}

// beginsLate tells whether the first segment begins behind the log start for no reason.
func (l *loader) beginsLate() bool {
	first := l.segments.First().BaseOffset()
	return l.us && first > l.slot.LogStart && !(l.slot.Cutting && first >= l.slot.Durable.Offset)
}

// startIsGone tells whether the log keeps its start although the first segments are gone: for a reader these are offsets that
// cannot be read.
func (l *loader) startIsGone() bool { return !l.asWriter() && l.beginsLate() }

// lostRecoveryPoint is the case that the segment which holds the recovery point is not there.
func (l *loader) lostRecoveryPoint(from placeInLog) error {
	return l.lost(Finding{Path: l.p.Dir, Problem: true, Position: -1, Bytes: -1,
		Offset: from.segment, End: l.slot.Durable.Offset, Rule: "below the promised end",
		Reason: fmt.Sprintf("the segment of base offset %d is gone, although the state file knows of records in it", from.segment)})
}

// segment scans one segment from the present place and judges its end. stop says that the log ends here.
func (w *scanner) segment(s, next *segment.Segment) (stop bool, err error) {
	w.l.report.SegmentsScanned++
	for {
		tail, err := w.batches(s)
		if err != nil {
			return false, err
		}
		f, err := w.facts(s, next, tail)
		if err != nil {
			return false, err
		}
		r := decide(f)
		if l := w.l; l.p.ReadOnly && r.verdict >= Cut {
			// A writer may have been at work on these bytes.
			before := w.place
			if _, err := w.batches(s); err != nil {
				return false, err
			}
			if before != w.place {
				continue
			}
		}
		stop, again, err := w.act(s, next, tail, r)
		if err != nil || !again {
			return stop, err
		}
	}
}

// batches walks the good batches of a segment from the present place.
func (w *scanner) batches(s *segment.Segment) (segment.Tail, error) {
	l := w.l
	from := w.place.position
	if l.p.ReadOnly {
		size, err := s.FileSize()
		if err != nil {
			return segment.Tail{}, fmt.Errorf("recovery: %w", err)
		}
		s.SetSize(max(size, from)) // a writer may have made it longer
	}
	c := s.ScanWith(from, segment.ToEnd, segment.ScanOptions{Ordered: true, After: w.at.Offset})
	for c.Next() {
		b := c.Batch()
		wrong := !l.gaps && b.Magic() >= record.Magic && b.BaseOffset() != w.at.Offset
		// Such a segment can be read, as old brokers wrote it, but no index can hold its offsets.
		wrong = wrong || b.LastOffset()-s.BaseOffset() > segment.MaxRelativeOffset && l.asWriter()
		if wrong {
			l.report.BytesScanned += b.Position - from
			return segment.Tail{Kind: segment.Damage, Position: b.Position, Claimed: int64(b.Size()), LastOffset: w.at.Offset - 1,
				Reason: &segment.OrderError{BaseOffset: b.BaseOffset(), LastOffset: b.LastOffset(), Want: w.at.Offset}}, nil
		}
		id := b.Identity(s.BaseOffset(), b.Position)
		w.seen = w.seen || id == l.slot.Durable.Last
		w.at = Position{Offset: b.NextOffset(), Last: id}
		w.place.position = b.Position + int64(b.Size())
		l.newest = max(l.newest, b.MaxTimestamp())
	}
	l.report.BytesScanned += w.place.position - from
	if err := c.Err(); err != nil {
		return segment.Tail{}, fmt.Errorf("recovery: %w", err)
	}
	t := c.Tail()
	t.Position = w.place.position
	return t, nil
}

// facts collects what the table needs to know about the place where a segment stops.
func (w *scanner) facts(s, next *segment.Segment, t segment.Tail) (Facts, error) {
	l := w.l
	f := Facts{Writer: Another, Rest: RestNothing, Later: LaterNone, Below: w.below()}
	if l.us {
		f.Writer, f.SameBoot, f.Mode, f.Cutting, f.Untrue = Us, l.sameBoot, l.slot.Mode, l.slot.Cutting, w.untrue
	}
	if next != nil {
		f.Later = LaterMisplaced
		if l.mayFollow(w.at.Offset, next.BaseOffset(), w.untrue) {
			f.Later = LaterFollows
		}
	}
	switch t.Kind {
	case segment.CleanEnd:
		return f, nil
	case segment.ZeroTail:
		f.Rest = RestZeros
		return f, nil
	}
	_, found, err := w.plausible(s, t)
	if err != nil && !errors.Is(err, segment.ErrSearchLimit) {
		return f, fmt.Errorf("recovery: %w", err)
	}
	f.Rest = RestGarbage
	if found || err != nil {
		f.Rest = RestPlausible
	}
	if l.us {
		f.Beyond, err = w.beyond(s, t)
	}
	return f, err
}

// below tells whether the log stops short of what had been promised.
func (w *scanner) below() bool {
	l := w.l
	if !l.us {
		return w.at.Offset < l.foreign.RecoveryPoint()
	}
	d := l.slot.Durable
	if d.Last.Size == 0 {
		// There was no batch below, and the log may have been cut inside one.
		return w.at.Offset < d.Offset && !l.gaps
	}
	end := placeInLog{d.Last.SegmentBase, d.EndPosition()}
	return w.place.less(end) || !w.seen
}

// cutsDamage tells whether the log is cut where it is damaged.
func (l *loader) cutsDamage() bool { return l.p.Policy == PointInTime && l.asWriter() }

// goesAround tells whether the load is one that damage does not end: a reader's, or one that finds out what is wrong with a log
// that a writer would refuse.
func (l *loader) goesAround() bool { return l.p.ReadOnly && (!l.p.dryRun || l.report.Refused()) }

// asWriter tells whether the load is one for writing, or finds out what such a one would do.
func (l *loader) asWriter() bool { return !l.p.ReadOnly || l.p.dryRun }

// act does with one place what its row of the table says. again asks for going on in the same segment, which a reader does
// behind damage; stop says that the log ends here.
func (w *scanner) act(s, next *segment.Segment, t segment.Tail, r *row) (stop, again bool, err error) {
	l := w.l
	size, err := s.FileSize()
	if err != nil {
		return false, false, fmt.Errorf("recovery: %w", err)
	}
	f := Finding{Path: l.pathOf(s), Position: t.Position, Bytes: size - t.Position, Offset: w.at.Offset, End: -1, Rule: r.name}
	switch r.verdict {
	case Continue:
		return false, false, nil
	case End:
		return true, false, nil
	case TrimContinue, Trim:
		f.Decision, f.Reason = TrimZeros, r.why
		l.find(f)
		w.j.cuts = append(w.j.cuts, cut{segment: s, position: t.Position, finding: -1})
		return r.verdict == Trim, false, nil
	case Damage:
		if !l.cutsDamage() {
			return w.damage(s, next, t, f, r)
		}
		f.Problem = true
	}
	f.Decision, f.Reason = CutTail, because(r, t)
	if l.us && l.slot.Clean && !l.slot.Doubtful && r.verdict != Damage {
		f.Problem, f.Reason = true, fmt.Sprintf("the log was closed in order, so something put these bytes behind its end later (%v)", t.Reason)
	}
	if r.verdict == Damage {
		f.Reason = fmt.Sprintf("the policy %v cuts at the first bad byte: %s", l.p.Policy, f.Reason)
	}
	if l.p.Policy.refuses(r.verdict) {
		f.Decision, f.Reason = Refuse, fmt.Sprintf("the policy %v does not allow to cut: %s", l.p.Policy, f.Reason)
	}
	if f.Bytes, err = w.content(s, t.Position, size); err != nil {
		return false, false, err
	}
	l.find(f)
	w.j.cuts = append(w.j.cuts, cut{segment: s, position: t.Position, keep: f.Bytes, finding: len(l.report.Findings) - 1})
	for later := range l.after(s) {
		if err := w.cutLater(later, f.Decision, r); err != nil {
			return false, false, err
		}
	}
	return true, false, nil
}

func (w *scanner) cutLater(s *segment.Segment, d Decision, r *row) error {
	size, err := s.FileSize()
	if err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	if d != Refuse {
		d = CutSegment
	}
	content, err := w.content(s, 0, size)
	if err != nil {
		return err
	}
	w.l.find(Finding{Path: w.l.pathOf(s), Decision: d, Bytes: content, Offset: s.BaseOffset(), End: -1, Rule: r.name,
		Reason: "lies behind the place where the log now ends"})
	w.j.cuts = append(w.j.cuts, cut{segment: s, whole: true, keep: content, finding: len(w.l.report.Findings) - 1})
	return nil
}

func because(r *row, t segment.Tail) string {
	if t.Reason == nil {
		return r.why
	}
	return fmt.Sprintf("%s (%v)", r.why, t.Reason)
}

// damage ends an open for writing. A reader goes on where whole batches begin again.
func (w *scanner) damage(s, next *segment.Segment, t segment.Tail, f Finding, r *row) (stop, again bool, err error) {
	l := w.l
	f.Decision, f.Problem, f.Reason = Refuse, true, because(r, t)
	if t.Reason == nil && next != nil && t.Kind == segment.CleanEnd {
		f.Reason = fmt.Sprintf("the next segment starts at offset %d: %s", next.BaseOffset(), r.why)
		f.End = next.BaseOffset()
	} else if t.Reason == nil {
		f.Reason = fmt.Sprintf("the log ends at offset %d, %d had been promised: %s", w.at.Offset, max(l.slot.Durable.Offset, l.foreign.RecoveryPoint()), r.why)
	}
	pos, found, err := w.plausible(s, t)
	if err != nil && !errors.Is(err, segment.ErrSearchLimit) {
		return false, false, fmt.Errorf("recovery: %w", err)
	}
	if t.Kind == segment.CleanEnd {
		found = false
	}
	hole := Hole{Path: f.Path, Position: t.Position, Next: t.Position + f.Bytes, Offset: w.at.Offset, End: f.End}
	if found {
		h, err := s.HeaderAt(pos, segment.ToEnd)
		if err != nil {
			return false, false, fmt.Errorf("recovery: %w", err)
		}
		hole.Next, hole.End, f.End, f.Bytes = pos, h.BaseOffset, h.BaseOffset, pos-t.Position
	} else if next != nil {
		hole.End, f.End = next.BaseOffset(), next.BaseOffset()
	}
	l.find(f)
	if !l.p.ReadOnly {
		return true, false, nil
	}
	l.report.Holes = append(l.report.Holes, hole)
	w.seen = true // what is missing has been reported
	if found {
		w.place.position, w.at = pos, Position{Offset: hole.End}
		return false, true, nil
	}
	if next == nil && l.us {
		// What was promised and cannot be read is a hole like any other, not the end of the log.
		w.at.Offset = max(w.at.Offset, l.slot.Durable.Offset)
	}
	return next == nil, false, nil
}
