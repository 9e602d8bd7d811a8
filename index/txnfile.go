package index

import (
	"fmt"
	"iter"
)

// txnChunk is how many entries are read at once.
const txnChunk = 60

// Path is the name the index was opened with. Close the index before its file is renamed.
func (x *Txn) Path() string { return x.path }

// BaseOffset is the base offset of the segment, as given at open.
func (x *Txn) BaseOffset() int64 { return x.base }

// Entries is the number of whole entries.
func (x *Txn) Entries() int { return int(x.n.Load()) }

// Exists reports whether there is a file: always after an Append, and false after Close.
func (x *Txn) Exists() bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.file != nil
}

// Created reports whether an Append created the file. Its name is durable after a sync of the directory.
func (x *Txn) Created() bool {
	x.wmu.Lock()
	defer x.wmu.Unlock()
	return x.created
}

// PartialBytes is the size of the partial entry at the end, 0 to 33.
func (x *Txn) PartialBytes() int {
	x.wmu.Lock()
	defer x.wmu.Unlock()
	return int(x.size % txnSize)
}

// Flush makes the entries durable, and a cut of the file too; without a file it does nothing. It may run beside
// appends, and covers those that returned before it began. After an error entries may be gone although a later Flush
// succeeds: rebuild the index, do not retry. Source: TransactionIndex.flush.
func (x *Txn) Flush() error {
	x.syncMu.Lock()
	defer x.syncMu.Unlock()
	if err := x.open(); err != nil || x.file == nil || x.ro {
		return err
	}
	sync := x.file.SyncData
	if x.shrunk {
		sync = x.file.Sync
	}
	if err := sync(); err != nil {
		return fmt.Errorf("index: %w", err)
	}
	x.shrunk = false
	return nil
}

// Close waits for reads that are under way and closes the file. It does not flush. Everything but Path, BaseOffset
// and the counts is ErrClosed from then on; closing again does nothing.
func (x *Txn) Close() error {
	x.wmu.Lock()
	defer x.wmu.Unlock()
	x.syncMu.Lock()
	defer x.syncMu.Unlock()
	x.mu.Lock()
	f := x.file
	x.file, x.closed = nil, true
	x.mu.Unlock()
	if f == nil {
		return nil
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("index: %w", err)
	}
	return nil
}

func (x *Txn) open() error {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.closed {
		return fmt.Errorf("%w: %s", ErrClosed, x.path)
	}
	return nil
}

// writable returns why the index cannot be changed, if it cannot. The caller holds wmu.
func (x *Txn) writable() error {
	switch {
	case x.closed:
		return fmt.Errorf("%w: %s", ErrClosed, x.path)
	case x.ro:
		return fmt.Errorf("%w: %s", ErrReadOnly, x.path)
	}
	return nil
}

// create creates the file if there is none. The caller holds wmu.
func (x *Txn) create() error {
	if x.file != nil {
		return nil
	}
	f, err := create(x.fsys, x.path)
	if err != nil {
		return err
	}
	x.syncMu.Lock()
	x.mu.Lock()
	x.file, x.created = f, true
	x.mu.Unlock()
	x.syncMu.Unlock()
	return nil
}

// learnLast reads the last offset of a file that was there at open. The caller holds wmu.
func (x *Txn) learnLast() error {
	n := x.n.Load()
	if x.known || x.kafka || n == 0 {
		return nil
	}
	for t, err := range x.from(n - 1) {
		if err != nil {
			return err
		}
		x.last, x.known = t.LastOffset, true
	}
	return nil
}

// cut leaves the first n entries. The caller holds wmu.
func (x *Txn) cut(n, last int64, known bool) error {
	x.syncMu.Lock()
	defer x.syncMu.Unlock()
	x.mu.Lock()
	x.n.Store(n)
	x.cuts++
	x.mu.Unlock()
	x.last, x.known = last, known
	if x.file == nil || x.size == n*txnSize {
		return nil
	}
	x.shrunk = true
	if err := x.file.Truncate(n * txnSize); err != nil {
		return fmt.Errorf("index: cut to %d bytes: %w", n*txnSize, err)
	}
	x.size = n * txnSize
	return nil
}

// read reads entries from number i on into p and returns how many it read, 0 at the end, and how often entries had
// been removed by then.
func (x *Txn) read(i int64, p []byte) (n, cuts int, err error) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.closed {
		return 0, 0, fmt.Errorf("%w: %s", ErrClosed, x.path)
	}
	n = int(min(int64(len(p)/txnSize), x.n.Load()-i))
	if n <= 0 {
		return 0, x.cuts, nil
	}
	if err = readFull(x.file, p[:n*txnSize], i*txnSize); err != nil {
		return 0, 0, fmt.Errorf("index: %s: read entry %d: %w", x.path, i, err)
	}
	return n, x.cuts, nil
}

// from yields the entries from number i on, checked. No lock is held while the caller's code runs.
func (x *Txn) from(i int64) iter.Seq2[AbortedTxn, error] {
	return func(yield func(AbortedTxn, error) bool) {
		fail := func(err error) { yield(AbortedTxn{}, err) }
		if x.n.Load() <= i {
			if err := x.open(); err != nil {
				fail(err)
			}
			return
		}
		p := make([]byte, min(txnChunk, x.n.Load()-i)*txnSize)
		last, seen := int64(-1), 0
		for {
			n, cuts, err := x.read(i, p)
			if err != nil {
				fail(err)
				return
			}
			if n == 0 {
				return
			}
			if cuts != seen {
				last, seen = -1, cuts // what was yielded before may be gone, and lower offsets appended since
			}
			for e := p[:n*txnSize]; len(e) > 0; e = e[txnSize:] {
				t, err := x.checked(int(i), e, last)
				if err != nil {
					fail(err)
					return
				}
				if !yield(t, nil) {
					return
				}
				last, i = t.LastOffset, i+1
			}
		}
	}
}

// checked parses entry i, whose predecessor has the given last offset.
func (x *Txn) checked(i int, p []byte, last int64) (AbortedTxn, error) {
	version, t := parseTxn(p)
	if version != 0 {
		return AbortedTxn{}, &VersionError{Path: x.path, Entry: i, Version: version}
	}
	if x.kafka {
		return t, nil
	}
	reason := t.problem(x.base)
	if reason == "" && t.LastOffset <= last {
		reason = fmt.Sprintf("last offset %d does not follow %d", t.LastOffset, last)
	}
	if reason != "" {
		return AbortedTxn{}, &CorruptError{Path: x.path, Entry: i, Reason: reason}
	}
	return t, nil
}

// firstEnding returns the number of the first entry whose last offset is offset or more. A log with many aborts has
// hundreds of thousands of entries a segment, and every fetch of committed data asks. None of the entries before it
// can end the search: its last stable offset is at most one behind its last offset, so not above offset. With
// KafkaOpen, which does not check that, the answer is 0.
func (x *Txn) firstEnding(offset int64) (int64, error) {
	lo, hi := int64(0), x.n.Load()
	if x.kafka || hi <= txnChunk {
		return 0, nil
	}
	p := make([]byte, txnSize)
	for lo < hi {
		mid := int64(uint64(lo+hi) / 2)
		n, _, err := x.read(mid, p)
		if err != nil {
			return 0, err
		}
		if n == 0 { // cut meanwhile
			hi = mid
			continue
		}
		t, err := x.checked(int(mid), p, -1)
		if err != nil {
			return 0, err
		}
		if t.LastOffset < offset {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, nil
}
