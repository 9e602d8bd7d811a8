package recovery

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/oncelog/oncelog/internal/leaderepoch"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// Params say what to open, and how.
type Params struct {
	Dir      string // the partition directory, as an absolute path
	ReadOnly bool   // change nothing, and open around damage
	Policy   Policy
	Compat   bool   // load exactly as Kafka does, with what Kafka's files say; implies PointInTime
	BootID   string // of this boot and mount

	Segments  segment.Config
	Producers producerstate.Config
	Logger    *slog.Logger
	Now       func() time.Time

	dryRun bool
}

// State is a loaded log. It is for the package wal.
type State struct {
	Segments   segment.Set // at least one; the last one is active
	ActiveSize int64       // bytes of batches in it
	Producers  *producerstate.Manager
	Epochs     *leaderepoch.Cache
	StateFile  *StateFile // nil with Compat and ReadOnly
	Foreign    Foreign    // as it is now

	LogStart       int64
	End            Position // log end; everything below is on disk unless ReadOnly
	RecoveryPoint  Position
	SnapshotOffset int64 // of the pair at the recovery point, −1 if there is none

	NewestTimestamp int64 // greatest timestamp of a batch, as far as it is known
	AppendClock     int64 // clock of the newest append, as far as it is known
	Gaps            bool  // offsets may jump

	Slot   Slot // what the state file said when the load began; of no meaning where another program wrote
	Report Report
}

// Close closes what Load opened, after an open that was given up.
func (s *State) Close() error {
	var errs []error
	for seg := range s.Segments.All() {
		errs = append(errs, seg.Close())
	}
	if s.StateFile != nil {
		errs = append(errs, s.StateFile.Close())
	}
	return errors.Join(errs...)
}

// Load finds out what the directory holds, decides, and unless ReadOnly is set acts on it. The caller holds the locks.
// It returns *RefusedError where the decision is left to a person.
func Load(ctx context.Context, fsys vfs.FS, p Params) (*State, error) {
	start := p.Now()
	l, err := run(ctx, fsys, p)
	if err != nil && !p.ReadOnly {
		err = l.refuseUnreadable(err)
	}
	l.report.Elapsed = p.Now().Sub(start)
	l.summarize()
	if err != nil {
		return nil, errors.Join(withVersion(err), l.close())
	}
	l.log()
	return l.state(), nil
}

// Inspect does what Load does up to the decision, and changes nothing. Its error says that the directory could not be
// read; what is wrong with the log is in the report.
func Inspect(ctx context.Context, fsys vfs.FS, p Params) (*Report, error) {
	p.dryRun, p.ReadOnly = true, true
	p.Segments.ReadOnly, p.Producers.ReadOnly = true, true
	start := p.Now()
	l, err := run(ctx, fsys, p)
	l.report.Elapsed = p.Now().Sub(start)
	l.summarize()
	if err = errors.Join(withVersion(err), l.close()); err != nil {
		return nil, err
	}
	return &l.report, nil
}

// run loads. A reader looks again where it saw what a writer may have been changing meanwhile: a load reads one file after
// the other, and beside a writer they are not of one moment.
func run(ctx context.Context, fsys vfs.FS, p Params) (l *loader, err error) {
	const tries = 20
	for i := 1; ; i++ {
		l = newLoader(ctx, fsys, p)
		err = l.run()
		if !p.ReadOnly || i == tries || ctx.Err() != nil || err == nil && !l.report.Problems() && !l.report.Refused() {
			return l, err
		}
		if !l.writerMoved() && (err == nil || i > 1) {
			return l, err
		}
		if closeErr := l.close(); closeErr != nil {
			return l, errors.Join(err, closeErr)
		}
	}
}

// writerMoved tells whether the state file has changed since it was read.
func (l *loader) writerMoved() bool {
	now, err := OpenStateFile(l.fsys, l.p.Dir, true)
	if err != nil || l.file == nil {
		return err == nil
	}
	defer now.Close()
	a, _ := now.Newest()
	b, _ := l.file.Newest()
	return a.Generation != b.Generation
}

// loader carries one load through its steps.
type loader struct {
	ctx  context.Context
	fsys vfs.FS
	p    Params

	entries []vfs.DirEntry // of the directory, as it was listed
	names   []segment.Name // regular files of the directory
	foreign Foreign
	file    *StateFile
	slot    Slot // newest, valid if us
	us      bool // this library changed the directory last

	takingOver  bool  // a recovery of another program's log was interrupted
	rebuildFrom int64 // an earlier load was making the indexes of the segments from here on anew; unlimited: of none

	sameBoot bool
	gaps     bool // offsets may jump

	segments  segment.Set
	orphans   []segment.Name     // indexes without a log file
	txnLost   []*segment.Segment // whose transaction index was emptied although no replay comes by
	rebuilt   []*segment.Segment // of which an index was made anew
	replaced  map[int64]bool     // base offsets of segments whose transaction index may have been lost in a replacement
	txnBad    []txnDamage
	epochs    *leaderepoch.Cache
	producers *producerstate.Manager

	end            Position // of the log
	logStart       int64
	scannedFrom    placeInLog // where the scan began; nothing below was read
	scanned        bool
	derivedFrom    placeInLog     // indexes and producer state are made anew from here on; segment unlimited: nowhere
	derivedOffset  int64          // first offset of that
	created        bool           // the log was begun here
	deleted        map[int64]bool // base offsets of segments that were being deleted
	newest         int64
	recoveryPoint  Position
	snapshotOffset int64

	report Report
}

func newLoader(ctx context.Context, fsys vfs.FS, p Params) *loader {
	if p.Segments.Pool == nil {
		p.Segments.Pool = segment.NewPool(0)
	}
	l := &loader{ctx: ctx, fsys: fsys, p: p, newest: record.NoTimestamp, snapshotOffset: -1,
		derivedFrom: placeInLog{segment: unlimited}, derivedOffset: unlimited, rebuildFrom: unlimited}
	l.report = Report{Dir: p.Dir, DryRun: p.dryRun, Durable: -1}
	return l
}

func (l *loader) run() error {
	if err := l.observe(); err != nil {
		return err
	}
	if err := l.leftovers(); err != nil {
		return err
	}
	if l.p.Compat || l.p.Policy == PointInTime && !l.p.ReadOnly {
		return l.loadAsKafka()
	}
	return l.load()
}

// load is the loading of this library: scan what lies behind the recovery point, judge by the table, act, and rebuild
// what is derived.
func (l *loader) load() error {
	if err := l.openSegments(); err != nil {
		return err
	}
	if l.segments.Len() == 0 {
		return l.loadEmpty()
	}
	if err := l.checkSpans(); err != nil {
		return err
	}
	j, err := l.judge()
	if err != nil {
		return err
	}
	if err := l.checkVersions(); err != nil {
		return err
	}
	if err := l.refuseOrAct(j); err != nil {
		return err
	}
	if err := l.takeOver(); err != nil {
		return err
	}
	if !l.us && l.segments.Len() == 1 && l.end.Last.Size == 0 {
		l.gaps = false // a log that was only just begun
	}
	if err := l.removeOrphans(); err != nil {
		return err
	}
	if err := l.loadEpochs(); err != nil {
		return err
	}
	if err := l.setLogStart(); err != nil {
		return err
	}
	if err := l.loadProducers(); err != nil {
		return err
	}
	return l.finish()
}

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
		l.us, l.slot = true, slot
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
	l.names, l.report.CutFiles = l.names[:0], 0
	for _, e := range entries {
		n := segment.Parse(e.Name)
		if n.Kind == segment.KindCut {
			l.report.CutFiles++
		}
		switch {
		case n.Kind == segment.KindUnknown:
		case n.Kind == segment.KindIrregular:
			l.find(Finding{Path: filepath.Join(l.p.Dir, e.Name), Decision: Note, Problem: true,
				Reason: "ends like a file of a segment, but its name is no offset; it is left alone, and a broker would not start"})
		case e.Kind != vfs.Regular:
			l.find(Finding{Path: filepath.Join(l.p.Dir, e.Name), Decision: Refuse, Problem: true, Reason: "is no regular file"})
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

// find adds a finding; zero values that stand for "not known" are set by the caller or here.
func (l *loader) find(f Finding) *Finding {
	if f.Position == 0 && f.Bytes == 0 && f.Decision != CutTail && f.Decision != TrimZeros && f.Decision != Refuse {
		f.Position, f.Bytes = -1, -1
	}
	if f.Offset == 0 && f.End == 0 {
		f.Offset, f.End = -1, -1
	}
	l.report.Findings = append(l.report.Findings, f)
	return &l.report.Findings[len(l.report.Findings)-1]
}

// openSegments makes the set of segments, without opening a file.
func (l *loader) openSegments() error {
	hasLog := map[int64]bool{}
	var list []*segment.Segment
	for _, n := range l.names {
		if n.Kind == segment.KindLog && (n.Suffix == "" || l.p.ReadOnly && n.Suffix == segment.SuffixSwap && l.swapCounts(n)) {
			c := l.p.Segments
			c.Suffix = n.Suffix
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
	if l.p.Compat || l.p.Policy == PointInTime {
		return l.removeOrphans() // nothing is refused
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

// remove removes a file, unless nothing is to be changed.
func (l *loader) remove(path string) error {
	if l.p.ReadOnly {
		return nil
	}
	if err := l.fsys.Remove(path); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	return nil
}

// loadEmpty begins a log in a directory that has no segment.
func (l *loader) loadEmpty() error {
	if l.us && l.slot.Durable.Last.Size > 0 {
		err := l.refuse(Finding{Path: l.p.Dir, Decision: Refuse, Problem: true, Position: -1, Bytes: -1,
			Offset: l.slot.LogStart, End: l.slot.Durable.Offset,
			Reason: "all log files are gone, although the state file knows of records in them"})
		if err == nil && !l.p.dryRun {
			err = l.refused() // a reader has nothing to read around the damage either
		}
		return err
	}
	start := l.foreign.LogStart()
	if l.us {
		start = max(start, l.slot.LogStart, l.slot.Durable.Offset)
	}
	if l.p.ReadOnly {
		if l.p.dryRun {
			l.logStart, l.end = start, Position{Offset: start}
			return nil
		}
		if l.us && l.slot.Cutting {
			return l.readNothing(start)
		}
		return fmt.Errorf("%w: %s", ErrNotLog, l.p.Dir)
	}
	if err := l.removeOrphans(); err != nil {
		return err
	}
	return l.beginAt(start)
}

// beginAt makes the first segment of a log.
func (l *loader) beginAt(offset int64) error {
	s, err := segment.Create(l.fsys, l.p.Dir, offset, l.p.Segments)
	if err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	l.segments = segment.NewSet(s)
	if err := l.fsys.SyncDir(l.p.Dir); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	l.end, l.recoveryPoint = Position{Offset: offset}, Position{Offset: offset}
	l.logStart, l.created = offset, true
	if err := l.loadEpochs(); err != nil {
		return err
	}
	return l.loadProducers()
}

// finish leaves the log as an open one has to be: nothing of what was derived is behind the log, and the recovery point
// is where a scan would have nothing to do.
func (l *loader) finish() error {
	active := l.segments.Active()
	if l.p.ReadOnly {
		return nil
	}
	size, err := active.Size()
	if err != nil {
		return err
	}
	if err := active.OpenActive(size); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	for _, s := range l.rebuilt {
		if err := s.FlushIndexes(); err != nil {
			return fmt.Errorf("recovery: %w", err)
		}
	}
	if len(l.rebuilt) > 0 {
		// Nobody looks at these again, and their names may be new.
		if err := l.fsys.SyncDir(l.p.Dir); err != nil {
			return fmt.Errorf("recovery: %w", err)
		}
	}
	if !l.derives() && l.us {
		return nil
	}
	if l.derives() {
		for s := range l.segments.From(l.derivedFrom.segment) {
			if err := s.Flush(); err != nil {
				return fmt.Errorf("recovery: %w", err)
			}
		}
	}
	if err := producerstate.WritePair(l.fsys, l.p.Dir, l.producers.Freeze(), l.end.Last); err != nil {
		// Not having it costs the next open time.
		l.p.Logger.Warn("producer snapshot", "dir", l.p.Dir, "err", err)
		return nil
	}
	l.producers.NoteSnapshot(l.end.Offset)
	l.recoveryPoint, l.snapshotOffset = l.end, l.end.Offset
	return nil
}

// summarize completes the report.
func (l *loader) summarize() {
	l.report.LogStart, l.report.LogEnd = l.logStart, l.end.Offset
	if l.producers != nil {
		l.report.Producers, l.report.OpenTxns = l.producers.Len(), l.producers.Stats().OpenTxns
	}
}

// derives tells whether anything is made anew from the log.
func (l *loader) derives() bool { return l.derivedFrom.segment != unlimited }

func (l *loader) state() *State {
	s := &State{
		Segments: l.segments, Producers: l.producers, Epochs: l.epochs, StateFile: l.file, Foreign: l.foreign,
		LogStart: l.logStart, End: l.end, RecoveryPoint: l.recoveryPoint, SnapshotOffset: l.snapshotOffset,
		NewestTimestamp: l.newest, AppendClock: record.NoTimestamp, Gaps: l.gaps, Slot: l.newestSlot(), Report: l.report,
	}
	if l.us {
		s.AppendClock = l.slot.AppendClock
	}
	s.AppendClock = max(s.AppendClock, l.producers.NewestTime())
	if n, err := l.segments.Active().Size(); err == nil {
		s.ActiveSize = n
	}
	if l.p.Compat || l.p.ReadOnly {
		// It was opened for reading; there is nothing that closing could lose.
		_ = l.file.Close()
		s.StateFile = nil
	}
	return s
}

// newestSlot is the newest slot of the state file, whoever wrote last.
func (l *loader) newestSlot() Slot {
	slot, _ := l.file.Newest()
	return slot
}

func (l *loader) close() error {
	var errs []error
	for s := range l.segments.All() {
		errs = append(errs, s.Close())
	}
	if l.file != nil {
		errs = append(errs, l.file.Close())
	}
	return errors.Join(errs...)
}

func (l *loader) log() {
	r := &l.report
	l.p.Logger.Info("recovered", "dir", l.p.Dir, "clean", r.Clean, "log_start", l.logStart, "log_end", l.end.Offset,
		"bytes_scanned", r.BytesScanned, "bytes_cut", r.BytesCut, "elapsed", r.Elapsed)
	for i := range r.Findings {
		l.p.Logger.Warn("finding", "dir", l.p.Dir, "what", r.Findings[i].String())
	}
}

// refuse ends a load that must not go on, or for a reader notes why a writer could not.
func (l *loader) refuse(f Finding) error {
	f.Decision = Refuse
	l.find(f)
	if l.p.ReadOnly {
		return nil
	}
	return l.refused()
}

// refuseUnreadable turns a bad batch that was met in bytes which had not to be scanned into a refusal.
func (l *loader) refuseUnreadable(err error) error {
	bad, ok := errors.AsType[*segment.CorruptError](err)
	if _, refused := errors.AsType[*RefusedError](err); refused || !ok {
		return err
	}
	f := Finding{Path: bad.Path, Position: bad.Position, Bytes: -1, Offset: -1, End: -1, Problem: true, Err: bad.Err,
		Reason: "these bytes were reported durable, so something changed them later: " + bad.Err.Error()}
	if bad.LastOffset >= 0 {
		f.Offset = bad.LastOffset + 1
	}
	return l.refuse(f)
}

func (l *loader) refused() error {
	var list []Finding
	for _, f := range l.report.Findings {
		if f.Decision == Refuse {
			list = append(list, f)
		}
	}
	report := l.report
	return &RefusedError{Dir: l.p.Dir, Findings: list, Report: &report}
}

// after yields the segments behind one, in order.
func (l *loader) after(s *segment.Segment) iter.Seq[*segment.Segment] {
	set := l.segments
	return func(yield func(*segment.Segment) bool) {
		for next, ok := set.Higher(s.BaseOffset()); ok && yield(next); {
			next, ok = set.Higher(next.BaseOffset())
		}
	}
}

// placeInLog is a byte of the log.
type placeInLog struct {
	segment  int64 // base offset
	position int64
}

func (p placeInLog) less(q placeInLog) bool {
	return p.segment < q.segment || p.segment == q.segment && p.position < q.position
}

const unlimited = math.MaxInt64
