package wal

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"
)

// Cursor is the place of a named reader in the log, which the directory keeps: the offset of the next record that the reader
// has to process. The reader commits after it has processed, and after a restart goes on where it had committed; what it
// processed and did not commit comes again. A name has one Cursor at a time. All methods may be called by any number of
// goroutines at once.
type Cursor struct {
	log   *Log
	name  string
	start CursorStart
}

// CursorOptions say how a cursor begins.
type CursorOptions struct {
	// StartAt is where a name that is new begins; 0 and what lies below the log start is the log start, −1 the log end.
	StartAt int64

	// Pin keeps DeleteOldSegments from the records that are not processed, also after a restart, before the name is opened
	// again, and until RemoveCursor or an open of the name without Pin. A reader that never comes back then keeps the log
	// from ever getting smaller: ExplainRetention names it.
	Pin bool
}

// CursorStart tells where a cursor goes on, and why there.
type CursorStart struct {
	Offset    int64 // the next record is at it or behind it
	New       bool  // the name was not known
	Committed int64 // the last commit, or where a new name begins

	// Deleted is how many offsets behind the last commit are gone: the log start has passed them.
	Deleted int64

	// CutFrom is the last commit where the log was cut below it, and Offset is where it was cut; −1 if it was not. Records
	// that the reader has processed are not in the log any more, and others may be there in their place.
	CutFrom int64
}

// Cursor opens the cursor of a name, 1 to 1024 bytes. A name that is new is stored before the call returns.
//
// Errors: ErrInvalidArgument for a name that is open already, or that cannot be, *OffsetError for a StartAt behind the log
// end, ErrInvalidOptions with Options.Compat, which keeps no such file, ErrCorrupt or ErrUnsupportedVersion if the file
// oncelog.cursors cannot be read, ErrReadOnly, ErrClosed, and those of the file system.
func (l *Log) Cursor(name string, o CursorOptions) (*Cursor, error) {
	if len(name) == 0 || len(name) > maxCursorName {
		return nil, fmt.Errorf("%w: the name of a cursor has %d bytes, it must have 1 to %d", ErrInvalidArgument, len(name), maxCursorName)
	}
	if l.opts.Compat {
		return nil, fmt.Errorf("%w: with Compat the log keeps no cursors", ErrInvalidOptions)
	}
	c := &Cursor{log: l, name: name}
	err := l.changeCursors(func(all *cursors) error {
		if all.open[name] {
			return fmt.Errorf("%w: the cursor %q is open already", ErrInvalidArgument, name)
		}
		i, found := all.find(name)
		if !found {
			if len(all.list) == maxCursors {
				return fmt.Errorf("%w: there are %d cursors, there can be no more", ErrInvalidArgument, maxCursors)
			}
			e := l.visible.load()
			at := max(o.StartAt, e.logStart)
			if o.StartAt == -1 {
				at = e.end.offset
			}
			if at > e.end.offset || o.StartAt < -1 {
				return &OffsetError{Offset: o.StartAt, LogStart: e.logStart, LogEnd: e.end.offset}
			}
			all.list = slices.Insert(all.list, i, cursorState{name: name, offset: at, cutFrom: -1, at: l.opts.Now().UnixMilli()})
		}
		all.list[i].pins = o.Pin
		c.begin(&all.list[i], !found)
		if all.open == nil {
			all.open = map[string]bool{}
		}
		all.open[name] = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := c.pin(o.Pin, c.start.Offset); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Cursor) begin(s *cursorState, isNew bool) {
	logStart := c.log.visible.load().logStart
	c.start = CursorStart{Offset: max(s.offset, logStart), New: isNew, Committed: s.offset, Deleted: max(0, logStart-s.offset), CutFrom: s.cutFrom}
	if s.cutFrom >= 0 {
		c.start.Committed = s.cutFrom
	}
}

func (c *Cursor) pin(on bool, offset int64) error {
	if on {
		return c.log.pinCursor(c.name, offset)
	}
	all := &c.log.cursors
	all.mu.Lock()
	p := all.pins[c.name]
	delete(all.pins, c.name)
	all.mu.Unlock()
	if p != nil {
		p.Release()
	}
	return nil
}

// Name returns the name.
func (c *Cursor) Name() string { return c.name }

// Start tells where the cursor went on when it was opened.
func (c *Cursor) Start() CursorStart { return c.start }

// Offset returns the offset of the next record to process: what was committed last, or the log start if that lies above.
func (c *Cursor) Offset() int64 {
	all := &c.log.cursors
	all.mu.Lock()
	defer all.mu.Unlock()
	offset := c.start.Offset
	if i, found := all.find(c.name); found {
		offset = all.list[i].offset
	}
	return max(offset, c.log.visible.load().logStart)
}

// Records yields what is to be processed up to the present end, as Log.Records does.
func (c *Cursor) Records() iter.Seq2[Stored, error] { return c.log.Records(c.Offset()) }

// Tail yields what is to be processed and waits for more, as Log.Tail does.
func (c *Cursor) Tail(ctx context.Context) iter.Seq2[Stored, error] {
	return c.log.Tail(ctx, c.Offset())
}

// Commit stores that everything below next is processed: after the record at offset n, next is n + 1. When it returns nil
// that is on disk, in every mode of the log; after a crash the cursor is at a commit that was asked for, the last one that
// returned nil or a later one. Commits of several cursors that come together share a write, which takes two syncs; so commit
// now and then rather than for each record.
//
// In SyncInterval and SyncNone a power cut may take records away that were committed as processed: the next open takes the
// cursor back to the end of the log, and Start says so.
//
// Errors: ErrInvalidArgument for a next below the last commit (Reset does that) or a cursor that is closed, *OffsetError for
// one behind the log end, and those of the file system, after which the commit may or may not be there and may be tried again.
func (c *Cursor) Commit(next int64) error { return c.move(next, false) }

// Reset moves the cursor to any offset of the log, back too, durably.
func (c *Cursor) Reset(next int64) error { return c.move(next, true) }

func (c *Cursor) move(next int64, back bool) error {
	l, pins := c.log, false
	err := l.changeCursors(func(all *cursors) error {
		i, found := all.find(c.name)
		if !found || !all.open[c.name] {
			return fmt.Errorf("%w: the cursor %q is closed", ErrInvalidArgument, c.name)
		}
		s := &all.list[i]
		e := l.visible.load() // under mu: a truncation shows its end before it takes cursors back
		switch {
		case next > e.end.offset || next < 0 || back && next < e.logStart:
			return &OffsetError{Offset: next, LogStart: e.logStart, LogEnd: e.end.offset}
		case next < s.offset && !back:
			return fmt.Errorf("%w: commit of %d behind one of %d by the cursor %q", ErrInvalidArgument, next, s.offset, c.name)
		}
		s.offset, s.cutFrom, s.at = next, -1, l.opts.Now().UnixMilli()
		pins = s.pins
		return nil
	})
	if err != nil || !pins {
		return err
	}
	return l.pinCursor(c.name, next)
}

// Close gives the name up, for another Cursor. What was committed stays, and so does a Pin.
func (c *Cursor) Close() {
	all := &c.log.cursors
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.open, c.name)
}

// CursorInfo is what the directory keeps of a named reader.
type CursorInfo struct {
	Name      string
	Offset    int64     // of the next record to process
	CutFrom   int64     // see CursorStart
	Committed time.Time // when
	Pins      bool      // it holds back retention
}

// Cursors lists the named readers, ascending by name. In a log that is open read-only they are read anew.
func (l *Log) Cursors() ([]CursorInfo, error) {
	if l.isClosed.Load() {
		return nil, ErrClosed
	}
	all := &l.cursors
	if l.opts.ReadOnly {
		list, err := readCursors(l.fsys, l.dir)
		all = &cursors{list: list, bad: err}
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.bad != nil {
		return nil, all.bad
	}
	var list []CursorInfo
	for _, s := range all.list {
		list = append(list, CursorInfo{Name: s.name, Offset: s.offset, CutFrom: s.cutFrom, Committed: time.UnixMilli(s.at).UTC(), Pins: s.pins})
	}
	return list, nil
}

// RemoveCursor forgets a named reader, durably, and lets go of what it held back. It reports whether there was one. A Cursor
// that is open is closed by it.
func (l *Log) RemoveCursor(name string) (removed bool, err error) {
	err = l.changeCursors(func(all *cursors) error {
		i, found := all.find(name)
		if removed = found; found {
			all.list = slices.Delete(all.list, i, i+1)
			delete(all.open, name)
		}
		return nil
	})
	if err == nil {
		err = (&Cursor{log: l, name: name}).pin(false, 0)
	}
	return removed, err
}
