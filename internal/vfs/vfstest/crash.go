package vfstest

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// CrashMode says what a crash leaves.
type CrashMode uint8

// The modes of a crash.
const (
	// Kill ends the process: the page cache lives on, with what is dirty in it, and locks are released.
	Kill CrashMode = iota

	// PowerCut leaves of everything unsynced what the seed chooses.
	PowerCut

	// AllLost is a power cut that leaves exactly what was synced.
	AllLost

	// AllKept is a power cut just after the device got everything dirty. What a failed sync lost is lost here too.
	AllKept
)

// String returns the mode's name.
func (c CrashMode) String() string {
	switch c {
	case Kill:
		return "kill"
	case PowerCut:
		return "power cut"
	case AllLost:
		return "power cut, unsynced lost"
	case AllKept:
		return "power cut, unsynced kept"
	}
	return fmt.Sprintf("CrashMode(%d)", uint8(c))
}

// CrashOptions say how the system goes down. The zero value is a kill.
type CrashOptions struct {
	Mode CrashMode

	// Seed chooses what a PowerCut leaves, and drives the write-back daemon of the new file system.
	Seed uint64

	// Torn lets a PowerCut end inside a sector: a prefix of one version, the rest of an older one.
	Torn bool

	// Garbage lets a PowerCut show stale bytes of the device where a file's size survived and the bytes that had been
	// written there did not. Space that was only reserved reads as zeros.
	Garbage bool

	// Sector decides about a dirty sector in place of the seed: how many of its first bytes have the newest version, 0
	// to 512; the rest has the synced version. It is asked in a stable order, see DirtySectors, and not at all after a
	// Kill. Sizes and names are as Mode says: with AllKept, sectors behind the synced size are there to be asked about.
	Sector func(s Sector) int
}

// RandomCrash returns options chosen by a seed: any mode, with and without torn sectors and garbage.
func RandomCrash(seed uint64) CrashOptions {
	r := rand.New(rand.NewPCG(seed, 2))
	o := CrashOptions{Mode: PowerCut, Seed: seed, Torn: r.IntN(2) == 0, Garbage: r.IntN(4) == 0}
	switch r.IntN(16) {
	case 0:
		o.Mode = Kill
	case 1:
		o.Mode = AllLost
	case 2:
		o.Mode = AllKept
	}
	return o
}

// Sector is a sector of a file, by its offset in bytes.
type Sector struct {
	Path string
	Off  int64
}

// Crash returns the file system as the next process finds it. The original goes on undisturbed, so that a test can look
// at many crashes of one moment; its clones share its memory until one of them writes.
func (m *Mem) Crash(o CrashOptions) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := &Mem{opt: m.opt, boot: m.boot, ticks: m.ticks, locks: make(map[*inode][]*memLock)}
	n.opt.Seed = o.Seed
	n.rand = rand.New(rand.NewPCG(o.Seed, 1))
	for _, i := range m.mapped {
		i.exchange()
		m.findSparse(i)
	}
	c := &crash{
		o: o, to: n, rand: rand.New(rand.NewPCG(o.Seed, 3)),
		inodes: make(map[*inode]*inode), changes: make(map[*change]*change), kept: make(map[*change]bool),
	}
	if o.Mode != Kill {
		n.boot++
		c.bias = []int{1, 4, 8, 12, 15}[c.rand.IntN(5)]
	}
	n.root = c.inode(m.root)
	n.countLinks(n.root, make(map[*inode]bool))
	return n
}

// countLinks counts names and space of what can be seen.
func (m *Mem) countLinks(n *inode, seen map[*inode]bool) {
	n.links++
	if seen[n] {
		return
	}
	seen[n] = true
	m.used += int64(n.reserved.count())
	if n.dir != nil {
		for _, e := range n.dir.entries {
			m.countLinks(e, seen)
		}
	}
}

// crash is one crash while it is made.
type crash struct {
	o       CrashOptions
	to      *Mem
	rand    *rand.Rand
	bias    int // of 16: how many dirty sectors survive a power cut on average
	inodes  map[*inode]*inode
	changes map[*change]*change
	kept    map[*change]bool
}

// lucky says whether the seed keeps something unsynced.
func (c *crash) lucky() bool {
	switch c.o.Mode {
	case AllLost:
		return false
	case AllKept:
		return true
	}
	return c.rand.IntN(16) < c.bias
}

// inode returns the clone of n, which is the same for each name of n.
func (c *crash) inode(n *inode) *inode {
	if n == nil {
		return nil
	}
	if clone := c.inodes[n]; clone != nil {
		return clone
	}
	clone := &inode{path: n.path, modTime: n.modTime, epoch: newEpoch()}
	c.inodes[n] = clone
	switch {
	case n.dir != nil && c.o.Mode == Kill:
		c.killDir(clone, n.dir)
	case n.dir != nil:
		c.cutDir(clone, n.dir)
	case c.o.Mode == Kill:
		c.killFile(clone, n)
	default:
		c.cutFile(clone, n)
	}
	return clone
}

func (c *crash) killDir(clone *inode, d *directory) {
	clone.dir = newDirectory()
	for _, name := range sortedNames(d.entries) {
		clone.dir.entries[name] = c.inode(d.entries[name])
	}
	for _, name := range sortedNames(d.durable) {
		clone.dir.durable[name] = c.inode(d.durable[name])
	}
	for _, old := range d.pending {
		ch := c.change(old)
		ch.dir = clone.dir
		clone.dir.pending = append(clone.dir.pending, ch)
	}
}

func (c *crash) change(old *change) *change {
	if old == nil {
		return nil
	}
	if ch := c.changes[old]; ch != nil {
		return ch
	}
	ch := &change{name: old.name, from: old.from, done: old.done}
	c.changes[old] = ch
	ch.n, ch.link = c.inode(old.n), c.change(old.link)
	return ch
}

func (c *crash) cutDir(clone *inode, d *directory) {
	names := make(map[string]*inode, len(d.durable))
	for name, n := range d.durable {
		names[name] = n
	}
	for _, ch := range d.pending {
		if !c.keeps(ch) {
			continue
		}
		if ch.name != "" && ch.from != "" && c.o.Mode == PowerCut && c.rand.IntN(8) == 0 {
			names[ch.name] = ch.n // the new name is there and the old one as well
			continue
		}
		ch.apply(names)
	}
	clone.dir = newDirectory()
	for _, name := range sortedNames(names) {
		e := c.inode(names[name])
		clone.dir.entries[name], clone.dir.durable[name] = e, e
	}
}

// keeps decides about a change of a directory, once.
func (c *crash) keeps(ch *change) bool {
	keep, known := c.kept[ch]
	if !known {
		keep = c.lucky() && (ch.link == nil || ch.link.done || c.keeps(ch.link))
		c.kept[ch] = keep
	}
	return keep
}

func (c *crash) killFile(clone, n *inode) {
	chunks := n.cache.chunks
	if n.flat != nil {
		chunks = n.chunksOfFlat(clone.epoch)
	}
	clone.cache = layer{size: n.cache.size, chunks: chunks}
	clone.clean, clone.base = n.clean, n.base
	clone.history, clone.sizes = n.history, n.sizes
	clone.reserved, clone.baseReserved, clone.reported = n.reserved, n.baseReserved, n.reported
	n.share(clone)
}

// share marks that n and clone have slices in common, and that no chunk belongs to n alone any more.
func (n *inode) share(clone *inode) {
	n.shared, clone.shared = true, true
	n.epoch = newEpoch()
}

// cutFile gives clone what the device holds of n.
func (c *crash) cutFile(clone, n *inode) {
	size := c.size(n)
	var out layer
	if c.untouched(n) && size == n.base.size {
		out = n.base
		clone.reserved = n.baseReserved
		n.share(clone)
	} else {
		out = layer{size: size, chunks: make([]*chunk, 0, chunksIn(size))}
		reserved := n.baseReserved.or(nil)
		if c.lucky() {
			reserved = reserved.or(n.reserved)
		}
		for i := range chunksIn(size) {
			ch := c.chunk(n, i, size)
			out.set(i, ch)
			if ch != n.base.at(i) {
				for s := range perChunk {
					if !equalMem(ch.b[s*sectorSize:(s+1)*sectorSize], zeroChunk.b[:sectorSize]) {
						reserved.set(i*perChunk + s)
					}
				}
			}
		}
		out.cut(size)
		reserved.cut(sectorsIn(size))
		clone.reserved = reserved
		clone.shared = true // the layers below have one slice
	}
	clone.cache, clone.clean, clone.base = out, out, out
	clone.baseReserved = clone.reserved
}

// untouched says whether the device can hold nothing but the base.
func (c *crash) untouched(n *inode) bool {
	if c.o.Mode == AllLost && c.o.Sector == nil {
		return true
	}
	if n.flat != nil || len(n.history) > 0 || n.cache.size != n.clean.size {
		return false
	}
	return slices.Equal(n.cache.chunks, n.clean.chunks)
}

// size chooses the size that the device knows.
func (c *crash) size(n *inode) int64 {
	if n.cache.size == n.clean.size {
		return n.base.size
	}
	if c.lucky() {
		return n.cache.size
	}
	if c.o.Mode == PowerCut && len(n.sizes) > 0 {
		if i := c.rand.IntN(len(n.sizes) + 1); i < len(n.sizes) {
			return n.sizes[i]
		}
	}
	return n.base.size
}

// chunk chooses the content of chunk i, sector by sector.
func (c *crash) chunk(n *inode, i int, size int64) *chunk {
	base := n.base.at(i)
	start := int64(i) * chunkSize
	garbage := c.o.Garbage && c.o.Mode == PowerCut && start+chunkSize > n.base.size
	if !garbage && len(n.history[i]) == 0 && n.isClean(i) {
		return base
	}
	out := &chunk{b: base.b}
	for s := range perChunk {
		at, off := s*sectorSize, start+int64(s)*sectorSize
		if off >= size {
			break
		}
		c.sector(out.b[at:at+sectorSize], n, i, at, garbage && off >= n.base.size)
	}
	if out.b == base.b {
		return base
	}
	return out
}

// sector chooses the content of one sector. sector holds the synced version.
func (c *crash) sector(sector []byte, n *inode, i, at int, garbage bool) {
	off := int64(i)*chunkSize + int64(at)
	var versions [][]byte // that are not the synced one, oldest first
	if off < n.cache.size {
		// What was cut off and never synced can only be the synced version, or an older one that was remembered.
		limit := min(sectorSize, int(n.cache.size-off))
		if newest := n.cached(i)[at : at+sectorSize]; !equalMem(newest[:limit], n.clean.at(i).b[at:at+limit]) {
			versions = append(versions, newest)
		}
	}
	dirty := len(versions) > 0
	if c.o.Sector != nil {
		if dirty {
			k := c.o.Sector(Sector{Path: n.path, Off: off})
			copyMem(sector[:k], versions[0][:k])
		}
		return
	}
	switch {
	case c.o.Mode == AllLost:
		return
	case c.o.Mode == AllKept:
		if dirty {
			copyMem(sector, versions[0])
		}
		return
	case dirty && c.lucky():
		// the newest
	default:
		for _, v := range n.history[i] {
			versions = append(versions, v.b[at:at+sectorSize])
		}
		if dirty {
			versions = versions[1:]
		}
		k := c.rand.IntN(len(versions) + 1)
		if k == len(versions) {
			versions = nil
		} else {
			versions = versions[k : k+1]
		}
	}
	// Space that was reserved and never written to reads as zeros: a file system keeps note of that.
	c.store(sector, versions, garbage && (dirty || len(n.history[i]) > 0))
}

// store puts the chosen version, if any, over the synced one.
func (c *crash) store(sector []byte, version [][]byte, garbage bool) {
	if len(version) == 0 {
		if garbage && c.rand.IntN(2) == 0 {
			for i := range sector {
				sector[i] = byte(c.rand.Uint32())
			}
		}
		return
	}
	from := version[0]
	if c.o.Torn && c.rand.IntN(4) == 0 {
		from = from[:1+c.rand.IntN(sectorSize-1)]
	}
	copyMem(sector, from)
}

// DirtySectors returns the sectors that a sync of everything would write, by path and offset. A file without a name is
// left out.
func (m *Mem) DirtySectors() []Sector {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []Sector
	m.dirty(m.root, &list)
	return list
}

func (m *Mem) dirty(n *inode, list *[]Sector) {
	if n.dir != nil {
		for _, name := range sortedNames(n.dir.entries) {
			m.dirty(n.dir.entries[name], list)
		}
		return
	}
	n.exchange()
	for i := range chunksIn(n.cache.size) {
		if n.isClean(i) {
			continue
		}
		for at := 0; at < n.limit(i); at += sectorSize {
			end := min(at+sectorSize, n.limit(i))
			if !equalMem(n.cached(i)[at:end], n.clean.at(i).b[at:end]) {
				*list = append(*list, Sector{Path: n.path, Off: int64(i)*chunkSize + int64(at)})
			}
		}
	}
}
