package recovery

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/segment"
)

// abortedTxns are aborted transactions by the base offset of the segment that holds the marker.
type abortedTxns map[int64][]index.AbortedTxn

func (a abortedTxns) add(s *segment.Segment, t index.AbortedTxn) error {
	a[s.BaseOffset()] = append(a[s.BaseOffset()], t)
	return nil
}

// decideTxns finds out what the transaction indexes have to hold where that is not what their files do: those behind the
// recovery point have the transactions that the replay found, with markers at or behind from; those that are lost or damaged
// are made anew; and if what is left does not add up to what the state file says, so are all. A reader gets in memory what a
// writer puts into the files.
func (l *loader) decideTxns(found abortedTxns, from int64) error {
	l.lostTxns()
	first := l.derivedFrom.segment
	if !l.derives() && l.p.ReadOnly {
		// A reader that follows a writer goes on here.
		s, ok := l.segments.Floor(from)
		if !ok {
			s = l.segments.First()
		}
		first = s.BaseOffset()
	}
	for s := range l.segments.From(first) {
		if first == unlimited {
			break
		}
		if err := l.continueTxns(s, found[s.BaseOffset()], from); err != nil {
			return err
		}
	}
	if err := l.rebuildTxns(slices.Sorted(maps.Keys(l.txnLost)), false); err != nil {
		return err
	}
	if err := l.verifyTxns(); err != nil || !l.p.ReadOnly {
		return err
	}
	for s := range l.segments.All() {
		if list, ok := l.aborted[s.BaseOffset()]; ok {
			s.ShadowAborted(slices.Clone(list), l.txnLost[s.BaseOffset()])
		}
	}
	return nil
}

// lostTxns notes the segments whose transaction index has to be made anew as a whole.
func (l *loader) lostTxns() {
	for _, d := range l.txnBad {
		if s, ok := l.txnIndexOf(d.name); ok { // else it is cut off with its segment
			l.find(Finding{Path: l.txnPath(s), Decision: Rebuild, Problem: true, Reason: d.err.Error(), Err: d.err})
			l.txnLost[s.BaseOffset()] = true
		}
	}
	for n := range l.noFile {
		if s, ok := l.txnIndexOf(n); ok {
			l.txnLost[s.BaseOffset()] = true
		}
	}
	for base := range l.replaced {
		if _, ok := l.segments.Get(base); ok && base < l.derivedFrom.segment {
			l.txnLost[base] = true
		}
	}
	for _, r := range l.rebuilds {
		if r.extra {
			l.txnLost[r.base] = true
		}
	}
}

// continueTxns puts the transactions that the replay found behind those with a marker below from that are in the index of a
// segment. What a power cut leaves in an index that the last writer was adding to may look like anything; then the entries in
// front of it are in doubt too.
func (l *loader) continueTxns(s *segment.Segment, found []index.AbortedTxn, from int64) error {
	base := s.BaseOffset()
	if l.txnLost[base] {
		return nil
	}
	err := l.checkTxnIndex(s)
	if l.isTxnDamage(err) {
		l.find(Finding{Path: l.txnPath(s), Decision: Rebuild, Reason: err.Error(), Err: err})
	} else if err != nil {
		return err
	}
	var list []index.AbortedTxn
	if at := (placeInLog{segment: base}); at.less(l.derivedFrom) {
		err := s.AbortedEnding(0, from, func(t index.AbortedTxn) { list = append(list, t) })
		if l.isTxnDamage(err) {
			l.txnLost[base] = true
			return nil
		}
		if err != nil {
			return fmt.Errorf("recovery: %w", err)
		}
	}
	l.aborted[base] = append(list, found...)
	return nil
}

// isTxnDamage tells whether an error says that a transaction index is damaged. There is no version but one that we could
// have written; in another program's log one that is not known speaks of a newer program.
func (l *loader) isTxnDamage(err error) bool {
	return errors.Is(err, index.ErrCorrupt) || (l.us || l.takingOver) && errors.Is(err, index.ErrUnsupportedVersion)
}

// rebuildTxns finds out from the log what the transaction indexes of some segments have to hold. It needs the producer state
// at their start, which comes from an older snapshot and the log behind it; for segments in a row it is made once. check tells
// to report those that are wrong, and to leave the others as they are.
func (l *loader) rebuildTxns(bases []int64, check bool) error {
	for len(bases) > 0 {
		n, end := 1, int64(0)
		for ; ; n++ {
			next, more := l.segments.Higher(bases[n-1])
			end = l.end.Offset
			if more {
				end = next.BaseOffset()
			}
			if n == len(bases) || !more || bases[n] != next.BaseOffset() {
				break
			}
		}
		found, err := l.abortedIn(bases[0], end)
		if err != nil {
			return err
		}
		for _, base := range bases[:n] {
			if err := l.replaceTxns(base, found[base], check); err != nil {
				return err
			}
		}
		bases = bases[n:]
	}
	return nil
}

// abortedIn finds the aborted transactions with a marker in [from, to), where segments begin or the log ends.
func (l *loader) abortedIn(from, to int64) (abortedTxns, error) {
	m, err := l.producersAt(from)
	if err != nil {
		return nil, err
	}
	found := abortedTxns{}
	r := replay{l: l, m: m, aborted: found.add, quiet: true}
	return found, r.run(m.MapEndOffset(), to)
}

// replaceTxns notes that the transaction index of a segment has to have the entries of a list.
func (l *loader) replaceTxns(base int64, list []index.AbortedTxn, check bool) error {
	s, ok := l.segments.Get(base)
	if !ok {
		return nil
	}
	if check {
		wrong, err := l.wrongTxns(s, list)
		if err != nil || wrong == "" {
			return err
		}
		l.find(Finding{Path: l.txnPath(s), Decision: Rebuild, Problem: true, Reason: wrong})
	}
	l.aborted[base], l.txnLost[base] = list, true
	return nil
}

// wrongTxns says what is wrong with the entries of a transaction index, or nothing.
func (l *loader) wrongTxns(s *segment.Segment, want []index.AbortedTxn) (string, error) {
	var have []index.AbortedTxn
	err := l.eachAborted(s, func(t index.AbortedTxn) { have = append(have, t) })
	switch {
	case l.isTxnDamage(err):
		return err.Error(), nil
	case err != nil:
		return "", err
	case len(have) != len(want):
		return fmt.Sprintf("has %d aborted transactions, %d were aborted in the log", len(have), len(want)), nil
	}
	for i := range have {
		if have[i] != want[i] {
			return fmt.Sprintf("entry %d, %+v, is not that of the aborted transaction, %+v", i, have[i], want[i]), nil
		}
	}
	return "", nil
}

func (l *loader) txnPath(s *segment.Segment) string {
	return filepath.Join(l.p.Dir, segment.FileName(segment.KindTxnIndex, s.BaseOffset()))
}

// verifyTxns holds the transaction indexes below the recovery point against the sum in the state file. The sum does not tell
// which of them is wrong, so that all are found out anew. What was cut below the recovery point, or is gone, is missing in it
// too: then nothing turns out to be wrong.
func (l *loader) verifyTxns() error {
	if l.p.Compat || !l.us || !l.slot.TxnsKnown || l.created {
		return nil
	}
	below := l.slot.Recovery.Offset
	sum, err := l.sumTxns(l.slot.LogStart, below)
	if err != nil || sum.below == l.slot.Txns {
		return err
	}
	var rest []int64
	for s := range l.segments.All() {
		next, more := l.segments.Higher(s.BaseOffset())
		if s.BaseOffset() < below && (!more || next.BaseOffset() > l.slot.LogStart) && !l.txnLost[s.BaseOffset()] {
			rest = append(rest, s.BaseOffset())
		}
	}
	before := len(l.txnLost)
	if err := l.rebuildTxns(rest, true); err != nil {
		return err
	}
	if len(l.txnLost) == before && l.end.Offset >= below && len(l.report.Holes) == 0 {
		l.find(Finding{Path: filepath.Join(l.p.Dir, StateFileName), Decision: Note, Problem: true,
			Reason: "does not tell what the transaction indexes hold, which are those of the log"})
	}
	return nil
}

// resetTxns empties the transaction index of a segment, for writeTxns to fill. Should that be interrupted, the next load has to
// know, unless it makes all of the index anew in any case.
func (l *loader) resetTxns(s *segment.Segment) error {
	if l.txnLost[s.BaseOffset()] {
		if err := l.noteRebuild(s.BaseOffset()); err != nil {
			return err
		}
	}
	if err := s.ResetTxnIndex(); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	return nil
}

// writeTxns puts into the transaction indexes what decideTxns found out. Those that are continued end already where the replay
// began.
func (l *loader) writeTxns() error {
	for s := range l.segments.All() {
		list, ok := l.aborted[s.BaseOffset()]
		if !ok {
			continue
		}
		from := l.derivedOffset
		if l.txnLost[s.BaseOffset()] {
			from = 0
			if err := l.resetTxns(s); err != nil {
				return err
			}
			if !slices.Contains(l.rebuilt, s) {
				l.rebuilt = append(l.rebuilt, s)
			}
		}
		for _, t := range list {
			if t.LastOffset < from {
				continue
			}
			if err := s.AppendAborted(t); err != nil {
				return fmt.Errorf("recovery: transaction index: %w", err)
			}
		}
	}
	return nil
}

// eachAborted calls f for each aborted transaction with a marker in a segment, in order.
func (l *loader) eachAborted(s *segment.Segment, f func(index.AbortedTxn)) error {
	if list, ok := l.aborted[s.BaseOffset()]; ok {
		for _, t := range list {
			f(t)
		}
		return nil
	}
	if err := s.AbortedEnding(0, unlimited, f); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	return nil
}
