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

// loadProducers brings the producer state to the log end: from the newest pair of snapshot files that belongs to this
// log, and from there by replaying it. On the way the transaction indexes behind the recovery point are filled again.
func (l *loader) loadProducers() error {
	if err := l.rebuildIndexes(); err != nil {
		return err
	}
	if err := l.checkTxnIndexes(); err != nil {
		return err
	}
	c := l.producerConfig()
	c.Files = l.unchanged()
	m, err := producerstate.Open(l.fsys, l.p.Dir, c)
	if err != nil {
		return err
	}
	l.producers = m
	if l.us {
		m.NoteTime(l.slot.AppendClock)
	}
	if err := l.dropSnapshotsAboveEnd(m); err != nil {
		return err
	}
	// What is scanned is replayed, even where a later snapshot is there: it brings back all batches of each producer, and
	// the transaction index behind the recovery point.
	at := min(l.end.Offset, l.derivedOffset)
	if err := m.Load(l.segments.First().BaseOffset(), at, l.p.Now().UnixMilli()); err != nil {
		return err
	}
	r := replay{l: l, m: m, txnFrom: l.derivedOffset}
	if l.p.ReadOnly {
		r.txnFrom = at
		for s := range l.segments.From(at) {
			s.ShadowAborted(at)
		}
	}
	if err := r.run(m.MapEndOffset(), l.end.Offset); err != nil {
		return err
	}
	m.UpdateMapEndOffset(l.end.Offset)
	if !l.p.ReadOnly && !l.p.Compat {
		if _, err := producerstate.RemoveOrphans(l.fsys, l.p.Dir, l.unchanged()); err != nil {
			return err
		}
	}
	for base := range l.replaced {
		if s, ok := l.segments.Get(base); ok && !l.p.ReadOnly && !slices.Contains(l.txnLost, s) && base < l.derivedFrom.segment {
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

// dropSnapshotsAboveEnd removes snapshots of offsets that the log does not reach.
func (l *loader) dropSnapshotsAboveEnd(m *producerstate.Manager) error {
	if latest, ok := m.LatestSnapshotOffset(); !ok || latest <= l.end.Offset {
		return nil
	}
	if l.p.ReadOnly {
		return nil
	}
	if err := l.removeSnapshotsAbove(l.end.Offset); err != nil {
		return err
	}
	return m.DeleteSnapshotsAfter(l.end.Offset)
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
// first segment cannot be looked at and is believed.
func (l *loader) accepts(last record.Identity) bool {
	if last.Size > 0 && last.SegmentBase < l.segments.First().BaseOffset() {
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
	txnFrom int64 // aborted transactions whose marker is at or behind it go into the transaction index
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
	c := s.ScanWith(start, size, segment.ScanOptions{})
	for c.Next() {
		b := c.Batch()
		if b.BaseOffset() >= to {
			break
		}
		if err := r.batch(s, b); err != nil {
			return err
		}
	}
	r.l.report.BytesReplayed += c.Tail().Position - start
	if err := c.Err(); err != nil {
		return fmt.Errorf("recovery: %w", err)
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
		r.l.find(Finding{Path: s.Path(), Decision: Note, Position: b.Position, Bytes: int64(b.Size()), Offset: b.BaseOffset(),
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
			err := s.AppendAborted(index.AbortedTxn{ProducerID: c.ProducerID, FirstOffset: c.FirstOffset,
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

// checkTxnIndexes makes those transaction indexes anew that cannot be right. There are few: a segment without an aborted
// transaction has none.
func (l *loader) checkTxnIndexes() error {
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
			continue // it has been cut off with its segment
		}
		l.find(Finding{Path: d.name.Path(l.p.Dir), Decision: Rebuild, Problem: true, Reason: d.err.Error(), Err: d.err})
		if l.p.ReadOnly {
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
	c := l.producerConfig()
	c.ReadOnly, c.AllowBareSnapshots, c.Report = true, true, nil
	m, err := producerstate.Open(l.fsys, l.p.Dir, c)
	if err != nil {
		return err
	}
	if err := m.TruncateAndReload(l.segments.First().BaseOffset(), s.BaseOffset(), l.p.Now().UnixMilli()); err != nil {
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
	r := replay{l: l, m: m, txnFrom: s.BaseOffset()}
	if err := r.run(m.MapEndOffset(), end); err != nil {
		return err
	}
	if err := s.FlushIndexes(); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	return nil
}
