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

// openTxns are the transactions that are open at a place of the log, by producer id with their first offset.
type openTxns struct {
	first map[int64]int64
	lost  bool // there were too many to remember: nothing is concluded from one that is not here
}

// mostOpenTxns bounds what is remembered.
const mostOpenTxns = 1 << 18

// txnCheck holds the entries of a transaction index against the abort markers of the log, in both directions.
type txnCheck struct {
	name    string
	found   *Findings
	pull    func() (dump.AbortedTxn, error, bool)
	stop    func()
	close   func() error
	table   *dump.TxnTable
	cur     dump.AbortedTxn
	has     bool
	entries int64
	unread  bool // the rest of the index cannot be read
}

func openTxnCheck(v *verifier, s dump.Files) (*txnCheck, error) {
	c := &txnCheck{name: segment.FileName(segment.KindTxnIndex, s.Base), found: v.found}
	f, ok := s.Of[segment.KindTxnIndex]
	if !ok || f.Kind != vfs.Regular {
		return c, nil
	}
	t, err := dump.OpenTxnTable(v.ctx, v.fsys, filepath.Join(v.dir.Path, f.Name))
	if err != nil {
		return nil, err
	}
	c.table, c.close = t, t.Close
	c.pull, c.stop = iter.Pull2(t.Entries())
	return c, c.step()
}

func (c *txnCheck) step() error {
	e, err, ok := c.pull()
	if err != nil {
		return err
	}
	if ok && e.Damage != nil {
		c.problem(e.Damage.Reason)
		c.unread, ok = true, false
	}
	c.cur, c.has = e, ok
	if ok {
		c.entries++
	} else if c.table.TrailingBytes > 0 && !c.unread {
		c.problem(fmt.Sprintf("ends with %s of a partial entry", count(int64(c.table.TrailingBytes), "byte")))
	}
	return nil
}

func (c *txnCheck) end() {
	if c.stop != nil {
		c.stop()
		_ = c.close() // it was opened for reading
	}
}

func (c *txnCheck) problem(reason string) {
	c.found.Add(Finding{File: c.name, Problem: true, Reason: reason})
}

// batch looks at a batch of the log, and keeps account of the open transactions.
func (c *txnCheck) batch(e *dump.Entry, open *openTxns) error {
	b := e.Batch
	if e.Legacy() || e.Large || !b.Attributes().IsTransactional() {
		return nil
	}
	id := b.ProducerID()
	if !b.Attributes().IsControl() {
		if _, known := open.first[id]; !known && b.Count() > 0 {
			if len(open.first) >= mostOpenTxns {
				open.lost = true
				return nil
			}
			open.first[id] = b.BaseOffset()
		}
		return nil
	}
	first, seen := open.first[id]
	delete(open.first, id)
	m, err := b.EndTxnMarker()
	if err != nil || m.Type != record.Abort {
		return nil // a commit, a marker that compaction emptied, or another control record
	}
	last := b.BaseOffset()
	for c.has && c.cur.LastOffset < last {
		c.problem(fmt.Sprintf("the transaction of producer %d that was aborted at offset %d has no abort marker there", c.cur.ProducerID, c.cur.LastOffset))
		if err := c.step(); err != nil {
			return err
		}
	}
	switch {
	case !c.has || c.cur.LastOffset > last:
		if seen && !c.unread {
			c.problem(fmt.Sprintf("the transaction of producer %d, offsets %d to %d, was aborted and has no entry: readers of committed records would get it",
				id, first, last))
		}
		return nil
	case c.cur.ProducerID != id:
		c.problem(fmt.Sprintf("the entry for the abort marker at offset %d names producer %d, the marker %d", last, c.cur.ProducerID, id))
	case c.cur.FirstOffset > last || seen && c.cur.FirstOffset > first:
		c.problem(fmt.Sprintf("the transaction of producer %d that was aborted at offset %d began at %d, its entry says %d", id, last, first, c.cur.FirstOffset))
	}
	return c.step()
}

func (c *txnCheck) hole(next int64) {
	for c.has && c.cur.LastOffset < next {
		if err := c.step(); err != nil {
			c.has = false
		}
	}
}

// finish judges the entries that are left. Where the log does not end cleanly they may be about what is cut.
func (c *txnCheck) finish(clean bool) error {
	for clean && c.has {
		c.problem(fmt.Sprintf("the transaction of producer %d that was aborted at offset %d has no abort marker there", c.cur.ProducerID, c.cur.LastOffset))
		if err := c.step(); err != nil {
			return err
		}
	}
	return nil
}
