package recovery

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/oncelog/oncelog/index"
)

// TxnSum stands for a set of entries of transaction indexes, which have no checksum: their number, and the sum of the XXH64
// of each. Entries may be added and removed in any order.
type TxnSum struct{ Count, Sum uint64 }

// Add adds an entry.
func (s *TxnSum) Add(t index.AbortedTxn) {
	s.Count++
	s.Sum += txnHash(t)
}

// Remove takes an entry out that was added.
func (s *TxnSum) Remove(t index.AbortedTxn) {
	s.Count--
	s.Sum -= txnHash(t)
}

// txnHash is the XXH64 of the numbers of an entry in the order of the file, without its version.
func txnHash(t index.AbortedTxn) uint64 {
	var b [32]byte
	for i, v := range [...]int64{t.ProducerID, t.FirstOffset, t.LastOffset, t.LastStableOffset} {
		binary.BigEndian.PutUint64(b[8*i:], uint64(v))
	}
	return xxhash.Sum64(b[:])
}

// txnTotals are the sums of the entries of a transaction index.
type txnTotals struct {
	below TxnSum // from a log start on, below a recovery point
	all   TxnSum // from a log start on
}

func (t *txnTotals) add(o txnTotals) {
	t.below.Count, t.below.Sum = t.below.Count+o.below.Count, t.below.Sum+o.below.Sum
	t.all.Count, t.all.Sum = t.all.Count+o.all.Count, t.all.Sum+o.all.Sum
}

func (t *txnTotals) count(e index.AbortedTxn, from, below int64) {
	if e.LastOffset < from {
		return
	}
	t.all.Add(e)
	if e.LastOffset < below {
		t.below.Add(e)
	}
}

// sumTxns adds up the entries of all transaction indexes from a log start on, and those of them below a recovery point. Of the
// files it asks those only that were there when the directory was listed.
func (l *loader) sumTxns(from, below int64) (sum txnTotals, err error) {
	bases := map[int64]bool{}
	for _, n := range l.names {
		if s, ok := l.txnIndexOf(n); ok && !l.isDeleted(s) {
			bases[s.BaseOffset()] = true
		}
	}
	for base := range l.aborted {
		bases[base] = true
	}
	for base := range bases {
		s, ok := l.segments.Get(base)
		if !ok {
			continue
		}
		t, known := l.txnTotals[base]
		if _, replaced := l.aborted[base]; replaced || !known || from != l.slot.LogStart || below != l.slot.Recovery.Offset {
			t = txnTotals{}
			if err := l.eachAborted(s, func(e index.AbortedTxn) { t.count(e, from, below) }); err != nil {
				return sum, err
			}
		}
		sum.add(t)
	}
	return sum, nil
}
