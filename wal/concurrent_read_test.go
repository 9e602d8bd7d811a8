package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oncelog/oncelog/record"
)

// offsets takes a reading of the offsets, which never go back, for one reader.
func (c *crowd) offsets(who string, o Offsets) {
	if o.LogStart > o.LastStable || o.LastStable > o.HighWatermark || o.HighWatermark > o.LogEnd || o.RecoveryPoint > o.LogEnd {
		c.errorf("%s: offsets are not in order: %+v", who, o)
	}
	c.mu.Lock()
	last := c.lasts[who]
	c.lasts[who] = o
	c.mu.Unlock()
	if o.LogStart < last.LogStart || o.LastStable < last.LastStable || o.HighWatermark < last.HighWatermark ||
		o.LogEnd < last.LogEnd || o.RecoveryPoint < last.RecoveryPoint {
		c.errorf("%s: offsets go back: %+v, then %+v", who, last, o)
	}
}

func levelOf(o Offsets, i Isolation) int64 {
	return [...]int64{LogEnd: o.LogEnd, HighWatermark: o.HighWatermark, TxnCommitted: o.LastStable}[i]
}

// batch checks one batch that a reader got, and returns its records.
func (c *crowd) batch(who string, b record.Batch) []record.Record {
	if err := b.Validate(); err != nil {
		c.errorf("%s: batch at %d: %v", who, b.BaseOffset(), err)
		return nil
	}
	c.mu.Lock()
	now := seen{crc: b.CRC(), last: b.LastOffset()}
	if was, ok := c.seen[b.BaseOffset()]; ok && was != now {
		c.mu.Unlock()
		c.errorf("%s: batch at %d was %+v and is %+v", who, b.BaseOffset(), was, now)
		return nil
	}
	c.seen[b.BaseOffset()] = now
	c.mu.Unlock()
	if b.Attributes().IsControl() {
		return nil
	}
	var recs []record.Record
	for r, err := range b.Records(record.Limits{}) {
		if err != nil {
			c.errorf("%s: batch at %d: %v", who, b.BaseOffset(), err)
			return nil
		}
		if _, _, _, ok := parseValue(r.Value); !ok {
			c.errorf("%s: record %d holds %q, which nobody appended", who, r.Offset, r.Value)
		}
		if len(r.Key) > 0 && string(r.Key) != fmt.Sprintf("%d/%d", len(recs), b.Count()) {
			c.errorf("%s: record %d is %s, in a batch of %d", who, r.Offset, r.Key, b.Count())
		}
		recs = append(recs, r)
	}
	if len(recs) != int(b.Count()) || int64(len(recs)) != b.NextOffset()-b.BaseOffset() {
		c.errorf("%s: batch of %d records has %d", who, b.Count(), len(recs))
	}
	return recs
}

// committed checks a record that a reader of committed records got.
func (c *crowd) committed(who string, offset int64, value []byte) {
	by, txn, _, ok := parseValue(value)
	if !ok {
		c.errorf("%s: record %d holds %q, which nobody appended", who, offset, value)
	}
	if txn < 0 {
		return
	}
	c.mu.Lock()
	commit, decided := c.outcomes[txnName{by, txn}]
	c.mu.Unlock()
	if !decided || !commit {
		c.errorf("%s: record %d of %s, transaction %d, which is decided: %v, committed: %v", who, offset, by, txn, decided, commit)
	}
}

// fetch checks everything about one Fetch.
func (c *crowd) fetch(who string, start int64, o ReadOptions, f *Fetch) {
	limit := levelOf(f.Offsets, o.Isolation)
	c.offsets(who, f.Offsets)
	p, err := f.Records.AppendTo(nil)
	if err != nil {
		c.errorf("%s: read at %d: %v", who, start, err)
		return
	}
	if len(p) > o.MaxBytes && !o.MinOneMessage || start < limit && o.MinOneMessage && len(p) == 0 || start >= limit && len(p) > 0 {
		c.errorf("%s: read of %+v at %d gives %d bytes, limit %d", who, o, start, len(p), limit)
	}
	filter := newFilter(slices.Clone(f.Aborted))
	next := start
	for rest := p; len(rest) > 0; {
		b, tail, err := record.Next(rest)
		if err != nil {
			if !errors.Is(err, record.ErrTruncated) || len(p) != o.MaxBytes && len(p) < o.MaxBytes || o.MinOneMessage && next == start {
				c.errorf("%s: read of %+v at %d: %d bytes, %v behind %d", who, o, start, len(p), err, next)
			}
			break
		}
		if b.BaseOffset() > next || b.BaseOffset() < next && next != start || b.LastOffset() < next || b.LastOffset() >= limit {
			c.errorf("%s: read at %d, limit %d: batch %d to %d where %d comes next", who, start, limit, b.BaseOffset(), b.LastOffset(), next)
		}
		recs := c.batch(who, b)
		if filter.passes(b) && o.Isolation == TxnCommitted {
			for _, r := range recs {
				c.committed(who, r.Offset, r.Value)
			}
		}
		next, rest = b.NextOffset(), tail
	}
}

// reader reads at random places, at every level.
func (c *crowd) reader(who string) {
	r := c.rand(who)
	for {
		e := c.l.Offsets()
		c.offsets(who, e)
		start := r.Int64N(e.LogEnd + 1)
		if r.IntN(2) == 0 {
			start = max(0, e.LogEnd-r.Int64N(10)) // beside the writers
		}
		o := ReadOptions{MaxBytes: r.IntN(1 + 1<<r.IntN(16)), Isolation: Isolation(r.IntN(3)), MinOneMessage: r.IntN(2) == 0}
		f, err := c.l.Read(start, o)
		if c.over(who, err) {
			return
		}
		c.fetch(who, start, o, &f)
		if err := f.Close(); err != nil {
			c.errorf("%s: %v", who, err)
		}
		time.Sleep(time.Duration(r.IntN(500)) * time.Microsecond)
	}
}

// sequential follows the log at a level, by Wait and Read.
func (c *crowd) sequential(who string, i Isolation) {
	r := c.rand(who)
	for at := int64(0); ; {
		if c.over(who, c.l.Wait(context.Background(), at, i)) {
			return
		}
		o := ReadOptions{MaxBytes: 1 + r.IntN(5000), Isolation: i, MinOneMessage: true}
		f, err := c.l.Read(at, o)
		if c.over(who, err) {
			return
		}
		c.fetch(who, at, o, &f)
		before := at
		for b, err := range f.Records.Batches() {
			if err != nil {
				c.errorf("%s: %v", who, err)
				return
			}
			at = b.NextOffset()
		}
		if at == before {
			c.errorf("%s: woken at %d, and there is nothing", who, at)
			return
		}
		f.Close()
	}
}

// tail follows the committed records to the end, and notes what it gets.
func (c *crowd) tail(who string, got map[int64]string) {
	last := int64(-1)
	for s, err := range c.l.Tail(context.Background(), 0) {
		if c.over(who, err) {
			return
		}
		if s.Offset <= last {
			c.errorf("%s: %d after %d", who, s.Offset, last)
		}
		last = s.Offset
		c.committed(who, s.Offset, s.Value)
		got[s.Offset] = string(s.Value)
	}
}

// holder keeps Fetches open for a while, across rolls and across Close, and reads them again.
func (c *crowd) holder(who string) (held []*Fetch) {
	r := c.rand(who)
	var bytesOf [][]byte
	check := func(i int) bool {
		p, err := held[i].Records.AppendTo(nil)
		if err != nil || !bytes.Equal(p, bytesOf[i]) {
			c.errorf("%s: held bytes at %d changed: %v", who, held[i].Offset, err)
		}
		return err == nil
	}
	for {
		e := c.l.Offsets()
		f, err := c.l.Read(r.Int64N(e.LogEnd+1), ReadOptions{MaxBytes: 2000, Isolation: LogEnd})
		if errors.Is(err, ErrClosed) {
			for i := range held {
				check(i)
			}
			return held
		}
		if c.over(who, err) {
			return held
		}
		p, err := f.Records.AppendTo(nil)
		if err != nil {
			c.errorf("%s: %v", who, err)
		}
		held, bytesOf = append(held, &f), append(bytesOf, p)
		if !check(r.IntN(len(held))) {
			return held
		}
		if len(held) > 20 {
			held[0].Close()
			held, bytesOf = held[1:], bytesOf[1:]
		}
		time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond)
	}
}
