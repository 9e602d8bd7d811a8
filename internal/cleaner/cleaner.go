package cleaner

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// Options are the settings of a Cleaner. All are needed.
type Options struct {
	FS  vfs.FS
	Dir string // of the log

	// Segment is how the files of the log are kept. Space is not reserved ahead.
	Segment segment.Config

	Limits record.Limits // of reading records

	SegmentBytes    int64         // segment.bytes: what a group of segments may add up to
	MaxIndexBytes   int64         // segment.index.bytes: the same for each of their indexes
	MapBytes        int64         // log.cleaner.dedupe.buffer.size: memory for the keys
	DeleteRetention time.Duration // delete.retention.ms: from the first round that sees a tombstone or a marker to its end

	// Stop is asked before each batch; an error ends what is under way and is returned.
	Stop func() error
}

// Round is what is to be compacted, as the log was at one moment.
type Round struct {
	Set           segment.Set
	FirstDirty    int64 // everything below has been compacted
	End           int64 // base offset of the first segment that must stay as it is, at or below the last stable offset
	HighWatermark int64
	Now           time.Time
	Producers     Producers
}

// Producers says which batches and records the log needs although nobody reads them any more.
type Producers struct {
	// Last has the last offset of the last batch of each known producer, ascending.
	Last []int64

	// Markers has the epoch of each producer of which no batch is known: its last marker is kept.
	Markers map[int64]int16

	// Whole has the offsets of records that stay although later ones have their keys, ascending.
	Whole []int64
}

// isLast tells whether a batch is the last of its producer. Kafka: Cleaner.cleanInto, LastRecord.
func (p *Producers) isLast(b record.Batch) bool {
	if !b.HasProducerID() {
		return false
	}
	if _, ok := slices.BinarySearch(p.Last, b.LastOffset()); ok {
		return true
	}
	epoch, ok := p.Markers[b.ProducerID()]
	return ok && b.Attributes().IsControl() && b.ProducerEpoch() == epoch
}

// Stats are the numbers of a round. Bytes are those of batches.
type Stats struct {
	IndexedBytes   int64 // read for the map of keys
	BytesRead      int64 // read to be written anew
	BytesWritten   int64 // of segments that changed
	RecordsRead    int64
	RecordsKept    int64
	RecordsInvalid int64 // without a key, removed
	Keys           int64 // in the map
	MapBytes       int64 // memory that it took
	MapFull        bool  // there are more dirty records
}

// Cleaner does one round. See the package comment for the order of the calls.
type Cleaner struct {
	o Options
	r Round

	keys   *offsetMap
	mapEnd int64 // last offset that the round is about

	txns              transactions
	out               *output
	keepOldTombstones bool // of the present segment, if it has an old format
	oldHorizon        int64

	filter filter
	stats  Stats
}

// New returns a Cleaner for one round.
func New(o Options, r Round) *Cleaner {
	o.Segment.Suffix, o.Segment.Preallocate = segment.SuffixCleaned, 0
	c := &Cleaner{o: o, r: r, keys: newOffsetMap(o.MapBytes), mapEnd: r.FirstDirty - 1}
	c.filter.builder = record.NewBuilder(record.BuilderOptions{})
	return c
}

// Stats returns the numbers so far.
func (c *Cleaner) Stats() Stats {
	s := c.stats
	s.Keys, s.MapBytes = int64(c.keys.used), c.keys.bytes
	return s
}

// Index reads the dirty part and returns the offset up to which the round goes, at which the next one begins.
// Kafka: Cleaner.buildOffsetMap.
func (c *Cleaner) Index() (next int64, err error) {
	txns := newTransactions(nil)
	if err := txns.add(c.r.Set, c.r.FirstDirty, c.r.End); err != nil {
		return 0, err
	}
	for s := range c.r.Set.From(c.r.FirstDirty) {
		if s.BaseOffset() >= c.r.End {
			break
		}
		full, err := c.indexSegment(s, &txns)
		if err != nil {
			return 0, err
		}
		if full {
			c.stats.MapFull = true
			return c.mapEnd + 1, nil
		}
		// The offsets up to the next segment have no records, so that a gap does not hold the next round up.
		c.mapEnd = max(c.mapEnd, c.upper(s)-1)
	}
	return c.mapEnd + 1, nil
}

// indexSegment enters the keys of one segment and tells whether the map is full.
func (c *Cleaner) indexSegment(s *segment.Segment, txns *transactions) (full bool, err error) {
	size, err := s.Size()
	if err != nil {
		return false, err
	}
	from := int64(0)
	if c.r.FirstDirty > s.BaseOffset() {
		pos, _, found, err := s.Locate(c.r.FirstDirty, size)
		if err != nil || !found {
			return false, err
		}
		from = pos
	}
	return full, c.walk(s, from, size, func(b segment.BatchAt) (more bool, err error) {
		discard, err := txns.read(b)
		if err != nil {
			return false, err
		}
		c.stats.IndexedBytes += int64(b.Size())
		if !discard && !b.Attributes().IsControl() {
			if full, err = c.indexBatch(b); err != nil || full {
				return false, err
			}
		}
		c.mapEnd = max(c.mapEnd, b.LastOffset())
		return true, nil
	})
}

// indexBatch enters the keys of one batch. It stops where the map is full, unless nothing has been read so far.
func (c *Cleaner) indexBatch(b segment.BatchAt) (full bool, err error) {
	first := c.mapEnd < c.r.FirstDirty
	for r, err := range b.Records(c.o.Limits) {
		if err != nil {
			return false, err
		}
		if r.Key == nil || r.Offset < c.r.FirstDirty {
			continue
		}
		if !c.keys.put(r.Key, r.Offset, first) {
			return true, nil
		}
	}
	return false, nil
}

// upper is the offset that the batches of a segment lie below.
func (c *Cleaner) upper(s *segment.Segment) int64 {
	if next, ok := c.r.Set.Higher(s.BaseOffset()); ok {
		return min(c.r.End, next.BaseOffset())
	}
	return c.r.End
}

// walk calls f for the batches of a segment in [from, to), verified and in order, until it has had enough.
func (c *Cleaner) walk(s *segment.Segment, from, to int64, f func(b segment.BatchAt) (more bool, err error)) error {
	upper := c.upper(s)
	w := s.ScanWith(from, to, segment.ScanOptions{Ordered: true})
	for w.Next() {
		if err := c.o.Stop(); err != nil {
			return err
		}
		b := w.Batch()
		if b.LastOffset() >= upper { // no checksum covers the offset
			return &segment.CorruptError{Path: s.Path(), Position: b.Position, LastOffset: -1,
				Err: fmt.Errorf("%w: batch %d to %d, the next segment begins at %d: %w",
					segment.ErrOrder, b.BaseOffset(), b.LastOffset(), upper, record.ErrCorrupt)}
		}
		more, err := f(b)
		if err != nil {
			return batchError(s, b, err)
		}
		if !more {
			return nil
		}
	}
	if t := w.Tail(); t.Kind != segment.CleanEnd && t.Kind != segment.ZeroTail {
		return t.Reason
	}
	return nil
}

// Groups divides the segments that the round is about, so that each group fits into one segment. They are to be cleaned in
// this order. Kafka: Cleaner.groupSegmentsBySize.
func (c *Cleaner) Groups() (groups [][]*segment.Segment, err error) {
	var list []*segment.Segment
	for s := range c.r.Set.All() {
		if s.BaseOffset() <= c.mapEnd {
			list = append(list, s)
		}
	}
	if err := c.noteOldHorizon(); err != nil {
		return nil, err
	}
	c.txns = newTransactions(func(t abortedEntry) { c.out.aborted = append(c.out.aborted, t) })
	for i := 0; i < len(list); {
		n, err := c.groupFrom(list, i)
		if err != nil {
			return nil, err
		}
		groups = append(groups, list[i:i+n:i+n])
		i += n
	}
	return groups, nil
}

// groupFrom returns how many segments from the i-th on make a group.
func (c *Cleaner) groupFrom(list []*segment.Segment, i int) (n int, err error) {
	var total [3]int64
	for ; i+n < len(list); n++ {
		s := list[i+n]
		size, err := s.Size()
		if err != nil {
			return 0, err
		}
		offsets, times, err := s.IndexBytes()
		if err != nil {
			return 0, err
		}
		total[0], total[1], total[2] = total[0]+size, total[1]+offsets, total[2]+times
		if n == 0 {
			continue
		}
		last := c.r.End - 1
		if i+n+1 < len(list) {
			last = list[i+n+1].BaseOffset() - 1
		}
		if total[0] > c.o.SegmentBytes || total[1] > c.o.MaxIndexBytes || total[2] > c.o.MaxIndexBytes ||
			size > 0 && last-list[i].BaseOffset() > math.MaxInt32 {
			break
		}
	}
	return n, nil
}

// noteOldHorizon finds the time of change from which on a segment keeps its tombstones of the old formats, which have no
// room for a horizon. Kafka: Cleaner.doClean.
func (c *Cleaner) noteOldHorizon() error {
	c.oldHorizon = 0
	for s := range c.r.Set.All() {
		if s.BaseOffset() >= c.r.FirstDirty {
			break
		}
		t, err := s.ModTime()
		if err != nil {
			return err
		}
		c.oldHorizon = t.UnixMilli() - c.o.DeleteRetention.Milliseconds()
	}
	return nil
}

// Clean writes what stays of a group into a new segment, whose files have the suffix .cleaned and are synced, their names
// not; it is sealed and the caller's. It is nil if nothing would change. Kafka: Cleaner.cleanSegments.
func (c *Cleaner) Clean(group []*segment.Segment) (cleaned *segment.Segment, err error) {
	c.out = &output{c: c, group: group}
	defer func() {
		if err != nil {
			err = c.out.abandon(err)
		}
	}()
	if len(group) > 1 {
		if err := c.out.begin(0); err != nil {
			return nil, err
		}
	}
	for _, s := range group {
		if err := c.cleanSegment(s); err != nil {
			return nil, err
		}
	}
	return c.out.finish()
}

func (c *Cleaner) cleanSegment(s *segment.Segment) error {
	size, err := s.Size()
	if err != nil {
		return err
	}
	if err := c.txns.add(c.r.Set, s.BaseOffset(), c.upper(s)); err != nil {
		return err
	}
	changed, err := s.ModTime()
	if err != nil {
		return err
	}
	c.keepOldTombstones = changed.UnixMilli() > c.oldHorizon
	return c.walk(s, 0, size, func(b segment.BatchAt) (bool, error) {
		c.stats.BytesRead += int64(b.Size())
		return true, c.cleanBatch(b)
	})
}
