package cleaner

import (
	"bytes"
	"math"
	"slices"

	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// filter is what cleaning a batch needs again and again.
type filter struct {
	keep    []bool // by index of the record
	builder *record.Builder
	emptied []byte
}

// decision is what a batch keeps.
type decision struct {
	kept        int
	all         bool
	tombstones  bool  // a kept record has no value
	first, last int64 // offsets of the kept records
}

// cleanBatch passes on what stays of a batch. Kafka: Cleaner.cleanInto, MemoryRecords.filterTo.
func (c *Cleaner) cleanBatch(b segment.BatchAt) error {
	discard, err := c.txns.read(b)
	if err != nil {
		return err
	}
	control := b.Attributes().IsControl()
	horizon, hasHorizon := b.DeleteHorizon()
	drop := discard
	if control {
		drop = discard && hasHorizon && horizon <= c.r.Now.UnixMilli()
	}
	keepEmpty := b.Magic() >= record.Magic && (c.r.Producers.isLast(b.Batch) || b.NextOffset() == c.r.HighWatermark)
	d, err := c.decide(b, drop)
	if err != nil {
		return err
	}
	needsHorizon := !hasHorizon && (d.tombstones || control && discard)
	switch {
	case d.kept > 0 && d.all && !needsHorizon && b.Magic() >= record.Magic:
		return c.out.keep(b)
	case d.kept > 0:
		by, err := c.rebuild(b, d, needsHorizon)
		if err != nil {
			return err
		}
		return c.out.replace(b, by)
	case keepEmpty:
		c.filter.emptied = record.AppendEmptied(c.filter.emptied[:0], b.Batch)
		if bytes.Equal(c.filter.emptied, b.Batch) {
			return c.out.keep(b)
		}
		return c.out.replace(b, c.filter.emptied)
	}
	return c.out.replace(b, nil)
}

// decide reads the records and notes for each whether it stays.
func (c *Cleaner) decide(b segment.BatchAt, drop bool) (d decision, err error) {
	d.all = true
	c.filter.keep = c.filter.keep[:0]
	control := b.Attributes().IsControl()
	for r, err := range b.Records(c.o.Limits) {
		if err != nil {
			return d, err
		}
		keep := !drop && (control || c.retains(b.Batch, &r))
		c.filter.keep = append(c.filter.keep, keep)
		c.stats.RecordsRead++
		if !keep {
			d.all = false
			continue
		}
		if d.kept == 0 {
			d.first = r.Offset
		}
		d.kept++
		d.last = r.Offset
		d.tombstones = d.tombstones || r.Value == nil
	}
	c.stats.RecordsKept += int64(d.kept)
	return d, nil
}

// retains tells whether a record of a batch that counts stays. Kafka: Cleaner.shouldRetainRecord.
func (c *Cleaner) retains(b record.Batch, r *record.Record) bool {
	if r.Offset > c.mapEnd {
		return true
	}
	if _, whole := slices.BinarySearch(c.r.Producers.Whole, r.Offset); whole {
		return true
	}
	if r.Key == nil {
		c.stats.RecordsInvalid++
		return false
	}
	if r.Offset < c.keys.get(r.Key) {
		return false
	}
	if r.Value != nil {
		return true
	}
	if b.Magic() < record.Magic {
		return c.keepOldTombstones
	}
	horizon, ok := b.DeleteHorizon()
	return !ok || c.r.Now.UnixMilli() < horizon
}

// rebuild writes a batch again with the records that stay. Kafka: MemoryRecords.buildRetainedRecordsInto.
func (c *Cleaner) rebuild(b segment.BatchAt, d decision, needsHorizon bool) (record.Batch, error) {
	var o record.BuilderOptions
	if b.Magic() >= record.Magic {
		o = b.RebuildOptions()
	} else {
		o = upgraded(b.Batch, d)
	}
	if needsHorizon {
		o.Rebuild.HasDeleteHorizon, o.Rebuild.DeleteHorizon = true, c.horizon()
	}
	w := c.filter.builder
	w.Reset(o)
	i := 0
	for r, err := range b.Records(c.o.Limits) {
		if err != nil {
			return nil, err
		}
		if c.filter.keep[i] {
			r.OffsetDelta = int32(r.Offset - o.BaseOffset)
			if err := w.Append(r.Timestamp, r); err != nil {
				return nil, err
			}
		}
		i++
	}
	return w.Batch()
}

// horizon is the time from which on what is seen now for the first time may go.
func (c *Cleaner) horizon() int64 {
	now, retention := c.r.Now.UnixMilli(), c.o.DeleteRetention.Milliseconds()
	if now > math.MaxInt64-retention {
		return math.MaxInt64
	}
	return now + retention
}

// upgraded are the options of the batch of format 2 that takes the place of one of an old format. It spans the records that
// stay, has no producer and no leader epoch, and where there were no times, the kind of those that a producer gives.
func upgraded(b record.Batch, d decision) record.BuilderOptions {
	o := record.BuilderOptions{
		Compression: b.Attributes().Compression(), TimestampType: b.TimestampType(),
		BaseOffset: d.first, PartitionLeaderEpoch: record.NoPartitionLeaderEpoch,
		Rebuild: &record.Rebuild{LastOffsetDelta: int32(d.last - d.first)},
	}
	switch o.TimestampType {
	case record.NoTimestampType:
		o.TimestampType = record.CreateTime
	case record.LogAppendTime:
		o.AppendTime = b.MaxTimestamp()
	}
	return o
}
