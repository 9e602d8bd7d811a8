package index

import (
	"fmt"
	"iter"
)

// open returns ErrClosed if the index is closed.
func (x *mapped) open() error {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.closed {
		return fmt.Errorf("%w: %s", ErrClosed, x.path)
	}
	return nil
}

func (x *mapped) corrupt(entry int, format string, args ...any) error {
	return &CorruptError{Path: x.path, Entry: entry, Reason: fmt.Sprintf(format, args...)}
}

// checkLength is the part of Kafka's sanity check that is the same for both indexes.
func (x *mapped) checkLength() error {
	x.wmu.Lock()
	defer x.wmu.Unlock()
	if x.closed {
		return fmt.Errorf("%w: %s", ErrClosed, x.path)
	}
	if rest := x.length % int64(x.size); rest != 0 {
		return x.corrupt(-1, "%d bytes, %d more than whole entries of %d", x.length, rest, x.size)
	}
	return nil
}

func (x *mapped) pairNumber(i int) (pair, error) {
	var e [1]pair
	if i < 0 {
		return pair{}, fmt.Errorf("%w: %s: entry %d", ErrInvalidEntries, x.path, i)
	}
	n, err := x.copyPairs(i, e[:])
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: %s: entry %d of %d", ErrInvalidEntries, x.path, i, x.Entries())
	}
	return e[0], err
}

// pairs yields the entries as stored. No lock is held while the caller's code runs.
func (x *mapped) pairs() iter.Seq2[pair, error] {
	return func(yield func(pair, error) bool) {
		var chunk [64]pair
		for i := 0; ; {
			n, err := x.copyPairs(i, chunk[:])
			if err != nil {
				yield(pair{}, err)
				return
			}
			if n == 0 {
				return
			}
			for _, e := range chunk[:n] {
				if !yield(e, nil) {
					return
				}
			}
			i += n
		}
	}
}
