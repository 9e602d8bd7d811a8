package wal

import (
	"slices"
	"testing"

	"github.com/oncelog/oncelog/internal/kafkatest"
)

// difference is an operation that Kafka answers with a plain fault, and we with the right answer.
type difference struct {
	trace  string
	line   int // of the operation in the trace
	op     string
	file   string // only this file differs
	ends   bool   // Kafka stored something, we did not: what follows cannot be compared
	reason string
}

var differences = []difference{
	{trace: "bad-records", line: 9, op: "append", ends: true,
		reason: "Kafka takes a producer id below -1 and keeps no state for it, so that a retry is stored twice"},
	{trace: "recompress-deltas", line: 9, op: "append", ends: true,
		reason: "Kafka gives a coordinator's batch whose last offset delta exceeds its records a base offset below the log end"},
	{trace: "recover-index-too-small", line: 53, op: "reopen", ends: true,
		reason: "Kafka fails to load a log whose recovery makes more index entries than segment.index.bytes has room for"},
	{trace: "offset-for-timestamp", line: 46, op: "offsetForTimestamp",
		reason: "Kafka answers none where the log start is the end of a segment that is still there, although newer records match"},
	{trace: "random-6", line: 132, op: "offsetForTimestamp",
		reason: "Kafka looks only into the first segment with newer records, and here those lie below the log start"},
	{trace: "random-10", line: 212, op: "reopen", ends: true,
		reason: "as recover-index-too-small"},
	{trace: "restart-missing-index", line: 61, op: "state", file: "00000000000000000028.timeindex",
		reason: "to Kafka a segment whose time index is missing has no timestamps; the log knows better"},
}

// Replays what Kafka's own log class did, and compares everything that it answered and left behind.
func TestTrace(t *testing.T) {
	var total replayed
	seen := map[difference]bool{}
	kafkatest.EachTrace(t, func(t *testing.T, tr *kafkatest.Trace) {
		r := newReplayer(t, tr)
		defer r.close()
		for i := range tr.Ops {
			op := &tr.Ops[i]
			diff := r.do(op)
			known := r.listed
			switch {
			case diff != "" && (known == nil || known.file != ""):
				t.Fatalf("line %d, %s: -Kafka +ours\n%s", op.Line, op.Kind, diff)
			case diff == "" && known != nil && !r.met:
				t.Fatalf("line %d, %s: is listed as different (%s), and is not", op.Line, op.Kind, known.reason)
			case known != nil:
				total.different++
				seen[*known] = true
			default:
				total.same++
			}
			if known != nil && known.ends || r.ended {
				total.after += len(tr.Ops) - i - 1
				break
			}
		}
		total.traces++
	})
	t.Logf("%d traces, %d operations equal, %d different, %d not replayed behind a difference",
		total.traces, total.same, total.different, total.after)
	replayedNames := kafkatest.TraceNames(t)
	for _, d := range differences {
		if slices.Contains(replayedNames, d.trace) && !seen[d] && !t.Failed() {
			t.Errorf("difference in %s line %d was not met", d.trace, d.line)
		}
	}
}

type replayed struct{ traces, same, different, after int }

// known returns the listed difference of an operation, or nil.
func (r *replayer) known(op *kafkatest.Op) *difference {
	for i := range differences {
		if d := &differences[i]; d.trace == r.tr.Name && d.line == op.Line && d.op == op.Kind {
			return d
		}
	}
	return nil
}
