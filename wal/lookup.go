package wal

import (
	"context"
	"errors"
	"fmt"

	"github.com/oncelog/oncelog/internal/leaderepoch"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// Times with a special meaning for OffsetForTimestamp. Kafka: ListOffsetsRequest.
const (
	LatestTimestamp                int64 = -1 // the log end
	EarliestTimestamp              int64 = -2 // the log start
	MaxTimestamp                   int64 = -3 // the first record that has the greatest timestamp of all
	EarliestLocalTimestamp         int64 = -4 // the log start: no part of the log lies elsewhere
	LatestTieredTimestamp          int64 = -5 // no offset: no part of the log lies elsewhere
	EarliestPendingUploadTimestamp int64 = -6 // no offset, for the same reason
)

// TimestampOffset is an answer to OffsetForTimestamp.
type TimestampOffset struct {
	Timestamp   int64 // of the record, milliseconds; record.NoTimestamp where the answer is no record
	Offset      int64 // −1 if the question has no answer in a log that lies in one place
	LeaderEpoch int32 // of its batch; record.NoPartitionLeaderEpoch if it is not known
}

// noTimestampOffset is the answer where there is none.
var noTimestampOffset = TimestampOffset{Timestamp: record.NoTimestamp, Offset: noOffset, LeaderEpoch: record.NoPartitionLeaderEpoch}

// OffsetForTimestamp returns the first record whose timestamp is ms, in milliseconds, or later, or answers one of the
// special times. It is not found if there is no such record. Records below the log start do not count, those above the
// high watermark do (ListOffsets serves the isolation levels). Damage that is met on the
// way is an error. It takes no lock. Kafka: UnifiedLog.fetchOffsetByTimestamp, which answers none where the log start
// lies on the border of a segment and the one before still has later records, and which takes the greatest timestamp
// from the indexes, even of records below the log start.
func (l *Log) OffsetForTimestamp(ms int64) (hit TimestampOffset, found bool, err error) {
	err = l.observe(func(e *ends, set *segment.Set) (err error) {
		hit, found, err = l.offsetForTimestamp(ms, e, set)
		return err
	})
	if err != nil {
		return TimestampOffset{}, false, err
	}
	return hit, found, nil
}

func (l *Log) offsetForTimestamp(ms int64, e *ends, set *segment.Set) (hit TimestampOffset, found bool, err error) {
	hit = noTimestampOffset
	switch {
	case ms == LatestTimestamp:
		hit.Offset = e.end.offset
		if latest, ok := l.epochs.Latest(); ok {
			hit.LeaderEpoch = latest.Epoch
		}
		return hit, true, nil
	case ms == EarliestTimestamp, ms == EarliestLocalTimestamp:
		hit.Offset = e.logStart
		if earliest, ok := l.epochs.Earliest(); ok && earliest.StartOffset <= e.logStart {
			hit.LeaderEpoch = earliest.Epoch
		}
		return hit, true, nil
	case ms == LatestTieredTimestamp, ms == EarliestPendingUploadTimestamp:
		return hit, true, nil
	case ms == MaxTimestamp:
		return l.newestRecord(e, set)
	case ms < 0:
		return hit, false, fmt.Errorf("%w: timestamp %d is neither a time nor one with a special meaning", ErrInvalidArgument, ms)
	}
	for s := range set.From(e.logStart) {
		t, err := s.MaxTimestamp()
		if err != nil {
			return hit, false, err
		}
		if t.Timestamp < ms {
			continue
		}
		h, found, err := s.OffsetByTimestamp(ms, e.logStart, endIn(s, e.end))
		if err != nil || found {
			return TimestampOffset(h), found, err
		}
	}
	return hit, false, nil
}

// newestRecord finds the first record that has the greatest timestamp.
func (l *Log) newestRecord(e *ends, set *segment.Set) (best TimestampOffset, found bool, err error) {
	best = noTimestampOffset
	for s := range set.From(e.logStart) {
		t, err := s.MaxTimestamp()
		if err != nil {
			return best, false, err
		}
		if t.Timestamp <= best.Timestamp {
			continue
		}
		hit, ok, err := s.FindMaxTimestamp(endIn(s, e.end))
		if err == nil && ok && hit.Offset < e.logStart {
			hit, ok, err = l.newestIn(s, e.logStart, endIn(s, e.end))
		}
		if err != nil {
			return best, false, err
		}
		if ok && hit.Timestamp > best.Timestamp {
			best, found = TimestampOffset(hit), true
		}
	}
	return best, found, nil
}

// newestIn looks only at the records from an offset on, for the segment in which the log start lies. It reads the batches
// that may hold a later record than those before.
func (l *Log) newestIn(s *segment.Segment, from, end int64) (best segment.TimestampHit, found bool, err error) {
	best.Timestamp = record.NoTimestamp
	pos, _, ok, err := s.Locate(from, end)
	if err != nil || !ok {
		return best, false, err
	}
	var buf []byte
	c := s.ScanHeaders(pos, end)
	for c.Next() {
		h := c.Header()
		if h.MaxTimestamp <= best.Timestamp || h.Count == 0 {
			continue
		}
		b, grown, err := s.ReadBatch(buf[:0], h)
		if err != nil {
			return best, false, err
		}
		buf = grown
		for r, err := range b.Records(l.limits()) {
			if err != nil {
				return best, false, fmt.Errorf("wal: %s at byte %d: %w", s.Path(), h.Position, err)
			}
			if r.Offset >= from && r.Timestamp > best.Timestamp {
				best = segment.TimestampHit{Timestamp: r.Timestamp, Offset: r.Offset, LeaderEpoch: b.PartitionLeaderEpoch()}
				found = true
			}
		}
	}
	return best, found, c.Err()
}

// OffsetForLeaderEpoch tells a replica or a reader that knows a leader epoch where this log leaves that epoch: the
// greatest known epoch at or below the one asked for, and the offset where it ended, which for the newest epoch is the
// log end. For an epoch older than all that are known it is the epoch itself and where the oldest known one begins. It
// is not found if nothing is known, or if the epoch lies above all that are. Kafka: UnifiedLog.endOffsetForEpoch.
func (l *Log) OffsetForLeaderEpoch(epoch int32) (foundEpoch int32, end int64, found bool) {
	foundEpoch, end = l.epochs.EndOffsetFor(epoch, l.visible.load().end.offset)
	return foundEpoch, end, end != leaderepoch.Undefined
}

// observe runs f on one reading of the log, and again if the log was cut or a segment removed meanwhile.
func (l *Log) observe(f func(e *ends, set *segment.Set) error) error {
	for {
		if l.isClosed.Load() {
			return ErrClosed
		}
		e := l.visible.load()
		err := f(&e, l.segments.Load())
		if l.opts.ReadOnly && !l.isClosed.Load() {
			same, lookErr := l.stillThere(context.Background(), e.truncations, err)
			if !same && lookErr == nil {
				continue
			}
			err = errors.Join(err, lookErr)
		}
		switch {
		case err == nil:
			return nil
		case l.visible.load().truncations != e.truncations:
			continue
		case errors.Is(err, segment.ErrClosed):
			if l.isClosed.Load() {
				return ErrClosed
			}
			continue // the set without the segment is there already
		}
		return err
	}
}
