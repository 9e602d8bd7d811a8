package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/oncelog/oncelog/segment"
)

// discarded is a segment that is no longer part of the log, whose files wait under the suffix .deleted.
type discarded struct {
	segment  *segment.Segment
	snapshot string // path of its snapshot, empty if it had none
	due      time.Time
}

// discard renames the files of a segment that has been taken out of the set, and of its snapshot, to .deleted. They are
// removed when Options.FileDeleteDelay is over, or by the next open. The caller holds mu. Kafka:
// LocalLog.deleteSegmentFiles, ProducerStateManager.removeAndMarkSnapshotForDeletion.
func (l *Log) discard(s *segment.Segment) error {
	if err := l.removeDiscarded(l.takeDiscarded(s.BaseOffset())); err != nil {
		return err
	}
	if err := s.Rename(segment.SuffixDeleted); err != nil {
		return err
	}
	d := discarded{segment: s, due: l.opts.Now().Add(l.settings().FileDeleteDelay)}
	if err := l.retireSnapshot(&d); err != nil {
		return err
	}
	l.discards = append(l.discards, d)
	return nil
}

// retireSnapshot lets the snapshot at the base of a segment that is gone wait with it. The caller holds mu.
func (l *Log) retireSnapshot(d *discarded) error {
	name, err := l.producers.RetireSnapshot(d.segment.BaseOffset())
	if name != "" {
		d.snapshot = filepath.Join(l.dir, name)
	}
	return err
}

// takeDiscarded takes out the discarded segments with a base offset, which another one of the same name is to follow: whoever
// reads them must not find that one's files. The caller holds mu.
func (l *Log) takeDiscarded(base int64) (list []discarded) {
	rest := l.discards[:0]
	for _, d := range l.discards {
		if d.segment.BaseOffset() == base {
			list = append(list, d)
		} else {
			rest = append(rest, d)
		}
	}
	l.discards = rest
	return list
}

// removeDiscarded removes the files of discarded segments.
func (l *Log) removeDiscarded(list []discarded) error {
	var errs []error
	for _, d := range list {
		errs = append(errs, d.segment.Remove())
		if d.snapshot == "" {
			continue
		}
		if err := l.fsys.Remove(d.snapshot); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("wal: remove a deleted snapshot: %w", err))
		}
	}
	return errors.Join(errs...)
}

// RemoveDiscarded removes the files of deleted and truncated segments whose delay is over at now, and returns how many
// segments that were. A reader that holds one reads on. An embedding program calls it now and then; what it does not get
// to, the next open does.
func (l *Log) RemoveDiscarded(now time.Time) (int, error) {
	if err := l.writable(); err != nil {
		return 0, err
	}
	l.mu.Lock()
	var due []discarded
	rest := l.discards[:0]
	for _, d := range l.discards {
		if d.due.After(now) {
			rest = append(rest, d)
		} else {
			due = append(due, d)
		}
	}
	l.discards = rest
	l.mu.Unlock()
	return len(due), l.removeDiscarded(due)
}
