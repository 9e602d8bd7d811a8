package recovery

import (
	"errors"
	"fmt"
	"slices"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// loadProducers brings the producer state to the log end: from the newest pair of snapshot files that belongs to this
// log, and from there by replaying it. It changes no file: the aborted transactions that it meets are kept for the
// transaction indexes.
func (l *loader) loadProducers() error {
	l.checkTxnIndexes()
	c := l.producerConfig()
	c.ReadOnly = true // until all is decided
	m, err := l.openProducers(c)
	if err != nil {
		return err
	}
	l.producers = m
	if l.us {
		m.NoteTime(l.slot.AppendClock)
	}
	// What is scanned is replayed, even where a later snapshot is there: it brings back all batches of each producer, and
	// the transaction index behind the recovery point.
	at := min(l.end.Offset, l.derivedOffset)
	if err := m.Load(l.segments.First().BaseOffset(), at, l.p.Now().UnixMilli()); err != nil {
		return err
	}
	l.found = abortedTxns{}
	r := replay{l: l, m: m, txnFrom: l.derivedOffset, aborted: l.found.add}
	if l.p.ReadOnly {
		r.txnFrom, r.aborted = at, (*segment.Segment).AppendAborted // in memory
		for s := range l.segments.From(at) {
			s.ShadowAborted(at)
		}
	}
	if err := r.run(m.MapEndOffset(), l.end.Offset); err != nil {
		return err
	}
	m.UpdateMapEndOffset(l.end.Offset)
	return l.readBelowLost()
}

// readBelowLost reads what making transaction indexes anew will read, so that damage in there is met before anything changes.
func (l *loader) readBelowLost() error {
	if !l.asWriter() || l.report.Refused() {
		return nil
	}
	lost := map[int64]bool{}
	for _, d := range l.txnBad {
		lost[d.name.Offset] = true
	}
	for base := range l.replaced {
		lost[base] = true
	}
	for _, r := range l.rebuilds {
		lost[r.base] = lost[r.base] || r.extra
	}
	for _, n := range l.names {
		// What a power cut has left of an index that is continued may ask for all of it.
		if s, ok := l.txnIndexOf(n); ok && l.renewsTxnIndex(s) {
			if err := checkTxnIndex(s); errors.Is(err, index.ErrCorrupt) || errors.Is(err, index.ErrUnsupportedVersion) {
				lost[n.Offset] = true
			} else if err != nil {
				return err
			}
		}
	}
	read := int64(-1)
	for s := range l.segments.All() {
		if !lost[s.BaseOffset()] {
			continue
		}
		m, err := l.producersAt(s.BaseOffset())
		if err != nil {
			return err
		}
		next := l.end.Offset
		if after, more := l.segments.Higher(s.BaseOffset()); more {
			next = after.BaseOffset()
		}
		r := replay{l: l, m: m, txnFrom: unlimited, quiet: true}
		if err := r.run(max(read, m.MapEndOffset()), next); err != nil {
			return err
		}
		read = next
	}
	return nil
}

// openProducers makes a manager of what is there when all that was put off is done.
func (l *loader) openProducers(c producerstate.Config) (*producerstate.Manager, error) {
	if !l.acting {
		c.Files = slices.DeleteFunc(slices.Clone(l.entries), func(e vfs.DirEntry) bool {
			n := segment.Parse(e.Name)
			return n.Kind == segment.KindSnapshot && slices.Contains(l.leaving, n.Offset)
		})
	}
	return producerstate.Open(l.fsys, l.p.Dir, c)
}

// producersAt is the producer state of an older snapshot, at or below an offset, in a manager of its own.
func (l *loader) producersAt(offset int64) (*producerstate.Manager, error) {
	c := l.producerConfig()
	c.ReadOnly, c.AllowBareSnapshots, c.Report = true, true, nil
	m, err := l.openProducers(c)
	if err != nil {
		return nil, err
	}
	return m, m.TruncateAndReload(l.segments.First().BaseOffset(), offset, l.p.Now().UnixMilli())
}

// actOnProducers lets the files follow what loadProducers found.
func (l *loader) actOnProducers() error {
	if err := l.producers.AllowChanges(l.unchanged()); err != nil {
		return err
	}
	if _, err := producerstate.RemoveOrphans(l.fsys, l.p.Dir, l.unchanged()); err != nil {
		return err
	}
	if err := l.resetTxnIndexes(); err != nil {
		return err
	}
	for s := range l.segments.From(l.derivedFrom.segment) {
		for _, t := range l.found[s.BaseOffset()] {
			if err := s.AppendAborted(t); err != nil {
				return fmt.Errorf("recovery: transaction index: %w", err)
			}
		}
	}
	for base := range l.replaced {
		if s, ok := l.segments.Get(base); ok && !slices.Contains(l.txnLost, s) && base < l.derivedFrom.segment {
			l.txnLost = append(l.txnLost, s)
		}
	}
	for _, s := range l.txnLost {
		if err := l.rebuildTxnIndex(s); err != nil {
			return err
		}
	}
	return nil
}

// abortedTxns are aborted transactions by the base offset of the segment that holds the marker.
type abortedTxns map[int64][]index.AbortedTxn

func (a abortedTxns) add(s *segment.Segment, t index.AbortedTxn) error {
	a[s.BaseOffset()] = append(a[s.BaseOffset()], t)
	return nil
}

func (l *loader) producerConfig() producerstate.Config {
	c := l.p.Producers
	c.Compat, c.ReadOnly = l.p.Compat, l.p.ReadOnly
	c.AllowBareSnapshots = !l.us
	c.Accept = func(_ int64, last record.Identity) bool { return l.accepts(last) }
	c.Report = func(f producerstate.Finding) {
		reason := f.Kind.String()
		decision := Note
		if f.Kind == producerstate.SnapshotRejected {
			decision, reason = FallBack, f.Err.Error()
		} else {
			reason = fmt.Sprintf("%s: producer %d: %d, known is %d", reason, f.ProducerID, f.Got, f.Current)
		}
		l.find(Finding{Path: l.p.Dir, Decision: decision, Offset: f.Offset, End: -1, Reason: reason, Err: f.Err,
			Problem: f.Kind == producerstate.SnapshotRejected})
	}
	return c
}

// accepts tells whether the log has the batch that a side file names as the last one below it. One that lies below the
// first segment, or that compaction may have moved, cannot be looked at and is believed.
func (l *loader) accepts(last record.Identity) bool {
	if last.Size > 0 && (last.SegmentBase < l.segments.First().BaseOffset() || last.BaseOffset < l.compacted) {
		return true
	}
	ok, err := l.identityIsThere(last)
	return ok && err == nil
}

// replay applies the batches of a stretch of the log to producer state, as a follower would.
type replay struct {
	l       *loader
	m       *producerstate.Manager
	staging producerstate.AppendInfo
	aborted func(*segment.Segment, index.AbortedTxn) error
	txnFrom int64 // aborted transactions whose marker is at or behind it go into the transaction index
	quiet   bool  // it is not the first one: nothing is to be said of what it finds
	strict  bool  // a batch that contradicts its producer's state ends the load, as in Kafka
}

// run replays [from, to).
func (r *replay) run(from, to int64) error {
	if from >= to {
		return nil
	}
	for s := range r.l.segments.From(from) {
		if s.BaseOffset() >= to {
			break
		}
		if err := r.l.ctx.Err(); err != nil {
			return fmt.Errorf("recovery: %w", err)
		}
		if err := r.segment(s, from, to); err != nil {
			return err
		}
	}
	return nil
}

func (r *replay) segment(s *segment.Segment, from, to int64) error {
	size, err := s.Size()
	if err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	start := int64(0)
	if from > s.BaseOffset() {
		pos, _, found, err := s.Locate(from, size)
		if err != nil && !isDamaged(err) {
			return fmt.Errorf("recovery: %w", err)
		}
		if !found {
			return nil
		}
		start = pos
	}
	c := s.ScanWith(start, size, segment.ScanOptions{Unchecked: r.l.p.Compat})
	for c.Next() {
		b := c.Batch()
		if b.BaseOffset() >= to {
			break
		}
		if err := r.batch(s, b); err != nil {
			return err
		}
	}
	t := c.Tail()
	r.l.report.BytesReplayed += t.Position - start
	if err := c.Err(); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	if bad := (*segment.CorruptError)(nil); r.l.asWriter() && !r.l.report.Refused() && !r.l.p.Compat && errors.As(t.Reason, &bad) {
		return fmt.Errorf("recovery: %w", bad)
	}
	return nil
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
		if c.Aborted && c.LastOffset >= r.txnFrom {
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

// checkTxnIndexes looks at the transaction indexes that are not made anew anyway. There are few: a segment without an aborted
// transaction has none.
func (l *loader) checkTxnIndexes() {
	l.txnBad = slices.DeleteFunc(l.txnBad, func(d txnDamage) bool {
		_, ok := l.txnIndexOf(d.name)
		return !ok // it is cut off with its segment
	})
	for _, d := range l.txnBad {
		l.find(Finding{Path: d.name.Path(l.p.Dir), Decision: Rebuild, Problem: true, Reason: d.err.Error(), Err: d.err})
	}
}

// resetTxnIndexes empties the transaction indexes that cannot be right, also those in which a power cut has left anything.
func (l *loader) resetTxnIndexes() error {
	for _, n := range l.names {
		if s, ok := l.txnIndexOf(n); ok && l.renewsTxnIndex(s) {
			if err := checkTxnIndex(s); errors.Is(err, index.ErrCorrupt) {
				l.txnBad = append(l.txnBad, txnDamage{name: n, err: err})
			} else if err != nil {
				return err
			}
		}
	}
	for _, d := range l.txnBad {
		s, ok := l.txnIndexOf(d.name)
		if !ok {
			continue
		}
		if err := l.noteRebuild(s.BaseOffset()); err != nil {
			return err
		}
		// The replay adds the entries behind the recovery point to an empty index, and then all of it is made.
		if err := s.ResetTxnIndex(); err != nil {
			return fmt.Errorf("recovery: %w", err)
		}
		if !slices.Contains(l.txnLost, s) {
			l.txnLost = append(l.txnLost, s)
		}
	}
	return nil
}

// rebuildTxnIndex fills the transaction index of one segment from the log. It needs the producer state at its start, which
// comes from an older snapshot and the log behind it, in a manager of its own.
func (l *loader) rebuildTxnIndex(s *segment.Segment) error {
	m, err := l.producersAt(s.BaseOffset())
	if err != nil {
		return err
	}
	if err := s.ResetTxnIndex(); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	l.rebuilt = append(l.rebuilt, s)
	end, err := s.NextOffset()
	if err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	r := replay{l: l, m: m, txnFrom: s.BaseOffset(), aborted: (*segment.Segment).AppendAborted, quiet: true}
	if err := r.run(m.MapEndOffset(), end); err != nil {
		return err
	}
	if err := s.FlushIndexes(); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	return nil
}
