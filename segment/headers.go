package segment

import (
	"fmt"
	"io/fs"
)

// HeaderScanner walks the headers of the batches of a log file and verifies no checksum. It reads large windows and steps
// over large batches. A HeaderScanner is for one goroutine. It holds no file open between calls of Next.
type HeaderScanner struct {
	w      window
	header Header
	tail   Tail
	done   bool
}

// ScanHeaders returns a HeaderScanner over the batches from position from, where one must begin, to position end or the
// logical size, whichever is lower. What looks like a batch is believed, so this is for bytes that have been verified before.
func (s *Segment) ScanHeaders(from, end int64) *HeaderScanner {
	c := &HeaderScanner{w: window{s: s, step: minStep}, tail: Tail{Position: from, LastOffset: -1}}
	c.w.end, c.done = s.walkEnd(&c.tail, end)
	return c
}

// Next advances to the next batch and tells whether there is one.
func (c *HeaderScanner) Next() bool {
	if c.done {
		return false
	}
	pos := c.tail.Position
	if beyond := pos - c.w.pos - int64(len(c.w.buf)); len(c.w.buf) > 0 && beyond > -61 {
		c.w.step = min(2*c.w.step, maxStep)
		if beyond > skipSize {
			c.w.step = minStep
		}
	}
	head, size, err := c.w.entry(pos)
	if err != nil {
		c.done, c.header = true, Header{}
		c.w.finish(&c.tail, size, err)
		c.w.release()
		return false
	}
	c.header = parseHeader(head, pos, size)
	c.tail.Position = pos + size
	c.tail.LastOffset = c.header.LastOffset
	return true
}

// Header returns the header of the present batch.
func (c *HeaderScanner) Header() Header { return c.header }

// Tail describes the end of the walk after Next has returned false; see Scanner.Tail.
func (c *HeaderScanner) Tail() Tail { return c.tail }

// Err returns the error of a read that failed, nil if the walk reached its end.
func (c *HeaderScanner) Err() error { return c.tail.readError() }

// outside is the error about a position that does not lie in [0, end].
func (s *Segment) outside(pos, end int64) error {
	return fmt.Errorf("segment: %s: byte %d is outside the %d bytes to read: %w", s.Path(), pos, end, fs.ErrInvalid)
}
