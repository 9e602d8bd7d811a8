package wal

import (
	"errors"
	"fmt"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/recovery"
	"github.com/oncelog/oncelog/segment"
)

// rolled is what is left to do after a roll, outside the lock that appends need.
type rolled struct {
	old    *segment.Segment      // nil if it was empty
	base   int64                 // of the segment that follows
	end    position              // where the old one ends
	txns   recovery.TxnSum       // aborted transactions below
	frozen *producerstate.Frozen // producer state at base; nil in Compat, where the snapshot was taken at once
}

// afterRoll prepares the job that follows a roll. The caller holds mu.
func (l *Log) afterRoll(old *segment.Segment, base int64, end position) *rolled {
	r := &rolled{old: old, base: base, end: position{Offset: base, Last: end.Last}, txns: l.txns.all}
	if l.opts.Compat {
		if err := l.producers.TakeSnapshot(end.Last); err != nil {
			l.warn("producer snapshot", err)
		}
	} else {
		r.frozen = l.producers.Freeze()
	}
	l.due.Store(true)
	return r
}

// runJobs does what appends have left to do, in the order of the log. It is called without locks after each of them
// and costs nothing when there is nothing to do.
func (l *Log) runJobs() {
	if !l.due.Load() {
		return
	}
	l.maintenance.Lock()
	defer l.maintenance.Unlock()
	l.finishRolls()
	l.mu.Lock()
	full, flush := l.checkpointDue(), l.flushDue()
	l.due.Store(len(l.jobs) > 0) // one may have come just now, of an append that will see it
	over := l.usable() != nil
	l.mu.Unlock()
	switch {
	case over:
	case full:
		if err := l.checkpoint(); err != nil {
			l.warn("checkpoint", err)
		}
	case flush:
		if err := l.flush(); err != nil {
			l.warn("flush", err)
		}
	}
}

// noteWork tells runJobs when an append has left something to do. The caller holds mu.
func (l *Log) noteWork() {
	if l.checkpointDue() || l.flushDue() {
		l.due.Store(true)
	}
}

func (l *Log) checkpointDue() bool {
	return l.bytesSinceCheckpoint >= l.settings().CheckpointBytes && !l.opts.Compat
}

// flushDue counts, as Kafka does, from the recovery point, which in Compat follows each flush. Else only a checkpoint moves
// that, and what is on disk counts.
func (l *Log) flushDue() bool {
	synced := l.durable.Offset
	if l.opts.Compat {
		synced = l.ends.recovery
	}
	return l.end.offset-synced >= l.settings().SyncMessages
}

// finishRolls syncs the segments that appends have left behind, oldest first. The caller holds maintenance.
func (l *Log) finishRolls() {
	for {
		l.mu.Lock()
		if len(l.jobs) == 0 || l.failure() != nil {
			l.mu.Unlock()
			return
		}
		r := l.jobs[0]
		l.jobs = l.jobs[1:]
		l.mu.Unlock()
		l.finishRoll(r)
	}
}

// finishRoll makes a segment that was rolled durable, the exact length of its file included, then the producer state at
// its end, and then lets the recovery point pass it.
func (l *Log) finishRoll(r *rolled) {
	if r.old != nil && !l.syncRolled(r) {
		return
	}
	if err := l.writePair(r.frozen, r.end.Last); err != nil {
		l.warn("producer snapshot", err)
		return
	}
	l.advanceRecoveryPoint(r.end, r.base, r.txns)
	l.prune()
}

// syncRolled makes the batches and the indexes of a rolled segment durable, and tells whether they are.
func (l *Log) syncRolled(r *rolled) bool {
	if l.opts.Sync != SyncCommit {
		if err := r.old.Seal(); errors.Is(err, segment.ErrIndex) {
			l.warn("index of a rolled segment", err)
		} else if err != nil {
			l.fail(fmt.Errorf("wal: sync after a roll: %w", err))
			return false
		}
		l.mu.Lock()
		if l.durable.Offset < r.end.Offset {
			l.durable = r.end
		}
		slot, gaps := l.slot(), l.gaps
		l.mu.Unlock()
		// Where offsets jump, a power cut that takes the end of this segment looks like one more jump: only that the
		// durable end has passed it says that there was one. So that is on disk before anything behind it is promised.
		if err := l.syncState(slot); gaps && err != nil {
			l.fail(fmt.Errorf("wal: state file after a roll: %w", err))
			return false
		}
	}
	if err := l.flushIndexes(r.old); err != nil {
		l.warn("sync of the indexes after a roll", err)
		return false
	}
	return true
}

// flushIndexes syncs the indexes of a segment. An error costs no record, but the entries it was about may be gone from the
// disk although a later sync succeeds: the recovery point stays below them until the next open, which makes them anew.
// The caller holds maintenance.
func (l *Log) flushIndexes(s *segment.Segment) error {
	err := s.FlushIndexes()
	if err != nil {
		l.inDoubt.Store(true)
	}
	return err
}

// writePair writes the snapshot and its side file. An error puts the recovery point in doubt as one about an index does:
// the sync of the directory that may have failed was also to make the names of new transaction indexes durable. A full
// disk is no such error: the next checkpoint may find room.
func (l *Log) writePair(f *producerstate.Frozen, last record.Identity) error {
	if f == nil {
		return nil
	}
	fsys := &dirSyncs{FS: l.fsys}
	err := producerstate.WritePair(fsys, l.dir, f, last)
	if err != nil && (fsys.failed || !errors.Is(err, vfs.ErrNoSpace)) {
		l.inDoubt.Store(true)
	}
	return err
}

// dirSyncs notes whether a sync of a directory was begun and has failed.
type dirSyncs struct {
	vfs.FS
	failed bool
}

// SyncDir implements vfs.FS.
func (d *dirSyncs) SyncDir(dir string) error {
	err := d.FS.SyncDir(dir)
	d.failed = d.failed || err != nil && !outOfFiles(err)
	return err
}

// advanceRecoveryPoint writes down that a crash makes nobody look below p again. The caller holds maintenance.
func (l *Log) advanceRecoveryPoint(p position, snapshot int64, txns recovery.TxnSum) {
	l.mu.Lock()
	if !l.opts.Compat { // there it was noted when it was taken
		l.producers.NoteSnapshot(snapshot)
	}
	if l.inDoubt.Load() || p.Offset <= l.checkpointed.Offset && p != l.checkpointed {
		l.mu.Unlock()
		return
	}
	l.checkpointed, l.snapshotOffset, l.txns.checkpointed = p, snapshot, txns
	l.ends.recovery = p.Offset
	l.publish()
	slot := l.slot()
	l.mu.Unlock()
	if err := l.syncState(slot); err != nil {
		l.warn("state file", err)
	}
}

// prune removes snapshots that no open needs: those inside segments, but for the newest two. The caller holds
// maintenance.
func (l *Log) prune() {
	if l.opts.Compat {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pruneLocked()
}

func (l *Log) pruneLocked() {
	var bases []int64
	for s := range l.set.All() {
		bases = append(bases, s.BaseOffset())
	}
	if err := l.producers.PruneSnapshots(bases); err != nil {
		l.warn("remove an old producer snapshot", err)
	}
}

// Checkpoint makes everything appended so far durable together with its index entries and the producer state, so that
// an open after a crash reads only what comes later. The log takes one by itself every CheckpointBytes and at each roll.
func (l *Log) Checkpoint() error {
	if err := l.writable(); err != nil {
		return err
	}
	l.maintenance.Lock()
	defer l.maintenance.Unlock()
	return l.checkpoint()
}

// capture runs f while nothing is pending, nobody appends and every rolled segment is on disk, so that what f sees of
// the active segment is all that a sync of it has to cover. The caller holds maintenance.
func (l *Log) capture(f func()) error {
	for {
		l.finishRolls()
		again := false
		err := l.exclusively(func() error {
			if again = len(l.jobs) > 0; !again {
				f()
			}
			return nil
		})
		if err != nil || !again {
			return err
		}
	}
}

// checkpoint is Checkpoint. The caller holds maintenance.
func (l *Log) checkpoint() error {
	if l.opts.Compat {
		if err := l.flush(); err != nil {
			return err
		}
		return l.takeSnapshot()
	}
	var m mark
	var frozen *producerstate.Frozen
	err := l.capture(func() {
		m, frozen = l.mark(), l.producers.Freeze()
		l.bytesSinceCheckpoint = 0
	})
	if err != nil {
		return err
	}
	if err := l.syncUpTo(&m); err != nil {
		return err
	}
	if err := l.flushIndexes(m.active); err != nil {
		return fmt.Errorf("wal: checkpoint: %w", err)
	}
	if err := l.writePair(frozen, m.at.Last); err != nil {
		return fmt.Errorf("wal: checkpoint: %w", err)
	}
	l.advanceRecoveryPoint(m.at, frozen.Offset(), m.txns)
	l.prune()
	return nil
}

// mark is the log end at one moment, for a sync that begins later. Appends go on meanwhile, and what they bring is not
// in it.
type mark struct {
	active   *segment.Segment
	at       position
	txns     recovery.TxnSum // aborted transactions below
	appended int64           // bytes since the open
	ticket   uint64
}

// mark is for capture. The caller holds mu.
func (l *Log) mark() mark {
	return mark{active: l.active, at: l.lastPosition(), txns: l.txns.all, appended: l.appendedBytes, ticket: l.tickets.Load()}
}

// syncUpTo makes the active segment durable up to a mark in it, where a group commit has not already. The caller holds
// maintenance and captured the mark.
func (l *Log) syncUpTo(m *mark) error {
	if l.opts.Sync == SyncCommit {
		return nil
	}
	if err := syncData(m.active); err != nil {
		l.fail(err)
		return l.failure()
	}
	l.mu.Lock()
	l.durable = m.at
	l.syncedBytes = m.appended
	slot := l.slot()
	l.mu.Unlock()
	l.hint(slot)
	l.commit.done(m.ticket)
	return nil
}

// Flush makes everything appended so far durable. In SyncCommit that is so already for what was acknowledged.
func (l *Log) Flush() error {
	if err := l.writable(); err != nil {
		return err
	}
	l.maintenance.Lock()
	defer l.maintenance.Unlock()
	return l.flush()
}

// flush is Flush. The caller holds maintenance.
func (l *Log) flush() error {
	var m mark
	if err := l.capture(func() { m = l.mark() }); err != nil {
		return err
	}
	if err := l.syncUpTo(&m); err != nil {
		return err
	}
	if !l.opts.Compat {
		return nil
	}
	// Kafka's recovery point follows each flush (UnifiedLog.flush), without a snapshot.
	if err := m.active.Flush(); err != nil {
		l.fail(fmt.Errorf("wal: flush: %w", err))
		return l.failure()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.checkpointed = m.at
	l.ends.recovery = m.at.Offset
	l.publish()
	return nil
}

// closeWriter does for a writer what Close has to do before the files are closed. With the state file's last word the log
// is closed: a Checkpoint or a Flush that waits for maintenance meanwhile comes too late, and must not write another one.
func (l *Log) closeWriter() (err error) {
	l.maintenance.Lock()
	defer l.maintenance.Unlock()
	captureErr := l.capture(func() {
		err = l.sealForClose()
		l.closed = true
	})
	return errors.Join(captureErr, err)
}

// sealForClose makes the end of the log durable and says so in the state file. The caller holds mu and maintenance, and
// nothing is pending.
func (l *Log) sealForClose() error {
	// The reserved space goes, so that the files are those of a log that was stopped in order.
	if err := l.active.Seal(); err != nil && !errors.Is(err, segment.ErrIndex) {
		l.fail(fmt.Errorf("wal: close: %w", err))
		return l.failure()
	}
	l.durable = l.lastPosition()
	l.commit.done(l.tickets.Load())
	err := l.flushIndexes(l.active)
	if l.opts.Compat {
		return errors.Join(err, l.closeInCompat())
	}
	if !l.inDoubt.Load() {
		err = l.writePair(l.producers.Freeze(), l.last)
	}
	if err != nil || l.inDoubt.Load() {
		// Every record is on disk; the next open reads what lies behind the recovery point.
		if err != nil {
			l.warn("close", err)
		}
		return l.syncState(l.slot())
	}
	l.checkpointed, l.snapshotOffset, l.txns.checkpointed = l.durable, l.end.offset, l.txns.all
	l.producers.NoteSnapshot(l.end.offset)
	l.pruneLocked()
	slot := l.slot()
	slot.Clean = true
	return l.syncState(slot)
}

// closeInCompat leaves what a broker's clean stop leaves in the partition, and its lines in the checkpoints. The mark of
// a clean stop speaks for all partitions of the log directory and is not one partition's to write. Kafka:
// LogManager.shutdown, UnifiedLog.close.
func (l *Log) closeInCompat() error {
	if err := l.producers.TakeSnapshot(l.last); err != nil {
		return fmt.Errorf("wal: close: %w", err)
	}
	l.ends.recovery = l.end.offset
	l.publish()
	if err := l.setParentOffset(recovery.RecoveryPoint, l.end.offset); err != nil {
		return err
	}
	start := l.ends.logStart
	if start <= l.set.First().BaseOffset() {
		start = noOffset // Kafka keeps a line only where the files do not tell (LogManager.checkpointLogStartOffsetsInDir)
	}
	return l.setParentOffset(recovery.LogStart, start)
}
