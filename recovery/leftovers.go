package recovery

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/oncelog/oncelog/segment"
)

// leftovers finishes or undoes what was interrupted before: deletions, and replacements of segments by compacted or split
// ones. Kafka: LogLoader.load, removeTempFilesAndCollectSwapFiles.
//
// A replacement writes its files as .cleaned, renames them to .swap, highest base offset first, and then to their names.
// As long as a .cleaned file is there the renames to .swap were not complete, and the old segments still count; once
// none is, the new ones do.
//
// Only what is to be done is found out here, and the names are those that there are then.
func (l *loader) leftovers() error {
	l.deleted = map[int64]bool{}
	cleaned, found := int64(math.MaxInt64), false
	for _, n := range l.names {
		if n.HasSuffix(segment.SuffixCleaned) {
			cleaned, found = min(cleaned, n.Offset), true
		}
	}
	var kept, logs []segment.Name
	for _, n := range l.names {
		reason := ""
		switch {
		case n.HasSuffix(segment.SuffixDeleted) && n.Kind != segment.KindMetadataSnapshot:
			reason = "was about to be deleted"
		case n.HasSuffix(segment.SuffixCleaned):
			reason = "belongs to a replacement that had not got far enough to count"
		case n.HasSuffix(segment.SuffixSwap) && found && n.Offset >= cleaned:
			reason = "belongs to a replacement that had not got far enough to count"
		case n.Suffix == segment.SuffixTemp && n.Kind != segment.KindUnknown:
			reason = "was being written"
		}
		if reason == "" {
			kept = append(kept, n)
			continue
		}
		if n.HasSuffix(segment.SuffixDeleted) {
			l.deleted[n.Offset] = true
		}
		path := n.Path(l.p.Dir)
		l.find(Finding{Path: path, Decision: RemoveStale, Reason: reason})
		if n.Kind == segment.KindLog && n.Suffix == segment.SuffixDeleted {
			logs = append(logs, n)
			continue
		}
		l.later(func() error { return l.remove(path) })
	}
	l.names = kept
	l.removeDeletedLogs(logs)
	return l.completeSwap()
}

// removeDeletedLogs removes the log files of segments that were being deleted. Indexes of theirs that still have their plain
// names go first, and for good: that there is no log file for them is explained by the one with the suffix alone.
func (l *loader) removeDeletedLogs(logs []segment.Name) {
	orphans := false
	for _, n := range logs {
		plain := segment.Name{Kind: segment.KindLog, Offset: n.Offset}
		swap := plain
		swap.Suffix = segment.SuffixSwap
		if slices.Contains(l.names, plain) || slices.Contains(l.names, swap) {
			continue
		}
		l.names = slices.DeleteFunc(l.names, func(index segment.Name) bool {
			if index.Offset != n.Offset || index.Suffix != "" || !isIndex(index.Kind) {
				return false
			}
			orphans = true
			path := index.Path(l.p.Dir)
			l.find(Finding{Path: path, Decision: RemoveStale, Reason: "belongs to a segment that was about to be deleted"})
			l.later(func() error { return l.remove(path) })
			return true
		})
	}
	if orphans {
		l.later(l.syncDir)
	}
	for _, n := range logs {
		l.later(func() error { return l.remove(n.Path(l.p.Dir)) })
	}
}

func (l *loader) syncDir() error {
	if err := l.fsys.SyncDir(l.p.Dir); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	return nil
}

// later notes a change that is made when it is clear that the log is opened.
func (l *loader) later(f func() error) { l.todo = append(l.todo, f) }

// doLeftovers makes the changes that were put off.
func (l *loader) doLeftovers() error {
	for _, f := range l.todo {
		if err := f(); err != nil {
			return err
		}
	}
	l.todo, l.swapped, l.leaving = nil, nil, nil
	return nil
}

// completeSwap finishes the renames of a replacement that counts, and removes what it replaces.
func (l *loader) completeSwap() error {
	from, to := int64(math.MaxInt64), int64(0)
	for _, n := range l.names {
		if n.Suffix != segment.SuffixSwap {
			continue
		}
		l.find(Finding{Path: n.Path(l.p.Dir), Decision: CompleteSwap, Reason: "belongs to a replacement that was not finished"})
		if n.Kind != segment.KindLog {
			continue
		}
		end, err := l.swapEnd(n)
		if err != nil {
			return err
		}
		// The files of the same base offset go also where nothing is left of their records: an old transaction index would
		// speak of markers that are gone.
		from, to = min(from, n.Offset), max(to, end, n.Offset+1)
	}
	if !slices.ContainsFunc(l.names, func(n segment.Name) bool { return n.Suffix == segment.SuffixSwap }) {
		return nil
	}
	l.removeReplaced(from, to)
	// Each step is on disk before the next begins. While a .log.swap is there the old files still have to go, and with the
	// log files renamed last nothing of the new segment is without its log.
	l.noteLostIndexes()
	for _, logs := range [...]bool{false, true} {
		l.later(l.syncDir)
		l.renameSwapped(logs)
	}
	l.later(l.syncDir)
	return nil
}

// noteLostIndexes notes the segments of a replacement that come without an index: its files had their names already, and are
// removed as those of the old one. Once the log has its name nothing else tells that.
func (l *loader) noteLostIndexes() {
	for _, log := range l.names {
		if log.Suffix != segment.SuffixSwap || log.Kind != segment.KindLog {
			continue
		}
		for _, kind := range [...]segment.Kind{segment.KindOffsetIndex, segment.KindTimeIndex} {
			index := log
			index.Kind = kind
			if !slices.Contains(l.names, index) {
				l.later(func() error { return l.noteRebuild(log.Offset) })
			}
		}
	}
}

// renameSwapped gives the log files, or all others, of a replacement their names.
func (l *loader) renameSwapped(logs bool) {
	for i, n := range l.names {
		if n.Suffix != segment.SuffixSwap || (n.Kind == segment.KindLog) != logs {
			continue
		}
		plain := n
		plain.Suffix = ""
		l.later(func() error {
			if err := l.fsys.Rename(n.Path(l.p.Dir), plain.Path(l.p.Dir)); err != nil {
				return fmt.Errorf("recovery: %w", err)
			}
			return nil
		})
		l.names[i] = plain
		if logs {
			l.swapped = append(l.swapped, n.Offset)
		}
	}
}

// swapEnd verifies a segment that is about to replace others, and returns the offset where it ends.
func (l *loader) swapEnd(n segment.Name) (int64, error) {
	if l.p.Compat && !l.p.ReadOnly {
		return l.kafkaSwapEnd(n)
	}
	c := l.p.Segments
	c.Suffix, c.ReadOnly = n.Suffix, true
	s := segment.Open(l.fsys, l.p.Dir, n.Offset, c)
	defer s.Close()
	w := s.Scan(0)
	end := n.Offset
	for w.Next() {
		end = w.Batch().NextOffset()
	}
	if err := w.Err(); err != nil {
		return 0, fmt.Errorf("recovery: %w", err)
	}
	if t := w.Tail(); t.Kind != segment.CleanEnd && !l.p.Compat {
		err := l.refuse(Finding{Path: s.Path(), Problem: true, Position: t.Position, Bytes: -1, Offset: end, End: -1,
			Reason: fmt.Sprintf("is to replace other segments, which would be deleted, and is damaged itself (%v)", t.Reason), Err: t.Reason})
		if err != nil {
			return 0, err
		}
	}
	return end, nil
}

// removeReplaced removes the files of the segments that a replacement covers. Its own are those with the suffix.
func (l *loader) removeReplaced(from, to int64) {
	var kept []segment.Name
	for _, n := range l.names {
		numeric := n.Kind == segment.KindLog || isIndex(n.Kind) || n.Kind == segment.KindSnapshot
		if n.Suffix == segment.SuffixSwap || !numeric || n.Offset < from || n.Offset >= to {
			kept = append(kept, n)
			continue
		}
		l.mayBeNew(n)
		path := n.Path(l.p.Dir)
		l.find(Finding{Path: path, Decision: RemoveStale, Reason: "has been replaced"})
		l.later(func() error { return l.remove(path) })
		if n.Kind == segment.KindSnapshot && !l.p.Compat {
			l.leaving = append(l.leaving, n.Offset)
			side := segment.Name{Kind: segment.KindProducers, Offset: n.Offset}
			l.later(func() error { return l.removeIfThere(filepath.Join(l.p.Dir, side.String())) })
		}
	}
	l.names = kept
}

// mayBeNew notes a transaction index that is removed with the old files, and may be the new one, renamed when the
// replacement was interrupted. It is made anew from the log; that the others are missing is noticed later.
func (l *loader) mayBeNew(n segment.Name) {
	if n.Kind != segment.KindTxnIndex || n.Suffix != "" {
		return
	}
	swap := n
	swap.Suffix = segment.SuffixSwap
	log := swap
	log.Kind = segment.KindLog
	if slices.Contains(l.names, swap) || !slices.Contains(l.names, log) {
		return
	}
	if l.replaced == nil {
		l.replaced = map[int64]bool{}
	}
	l.replaced[n.Offset] = true
	l.later(func() error { return l.noteRebuild(n.Offset) })
}

func (l *loader) removeIfThere(path string) error {
	if _, err := l.fsys.Stat(path); err != nil {
		return nil
	}
	return l.remove(path)
}
