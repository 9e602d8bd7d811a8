package recovery

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/leaderepoch"
	"github.com/oncelog/oncelog/segment"
)

// checkVersions looks for files of a newer program before anything is changed, and on the way for transaction indexes that
// cannot be right. Those that are made anew anyway may hold what a power cut left, whatever that looks like.
func (l *loader) checkVersions() error {
	path := filepath.Join(l.p.Dir, LeaderEpochFileName)
	if _, err := leaderepoch.Open(l.fsys, path, true); errors.Is(err, checkpoint.ErrUnsupportedVersion) {
		return fmt.Errorf("recovery: %w", err)
	}
	for _, n := range l.names {
		s, ok := l.txnIndexOf(n)
		if !ok || l.renewsTxnIndex(s) || l.isDeleted(s) {
			continue
		}
		err := l.checkTxnIndex(s)
		if errors.Is(err, index.ErrCorrupt) || l.us && errors.Is(err, index.ErrUnsupportedVersion) {
			l.txnBad = append(l.txnBad, txnDamage{name: n, err: err})
		} else if err != nil {
			return err
		}
	}
	return nil
}

// txnDamage is a transaction index that cannot be right.
type txnDamage struct {
	name segment.Name
	err  error
}

func (l *loader) txnIndexOf(n segment.Name) (s *segment.Segment, ok bool) {
	if n.Kind != segment.KindTxnIndex || n.Suffix != "" {
		return nil, false
	}
	return l.segments.Get(n.Offset)
}

// renewsTxnIndex tells whether entries of the transaction index of s come from the log once more.
func (l *loader) renewsTxnIndex(s *segment.Segment) bool {
	return (l.us || l.takingOver) && s.BaseOffset() >= l.derivedFrom.segment
}

// checkTxnIndex reads a transaction index to its end, and adds it up on the way.
func (l *loader) checkTxnIndex(s *segment.Segment) error {
	var t txnTotals
	err := l.eachAborted(s, func(e index.AbortedTxn) { t.count(e, l.slot.LogStart, l.slot.Recovery.Offset) })
	if err != nil {
		return err
	}
	l.txnTotals[s.BaseOffset()] = t
	n, err := s.PartialAborted()
	if err != nil || n == 0 || !l.us {
		return err // a broker may leave a part of an entry
	}
	return &index.CorruptError{Path: l.txnPath(s), Entry: -1, Reason: fmt.Sprintf("ends with %d bytes of a partial entry", n)}
}

// versionError lets what another package says about a version match ErrUnsupportedVersion.
type versionError struct{ error }

// Is reports whether target is ErrUnsupportedVersion.
func (versionError) Is(target error) bool { return target == ErrUnsupportedVersion }

// Unwrap returns the error of the other package.
func (e versionError) Unwrap() error { return e.error }

func withVersion(err error) error {
	if errors.Is(err, index.ErrUnsupportedVersion) || errors.Is(err, checkpoint.ErrUnsupportedVersion) {
		return versionError{err}
	}
	return err
}
