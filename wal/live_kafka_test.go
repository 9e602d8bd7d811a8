package wal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/oncelog/oncelog/internal/kafkatest"
	"github.com/oncelog/oncelog/interop"
)

// kafkaLog is Kafka's own log, taken through the operations of a trace, as replayer takes ours. What it answers is told as
// a trace tells it.
type kafkaLog struct {
	d        *interop.Driver
	s        *interop.Session // nil while the log is closed
	dir      string
	now      int64 // the clock, milliseconds
	settings kafkatest.Settings
	state    *kafkatest.StateOutcome // after the last operation on an open log

	// What the checkpoints of the log directory hold.
	recoveryPoint, logStart int64

	// Guards are numbered over all sessions; the session began behind earlier ones.
	guards, earlier int64
}

// do runs one operation and returns its outcome. An error means that Kafka was not reached.
func (k *kafkaLog) do(op *kafkatest.Op) (json.RawMessage, error) {
	out, err := k.apply(op)
	if e := interop.AsError(err); e != nil {
		out, err = kafkatest.Failure{Error: e.Name(), Code: e.Code, RecordErrors: e.Records}, nil
	}
	if err != nil {
		return nil, err
	}
	if k.s != nil {
		if k.state, err = k.look(); err != nil {
			return nil, err
		}
		switch o := out.(type) { // what only the state tells
		case *kafkatest.SmallOutcome:
			switch op.Kind {
			case "expire":
				o.Producers = len(k.state.Producers)
			case "snapshot":
				o.Latest = k.newestSnapshot()
			}
		case *kafkatest.StateOutcome:
			out = k.state
		case *kafkatest.EndsOutcome:
			if op.Kind == "checkpoint" {
				k.recoveryPoint, k.logStart = k.state.RecoveryPoint, 0
				if k.state.LogStart > k.state.Segments[0][0] {
					k.logStart = k.state.LogStart
				}
				o.RecoveryPoint, o.LogStart = k.recoveryPoint, k.logStart
			}
		}
	}
	return json.Marshal(out)
}

// newestSnapshot is the offset in the name of the last snapshot file, as the manager of the producers keeps it.
func (k *kafkaLog) newestSnapshot() int64 {
	newest := int64(-1)
	for _, f := range k.state.Files {
		var offset int64
		if _, err := fmt.Sscanf(f.Name, "%020d.snapshot", &offset); err == nil && f.Name == fmt.Sprintf("%020d.snapshot", offset) {
			newest = max(newest, offset)
		}
	}
	return newest
}

func (k *kafkaLog) apply(op *kafkatest.Op) (any, error) {
	small := &kafkatest.SmallOutcome{Failure: succeeded}
	ends := &kafkatest.EndsOutcome{Failure: succeeded}
	var r interop.Result
	var err error
	switch op.Kind {
	case "open", "reopen":
		return k.load(op)
	case "close":
		var c interop.Checkpoint
		c, err = k.s.Close()
		k.s = nil
		k.recoveryPoint, k.logStart = c.RecoveryPoint, c.LogStart
		ends.RecoveryPoint, ends.LogStart = c.RecoveryPoint, c.LogStart
		return ends, err
	case "crash":
		err = k.s.Crash()
		k.s = nil
		return small, err
	case "damage":
		return k.damage(op.Damage)
	case "append", "appendFollower", "marker":
		return k.append(op)
	case "verify":
		n, err := k.s.Verify(interop.Verification{Producer: op.ProducerID, Epoch: int16(op.Epoch), LowestSequence: op.Sequence,
			SupportsEpochBump: op.SupportsEpochBump})
		if n > 0 {
			small.Guard = k.earlier + int64(n)
			k.guards = max(k.guards, small.Guard)
		}
		return small, err
	case "roll":
		r, err = k.s.Roll()
		small.BaseOffset = r.Base
		return small, err
	case "flush":
		r, err = k.s.Flush(op.Force)
		ends.RecoveryPoint = r.RecoveryPoint
		return ends, err
	case "checkpoint":
		return ends, nil
	case "expire":
		_, err = k.s.ExpireProducers()
		return small, err
	case "snapshot":
		_, err = k.s.TakeSnapshot()
		return small, err
	case "lateTransaction":
		r, err = k.s.HasLateTransaction()
		small.Late = r.Changed
		return small, err
	case "clock":
		k.now = op.Time
		_, err = k.s.SetClock(op.Time)
		return small, err
	case "setConfig":
		mergeStruct(&k.settings, &op.Settings)
		_, err = k.s.Configure(interopNames(&k.settings))
		return small, err
	case "read":
		return k.read(op)
	case "offsetForTimestamp":
		f, err := k.s.OffsetForTime(op.Time)
		o := kafkatest.TimestampOutcome{Failure: succeeded}
		if f.Found {
			o.Timestamp, o.Offset, o.LeaderEpoch = f.Timestamp, &f.Offset, &f.LeaderEpoch
		}
		return o, err
	case "endOffsetForEpoch":
		f, err := k.s.EndOfEpoch(op.Epoch)
		o := kafkatest.EpochOutcome{Failure: succeeded, Epoch: -1, Offset: -1}
		if f.Found {
			o.Epoch, o.Offset = f.Epoch, f.Offset
		}
		return o, err
	case "state":
		return new(kafkatest.StateOutcome), nil
	}
	return k.moveEnds(op)
}

// moveEnds are the operations that answer where the log begins and ends.
func (k *kafkaLog) moveEnds(op *kafkatest.Op) (any, error) {
	var r interop.Result
	var err error
	switch op.Kind {
	case "hw":
		r, err = k.s.SetHighWatermark(op.Offset)
	case "deleteRecords":
		r, err = k.s.DeleteRecords(op.Offset)
	case "retention":
		r, err = k.s.Retention()
	case "truncate":
		r, err = k.s.Truncate(op.Offset)
	case "truncateFully":
		start := int64(-1)
		give(&start, op.LogStart)
		r, err = k.s.TruncateFully(op.Offset, start)
	default:
		return nil, fmt.Errorf("no operation %s", op.Kind)
	}
	o := endsOf(r.Offsets)
	switch op.Kind {
	case "deleteRecords":
		o.Moved = r.Changed
	case "retention":
		o.Deleted = r.DeletedSegments
	case "truncate":
		o.Truncated = r.Changed
	}
	if err == nil && (op.Kind == "truncateFully" || o.Truncated) {
		k.recoveryPoint = r.RecoveryPoint // the manager writes it down at once
	}
	return o, err
}

func endsOf(o interop.Offsets) *kafkatest.EndsOutcome {
	return &kafkatest.EndsOutcome{Failure: succeeded, LogStart: o.LogStart, LogEnd: o.LogEnd, HighWatermark: o.HighWatermark,
		LSO: o.LastStableOffset}
}

func (k *kafkaLog) load(op *kafkatest.Op) (any, error) {
	mergeStruct(&k.settings, &op.Settings)
	r := interop.SessionRequest{Dir: k.dir, Clean: op.Clean || op.Kind == "open", Clock: k.now, Settings: interopNames(&k.settings)}
	if op.Kind == "reopen" {
		r.RecoveryPoint, r.LogStart = k.recoveryPoint, k.logStart
		give(&r.RecoveryPoint, op.RecoveryPoint)
		give(&r.LogStart, op.LogStart)
	}
	s, at, err := k.d.OpenSession(r)
	if err != nil {
		return nil, err
	}
	k.s, k.earlier = s, k.guards
	o := endsOf(at)
	if op.Kind == "reopen" {
		o.RecoveryPoint = at.RecoveryPoint
	}
	return o, nil
}

func (k *kafkaLog) append(op *kafkatest.Op) (any, error) {
	a := interop.Append{Batch: op.Batch, Origin: op.Origin, LeaderEpoch: op.LeaderEpoch, TransactionVersion: op.TransactionVersion,
		Guard: int(op.Guard - k.earlier)}
	if op.Guard <= k.earlier || op.Guard > k.guards {
		a.Guard = 0 // a guard of an earlier session, or of a verification that was left out
	}
	if op.Origin == "raft" {
		a.Origin = "raft_leader"
	}
	var got interop.Appended
	var err error
	switch op.Kind {
	case "append":
		got, err = k.s.Append(a)
	case "appendFollower":
		got, err = k.s.AppendAsFollower(op.Batch, op.LeaderEpoch)
	case "marker":
		m := interop.Marker{Producer: op.ProducerID, Epoch: int16(op.Epoch), Commit: op.Type == "commit", Timestamp: k.now,
			CoordinatorEpoch: op.CoordinatorEpoch, LeaderEpoch: op.LeaderEpoch, TransactionVersion: op.TransactionVersion, Origin: a.Origin}
		give(&m.Timestamp, op.Timestamp)
		got, err = k.s.Marker(m)
	}
	return kafkatest.AppendOutcome{
		Failure: succeeded, FirstOffset: got.FirstOffset, LastOffset: got.LastOffset, Duplicate: got.Duplicate,
		LogAppendTime: got.LogAppendTime, MaxTimestamp: got.MaxTimestamp, ValidBytes: int(got.ValidBytes), LogStart: got.LogStart,
		LastLeaderEpoch: got.LastLeaderEpoch, LogEnd: got.LogEnd, ActiveBase: got.ActiveBase, Built: got.Batch,
	}, err
}

func (k *kafkaLog) read(op *kafkatest.Op) (any, error) {
	r, err := k.s.Read(interop.Read{Offset: op.Offset, MaxBytes: int32(op.MaxBytes), Isolation: op.Isolation, MinOneMessage: op.MinOneMessage})
	o := kafkatest.ReadOutcome{Failure: succeeded, Bytes: int(r.Size), SHA256: r.SHA256, FirstEntryIncomplete: r.FirstEntryIncomplete,
		Batches: [][3]int64{}}
	o.Position.Offset, o.Position.Segment, o.Position.Pos = r.StartOffset, r.Segment, r.Position
	for _, b := range r.Batches {
		o.Batches = append(o.Batches, [3]int64{b.BaseOffset, b.LastOffset, b.Size})
	}
	if r.AbortedKnown {
		o.Aborted = [][2]int64{}
		for _, t := range r.Aborted {
			o.Aborted = append(o.Aborted, [2]int64{t.Producer, t.FirstOffset})
		}
	}
	return o, err
}

func (k *kafkaLog) damage(d *kafkatest.FileDamage) (any, error) {
	o := kafkatest.SmallOutcome{Failure: succeeded}
	name := filepath.Join(k.dir, d.File)
	if d.Delete {
		err := os.Remove(name)
		o.Existed = err == nil
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return o, err
	}
	p, err := os.ReadFile(name)
	if err != nil && (d.Create == nil || !errors.Is(err, fs.ErrNotExist)) {
		return o, err
	}
	p = damaged(p, d)
	o.Size = int64(len(p))
	return o, os.WriteFile(name, p, 0o644)
}

// interopNames gives the settings of a trace Kafka's own names.
func interopNames(s *kafkatest.Settings) interop.Settings {
	named := map[string]string{}
	for name, v := range map[string]*int32{
		"segment.bytes": s.SegmentBytes, "segment.index.bytes": s.SegmentIndexBytes, "index.interval.bytes": s.IndexIntervalBytes,
		"max.message.bytes": s.MaxMessageBytes, "max.decompressed.message.bytes": s.MaxDecompressedMessageBytes,
	} {
		if v != nil {
			named[name] = strconv.Itoa(int(*v))
		}
	}
	for name, v := range map[string]*int64{
		"segment.ms": s.SegmentMs, "retention.ms": s.RetentionMs, "retention.bytes": s.RetentionBytes,
		"message.timestamp.before.max.ms": s.MessageTimestampBeforeMaxMs, "message.timestamp.after.max.ms": s.MessageTimestampAfterMaxMs,
		"file.delete.delay.ms": s.FileDeleteDelayMs, "flush.messages": s.FlushMessages, "max.compaction.lag.ms": s.MaxCompactionLagMs,
		"producer.id.expiration.ms": s.ProducerIDExpirationMs,
	} {
		if v != nil {
			named[name] = strconv.FormatInt(*v, 10)
		}
	}
	for name, v := range map[string]*string{
		"message.timestamp.type": s.TimestampType, "cleanup.policy": s.CleanupPolicy, "compression.type": s.CompressionType,
	} {
		if v != nil {
			named[name] = *v
		}
	}
	for name, v := range map[string]*bool{"preallocate": s.Preallocate, "transaction.partition.verification.enable": s.TransactionVerification} {
		if v != nil {
			named[name] = strconv.FormatBool(*v)
		}
	}
	return interop.Settings{Other: named}
}
