package wal

import (
	"math"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/recovery"
	"github.com/oncelog/oncelog/segment"
)

// txnSums keeps account of the entries of the transaction indexes from the log start on, which have no checksum of their own.
type txnSums struct {
	all          recovery.TxnSum // up to the log end
	checkpointed recovery.TxnSum // below the recovery point
}

// forgetTxns takes the aborted transactions with a marker in [from, to) out of the account, before the log start passes them
// or a truncation takes them away. What cannot be read stays in it: the next open then finds that the sums differ, and makes
// the indexes anew. The caller is alone.
func (l *Log) forgetTxns(from, to int64) (undo func()) {
	if l.opts.Compat || l.txns == (txnSums{}) {
		return func() {}
	}
	was, jobs := l.txns, make([]recovery.TxnSum, len(l.jobs))
	for i, r := range l.jobs {
		jobs[i] = r.txns
	}
	s, ok := l.set.Floor(from)
	if !ok {
		s, ok = l.set.First(), true
	}
	for ; ok && s.BaseOffset() < to; s, ok = l.set.Higher(s.BaseOffset()) {
		l.accountFor(l.abortedEnding(s, from, to), (*recovery.TxnSum).Remove)
	}
	return func() {
		l.txns = was
		for i, r := range l.jobs {
			r.txns = jobs[i]
		}
	}
}

// accountFor adds or removes the entries of a list to the sums that they belong to. The caller holds mu.
func (l *Log) accountFor(list []index.AbortedTxn, do func(*recovery.TxnSum, index.AbortedTxn)) {
	for _, t := range list {
		do(&l.txns.all, t)
		if t.LastOffset < l.checkpointed.Offset {
			do(&l.txns.checkpointed, t)
		}
		for _, r := range l.jobs {
			if t.LastOffset < r.base {
				do(&r.txns, t)
			}
		}
	}
}

// abortedEnding is what the transaction index of a segment has of the markers in [from, to).
func (l *Log) abortedEnding(s *segment.Segment, from, to int64) (list []index.AbortedTxn) {
	if err := s.AbortedEnding(from, to, func(t index.AbortedTxn) { list = append(list, t) }); err != nil {
		l.warn("transaction index", err)
	}
	return list
}

// replaceTxns follows a replacement of segments by a compacted one, whose transaction index has fewer entries. While files are
// renamed the state file does not tell the sums. The caller holds maintenance and mu.
func (l *Log) replaceTxns(group []*segment.Segment, cleaned *segment.Segment) {
	if l.opts.Compat {
		return
	}
	for _, s := range group {
		l.accountFor(l.abortedEnding(s, l.ends.logStart, math.MaxInt64), (*recovery.TxnSum).Remove)
	}
	l.accountFor(l.abortedEnding(cleaned, l.ends.logStart, math.MaxInt64), (*recovery.TxnSum).Add)
}
