package leaderepoch_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/oncelog/oncelog/internal/kafkatest"
	"github.com/oncelog/oncelog/internal/leaderepoch"
	"github.com/oncelog/oncelog/internal/vfs"
)

// replay keeps a cache beside a trace of Kafka's log: what an append assigns, what truncations and the opening of a log
// cut off.
type replay struct {
	c        *leaderepoch.Cache
	logStart int64
	logEnd   int64

	// scanned means that the log was recovered from its batches, whose epochs a trace does not tell: the next state, which
	// follows every reopen, is taken over and not compared.
	scanned bool
}

// apply makes the change that an operation means for the epochs; ends are those that its outcome tells.
func (r *replay) apply(t *testing.T, op *kafkatest.Op) {
	t.Helper()
	switch op.Kind {
	case "append", "marker":
		var out kafkatest.AppendOutcome
		op.Outcome(t, &out)
		if out.OK && out.FirstOffset >= 0 || assignsAllTheSame(out.Error) {
			r.assign(t, op.LeaderEpoch, r.logEnd)
		}
		if out.OK {
			r.logEnd = out.LogEnd
		}
	case "appendFollower":
		var out kafkatest.AppendOutcome
		op.Outcome(t, &out)
		for p := op.Batch; out.OK && len(p) >= 17; p = p[min(len(p), 12+int(binary.BigEndian.Uint32(p[8:]))):] {
			if base := int64(binary.BigEndian.Uint64(p)); p[16] == 2 && base <= out.LastOffset {
				r.assign(t, int32(binary.BigEndian.Uint32(p[12:])), base)
			}
		}
		if out.OK {
			r.logEnd = out.LogEnd
		}
	case "hw", "deleteRecords", "retention":
		r.ends(t, op)
		r.c.TruncateFromStart(r.logStart)
	case "truncate":
		if r.ends(t, op) {
			r.c.TruncateFromEnd(op.Offset)
		}
	case "truncateFully":
		if r.ends(t, op) {
			r.c.Clear()
		}
	case "reopen":
		r.scanned = !op.Clean
		if end := r.logEnd; r.ends(t, op) {
			r.c.TruncateFromEnd(r.logEnd)
			r.c.TruncateFromStart(r.logStart)
			if r.logStart > end {
				r.c.Clear() // the loader found a log that ends below its start, and began a new one
			}
		}
	}
}

func (r *replay) takeOver(t *testing.T, entries [][2]int64) {
	t.Helper()
	r.c.Clear()
	for _, e := range entries {
		r.assign(t, int32(e[0]), e[1])
	}
	r.scanned = false
}

// assignsAllTheSame reports whether an append fails so late that the epoch has been assigned before.
func assignsAllTheSame(exception string) bool {
	return slices.Contains([]string{
		"OutOfOrderSequenceException", "InvalidProducerEpochException", "InvalidTxnStateException",
		"TransactionCoordinatorFencedException", "RecordBatchTooLargeException",
	}, exception)
}

func (r *replay) assign(t *testing.T, epoch int32, offset int64) {
	t.Helper()
	if epoch < 0 {
		return
	}
	if _, err := r.c.Assign(epoch, offset); err != nil {
		t.Fatal(err)
	}
}

func (r *replay) ends(t *testing.T, op *kafkatest.Op) bool {
	t.Helper()
	var out kafkatest.EndsOutcome
	if op.Outcome(t, &out); out.OK {
		r.logStart, r.logEnd = out.LogStart, out.LogEnd
	}
	return out.OK
}

// TestCache_AsKafka holds the cache against the epochs that Kafka's log has after each step of its recorded lives.
func TestCache_AsKafka(t *testing.T) {
	var states, answers int
	kafkatest.EachTrace(t, func(t *testing.T, tr *kafkatest.Trace) {
		r := replay{c: leaderepoch.New(vfs.OS, "none", true)}
		for i := range tr.Ops {
			op := &tr.Ops[i]
			r.apply(t, op)
			switch op.Kind {
			case "endOffsetForEpoch":
				var want kafkatest.EpochOutcome
				op.Outcome(t, &want)
				if epoch, offset := r.c.EndOffsetFor(op.Epoch, r.logEnd); epoch != want.Epoch || offset != want.Offset {
					t.Errorf("line %d: end of epoch %d: (%d, %d), want (%d, %d)", op.Line, op.Epoch, epoch, offset, want.Epoch, want.Offset)
				}
				answers++
			case "state":
				var want kafkatest.StateOutcome
				op.Outcome(t, &want)
				if r.scanned {
					r.takeOver(t, want.LeaderEpochs)
				}
				if diff := cmp.Diff(want.LeaderEpochs, pairs(r.c)); diff != "" {
					t.Fatalf("line %d: (-Kafka +cache):\n%s", op.Line, diff)
				}
				r.logStart, r.logEnd = want.LogStart, want.LogEnd
				states++
			}
		}
	})
	if states < 20 || answers < 10 {
		t.Errorf("only %d states and %d answers compared", states, answers)
	}
}
