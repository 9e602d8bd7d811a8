package wal

import (
	"errors"
	"fmt"

	"github.com/oncelog/oncelog/segment"
)

// ErrOffsetNotAvailable means that a new leader does not know yet up to where its log is replicated: its high watermark lies
// below the first offset of its epoch. Asking again later is the way on (KIP-207).
var ErrOffsetNotAvailable = errors.New("wal: high watermark is behind the leader epoch")

// ListOffsets is OffsetForTimestamp for a reader at an isolation level, as a broker answers ListOffsets: LatestTimestamp is
// where the level ends (the log end, the high watermark, the last stable offset), and a record at or above that is not
// found. The earliest and the tiered special times are the same at every level.
//
// Below LogEnd, where a record is not found or the latest offset is asked for, a log whose high watermark has not reached its
// newest leader epoch answers ErrOffsetNotAvailable: the answer could go backwards. It takes a lock only where a level's end is
// not known by its byte yet. Kafka: Partition.fetchOffsetForTimestamp.
func (l *Log) ListOffsets(ms int64, i Isolation) (hit TimestampOffset, found bool, err error) {
	err = l.observe(func(e *ends, set *segment.Set) (err error) {
		hit, found, err = l.offsetForTimestamp(ms, e, set)
		if err != nil || i == LogEnd {
			return err
		}
		switch ms {
		case EarliestTimestamp, EarliestLocalTimestamp, LatestTieredTimestamp, EarliestPendingUploadTimestamp:
			return nil
		}
		end := e.limit(i).offset
		if ms == LatestTimestamp {
			hit.Offset = end
		} else if found && hit.Offset < end {
			return nil
		}
		if latest, ok := l.epochs.Latest(); ok && latest.StartOffset > e.high.offset {
			return fmt.Errorf("%w: epoch %d begins at %d, the high watermark is %d", ErrOffsetNotAvailable, latest.Epoch, latest.StartOffset, e.high.offset)
		}
		if ms != LatestTimestamp {
			hit, found = noTimestampOffset, false
		}
		return nil
	})
	if err != nil {
		return TimestampOffset{}, false, err
	}
	return hit, found, nil
}
