package wal

import (
	"context"
	"sync"
)

// Pending is an append that has its offsets and may not be durable yet.
type Pending struct {
	result Result // set before the Pending is handed out
	ticket uint64
	ack    Ack

	mu   sync.Mutex
	over bool          // guarded by mu
	err  error         // guarded by mu
	done chan struct{} // made when somebody asks; guarded by mu
}

// AppendAsync is Append for a caller that does not wait: it gives the records their place in the log, in the order of the
// calls, and returns. So one goroutine keeps many appends in flight, and they share syncs. What the append waits for
// happens whether or not somebody waits.
//
// In SyncCommit the records become visible to readers when they are durable, and a call blocks for a sync while as many
// bytes wait for theirs as fit into one group (Options.GroupBytes): memory stays bounded. In the other modes the
// Pending is done at once. The records' bytes are read during the call only. Errors are those of Append, and come from
// Wait.
func (l *Log) AppendAsync(recs ...Record) *Pending {
	r, ticket, err := l.accept(recs, &batchOptions{})
	return l.pend(r, ticket, err, AckSync)
}

// pend makes a Pending of what an append was told when it was accepted.
func (l *Log) pend(r Result, ticket uint64, err error, ack Ack) *Pending {
	p := &Pending{result: r, ticket: ticket, ack: ack}
	switch {
	case err != nil:
		p.finish(err)
	case ticket == 0 || !l.waits(ack):
		p.finish(nil)
	case !l.driver.add(l, p):
		p.finish(l.await(ticket, ack))
	}
	return p
}

// Wait returns the result of the append when it is known, or ctx.Err() when the context ends before. The append goes on
// then, and Wait may be called again, by any number of goroutines. The errors are those of Append: ErrClosed means that
// the log was closed before the append got its place, and that nothing was stored.
func (p *Pending) Wait(ctx context.Context) (Result, error) {
	p.mu.Lock()
	over := p.over
	p.mu.Unlock()
	if !over {
		select {
		case <-p.Done():
		case <-ctx.Done():
			return Result{}, ctx.Err()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return Result{}, p.err
	}
	return p.result, nil
}

// Done returns a channel that is closed when the outcome is known, so that Wait does not block.
func (p *Pending) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == nil {
		p.done = make(chan struct{})
		if p.over {
			close(p.done)
		}
	}
	return p.done
}

func (p *Pending) finish(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over, p.err = true, err
	if p.done != nil {
		close(p.done)
	}
}

// driver is the goroutine that syncs for those who do not wait. It begins with the first of them and ends with Close.
type driver struct {
	mu      sync.Mutex    // a leaf
	queue   []*Pending    // in the order of their tickets, but for neighbours that raced; guarded by mu
	spare   []*Pending    // the driver's
	kick    chan struct{} // capacity 1; nil before the first; guarded by mu
	ended   chan struct{}
	stopped bool // guarded by mu
}

// add hands over a Pending, and returns false if the log is closed.
func (d *driver) add(l *Log, p *Pending) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return false
	}
	if d.kick == nil {
		d.kick, d.ended = make(chan struct{}, 1), make(chan struct{})
		go d.run(l)
	}
	d.queue = append(d.queue, p)
	d.wake()
	return true
}

// wake tells the driver that something changed. The caller holds mu.
func (d *driver) wake() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// stop ends the driver after it has settled everything. The log is durable, or failed or closed for waitDurable.
func (d *driver) stop() {
	d.mu.Lock()
	d.stopped = true
	started := d.kick != nil
	if started {
		d.wake()
	}
	d.mu.Unlock()
	if started {
		<-d.ended
	}
}

func (d *driver) run(l *Log) {
	defer close(d.ended)
	for {
		<-d.kick
		for {
			d.mu.Lock()
			batch, stopped := d.queue, d.stopped
			d.queue = d.spare[:0]
			d.mu.Unlock()
			if len(batch) == 0 {
				d.spare = batch
				if stopped {
					return
				}
				break
			}
			for _, p := range batch {
				p.finish(l.await(p.ticket, p.ack))
			}
			clear(batch)
			d.spare = batch
		}
	}
}
