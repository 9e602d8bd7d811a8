package vfstest

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
)

// inode is a file or a directory. Everything in it is guarded by the mutex of its Mem.
//
// A file has three layers. cache is what can be read. base is what the device holds. clean is what the kernel believes
// that the device holds: a sector is dirty where cache differs from clean, and lost, by a sync that failed, where cache
// equals clean and clean differs from base.
type inode struct {
	path    string // last name, for messages and reports
	modTime time.Time
	links   int // names that can be seen
	handles int // open files
	maps    int // live mappings
	dir     *directory

	cache layer // its chunks are unused while flat is set
	flat  *buffer
	stale []*staleBuffer // buffers that the file outgrew while they were mapped
	clean layer
	base  layer

	history map[int][]*chunk // by chunk: versions since the last sync that the device may hold
	sizes   []int64          // sizes since the last sync that the device may hold

	reserved     bitmap // sectors that take space
	baseReserved bitmap // the same as the device knows it
	reported     bitmap // sectors already reported as sparse stores on a full disk

	epoch  uint64 // chunks of this epoch belong to this inode alone
	shared bool   // slices and maps are shared with a crash clone: copy them before a change
}

var lastEpoch atomic.Uint64

func newEpoch() uint64 { return lastEpoch.Add(1) }

func newInode(path string) *inode { return &inode{path: path, epoch: newEpoch()} }

// detach ends the sharing of slices and maps with crash clones. Every method that changes the inode calls it first.
func (n *inode) detach() {
	if !n.shared {
		return
	}
	n.shared = false
	n.cache.chunks = slices.Clone(n.cache.chunks)
	n.clean.chunks = slices.Clone(n.clean.chunks)
	n.base.chunks = slices.Clone(n.base.chunks)
	n.sizes = slices.Clone(n.sizes)
	n.reserved = slices.Clone(n.reserved)
	n.baseReserved = slices.Clone(n.baseReserved)
	n.reported = slices.Clone(n.reported)
	if n.history != nil {
		history := make(map[int][]*chunk, len(n.history))
		for i, v := range n.history {
			history[i] = slices.Clone(v)
		}
		n.history = history
	}
}

// cached returns chunk i as it can be read. It must not be changed.
func (n *inode) cached(i int) []byte {
	if n.flat != nil {
		return n.flat.chunk(i)
	}
	return n.cache.at(i).b[:]
}

// isClean says whether chunk i holds nothing that a sync would write.
func (n *inode) isClean(i int) bool {
	c := n.clean.at(i)
	if n.flat == nil && n.cache.at(i) == c {
		return true
	}
	limit := n.limit(i)
	return equalMem(n.cached(i)[:limit], c.b[:limit])
}

// limit is how many bytes of chunk i lie below the size.
func (n *inode) limit(i int) int {
	return int(max(0, min(chunkSize, n.cache.size-int64(i)*chunkSize)))
}

func (n *inode) readAt(p []byte, off int64) int {
	if off >= n.cache.size {
		return 0
	}
	p = p[:min(int64(len(p)), n.cache.size-off)]
	for done := 0; done < len(p); {
		at := off + int64(done)
		i, from := int(at/chunkSize), int(at%chunkSize)
		part := p[done:min(len(p), done+chunkSize-from)]
		copyMem(part, n.cached(i)[from:])
		done += len(part)
	}
	return len(p)
}

// writeAt stores p, whose sectors take space already, and extends the file where needed.
func (n *inode) writeAt(p []byte, off int64, r *rand.Rand) {
	n.detach()
	end := off + int64(len(p))
	if end > n.cache.size {
		n.resize(end, r)
	}
	n.unlose(off, end)
	for done := 0; done < len(p); {
		at := off + int64(done)
		i, from := int(at/chunkSize), int(at%chunkSize)
		part := p[done:min(len(p), done+chunkSize-from)]
		copyMem(n.writable(i, r)[from:], part)
		done += len(part)
	}
}

// writable returns chunk i for a change, after the device may have got its present version.
func (n *inode) writable(i int, r *rand.Rand) []byte {
	keep := r != nil && r.IntN(2) == 0 && !n.isClean(i)
	if n.flat != nil {
		if keep {
			n.remember(i, r)
		}
		return n.flat.chunk(i)
	}
	c := n.cache.at(i)
	if c.epoch != n.epoch || keep {
		if keep {
			n.remember(i, r)
		}
		own := &chunk{epoch: n.epoch, b: c.b}
		n.cache.set(i, own)
		c = own
	}
	return c.b[:]
}

// versionsKept bounds the history of one chunk.
const versionsKept = 4

// remember adds the present content of chunk i to what the device may hold after a power cut.
func (n *inode) remember(i int, r *rand.Rand) {
	var c *chunk
	if n.flat != nil {
		c = &chunk{}
		copyMem(c.b[:], n.flat.chunk(i))
	} else if c = n.cache.at(i); c.epoch == n.epoch {
		// The chunk is about to be replaced or stays in use: as a version it must not change any more.
		c = &chunk{b: c.b}
	}
	if n.history == nil {
		n.history = make(map[int][]*chunk)
	}
	v := n.history[i]
	if len(v) < versionsKept {
		n.history[i] = append(v, c)
	} else {
		v[r.IntN(len(v))] = c
	}
}

// resize changes the size that can be seen. Sectors behind a smaller size are given back by the caller.
func (n *inode) resize(size int64, r *rand.Rand) {
	old := n.cache.size
	if size == old {
		return
	}
	n.detach()
	if old != n.clean.size && len(n.sizes) < versionsKept {
		n.sizes = append(n.sizes, old)
	}
	if size > old {
		n.cache.size = size
		if n.flat != nil {
			n.growFlat(size)
		}
		n.unlose(old, size)
		return
	}
	for i := int(size / chunkSize); i < chunksIn(old); i++ {
		if r != nil && !n.isClean(i) && r.IntN(2) == 0 {
			n.remember(i, r)
		}
		from := int(max(0, size-int64(i)*chunkSize))
		switch {
		case n.flat != nil:
			clearMem(n.flat.chunk(i)[from:])
		case from > 0 && n.cache.at(i) != &zeroChunk:
			clearMem(n.writable(i, nil)[from:])
		}
	}
	n.cache.size = size
	if n.flat == nil {
		n.cache.cut(size)
	}
}

// unlose makes the lost sectors of [from, to) dirty again: whoever writes them anew makes the kernel write them anew.
func (n *inode) unlose(from, to int64) {
	if n.clean.size == n.cache.size && n.base.size != n.clean.size && to > n.base.size {
		n.clean.size = n.base.size
	}
	for i := int(from / chunkSize); i < chunksIn(to); i++ {
		clean, base := n.clean.at(i), n.base.at(i)
		if clean == base {
			continue
		}
		merged := &chunk{b: clean.b}
		for s := range perChunk {
			at := int64(i)*chunkSize + int64(s)*sectorSize
			if at < to && at+sectorSize > from {
				copy(merged.b[s*sectorSize:(s+1)*sectorSize], base.b[s*sectorSize:])
			}
		}
		n.clean.set(i, merged)
	}
}

// sync makes the dirty sectors durable, and the size: a larger one always, a smaller one only with metadata.
func (n *inode) sync(metadata bool) {
	n.detach()
	size := n.cache.size
	grew := size > n.clean.size
	for i := range chunksIn(size) {
		if n.isClean(i) {
			continue
		}
		if n.syncChunk(i) && int64(i+1)*chunkSize > n.base.size {
			grew = grew || n.base.size < size // a size that a failed sync lost comes back with bytes behind it
		}
	}
	switch {
	case grew, metadata && size != n.clean.size:
		n.base.size, n.clean.size = size, size
		n.base.cut(size)
		n.clean.cut(size)
		n.baseReserved = slices.Clone(n.reserved)
	default:
		n.baseReserved = n.baseReserved.or(n.reserved)
	}
	n.history, n.sizes = nil, nil
	n.epoch = newEpoch() // base and clean now hold chunks of the cache
}

// syncChunk writes the dirty sectors of chunk i and says whether there were any.
func (n *inode) syncChunk(i int) bool {
	limit := n.limit(i)
	cur, clean, base := n.cached(i), n.clean.at(i), n.base.at(i)
	full := n.reserved.missing(i*perChunk, i*perChunk+sectorsIn(int64(limit))) == 0
	if full && clean == base && (limit == chunkSize || n.base.size <= n.cache.size) {
		c := n.cache.at(i)
		if n.flat != nil {
			c = &chunk{}
			copyMem(c.b[:], cur)
		}
		n.base.set(i, c)
		n.clean.set(i, c)
		return true
	}
	newBase, newClean, wrote := &chunk{b: base.b}, &chunk{b: clean.b}, false
	for from := 0; from < limit; from += sectorSize {
		to := min(from+sectorSize, limit)
		if equalMem(cur[from:to], clean.b[from:to]) {
			continue
		}
		if !n.reserved.has(i*perChunk+from/sectorSize) && !equalMem(cur[from:to], zeroChunk.b[:to-from]) {
			continue // stored into a hole that a full disk cannot fill
		}
		copyMem(newBase.b[from:to], cur[from:to])
		copyMem(newClean.b[from:to], cur[from:to])
		wrote = true
	}
	if wrote {
		n.base.set(i, newBase)
		n.clean.set(i, newClean)
	}
	return wrote
}

// loseDirty is a sync that failed: what was dirty counts as clean from now on and is not on the device.
func (n *inode) loseDirty() {
	n.detach()
	for i := range chunksIn(n.cache.size) {
		if n.isClean(i) {
			continue
		}
		c := n.cache.at(i)
		if n.flat != nil {
			c = &chunk{}
			copyMem(c.b[:], n.flat.chunk(i))
		}
		n.clean.set(i, c)
	}
	n.clean.size = n.cache.size
	n.clean.cut(n.cache.size)
	n.history, n.sizes = nil, nil
	n.epoch = newEpoch()
}

// dropClean forgets the cached sectors of [from, to) that are not dirty, so that the device's content shows.
func (n *inode) dropClean(from, to int64) {
	n.detach()
	for i := int(from / chunkSize); i < chunksIn(min(to, n.cache.size)); i++ {
		clean, base := n.clean.at(i), n.base.at(i)
		if clean == base {
			continue
		}
		limit := n.limit(i)
		merged := &chunk{b: clean.b}
		for at := 0; at < limit; at += sectorSize {
			end := min(at+sectorSize, limit)
			if !equalMem(n.cached(i)[at:end], clean.b[at:end]) {
				continue
			}
			copyMem(n.writable(i, nil)[at:end], base.b[at:end])
			copy(merged.b[at:end], base.b[at:end])
		}
		n.clean.set(i, merged)
	}
}
