package wal

import (
	"fmt"
	"time"

	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/recovery"
	"github.com/oncelog/oncelog/segment"
)

// IncrementLogStartOffset moves the start of the log up: records below offset cannot be read any more, and the segments
// that hold nothing else go with the next DeleteOldSegments. It reports whether the start moved; an offset at or below it
// does nothing. An offset above the high watermark is an *OffsetError. When it returns true, the new start survives a
// power cut; with Compat it is in Kafka's checkpoint after Close, as with a broker. Kafka:
// UnifiedLog.maybeIncrementLogStartOffset.
func (l *Log) IncrementLogStartOffset(offset int64) (moved bool, err error) {
	if err := l.writable(); err != nil {
		return false, err
	}
	l.maintenance.Lock()
	defer l.maintenance.Unlock()
	err = l.exclusively(func() error {
		if offset > l.ends.high.offset {
			return &OffsetError{Offset: offset, LogStart: l.ends.logStart, LogEnd: l.ends.high.offset}
		}
		if offset <= l.ends.logStart {
			return nil
		}
		moved = true
		return l.raiseLogStart(offset)
	})
	return moved, err
}

// raiseLogStart makes a higher log start durable and lets readers see it. The caller is alone.
func (l *Log) raiseLogStart(offset int64) error {
	old := l.ends.logStart
	l.ends.logStart = offset // readers see it when it is published
	if err := l.syncLogStart(); err != nil {
		l.ends.logStart = old
		return err
	}
	if l.ends.high.offset < offset {
		l.setHigh(l.tryResolve(offset))
	}
	l.ends.recovery = max(l.ends.recovery, offset)
	l.producers.OnLogStartIncremented(offset)
	l.setUnstable()
	l.publish()
	l.epochs.TruncateFromStart(offset)
	return l.flushEpochs()
}

// syncLogStart puts the log start where the next open looks for it: into both synced slots, so that the loss of one brings
// nothing back, and into Kafka's checkpoint where there is one. The caller is alone.
func (l *Log) syncLogStart() error {
	if l.state == nil {
		return nil
	}
	for range 2 {
		if err := l.syncState(l.slot()); err != nil {
			return err
		}
	}
	return l.setParentOffset(recovery.LogStart, l.ends.logStart)
}

// DeleteOldSegments removes the oldest segments that nothing keeps: those wholly below the log start, and where the options
// ask for it (RetentionBytes, RetentionAge) those that are too much or too old at now, never above the high watermark. It
// returns how many went. The log start moves up to the first that is left. The files stay for Options.FileDeleteDelay under
// the suffix .deleted. A compacted log, unless it is to be deleted from as well, gives only what lies below its start.
//
// Without Compat a segment that an open transaction began in or that lies behind it stays. Kafka:
// UnifiedLog.deleteOldSegments.
func (l *Log) DeleteOldSegments(now time.Time) (deleted int, err error) {
	if err := l.writable(); err != nil {
		return 0, err
	}
	l.maintenance.Lock()
	defer l.maintenance.Unlock()
	l.finishRolls()
	if err := l.keepNames(); err != nil {
		return 0, err
	}
	for _, rule := range l.retentionRules(now) {
		n, err := l.deleteBy(rule)
		deleted += n
		if err != nil {
			return deleted, err
		}
	}
	return deleted, nil
}

// retentionRule tells whether a segment may go. It is asked for one segment after another, oldest first, until it says no.
type retentionRule struct {
	name string
	may  func(s, next *segment.Segment) (bool, error)
}

// retentionRules are the reasons to delete, in Kafka's order.
func (l *Log) retentionRules(now time.Time) []retentionRule {
	rules := []retentionRule{{"below the log start", func(_, next *segment.Segment) (bool, error) {
		return next != nil && next.BaseOffset() <= l.ends.logStart, nil
	}}}
	if l.opts.CleanupPolicy&CleanupDelete == 0 {
		return rules
	}
	if l.opts.RetentionBytes > 0 {
		tooMuch, counted := int64(0), false
		rules = append(rules, retentionRule{"too much", func(s, _ *segment.Segment) (bool, error) {
			if !counted {
				size, err := l.size()
				if err != nil {
					return false, err
				}
				tooMuch, counted = size-l.opts.RetentionBytes, true
			}
			size, err := s.Size()
			if err != nil || tooMuch-size < 0 {
				return false, err
			}
			tooMuch -= size
			return true, nil
		}})
	}
	if age := l.opts.RetentionAge; age > 0 && age != Never {
		rules = append(rules, retentionRule{"too old", func(s, _ *segment.Segment) (bool, error) {
			newest, err := s.LargestTimestamp()
			return err == nil && now.UnixMilli()-newest > age.Milliseconds(), err
		}})
	}
	return rules
}

// size is the number of bytes of batches. The caller holds mu.
func (l *Log) size() (n int64, err error) {
	for s := range l.set.All() {
		size, err := s.Size()
		if err != nil {
			return 0, err
		}
		n += size
	}
	return n, nil
}

// deleteBy deletes the segments that a rule lets go. The caller holds maintenance.
func (l *Log) deleteBy(r retentionRule) (n int, err error) {
	err = l.exclusively(func() error {
		list, err := l.deletable(r)
		if err != nil || len(list) == 0 {
			return err
		}
		n, err = l.deleteSegments(list, r)
		return err
	})
	l.finishRolls()
	return n, err
}

// deletable collects segments from the oldest on. The caller is alone.
func (l *Log) deletable(r retentionRule) (list []*segment.Segment, err error) {
	for s, ok := l.set.First(), true; ok; {
		next, more := l.set.Higher(s.BaseOffset())
		upper := l.end.offset
		if more {
			upper = next.BaseOffset()
		} else {
			next = nil
		}
		if l.ends.high.offset < upper || !l.opts.Compat && l.ends.unstable.offset >= 0 && l.ends.unstable.offset < upper {
			break
		}
		may, err := r.may(s, next)
		if err != nil {
			return nil, err
		}
		may = may && l.namesOutlive(upper)
		size, err := s.Size()
		if err != nil {
			return nil, err
		}
		if !may || !more && size == 0 {
			break
		}
		list = append(list, s)
		s, ok = next, more
	}
	return list, nil
}

// keepNames writes the producer state down before segments go: what a named producer stored last may be in one of them, and
// then the side files alone know where it stopped. The caller holds maintenance.
func (l *Log) keepNames() error {
	l.mu.Lock()
	named := len(l.producers.NamedProducers()) > 0 && !l.opts.Compat
	l.mu.Unlock()
	if !named {
		return nil
	}
	if err := l.checkpoint(); err != nil {
		return err
	}
	l.mu.Lock()
	newest, ok := l.producers.LatestSnapshotOffset()
	l.mu.Unlock()
	if !ok {
		return fmt.Errorf("wal: delete segments: there is no producer snapshot to go on from")
	}
	if _, err := producerstate.ReadPair(l.fsys, l.dir, newest); err != nil {
		return fmt.Errorf("wal: delete segments: the producer snapshot just written: %w", err)
	}
	return nil
}

// namesOutlive tells whether every named producer whose last batch lies below an offset is in two generations of side
// files. The caller is alone.
func (l *Log) namesOutlive(offset int64) bool {
	if l.opts.Compat {
		return true
	}
	snapshots := l.producers.Snapshots()
	for _, n := range l.producers.NamedProducers() {
		e, known := l.producers.LastEntry(n.ID)
		last, any := e.LastBatch()
		if !known || !any || last.LastOffset >= offset {
			continue
		}
		behind := 0
		for _, o := range snapshots {
			if o > last.LastOffset {
				behind++
			}
		}
		if behind < 2 {
			return false
		}
	}
	return true
}

// deleteSegments takes the oldest segments out of the log. Where all would go, a new one is begun first. The log start is
// moved, durably, before the first file is touched, and what the state file says about batches in them is withdrawn. The
// caller is alone.
func (l *Log) deleteSegments(list []*segment.Segment, r retentionRule) (int, error) {
	n := len(list)
	if n == l.set.Len() {
		if err := l.roll(l.end.offset, l.opts.Now()); err != nil {
			return 0, err
		}
		if l.set.Len() == n {
			list = list[:n-1] // it was empty, and is the one that stays
		}
	}
	if len(list) == 0 {
		return n, nil
	}
	last := list[len(list)-1].BaseOffset()
	first, ok := l.set.Higher(last)
	if !ok {
		return 0, fmt.Errorf("wal: no segment would be left behind %d", last)
	}
	l.withdrawIdentities(first.BaseOffset())
	if err := l.raiseLogStart(max(l.ends.logStart, first.BaseOffset())); err != nil {
		l.fail(err)
		return 0, l.failure()
	}
	set := l.set
	for _, s := range list {
		set = set.Without(s.BaseOffset())
	}
	l.setSegments(set)
	for _, s := range list {
		if err := l.discard(s); err != nil {
			l.fail(fmt.Errorf("wal: delete a segment: %w", err))
			return 0, l.failure()
		}
		l.opts.Logger.Info("deleted", "dir", l.dir, "segment", s.BaseOffset(), "reason", r.name)
	}
	if err := l.fsys.SyncDir(l.dir); err != nil {
		l.fail(fmt.Errorf("wal: delete a segment: %w", err))
		return 0, l.failure()
	}
	return n, nil
}

// withdrawIdentities makes the state file say "none" for batches in segments below base, since a reader of it takes a
// batch that is not there for damage. The caller is alone.
func (l *Log) withdrawIdentities(base int64) {
	for _, p := range [...]*position{&l.durable, &l.checkpointed} {
		if p.Last.Size > 0 && p.Last.SegmentBase < base {
			p.Last = position{}.Last
		}
	}
	if l.last.Size > 0 && l.last.SegmentBase < base {
		l.last = position{}.Last
	}
	// Nothing is looked for below, even if a power cut brings some of it back.
	l.checkpointed.Offset = max(l.checkpointed.Offset, base)
}
