package wal

import (
	"context"
	"sync"
)

// waiters wakes readers that wait for the log to change. Nothing is allocated and no lock of the log's is touched as
// long as nobody waits.
type waiters struct {
	mu sync.Mutex
	ch chan struct{} // closed at the next change; nil while nobody waits
}

func (w *waiters) wake() {
	w.mu.Lock()
	if w.ch != nil {
		close(w.ch)
		w.ch = nil
	}
	w.mu.Unlock()
}

func (w *waiters) next() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ch == nil {
		w.ch = make(chan struct{})
	}
	return w.ch
}

// Wait returns when a record at offset can be read at the isolation level, that is, when the level's end lies above
// offset, and above the whole batch that holds it. It returns ctx.Err() when the context ends before, ErrClosed when the
// log is closed, ErrFailed when it failed and so will not grow, and the error of reading where the level ends. In a log that
// was opened read-only it looks for what the writer in another process has done, as Tail says.
func (l *Log) Wait(ctx context.Context, offset int64, i Isolation) error {
	var p pause
	for {
		changed := l.waiters.next()
		e := l.visible.load()
		limit := e.limit(i)
		if l.isClosed.Load() && limit.readable() <= offset {
			return ErrClosed
		}
		if limit.offset > offset && !limit.resolved() {
			var err error
			if limit, err = l.limit(&e, i); err != nil {
				return err
			}
		}
		if limit.readable() > offset {
			return nil
		}
		if err := l.failure(); err != nil {
			return err
		}
		if l.opts.ReadOnly {
			if err := l.awaitWriter(ctx, changed, &p); err != nil {
				return err
			}
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
