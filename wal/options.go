package wal

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/recovery"
	"github.com/oncelog/oncelog/segment"
)

// SyncMode says what an acknowledgement promises.
type SyncMode = recovery.SyncMode

// The durability modes. All of them survive the end of the process by any signal; they differ after a power cut.
const (
	// SyncCommit acknowledges what is on disk. Appends that come together share one sync.
	SyncCommit = recovery.SyncCommit

	// SyncInterval acknowledges what is in the page cache, and syncs every SyncEvery or SyncBytes. A power cut takes
	// back at most what came after the last sync: an end of the log, never a piece of its middle.
	SyncInterval = recovery.SyncInterval

	// SyncNone acknowledges what is in the page cache, and syncs at a roll, a checkpoint and Close. A power cut takes
	// back at most what came after the last sync. It is Kafka's default, which relies on replicas.
	SyncNone = recovery.SyncNone
)

// Policy says what an open may do about bytes that are not whole batches.
type Policy = recovery.Policy

// The damage policies.
const (
	TolerateTornTail = recovery.TolerateTornTail
	Strict           = recovery.Strict
	PointInTime      = recovery.PointInTime
)

// Never is a duration that is never reached, for settings in which zero means the default.
const Never time.Duration = math.MaxInt64

// RetainNothing is the RetentionBytes that lets every byte go. It is Kafka's retention.bytes=0.
const RetainNothing int64 = math.MinInt64

// UnknownRule says what the first batch of a producer that the log does not know means where its sequence is not 0.
type UnknownRule = producerstate.UnknownRule

// The rules for unknown producers, by the versions of Kafka that have them.
const (
	UnknownKafka44    = producerstate.UnknownKafka44
	UnknownKafka25    = producerstate.UnknownKafka25
	UnknownRefused    = producerstate.UnknownRefused
	UnknownAtLogStart = producerstate.UnknownAtLogStart
)

// CleanupPolicy is Kafka's cleanup.policy, a set.
type CleanupPolicy uint8

// The members of a CleanupPolicy. The zero value is CleanupDelete, as in Kafka.
const (
	CleanupDelete  CleanupPolicy = 1 << iota // old segments may be deleted
	CleanupCompact                           // each record has a key, and Log.Compact keeps the latest one of each key
)

// Compression says which codec batches are stored with. The records of the simple floor (Append, AppendAsync, Producer)
// are always compressed with Codec. Ready batches stay as their producer compressed them, unless Recompress is set: then
// they are compressed anew, which is Kafka's compression.type.
type Compression struct {
	Codec      record.Compression // default record.None
	Level      int                // level of the codec, 0 for its default
	Recompress bool               // store ready batches with Codec too
}

// Options are the settings of a log. The zero value is a log that keeps everything for ever and acknowledges what is on
// disk. Each comment names Kafka's key; sizes are bytes. Most of them may change while the log is open (Log.Reconfigure).
//
// Zero stands for the default. Where Kafka's 0 is something else the smallest value has its effect: a nanosecond counts as
// 0 milliseconds, and 1 as no bytes; for RetentionBytes it is RetainNothing.
type Options struct {
	SegmentBytes       int32         // segment.bytes; a new segment starts when this one would grow beyond it; default 1 GiB
	SegmentAge         time.Duration // segment.ms; a new segment starts when the first batch of this one is older; default 7 days
	SegmentJitter      time.Duration // segment.jitter.ms; at most so much is taken off SegmentAge, at random; default 0
	MaxIndexBytes      int32         // segment.index.bytes; default 10 MiB, at least 12
	IndexIntervalBytes int32         // index.interval.bytes; log bytes between two index entries; default 4096
	Preallocate        bool          // preallocate; give a new .log its full size at once

	MaxMessageBytes      int32                // max.message.bytes; greatest batch that a leader append takes; default 1 MiB + 12
	MaxDecompressedBytes int                  // max.decompressed.message.bytes; greatest record inside a compressed batch; default 2147483639
	TimestampType        record.TimestampType // message.timestamp.type; default CreateTime
	TimestampBeforeMax   time.Duration        // message.timestamp.before.max.ms; default Never
	TimestampAfterMax    time.Duration        // message.timestamp.after.max.ms; default 1 hour
	Compression          Compression          // compression.type and compression.*.level; default: as the producer sent it
	CleanupPolicy        CleanupPolicy        // cleanup.policy; default CleanupDelete

	// Of a compacted log. Compact does what they say, nothing else does.
	MinCompactionLag  time.Duration // min.compaction.lag.ms; younger records stay; default 0
	MaxCompactionLag  time.Duration // max.compaction.lag.ms; Compact does not leave records alone that are older; caps SegmentAge; default Never
	MinDirtyRatio     float64       // min.cleanable.dirty.ratio; Compact leaves a log alone of which not more is dirty; default 0.5; 1e-9 or so: never alone
	DeleteRetention   time.Duration // delete.retention.ms; how long deletions and transaction markers stay readable; default 1 day; 1 ns: not at all
	DedupeBufferBytes int64         // log.cleaner.dedupe.buffer.size; memory for the keys of one pass of Compact, taken as needed; default 128 MiB

	RetentionBytes  int64         // retention.bytes; DeleteOldSegments keeps at least so much; default everything, as is Kafka's -1
	RetentionCount  int64         // DeleteOldSegments keeps at least so many offsets, the newest; default everything. Kafka has none
	RetentionAge    time.Duration // retention.ms; DeleteOldSegments removes what is older; default Never: a log deletes nothing unasked
	FileDeleteDelay time.Duration // file.delete.delay.ms; how long files of removed segments stay; default 1 minute

	Sync            SyncMode      // default SyncCommit
	SyncEvery       time.Duration // flush.ms; SyncInterval: greatest age of unsynced bytes; default 1 s
	SyncBytes       int64         // SyncInterval: greatest number of unsynced bytes; default 16 MiB
	SyncMessages    int64         // flush.messages; an append that leaves so many records unsynced syncs them; default never
	GroupBytes      int32         // SyncCommit: most bytes in one sync; default the greater of 1 MiB and MaxMessageBytes
	CheckpointBytes int64         // log bytes between two checkpoints, which bound what a crash makes the next open read; default 64 MiB

	// CheckSegments lets Open look at both ends of every segment, where otherwise only the names of the files below the last
	// checkpoint are looked at: a segment that has been emptied, shortened, grown or exchanged is found before it is read.
	// It opens every file, and reads the last batch of a closed log.
	CheckSegments bool

	// DamagePolicy decides what Open may cut; default TolerateTornTail.
	DamagePolicy Policy

	// OpenSegments is how many segments have their files open, with three or four descriptors each; those that are read
	// again are opened again. What is written to or being read comes on top. Default 128, or as many as take a quarter of the
	// descriptors that the process may have (ulimit -n); a program with several logs may want less. Kafka keeps all open.
	OpenSegments int

	ProducerIDExpiration  time.Duration // producer.id.expiration.ms; an idle producer is forgotten after it; default 1 day
	MaxTransactionTimeout time.Duration // transaction.max.timeout.ms; default 15 minutes
	UnknownProducers      UnknownRule   // what a first sequence other than 0 means; default as Kafka 4.1 to 4.4
	VerifyTransactions    bool          // transaction.partition.verification.enable; a transaction's first batch needs a Guard

	// ManualHighWatermark leaves the high watermark to UpdateHighWatermark, as replicas need it. Else it is the end of
	// what is acknowledged.
	ManualHighWatermark bool

	// Compat makes the log behave exactly as Kafka 4.4 does where it otherwise would not (the package comment lists
	// where), and keeps no files of its own but the lock. It needs a Kafka log directory around the partition, takes
	// recovery point, log start and clean mark from there, and implies PointInTime.
	Compat bool

	// ReadOnly opens without a lock and changes nothing, beside a running writer too, which Tail, Wait and Refresh follow.
	// Damage does not keep it from opening: reads of the damaged offsets are errors, all others work.
	ReadOnly bool

	// Logger gets life-cycle events, and Now is the clock; default: none, and time.Now. Both are called while locks of the log
	// are held, so that a handler or a clock that uses the log itself would wait for ever.
	Logger *slog.Logger
	Now    func() time.Time

	manual bool // tests: no goroutine of the log's own
}

// withDefaults returns the options with every zero replaced.
func (o Options) withDefaults() Options {
	set(&o.SegmentBytes, 1<<30)
	set(&o.SegmentAge, 7*24*time.Hour)
	set(&o.MaxIndexBytes, 10<<20)
	set(&o.IndexIntervalBytes, 4096)
	set(&o.MaxMessageBytes, 1<<20+record.LogOverhead)
	set(&o.MaxDecompressedBytes, math.MaxInt32-8)
	set(&o.TimestampBeforeMax, Never)
	set(&o.TimestampAfterMax, time.Hour)
	set(&o.CleanupPolicy, CleanupDelete)
	set(&o.MaxCompactionLag, Never)
	set(&o.MinDirtyRatio, 0.5)
	set(&o.DeleteRetention, 24*time.Hour)
	set(&o.DedupeBufferBytes, 128<<20)
	set(&o.RetentionAge, Never)
	set(&o.FileDeleteDelay, time.Minute)
	set(&o.SyncEvery, time.Second)
	set(&o.SyncBytes, 16<<20)
	set(&o.SyncMessages, math.MaxInt64)
	set(&o.GroupBytes, max(1<<20, o.MaxMessageBytes))
	set(&o.CheckpointBytes, 64<<20)
	set(&o.OpenSegments, segment.DefaultOpen())
	set(&o.ProducerIDExpiration, 24*time.Hour)
	set(&o.MaxTransactionTimeout, 15*time.Minute)
	if o.Compat {
		o.DamagePolicy = PointInTime
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate returns every reason why the options cannot be used, joined, or nil. Zero values are fine: they stand for
// the defaults.
func (o Options) Validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrInvalidOptions}, args...)...))
	}
	if o.Compat && o.DamagePolicy != TolerateTornTail && o.DamagePolicy != PointInTime {
		bad("Compat implies DamagePolicy PointInTime, it cannot go with %v", o.DamagePolicy)
	}
	o = o.withDefaults()
	for _, n := range []struct {
		name       string
		value, min int64
	}{
		{"SegmentBytes", int64(o.SegmentBytes), 14},
		{"SegmentAge", int64(o.SegmentAge), int64(time.Millisecond)},
		{"SegmentJitter", int64(o.SegmentJitter), 0},
		{"MaxIndexBytes", int64(o.MaxIndexBytes), 12},
		{"IndexIntervalBytes", int64(o.IndexIntervalBytes), 0},
		{"MaxMessageBytes", int64(o.MaxMessageBytes), 0},
		{"MaxDecompressedBytes", int64(o.MaxDecompressedBytes), 1},
		{"TimestampBeforeMax", int64(o.TimestampBeforeMax), 0},
		{"TimestampAfterMax", int64(o.TimestampAfterMax), 0},
		{"MinCompactionLag", int64(o.MinCompactionLag), 0},
		{"DeleteRetention", int64(o.DeleteRetention), 0},
		{"DedupeBufferBytes", o.DedupeBufferBytes, 1},
		{"MaxCompactionLag", int64(o.MaxCompactionLag), int64(time.Millisecond)},
		{"RetentionAge", int64(o.RetentionAge), 0},
		{"FileDeleteDelay", int64(o.FileDeleteDelay), 0},
		{"SyncEvery", int64(o.SyncEvery), int64(time.Millisecond)},
		{"SyncBytes", o.SyncBytes, 1},
		{"SyncMessages", o.SyncMessages, 1},
		{"CheckpointBytes", o.CheckpointBytes, 1},
		{"OpenSegments", int64(o.OpenSegments), 1},
		{"ProducerIDExpiration", int64(o.ProducerIDExpiration), int64(time.Millisecond)},
		{"MaxTransactionTimeout", int64(o.MaxTransactionTimeout), int64(time.Millisecond)},
	} {
		if n.value < n.min {
			bad("%s is %d, it must be at least %d", n.name, n.value, n.min)
		}
	}
	if o.RetentionCount < 0 {
		bad("RetentionCount is %d, it must be at least 0, which is everything", o.RetentionCount)
	}
	if o.RetentionBytes < -1 && o.RetentionBytes != RetainNothing {
		bad("RetentionBytes is %d, which is neither a size nor -1 (everything) nor RetainNothing", o.RetentionBytes)
	}
	if o.UnknownProducers > UnknownAtLogStart {
		bad("UnknownProducers is %d, which is no rule", o.UnknownProducers)
	}
	if o.MinCompactionLag > o.MaxCompactionLag {
		bad("MinCompactionLag (%v) is above MaxCompactionLag (%v)", o.MinCompactionLag, o.MaxCompactionLag)
	}
	if !(o.MinDirtyRatio >= 0 && o.MinDirtyRatio <= 1) {
		bad("MinDirtyRatio is %v, it must be between 0 and 1", o.MinDirtyRatio)
	}
	if o.GroupBytes < o.MaxMessageBytes {
		bad("GroupBytes (%d) is smaller than MaxMessageBytes (%d): the largest batch would not fit into a group", o.GroupBytes, o.MaxMessageBytes)
	}
	if o.Sync > SyncNone {
		bad("Sync is %d, which is no mode", o.Sync)
	}
	if o.DamagePolicy > PointInTime {
		bad("DamagePolicy is %d, which is no policy", o.DamagePolicy)
	}
	if o.CleanupPolicy > CleanupDelete|CleanupCompact {
		bad("CleanupPolicy is %d, which is no policy", o.CleanupPolicy)
	}
	if err := o.Compression.Codec.ValidateLevel(o.Compression.Level); err != nil {
		bad("Compression: %w", err)
	}
	return errors.Join(errs...)
}

// segmentAge is SegmentAge as a compacted log caps it. Kafka: LogConfig.maxSegmentMs.
func (o *Options) segmentAge() time.Duration {
	if o.CleanupPolicy&CleanupCompact != 0 {
		return min(o.SegmentAge, o.MaxCompactionLag)
	}
	return o.SegmentAge
}

// retentionBytes is how many bytes retention keeps at least, if there is such a number.
func (o *Options) retentionBytes() (keep int64, limited bool) {
	if o.RetentionBytes == RetainNothing {
		return 0, true
	}
	return o.RetentionBytes, o.RetentionBytes > 0
}
