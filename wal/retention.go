package wal

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/segment"
)

// Verdict is why a segment goes at the next DeleteOldSegments, or why it stays.
type Verdict uint8

// The verdicts. Those that begin with Delete let the segment go.
const (
	KeepNoRule        Verdict = iota // no option asks for a deletion: none of RetentionBytes, RetentionCount and RetentionAge, or a log that only compacts
	KeepNeeded                       // the rules there are want it kept: without it the log is too small, and it is not too old
	KeepNotReplicated                // it reaches above the high watermark
	KeepTransaction                  // an open transaction, or one whose end is not replicated, begins in it or before it ends
	KeepPinned                       // a Pin holds it
	KeepName                         // it has the last batch of a named producer, of which two side files must know first
	KeepLast                         // the log needs one segment, and this one is empty
	KeepBehind                       // the rules would let it go, but an older segment stays, and a log has no holes
	DeleteBelowStart                 // it lies below the log start
	DeleteTooMuch                    // the log has RetentionBytes without it
	DeleteTooOld                     // its newest record is older than RetentionAge
	DeleteTooMany                    // the log has RetentionCount offsets without it
)

// Deletes tells whether the segment goes.
func (v Verdict) Deletes() bool { return v >= DeleteBelowStart }

// String returns the verdict in words.
func (v Verdict) String() string {
	names := [...]string{"no rule", "needed", "not replicated", "transaction", "pinned", "named producer", "last segment", "behind a kept one",
		"below the log start", "too much", "too old", "too many"}
	if int(v) < len(names) {
		return names[v]
	}
	return "unknown verdict"
}

// SegmentRetention is what retention makes of one segment.
type SegmentRetention struct {
	BaseOffset int64 // first offset
	EndOffset  int64 // first offset behind it
	Bytes      int64 // of its batches
	Newest     int64 // what its age counts from, milliseconds: its greatest timestamp, or the time of its file if it has none
	Verdict    Verdict
	Reason     string // the verdict with its numbers, one sentence
}

// ExplainRetention tells for each segment, oldest first, whether DeleteOldSegments at now would remove it, and why or why not.
// It changes nothing. The slice belongs to the caller.
func (l *Log) ExplainRetention(now time.Time) ([]SegmentRetention, error) {
	if l.isClosed.Load() {
		return nil, ErrClosed
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, ErrClosed
	}
	// A pass writes the producer state down before it deletes: that side file counts already.
	r := l.planRetention(now, l.end.offset)
	r.explain()
	return r.segments, r.err
}

// DeleteOldSegments removes the oldest segments that nothing keeps: those wholly below the log start, and where the options
// ask for it (RetentionBytes, RetentionCount, RetentionAge) those that are too much, too many or too old at now. It returns how many went; the log
// start moves up to the first that is left. The files stay for Options.FileDeleteDelay under the suffix .deleted, and a reader
// that holds a Fetch of one reads on. A compacted log, unless it is to be deleted from as well, gives only what lies below its
// start. Kept are a segment that reaches above the high watermark, one that a Pin or (without Compat) an open transaction
// needs, and all behind a kept one. ExplainRetention says what would happen.
//
// Without Compat ages are judged by now only as far as the log supports it: up to the clock of the newest append, or the
// clock at the open and the time that has passed since. So a machine that starts with a clock years ahead deletes nothing for it. Kafka:
// UnifiedLog.deleteOldSegments.
func (l *Log) DeleteOldSegments(now time.Time) (deleted int, err error) {
	if err := l.writable(); err != nil {
		return 0, err
	}
	l.maintenance.Lock()
	defer l.maintenance.Unlock()
	l.finishRolls()
	l.mu.Lock()
	r := l.planRetention(now, l.end.offset)
	l.mu.Unlock()
	if r.err != nil || r.gone == 0 {
		return 0, r.err
	}
	if err := l.keepNames(); err != nil {
		return 0, err
	}
	if r.gone == len(r.segments) {
		// Nothing would be left: what is appended next has a segment of its own.
		err := l.exclusively(func() error { return l.roll(l.end.offset, l.opts.Now()) })
		if err != nil {
			return 0, err
		}
		l.finishRolls()
	}
	err = l.exclusively(func() error {
		r := l.planRetention(now, noOffset)
		deleted = min(r.gone, len(r.segments)-1)
		if r.err != nil || deleted == 0 {
			return r.err
		}
		return l.deleteSegments(r.segments[:deleted])
	})
	if err != nil {
		return 0, err
	}
	l.finishRolls()
	return deleted, nil
}

// retention is a judgement of segments.
type retention struct {
	l         *Log
	segments  []SegmentRetention
	files     []*segment.Segment
	gone      int // so many of the segments go, from the oldest on
	keepBytes int64
	hasBytes  bool
	keepCount int64 // 0: all
	maxAge    int64 // milliseconds
	hasAge    bool
	clock     int64
	name      producerstate.Named // has its last batch at nameAt, which must not go
	nameAt    int64               // math.MaxInt64 if there is none
	err       error
}

// planRetention judges the segments up to the first that stays. sideFile is the offset of a side file that is to be written
// first, noOffset if none is. The caller holds mu, and for a plan that is carried out is alone.
func (l *Log) planRetention(now time.Time, sideFile int64) *retention {
	o := l.settings()
	r := &retention{l: l, clock: l.supported(now)}
	r.name, r.nameAt = l.lastOfNames(sideFile)
	if o.CleanupPolicy&CleanupDelete != 0 {
		r.keepBytes, r.hasBytes = o.retentionBytes()
		r.keepCount = o.RetentionCount
		r.maxAge, r.hasAge = o.RetentionAge.Milliseconds(), o.RetentionAge != Never
	}
	for s := range l.set.All() {
		size, err := s.Size()
		r.note(err)
		if n := len(r.segments); n > 0 {
			r.segments[n-1].EndOffset = s.BaseOffset()
		}
		r.segments = append(r.segments, SegmentRetention{BaseOffset: s.BaseOffset(), EndOffset: l.end.offset, Bytes: size, Newest: unmeasured})
		r.files = append(r.files, s)
	}
	r.segments[len(r.segments)-1].Bytes = l.end.position // what waits for its sync has no file size yet
	r.judge()
	return r
}

// unmeasured is a time that was not looked for yet.
const unmeasured = math.MinInt64

// age is how old the newest record of a segment is, in milliseconds.
func (r *retention) age(i int) int64 {
	s := &r.segments[i]
	if s.Newest == unmeasured {
		newest, err := r.files[i].LargestTimestamp()
		r.note(err)
		s.Newest = newest
	}
	if d := r.clock - s.Newest; d >= 0 || r.clock < s.Newest {
		return d
	}
	return math.MaxInt64 // it overflowed: times come from files and clients
}

func (r *retention) note(err error) {
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("wal: retention: %w", err)
	}
}

// judge applies the rules in Kafka's order, each from the oldest segment that is left up to the first that it keeps.
func (r *retention) judge() {
	for _, rule := range []func(i int) bool{r.belowStart, r.tooMuch(), r.tooOld, r.tooMany} {
		for r.err == nil && r.gone < len(r.segments) && !r.held(r.gone) && rule(r.gone) {
			r.gone++
		}
	}
}

// explain judges the segments that stay.
func (r *retention) explain() {
	for i := range r.segments {
		r.age(i)
	}
	for i := r.gone; i < len(r.segments); i++ {
		s := &r.segments[i]
		switch {
		case r.held(i):
		case i > r.gone && (r.belowStart(i) || r.tooOld(i) || r.tooMany(i)):
			s.set(KeepBehind, "%s, but the segment at %d stays and a log has no holes", s.Reason, r.segments[r.gone].BaseOffset)
		case !r.hasBytes && !r.hasAge && r.keepCount == 0:
			s.set(KeepNoRule, "no option asks for its deletion")
		default:
			s.set(KeepNeeded, "%s", r.need(i))
		}
	}
}

func (s *SegmentRetention) set(v Verdict, format string, args ...any) bool {
	s.Verdict, s.Reason = v, fmt.Sprintf(format, args...)
	return true
}

func (r *retention) last(i int) bool { return i == len(r.segments)-1 }

func (r *retention) belowStart(i int) bool {
	s := &r.segments[i]
	return !r.last(i) && s.EndOffset <= r.l.ends.logStart &&
		s.set(DeleteBelowStart, "its end %d is not above the log start %d", s.EndOffset, r.l.ends.logStart)
}

// tooMuch counts what the rule before has left, when it is first asked.
func (r *retention) tooMuch() func(i int) bool {
	rest := int64(-1)
	return func(i int) bool {
		if !r.hasBytes {
			return false
		}
		if rest < 0 {
			rest = 0
			for _, s := range r.segments[i:] {
				rest += s.Bytes
			}
		}
		s := &r.segments[i]
		if rest-s.Bytes < r.keepBytes {
			return false
		}
		rest -= s.Bytes
		return s.set(DeleteTooMuch, "%d bytes are left without it, RetentionBytes is %d", rest, r.keepBytes)
	}
}

func (r *retention) tooOld(i int) bool {
	return r.hasAge && r.age(i) > r.maxAge && r.segments[i].set(DeleteTooOld, "%s", r.howOld(i))
}

func (r *retention) tooMany(i int) bool {
	return r.keepCount > 0 && r.behind(i) >= r.keepCount && r.segments[i].set(DeleteTooMany, "%s", r.howMany(i))
}

// behind is how many offsets lie behind a segment.
func (r *retention) behind(i int) int64 { return r.l.end.offset - r.segments[i].EndOffset }

func (r *retention) howMany(i int) string {
	return fmt.Sprintf("%d offsets lie behind it, RetentionCount is %d", r.behind(i), r.keepCount)
}

// need is why the rules want a segment.
func (r *retention) need(i int) string {
	var list []string
	if r.hasBytes {
		rest := int64(0)
		for _, s := range r.segments[i+1:] {
			rest += s.Bytes
		}
		list = append(list, fmt.Sprintf("%d bytes lie behind it, RetentionBytes is %d", rest, r.keepBytes))
	}
	if r.keepCount > 0 {
		list = append(list, r.howMany(i))
	}
	if r.hasAge {
		list = append(list, r.howOld(i))
	}
	return strings.Join(list, "; ")
}

func (r *retention) howOld(i int) string {
	return fmt.Sprintf("its newest record is %v old, RetentionAge is %v", milliseconds(r.age(i)), milliseconds(r.maxAge))
}

// held tells whether something keeps a segment whatever the rules say.
func (r *retention) held(i int) bool {
	l, s := r.l, &r.segments[i]
	if r.last(i) && s.Bytes == 0 {
		return s.set(KeepLast, "the log goes on in it")
	}
	if high := l.ends.high.offset; high < s.EndOffset {
		return s.set(KeepNotReplicated, "it ends at %d, the high watermark is %d", s.EndOffset, high)
	}
	if p := l.pins.lowest(); p != nil && p.offset < s.EndOffset {
		return s.set(KeepPinned, "%q holds the records from %d on", p.holder, p.offset)
	}
	if l.opts.Compat {
		return false
	}
	if u := l.ends.unstable.offset; u >= 0 && u < s.EndOffset {
		return s.set(KeepTransaction, "%s", l.describeUnstable())
	}
	return r.nameAt < s.EndOffset && s.set(KeepName, "the last batch of producer %q, at %d, is not in two side files yet", r.name.Name, r.nameAt)
}

// describeUnstable says which transaction comes first of those that committed readers wait for. The caller holds mu.
func (l *Log) describeUnstable() string {
	txn, ended, _ := l.firstUnstable()
	what := "is open"
	if ended {
		what = "has ended above the high watermark"
	}
	return fmt.Sprintf("a transaction of producer %d from offset %d on %s", txn.ProducerID, txn.First.Offset, what)
}

// lastOfNames is the lowest last batch of a named producer that is not in two generations of side files, where one that is
// about to be written counts. The caller holds mu.
func (l *Log) lastOfNames(sideFile int64) (name producerstate.Named, at int64) {
	at = math.MaxInt64
	if l.opts.Compat {
		return name, at
	}
	generations := l.producers.Snapshots()
	if sideFile != noOffset && !slices.Contains(generations, sideFile) {
		generations = append(generations, sideFile)
	}
	slices.Sort(generations)
	for _, n := range l.producers.NamedProducers() {
		e, known := l.producers.LastEntry(n.ID)
		last, some := e.LastBatch()
		safe := len(generations) >= 2 && generations[len(generations)-2] > last.LastOffset
		if known && some && !safe && last.LastOffset < at {
			name, at = n, last.LastOffset
		}
	}
	return name, at
}

// supported is the clock that ages are judged at: now, but no later than the newest append, or the time that the log had at
// the open and what has passed since. The caller holds mu.
func (l *Log) supported(now time.Time) int64 {
	if l.opts.Compat {
		return now.UnixMilli()
	}
	passed := max(0, now.Sub(l.opened.at).Milliseconds())
	return min(now.UnixMilli(), max(l.clock, l.opened.clock+passed))
}

// opened is when the log was opened, by the clock of the machine and by what the log knew of the time.
type opened struct {
	at    time.Time
	clock int64 // milliseconds
}

// noteOpened finds out what the log knows of the time: from its newest append, its newest record or its newest file.
func (l *Log) noteOpened(now time.Time) {
	l.opened = opened{at: now, clock: l.clock}
	if l.opened.clock < 0 {
		l.opened.clock = l.newest
	}
	if l.opened.clock < 0 {
		newest, err := l.active.LargestTimestamp()
		if err != nil {
			l.warn("time of the newest segment", err) // then it grows from 0, and nothing is too old
		}
		l.opened.clock = newest
	}
}

// milliseconds is a number of milliseconds as a duration.
func milliseconds(n int64) time.Duration {
	if n > math.MaxInt64/int64(time.Millisecond) {
		return Never
	}
	return time.Duration(n) * time.Millisecond
}

// deleteSegments takes the oldest segments, and not all, out of the log. The log start is moved, durably, before the first file
// is touched, and what the state file says about batches in them is withdrawn. The caller is alone.
func (l *Log) deleteSegments(plan []SegmentRetention) error {
	first, ok := l.set.Higher(plan[len(plan)-1].BaseOffset)
	if !ok {
		return fmt.Errorf("wal: no segment would be left behind %d", plan[len(plan)-1].BaseOffset)
	}
	l.withdrawIdentities(first.BaseOffset())
	if err := l.raiseLogStart(max(l.ends.logStart, first.BaseOffset())); err != nil {
		l.fail(err)
		return l.failure()
	}
	set, list := l.set, make([]*segment.Segment, 0, len(plan))
	for _, p := range plan {
		s, _ := set.Get(p.BaseOffset)
		list, set = append(list, s), set.Without(p.BaseOffset)
	}
	l.setSegments(set)
	for i, s := range list {
		if err := l.discard(s); err != nil {
			l.fail(fmt.Errorf("wal: delete a segment: %w", err))
			return l.failure()
		}
		l.opts.Logger.Info("deleted", "dir", l.dir, "segment", s.BaseOffset(), "rule", plan[i].Verdict, "reason", plan[i].Reason)
	}
	if err := l.fsys.SyncDir(l.dir); err != nil {
		l.fail(fmt.Errorf("wal: delete a segment: %w", err))
		return l.failure()
	}
	return nil
}
