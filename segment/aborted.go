package segment

import (
	"errors"
	"io/fs"

	"github.com/oncelog/oncelog/index"
)

// AppendAborted adds an aborted transaction, whose marker is in this segment, to the transaction index, which is created
// with the first one. Unlike the other indexes this one may be added to whether or not the segment takes appends, since
// recovery fills it for sealed segments too; a read-only segment is ErrNotWritable, unless it keeps them in memory
// (ShadowAborted).
func (s *Segment) AppendAborted(t index.AbortedTxn) error {
	if s.cfg.ReadOnly {
		if k := s.shadow.Load(); k != nil {
			k.add(t)
			return nil
		}
		return s.notWritable()
	}
	return s.withTxn(func(x *index.Txn) error {
		defer s.changed()
		return x.Append(t)
	})
}

// ResetTxnIndex empties the transaction index, for AppendAborted to fill again. A missing one stays missing.
func (s *Segment) ResetTxnIndex() error {
	if s.cfg.ReadOnly {
		return s.notWritable()
	}
	return s.withTxn(func(x *index.Txn) error {
		defer s.changed()
		return x.Reset()
	})
}

// AbortedTxns returns the aborted transactions, among those whose marker is in this segment, that a fetch of the offsets
// [from, upper) has to know: marker at or above from, first offset below upper. Complete tells that no later segment can
// hold another one; if it is false, ask the next segment too. A missing index is an empty one. Source:
// TransactionIndex.collectAbortedTxns.
func (s *Segment) AbortedTxns(from, upper int64) (txns []index.AbortedTxn, complete bool, err error) {
	// First what is kept, then the file: the other way round ForgetShadow could come in between.
	k := s.shadow.Load()
	if k == nil {
		return s.listedAborted(from, upper)
	}
	if err := s.enter(); err != nil {
		return nil, false, err
	}
	defer s.leave()
	txns, complete = k.collect(from, upper)
	return txns, complete, nil
}

// knownAborts is what a look into the whole transaction index has shown. A fetch asks every segment behind its own whether it
// holds a transaction that began earlier, and hardly any does: what is known spares opening their files.
type knownAborts struct {
	changes int64 // of the indexes when it was looked; good while there is none since
	index.TxnBounds
}

// listedAborted is AbortedTxns of the file.
func (s *Segment) listedAborted(from, upper int64) (txns []index.AbortedTxn, complete bool, err error) {
	changes := s.member.changes.Load() // before the look: whoever changes the index counts after it
	if k := s.aborts.Load(); k != nil && k.changes == changes && k.Lowest >= upper {
		return nil, k.Stable >= upper, nil
	}
	exists, err := s.hasTxnIndex()
	if err != nil {
		return nil, false, err
	}
	bounds, known := index.NoTxns, !exists
	if exists {
		err = s.withTxn(func(x *index.Txn) (err error) {
			txns, complete, err = x.Collect(from, upper)
			// Only where every entry has been read just now: an index may be long, and grow between one fetch and the next.
			if known = err == nil && !complete && len(txns) == 0 && from <= s.base; known {
				bounds, err = x.Bounds()
			}
			return err
		})
	}
	if known && err == nil {
		s.aborts.Store(&knownAborts{changes, bounds})
	}
	return txns, complete, err
}

// hasTxnIndex tells whether there is anything to open, and opens nothing, so that no other segment has to make place in the
// Pool.
func (s *Segment) hasTxnIndex() (bool, error) {
	if err := s.enter(); err != nil {
		return false, err
	}
	defer s.leave()
	if s.files.txn.p.Load() != nil {
		return true, nil
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	_, err := s.fsys.Stat(s.path(3))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return true, nil // what else is wrong, the open tells
}

// AbortedEnding calls f for each aborted transaction in the transaction index whose marker is in [from, to), in order. An entry
// that cannot be is an error; f has had those before it.
func (s *Segment) AbortedEnding(from, to int64, f func(index.AbortedTxn)) error {
	if exists, err := s.hasTxnIndex(); err != nil || !exists {
		return err
	}
	return s.withTxn(func(x *index.Txn) error { return x.Ending(from, to, f) })
}

// PartialAborted is the size of the partial entry at the end of the transaction index.
func (s *Segment) PartialAborted() (n int, err error) {
	err = s.withTxn(func(x *index.Txn) error {
		n = x.PartialBytes()
		return nil
	})
	return n, err
}

// UpperBound returns an offset that bounds from above what the size bytes from position pos can hold: that of the first
// index entry at or behind their end, and before byte end. It is false if there is none, or if that entry does not fit the
// log: the bound is then the base offset of the next segment, or the log end offset. A bound that is too low would hide
// aborted transactions, so an entry is not believed here either. Source: LogSegment.fetchUpperBoundOffset.
func (s *Segment) UpperBound(pos, size, end int64) (offset int64, ok bool, err error) {
	if end, err = s.limit(end); err != nil {
		return 0, false, err
	}
	if pos < 0 || size < 0 || pos >= end || size >= end-pos || end > MaxBytes {
		return 0, false, nil
	}
	e, ok, err := s.upperEntry(int32(pos), int32(size))
	switch {
	case errors.Is(err, ErrClosed):
		return 0, false, err
	case err == nil && (!ok || int64(e.Position) >= end):
		return 0, false, nil
	case err == nil && int64(e.Position) >= pos+size:
		h, err := s.HeaderAt(int64(e.Position), end)
		if isReadError(err) {
			return 0, false, err
		}
		if err == nil && s.fits(&h, e) {
			return e.Offset, true, nil
		}
	}
	s.suspects.Add(1)
	return 0, false, nil
}

func (s *Segment) upperEntry(pos, size int32) (index.OffsetPosition, bool, error) {
	if err := s.enter(); err != nil {
		return index.OffsetPosition{}, false, err
	}
	defer s.leave()
	x, err := s.files.offset.get(s, openOffsetIndex)
	if err != nil {
		return index.OffsetPosition{}, false, err
	}
	return x.UpperBound(index.OffsetPosition{Offset: s.base, Position: pos}, size)
}

// WithIndexes runs f on the open indexes, for checks and dumps; they must not be kept, nor changed. No method of the
// segment may be called meanwhile.
func (s *Segment) WithIndexes(f func(*index.Offset, *index.Time, *index.Txn) error) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	txn, err := s.files.txn.get(s, openTxnIndex)
	if err != nil {
		return err
	}
	return s.indexes(func(offsets *index.Offset, times *index.Time) error { return f(offsets, times, txn) })
}
