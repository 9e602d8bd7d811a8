package wal

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/oncelog/oncelog/internal/cleaner"
	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/recovery"
	"github.com/oncelog/oncelog/segment"
)

// CompactionStats tells what a Compact did. Bytes are those of batches.
type CompactionStats struct {
	FirstDirty int64 // where it began: everything below had been compacted before
	NextDirty  int64 // where the next one will begin
	CleanBytes int64 // of the segments below FirstDirty
	DirtyBytes int64 // of those from there on that could be compacted
	Passes     int   // 0: there was nothing to do, or not enough yet

	SegmentsReplaced int   // that are gone
	SegmentsWritten  int   // that took their place
	BytesRead        int64 // for the keys, and to be written anew
	BytesWritten     int64
	BytesSaved       int64 // by which the segments that are gone were larger than what took their place
	RecordsRead      int64
	RecordsKept      int64
	Keys             int64 // most that were in memory
	KeyBytes         int64 // most memory that they took

	// Interrupted tells that segments were deleted or cut meanwhile: what was not done is left to the next call.
	Interrupted bool
}

// Compact removes records of a compacted log (CleanupCompact) that a later one with the same key has replaced, those of
// aborted transactions, and deletions and transaction markers that have been readable for Options.DeleteRetention. Offsets
// stay as they are, so that there are gaps between those that are left. What it leaves alone: the active segment, whatever
// lies behind the last stable offset or is younger than Options.MinCompactionLag, and the segment that holds the last batch
// of the log. It does nothing unless more than Options.MinDirtyRatio of what it would look at has not been compacted yet,
// or there are records older than Options.MaxCompactionLag.
//
// A program calls it now and then, for instance every fifteen seconds as a broker does (log.cleaner.backoff.ms). Appends and
// reads go on meanwhile; only one Compact of a log runs at a time. It takes memory for the keys, at most
// Options.DedupeBufferBytes, and goes through the log several times where they do not fit; and up to 16 bytes for each
// known producer. The disk needs room for one more segment. Segments that have been replaced stay as .deleted files for
// Options.FileDeleteDelay (RemoveDiscarded).
//
// An error leaves a log that is whole: the segments before the one that it is about may have been compacted, that one has not
// been touched. Damage is a *segment.CorruptError. ErrFailed comes from the files of the log itself, ctx.Err() and ErrClosed
// are what they say. Kafka: LogCleaner, Cleaner.
func (l *Log) Compact(ctx context.Context, now time.Time) (s CompactionStats, err error) {
	if err := l.writable(); err != nil {
		return s, err
	}
	o := l.settings()
	if o.CleanupPolicy&CleanupCompact == 0 {
		return s, fmt.Errorf("%w: compact: the log is not a compacted one (Options.CleanupPolicy)", ErrInvalidArgument)
	}
	l.compacting.Lock()
	defer l.compacting.Unlock()
	c := compaction{l: l, o: o, now: now, stats: &s}
	c.stop = func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return l.writable()
	}
	for more := true; more && err == nil; {
		if err = c.stop(); err == nil {
			more, err = c.pass()
		}
	}
	if err != nil {
		err = fmt.Errorf("wal: compact: %w", err)
	}
	return s, err
}

// compaction is one call of Compact.
type compaction struct {
	l     *Log
	o     *Options // as they were when it began
	now   time.Time
	stop  func() error
	stats *CompactionStats
	cuts  int64 // truncations before the pass
}

// pass compacts up to the bound, or as far as the keys fit into memory: then there is more to do.
func (c *compaction) pass() (more bool, err error) {
	r, due, err := c.round()
	if err != nil || !due {
		return false, err
	}
	l := c.l
	if r.End, err = c.announce(r.End); err != nil || r.End <= r.FirstDirty {
		return false, err
	}
	defer holdSegments(r.Set)()
	w := cleaner.New(cleaner.Options{
		FS: l.fsys, Dir: l.dir, Segment: l.segmentConfig(), Limits: c.o.limits(), SegmentBytes: int64(c.o.SegmentBytes),
		MaxIndexBytes: int64(c.o.MaxIndexBytes), MapBytes: c.o.DedupeBufferBytes, DeleteRetention: c.o.DeleteRetention, Stop: c.stop,
	}, r)
	c.stats.Passes++
	defer func() { c.count(w.Stats()) }()
	next, err := w.Index()
	if err != nil {
		return false, err
	}
	groups, err := w.Groups()
	if err != nil {
		return false, err
	}
	for _, g := range groups {
		cleaned, err := w.Clean(g)
		if err != nil {
			return false, err
		}
		if cleaned == nil {
			continue
		}
		if done, err := c.replace(g, cleaned); err != nil || !done {
			return false, err
		}
	}
	if err := c.cleanedUpTo(next); err != nil {
		return false, err
	}
	return next < r.End && !c.stats.Interrupted, nil
}

// count adds the numbers of a pass.
func (c *compaction) count(w cleaner.Stats) {
	s := c.stats
	s.BytesRead += w.IndexedBytes + w.BytesRead
	s.BytesWritten += w.BytesWritten
	s.RecordsRead += w.RecordsRead
	s.RecordsKept += w.RecordsKept
	s.Keys, s.KeyBytes = max(s.Keys, w.Keys), max(s.KeyBytes, w.MapBytes)
}

// holdSegments keeps the files of segments open, whatever becomes of them.
func holdSegments(set segment.Set) (release func()) {
	var held []*segment.Segment
	for s := range set.All() {
		if s.Acquire() {
			held = append(held, s)
		}
	}
	return func() {
		for _, s := range held {
			s.Release()
		}
	}
}

// round looks at the log and tells whether there is enough to compact. Kafka: LogCleanerManager.grabFilthiestCompactedLog.
func (c *compaction) round() (r cleaner.Round, due bool, err error) {
	l := c.l
	l.maintenance.Lock()
	if l.opts.Compat {
		l.finishRolls()
	} else if err := l.flush(); err != nil {
		// Else a power cut could take back the marker that decides about a transaction after what it decides was done.
		l.maintenance.Unlock()
		return r, false, err
	}
	l.mu.Lock()
	r = cleaner.Round{Set: l.set, FirstDirty: l.firstDirty(), HighWatermark: l.ends.high.offset, Now: c.now}
	c.cuts = l.ends.truncations
	stable, active := l.ends.lastStable().offset, l.active.BaseOffset()
	if rolled := l.jobs; len(rolled) > 0 && rolled[0].old != nil {
		active = min(active, rolled[0].old.BaseOffset()) // not on disk yet
	}
	frozen, end := l.producers.Freeze(), l.ends.end
	l.mu.Unlock()
	l.maintenance.Unlock()

	bound := min(stable, active)
	if bound, err = c.youngerThanLag(r, bound); err != nil {
		return r, false, err
	}
	s, ok := r.Set.Floor(max(bound, r.FirstDirty))
	if !ok {
		s = r.Set.First()
	}
	r.End = s.BaseOffset()
	if c.stats.Passes == 0 {
		c.stats.FirstDirty, c.stats.NextDirty = r.FirstDirty, r.FirstDirty
	}
	if r.End <= r.FirstDirty {
		return r, false, nil
	}
	if c.stats.Passes == 0 {
		if due, err = c.isDue(r); err != nil || !due {
			return r, false, err
		}
	}
	r.Producers, err = l.neededBy(frozen, r.Set, end)
	return r, err == nil, err
}

// firstDirty is the offset up to which the log has been compacted. It is in Kafka's checkpoint where the log directory has
// one, else in our state file. The caller holds mu. Kafka: LogCleanerManager.cleanableOffsets.
func (l *Log) firstDirty() int64 {
	at := l.cleaned
	if l.foreign.HasFile[recovery.Cleaner] {
		at = max(0, l.foreign.Offsets[recovery.Cleaner])
	}
	start := max(l.ends.logStart, l.set.First().BaseOffset())
	if at < start || at > l.end.offset {
		return start
	}
	return at
}

// youngerThanLag lowers the bound to the first dirty segment with records that Options.MinCompactionLag keeps.
func (c *compaction) youngerThanLag(r cleaner.Round, bound int64) (int64, error) {
	lag := c.o.MinCompactionLag
	if lag == 0 {
		return bound, nil
	}
	for s := range r.Set.From(r.FirstDirty) {
		if s.BaseOffset() >= bound {
			break
		}
		newest, err := s.LargestTimestamp()
		if err != nil {
			return 0, err
		}
		if newest > c.now.Add(-lag).UnixMilli() {
			return s.BaseOffset(), nil
		}
	}
	return bound, nil
}

// isDue tells whether enough is dirty, or old enough. Kafka: LogToClean, LogCleanerManager.maxCompactionDelay.
func (c *compaction) isDue(r cleaner.Round) (bool, error) {
	late := false
	for s := range r.Set.All() {
		if s.BaseOffset() >= r.End {
			break
		}
		size, err := s.Size()
		if err != nil {
			return false, err
		}
		next, ok := r.Set.Higher(s.BaseOffset())
		dirty := !ok || next.BaseOffset() > r.FirstDirty
		if s.BaseOffset() < r.FirstDirty {
			c.stats.CleanBytes += size
		}
		if !dirty {
			continue
		}
		c.stats.DirtyBytes += size
		if lag := c.o.MaxCompactionLag; lag != Never {
			first, err := s.FirstTimestamp()
			if err != nil {
				return false, err
			}
			late = late || first > 0 && first < c.now.Add(-lag).UnixMilli()
		}
	}
	total := float64(c.stats.CleanBytes + c.stats.DirtyBytes)
	return c.stats.DirtyBytes > 0 && (late || float64(c.stats.DirtyBytes) > c.o.MinDirtyRatio*total), nil
}

// neededBy collects what the producers need: their last batches, and of named ones the records that may carry a position, that
// of the last batch and in a name with transactions that of the last committed one. Everything below end is on disk.
func (l *Log) neededBy(frozen *producerstate.Frozen, set segment.Set, end place) (cleaner.Producers, error) {
	p := cleaner.Producers{Markers: map[int64]int16{}}
	var transactional []int64
	for e := range frozen.Entries() {
		last, ok := e.LastBatch()
		if !ok {
			p.Markers[e.ProducerID] = e.ProducerEpoch
			continue
		}
		p.Last = append(p.Last, last.LastOffset)
		if e.ProducerID < producerstate.MinNamedProducerID || l.opts.Compat {
			continue
		}
		p.Whole = append(p.Whole, last.LastOffset)
		if e.CoordinatorEpoch >= 0 || e.CurrentTxnFirstOffset >= 0 {
			transactional = append(transactional, e.ProducerID)
		}
	}
	committed, err := lastCommittedOf(set, end, end.offset, transactional)
	p.Whole = append(p.Whole, committed...)
	slices.Sort(p.Last)
	slices.Sort(p.Whole)
	return p, err
}

// announce makes the log ready to have its segments below end replaced, and returns the bound that that can be done to. What
// the state file says of batches below may not be true any more then: so nothing that it names may lie there, which takes a
// checkpoint; offsets may jump; and the batches that side files name are not looked for. Both synced slots say so before
// anything is replaced.
func (c *compaction) announce(end int64) (int64, error) {
	l := c.l
	if l.opts.Compat {
		l.mu.Lock()
		defer l.mu.Unlock()
		c.showGaps()
		return end, nil
	}
	l.maintenance.Lock()
	defer l.maintenance.Unlock()
	l.mu.Lock()
	bound, best := l.namedInState(), end
	if l.last.Size > 0 {
		best = min(best, l.last.SegmentBase)
	}
	l.mu.Unlock()
	if bound < best {
		if err := l.checkpoint(); err != nil {
			return 0, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return 0, err
	}
	end = min(end, l.namedInState())
	if s, ok := l.set.Floor(end); ok {
		end = s.BaseOffset()
	}
	if l.ends.truncations != c.cuts {
		c.stats.Interrupted = true
		return 0, nil
	}
	if end <= l.compacted && l.gaps {
		c.showGaps()
		return end, nil
	}
	before, gaps := l.compacted, l.gaps
	l.compacted, l.gaps = max(l.compacted, end), true
	for range 2 {
		if err := l.syncState(l.slot()); err != nil {
			l.compacted, l.gaps = before, gaps
			return 0, err
		}
	}
	c.showGaps()
	return end, nil
}

// showGaps lets readers know that offsets may jump. Those that began before look again where that is what they stumble over.
// The caller holds mu.
func (c *compaction) showGaps() {
	l := c.l
	l.gaps = true
	if l.ends.gaps {
		return
	}
	l.ends.truncations++
	c.cuts++
	l.publish()
}

// namedInState is the lowest base offset of a segment with a batch that the state file names, or will name next. The caller
// holds mu.
func (l *Log) namedInState() int64 {
	bound := l.active.BaseOffset()
	for _, p := range [...]position{l.durable, l.checkpointed, l.lastPosition()} {
		if p.Last.Size > 0 {
			bound = min(bound, p.Last.SegmentBase)
		}
	}
	return bound
}

// cleanedUpTo notes how far the log has been compacted. Should that be lost, the next call does work twice.
func (c *compaction) cleanedUpTo(next int64) error {
	l := c.l
	l.maintenance.Lock()
	defer l.maintenance.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if l.ends.truncations != c.cuts {
		c.stats.Interrupted = true
		return nil
	}
	c.stats.NextDirty = next
	l.cleaned = next
	if l.foreign.HasFile[recovery.Cleaner] {
		if err := l.setParentOffset(recovery.Cleaner, next); err != nil {
			l.warn("cleaner checkpoint", err)
		}
	}
	if err := l.syncState(l.slot()); err != nil {
		l.warn("state file", err)
	}
	return nil
}

// lowerCleaned follows a truncation: what comes to lie behind its end has not been compacted. The caller is alone.
func (l *Log) lowerCleaned(end place) error {
	l.cleaned, l.compacted = min(l.cleaned, end.segment), min(l.compacted, end.offset)
	if l.foreign.Offsets[recovery.Cleaner] <= end.segment {
		return nil
	}
	return l.setParentOffset(recovery.Cleaner, end.segment)
}
