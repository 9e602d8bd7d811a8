package wal

import "fmt"

// Pin keeps the records from an offset on from retention, for a reader that has not come to them yet. It lives in memory: a
// program that starts again pins again. All methods may be called by any number of goroutines at once.
type Pin struct {
	log    *Log
	holder string
	offset int64 // guarded by Log.mu
}

// pins are those that are held. Guarded by Log.mu.
type pins map[*Pin]struct{}

// lowest is the pin that holds back most, nil if there is none.
func (p pins) lowest() (lowest *Pin) {
	for pin := range p {
		if lowest == nil || pin.offset < lowest.offset || pin.offset == lowest.offset && pin.holder < lowest.holder {
			lowest = pin
		}
	}
	return lowest
}

// Pin keeps DeleteOldSegments away from the records at and above offset until Release. holder says who asks, for
// ExplainRetention. IncrementLogStartOffset and TruncateTo are told by somebody to remove records, and are not held up.
//
// An offset outside of the log is an *OffsetError. A log that is open read-only keeps no other process from deleting:
// ErrReadOnly.
func (l *Log) Pin(offset int64, holder string) (*Pin, error) {
	if err := l.writable(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return nil, err
	}
	if err := l.mayPin(offset); err != nil {
		return nil, err
	}
	p := &Pin{log: l, holder: holder, offset: offset}
	if l.pins == nil {
		l.pins = pins{}
	}
	l.pins[p] = struct{}{}
	return p, nil
}

func (l *Log) mayPin(offset int64) error {
	if offset < l.ends.logStart || offset > l.end.offset {
		return fmt.Errorf("wal: pin: %w", &OffsetError{Offset: offset, LogStart: l.ends.logStart, LogEnd: l.end.offset})
	}
	return nil
}

// Move holds the records from another offset on: further up as the reader goes on, or down while they are still there (an
// *OffsetError if not). After Release it is ErrInvalidArgument.
func (p *Pin) Move(offset int64) error {
	l := p.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, held := l.pins[p]; !held {
		return fmt.Errorf("%w: the pin of %q was released", ErrInvalidArgument, p.holder)
	}
	if err := l.mayPin(offset); err != nil {
		return err
	}
	p.offset = offset
	return nil
}

// Offset returns the first offset that the pin holds.
func (p *Pin) Offset() int64 {
	p.log.mu.Lock()
	defer p.log.mu.Unlock()
	return p.offset
}

// Release gives the records up. A second call does nothing.
func (p *Pin) Release() {
	p.log.mu.Lock()
	defer p.log.mu.Unlock()
	delete(p.log.pins, p)
}
