package vfstest

import "slices"

// directory is the content of a directory: names that can be seen, names that are durable, and the changes between the
// two in the order in which they were made. After a power cut each change may have happened or not, on its own.
type directory struct {
	entries map[string]*inode
	durable map[string]*inode
	pending []*change
}

func newDirectory() *directory {
	return &directory{entries: make(map[string]*inode), durable: make(map[string]*inode)}
}

// change is one change of a directory that was not synced.
type change struct {
	dir  *directory
	name string // the name that leads to n afterwards; empty for a removal
	from string // the name that is gone afterwards; empty for a creation
	n    *inode

	// link is the other half of a rename between directories. The old name does not go before the new one is there:
	// a file system that journals cannot lose both.
	link *change
	done bool // durable
}

// apply makes the change in a map of names.
func (c *change) apply(names map[string]*inode) {
	if c.from != "" && (c.name == "" || names[c.from] == c.n) {
		delete(names, c.from)
	}
	if c.name != "" {
		names[c.name] = c.n
	}
}

// change records and makes a change.
func (d *directory) change(c *change) *change {
	c.dir = d
	c.apply(d.entries)
	d.pending = append(d.pending, c)
	return c
}

// sync makes all changes durable.
func (d *directory) sync() {
	d.syncTo(len(d.pending))
}

func (d *directory) syncTo(n int) {
	list := d.pending[:n]
	d.pending = slices.Clone(d.pending[n:])
	for _, c := range list {
		if l := c.link; l != nil && !l.done {
			if i := slices.Index(l.dir.pending, l); i >= 0 {
				l.dir.syncTo(i + 1)
			}
		}
		c.apply(d.durable)
		c.done = true
	}
}

// loseChanges is a sync that failed: the names can be seen and no later sync makes them durable.
func (d *directory) loseChanges() {
	d.pending = nil
}
