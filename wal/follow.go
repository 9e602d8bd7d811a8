package wal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"sync"
	"time"

	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/recovery"
	"github.com/oncelog/oncelog/segment"
)

// follower keeps a read-only log up with a writer in another process. It looks when it is asked to: by Refresh, by whoever
// waits for records, and by a read that may have met what the writer was changing.
//
// A look reads the state file first. What had been there when it was written is there unless its count of changes has grown
// (recovery.Slot.Changes); then everything is loaded anew, as an open does. Else only what is new behind the known end is
// read. The writer raises the count, durably, before it cuts, so that bytes which were read before an unchanged count was
// seen are those of the log that readers were shown.
type follower struct {
	mu       sync.Mutex // held over a look; before Log.mu
	us       bool       // this library wrote last
	found    bool       // there is a state file
	slot     recovery.Slot
	replay   *recovery.Replay
	opened   int64  // bytes of the last segment when its indexes were opened
	stuck    uint64 // generation of a slot whose writer began to rename files and came to no end
	reloaded uint64 // generation of the slot for which everything was loaded anew because the log seemed to end too early
}

const (
	followStep = 1 << 20                // bytes read between two publications, and behind the last index entry that a look-up knows
	firstPause = time.Millisecond       // between two looks
	mostPause  = 100 * time.Millisecond // while nothing happens
)

// begin takes over what a load found. The caller is alone, or holds the lock of the follower and that of the log.
func (f *follower) begin(l *Log, s *recovery.State) {
	f.us, f.slot, f.found = s.Report.Writer == recovery.Us, s.Slot, s.Slot.Generation > 0
	f.replay = recovery.NewReplay(l.fsys, l.recoveryParams(), s.Producers)
	f.opened = l.end.position
}

// Refresh brings a log that was opened read-only up to what a writer in another process has made of it: records that were
// appended, a log start that moved, segments that were deleted, truncations. Tail and Wait do it by themselves; Records,
// Read, Get and the offsets are as of the last look. A log that is open for writing is always up to date.
func (l *Log) Refresh(ctx context.Context) error {
	if !l.opts.ReadOnly || l.isClosed.Load() {
		return closedErr(l.isClosed.Load())
	}
	l.follow.mu.Lock()
	defer l.follow.mu.Unlock()
	return l.look(ctx)
}

// readSlot reads the state file, and waits while the writer renames files: a log that is loaded meanwhile may lack some. A
// writer that has been at it for long was interrupted, and what it left is not going to move.
func (l *Log) readSlot(ctx context.Context) (slot recovery.Slot, found bool, err error) {
	const most = 5 * time.Second
	for waited := time.Duration(0); ; waited += firstPause {
		if slot, found, err = recovery.ReadSlot(l.fsys, l.dir); err != nil || !slot.Replacing || slot.Generation == l.follow.stuck {
			return slot, found, err
		}
		if waited >= most {
			l.follow.stuck = slot.Generation
			return slot, found, nil
		}
		if err := ctx.Err(); err != nil {
			return slot, found, err
		}
		time.Sleep(firstPause)
	}
}

func closedErr(closed bool) error {
	if closed {
		return ErrClosed
	}
	return nil
}

// look is Refresh for a caller that holds follow.mu.
func (l *Log) look(ctx context.Context) error {
	if l.isClosed.Load() {
		return ErrClosed
	}
	f := &l.follow
	slot, found, err := l.readSlot(ctx)
	if err != nil {
		return err
	}
	if f.isAnother(&slot, found) {
		return l.reload(ctx)
	}
	f.slot = slot
	l.mu.Lock()
	l.gaps = l.gaps || f.us && slot.Gaps
	l.mu.Unlock()
	goesOn, err := l.advance(ctx)
	if err != nil {
		return err
	}
	// What lay in between may have been deleted before it was read.
	goesOn = goesOn && (!f.us || slot.LogStart <= l.end.offset)
	if !goesOn && f.reloaded != slot.Generation {
		f.reloaded = slot.Generation
		return l.reload(ctx)
	}
	l.followStart()
	return l.forgetShadows()
}

// isAnother tells whether the log may be another one than that which was loaded.
func (f *follower) isAnother(slot *recovery.Slot, found bool) bool {
	return found != f.found || slot.Changes != f.slot.Changes || !f.us && slot.Generation != f.slot.Generation
}

// promises tells whether the state file knows of records at or behind an offset.
func (f *follower) promises(offset int64) bool { return f.us && f.slot.Durable.Offset > offset }

// limit is the offset at which readers have to stop. What a writer in SyncCommit has not synced may be taken back by a power
// cut, unless the machine has been started since and what is there comes from the disk.
func (l *Log) followLimit() int64 {
	s := &l.follow.slot
	if l.follow.us && s.HidesBehindDurable(l.bootID) {
		return s.Durable.Offset
	}
	return math.MaxInt64
}

// advance reads on from the known end. goesOn is false if the log should have gone on and does not, or not there.
func (l *Log) advance(ctx context.Context) (goesOn bool, err error) {
	limit := l.followLimit()
	for l.end.offset < limit {
		if err := ctx.Err(); err != nil {
			return true, err
		}
		n, err := l.readOn(limit)
		if err != nil {
			return true, err
		}
		if n > 0 {
			continue
		}
		next, found, err := l.nextSegment()
		if err != nil {
			return true, err
		}
		if !found {
			l.endInGap()
			return !l.follow.promises(l.end.offset), nil
		}
		if next != l.end.offset {
			// The writer may have appended to this one before it began the next.
			if n, err = l.readOn(limit); err != nil {
				return true, err
			}
			if n > 0 {
				continue
			}
			if !l.gaps || next < l.end.offset {
				return false, nil
			}
		}
		l.enterSegment(next)
	}
	return true, nil
}

// endInGap moves the end to where the writer has it, where no batch lies between. The caller holds follow.mu.
func (l *Log) endInGap() {
	if d := &l.follow.slot.Durable; l.follow.us && d.Offset > l.end.offset && d.Last == l.last {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.end.offset = d.Offset
		l.producers.UpdateMapEndOffset(d.Offset)
		l.publishEnd(l.end)
	}
}

// readOn takes over the whole batches behind the known end, below limit, and returns how many it took. What is no batch, or
// not a whole one, is not there yet. The caller holds follow.mu; nobody else changes the log.
func (l *Log) readOn(limit int64) (n int, err error) {
	s := l.active
	pos := l.end.position
	claimed, err := s.ClaimedAt(pos)
	if err != nil || claimed == 0 {
		return 0, missing(err)
	}
	physical, err := s.FileSize()
	if err != nil || claimed > physical-pos {
		return 0, missing(err)
	}
	s.SetSize(min(physical, pos+max(followStep, claimed)))
	c := s.ScanWith(pos, segment.ToEnd, segment.ScanOptions{Ordered: true, After: l.end.offset})
	l.mu.Lock()
	defer l.mu.Unlock()
	for c.Next() {
		b := c.Batch()
		jumps := b.Magic() >= record.Magic && b.BaseOffset() != l.end.offset && l.last.Size > 0
		if b.NextOffset() > limit || jumps && !l.gaps {
			break
		}
		if err = l.takeOver(s, b); err != nil {
			break
		}
		n++
	}
	if err == nil {
		err = missing(c.Err())
	}
	s.SetSize(l.end.position)
	if n > 0 {
		l.publishEnd(l.end)
	}
	if err == nil && l.end.position-l.follow.opened > followStep {
		l.follow.opened = l.end.position
		err = s.Park() // the next look-up opens the indexes as they are then
	}
	return n, err
}

// missing passes over a file that has just been removed or cut: the next look knows why.
func missing(err error) error {
	if segment.Vanished(err) {
		return nil
	}
	return err
}

// takeOver applies one batch of the writer's. The caller holds mu.
func (l *Log) takeOver(s *segment.Segment, b segment.BatchAt) error {
	if b.Magic() < record.Magic {
		l.epochs.Clear()
	} else if latest, ok := l.epochs.Latest(); b.PartitionLeaderEpoch() >= 0 && (!ok || b.PartitionLeaderEpoch() > latest.Epoch) {
		if _, err := l.epochs.Assign(b.PartitionLeaderEpoch(), b.BaseOffset()); err != nil {
			return err
		}
	}
	if err := l.follow.replay.Batch(s, b); err != nil {
		return err
	}
	l.last = b.Identity(s.BaseOffset(), b.Position)
	l.end.offset, l.end.position = b.NextOffset(), b.Position+int64(b.Size())
	l.newest = max(l.newest, b.MaxTimestamp())
	return nil
}

// nextSegment finds the segment behind the last one. The caller holds follow.mu.
func (l *Log) nextSegment() (base int64, found bool, err error) {
	current := l.active.BaseOffset()
	if end := l.end.offset; end > current {
		_, err := l.fsys.Stat(filepath.Join(l.dir, segment.FileName(segment.KindLog, end)))
		if err == nil {
			return end, true, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return 0, false, fmt.Errorf("wal: %w", err)
		}
		if !l.gaps {
			return 0, false, nil
		}
	}
	entries, err := l.fsys.ReadDir(l.dir)
	if err != nil {
		return 0, false, fmt.Errorf("wal: %w", err)
	}
	for _, e := range entries { // ascending
		n := segment.Parse(e.Name)
		if n.Kind == segment.KindLog && n.Suffix == "" && n.Offset > current {
			return n.Offset, true, nil
		}
	}
	return 0, false, nil
}

// enterSegment goes on in the next segment. The caller holds follow.mu.
func (l *Log) enterSegment(base int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := segment.Open(l.fsys, l.dir, base, l.segmentConfig())
	s.ShadowAborted(nil, false)
	s.SetSize(0)
	l.setSegments(l.set.With(s))
	l.setActive(s, 0, l.opts.Now())
	l.end.offset = base
	l.producers.UpdateMapEndOffset(base)
	l.follow.opened = 0
	l.publishEnd(l.end)
}

// followStart moves the log start where the writer moved it, and lets go of the segments that lie below. The caller holds
// follow.mu.
func (l *Log) followStart() {
	start := l.follow.slot.LogStart
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends.recovery = max(l.ends.recovery, min(l.follow.slot.Recovery.Offset, l.end.offset))
	if !l.follow.us || start <= l.ends.logStart || start > l.end.offset {
		return
	}
	l.ends.logStart = start
	if l.ends.high.offset < start {
		l.setHigh(l.tryResolve(start))
	}
	l.producers.OnLogStartIncremented(start)
	l.setUnstable()
	l.epochs.TruncateFromStart(start)
	set := l.set
	for s := range l.set.All() {
		if next, ok := l.set.Higher(s.BaseOffset()); ok && next.BaseOffset() <= start {
			set = set.Without(s.BaseOffset())
			_ = s.Close() // it was only read
		}
	}
	l.setSegments(set)
	l.publish()
}

// forgetShadows believes the transaction indexes of segments that the writer has finished, which are on disk with them. The
// caller holds follow.mu.
func (l *Log) forgetShadows() error {
	if !l.follow.us {
		return nil
	}
	for s := range l.set.All() {
		next, ok := l.set.Higher(s.BaseOffset())
		if !ok || next.BaseOffset() > l.follow.slot.Recovery.Offset {
			return nil
		}
		if err := s.ForgetShadow(); err != nil {
			return err
		}
	}
	return nil
}

// reload loads everything anew, as an open does. The caller holds follow.mu.
func (l *Log) reload(ctx context.Context) error {
	s, err := recovery.Load(ctx, l.fsys, l.recoveryParams())
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errors.Join(ErrClosed, s.Close())
	}
	old := l.set
	l.takeLoaded(s)
	l.ends.truncations++
	l.publishEnd(l.end)
	for o := range old.All() {
		_ = o.Close() // it was only read
	}
	return nil
}

// takeLoaded makes the log what a load found. The caller holds mu, or is alone.
func (l *Log) takeLoaded(s *recovery.State) {
	l.producers, l.foreign = s.Producers, s.Foreign
	if l.epochs == nil {
		l.epochs = s.Epochs
	} else {
		l.epochs.Replace(s.Epochs.Entries())
	}
	l.durable, l.checkpointed, l.snapshotOffset = s.End, s.RecoveryPoint, s.SnapshotOffset
	l.last, l.newest, l.clock, l.gaps = s.End.Last, s.NewestTimestamp, s.AppendClock, s.Gaps
	l.cleaned, l.compacted = s.Cleaned, s.Compacted
	l.txns = txnSums{all: s.Txns, checkpointed: s.RecoveryTxns}
	l.damaged.Store(nil)
	if len(s.Doubts) > 0 || s.Lost != (recovery.Lost{}) {
		l.damaged.Store(&knownDamage{doubts: s.Doubts, gone: s.Lost})
	}
	l.setSegments(s.Segments)
	l.end.offset = s.End.Offset
	l.setActive(s.Segments.Active(), s.ActiveSize, l.opts.Now())
	l.ends = ends{logStart: s.LogStart, end: l.end, recovery: s.RecoveryPoint.Offset, unstable: offsetOnly(noOffset),
		truncations: l.ends.truncations}
	if l.opts.ManualHighWatermark {
		l.ends.high = offsetOnly(s.LogStart)
		l.setUnstable()
	}
	if l.opts.ReadOnly {
		l.goneBelow.Store(0)
		if first := s.Segments.First().BaseOffset(); s.LogStart < first {
			l.goneBelow.Store(first)
		}
		l.follow.begin(l, s)
	}
}

// stillThere tells whether what was just read, since the log had the given number of truncations, was what readers were
// shown; if not, another try shows them the log as it is now. A read that failed asks with its error.
func (l *Log) stillThere(ctx context.Context, truncations int64, failed error) (bool, error) {
	f := &l.follow
	f.mu.Lock()
	defer f.mu.Unlock()
	slot, found, err := l.readSlot(ctx)
	if err != nil {
		return true, err
	}
	before := l.visible.load().logStart
	if f.isAnother(&slot, found) || failed != nil {
		if err := l.look(ctx); err != nil {
			return true, err
		}
	}
	e := l.visible.load()
	if e.truncations != truncations || e.logStart != before {
		return false, nil
	}
	if failed != nil && missing(failed) == nil && !f.us {
		// Another program tells nobody that it deletes or cuts.
		return false, l.reload(ctx)
	}
	return true, nil
}

// pause is how long a waiter leaves the writer alone.
type pause struct{ d time.Duration }

// awaitWriter looks for something new, at once the first time, and later after a pause that grows while nothing happens. It
// returns early when the log was changed by the look of another waiter.
func (l *Log) awaitWriter(ctx context.Context, changed <-chan struct{}, p *pause) error {
	if p.d == 0 {
		p.d = firstPause
	} else {
		t := time.NewTimer(p.d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-changed:
			p.d = firstPause
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		p.d = min(2*p.d, mostPause)
	}
	return l.Refresh(ctx)
}
