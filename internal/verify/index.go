package verify

import (
	"fmt"
	"iter"
	"path/filepath"

	"github.com/oncelog/oncelog/internal/dump"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// place is a batch as far as indexes know it.
type place struct {
	position     int64
	base, last   int64
	before       int64 // last offset of the batch before
	maxTimestamp int64
}

// indexWalk walks an index beside the log.
type indexWalk struct {
	name   string
	found  *Findings
	pull   func() (dump.TableEntry, error, bool)
	stop   func()
	close  func() error
	cur    dump.TableEntry
	has    bool
	number int64 // of cur, from 0
	read   int64 // entries so far

	odd    int64 // entries that no present writer makes and that are right all the same
	oddWhy string
}

// openEntries opens an index; nil is one that is not there, or is no index at all, which others report.
func openEntries(v *verifier, f dump.File, ok bool, base int64, isTime bool) (*indexWalk, error) {
	x := &indexWalk{name: f.Name, found: v.found}
	if !ok || f.Kind != vfs.Regular {
		return x, nil
	}
	t, err := dump.OpenTable(v.ctx, v.fsys, filepath.Join(v.dir.Path, f.Name), base, isTime)
	if err != nil {
		return nil, err
	}
	if t.TrailingBytes > 0 {
		x.problem(fmt.Sprintf("ends with %s of a partial entry", count(int64(t.TrailingBytes), "byte")))
	}
	x.pull, x.stop = iter.Pull2(t.Entries())
	x.close = t.Close
	return x, x.step()
}

// step goes on to the next entry.
func (x *indexWalk) step() error {
	e, err, ok := x.pull()
	if err != nil {
		return err
	}
	if x.has {
		x.number++
	}
	x.cur, x.has = e, ok
	if ok {
		x.read++
	}
	return nil
}

func (x *indexWalk) end() {
	if x.stop != nil {
		x.stop()
		_ = x.close() // it was opened for reading
	}
}

func (x *indexWalk) problem(reason string) {
	x.found.Add(Finding{File: x.name, Problem: true, Reason: reason})
}

// wrong reports the present entry. One finding for a file is enough to have it made anew; the rest of the file may follow
// from the same fault.
func (x *indexWalk) wrong(format string, args ...any) {
	for i := range x.found.List {
		if f := &x.found.List[i]; f.File == x.name && f.Problem {
			return
		}
	}
	x.problem(fmt.Sprintf("entry %d (%d, %d): ", x.number, x.cur[0], x.cur[1]) + fmt.Sprintf(format, args...) +
		"; the log decides, and look-ups do not trust the entry")
}

func (x *indexWalk) note() {
	if x.odd > 0 {
		x.found.Add(Finding{File: x.name, Reason: fmt.Sprintf("%s %s", count(int64(x.odd), "entry"), x.oddWhy)})
	}
}

func (w *segmentWalk) openIndexes() error {
	v, base := w.v, w.files.Base
	f, ok := w.files.Of[segment.KindOffsetIndex]
	x, err := openEntries(v, f, ok, base, false)
	if err != nil {
		return err
	}
	w.offsets = &offsetCheck{indexWalk: x, pending: -1}
	f, ok = w.files.Of[segment.KindTimeIndex]
	if x, err = openEntries(v, f, ok, base, true); err != nil {
		w.offsets.end()
		return err
	}
	w.times = &timeCheck{indexWalk: x, greatest: record.NoTimestamp}
	if w.aborted, err = openTxnCheck(v, w.files); err != nil {
		w.offsets.end()
		w.times.end()
	}
	return err
}

func (w *segmentWalk) closeIndexes() {
	w.offsets.end()
	w.times.end()
	w.aborted.end()
}

// offsetCheck holds the entries (offset, position) of an offset index against the log. An entry is the last offset of the
// batch at its position. Kafka before 3.9 made one entry for an append of several batches, with the last offset of the
// last and the position of the first; other offsets inside the batch are right for a look-up, and nobody writes them.
type offsetCheck struct {
	*indexWalk
	pending int64 // offset of an entry whose batch is still to come; −1 if there is none
	any     bool
	prev    dump.TableEntry
}

func (c *offsetCheck) batch(b place) error {
	if c.pending >= 0 && b.last >= c.pending {
		if b.last > c.pending {
			c.wrong("no batch ends with the offset of the entry before it")
		} else {
			c.odd, c.oddWhy = c.odd+1, "with the last offset of an append of several batches, as Kafka before 3.9 wrote them"
		}
		c.pending = -1
	}
	for c.has && c.cur[1] <= b.position {
		if c.any && (c.cur[0] <= c.prev[0] || c.cur[1] <= c.prev[1]) {
			c.wrong("it is not above the entry before it")
		}
		offset := c.cur[0]
		switch {
		case c.cur[1] < b.position:
			c.wrong("no batch begins at byte %d", c.cur[1])
		case c.pending >= 0:
			c.wrong("no batch before it ends with the offset of the entry before it")
			c.pending = -1
		case offset == b.last:
		case offset > b.last:
			c.pending = offset
		case offset >= b.base:
			c.odd, c.oddWhy = c.odd+1, "with an offset inside its batch, which Kafka does not write"
		default:
			c.wrong("the batch there begins at offset %d", b.base)
		}
		c.prev, c.any = c.cur, true
		if err := c.step(); err != nil {
			return err
		}
	}
	return nil
}

// hole passes over entries about bytes that cannot be read.
func (c *offsetCheck) hole(_, to int64) {
	c.pending = -1
	for c.has && c.cur[1] < to {
		c.prev, c.any = c.cur, true
		if err := c.step(); err != nil {
			c.has = false
		}
	}
}

// finish judges the entries behind the last batch. Where the log does not end cleanly they may be about what is cut.
func (c *offsetCheck) finish(end int64, clean bool) error {
	if clean && c.has {
		c.wrong("the log ends at byte %d", end)
	}
	if clean && c.pending >= 0 {
		c.problem(fmt.Sprintf("the last entry is about offset %d, with which no batch ends", c.pending))
	}
	c.note()
	return nil
}

// timeCheck holds the entries (timestamp, offset) of a time index against the log. An entry is the greatest timestamp so
// far and the last offset of its batch; Kafka before 3.9 wrote the offset of the record.
type timeCheck struct {
	*indexWalk
	greatest int64 // timestamp of the batches so far
}

func (c *timeCheck) batch(b place) error {
	for c.has && c.cur[1] <= b.last {
		switch ts, offset := c.cur[0], c.cur[1]; {
		case offset <= b.before:
			c.wrong("it is not above the entry before it, or below the segment")
		case ts != b.maxTimestamp:
			c.wrong("the batch there has the greatest timestamp %d", b.maxTimestamp)
		case ts <= c.greatest:
			c.wrong("an earlier batch has the timestamp %d", c.greatest)
		case offset < b.last:
			c.odd, c.oddWhy = c.odd+1, "with the offset of a record inside its batch, as Kafka before 3.9 wrote them"
		}
		if err := c.step(); err != nil {
			return err
		}
	}
	c.greatest = max(c.greatest, b.maxTimestamp)
	return nil
}

func (c *timeCheck) hole(next int64) {
	for c.has && c.cur[1] < next {
		c.greatest = max(c.greatest, c.cur[0]-1)
		if err := c.step(); err != nil {
			c.has = false
		}
	}
}

func (c *timeCheck) finish(last int64, clean bool) error {
	if clean && c.has {
		c.wrong("the segment ends at offset %d", last)
	}
	c.note()
	return nil
}
