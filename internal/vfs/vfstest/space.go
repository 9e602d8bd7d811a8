package vfstest

import "math"

// Sparse is a store through a mapping into sectors that nothing had reserved. On a real file system such a store kills
// the process when the disk is full.
type Sparse struct {
	Path string
	Off  int64 // start of a run of sectors
	N    int64 // bytes
	Full bool  // there was no room: no sync makes the bytes durable
}

// SparseStores returns the sparse stores that were found since the file system was made, in the order in which they
// were found. They are found by this call, by a sync, and when a mapping is closed.
func (m *Mem) SparseStores() []Sparse {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.mapped {
		n.exchange()
		m.findSparse(n)
	}
	return append([]Sparse(nil), m.sparse...)
}

// SetCapacity changes the size of the disk; 0 is no limit. What is stored already stays, even if it is more.
func (m *Mem) SetCapacity(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opt.Capacity = bytes
}

// Used returns how many bytes of the disk are taken, in whole sectors.
func (m *Mem) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used * sectorSize
}

// free is how many sectors can still be taken.
func (m *Mem) free() int64 {
	if m.opt.Capacity == 0 {
		return math.MaxInt64
	}
	return max(0, m.opt.Capacity/sectorSize-m.used)
}

// claim reserves the sectors of [from, to) in order while there is room, and returns how many bytes of the range are
// covered.
func (m *Mem) claim(n *inode, from, to int64) int64 {
	n.detach()
	for s := int(from / sectorSize); s < sectorsIn(to); s++ {
		if n.reserved.has(s) {
			continue
		}
		if m.free() == 0 {
			return max(0, int64(s)*sectorSize-from)
		}
		n.reserved.set(s)
		m.used++
	}
	return to - from
}

// truncate changes a size and gives back the sectors behind it.
func (m *Mem) truncate(n *inode, size int64) {
	n.detach()
	n.resize(size, m.rand)
	m.used -= int64(n.reserved.cut(sectorsIn(size)))
	n.modTime = m.now()
}

// findSparse reserves what was stored into holes through mappings, as the page fault of a store does, and reports it.
func (m *Mem) findSparse(n *inode) {
	if n.flat == nil || n.reserved.missing(0, sectorsIn(n.cache.size)) == 0 {
		return
	}
	n.detach()
	for s := range sectorsIn(n.cache.size) {
		i, at := s/perChunk, s%perChunk*sectorSize
		if n.reserved.has(s) || n.reported.has(s) ||
			equalMem(n.flat.chunk(i)[at:at+sectorSize], zeroChunk.b[:sectorSize]) {
			continue
		}
		full := m.free() == 0
		if full {
			n.reported.set(s)
		} else {
			n.reserved.set(s)
			m.used++
		}
		off := int64(s) * sectorSize
		if k := len(m.sparse) - 1; k >= 0 && m.sparse[k].Path == n.path && m.sparse[k].Full == full &&
			m.sparse[k].Off+m.sparse[k].N == off {
			m.sparse[k].N += sectorSize
			continue
		}
		m.sparse = append(m.sparse, Sparse{Path: n.path, Off: off, N: sectorSize, Full: full})
	}
}

// sync makes a file durable.
func (m *Mem) sync(n *inode, metadata bool) {
	m.findSparse(n)
	n.sync(metadata)
}

// failSync is a sync of a file that failed.
func (m *Mem) failSync(n *inode) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n.exchange()
	n.loseDirty()
}

// SyncAll makes everything durable that can be seen: a test's way to set up its start.
func (m *Mem) SyncAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.syncTree(m.root)
}

func (m *Mem) syncTree(n *inode) {
	if n.dir == nil {
		n.exchange()
		m.sync(n, true)
		return
	}
	n.dir.sync()
	for _, name := range sortedNames(n.dir.entries) {
		m.syncTree(n.dir.entries[name])
	}
}

// enter begins an operation on n, or on names if n is nil. Now and then the write-back daemon runs meanwhile: the device
// may get the present version of a page that is mapped. Pages that are written by WriteAt are caught when they are
// written again.
func (m *Mem) enter(n *inode) {
	if n != nil {
		n.exchange()
	}
	if len(m.mapped) == 0 || m.rand.IntN(4) != 0 {
		return
	}
	m.writeBack(m.mapped[m.rand.IntN(len(m.mapped))], 32)
}

// writeBack remembers the first dirty chunk at or behind a random place, within so many chunks.
func (m *Mem) writeBack(n *inode, within int) {
	count := chunksIn(n.cache.size)
	if count == 0 {
		return
	}
	start := m.rand.IntN(count)
	for k := range min(within, count) {
		if i := (start + k) % count; !n.isClean(i) {
			n.detach()
			n.remember(i, m.rand)
			return
		}
	}
}

// WriteBack lets the write-back daemon run over everything: of each dirty page, with even chance, the device may hold
// the present version after a power cut, whatever is stored later. A test calls it between the stores of one operation.
func (m *Mem) WriteBack() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writeBackTree(m.root)
}

func (m *Mem) writeBackTree(n *inode) {
	if n.dir != nil {
		for _, name := range sortedNames(n.dir.entries) {
			m.writeBackTree(n.dir.entries[name])
		}
		return
	}
	n.exchange()
	for i := range chunksIn(n.cache.size) {
		if !n.isClean(i) && m.rand.IntN(2) == 0 {
			n.detach()
			n.remember(i, m.rand)
		}
	}
}
