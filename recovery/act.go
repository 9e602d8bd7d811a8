package recovery

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// syncBeforeTrust makes sure that what the scan will read is what a second crash would leave: the files behind the
// recovery point are synced, as is the directory, and then dropped from the page cache, which after a failed sync may
// show bytes that never reached the disk. It tells whether dropping changed which good batches there are.
func (l *loader) syncBeforeTrust(from placeInLog) (changed bool, err error) {
	compare := l.us && l.sameBoot && l.slot.Mode != SyncCommit
	var before uint64
	if compare {
		if before, err = l.digest(from); err != nil {
			return false, err
		}
	}
	for s := range l.segments.From(from.segment) {
		if err := l.syncSegment(s); err != nil {
			return false, fmt.Errorf("recovery: sync before reading: %w", err)
		}
	}
	if err := l.fsys.SyncDir(l.p.Dir); err != nil {
		return false, fmt.Errorf("recovery: sync before reading: %w", err)
	}
	// Not what lies below: that was on disk when the recovery point passed it, and a whole segment takes long to drop.
	position := from.position
	for s := range l.segments.From(from.segment) {
		if err := s.DropCache(position); err != nil {
			l.p.Logger.Debug("page cache could not be dropped", "file", s.Path(), "err", err)
		}
		position = 0
	}
	if !compare {
		return false, nil
	}
	after, err := l.digest(from)
	if err != nil || before == after || l.slot.SyncFailed {
		return before != after, err
	}
	// The difference will not be seen again: should this recovery be interrupted, the next one has to know.
	l.slot.SyncFailed = true
	slot, _ := l.file.Newest()
	slot.SyncFailed = true
	return true, l.file.Sync(slot)
}

// digest is a number for the good batches from a place on and where each segment stops having them.
func (l *loader) digest(from placeInLog) (uint64, error) {
	h := xxhash.New()
	position := from.position
	for s := range l.segments.From(from.segment) {
		c := s.ScanWith(position, segment.ToEnd, segment.ScanOptions{})
		for c.Next() {
			b := c.Batch()
			var id [40]byte
			putPosition(id[:], Position{Offset: b.NextOffset(), Last: b.Identity(s.BaseOffset(), b.Position)})
			h.Write(id[:])
		}
		if err := c.Err(); err != nil {
			return 0, fmt.Errorf("recovery: %w", err)
		}
		t := c.Tail()
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(t.Position)))
		h.Write([]byte{byte(t.Kind)})
		position = 0
	}
	return h.Sum64(), nil
}

// syncSegment syncs a log file that is open for reading only, which is not enough for a sync everywhere.
func (l *loader) syncSegment(s *segment.Segment) error {
	c := l.p.Segments
	if slices.Contains(l.swapped, s.BaseOffset()) {
		c.Suffix = segment.SuffixSwap
	}
	w := segment.Open(l.fsys, l.p.Dir, s.BaseOffset(), c)
	return errors.Join(w.Sync(), w.Close())
}

// act carries out what was decided. Nothing goes before there is a synced copy of it. What an earlier interruption has left
// comes first; the snapshots that speak of what is cut go next, then later segments, the last one first, then the bytes at
// the end of a file, so that whatever a crash interrupts leaves a log that ends somewhere, with less behind it. Then what is
// derived is made anew. The state file is written when all of it is done.
func (l *loader) act(j *judgement) error {
	l.acting = true
	if err := l.keepAll(j.cuts); err != nil {
		return err
	}
	if err := l.doLeftovers(); err != nil {
		return err
	}
	if err := producerstate.RemovePair(l.fsys, l.p.Dir, l.stale...); err != nil {
		return err
	}
	if err := l.cut(j.cuts); err != nil {
		return err
	}
	if err := l.takeOver(); err != nil {
		return err
	}
	if err := l.removeOrphans(); err != nil {
		return err
	}
	if err := l.flushEpochs(); err != nil {
		return err
	}
	if err := l.openForWriting(); err != nil {
		return err
	}
	if err := l.rebuildIndexes(); err != nil {
		return err
	}
	return l.actOnProducers()
}

// cut takes the bytes away that have been copied.
func (l *loader) cut(cuts []cut) error {
	if len(cuts) == 0 {
		return nil
	}
	removed := false
	for i := len(cuts) - 1; i >= 0; i-- {
		if c := &cuts[i]; c.whole {
			if err := l.current(c.segment).Remove(); err != nil {
				return fmt.Errorf("recovery: %w", err)
			}
			removed = true
		}
	}
	if removed {
		if err := l.fsys.SyncDir(l.p.Dir); err != nil {
			return fmt.Errorf("recovery: %w", err)
		}
	}
	for i := len(cuts) - 1; i >= 0; i-- {
		if c := &cuts[i]; !c.whole {
			if err := l.cutFile(c.segment, c.position); err != nil {
				return err
			}
		}
	}
	if err := l.fsys.SyncDir(l.p.Dir); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	return nil
}

// current is a segment under its present names, for writing. It has to be closed.
func (l *loader) current(s *segment.Segment) *segment.Segment {
	return segment.Open(l.fsys, l.p.Dir, s.BaseOffset(), l.p.Segments)
}

// keepAll copies what the cuts will take away. Where one of the copies cannot be made, for want of space say, all are
// given up: nothing has changed then.
func (l *loader) keepAll(cuts []cut) error {
	var made []string
	for i := range cuts {
		name, err := l.keep(&cuts[i])
		if name != "" {
			made = append(made, name)
		}
		if err == nil {
			continue
		}
		for _, name := range made {
			err = errors.Join(err, l.fsys.Remove(filepath.Join(l.p.Dir, name)))
		}
		return err
	}
	return nil
}

// keep copies what a cut will take away, and returns the name of the copy, empty where there is nothing to copy.
func (l *loader) keep(c *cut) (name string, err error) {
	if c.keep == 0 {
		return "", nil
	}
	if name, err = keepCopy(l.fsys, l.p.Dir, c.segment, c.position, c.position+c.keep); err != nil {
		return "", err
	}
	l.report.CutFiles++
	l.report.Findings[c.finding].Kept = name
	return name, nil
}

// cutFile cuts a log file at a position, and makes that durable.
func (l *loader) cutFile(s *segment.Segment, position int64) (err error) {
	w := l.current(s)
	defer func() { err = errors.Join(err, w.Close()) }()
	f, err := w.File()
	if err == nil {
		err = f.Truncate(position)
	}
	if err == nil {
		err = w.Sync()
	}
	if err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	s.SetSize(position)
	return nil
}

// findStaleSnapshots looks for the snapshots of offsets that the log does not reach.
func (l *loader) findStaleSnapshots() {
	for _, n := range l.names {
		of := n.Kind == segment.KindSnapshot && n.Suffix == "" || n.Kind == segment.KindProducers
		if !of || n.Offset <= l.end.Offset || slices.Contains(l.stale, n.Offset) {
			continue
		}
		l.stale = append(l.stale, n.Offset)
		l.find(Finding{Path: filepath.Join(l.p.Dir, segment.FileName(segment.KindSnapshot, n.Offset)), Decision: RemoveStale,
			Offset: l.end.Offset, End: n.Offset, Reason: "speaks of offsets that are not there any more"})
	}
}

// cutInMemory gives the log as it is after the cuts, as far as sizes go.
func (l *loader) cutInMemory(j *judgement) error {
	l.end = j.end
	for _, c := range j.cuts {
		size, err := c.segment.FileSize()
		if err != nil {
			return fmt.Errorf("recovery: %w", err)
		}
		if l.asWriter() {
			l.report.BytesCut += c.keep
			l.report.BytesTrimmed += size - c.position - c.keep
		}
		switch {
		case c.whole:
			l.segments = l.segments.Without(c.segment.BaseOffset())
		default:
			c.segment.SetSize(c.position)
		}
	}
	return l.fillEnd()
}

// fillEnd finds the last batch where the scan met none: it began at the end of the log, or in an empty segment.
func (l *loader) fillEnd() error {
	if l.end.Last.Size > 0 || l.report.Clean && l.us {
		return nil
	}
	for i := l.segments.Len() - 1; i >= 0; i-- {
		s := l.segments.At(i)
		size, err := s.Size()
		if err != nil {
			return err
		}
		if size == 0 {
			continue
		}
		pos, _, err := s.LastIndexed(size)
		if err != nil {
			return err
		}
		c := s.ScanHeaders(pos, size)
		var last segment.Header
		for c.Next() {
			last = c.Header()
		}
		if last.Size == 0 {
			continue
		}
		l.end.Last = last.Identity(s.BaseOffset())
		next := last.NextOffset()
		if l.us && !l.gaps && len(l.report.Holes) > 0 {
			next = l.slot.Durable.Offset // the header may be what is damaged
		}
		l.end.Offset = max(l.end.Offset, next)
		l.newest = max(l.newest, last.MaxTimestamp)
		return nil
	}
	return nil
}

// isDamaged tells whether an error is about bytes, not about the disk.
func isDamaged(err error) bool {
	return errors.Is(err, record.ErrCorrupt) || errors.Is(err, record.ErrTruncated)
}
