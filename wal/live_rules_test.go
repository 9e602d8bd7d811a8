package wal

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oncelog/oncelog/internal/kafkatest"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// liveRule is a kind of operation that Kafka answers with a plain fault, and we with the right answer. It holds what
// differences lists for recorded traces, told by what the operation is.
type liveRule struct {
	op     string // any where empty
	where  string // outcome, state, or anything where empty
	ends   bool   // Kafka stored something, we did not or otherwise: what follows cannot be compared
	holds  func(r *liveRun, op *kafkatest.Op, text string) bool
	reason string
}

var liveRules = []liveRule{
	{op: "reopen", where: "outcome", ends: true,
		reason: "Kafka fails to load a log whose recovery makes more index entries than segment.index.bytes has room for",
		holds: func(r *liveRun, op *kafkatest.Op, _ string) bool {
			return op.Failure().Error == "IllegalArgumentException" && !op.Clean && r.ours.log != nil
		}},
	{where: "outcome", ends: true,
		reason: "Kafka takes a producer id below -1 and keeps no state for it, so that a retry is stored twice",
		holds: func(r *liveRun, op *kafkatest.Op, _ string) bool {
			return hasBatch(op, func(b record.Batch) bool { return b.ProducerID() < record.NoProducerID }) && op.Failure().OK
		}},
	{op: "reopen", ends: true,
		reason: "Kafka takes a batch of a format above 2 for one of format 2, as the checksum does not cover that byte",
		holds: func(r *liveRun, op *kafkatest.Op, _ string) bool {
			return r.damagedLog() && r.unknownFormat()
		}},
	{op: "appendFollower", where: "outcome", ends: true,
		reason: "Kafka takes a batch from a leader whose last offset lies below its first",
		holds: func(r *liveRun, op *kafkatest.Op, _ string) bool {
			return op.Failure().OK && hasBatch(op, func(b record.Batch) bool { return b.LastOffsetDelta() < 0 })
		}},
	{where: "outcome", ends: true,
		reason: "Kafka takes no more appends where a damaged base offset, which no checksum covers, got into an index",
		holds: func(r *liveRun, op *kafkatest.Op, _ string) bool {
			return op.Failure().Error == "InvalidOffsetException" && r.damagedLog()
		}},
	{ends: true,
		reason: "Kafka takes a batch at the last offset that there is, and its log end wraps",
		holds: func(r *liveRun, op *kafkatest.Op, _ string) bool {
			return op.Kind == "appendFollower" && hasBatch(op, func(b record.Batch) bool { return b.LastOffset() == math.MaxInt64 })
		}},
	{op: "append", where: "outcome", ends: true,
		reason: "Kafka gives a coordinator's batch whose last offset delta is not that of its records a base offset below the log end, or none",
		holds: func(r *liveRun, op *kafkatest.Op, _ string) bool {
			return op.Failure().OK && op.Origin != "client" &&
				hasBatch(op, func(b record.Batch) bool { return b.Count() != b.LastOffsetDelta()+1 })
		}},
	{where: "outcome",
		reason: "Kafka's sum of a length near 2^31 and the 12 bytes before it wraps; here the batch is one that was cut off",
		holds: func(r *liveRun, op *kafkatest.Op, _ string) bool {
			for rest := op.Batch; ; {
				_, next, err := record.Next(rest)
				if cut, ok := errors.AsType[*record.TruncatedError](err); ok {
					return cut.Need > math.MaxInt32 && op.Failure().Error == "IllegalArgumentException"
				}
				if err != nil {
					return false
				}
				rest = next
			}
		}},
	{op: "read", where: "outcome",
		reason: "Kafka tells no list of aborted transactions where nothing is left to read; an empty one says the same",
		holds: func(r *liveRun, op *kafkatest.Op, text string) bool {
			var o kafkatest.ReadOutcome
			if op.Isolation == "txn_committed" && op.Failure().OK {
				op.Outcome(r.t, &o)
				o.Aborted = [][2]int64{}
				same := *op
				same.Out, _ = json.Marshal(o)
				return o.Bytes == 0 && r.ours.do(&same) == ""
			}
			return false
		}},
	{op: "offsetForTimestamp", where: "outcome",
		reason: "Kafka goes by the greatest times that headers and indexes tell, whether forgotten, untrue or below the log start, and looks into one segment; ours is what a walk over the records finds",
		holds: func(r *liveRun, op *kafkatest.Op, _ string) bool {
			return op.Failure().OK && r.oursIsRight(op.Time)
		}},
	{op: "offsetForTimestamp", where: "outcome",
		reason: "Kafka looks up a time without a look at the damaged batch; here damage on the way is an error",
		holds: func(r *liveRun, op *kafkatest.Op, _ string) bool {
			_, _, err := r.ours.log.OffsetForTimestamp(op.Time)
			return errors.Is(err, ErrCorrupt) && r.damagedLog()
		}},
	{where: "state",
		reason: "Kafka removes a deleted segment's files early where it had deleted one of the same name before, which was empty",
		holds: func(r *liveRun, op *kafkatest.Op, _ string) bool {
			return r.onlyWaits()
		}},
	{where: "state", ends: true,
		reason: "Kafka flushes what was before a roll in the background, so that flush.messages still counts it; here the roll does",
		holds: func(r *liveRun, op *kafkatest.Op, _ string) bool {
			return r.kafka.settings.FlushMessages != nil && r.kafka.state.RecoveryPoint == r.kafka.state.LogEnd &&
				r.ours.log.Offsets().RecoveryPoint == r.ours.log.active.BaseOffset()
		}},
	{where: "state", ends: true,
		reason: "to Kafka a segment has no timestamps whose time index is missing, or empty after a reopen and a truncation; the log knows better",
		holds: func(r *liveRun, op *kafkatest.Op, _ string) bool {
			return r.forgottenTimes() && r.onlyDiffersIn(".timeindex")
		}},
	{op: "retention", where: "outcome", ends: true,
		reason: "Kafka does not delete a segment whose timestamps it has forgotten",
		holds: func(r *liveRun, op *kafkatest.Op, _ string) bool {
			return r.forgottenTimes()
		}},
}

// forgottenTimes tells whether Kafka may have forgotten the timestamps of a segment: its time index was removed or emptied,
// by hand or in a truncation before it was first looked at (LogSegment.truncateTo asks the index only after it has cut it).
func (r *liveRun) forgottenTimes() bool {
	reopened := false
	return slices.ContainsFunc(r.trace.Ops, func(op kafkatest.Op) bool {
		reopened = reopened || op.Kind == "reopen"
		return op.Damage != nil && strings.HasSuffix(op.Damage.File, ".timeindex") || op.Kind == "truncate" && reopened
	})
}

// damagedLog tells whether a .log file was damaged.
func (r *liveRun) damagedLog() bool {
	return slices.ContainsFunc(r.trace.Ops, func(op kafkatest.Op) bool {
		return op.Damage != nil && strings.HasSuffix(op.Damage.File, ".log")
	})
}

// unknownFormat tells whether a batch in Kafka's files is of a format above 2, as a flipped bit makes it.
func (r *liveRun) unknownFormat() bool {
	names, err := filepath.Glob(filepath.Join(r.kafka.dir, "*.log"))
	for _, name := range names {
		var p []byte
		if p, err = os.ReadFile(name); err != nil {
			break
		}
		for len(p) > record.Overhead {
			if p[16] > record.Magic {
				return true
			}
			p = p[min(len(p), 12+int(binary.BigEndian.Uint32(p[8:]))):]
		}
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return false
}

// onlyWaits tells whether all is equal but files of deleted segments whose delay is not over.
func (r *liveRun) onlyWaits() bool {
	kafkas := map[string]bool{}
	for _, f := range r.kafka.state.Files {
		kafkas[f.Name] = true
	}
	waiting := map[string]bool{}
	for _, d := range r.ours.log.discards {
		if d.due.After(time.UnixMilli(r.ours.now)) {
			for kind := range segment.KindSnapshot {
				waiting[segment.FileName(kind, d.segment.BaseOffset())+segment.SuffixDeleted] = true
			}
			waiting[filepath.Base(d.snapshot)] = true
		}
	}
	for _, f := range r.ours.files(new(kafkatest.StateOutcome)) {
		if !kafkas[f.Name] && !waiting[f.Name] {
			return false
		}
	}
	return r.onlyDiffersIn(segment.SuffixDeleted)
}

// onlyDiffersIn tells whether all is equal but files with an ending.
func (r *liveRun) onlyDiffersIn(ending string) bool {
	want := *r.kafka.state
	want.Files = slices.Clone(want.Files)
	got := r.ours.memory()
	got.Files = r.ours.files(&want)
	without := func(files []kafkatest.StateFile) []kafkatest.StateFile {
		return slices.DeleteFunc(files, func(f kafkatest.StateFile) bool { return strings.HasSuffix(f.Name, ending) })
	}
	got.Files, want.Files = without(got.Files), without(want.Files)
	return cmp.Equal(want, got)
}

// oursIsRight tells whether our answer to a look-up by time is what a walk over all readable records finds.
func (r *liveRun) oursIsRight(ms int64) bool {
	l := r.ours.log
	hit, found, err := l.OffsetForTimestamp(ms)
	if err != nil || ms < 0 && ms != MaxTimestamp {
		return false
	}
	best, any := TimestampOffset{Offset: -1}, false
	for at, o := l.Offsets().LogStart, l.Offsets(); at < o.LogEnd; {
		f, err := l.Read(at, ReadOptions{MaxBytes: 1 << 20, MinOneMessage: true})
		if err != nil {
			return false
		}
		p, err := f.Records.AppendTo(nil)
		f.Close()
		if err != nil {
			return false
		}
		if len(p) == 0 {
			break // a gap up to the end
		}
		for b, err := range record.All(p) {
			if err != nil {
				break // cut off
			}
			for rec, err := range b.Records(record.Limits{}) {
				offset := b.BaseOffset() + int64(rec.OffsetDelta)
				if err != nil || offset < o.LogStart || rec.Timestamp < 0 || ms < 0 && any && rec.Timestamp <= best.Timestamp {
					continue
				}
				if ms >= 0 && (any || rec.Timestamp < ms) {
					continue
				}
				best, any = TimestampOffset{Timestamp: rec.Timestamp, Offset: offset}, true
			}
			at = b.NextOffset()
		}
	}
	return found == any && hit.Offset == best.Offset || !found && !any
}

// hasBatch tells whether an append brings such a batch.
func hasBatch(op *kafkatest.Op, such func(record.Batch) bool) bool {
	for b, err := range record.All(op.Batch) {
		if err != nil {
			return false
		}
		if such(b) {
			return true
		}
	}
	return false
}

// knownDifference returns the rule that a difference falls under, or nil.
func knownDifference(r *liveRun, op *kafkatest.Op, where, text string) *liveRule {
	for i := range liveRules {
		rule := &liveRules[i]
		if (rule.op == "" || rule.op == op.Kind) && (rule.where == "" || rule.where == where) && rule.holds(r, op, text) {
			return rule
		}
	}
	return nil
}
