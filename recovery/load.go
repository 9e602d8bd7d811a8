package recovery

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"path/filepath"
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

	// CheckSegments holds the ends of every segment against the names of the files, which opens each of them.
	CheckSegments bool

	Segments  segment.Config
	Producers producerstate.Config
	Logger    *slog.Logger
	Now       func() time.Time

	dryRun bool
}

// Load finds out what the directory holds, decides, and unless ReadOnly is set acts on it. The caller holds the locks.
// It returns *RefusedError where the decision is left to a person.
func Load(ctx context.Context, fsys vfs.FS, p Params) (*State, error) {
	start := p.Now()
	l, err := run(ctx, fsys, p)
	if err != nil && !p.ReadOnly && !l.acting {
		err = l.refuseUnreadable(err)
	}
	l.report.Elapsed = p.Now().Sub(start)
	l.summarize()
	if err != nil {
		return nil, errors.Join(withVersion(err), l.close())
	}
	l.log()
	return l.state()
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
// the other, and beside a writer they are not of one moment. A file that is gone or shorter than it was says so too, for a
// writer removes some without a word in the state file. A bad batch that is met in bytes which had not to be scanned lets a
// load that has changed nothing begin anew, and scan that segment.
func run(ctx context.Context, fsys vfs.FS, p Params) (l *loader, err error) {
	const tries = 20
	alsoRead := map[int64]bool{}
	for i := 1; ; i++ {
		l = newLoader(ctx, fsys, p)
		l.alsoRead = alsoRead
		err = l.run()
		switch {
		case l.acting || p.Compat && !p.ReadOnly || ctx.Err() != nil:
			return l, err
		case l.meetsDamage(err):
			i-- // there is one try for each segment
		case !p.ReadOnly || i == tries || err == nil && !l.report.Problems() && !l.report.Refused():
			return l, err
		case !l.writerMoved() && (err == nil || i > 1 && !segment.Vanished(err)):
			return l, err
		}
		if closeErr := l.close(); closeErr != nil {
			return l, errors.Join(err, closeErr)
		}
	}
}

// meetsDamage tells whether a load ended at a bad batch, and notes its segment as one to be read the next time.
func (l *loader) meetsDamage(err error) bool {
	bad, ok := errors.AsType[*segment.CorruptError](err)
	if _, refused := errors.AsType[*RefusedError](err); refused || !ok {
		return false
	}
	n := segment.Parse(filepath.Base(bad.Path))
	if n.Kind != segment.KindLog || l.alsoRead[n.Offset] {
		return false
	}
	l.alsoRead[n.Offset] = true
	return true
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

	entries []vfs.DirEntry        // of the directory, as it was listed
	names   []segment.Name        // regular files of the directory
	noFile  map[segment.Name]bool // what bears such a name and is none
	foreign Foreign
	file    *StateFile
	slot    Slot // newest, valid if us
	us      bool // this library changed the directory last

	takingOver  bool  // a recovery of another program's log was interrupted
	rebuildFrom int64 // an earlier load was making the indexes of the segments from here on anew; unlimited: of none

	sameBoot  bool
	gaps      bool  // offsets may jump
	compacted int64 // compaction may have moved any batch below

	acting  bool           // nothing is refused any more
	todo    []func() error // changes that wait until it is clear that the log is opened
	leaving []int64        // offsets of snapshots that such a change removes
	swapped []int64        // base offsets of segments whose files get their names by such a change

	segments  segment.Set
	alsoRead  map[int64]bool // base offsets of segments below the recovery point that are read all the same
	rebuilds  []rebuild
	newestOf  map[int64]newestBelow // by base offset
	stale     []int64               // snapshots of offsets that are not there any more
	aborted   abortedTxns           // what transaction indexes hold when all is done, where their files do not now
	txnLost   map[int64]bool        // base offsets of the segments whose transaction index is made anew as a whole
	txnTotals map[int64]txnTotals   // by base offset, of files
	doubts    []Doubt
	gone      Lost
	orphans   []segment.Name     // indexes without a log file
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
		derivedFrom: placeInLog{segment: unlimited}, derivedOffset: unlimited, rebuildFrom: unlimited,
		aborted: abortedTxns{}, txnLost: map[int64]bool{}, txnTotals: map[int64]txnTotals{}}
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
	if !l.p.Compat {
		return l.load()
	}
	if !l.p.ReadOnly {
		if err := l.doLeftovers(); err != nil {
			return err
		}
	}
	return l.loadAsKafka()
}

// load is the loading of this library. First everything is read and decided, as a reader does it and with nothing changed:
// where the log ends, by the table, and what has to be made anew. Bad bytes that are met in there refuse the open. Then it
// acts, and reads only what it has read before.
func (l *loader) load() error {
	l.openSegments(true)
	if l.segments.Len() == 0 {
		return l.loadEmpty()
	}
	j, err := l.decide()
	if err != nil || l.p.ReadOnly {
		return err
	}
	if err := l.act(j); err != nil {
		return err
	}
	return l.finish()
}

// decide finds out what is to be done, and changes nothing.
func (l *loader) decide() (*judgement, error) {
	if err := l.checkSpans(); err != nil {
		return nil, err
	}
	j, err := l.judge()
	if err != nil {
		return nil, err
	}
	if err := l.checkVersions(); err != nil {
		return nil, err
	}
	if !l.p.ReadOnly && l.report.Refused() {
		return nil, l.refused()
	}
	if err := l.cutInMemory(j); err != nil {
		return nil, err
	}
	if !l.us && l.segments.Len() == 1 && l.end.Last.Size == 0 {
		l.gaps = false // a log that was only just begun
	}
	if err := l.loadEpochs(); err != nil {
		return nil, err
	}
	l.setLogStart()
	l.findStaleSnapshots()
	if err := l.planRebuilds(); err != nil {
		return nil, err
	}
	return j, l.loadProducers()
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
		err := l.lost(Finding{Path: l.p.Dir, Decision: Refuse, Problem: true, Position: -1, Bytes: -1,
			Offset: l.slot.LogStart, End: l.slot.Durable.Offset,
			Reason: "all log files are gone, although the state file knows of records in them"})
		if err == nil && l.p.ReadOnly && !l.p.dryRun {
			err = l.refused() // a reader has nothing to read around the damage either
		}
		if err != nil || !l.cutsDamage() {
			return err
		}
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
	l.acting = true
	if err := errors.Join(l.doLeftovers(), l.removeOrphans()); err != nil {
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
	l.findStaleSnapshots()
	if err := producerstate.RemovePair(l.fsys, l.p.Dir, l.stale...); err != nil {
		return err
	}
	if err := l.loadProducers(); err != nil {
		return err
	}
	return l.actOnProducers()
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

// lost is refuse for records that are gone as a whole, without which a policy that cuts at damage goes on.
func (l *loader) lost(f Finding) error {
	if !l.cutsDamage() {
		return l.refuse(f)
	}
	f.Decision, f.Reason = Note, fmt.Sprintf("%s; the policy %v goes on with what is left", f.Reason, l.p.Policy)
	l.find(f)
	return nil
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
