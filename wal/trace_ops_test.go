package wal

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/kafkadir"
	"github.com/oncelog/oncelog/internal/kafkatest"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// replayer does to a log what a trace did to Kafka's.
type replayer struct {
	t  testing.TB
	tr *kafkatest.Trace

	root       string
	generation int // counts crashes: each goes on in a copy of the directory
	log        *Log
	now        int64 // the clock, milliseconds
	settings   kafkatest.Settings
	guards     map[int64]Guard // by the numbers of the trace
	ended      bool            // a reopen failed
	setAside   []string        // files that the last open took out of the log, by their paths

	listed *difference // of the present operation, nil if there is none
	met    bool        // the file that listed names differs

	// What the checkpoints of the log directory hold.
	recoveryPoint, logStart int64
}

var partition = checkpoint.TopicPartition{Topic: "t", Partition: 0}

func newReplayer(t testing.TB, tr *kafkatest.Trace) *replayer {
	return newReplayerIn(t, tr, t.TempDir())
}

func newReplayerIn(t testing.TB, tr *kafkatest.Trace, root string) *replayer {
	return &replayer{t: t, tr: tr, root: root, guards: map[int64]Guard{}, now: 1_700_000_000_000}
}

func (r *replayer) close() {
	if r.log != nil {
		r.discard()
	}
}

func (r *replayer) parent() string { return filepath.Join(r.root, fmt.Sprint("g", r.generation)) }
func (r *replayer) dir() string    { return filepath.Join(r.parent(), "t-0") }

var traceOps = map[string]func(*replayer, *kafkatest.Op) string{
	"open":               (*replayer).open,
	"reopen":             (*replayer).reopen,
	"close":              (*replayer).closeLog,
	"crash":              (*replayer).crash,
	"damage":             (*replayer).damage,
	"append":             (*replayer).append,
	"appendFollower":     (*replayer).append,
	"marker":             (*replayer).marker,
	"verify":             (*replayer).verify,
	"roll":               (*replayer).roll,
	"flush":              (*replayer).flush,
	"hw":                 (*replayer).highWatermark,
	"expire":             (*replayer).expire,
	"snapshot":           (*replayer).snapshot,
	"read":               (*replayer).read,
	"offsetForTimestamp": (*replayer).offsetForTimestamp,
	"endOffsetForEpoch":  (*replayer).endOffsetForEpoch,
	"lateTransaction":    (*replayer).lateTransaction,
	"checkpoint":         (*replayer).checkpoint,
	"clock":              (*replayer).setClock,
	"state":              (*replayer).state,
	"truncate":           (*replayer).truncate,
	"truncateFully":      (*replayer).truncateFully,
	"deleteRecords":      (*replayer).deleteRecords,
	"retention":          (*replayer).retention,
	"setConfig":          (*replayer).setConfig,
}

// do runs one operation and returns how its outcome differs from Kafka's.
func (r *replayer) do(op *kafkatest.Op) string {
	r.listed, r.met = r.known(op), false
	f, ok := traceOps[op.Kind]
	if !ok {
		r.t.Fatalf("line %d: no operation %s", op.Line, op.Kind)
	}
	diff := f(r, op)
	if r.log != nil {
		// The jobs that a broker runs in the background. No delay is one of a nanosecond in ours.
		if _, err := r.log.RemoveDiscarded(time.UnixMilli(r.now).Add(1)); err != nil {
			r.t.Fatal(err)
		}
	}
	return diff
}

// failed compares an error with Kafka's refusal. compare is whether there is more to compare.
func (r *replayer) failed(op *kafkatest.Op, err error) (diff string, compare bool) {
	want := op.Failure()
	if want.OK || err == nil {
		if want.OK != (err == nil) {
			return fmt.Sprintf("Kafka: ok %v, %s (%d); ours: %v", want.OK, want.Error, want.Code, err), false
		}
		return "", true
	}
	// Code -1 is internal to Kafka: refusing is what counts.
	if code, name := ErrorCode(err); want.Code != -1 && code != want.Code {
		return fmt.Sprintf("Kafka: %s (%d); ours: %s (%d), %v", want.Error, want.Code, name, code, err), false
	}
	var bad []int
	var records *RecordsError
	if errors.As(err, &records) {
		for _, e := range records.Records {
			bad = append(bad, e.Index)
		}
	}
	if want.RecordErrors != nil && records != nil {
		return cmp.Diff(want.RecordErrors, bad), false
	}
	return "", false
}

// outcome compares what an operation answered that may fail. got is asked only after success.
func outcome[T any](r *replayer, op *kafkatest.Op, err error, got func(want *T) T) string {
	diff, compare := r.failed(op, err)
	if !compare {
		return diff
	}
	var want T
	op.Outcome(r.t, &want)
	return cmp.Diff(want, got(&want))
}

var succeeded = kafkatest.Failure{OK: true}

func (r *replayer) options() Options {
	o := Options{
		Compat: true, ManualHighWatermark: true, VerifyTransactions: true, Sync: SyncNone, manual: true,
		Now: func() time.Time { return time.UnixMilli(r.now) },
	}
	s := &r.settings
	give(&o.SegmentBytes, s.SegmentBytes)
	give(&o.MaxIndexBytes, s.SegmentIndexBytes)
	give(&o.MaxMessageBytes, s.MaxMessageBytes)
	give(&o.Preallocate, s.Preallocate)
	give(&o.VerifyTransactions, s.TransactionVerification)
	if s.IndexIntervalBytes != nil {
		o.IndexIntervalBytes = max(1, *s.IndexIntervalBytes) // 0 is every batch but the first, and so is 1
	}
	if s.MaxDecompressedMessageBytes != nil {
		o.MaxDecompressedBytes = int(*s.MaxDecompressedMessageBytes)
	}
	giveTime(&o.SegmentAge, s.SegmentMs)
	give(&o.RetentionBytes, s.RetentionBytes)
	if s.RetentionBytes != nil && *s.RetentionBytes == 0 {
		o.RetentionBytes = RetainNothing
	}
	o.RetentionAge = 7 * 24 * time.Hour
	if s.RetentionMs != nil && *s.RetentionMs < 0 {
		o.RetentionAge = Never
	} else {
		giveTime(&o.RetentionAge, s.RetentionMs)
	}
	giveTime(&o.FileDeleteDelay, s.FileDeleteDelayMs)
	giveTime(&o.TimestampBeforeMax, s.MessageTimestampBeforeMaxMs)
	giveTime(&o.TimestampAfterMax, s.MessageTimestampAfterMaxMs)
	giveTime(&o.MaxCompactionLag, s.MaxCompactionLagMs)
	giveTime(&o.ProducerIDExpiration, s.ProducerIDExpirationMs)
	give(&o.SyncMessages, s.FlushMessages)
	if s.TimestampType != nil && *s.TimestampType == "LogAppendTime" {
		o.TimestampType = record.LogAppendTime
	}
	if s.CleanupPolicy != nil {
		o.CleanupPolicy = map[string]CleanupPolicy{"delete": CleanupDelete, "compact": CleanupCompact,
			"compact,delete": CleanupCompact | CleanupDelete}[*s.CleanupPolicy]
	}
	if s.CompressionType != nil && *s.CompressionType != "producer" {
		o.Compression.Recompress = true
		o.Compression.Codec = map[string]record.Compression{"uncompressed": record.None, "gzip": record.Gzip,
			"snappy": record.Snappy, "lz4": record.LZ4, "zstd": record.Zstd}[*s.CompressionType]
	}
	return o
}

func give[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

func giveTime(to *time.Duration, ms *int64) {
	switch {
	case ms == nil:
	case *ms > math.MaxInt64/int64(time.Millisecond):
		*to = Never
	case *ms == 0:
		*to = 1 // zero is the default
	default:
		*to = time.Duration(*ms) * time.Millisecond
	}
}

func (r *replayer) setConfig(op *kafkatest.Op) string {
	r.merge(&op.Settings)
	err := r.log.Reconfigure(func(o *Options) {
		*o = r.options()
		o.Now, o.Logger = nil, nil
	})
	return r.small(op, err, nil)
}

// merge takes over the settings that an operation names.
func (r *replayer) merge(s *kafkatest.Settings) {
	mergeStruct(&r.settings, s)
}

// load opens the log as a broker does that finds these files in the log directory.
func (r *replayer) load(clean bool, recoveryPoint, logStart int64) error {
	r.t.Helper()
	dir := r.parent()
	r.must(os.MkdirAll(r.dir(), 0o755))
	r.must(os.WriteFile(filepath.Join(dir, kafkadir.PropertiesFile), []byte("version=1\n"), 0o644))
	for name, offset := range map[string]int64{checkpoint.RecoveryPointFile: recoveryPoint, checkpoint.LogStartFile: logStart} {
		r.must(checkpoint.WriteOffsets(vfs.OS, filepath.Join(dir, name), map[checkpoint.TopicPartition]int64{partition: offset}))
	}
	if clean {
		r.must(kafkadir.WriteMarker(vfs.OS, dir, kafkadir.UnknownBrokerEpoch))
	} else {
		_, err := kafkadir.RemoveMarker(vfs.OS, dir)
		r.must(err)
	}
	log, err := Open(context.Background(), r.dir(), r.options())
	if err != nil {
		return err
	}
	r.log = log
	r.setAside, err = filepath.Glob(filepath.Join(r.dir(), "*"+segment.SuffixDeleted))
	r.must(err)
	return nil
}

func (r *replayer) must(err error) {
	if err != nil {
		r.t.Helper()
		r.t.Fatal(err)
	}
}

func (r *replayer) open(op *kafkatest.Op) string {
	if op.Settings.StartMs != nil {
		r.now = *op.Settings.StartMs
	}
	r.merge(&op.Settings)
	return outcome(r, op, r.load(true, 0, 0), func(*kafkatest.EndsOutcome) kafkatest.EndsOutcome { return r.ends() })
}

func (r *replayer) ends() kafkatest.EndsOutcome {
	o := r.log.Offsets()
	return kafkatest.EndsOutcome{Failure: succeeded, LogStart: o.LogStart, LogEnd: o.LogEnd, HighWatermark: o.HighWatermark, LSO: o.LastStable}
}

func (r *replayer) reopen(op *kafkatest.Op) string {
	if r.log != nil {
		r.crashLog()
	}
	r.merge(&op.Settings)
	recoveryPoint, logStart := r.recoveryPoint, r.logStart
	give(&recoveryPoint, op.RecoveryPoint)
	give(&logStart, op.LogStart)
	err := r.load(op.Clean, recoveryPoint, logStart)
	r.ended = err != nil
	return outcome(r, op, err, func(*kafkatest.EndsOutcome) kafkatest.EndsOutcome {
		o := r.ends()
		o.RecoveryPoint = r.log.Offsets().RecoveryPoint
		return o
	})
}

func (r *replayer) closeLog(op *kafkatest.Op) string {
	err := r.log.Close()
	r.log = nil
	return outcome(r, op, err, func(*kafkatest.EndsOutcome) kafkatest.EndsOutcome {
		r.recoveryPoint, r.logStart = r.checkpointed(checkpoint.RecoveryPointFile), r.checkpointed(checkpoint.LogStartFile)
		return kafkatest.EndsOutcome{Failure: succeeded, RecoveryPoint: r.recoveryPoint, LogStart: r.logStart}
	})
}

func (r *replayer) checkpointed(file string) int64 {
	offsets, err := checkpoint.ReadOffsets(vfs.OS, filepath.Join(r.parent(), file))
	r.must(err)
	return offsets[partition]
}

func (r *replayer) checkpoint(op *kafkatest.Op) string {
	o := r.log.Offsets()
	r.recoveryPoint, r.logStart = o.RecoveryPoint, 0
	if o.LogStart > r.log.set.First().BaseOffset() {
		r.logStart = o.LogStart
	}
	return outcome(r, op, nil, func(*kafkatest.EndsOutcome) kafkatest.EndsOutcome {
		return kafkatest.EndsOutcome{Failure: succeeded, RecoveryPoint: r.recoveryPoint, LogStart: r.logStart}
	})
}

func (r *replayer) crash(op *kafkatest.Op) string {
	r.crashLog()
	return outcome(r, op, nil, func(*kafkatest.SmallOutcome) kafkatest.SmallOutcome {
		return kafkatest.SmallOutcome{Failure: succeeded}
	})
}

// crashLog copies the directory as it is and throws the log away.
func (r *replayer) crashLog() {
	from := r.dir()
	r.generation++
	to := r.dir()
	r.must(os.MkdirAll(to, 0o755))
	entries, err := os.ReadDir(from)
	r.must(err)
	for _, e := range entries {
		p, err := os.ReadFile(filepath.Join(from, e.Name()))
		r.must(err)
		r.must(os.WriteFile(filepath.Join(to, e.Name()), p, 0o644))
	}
	r.discard()
}

func (r *replayer) discard() {
	l := r.log
	r.log = nil
	abandon(r.t, l)
	for s := range l.set.All() {
		r.must(s.Close())
	}
}

func (r *replayer) damage(op *kafkatest.Op) string {
	d := op.Damage
	name := filepath.Join(r.dir(), d.File)
	p, err := os.ReadFile(name)
	existed := err == nil
	got := kafkatest.SmallOutcome{Failure: succeeded}
	switch {
	case d.Delete:
		got.Existed = existed
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.t.Fatal(err)
		}
	default:
		p = damaged(p, d)
		r.must(os.WriteFile(name, p, 0o644))
		got.Size = int64(len(p))
	}
	return outcome(r, op, nil, func(want *kafkatest.SmallOutcome) kafkatest.SmallOutcome {
		if !r.tr.CompareBytes || indexName.MatchString(d.File) {
			got.Size = want.Size // of a live index, which Kafka allocates in full
			got.Existed = want.Existed
		}
		return got
	})
}

// damaged returns the content of a file after a damage that leaves it there.
func damaged(p []byte, d *kafkatest.FileDamage) []byte {
	switch {
	case d.Create != nil:
		return d.Create
	case d.XOR != nil:
		at := d.Position
		if at < 0 {
			at += int64(len(p))
		}
		p[at] ^= *d.XOR
		return p
	case d.TruncateTo != nil:
		n := *d.TruncateTo
		return append(p, make([]byte, max(0, n-int64(len(p))))...)[:n]
	}
	return append(p, d.Append...)
}

var origins = map[string]Origin{"client": Client, "coordinator": Coordinator, "replication": Replication, "raft": Raft}

func (r *replayer) append(op *kafkatest.Op) string {
	p := append([]byte(nil), op.Batch...)
	if op.Kind == "appendFollower" {
		info, err := r.log.AppendAsFollower(p, op.LeaderEpoch)
		return r.appended(op, info, err, nil)
	}
	info, err := r.log.AppendAsLeader(p, LeaderAppend{LeaderEpoch: op.LeaderEpoch, Origin: origins[op.Origin],
		Guard: r.guards[op.Guard], TransactionVersion: int8(op.TransactionVersion)})
	return r.appended(op, info, err, nil)
}

func (r *replayer) appended(op *kafkatest.Op, info AppendInfo, err error, built []byte) string {
	return outcome(r, op, err, func(want *kafkatest.AppendOutcome) kafkatest.AppendOutcome {
		got := kafkatest.AppendOutcome{
			Failure: succeeded, FirstOffset: info.FirstOffset, LastOffset: info.LastOffset, Duplicate: info.Duplicate,
			LogAppendTime: info.LogAppendTime, MaxTimestamp: info.MaxTimestamp, ValidBytes: info.Bytes, LogStart: info.LogStart,
			LastLeaderEpoch: info.LeaderEpoch, LogEnd: r.log.Offsets().LogEnd, ActiveBase: r.log.active.BaseOffset(), Built: built,
		}
		if !r.tr.CompareBytes {
			got.ActiveBase = want.ActiveBase
		}
		return got
	})
}

func (r *replayer) marker(op *kafkatest.Op) string {
	ts := r.now
	give(&ts, op.Timestamp)
	p := record.Producer{ID: op.ProducerID, Epoch: int16(op.Epoch)}
	m := record.EndTxnMarker{Type: record.Abort, CoordinatorEpoch: op.CoordinatorEpoch}
	if op.Type == "commit" {
		m.Type = record.Commit
	}
	built := record.Batch(record.AppendEndTxnMarker(nil, p, m, ts))
	built.SetPartitionLeaderEpoch(op.LeaderEpoch)
	sent := append([]byte(nil), built...)
	var info AppendInfo
	var err error
	if op.Origin == "coordinator" && op.LeaderEpoch == 0 {
		info, err = r.log.AppendEndTxnMarker(p, m, MarkerAppend{
			TransactionVersion: int8(op.TransactionVersion), Time: time.UnixMilli(ts)})
		info.LeaderEpoch = built.PartitionLeaderEpoch() // ours does not set it before it sends
	} else {
		info, err = r.log.AppendAsLeader(built, LeaderAppend{LeaderEpoch: op.LeaderEpoch, Origin: origins[op.Origin],
			TransactionVersion: int8(op.TransactionVersion)})
	}
	return r.appended(op, info, err, sent)
}

func (r *replayer) verify(op *kafkatest.Op) string {
	g, err := r.log.VerifyTransaction(record.Producer{ID: op.ProducerID, Epoch: int16(op.Epoch), BaseSequence: op.Sequence}, op.SupportsEpochBump)
	return outcome(r, op, err, func(want *kafkatest.SmallOutcome) kafkatest.SmallOutcome {
		got := kafkatest.SmallOutcome{Failure: succeeded}
		if g == 0 {
			return got
		}
		// Any numbers will do that are equal where Kafka's are.
		if _, ok := r.guards[want.Guard]; !ok && want.Guard != 0 {
			for _, other := range r.guards {
				if other == g {
					r.t.Fatalf("line %d: guard %d again", op.Line, g)
				}
			}
			r.guards[want.Guard] = g
		}
		got.Guard = -1
		for n, ours := range r.guards {
			if ours == g {
				got.Guard = n
			}
		}
		return got
	})
}

func (r *replayer) roll(op *kafkatest.Op) string {
	err := r.log.Roll()
	return r.small(op, err, func(o *kafkatest.SmallOutcome) { o.BaseOffset = r.log.active.BaseOffset() })
}

func (r *replayer) small(op *kafkatest.Op, err error, set func(o *kafkatest.SmallOutcome)) string {
	return outcome(r, op, err, func(*kafkatest.SmallOutcome) kafkatest.SmallOutcome {
		got := kafkatest.SmallOutcome{Failure: succeeded}
		if set != nil {
			set(&got)
		}
		return got
	})
}

func (r *replayer) flush(op *kafkatest.Op) string {
	return outcome(r, op, r.log.Flush(), func(*kafkatest.EndsOutcome) kafkatest.EndsOutcome {
		return kafkatest.EndsOutcome{Failure: succeeded, RecoveryPoint: r.log.Offsets().RecoveryPoint}
	})
}

func (r *replayer) highWatermark(op *kafkatest.Op) string {
	offset := op.Offset
	if offset == -1 {
		offset = r.log.Offsets().LogEnd
	}
	_, err := r.log.UpdateHighWatermark(offset)
	return outcome(r, op, err, func(*kafkatest.EndsOutcome) kafkatest.EndsOutcome { return r.ends() })
}

func (r *replayer) expire(op *kafkatest.Op) string {
	r.log.RemoveExpiredProducers(time.UnixMilli(r.now))
	return r.small(op, nil, func(o *kafkatest.SmallOutcome) { o.Producers = r.log.producers.Len() })
}

func (r *replayer) snapshot(op *kafkatest.Op) string {
	return r.small(op, r.log.TakeProducerSnapshot(), func(o *kafkatest.SmallOutcome) {
		o.Latest = -1
		if latest, ok := r.log.producers.LatestSnapshotOffset(); ok {
			o.Latest = latest
		}
	})
}

func (r *replayer) lateTransaction(op *kafkatest.Op) string {
	return r.small(op, nil, func(o *kafkatest.SmallOutcome) { o.Late = r.log.HasLateTransaction(time.UnixMilli(r.now)) })
}

func (r *replayer) setClock(op *kafkatest.Op) string {
	r.now = op.Time
	return r.small(op, nil, nil)
}

var isolations = map[string]Isolation{"log_end": LogEnd, "high_watermark": HighWatermark, "txn_committed": TxnCommitted}

func (r *replayer) read(op *kafkatest.Op) string {
	f, err := r.log.Read(op.Offset, ReadOptions{MaxBytes: op.MaxBytes, Isolation: isolations[op.Isolation], MinOneMessage: op.MinOneMessage})
	return outcome(r, op, err, func(want *kafkatest.ReadOutcome) kafkatest.ReadOutcome {
		defer f.Close()
		got := kafkatest.ReadOutcome{Failure: succeeded, FirstEntryIncomplete: f.FirstEntryIncomplete, Bytes: f.Records.Size, Batches: [][3]int64{}}
		got.Position.Offset, got.Position.Segment, got.Position.Pos = f.Offset, f.Segment, f.Position
		p, err := f.Records.AppendTo(nil)
		r.must(err)
		for b, err := range record.All(p) {
			if err != nil {
				break // cut off
			}
			got.Batches = append(got.Batches, [3]int64{b.BaseOffset(), b.LastOffset(), int64(b.Size())})
		}
		got.SHA256 = sum(p)
		if f.Aborted != nil {
			got.Aborted = [][2]int64{}
			for _, a := range f.Aborted {
				got.Aborted = append(got.Aborted, [2]int64{a.ProducerID, a.FirstOffset})
			}
		}
		if !r.tr.CompareBytes {
			maskRead(want)
			maskRead(&got)
		}
		return got
	})
}

// maskRead removes what depends on how many bytes a compressor made.
func maskRead(o *kafkatest.ReadOutcome) {
	o.Bytes, o.SHA256, o.Position.Segment, o.Position.Pos, o.FirstEntryIncomplete = 0, "", 0, 0, false
	for i := range o.Batches {
		o.Batches[i][2] = 0
	}
}

func sum(p []byte) string {
	h := sha256.Sum256(p)
	return hex.EncodeToString(h[:])
}

func (r *replayer) offsetForTimestamp(op *kafkatest.Op) string {
	hit, found, err := r.log.OffsetForTimestamp(op.Time)
	return outcome(r, op, err, func(*kafkatest.TimestampOutcome) kafkatest.TimestampOutcome {
		got := kafkatest.TimestampOutcome{Failure: succeeded}
		if found {
			got.Timestamp, got.Offset, got.LeaderEpoch = hit.Timestamp, &hit.Offset, &hit.LeaderEpoch
		}
		return got
	})
}

func (r *replayer) endOffsetForEpoch(op *kafkatest.Op) string {
	epoch, end, found := r.log.OffsetForLeaderEpoch(op.Epoch)
	return outcome(r, op, nil, func(*kafkatest.EpochOutcome) kafkatest.EpochOutcome {
		got := kafkatest.EpochOutcome{Failure: succeeded, Epoch: -1, Offset: -1}
		if found {
			got.Epoch, got.Offset = epoch, end
		}
		return got
	})
}
