package recovery

import (
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/segment"
)

// endAsWriter lets the log end for a reader where it ends for the writer. One in SyncCommit puts batches into the page cache
// that are not on disk yet, and a power cut may take them back; one that truncates is about to remove what lies behind.
// After a restart of the machine what is there has been read from the disk. Where a newer slot may have been lost nobody knows
// the durable end, and the log ends where its whole batches do.
func (l *loader) endAsWriter(j *judgement) {
	d := l.slot.Durable
	if j.end.Offset <= d.Offset || !l.slot.HidesBehindDurable(l.p.BootID) {
		return
	}
	j.end = d
	for s := range l.segments.All() {
		switch {
		case s.BaseOffset() > d.Offset && s == l.segments.First():
			j.cuts = append(j.cuts, cut{segment: s, finding: -1})
			j.end = Position{Offset: s.BaseOffset()}
		case s.BaseOffset() > d.Offset:
			j.cuts = append(j.cuts, cut{segment: s, whole: true, finding: -1})
		case d.Last.Size == 0 || s.BaseOffset() > d.Last.SegmentBase:
			j.cuts = append(j.cuts, cut{segment: s, finding: -1}) // no batch of it lies below
		case s.BaseOffset() == d.Last.SegmentBase:
			j.cuts = append(j.cuts, cut{segment: s, position: d.EndPosition(), finding: -1})
		}
	}
}

// readNothing is a log for a reader while a truncation removes all of it: no file is there, and none is looked for.
func (l *loader) readNothing(offset int64) error {
	s := segment.Open(l.fsys, l.p.Dir, offset, l.p.Segments)
	s.SetSize(0)
	l.segments = segment.NewSet(s)
	l.end, l.recoveryPoint, l.logStart = Position{Offset: offset}, Position{Offset: offset}, offset
	if err := l.loadEpochs(); err != nil {
		return err
	}
	return l.loadProducers()
}

// newestSlot is the newest slot of the state file, whoever wrote last.
func (l *loader) newestSlot() Slot {
	slot, _ := l.file.Newest()
	return slot
}

// Replay applies the batches that a reader finds behind the end of a loaded log to its producer state, and keeps the aborted
// transactions of read-only segments in memory (segment.ShadowAborted). A batch that contradicts its producer's state
// leaves it as it was.
type Replay struct{ r replay }

// NewReplay returns a Replay for the state of a log that was loaded with the same parameters.
func NewReplay(fsys vfs.FS, p Params, m *producerstate.Manager) *Replay {
	return &Replay{replay{l: &loader{fsys: fsys, p: p}, m: m, aborted: (*segment.Segment).AppendAborted}}
}

// Batch applies one batch.
func (r *Replay) Batch(s *segment.Segment, b segment.BatchAt) error {
	r.r.l.report.Findings = r.r.l.report.Findings[:0]
	return r.r.batch(s, b)
}

// ReadSlot returns the newest slot of the state file, and whether there is one.
func ReadSlot(fsys vfs.FS, dir string) (Slot, bool, error) {
	f, err := OpenStateFile(fsys, dir, true)
	if err != nil {
		return Slot{}, false, err
	}
	slot, found := f.Newest()
	return slot, found, f.Close()
}

// IsOfBoot tells whether the slot was written while the page cache was the same as now: see vfs.FS.BootID.
func (s *Slot) IsOfBoot(bootID string) bool { return s.BootID != "" && s.BootID == bootField(bootID) }

// HidesBehindDurable tells whether readers stop at the durable end although whole batches may lie behind it.
func (s *Slot) HidesBehindDurable(bootID string) bool {
	return s.Cutting || s.Mode == SyncCommit && s.IsOfBoot(bootID) && !s.Doubtful
}
