package recovery

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"

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
		if err := s.Sync(); err != nil {
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

// refuseOrAct carries the judgement out, or refuses because of it.
func (l *loader) refuseOrAct(j *judgement) error {
	l.end = j.end
	if l.p.ReadOnly {
		return l.actInMemory(j)
	}
	if l.report.Refused() {
		return l.refused()
	}
	if len(j.cuts) == 0 {
		return l.fillEnd()
	}
	if err := l.act(j); err != nil {
		return err
	}
	return l.fillEnd()
}

// act cuts. Nothing goes before there is a synced copy of it; the snapshots that speak of it go first, then later
// segments, the last one first, then the bytes at the end of a file, so that whatever a crash interrupts leaves a log
// that ends somewhere, with less behind it. The state file is written when all of it is done.
func (l *loader) act(j *judgement) error {
	if err := l.keepAll(j.cuts); err != nil {
		return err
	}
	if err := l.removeSnapshotsAbove(j.end.Offset); err != nil {
		return err
	}
	removed := false
	for i := len(j.cuts) - 1; i >= 0; i-- {
		if c := &j.cuts[i]; c.whole {
			if err := c.segment.Remove(); err != nil {
				return fmt.Errorf("recovery: %w", err)
			}
			l.segments = l.segments.Without(c.segment.BaseOffset())
			removed = true
		}
	}
	if removed {
		if err := l.fsys.SyncDir(l.p.Dir); err != nil {
			return fmt.Errorf("recovery: %w", err)
		}
	}
	for i := len(j.cuts) - 1; i >= 0; i-- {
		if c := &j.cuts[i]; !c.whole {
			if err := l.cutFile(c); err != nil {
				return err
			}
		}
	}
	if err := l.fsys.SyncDir(l.p.Dir); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	return nil
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

// keep copies what a cut will take away, and returns the name of the copy. Zeros are not kept where they are all there is.
func (l *loader) keep(c *cut) (name string, err error) {
	from := c.position
	if c.whole {
		from = 0
	}
	size, err := c.segment.FileSize()
	if err != nil {
		return "", fmt.Errorf("recovery: %w", err)
	}
	if c.finding < 0 {
		l.report.BytesTrimmed += size - from
		return "", nil
	}
	if name, err = keepCopy(l.fsys, l.p.Dir, c.segment, from, size); err != nil {
		return "", err
	}
	l.report.BytesCut += size - from
	if name != "" {
		l.report.CutFiles++
	}
	l.report.Findings[c.finding].Kept = name
	return name, nil
}

func (l *loader) cutFile(c *cut) error {
	f, err := c.segment.File()
	if err == nil {
		err = f.Truncate(c.position)
	}
	if err == nil {
		c.segment.SetSize(c.position)
		err = c.segment.Sync()
	}
	if err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	return nil
}

// removeSnapshotsAbove removes the snapshots of offsets that are no longer there, with their side files.
func (l *loader) removeSnapshotsAbove(offset int64) error {
	pairs, err := producerstate.ListPairs(l.fsys, l.p.Dir)
	if err != nil {
		return err
	}
	var gone []int64
	for _, p := range pairs {
		if p.Offset > offset {
			gone = append(gone, p.Offset)
			l.find(Finding{Path: filepath.Join(l.p.Dir, segment.FileName(segment.KindSnapshot, p.Offset)), Decision: RemoveStale,
				Offset: offset, End: p.Offset, Reason: "speaks of offsets that are not there any more"})
		}
	}
	return producerstate.RemovePair(l.fsys, l.p.Dir, gone...)
}

// actInMemory gives a reader the log as it would be after the cuts, as far as sizes go.
func (l *loader) actInMemory(j *judgement) error {
	for _, c := range j.cuts {
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
