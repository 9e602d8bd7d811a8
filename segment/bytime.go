package segment

import (
	"errors"
	"fmt"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
)

// TimestampHit is the answer to a look-up by time: a record and the leader epoch of its batch.
type TimestampHit struct {
	Timestamp   int64 // of the record, milliseconds
	Offset      int64 // of the record
	LeaderEpoch int32 // record.NoPartitionLeaderEpoch if it has none
}

// MaxTimestamp returns the greatest timestamp of the segment and the last offset of the first batch that has it, or
// record.NoTimestamp and the base offset if there is none. It is remembered from Note. Else the last entry of the time
// index is taken if the batch it names has that timestamp, and the headers behind it are walked, so that a cut, damaged or
// missing index costs time and not truth. Bytes that are no batch, a torn one at the end too, are a *CorruptError. (Kafka's
// LogSegment.maxTimestampSoFar believes the index, and knows nothing of the batches behind its last entry.)
func (s *Segment) MaxTimestamp() (index.TimestampOffset, error) {
	s.noted.Lock()
	t, known := s.noted.newest, s.noted.newestKnown
	s.noted.Unlock()
	if known {
		return t, nil
	}
	end, err := s.Size()
	if err != nil {
		return index.TimestampOffset{}, err
	}
	if t, err = s.newestBelow(end); err != nil {
		return t, err
	}
	s.noted.Lock()
	defer s.noted.Unlock()
	if !s.noted.newestKnown {
		s.noted.newest, s.noted.newestKnown = t, true
	}
	return s.noted.newest, nil
}

// Newest is MaxTimestamp as far as it is known without I/O, which it is while the segment is writable.
func (s *Segment) Newest() index.TimestampOffset {
	s.noted.Lock()
	defer s.noted.Unlock()
	if !s.noted.newestKnown {
		return index.TimestampOffset{Timestamp: record.NoTimestamp, Offset: -1}
	}
	return s.noted.newest
}

// KnowNewest tells what MaxTimestamp was when the last batch ended at byte pos. It spares an open the walk from the last
// entry of the time index on, which is long if that entry is old: where timestamps do not rise no entry is added. It holds
// until the segment is cut below pos.
func (s *Segment) KnowNewest(pos int64, newest index.TimestampOffset) {
	s.told.Store(&told{newest, pos})
}

// told is what KnowNewest was given.
type told struct {
	newest index.TimestampOffset
	end    int64
}

// NewestBelow is MaxTimestamp of the batches below byte end.
func (s *Segment) NewestBelow(end int64) (index.TimestampOffset, error) { return s.newestBelow(end) }

// newestBelow finds the greatest timestamp of the batches below end. After a *CorruptError the result is that of the
// batches before the damage.
func (s *Segment) newestBelow(end int64) (index.TimestampOffset, error) {
	none := index.TimestampOffset{Timestamp: record.NoTimestamp, Offset: s.base}
	k := s.told.Load()
	if k != nil && k.end == end {
		return k.newest, nil
	}
	t, from, err := s.lastTimeEntry(end)
	if err != nil {
		return none, err
	}
	if from == 0 {
		t = none
	}
	if k != nil && from < k.end && k.end < end {
		t, from = k.newest, k.end
	}
	t, tail := s.newestOf(t, from, end)
	if err := tail.failure(); err != nil && from > 0 && !isReadError(err) {
		t, tail = s.newestOf(none, 0, end)
	}
	return t, tail.failure()
}

func (s *Segment) newestOf(t index.TimestampOffset, from, end int64) (index.TimestampOffset, Tail) {
	c := s.ScanHeaders(from, end)
	for c.Next() {
		if c.header.MaxTimestamp > t.Timestamp {
			t = index.TimestampOffset{Timestamp: c.header.MaxTimestamp, Offset: c.header.LastOffset}
		}
	}
	return t, c.tail
}

// lastTimeEntry returns the last entry of the time index and the end of the batch that it names, or 0 if there is no entry
// or it does not fit the log.
func (s *Segment) lastTimeEntry(end int64) (e index.TimestampOffset, from int64, err error) {
	var first index.TimestampOffset
	n := 0
	err = s.withTimes(func(x *index.Time) (err error) {
		if n = x.Entries(); n > 0 {
			e = x.LastEntry()
			first, err = x.Entry(0)
		}
		return err
	})
	switch {
	case errors.Is(err, ErrClosed):
		return e, 0, err
	case err != nil || n > 0 && (e.Timestamp < first.Timestamp || e.Offset < s.base):
		s.suspects.Add(1)
		return e, 0, nil
	case n == 0:
		return e, 0, nil
	}
	h, ok, err := s.batchOf(e, end)
	if err != nil || !ok {
		return e, 0, err
	}
	return index.TimestampOffset{Timestamp: e.Timestamp, Offset: h.LastOffset}, h.End(), nil
}

// batchOf returns the batch that an entry of the time index names, if that batch has the entry's timestamp. Kafka up to 3.8
// named a record inside the batch, later the last one.
func (s *Segment) batchOf(e index.TimestampOffset, end int64) (Header, bool, error) {
	_, h, found, err := s.Locate(e.Offset, end)
	if err != nil && (isReadError(err) || errors.Is(err, ErrClosed)) {
		return h, false, err
	}
	legacy := h.Magic < record.Magic
	if err != nil || !found || h.MaxTimestamp != e.Timestamp || !legacy && h.BaseOffset > e.Offset {
		s.suspects.Add(1)
		return h, false, nil
	}
	return h, true, nil
}

func (s *Segment) withTimes(f func(*index.Time) error) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	x, err := s.files.time.get(s, openTimeIndex)
	if err != nil {
		return err
	}
	return f(x)
}

// FirstTimestamp returns the greatest timestamp of the first batch, which is what a segment's age is counted from, or
// record.NoTimestamp if there is no batch or it has none. Source: LogSegment.getFirstBatchTimestamp.
func (s *Segment) FirstTimestamp() (int64, error) {
	s.noted.Lock()
	t, known := s.noted.first, s.noted.firstKnown
	s.noted.Unlock()
	if known {
		return t, nil
	}
	end, err := s.Size()
	if err != nil || end == 0 {
		return record.NoTimestamp, err
	}
	c := s.ScanHeaders(0, end)
	if !c.Next() {
		return record.NoTimestamp, c.tail.failure()
	}
	s.noted.Lock()
	defer s.noted.Unlock()
	if !s.noted.firstKnown {
		s.noted.first, s.noted.firstKnown = c.header.MaxTimestamp, true
	}
	return s.noted.first, nil
}

// LargestTimestamp returns the greatest timestamp of the segment, or, where it has none, the time in milliseconds at which
// the log file was last modified. Where a part of the segment cannot be read it is the later of the two, so that retention
// by time never acts on a half-known value. Source: LogSegment.largestTimestamp.
func (s *Segment) LargestTimestamp() (int64, error) {
	t, err := s.MaxTimestamp()
	if err == nil && t.Timestamp >= 0 {
		return t.Timestamp, nil
	}
	var corrupt *CorruptError
	if err != nil && !errors.As(err, &corrupt) {
		return 0, err
	}
	newest := t.Timestamp
	err = s.withLog(func(f vfs.File) error {
		info, err := f.Stat()
		if err != nil {
			return fmt.Errorf("segment: %w", err)
		}
		newest = max(newest, info.ModTime.UnixMilli())
		return nil
	})
	return newest, err
}

// OffsetByTimestamp returns the first record below byte end whose timestamp is ts or later and whose offset is from or
// higher. The time index tells where to begin if its entry fits the log; batches whose greatest timestamp is below ts are
// stepped over, the others are read, their checksums verified and their records decompressed within the limits of the
// configuration. Damage that is met is a *CorruptError. Source: LogSegment.findOffsetByTimestamp.
func (s *Segment) OffsetByTimestamp(ts, from, end int64) (hit TimestampHit, found bool, err error) {
	if end, err = s.limit(end); err != nil || end <= 0 {
		return hit, false, err
	}
	start := from
	var e index.TimestampOffset
	err = s.withTimes(func(x *index.Time) (err error) {
		e, err = x.Lookup(ts)
		return err
	})
	switch {
	case errors.Is(err, ErrClosed):
		return hit, false, err
	case err != nil:
		s.suspects.Add(1)
	case e.Timestamp >= 0 && e.Offset > from:
		_, ok, err := s.batchOf(e, end)
		if err != nil {
			return hit, false, err
		}
		if ok {
			start = e.Offset
		}
	}
	pos, _, found, err := s.Locate(start, end)
	if err != nil || !found {
		return hit, false, err
	}
	return s.firstRecord(pos, end, func(h *Header) bool { return h.MaxTimestamp >= ts && h.LastOffset >= from },
		func(r *record.Record) bool { return r.Timestamp >= ts && r.Offset >= from })
}

// FindMaxTimestamp returns the first record below byte end that has the greatest timestamp of the segment. The batch that
// has it is found as in MaxTimestamp, the record in it by reading it, so that the answer depends neither on an index nor on
// how the batch is compressed. It is not found if no record has a timestamp. Source: UnifiedLog.fetchOffsetByTimestamp for
// MAX_TIMESTAMP, which gives up if a batch that compaction has emptied is the one with the greatest timestamp.
func (s *Segment) FindMaxTimestamp(end int64) (hit TimestampHit, found bool, err error) {
	if end, err = s.limit(end); err != nil {
		return hit, false, err
	}
	t, err := s.newestBelow(end)
	if err != nil || t.Timestamp < 0 {
		return hit, false, err
	}
	pos, _, found, err := s.Locate(t.Offset, end)
	if err != nil || !found {
		return hit, false, err
	}
	hit, found, err = s.firstRecord(pos, end, func(h *Header) bool { return h.MaxTimestamp == t.Timestamp && h.Count != 0 },
		func(r *record.Record) bool { return r.Timestamp == t.Timestamp })
	if err != nil || found {
		return hit, found, err
	}
	return s.greatestRecord(end)
}

// greatestRecord looks at every batch that could hold a later record than those seen so far. It serves segments whose
// headers claim a timestamp that no record has (any more).
func (s *Segment) greatestRecord(end int64) (best TimestampHit, found bool, err error) {
	best.Timestamp = record.NoTimestamp
	for {
		h, ok, err := s.firstRecord(0, end, func(h *Header) bool { return h.MaxTimestamp > best.Timestamp && h.Count != 0 },
			func(r *record.Record) bool { return r.Timestamp > best.Timestamp })
		if err != nil || !ok {
			return best, found, err
		}
		best, found = h, true
	}
}

// firstRecord walks the headers from pos, reads each batch that fits and returns its first record that fits.
func (s *Segment) firstRecord(
	pos, end int64, batch func(*Header) bool, fits func(*record.Record) bool,
) (TimestampHit, bool, error) {
	var buf []byte
	c := s.ScanHeaders(pos, end)
	for c.Next() {
		if !batch(&c.header) {
			continue
		}
		b, grown, err := s.ReadBatch(buf[:0], c.header)
		if err != nil {
			return TimestampHit{}, false, err
		}
		buf = grown
		for r, err := range b.Records(s.cfg.limits()) {
			if err != nil {
				return TimestampHit{}, false, s.corrupt(c.header.Position, err)
			}
			if fits(&r) {
				return TimestampHit{Timestamp: r.Timestamp, Offset: r.Offset, LeaderEpoch: b.PartitionLeaderEpoch()}, true, nil
			}
		}
	}
	return TimestampHit{}, false, c.tail.failure()
}
