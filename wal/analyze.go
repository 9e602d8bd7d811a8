package wal

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/oncelog/oncelog/record"
)

// noOffset stands for an offset that is not known, as Kafka's UnifiedLog.UNKNOWN_OFFSET.
const noOffset int64 = -1

// analysis is what can be said of the bytes of an append without looking at the log. Kafka: LogAppendInfo.
type analysis struct {
	bytes         []byte // the whole batches, without a partial one behind them
	batches       int
	firstOffset   int64 // base offset of the first batch; noOffset for old formats
	lastOfFirst   int64 // last offset of the first batch
	lastOffset    int64
	maxTimestamp  int64
	codec         record.Compression // the last one that is not none
	lastEpoch     int32
	offsetsAscend bool
	oldFormat     bool // a batch of magic 0 or 1 is there
}

// firstOrLastOfFirst is the first offset, or where an old format hides it the last one of the first entry.
func (a *analysis) firstOrLastOfFirst() int64 {
	if a.firstOffset != noOffset {
		return a.firstOffset
	}
	return a.lastOfFirst
}

// analyze walks the batches of an append. What belongs to no whole batch at the end is left out, as a fetch may end
// inside one. Kafka: UnifiedLog.analyzeAndValidateRecords.
func analyze(p []byte, o *Options, origin Origin, leaderEpoch int32, keepOffsets bool) (a analysis, err error) {
	a = analysis{firstOffset: noOffset, lastOfFirst: noOffset, lastOffset: noOffset, maxTimestamp: record.NoTimestamp,
		lastEpoch: record.NoPartitionLeaderEpoch, offsetsAscend: true}
	skip := false
	rest := p
	size := 0
	for {
		b, next, err := record.Next(rest)
		if err == io.EOF || errors.Is(err, record.ErrTruncated) {
			break
		}
		if err != nil {
			return a, fmt.Errorf("wal: batch at byte %d of the append: %w", len(p)-len(rest), err)
		}
		rest = next
		if origin == Raft && b.PartitionLeaderEpoch() != leaderEpoch {
			return a, invalid("batch carries leader epoch %d, the append %d", b.PartitionLeaderEpoch(), leaderEpoch)
		}
		if b.Magic() >= record.Magic && origin == Client && b.BaseOffset() != 0 {
			return a, invalid("base offset is %d, a producer's batch must start at 0", b.BaseOffset())
		}
		if origin == Replication && b.PartitionLeaderEpoch() > leaderEpoch {
			skip = true // newer than what the follower asked for: it and all behind it are not taken (KAFKA-18723)
		}
		if skip {
			continue
		}
		if most := o.MaxMessageBytes; b.Size() > int(most) && !(keepOffsets && origin == Replication) {
			return a, fmt.Errorf("%w: batch of %d bytes, the log takes %d (MaxMessageBytes)", ErrMessageTooLarge, b.Size(), most)
		}
		if err := a.add(b, keepOffsets); err != nil {
			return a, err
		}
		size += b.Size()
	}
	a.bytes = p[:size]
	if keepOffsets && !a.offsetsAscend {
		return a, fmt.Errorf("%w: batches that keep their offsets must ascend", ErrOffsetsOutOfOrder)
	}
	return a, nil
}

func (a *analysis) add(b record.Batch, keepsOffset bool) error {
	last := b.LastOffset()
	if a.batches == 0 {
		if b.Magic() >= record.Magic {
			a.firstOffset = b.BaseOffset()
		}
		a.lastOfFirst = last
	}
	a.batches++
	if last <= a.lastOffset {
		a.offsetsAscend = false
	}
	a.lastOffset = last
	a.lastEpoch = b.PartitionLeaderEpoch()
	if err := b.Validate(); err != nil {
		return fmt.Errorf("wal: batch at offset %d of the append: %w", b.BaseOffset(), err)
	}
	if c := b.Attributes().Compression(); c > record.Zstd {
		return fmt.Errorf("wal: batch at offset %d of the append: %w: %d", b.BaseOffset(), record.ErrUnsupportedCompression, c)
	}
	if err := notRepresentable(b, keepsOffset); err != nil {
		return err
	}
	a.maxTimestamp = max(a.maxTimestamp, b.MaxTimestamp())
	if c := b.Attributes().Compression(); c != record.None {
		a.codec = c
	}
	a.oldFormat = a.oldFormat || b.Magic() < record.Magic
	return nil
}

// notRepresentable refuses offsets that overflow, where they are not given anew, and producer ids that are neither an id nor none. Kafka takes the
// latter and keeps no state for them; nothing can come of it but a batch that is never deduplicated.
func notRepresentable(b record.Batch, keepsOffset bool) error {
	if b.Magic() < record.Magic {
		return nil
	}
	if d := b.LastOffsetDelta(); d < 0 || keepsOffset && (b.BaseOffset() < 0 || b.BaseOffset() > math.MaxInt64-1-int64(d)) {
		return invalid("offsets %d + %d are out of range", b.BaseOffset(), d)
	}
	if id := b.ProducerID(); id < record.NoProducerID {
		return invalid("producer id is %d, below -1", id)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalidRecord}, args...)...)
}
