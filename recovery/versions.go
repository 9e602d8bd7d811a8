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
		if !ok || l.renewsTxnIndex(s) {
			continue
		}
		err := checkTxnIndex(s)
		if errors.Is(err, index.ErrCorrupt) {
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

func checkTxnIndex(s *segment.Segment) error {
	err := s.WithIndexes(func(_ *index.Offset, _ *index.Time, x *index.Txn) error { return x.SanityCheck() })
	if err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	return nil
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
