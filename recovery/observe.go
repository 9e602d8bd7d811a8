package recovery

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/segment"
)

// observe reads what is there, without judging it. The state file is first: beside a writer everything else is then as far
// as it says, or further.
func (l *loader) observe() error {
	slot, us, err := l.observeWriter()
	for range 2 {
		if err != nil || us || !l.p.ReadOnly {
			break
		}
		// A writer that changes the leader epochs may have done so between the two looks.
		if err = l.file.Close(); err == nil {
			slot, us, err = l.observeWriter()
		}
	}
	if err == nil {
		err = l.list()
	}
	if err != nil {
		return err
	}
	if us {
		l.us, l.slot, l.compacted = true, slot, slot.Compacted
		l.sameBoot = slot.IsOfBoot(l.p.BootID)
		l.report.Mode, l.report.SameBoot, l.report.Durable = slot.Mode, l.sameBoot, slot.Durable.Offset
		l.newest = slot.NewestTimestamp
	} else {
		l.report.Writer = Another
	}
	// What another program has left may have gaps, and goes on to have them when we write behind it.
	l.gaps = slot.Gaps && l.us || !l.us && slices.ContainsFunc(l.names, func(n segment.Name) bool { return n.Kind == segment.KindLog })
	return nil
}

// list reads the directory. What bears the name of a log file and is none would make a reader hang or a broker fail.
func (l *loader) list() error {
	entries, err := l.fsys.ReadDir(l.p.Dir)
	if err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	l.entries = entries
	l.names, l.noFile, l.report.CutFiles = l.names[:0], map[segment.Name]bool{}, 0
	for _, e := range entries {
		n := segment.Parse(e.Name)
		if n.Kind == segment.KindCut {
			l.report.CutFiles++
		}
		switch {
		case n.Kind == segment.KindUnknown:
		case n.Kind == segment.KindUnfinished:
			if !l.p.dryRun {
				return fmt.Errorf("%w: a backup into %s was interrupted; do it again", ErrUnfinishedBackup, l.p.Dir)
			}
			l.find(Finding{Path: filepath.Join(l.p.Dir, e.Name), Decision: Refuse, Problem: true,
				Reason: "a backup into this directory was interrupted; do it again. A broker would not start"})
		case n.Kind == segment.KindIrregular:
			l.find(Finding{Path: filepath.Join(l.p.Dir, e.Name), Decision: Note, Problem: true,
				Reason: "ends like a file of a segment, but its name is no offset; it is left alone, and a broker would not start"})
		case e.Kind != vfs.Regular:
			l.find(Finding{Path: filepath.Join(l.p.Dir, e.Name), Decision: Refuse, Problem: true, Reason: "is no regular file"})
			l.noFile[n] = true
		default:
			l.names = append(l.names, n)
		}
	}
	return nil
}

// unchanged is the listing of the directory while it is as it was listed, else nil: whatever is changed is a finding.
func (l *loader) unchanged() []vfs.DirEntry {
	if len(l.report.Findings) > 0 || l.derives() {
		return nil
	}
	return l.entries
}

// openSegments makes the set of segments, without opening a file: for reading, under the names that there are now, or for
// writing.
func (l *loader) openSegments(reading bool) {
	hasLog := map[int64]bool{}
	var list []*segment.Segment
	for _, n := range l.names {
		if n.Kind == segment.KindLog && n.Suffix == "" {
			c := l.p.Segments
			if reading {
				c.ReadOnly = true
				if slices.Contains(l.swapped, n.Offset) {
					c.Suffix = segment.SuffixSwap
				}
			}
			list = append(list, segment.Open(l.fsys, l.p.Dir, n.Offset, c))
			hasLog[n.Offset] = true
		}
	}
	l.segments = segment.NewSet(list...)
	for _, n := range l.names {
		if n.Suffix == "" && isIndex(n.Kind) && !hasLog[n.Offset] {
			l.orphanIndex(n)
		}
	}
}

// pathOf is the path that the log file of a segment has when what was interrupted is completed.
func (l *loader) pathOf(s *segment.Segment) string {
	return filepath.Join(l.p.Dir, segment.FileName(segment.KindLog, s.BaseOffset()))
}

// openForWriting opens the segments that are left of the log once more, under their present names and for writing. What is
// known of them stays known.
func (l *loader) openForWriting() error {
	var list []*segment.Segment
	for s := range l.segments.All() {
		w := segment.Open(l.fsys, l.p.Dir, s.BaseOffset(), l.p.Segments)
		list = append(list, w)
		if err := s.Close(); err != nil {
			return fmt.Errorf("recovery: %w", err)
		}
	}
	l.segments = segment.NewSet(list...)
	for base, k := range l.newestOf {
		if s, ok := l.segments.Get(base); ok {
			s.KnowNewest(k.end, k.newest)
		}
	}
	return nil
}

// removeOrphans removes the indexes without a log file, once it is clear that the log is opened.
func (l *loader) removeOrphans() error {
	for _, n := range l.orphans {
		if err := l.remove(n.Path(l.p.Dir)); err != nil {
			return err
		}
	}
	l.orphans = nil
	return nil
}

func isIndex(k segment.Kind) bool {
	return k == segment.KindOffsetIndex || k == segment.KindTimeIndex || k == segment.KindTxnIndex
}

// orphanIndex is an index without a log file. There is nothing to be done with it, and a broker removes it. A power cut
// leaves one where a segment was just begun; anywhere else a log file is missing.
func (l *loader) orphanIndex(n segment.Name) {
	_, later := l.segments.Higher(n.Offset)
	lost := later
	switch {
	case l.deleted[n.Offset], l.us && n.Offset < l.slot.LogStart, l.us && l.slot.Cutting && n.Offset >= l.slot.Durable.Offset:
		lost = false // its log file went first
	case l.us:
		lost = lost || n.Offset < l.slot.Durable.Offset
	default:
		lost = lost || l.foreign.Marker || n.Offset < l.foreign.RecoveryPoint()
	}
	l.find(Finding{Path: n.Path(l.p.Dir), Decision: RemoveStale, Problem: lost, Offset: n.Offset, End: -1,
		Reason: "there is no log file with this base offset: it was removed, or was never made durable"})
	l.orphans = append(l.orphans, n)
}
