package verify

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/oncelog/oncelog/internal/dump"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/recovery"
	"github.com/oncelog/oncelog/segment"
)

// Checked counts what a verifier has read.
type Checked struct {
	Batches      int64 `json:"batches"`
	Records      int64 `json:"records"` // as the batches claim
	Bytes        int64 `json:"bytes"`   // of batches
	IndexEntries int64 `json:"indexEntries"`
	Snapshots    int64 `json:"snapshots"`
}

// verifier reads every batch of a partition and holds offsets and index entries against it. It goes on behind damage.
type verifier struct {
	ctx     context.Context
	fsys    vfs.FS
	dir     *dump.Dir
	found   *Findings
	gaps    bool // offsets may jump up: a compacted, a follower's or another program's log
	checked Checked

	next int64 // offset that comes next
	any  bool  // a batch has been seen: next is known
	txns openTxns

	epochs epochCheck

	report *recovery.Report
}

// Run verifies a partition: every batch, every index entry, the snapshots. What it finds goes into found; report, if not nil,
// is what an open would do. Its error says that the directory could not be read.
func Run(ctx context.Context, fsys vfs.FS, dir *dump.Dir, found *Findings, report *recovery.Report) (Checked, error) {
	v := newVerifier(ctx, fsys, dir, found, report)
	err := v.run()
	return v.checked, err
}

// Segment verifies one segment, of which nothing else is looked at.
func Segment(ctx context.Context, fsys vfs.FS, dir *dump.Dir, s dump.Files, found *Findings) (Checked, error) {
	v := newVerifier(ctx, fsys, dir, found, nil)
	// Not as the active segment: the end is looked at like any other place.
	err := v.segment(s, false)
	return v.checked, err
}

func newVerifier(ctx context.Context, fsys vfs.FS, dir *dump.Dir, found *Findings, report *recovery.Report) *verifier {
	v := &verifier{ctx: ctx, fsys: fsys, dir: dir, found: found, gaps: true, report: report, txns: openTxns{first: map[int64]int64{}}}
	if report != nil && report.Writer == recovery.Us {
		if f, err := recovery.OpenStateFile(fsys, dir.Path, true); err == nil {
			if slot, ok := f.Newest(); ok {
				v.gaps = slot.Gaps
			}
			_ = f.Close() // it was opened for reading
		}
	}
	return v
}

func (v *verifier) run() error {
	if err := v.epochs.open(v); err != nil {
		return err
	}
	last := -1 // the active segment
	for i, s := range v.dir.Segments {
		if _, ok := s.Of[segment.KindLog]; ok {
			last = i
		}
	}
	for i, s := range v.dir.Segments {
		if err := v.segment(s, i == last); err != nil {
			return err
		}
	}
	for _, f := range v.dir.Snapshots {
		if err := v.snapshot(f); err != nil {
			return err
		}
	}
	v.keptFiles()
	return v.stateFile()
}

func (v *verifier) path(f dump.File) string { return filepath.Join(v.dir.Path, f.Name) }

// segment verifies one segment. What is no regular file, and what is too large, has been reported already.
func (v *verifier) segment(s dump.Files, active bool) error {
	f, ok := s.Of[segment.KindLog]
	if !ok || f.Kind != vfs.Regular {
		return nil
	}
	r, err := dump.OpenLog(v.ctx, v.fsys, v.path(f), 0)
	if errors.Is(err, fs.ErrNotExist) {
		v.any = false // a writer has just removed it
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	if r.Size() > dump.MaxFileBytes {
		return nil
	}
	w := &segmentWalk{v: v, files: s, log: r, active: active, last: s.Base - 1}
	if err := w.openIndexes(); err != nil {
		return err
	}
	defer w.closeIndexes()
	if v.any && s.Base < v.next {
		v.found.Add(Finding{File: f.Name, Problem: true, Offset: Known(s.Base), LastOffset: Known(v.next - 1),
			Reason: fmt.Sprintf("the segment begins at offset %d, and the one before ends at %d: these offsets are there twice", s.Base, v.next-1)})
	}
	if err := w.walk(); err != nil {
		return err
	}
	v.checked.IndexEntries += w.entries
	return nil
}

// segmentWalk is the walk over one segment.
type segmentWalk struct {
	v      *verifier
	files  dump.Files
	log    *dump.LogReader
	active bool

	offsets *offsetCheck
	times   *timeCheck
	aborted *txnCheck
	entries int64

	last      int64 // last offset of the batch before
	misplaced bool  // the batch before was one with offsets that do not fit
}

func (w *segmentWalk) name() string { return w.files.Of[segment.KindLog].Name }

func (w *segmentWalk) walk() error {
	for {
		for w.log.Next() {
			if err := w.batch(w.log.Entry()); err != nil {
				return err
			}
		}
		if w.log.Err() != nil {
			return w.log.Err()
		}
		d := w.log.Damage()
		if d == nil {
			return w.finish(w.log.Size(), true)
		}
		again, err := w.behind(d)
		if err != nil || !again {
			return err
		}
	}
}

// batch verifies one good batch.
func (w *segmentWalk) batch(e *dump.Entry) error {
	b := e.Batch
	base, last := w.last+1, b.LastOffset()
	if !e.Legacy() {
		base = b.BaseOffset()
		if err := b.CheckHeader(); err != nil {
			w.bad(e, "its header contradicts itself: "+err.Error())
		}
	}
	c := &w.v.checked
	c.Batches++
	c.Bytes += e.Size
	if n := b.Count(); n > 0 {
		c.Records += int64(n)
	} else if e.Legacy() {
		c.Records++
	}
	switch {
	case last <= w.last || base <= w.last || last < base || last-w.files.Base > segment.MaxRelativeOffset:
		w.bad(e, fmt.Sprintf("a whole batch of offsets %d to %d, which do not follow %d", base, last, w.last))
		w.offsets.hole(e.Position, e.End())
		w.misplaced = true
		return nil
	case w.misplaced:
		w.misplaced = false // what is missing here is what the bad offsets were about
	case !e.Legacy() && w.v.any && !w.v.gaps && base > w.v.next:
		w.v.found.Add(Finding{File: w.name(), Problem: true, Position: Known(e.Position), Offset: Known(w.v.next), LastOffset: Known(base - 1),
			NextGood: Known(base), Reason: "these offsets are missing before this byte"})
	}
	w.v.epochs.batch(w.v.found, w.name(), e)
	at := place{position: e.Position, base: base, last: last, before: w.last, maxTimestamp: b.MaxTimestamp()}
	if err := w.offsets.batch(at); err != nil {
		return err
	}
	if err := w.times.batch(at); err != nil {
		return err
	}
	if err := w.aborted.batch(e, &w.v.txns); err != nil {
		return err
	}
	w.last = max(w.last, last)
	w.v.next, w.v.any = max(w.v.next, last+1), true
	return nil
}

func (w *segmentWalk) bad(e *dump.Entry, reason string) {
	w.v.found.Add(Finding{File: w.name(), Problem: true, Position: Known(e.Position), End: Known(e.End()), Reason: reason})
}

// behind reports damage and looks for the place where whole batches begin again. What lies behind the end of the log is left
// to recovery, which knows what may have been promised.
func (w *segmentWalk) behind(d *dump.Damage) (again bool, err error) {
	if w.v.found.Trims(w.name(), d.Position) {
		return false, w.finish(d.Position, false)
	}
	s := segment.Open(w.v.fsys, w.v.dir.Path, w.files.Base, segment.Config{ReadOnly: true})
	defer s.Close()
	size := w.log.Size()
	nonZero, found, err := s.FirstNonZero(d.Position, size)
	if err != nil {
		return false, err
	}
	if !found {
		// Nothing but zeros: reserved space, which recovery trims. A broker takes it for damage in all but the last segment.
		return false, w.finish(d.Position, false)
	}
	expected := w.last + 1
	pos, found, err := w.resync(s, d, expected)
	if err != nil {
		return false, err
	}
	f := Finding{File: w.name(), Problem: true, Position: Known(d.Position), End: Known(size), Offset: Known(expected), Reason: d.Reason}
	if !found {
		if r := w.v.report; w.active && (r == nil || expected >= r.LogEnd) {
			return false, w.finish(d.Position, false)
		}
		if next, ok := w.v.baseBehind(w.files.Base); ok && next > expected {
			f.LastOffset, f.NextGood = Known(next-1), Known(next)
		}
		if nonZero > d.Position {
			f.Reason += fmt.Sprintf("; the first byte that is not zero is %d", nonZero)
		}
		w.v.found.Add(f)
		w.v.any = false
		return false, w.finish(d.Position, false)
	}
	h, err := s.HeaderAt(pos, size)
	if err != nil {
		return false, err
	}
	f.End, f.NextGood = Known(pos), Known(h.BaseOffset)
	if strings.HasPrefix(f.Reason, "incomplete") {
		f.Reason = "the batch claims to reach beyond the end of the file, and whole batches follow"
	}
	if h.BaseOffset > expected {
		f.LastOffset = Known(h.BaseOffset - 1)
	} else {
		f.Offset = nil
	}
	w.v.found.Add(f)
	w.hole(d.Position, pos, h.BaseOffset)
	w.log.Skip(pos)
	return true, nil
}

// resync finds the place behind damage where a good batch begins.
func (w *segmentWalk) resync(s *segment.Segment, d *dump.Damage, expected int64) (pos int64, found bool, err error) {
	size := w.log.Size()
	pos, found, err = s.FindBatch(d.Position, size, size, func(h segment.Header) bool { return h.BaseOffset >= expected })
	if errors.Is(err, segment.ErrSearchLimit) {
		return 0, false, nil
	}
	return pos, found, err
}

// hole makes the checks pass over bytes that cannot be read.
func (w *segmentWalk) hole(from, to, next int64) {
	w.offsets.hole(from, to)
	w.times.hole(next)
	w.aborted.hole(next)
	w.last = next - 1
	w.v.next = next
	clear(w.v.txns.first)
}

// baseBehind is the base offset of the next segment that has a log file.
func (v *verifier) baseBehind(base int64) (int64, bool) {
	for _, s := range v.dir.Segments {
		if _, ok := s.Of[segment.KindLog]; ok && s.Base > base {
			return s.Base, true
		}
	}
	return 0, false
}

// finish judges what the indexes say about what lies behind the last batch.
func (w *segmentWalk) finish(end int64, clean bool) error {
	w.missing()
	for _, err := range []error{w.offsets.finish(end, clean), w.times.finish(w.last, clean), w.aborted.finish(clean)} {
		if err != nil {
			return err
		}
	}
	w.entries = w.offsets.read + w.times.read + w.aborted.entries
	return nil
}

// missing reports the indexes that are not there.
func (w *segmentWalk) missing() {
	for _, k := range [...]segment.Kind{segment.KindOffsetIndex, segment.KindTimeIndex} {
		if _, ok := w.files.Of[k]; !ok && w.log.Position() > 0 {
			w.v.found.Add(Finding{File: segment.FileName(k, w.files.Base), Problem: true,
				Reason: "is missing; look-ups read the log instead until it is made anew"})
		}
	}
}

func (v *verifier) snapshot(f dump.File) error {
	if f.Kind != vfs.Regular {
		v.found.Add(Finding{File: f.Name, Problem: true, Reason: "is no regular file"})
		return nil
	}
	s, err := dump.OpenSnapshot(v.ctx, v.fsys, v.path(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a writer has just removed it
	}
	if err != nil {
		return err
	}
	defer s.Close()
	v.checked.Snapshots++
	if s.Damage != nil {
		v.found.Add(Finding{File: f.Name, Problem: true, Reason: "cannot be read as a producer snapshot"})
	}
	return nil
}

// keptFiles mentions what earlier recoveries kept aside.
func (v *verifier) keptFiles() {
	for _, f := range v.dir.Other {
		n := segment.Parse(f.Name)
		if n.Kind != segment.KindCut || f.Kind != vfs.Regular {
			continue
		}
		info, err := v.fsys.Stat(v.path(f))
		if err != nil {
			continue // it was just removed
		}
		v.found.Add(Finding{File: f.Name, Reason: fmt.Sprintf("%s of %s that an earlier recovery cut off at byte %d are kept here",
			count(info.Size, "byte"), segment.FileName(segment.KindLog, n.Offset), n.Position)})
	}
}

// stateFile looks at the slots of the state file that recovery passes over.
func (v *verifier) stateFile() error {
	f, err := recovery.OpenStateFile(v.fsys, v.dir.Path, true)
	if errors.Is(err, recovery.ErrUnsupportedVersion) {
		return nil // recovery refuses it
	}
	if err != nil {
		return err
	}
	for _, i := range f.Damaged() {
		from, end := recovery.SlotBytes(i)
		v.found.Add(Finding{File: recovery.StateFileName, Problem: true, Decision: recovery.Rebuild.String(), Position: Known(from), End: Known(end),
			Reason: fmt.Sprintf("slot %d of the state file is neither good nor empty: if it was the newest, how far the log was durable is not known any more", i)})
	}
	return f.Close()
}
