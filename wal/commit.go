package wal

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/oncelog/oncelog/recovery"
	"github.com/oncelog/oncelog/segment"
)

// group is what SyncCommit has accepted and not yet begun to write: batches that lie next to each other in one segment.
// Guarded by Log.mu.
type group struct {
	buf      []byte
	segment  *segment.Segment
	position int64    // of buf in the segment
	end      place    // behind the last batch
	last     position // the same, with the identity of the last batch
	ticket   uint64   // of the last append in it
}

// position is the end of a stretch of the log as the state file names it.
type position = recovery.Position

// committer lets callers that need their bytes on disk share a sync. One of them leads: it takes the group, writes it
// with one write and one sync, and wakes the others. The leader is a caller, not a goroutine of the log, so that a lone
// caller pays no hand-over and a test that runs in one goroutine sees one order of operations.
//
// Tickets count appends. They only grow, so that a truncation, which takes offsets back, confuses no waiter.
type committer struct {
	mu      sync.Mutex // a leaf: nothing else is locked while it is held
	cond    sync.Cond
	leading bool
	durable uint64 // tickets up to here are on disk
	err     error  // the log failed: no ticket above durable ever will be
}

func (c *committer) init() { c.cond.L = &c.mu }

// lead waits until nobody leads and leads.
func (c *committer) lead() {
	c.mu.Lock()
	for c.leading {
		c.cond.Wait()
	}
	c.leading = true
	c.mu.Unlock()
}

// follow ends the leadership.
func (c *committer) follow() {
	c.mu.Lock()
	c.leading = false
	c.cond.Broadcast()
	c.mu.Unlock()
}

func (c *committer) done(ticket uint64) {
	c.mu.Lock()
	c.durable = max(c.durable, ticket)
	c.mu.Unlock()
}

func (c *committer) isDurable(ticket uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.durable >= ticket
}

func (c *committer) fail(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	c.cond.Broadcast()
	c.mu.Unlock()
}

// waitDurable returns when the append with the ticket is on disk, or cannot be any more.
func (l *Log) waitDurable(ticket uint64) error {
	c := &l.commit
	c.mu.Lock()
	for {
		switch {
		case c.durable >= ticket:
			c.mu.Unlock()
			return nil
		case c.err != nil:
			err := c.err
			c.mu.Unlock()
			return err
		case c.leading:
			c.cond.Wait()
			continue
		}
		c.leading = true
		c.mu.Unlock()
		l.quiesce()
		l.commitGroup()
		c.mu.Lock()
		c.leading = false
		c.cond.Broadcast()
	}
}

// quiesce yields until no append came in between two yields: callers that the last sync woke get a chance to be in this
// group, instead of waiting for the next one while a half empty group is synced.
func (l *Log) quiesce() {
	before := l.tickets.Load()
	for range 100 {
		runtime.Gosched()
		now := l.tickets.Load()
		if now == before {
			return
		}
		before = now
	}
}

// commitGroup writes and syncs the group that is there. The caller leads.
func (l *Log) commitGroup() {
	l.mu.Lock()
	g := l.takeGroup()
	l.mu.Unlock()
	if g.segment == nil {
		return
	}
	if err := l.writeGroup(&g); err != nil {
		l.fail(err)
		return
	}
	l.mu.Lock()
	l.groupIsDurable(&g)
	slot := l.slot()
	l.mu.Unlock()
	l.hint(slot)
	l.commit.done(g.ticket)
}

// drain makes everything that was accepted durable. The caller leads and holds mu, so that nothing is added meanwhile.
func (l *Log) drain() error {
	if err := l.failure(); err != nil {
		return err
	}
	g := l.takeGroup()
	if g.segment == nil {
		return nil
	}
	if err := l.writeGroup(&g); err != nil {
		l.fail(err)
		return l.failure()
	}
	l.groupIsDurable(&g)
	l.hint(l.slot()) // readers in other processes go by it
	l.commit.done(g.ticket)
	return nil
}

// takeGroup hands the group over and starts a new one with the other buffer. The caller holds mu and leads: the buffer
// that it gives back belongs to the group before, which is on disk.
func (l *Log) takeGroup() group {
	g := l.pending
	l.pending = group{buf: l.spare[:0]}
	l.spare = g.buf
	return g
}

func (l *Log) writeGroup(g *group) error {
	if err := g.segment.WriteAt(g.buf, g.position); err != nil {
		return fmt.Errorf("wal: write batches at byte %d of %s: %w", g.position, g.segment.Path(), err)
	}
	return syncData(g.segment)
}

// syncData makes the batches of a segment durable.
func syncData(s *segment.Segment) error {
	if err := s.SyncData(); err != nil {
		return fmt.Errorf("wal: sync %s: %w", s.Path(), err)
	}
	return nil
}

// groupIsDurable moves the durable end behind the group and shows it to readers. The caller holds mu.
func (l *Log) groupIsDurable(g *group) {
	l.durable = g.last
	l.publishEnd(g.end)
}

// stage accepts a batch for the next group. The caller holds mu.
func (l *Log) stage(p []byte) {
	g := &l.pending
	if g.segment == nil {
		g.segment, g.position = l.active, l.end.position
	}
	g.buf = append(g.buf, p...)
}

// staged notes where the group now ends. The caller holds mu.
func (l *Log) staged() {
	g := &l.pending
	g.end, g.last, g.ticket = l.end, l.lastPosition(), l.tickets.Load()
}

// lastPosition is the log end with the identity of the batch below it. The caller holds mu.
func (l *Log) lastPosition() position { return position{Offset: l.end.offset, Last: l.last} }

// exclusively runs f while nothing is pending and nobody appends: it leads, holds mu, and has drained. It is for what
// replaces the active segment or the end of the log.
func (l *Log) exclusively(f func() error) error {
	l.commit.lead()
	defer l.commit.follow()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	if err := l.drain(); err != nil {
		return err
	}
	return f()
}

// groupFull tells whether a batch of n bytes must wait for the next group, so that what lies between two syncs stays
// within the bound that the state file names. The caller holds mu.
func (l *Log) groupFull(n int) bool {
	return len(l.pending.buf) > 0 && int64(len(l.pending.buf))+int64(n) > l.groupBound
}
