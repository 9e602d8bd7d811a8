package wal

import (
	"fmt"

	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/recovery"
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
	undo := l.forgetTxns(old, offset)
	if l.checkpointed.Offset <= offset {
		l.txns.checkpointed = recovery.TxnSum{} // also if it was moved up, past transactions that were not in it
	}
	if err := l.syncLogStart(); err != nil {
		l.ends.logStart = old
		undo()
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
