package wal

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/kafkadir"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/recovery"
)

// failed is the first error that ended the log.
type failed struct{ err error }

// fail ends the log: the first write or sync of its own data that failed. Nothing is tried again, as the system may have
// dropped what was not on disk and report success the next time; recovery finds out what is there.
func (l *Log) fail(err error) {
	if !l.failedWith.CompareAndSwap(nil, &failed{fmt.Errorf("%w: %w", ErrFailed, err)}) {
		return
	}
	l.opts.Logger.Error("log failed", "dir", l.dir, "err", err)
	l.commit.fail(l.failure())
	l.waiters.wake()
	if l.state == nil {
		return
	}
	// What the state file says of the durable end stays true; the flag keeps a later open from believing the page cache.
	l.stateMu.Lock()
	defer l.stateMu.Unlock()
	if slot, ok := l.state.Newest(); ok {
		slot.SyncFailed, slot.Clean = true, false
		if err := l.state.Sync(slot); err != nil {
			l.warn("state file", err)
		}
	}
}

// failure returns the error that ended the log, or nil.
func (l *Log) failure() error {
	if f := l.failedWith.Load(); f != nil {
		return f.err
	}
	return nil
}

// writable says whether a change may be tried at all. It takes no lock.
func (l *Log) writable() error {
	switch {
	case l.isClosed.Load():
		return ErrClosed
	case l.opts.ReadOnly:
		return ErrReadOnly
	}
	return l.failure()
}

// usable is writable for a caller that holds mu, and so lasts until it gives mu up.
func (l *Log) usable() error {
	if l.closed {
		return ErrClosed
	}
	return l.writable()
}

func (l *Log) warn(what string, err error) {
	l.warnings.Add(1)
	l.opts.Logger.Warn(what, "dir", l.dir, "err", err)
}

// slot is what the state file is to say now. It is made under mu and may be written later, without it, so that two may come
// to be written in the wrong order: until then Generation counts the slots made, and tells the later one. The caller holds mu.
func (l *Log) slot() recovery.Slot {
	l.slotsMade++
	return recovery.Slot{
		Generation:      l.slotsMade,
		LogStart:        max(l.ends.logStart, l.set.First().BaseOffset()),
		Durable:         l.durable,
		Recovery:        l.checkpointed,
		SnapshotOffset:  l.snapshotOffset,
		NewestTimestamp: l.newest,
		Newest:          l.active.Newest(),
		AppendClock:     l.clock,
		Gaps:            l.gaps,
		Replacing:       l.replacing,
		Cleaned:         l.cleaned,
		Compacted:       l.compacted,
		Mode:            l.opts.Sync,
		GroupBound:      l.groupBound,
		Changes:         l.changes,
		BootID:          l.bootID,
		Who:             l.who,
		Bare:            l.bare,
		Segments:        l.sumSegments(),
		Txns:            l.txns.checkpointed,
		TxnsKnown:       !l.replacing,
	}
}

// sumSegments sums up the segments from the one with the log start on of which something is durable. The caller holds mu.
func (l *Log) sumSegments() recovery.SegmentSum {
	from := l.set.Index(max(l.ends.logStart, l.set.First().BaseOffset()))
	to := l.set.Index(l.durable.Offset-1) + 1
	return l.sums[max(from, to)].Sub(l.sums[from])
}

// hint writes the slot without a sync, unless a later one is written already. A hint that cannot be written costs the
// next open time, nothing else.
func (l *Log) hint(slot recovery.Slot) {
	if l.state == nil {
		return
	}
	l.stateMu.Lock()
	defer l.stateMu.Unlock()
	if l.failure() != nil || slot.Generation < l.slotWritten.Generation {
		return
	}
	l.slotWritten = slot
	if err := l.state.Hint(slot); err != nil {
		l.warn("state file", err)
	}
}

// syncState writes the slot and makes it durable. If a later one is written already, that one is made durable: it says all
// that this one does, and an older one behind it would take things back, such as that a file changed by our own hand.
func (l *Log) syncState(slot recovery.Slot) error {
	if l.state == nil {
		return nil
	}
	l.stateMu.Lock()
	defer l.stateMu.Unlock()
	if err := l.failure(); err != nil {
		return err // the last word is that a sync failed
	}
	if slot.Generation < l.slotWritten.Generation {
		slot = l.slotWritten
	}
	l.slotWritten = slot
	return l.state.Sync(slot)
}

// changeForeign changes files that other programs write too. The state file tells by their content whether another
// program was here; so it first learns the content that is about to be written, beside the present one, and whichever
// of the two a crash leaves is known as ours. The caller holds mu.
func (l *Log) changeForeign(changed recovery.Foreign, write func() error) error {
	old, next := l.foreign.Fingerprint(), changed.Fingerprint()
	if l.state != nil && old != next {
		if unknown := l.who[1]; unknown != old && unknown != next {
			// An earlier change went wrong half-way, and a state slot has no room for three contents.
			l.fail(errors.New("wal: the leader epochs, or a checkpoint of the log directory, are not known to be on disk"))
			return l.failure()
		}
		l.who, l.bare = recovery.Writers(&l.foreign, &changed)
		if err := l.syncState(l.slot()); err != nil {
			return err
		}
	}
	if err := write(); err != nil {
		if now, readErr := recovery.ReadForeign(l.fsys, l.dir); readErr == nil && now.Fingerprint() == old {
			l.who, l.bare = recovery.Writers(&l.foreign, &l.foreign) // nothing was replaced
		}
		return err
	}
	l.foreign = changed
	l.who, l.bare = recovery.Writers(&changed, &changed) // for the next slot, whenever that is written
	return nil
}

// assignEpochs notes the leader epochs of the batches, and stores the list if it grew. The caller holds mu. Kafka:
// UnifiedLog.append, which does it before all checks that depend on the log, so that a refused append may leave an
// epoch that begins at the log end.
func (l *Log) assignEpochs(w *write) error {
	for b, err := range record.All(w.bytes) {
		if err != nil {
			return err
		}
		if b.Magic() < record.Magic {
			l.epochs.Clear()
			continue
		}
		if _, err := l.epochs.Assign(b.PartitionLeaderEpoch(), b.BaseOffset()); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalidArgument, err)
		}
	}
	return l.flushEpochs()
}

// flushEpochs stores the leader epochs if they differ from what is stored. The caller holds mu.
func (l *Log) flushEpochs() error {
	if !l.epochs.Dirty() {
		return nil
	}
	next := l.foreign
	next.LeaderEpochs = l.epochs.Encode()
	return l.changeForeign(next, l.epochs.Flush)
}

// setParentOffset writes this partition's line into a checkpoint of the log directory, where there is one, or removes it
// if the offset is negative. The caller holds mu.
func (l *Log) setParentOffset(i recovery.OffsetFile, offset int64) error {
	if !l.foreign.HasFile[i] {
		return nil
	}
	next := l.foreign
	next.Offsets[i] = offset
	parent := filepath.Dir(l.dir)
	return l.changeForeign(next, func() error {
		lock, err := l.lockCheckpoints(filepath.Join(parent, kafkadir.LockFile))
		if err != nil {
			return fmt.Errorf("wal: checkpoint of the log directory: %w", err)
		}
		defer lock.Close()
		if offset < 0 {
			_, err = checkpoint.RemoveOffset(l.fsys, filepath.Join(parent, i.Name()), l.foreign.Partition)
			return err
		}
		_, err = checkpoint.SetOffset(l.fsys, filepath.Join(parent, i.Name()), l.foreign.Partition, offset)
		return err
	})
}

// lockCheckpoints waits until no other partition writes a checkpoint of the log directory, which takes two syncs.
func (l *Log) lockCheckpoints(path string) (lock io.Closer, err error) {
	const tries, pause = 10_000, time.Millisecond
	for range tries {
		if lock, err = l.fsys.Lock(path, parentWriteByte, 1, true); !errors.Is(err, vfs.ErrLocked) {
			break
		}
		time.Sleep(pause)
	}
	return lock, err
}

// promise lets the state file know what an append may look like to a recovery, before there is a segment or a byte of it:
// a group larger than the bound, for a follower's batches larger than MaxMessageBytes, and offsets that jump. The caller
// holds mu.
func (l *Log) promise(w *write) error {
	bound, gaps := l.groupBound, l.gaps || l.jumps(w)
	if l.opts.Sync == SyncCommit {
		bound = max(bound, int64(len(w.bytes)))
	}
	if bound == l.groupBound && gaps == l.gaps {
		return nil
	}
	oldBound, oldGaps := l.groupBound, l.gaps
	l.groupBound, l.gaps = bound, gaps
	if err := l.syncState(l.slot()); err != nil {
		l.groupBound, l.gaps = oldBound, oldGaps
		return fmt.Errorf("wal: append of %d bytes: %w", len(w.bytes), err)
	}
	return nil
}

// jumps tells whether offsets are left out before or between the batches. Old formats do not tell. The caller holds mu.
func (l *Log) jumps(w *write) bool {
	if w.leader {
		return false
	}
	next := l.end.offset
	for b := range record.All(w.bytes) {
		if b.Magic() < record.Magic || b.BaseOffset() != next {
			return true
		}
		next = b.NextOffset()
	}
	return false
}
