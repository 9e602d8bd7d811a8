package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"time"

	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/recovery"
	"github.com/oncelog/oncelog/segment"
)

// drainForAppend makes everything accepted durable, for an append that needs a new segment or a new group. It gives mu
// up in between: the caller looks at the log anew. The caller holds mu.
func (l *Log) drainForAppend() error {
	l.mu.Unlock()
	l.commit.lead()
	l.mu.Lock()
	err := l.drain()
	// With mu held nothing can be added to what is drained, so that the next leader finds nothing to take.
	l.commit.follow()
	return err
}

// needsRoll tells whether the append must begin a new segment. Kafka: LogSegment.shouldRoll. The caller holds mu.
func (l *Log) needsRoll(w *write) bool {
	last := w.last
	if w.leader {
		last = l.end.offset + w.records - 1
	}
	size := l.end.position
	if size > int64(l.settings().SegmentBytes)-int64(len(w.bytes)) {
		return true
	}
	if relative := last - l.active.BaseOffset(); relative < 0 || relative > math.MaxInt32 {
		return true
	}
	return size > 0 && l.isOld(w) || l.indexFull()
}

func (l *Log) indexFull() bool {
	full, err := l.active.IndexFull()
	if err != nil {
		l.warn("index", err)
		return false
	}
	return full
}

// isOld tells whether the active segment has waited long enough. The time of a batch counts where there is one, as in
// Kafka, so that a segment holds about one SegmentAge of message time; on the simple floor it is the append clock, so
// that records with old or future times cannot roll a segment each.
func (l *Log) isOld(w *write) bool {
	limit := l.settings().segmentAge()
	if limit == Never {
		return false
	}
	limit -= l.jitter
	if first := l.firstTimestamp(); first >= 0 && !w.byClock {
		return w.maxTimestamp-first > limit.Milliseconds()
	}
	return w.now.UnixMilli()-l.activeSince.UnixMilli() > limit.Milliseconds()
}

// firstTimestamp is the greatest timestamp of the first batch of the active segment, or record.NoTimestamp. The caller
// holds mu.
func (l *Log) firstTimestamp() int64 {
	ts, err := l.active.FirstTimestamp()
	if err != nil {
		l.warn("timestamp of the first batch", err)
		return record.NoTimestamp
	}
	return ts
}

// makeRoom rolls if the append needs it. The caller holds mu and in SyncCommit has drained.
func (l *Log) makeRoom(w *write) error {
	if err := l.syncUndone(); err != nil {
		return err
	}
	if !l.needsRoll(w) {
		return nil
	}
	return l.roll(w.rollTo, w.now)
}

// Roll begins a new segment at the log end, unless the active one is empty. Kafka: UnifiedLog.roll.
func (l *Log) Roll() error {
	if err := l.writable(); err != nil {
		return err
	}
	defer l.runJobs()
	return l.exclusively(func() error {
		if err := l.usable(); err != nil {
			return err // Close has begun, and counts on the segments that there are
		}
		return l.roll(l.end.offset, l.opts.Now())
	})
}

// roll ends the active segment and begins a new one at the log end, or at expected where that lies above. The caller
// holds mu, and nothing is pending.
//
// The old segment is cut to its exact size before the first byte enters the new one: a broker takes a zero tail in a
// segment that is not the last one for damage, and deletes everything behind it. In SyncCommit that cut, and every
// byte, is on disk then; in the other modes it is before the durable end enters the new segment, by the job that is
// left behind here.
func (l *Log) roll(expected int64, now time.Time) error {
	base := max(expected, l.end.offset)
	old := l.active
	if base == old.BaseOffset() && l.end.position == 0 {
		if l.opts.Compat {
			return l.replaceEmpty(now)
		}
		return nil
	}
	if base < old.BaseOffset() {
		return fmt.Errorf("%w: the next segment would begin at %d, below the active one at %d", ErrOffsetOutOfRange, base, old.BaseOffset())
	}
	next, err := l.createSegment(base)
	if err != nil {
		return l.notCreated(base, err)
	}
	seal := old.TrimLog
	if l.opts.Sync == SyncCommit {
		seal = old.Seal
	}
	if err := seal(); errors.Is(err, segment.ErrIndex) {
		l.warn("index of a rolled segment", err)
	} else if err != nil {
		l.fail(fmt.Errorf("wal: roll: %w", errors.Join(err, next.Close())))
		return l.failure()
	}
	before := l.lastPosition()
	l.setActive(next, 0, now)
	if !l.opts.Compat {
		// No offset below is left to give, should the append that made the gap fail: a segment must not begin inside another.
		l.end.offset = base
	}
	l.setSegments(l.set.With(next))
	l.producers.UpdateMapEndOffset(base)
	l.jobs = append(l.jobs, l.afterRoll(old, base, before))
	if l.opts.Sync != SyncCommit {
		l.publishEnd(l.end)
	} else {
		l.movePublishedEnd()
	}
	l.opts.Logger.Info("rolled", "dir", l.dir, "segment", base, "offset", l.end.offset)
	return nil
}

// replaceEmpty is a roll of an active segment without batches: Kafka begins the same segment again, with fresh indexes.
// The caller holds mu, and nothing is pending. Kafka: LocalLog.roll.
func (l *Log) replaceEmpty(now time.Time) error {
	old := l.active
	base := old.BaseOffset()
	if err := old.Remove(); err != nil {
		l.fail(fmt.Errorf("wal: roll: %w", err))
		return l.failure()
	}
	next, err := l.createSegment(base)
	if err != nil {
		l.fail(fmt.Errorf("wal: roll: %w", err))
		return l.failure()
	}
	l.setActive(next, 0, now)
	l.setSegments(l.set.With(next))
	l.producers.UpdateMapEndOffset(base)
	l.jobs = append(l.jobs, l.afterRoll(nil, base, l.lastPosition()))
	l.publishEnd(l.end)
	return nil
}

// notCreated is the end of a roll that could not begin a segment: the disk is full, say, or the process has no file
// descriptor left. If its files are gone again, for good, nothing has changed and the next append tries once more. The
// caller holds mu.
func (l *Log) notCreated(base int64, err error) error {
	err = fmt.Errorf("wal: roll: %w", err)
	if l.failure() == nil {
		left := l.noneLeft(base)
		if left == nil {
			return err
		}
		err = errors.Join(err, left)
	}
	l.fail(err)
	return l.failure()
}

// syncUndone makes the undoing of a roll durable where that could not be done at once. The caller holds mu.
func (l *Log) syncUndone() error {
	if !l.undone {
		return nil
	}
	err := l.fsys.SyncDir(l.dir)
	switch {
	case err == nil:
		l.undone = false
	case outOfFiles(err):
		return fmt.Errorf("wal: append: %w", err)
	default:
		l.fail(fmt.Errorf("wal: append: %w", err))
		return l.failure()
	}
	return nil
}

// outOfFiles tells whether an error says that a file could not be opened for want of a descriptor. Then nothing was done.
func outOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// noneLeft makes sure that no file of a segment is there. Index files alone would be overwritten, but a broker that finds
// them takes them for those of a log file that was lost.
func (l *Log) noneLeft(base int64) error {
	for _, kind := range [...]segment.Kind{segment.KindLog, segment.KindOffsetIndex, segment.KindTimeIndex, segment.KindTxnIndex} {
		path := filepath.Join(l.dir, segment.FileName(kind, base))
		if _, err := l.fsys.Stat(path); err == nil {
			return &fs.PathError{Op: "roll", Path: path, Err: fs.ErrExist}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	err := l.fsys.SyncDir(l.dir)
	if outOfFiles(err) {
		l.undone, err = true, nil // before the next append
	}
	return err
}

// createSegment makes the files of a segment and their names durable. Index files that an earlier life of the same base
// offset left behind are removed first: they are derived. A directory that cannot be synced ends the log.
func (l *Log) createSegment(base int64) (*segment.Segment, error) {
	c := l.segmentConfig()
	fsys := &dirSyncs{FS: l.fsys}
	next, err := segment.Create(fsys, l.dir, base, c)
	if errors.Is(err, fs.ErrExist) {
		if err := segment.RemoveIndexes(l.fsys, l.dir, base); err != nil {
			return nil, err
		}
		next, err = segment.Create(fsys, l.dir, base, c)
	}
	if err == nil {
		if err = fsys.SyncDir(l.dir); err != nil {
			err = errors.Join(err, next.Close())
		}
	}
	if err != nil && fsys.failed {
		l.fail(fmt.Errorf("wal: roll: %w", err))
		return nil, l.failure()
	}
	if err != nil {
		return nil, err
	}
	return next, nil
}

// setActive makes s the segment that is written to, size bytes of which are batches. The caller holds mu.
func (l *Log) setActive(s *segment.Segment, size int64, now time.Time) {
	l.active = s
	l.activeSince = now
	l.reserved = size
	l.reserveStep = 0
	l.end.segment, l.end.position = s.BaseOffset(), size
	l.jitter = 0
	if o := l.settings(); o.SegmentJitter > 0 {
		n := min(int64(o.SegmentJitter), int64(o.SegmentAge))
		l.jitter = time.Duration(rand.Int64N(n))
	}
}

// setSegments shows readers another set of segments. The caller holds mu.
func (l *Log) setSegments(set segment.Set) {
	l.set = set
	sums := make([]recovery.SegmentSum, 1, set.Len()+1)
	for s := range set.All() {
		sums = append(sums, sums[len(sums)-1].Add(s.BaseOffset()))
	}
	l.sums = sums
	l.segments.Store(&set)
}

const (
	firstReserve = 1 << 20
	mostReserve  = 64 << 20
)

// reserve takes space for n more bytes behind the log end, in growing steps, so that a full disk shows before anything
// was written. Not for more than a segment: what lies behind the end when it rolls has to be cut off again. The caller
// holds mu.
func (l *Log) reserve(n int) error {
	need := l.end.position + int64(n)
	if need <= l.reserved || l.opts.Compat {
		return nil
	}
	f, err := l.active.File()
	if err != nil {
		return fmt.Errorf("wal: append: %w", err)
	}
	step := min(max(firstReserve, 2*l.reserveStep), mostReserve)
	for {
		size := max(need, min(l.reserved+step, int64(l.settings().SegmentBytes)))
		err := f.Allocate(size)
		if err == nil {
			l.reserved, l.reserveStep = size, step
			return nil
		}
		if size == need {
			return fmt.Errorf("wal: append: reserve %d bytes in %s: %w", n, l.active.Path(), err)
		}
		step /= 4
	}
}
