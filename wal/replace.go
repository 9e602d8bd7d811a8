package wal

import (
	"errors"
	"fmt"

	"github.com/oncelog/oncelog/segment"
)

// replace puts a compacted segment in the place of a group, unless the group is no longer what it was. The steps are Kafka's,
// each on disk before the next: as long as a file has the suffix .cleaned the old segments count, then the new one, whose
// renaming the next open completes. Appends go on; an open, a truncation and a deletion of segments find all of it or
// nothing. Kafka: LocalLog.replaceSegments.
func (c *compaction) replace(group []*segment.Segment, cleaned *segment.Segment) (done bool, err error) {
	l := c.l
	l.maintenance.Lock()
	defer l.maintenance.Unlock()
	same, err := c.sameAsBefore(group)
	if err != nil || !same {
		c.stats.Interrupted = err == nil
		return false, errors.Join(err, cleaned.Remove())
	}
	before, after, err := sizes(group, cleaned)
	if err == nil {
		err = l.announceChange(true)
	}
	if err != nil {
		return false, errors.Join(err, cleaned.Remove())
	}
	if err := l.swapIn(group, cleaned); err != nil {
		l.fail(fmt.Errorf("wal: replace segments: %w", err))
		return false, l.failure()
	}
	c.stats.BytesSaved += before - after
	c.stats.SegmentsReplaced += len(group)
	c.stats.SegmentsWritten++
	l.opts.Logger.Info("compacted", "dir", l.dir, "segment", cleaned.BaseOffset(), "segments", len(group), "before", before, "after", after)
	return true, l.announceChange(false)
}

func sizes(group []*segment.Segment, cleaned *segment.Segment) (before, after int64, err error) {
	for _, s := range group {
		size, err := s.Size()
		if err != nil {
			return 0, 0, err
		}
		before += size
	}
	after, err = cleaned.Size()
	return before, after, err
}

// sameAsBefore tells whether a group is still part of the log, and the log usable.
func (c *compaction) sameAsBefore(group []*segment.Segment) (bool, error) {
	l := c.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return false, err
	}
	for _, s := range group {
		if now, ok := l.set.Get(s.BaseOffset()); !ok || now != s {
			return false, nil
		}
	}
	return l.ends.truncations == c.cuts, nil
}

// swapIn does the steps of replace. The caller holds maintenance.
func (l *Log) swapIn(group []*segment.Segment, cleaned *segment.Segment) error {
	var earlier []discarded
	l.mu.Lock()
	for _, s := range group {
		earlier = append(earlier, l.takeDiscarded(s.BaseOffset())...)
	}
	l.mu.Unlock()
	if err := errors.Join(l.removeDiscarded(earlier), l.fsys.SyncDir(l.dir)); err != nil { // of the names of what was written, too
		return err
	}
	if err := errors.Join(cleaned.Rename(segment.SuffixSwap), l.fsys.SyncDir(l.dir)); err != nil {
		return err
	}
	for _, s := range group {
		if err := s.Rename(segment.SuffixDeleted); err != nil {
			return err
		}
	}
	if err := l.fsys.SyncDir(l.dir); err != nil {
		return err
	}
	if err := errors.Join(cleaned.Rename(""), l.fsys.SyncDir(l.dir)); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replaceTxns(group, cleaned)
	set := l.set
	for _, s := range group {
		set = set.Without(s.BaseOffset())
		d := discarded{segment: s, due: l.opts.Now().Add(l.settings().FileDeleteDelay)}
		if s.BaseOffset() != cleaned.BaseOffset() {
			// It costs reach after a truncation, never a record: what an open needs lies behind.
			if err := l.retireSnapshot(&d); err != nil {
				l.warn("producer snapshot of a compacted segment", err)
			}
		}
		l.discards = append(l.discards, d)
	}
	l.setSegments(set.With(cleaned))
	if high := l.ends.high; high.resolved() && high.segment >= group[0].BaseOffset() && high.segment <= group[len(group)-1].BaseOffset() {
		l.ends.high = l.tryResolve(high.offset)
		l.publish()
	}
	return nil
}

// announceChange raises the count of changes in the state file, before and after segments are replaced, and says which of the
// two it is: readers in other processes wait while files are renamed, hold what they have read against the count, and load the
// log anew when it has grown.
func (l *Log) announceChange(begins bool) error {
	l.mu.Lock()
	l.changes++
	l.replacing = begins
	slot := l.slot()
	l.mu.Unlock()
	return l.syncState(slot)
}
