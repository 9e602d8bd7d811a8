package recovery

import (
	"errors"

	"github.com/oncelog/oncelog/internal/leaderepoch"
	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// State is a loaded log. It is for the package wal.
type State struct {
	Segments   segment.Set // at least one; the last one is active
	ActiveSize int64       // bytes of batches in it
	Producers  *producerstate.Manager
	Epochs     *leaderepoch.Cache
	StateFile  *StateFile // nil with Compat and ReadOnly
	Foreign    Foreign    // as it is now

	LogStart       int64
	End            Position // log end; everything below is on disk unless ReadOnly
	RecoveryPoint  Position
	SnapshotOffset int64 // of the pair at the recovery point, −1 if there is none

	NewestTimestamp int64 // greatest timestamp of a batch, as far as it is known
	AppendClock     int64 // clock of the newest append, as far as it is known
	Gaps            bool  // offsets may jump
	Cleaned         int64 // first dirty offset, as far as our own state file knows it
	Compacted       int64 // compaction may have moved any batch below

	Txns         TxnSum // of the aborted transactions from LogStart on
	RecoveryTxns TxnSum // of those below RecoveryPoint

	// For a reader of a damaged log.
	Doubts []Doubt // in the order of First
	Lost   Lost

	Slot   Slot // what the state file said when the load began; of no meaning where another program wrote
	Report Report
}

// Close closes what Load opened, after an open that was given up.
func (s *State) Close() error {
	var errs []error
	for seg := range s.Segments.All() {
		errs = append(errs, seg.Close())
	}
	if s.StateFile != nil {
		errs = append(errs, s.StateFile.Close())
	}
	return errors.Join(errs...)
}

func (l *loader) state() (*State, error) {
	s := &State{Doubts: l.doubts, Lost: l.gone,
		Segments: l.segments, Producers: l.producers, Epochs: l.epochs, StateFile: l.file, Foreign: l.foreign,
		LogStart: l.logStart, End: l.end, RecoveryPoint: l.recoveryPoint, SnapshotOffset: l.snapshotOffset,
		NewestTimestamp: l.newest, AppendClock: record.NoTimestamp, Gaps: l.gaps, Slot: l.newestSlot(), Report: l.report,
	}
	if l.us {
		s.AppendClock, s.Cleaned, s.Compacted = l.slot.AppendClock, l.slot.Cleaned, l.slot.Compacted
	}
	s.AppendClock = max(s.AppendClock, l.producers.NewestTime())
	if n, err := l.segments.Active().Size(); err == nil {
		s.ActiveSize = n
	}
	if l.p.Compat || l.p.ReadOnly {
		// It was opened for reading; there is nothing that closing could lose.
		_ = l.file.Close()
		s.StateFile = nil
		return s, nil
	}
	sum, err := l.sumTxns(l.logStart, l.recoveryPoint.Offset)
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	s.Txns, s.RecoveryTxns = sum.all, sum.below
	return s, nil
}
