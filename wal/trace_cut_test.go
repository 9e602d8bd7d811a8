package wal

import (
	"time"

	"github.com/oncelog/oncelog/internal/kafkatest"
)

// The operations of a trace that take records away.

func (r *replayer) truncate(op *kafkatest.Op) string {
	before := r.recoveryPoint
	cut, err := r.log.TruncateTo(op.Offset)
	diff := r.cut(op, err, func(o *kafkatest.EndsOutcome) { o.Truncated = cut })
	if !cut {
		r.recoveryPoint = before
	}
	return diff
}

func (r *replayer) truncateFully(op *kafkatest.Op) string {
	start := op.Offset
	give(&start, op.LogStart)
	return r.cut(op, r.log.TruncateFullyAndStartAt(op.Offset, start), nil)
}

// cut is what the two have in common: the manager writes the recovery point down at once.
func (r *replayer) cut(op *kafkatest.Op, err error, more func(*kafkatest.EndsOutcome)) string {
	return outcome(r, op, err, func(*kafkatest.EndsOutcome) kafkatest.EndsOutcome {
		r.recoveryPoint = r.log.Offsets().RecoveryPoint
		o := r.ends()
		if more != nil {
			more(&o)
		}
		return o
	})
}

func (r *replayer) deleteRecords(op *kafkatest.Op) string {
	moved, err := r.log.IncrementLogStartOffset(op.Offset)
	return outcome(r, op, err, func(*kafkatest.EndsOutcome) kafkatest.EndsOutcome {
		o := r.ends()
		o.Moved = moved
		return o
	})
}

func (r *replayer) retention(op *kafkatest.Op) string {
	n, err := r.log.DeleteOldSegments(time.UnixMilli(r.now))
	return outcome(r, op, err, func(*kafkatest.EndsOutcome) kafkatest.EndsOutcome {
		o := r.ends()
		o.Deleted = n
		return o
	})
}
