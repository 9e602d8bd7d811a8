package wal

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/recovery"
	"github.com/oncelog/oncelog/segment"
)

// TruncateTo removes every record at or above offset, and the batch that offset lies in as a whole, as a follower does
// whose leader has other ones. The log then ends at offset. It reports whether anything was there to remove. What
// depends on the removed records follows: index entries, leader epochs, producer state, transactions, the high watermark,
// and the log start where it lies above. An offset below the first segment is TruncateFullyAndStartAt. Records that compaction
// had removed for the sake of later ones do not come back.
//
// When it returns nil the cut is durable. Readers see the lower end at once; Records they hold are segment.ErrCut. An
// error other than ErrInvalidArgument leaves the log failed: open it again. Kafka: UnifiedLog.truncateTo.
func (l *Log) TruncateTo(offset int64) (removed bool, err error) {
	if offset < 0 {
		return false, fmt.Errorf("%w: truncate to %d", ErrInvalidArgument, offset)
	}
	err = l.cutting(func() error {
		switch {
		case offset >= l.end.offset:
			// Even so an epoch may have begun at the end, for a leader that never wrote.
			l.epochs.TruncateFromEnd(l.end.offset)
			return l.flushEpochs()
		case offset < l.set.First().BaseOffset():
			removed = true
			return l.restartAt(offset, offset)
		}
		removed = true
		return l.truncate(offset)
	})
	return removed, err
}

// TruncateFullyAndStartAt removes everything, and the log goes on at offset. Readers may begin at logStart, which is at
// most offset: a follower that begins behind its leader's start passes it, others pass offset twice. Kafka:
// UnifiedLog.truncateFullyAndStartAt.
func (l *Log) TruncateFullyAndStartAt(offset, logStart int64) error {
	if offset < 0 || logStart < 0 || logStart > offset {
		return fmt.Errorf("%w: truncate fully and start at %d, log start %d", ErrInvalidArgument, offset, logStart)
	}
	return l.cutting(func() error { return l.restartAt(offset, logStart) })
}

// cutting runs f, which cuts the log, alone. An error of f fails the log: it may have been cut halfway.
func (l *Log) cutting(f func() error) error {
	if err := l.writable(); err != nil {
		return err
	}
	l.maintenance.Lock()
	defer l.maintenance.Unlock()
	l.finishRolls()
	return l.exclusively(func() error {
		if err := f(); err != nil {
			l.fail(fmt.Errorf("wal: truncate: %w", err))
			return l.failure()
		}
		return nil
	})
}

// truncate cuts the log at an offset above the base of its first segment. The caller is alone.
func (l *Log) truncate(offset int64) error {
	s, _ := l.set.Floor(offset)
	size, err := s.Size()
	if err != nil {
		return err
	}
	pos, h, found, err := s.Locate(offset, size)
	if err != nil {
		return err
	}
	if !found {
		pos = size
	}
	// The records of the batch that lie below go too, and what comes next begins behind a gap.
	l.gaps = l.gaps || found && (h.BaseOffset < offset || h.Magic < record.Magic)
	last, err := recovery.LastBatch(l.set, s, pos, offset)
	if err != nil {
		return err
	}
	if err := l.announceCut(place{offset: offset, segment: s.BaseOffset(), position: pos}, last); err != nil {
		return err
	}
	if err := l.removeSegments(slices.Collect(l.after(s))); err != nil {
		return err
	}
	if _, err := s.TruncateTo(offset); err != nil {
		return err
	}
	if err := errors.Join(s.Sync(), l.fsys.SyncDir(l.dir)); err != nil {
		return err
	}
	if err := s.OpenActive(pos); err != nil {
		return err
	}
	l.setActive(s, pos, l.opts.Now())
	l.end.offset, l.last = offset, last.Last
	l.durable = last // in every mode: all that is left has been synced
	l.epochs.TruncateFromEnd(offset)
	return l.afterCut(min(l.ends.logStart, offset), offset)
}

// after yields the segments behind one. The caller holds mu.
func (l *Log) after(s *segment.Segment) func(yield func(*segment.Segment) bool) {
	return func(yield func(*segment.Segment) bool) {
		for next, ok := l.set.Higher(s.BaseOffset()); ok && yield(next); {
			next, ok = l.set.Higher(next.BaseOffset())
		}
	}
}

// restartAt removes every segment and begins a new one. The caller is alone.
func (l *Log) restartAt(offset, logStart int64) error {
	first, recovered := l.set.First().BaseOffset(), min(l.ends.recovery, offset)
	if err := l.announceCut(place{offset: first, segment: first}, position{Offset: min(first, offset)}); err != nil {
		return err
	}
	if err := l.producers.TruncateFullyAndStartAt(offset); err != nil {
		return err
	}
	// The first one goes when the others are gone for good: whatever a power cut brings back, the log begins with it.
	if err := l.removeSegments(slices.Collect(l.after(l.set.First()))); err != nil {
		return err
	}
	if err := l.removeSegments([]*segment.Segment{l.set.First()}); err != nil {
		return err
	}
	next, err := l.createSegment(offset)
	if err != nil {
		return err
	}
	l.setSegments(segment.NewSet(next))
	l.setActive(next, 0, l.opts.Now())
	l.end.offset, l.last = offset, position{}.Last
	l.durable, l.checkpointed = position{Offset: offset}, position{Offset: recovered}
	l.epochs.Clear()
	l.ends.high, l.ends.recovery = l.end, recovered
	return l.afterCut(logStart, offset)
}

// announceCut says in the state file, durably, that the log is being cut to end, and lets readers see no more than what
// will be left. With that a crash in the middle is not taken for damage. Kafka's recovery point is lowered first, since a
// broker believes that everything below it is there. The caller is alone.
func (l *Log) announceCut(end place, last position) error {
	if old := l.foreign.Offsets[recovery.RecoveryPoint]; old > end.offset && !l.opts.Compat {
		if err := l.setParentOffset(recovery.RecoveryPoint, end.offset); err != nil {
			return err
		}
	}
	if err := l.lowerCleaned(end); err != nil {
		return err
	}
	if l.durable.Offset > last.Offset {
		l.durable = last
	}
	l.forgetTxns(max(end.offset, l.ends.logStart), math.MaxInt64)
	if l.checkpointed.Offset > last.Offset {
		l.checkpointed, l.snapshotOffset = last, -1
	}
	l.ends.truncations++
	l.changes++
	l.ends.recovery = min(l.ends.recovery, end.offset)
	l.ends.end = end
	l.publish()
	if l.state == nil {
		return nil
	}
	if err := l.cutCursors(last.Offset); err != nil {
		return err
	}
	slot := l.slot()
	slot.Cutting = true
	if err := l.syncState(slot); err != nil {
		return err
	}
	return l.producers.DeleteSnapshotsAfter(end.offset)
}

// removeSegments takes segments out of the log and removes their files, the last one first, so that a crash leaves no
// hole. Their snapshots go with them. The caller is alone.
func (l *Log) removeSegments(list []*segment.Segment) error {
	if len(list) == 0 {
		return nil
	}
	set := l.set
	for _, s := range list {
		set = set.Without(s.BaseOffset())
	}
	l.setSegments(set)
	for _, s := range slices.Backward(list) {
		if err := l.discard(s); err != nil {
			return err
		}
	}
	return l.fsys.SyncDir(l.dir)
}

// afterCut brings everything that is derived in line with the log as it now is, and writes down that the cut is done. The
// caller is alone.
func (l *Log) afterCut(logStart, end int64) error {
	if err := l.flushEpochs(); err != nil {
		return err
	}
	l.ends.logStart = logStart
	l.changes++ // whoever looked while it was going on looks again
	if err := l.rebuildProducers(logStart, end); err != nil {
		return err
	}
	if l.ends.high.offset >= end {
		l.ends.high = l.end
	}
	if !l.opts.Compat {
		l.setUnstable() // Kafka leaves it until the high watermark moves
	}
	l.publishEnd(l.end)
	if err := l.cutCursors(end); err != nil { // one may have been moved meanwhile
		return err
	}
	return l.syncState(l.slot())
}

// rebuildProducers replays what is left. The names that are open are entered again, since the state may come from before
// they were.
func (l *Log) rebuildProducers(logStart, end int64) error {
	named := l.producers.NamedProducers()
	err := recovery.RebuildProducers(context.Background(), l.fsys, l.recoveryParams(), l.set, l.producers, logStart, end, l.compacted)
	if err != nil {
		return err
	}
	for _, n := range named {
		if _, known := l.producers.LastEntry(n.ID); !known {
			continue
		}
		if err := l.producers.SetNamed(n); err != nil {
			return err
		}
	}
	return nil
}
