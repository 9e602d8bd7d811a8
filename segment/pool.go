package segment

import (
	"sync"
	"sync/atomic"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/internal/vfs"
)

// mostOpen and descriptors bound how many segments a Pool keeps open if it is not told: while opening a segment again costs
// some 20 µs where it was not among the last 128 that somebody read, it has up to four descriptors, one of them for a
// transaction index, and up to two maps.
const (
	mostOpen    = 128
	leastOpen   = 2
	descriptors = 4
)

// DefaultOpen is how many segments a Pool keeps open if it is not told: 128, or as many as take a quarter of the descriptors
// that the process was allowed when it was first asked, but 2 at least. The rest is for what comes on top, for other logs,
// and for the program around them.
var DefaultOpen = sync.OnceValue(func() int { return defaultOpen(vfs.DescriptorLimit()) })

func defaultOpen(limit int) int { return min(mostOpen, max(leastOpen, limit/4/descriptors)) }

// Pool bounds how many segments have files open: when one more is opened, the files of the one that was used longest ago are
// closed, as Park does, and its next use opens them again. It never closes the files of a segment that is writable, that
// somebody has acquired, that is being removed, or whose File was handed out; those come on top of the bound. Index entries
// that were not flushed are flushed before, and such segments are kept up to twice the bound. Nobody waits for a segment that is being put away: what is in use is passed over.
//
// A Pool serves the segments of any number of logs. Its zero value is ready, with DefaultOpen. All methods may be called by
// anybody at any time.
type Pool struct {
	bound int

	// tick counts opens. A segment that is used notes the count, which costs no lock and changes nothing that others read
	// while no segment is opened; so the one with the lowest count was used longest ago, to within one open.
	tick atomic.Int64

	mu   sync.Mutex
	open []*Segment // in no order; guarded by mu
}

// NewPool returns a Pool that keeps the files of up to n segments open; 0 means DefaultOpen.
func NewPool(n int) *Pool { return &Pool{bound: n} }

// Open returns how many segments have files open now.
func (p *Pool) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open)
}

// member is what a segment and its pool know of each other.
type member struct {
	lastUse atomic.Int64 // of pool.tick
	listed  bool         // guarded by pool.mu

	pinned  atomic.Bool           // File was handed out
	changes atomic.Int64          // of the indexes
	flushed atomic.Int64          // of those, made durable
	failed  atomic.Pointer[error] // of a flush that nobody asked for: the next one that somebody asks for returns it
}

// changed notes that an index was changed. The caller still holds use.
func (s *Segment) changed() { s.member.changes.Add(1) }

// used notes that the segment is in use.
func (s *Segment) used() {
	if p := s.cfg.Pool; p != nil {
		if now := p.tick.Load(); s.member.lastUse.Load() != now {
			s.member.lastUse.Store(now)
		}
	}
}

// opened notes that a file of the segment was opened, and puts others away where there are too many. The caller holds use of
// s, and nothing of any other segment.
func (s *Segment) opened() {
	p := s.cfg.Pool
	if p == nil {
		return
	}
	now := p.tick.Add(1)
	s.member.lastUse.Store(now)
	p.mu.Lock()
	if !s.member.listed {
		s.member.listed = true
		p.open = append(p.open, s)
	}
	p.mu.Unlock()
	for {
		v := p.victim(s, now)
		if v == nil {
			return
		}
		if !v.putAway() {
			v.member.lastUse.Store(now) // it is in use
		}
	}
}

// victim returns the segment that was used longest ago, before now, if there are too many.
func (p *Pool) victim(but *Segment, now int64) (v *Segment) {
	bound := p.bound
	if bound <= 0 {
		bound = DefaultOpen()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.open) <= bound {
		return nil
	}
	flush := len(p.open) > 2*bound
	for _, s := range p.open {
		if use := s.member.lastUse.Load(); s != but && use < now && (flush || !s.unflushed()) {
			v, now = s, use
		}
	}
	return v
}

// forget takes a segment whose files are closed off the list. The caller holds use of it for writing.
func (p *Pool) forget(s *Segment) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !s.member.listed {
		return
	}
	s.member.listed = false
	last := len(p.open) - 1
	for i, o := range p.open {
		if o == s {
			p.open[i] = p.open[last]
			break
		}
	}
	p.open[last] = nil
	p.open = p.open[:last]
}

// putAway closes the files if nobody uses or needs them, and waits for nobody: the caller has another segment in use, whose
// user may be doing the same to this one.
func (s *Segment) putAway() bool {
	if !s.flushBefore() || !s.syncing.TryLock() {
		return false
	}
	defer s.syncing.Unlock()
	if !s.use.TryLock() {
		return false
	}
	idle := s.isIdle()
	var files openFiles
	if idle {
		files = s.detach()
	}
	s.use.Unlock()
	// Readers go on with files of their own meanwhile. What was written is flushed: an error of closing says nothing of it.
	_ = files.close()
	return idle
}

// isIdle tells whether the files may be closed now. The caller holds use for writing.
func (s *Segment) isIdle() bool {
	s.life.Lock()
	defer s.life.Unlock()
	return !s.closed && !s.life.closing && s.life.held == 0 &&
		!s.writable.Load() && !s.member.pinned.Load() && !s.unflushed()
}

// unflushed tells whether an index was changed since it was flushed.
func (s *Segment) unflushed() bool { return s.member.flushed.Load() < s.member.changes.Load() }

// flushBefore flushes the indexes of a segment that is no longer written to. It comes to that while a recovery makes the
// indexes of many segments anew; in a log that is open a rolled segment is flushed soon.
func (s *Segment) flushBefore() bool {
	if s.writable.Load() || !s.unflushed() {
		return true
	}
	if !s.syncing.TryRLock() {
		return false
	}
	defer s.syncing.RUnlock()
	if !s.use.TryRLock() {
		return false
	}
	files := openFiles{offset: s.files.offset.p.Load(), time: s.files.time.p.Load(), txn: s.files.txn.p.Load()}
	closed := s.closed
	s.use.RUnlock()
	if closed {
		return false
	}
	if err := s.flushIndexes(files); err != nil {
		s.member.failed.Store(&err) // a later flush may succeed although the entries are gone
		return false
	}
	return true
}

// openFiles are the files of a segment that are open, nil where one is not.
type openFiles struct {
	log    *openFile
	offset *index.Offset
	time   *index.Time
	txn    *index.Txn
}

// detach takes the open files out of use. The caller holds use for writing, or is alone, and closes them.
func (s *Segment) detach() openFiles {
	s.member.pinned.Store(false)
	s.cfg.Pool.forget(s)
	return openFiles{log: s.files.log.p.Swap(nil), offset: s.files.offset.p.Swap(nil), time: s.files.time.p.Swap(nil), txn: s.files.txn.p.Swap(nil)}
}
