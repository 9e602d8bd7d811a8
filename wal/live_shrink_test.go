package wal

import (
	"reflect"
	"testing"
	"time"

	"github.com/oncelog/oncelog/internal/kafkatest"
	"github.com/oncelog/oncelog/interop"
)

// shrinker looks for a shorter run with the same difference.
type shrinker struct {
	t      testing.TB
	d      *interop.Driver
	kind   string // of the difference
	config kafkatest.Settings
	best   *liveRun // the shortest run so far that ends in the difference
	until  time.Time
	runs   int
}

// shrink returns the run again with fewer operations, and the number of runs that it took.
func shrink(t testing.TB, d *interop.Driver, r *liveRun, limit time.Duration) (*liveRun, int) {
	s := &shrinker{t: t, d: d, kind: r.diff.kind(), config: r.trace.Config, best: r, until: time.Now().Add(limit)}
	// First with operations that are made anew for the log as it is without those left out, then with those that came of it.
	s.reduce()
	for i := range s.best.done {
		op := s.best.trace.Ops[i+1]
		s.best.done[i] = liveOp{op: &op}
	}
	s.reduce()
	s.settings()
	s.reduce()
	return s.best, s.runs
}

// fails tells whether a run ends in the same difference, and keeps it if so.
func (s *shrinker) fails(config kafkatest.Settings, ops []liveOp) bool {
	if time.Now().After(s.until) {
		return false
	}
	s.runs++
	r := newLiveRun(s.t, s.d, config)
	for _, o := range ops {
		if r.ended {
			break
		}
		if o.op != nil {
			op := *o.op
			o.op = &op
		}
		r.do(o)
	}
	r.close()
	if r.diff == nil || r.diff.kind() != s.kind || len(r.done) > len(s.best.done) {
		return false
	}
	s.best, s.config = r, config
	return true
}

// reduce leaves out ever smaller pieces, from the end to the start, and then single operations until none can be left out.
func (s *shrinker) reduce() {
	found := false
	for size := max(1, len(s.best.done)/2); size > 1 || found; size = max(1, size/2) {
		found = s.sweep(size)
	}
}

// sweep tries to leave out each piece of a size, and tells whether that went with one.
func (s *shrinker) sweep(size int) (found bool) {
	for hi := len(s.best.done); hi > 0; hi -= size {
		ops := s.best.done
		hi = min(hi, len(ops))
		lo := max(0, hi-size)
		if s.fails(s.config, append(append([]liveOp{}, ops[:lo]...), ops[hi:]...)) {
			found = true
		}
	}
	return found
}

// settings leaves out settings, one by one. Files stay small: Kafka's own indexes of 10 MiB, and segments of 1 GiB that are
// there from the start, are slow to look at.
func (s *shrinker) settings() {
	for field := range reflect.TypeFor[kafkatest.Settings]().Fields() {
		config := s.config
		if f := reflect.ValueOf(&config).Elem().FieldByIndex(field.Index); !f.IsNil() &&
			field.Name != "SegmentIndexBytes" && (field.Name != "SegmentBytes" || config.Preallocate == nil) {
			f.SetZero()
			s.fails(config, s.best.done)
		}
	}
}
