package vfstest

import (
	"bytes"
	"io/fs"
	"slices"
)

// buffer is the memory of a mapped file, which all its mappings share with ReadAt and WriteAt. Behind the file's size
// it holds zeros.
type buffer struct {
	b     []byte // length is a multiple of chunkSize
	live  int    // mappings that show it
	shown int    // length of the longest mapping so far
}

func newBuffer(size int64) *buffer {
	const least = 4 * chunkSize
	return &buffer{b: make([]byte, chunksIn(max(2*size, least))*chunkSize)}
}

func (b *buffer) chunk(i int) []byte {
	if (i+1)*chunkSize > len(b.b) {
		return zeroChunk.b[:]
	}
	return b.b[i*chunkSize : (i+1)*chunkSize : (i+1)*chunkSize]
}

// staleBuffer is a buffer that the file outgrew while it was mapped. Go memory cannot be mapped twice, so its content
// is exchanged with the file's present buffer at each call: seen is what both held at the last exchange.
type staleBuffer struct {
	*buffer
	seen []byte
}

// flatten moves the cache into one buffer that can be handed out.
func (n *inode) flatten() {
	if n.flat != nil {
		return
	}
	n.detach()
	n.flat = newBuffer(n.cache.size)
	for i, c := range n.cache.chunks {
		if c != nil {
			copyMem(n.flat.chunk(i), c.b[:])
		}
	}
	n.cache.chunks = nil
}

// unflatten moves the cache back into chunks when the last mapping of the buffer has gone.
func (n *inode) unflatten() {
	n.detach()
	n.cache.chunks = n.chunksOfFlat(n.epoch)
	n.flat = nil
}

// chunksOfFlat returns the buffer's content, sharing with the clean layer what is equal.
func (n *inode) chunksOfFlat(epoch uint64) []*chunk {
	count := chunksIn(n.cache.size)
	chunks := make([]*chunk, count)
	for i := range count {
		cur := n.flat.chunk(i)
		if clean := n.clean.at(i); equalMem(cur, clean.b[:]) {
			if clean != &zeroChunk {
				chunks[i] = clean
			}
			continue
		}
		chunks[i] = &chunk{epoch: epoch}
		copyMem(chunks[i].b[:], cur)
	}
	return chunks
}

// growFlat makes the buffer hold size bytes.
func (n *inode) growFlat(size int64) {
	if size <= int64(len(n.flat.b)) {
		return
	}
	old := n.flat
	n.flat = newBuffer(size)
	copyMem(n.flat.b, old.b)
	if old.live > 0 {
		n.stale = append(n.stale, &staleBuffer{buffer: old, seen: bytes.Clone(n.flat.b[:len(old.b)])})
	}
}

// exchange carries stores between the buffers of one file, see staleBuffer. Every call on a file begins with it.
func (n *inode) exchange() {
	for _, s := range n.stale {
		for at := 0; at < len(s.b); at += sectorSize {
			end := at + sectorSize
			if !equalMem(s.b[at:end], s.seen[at:end]) {
				mergeMem(n.flat.b[at:end], s.b[at:end], s.seen[at:end])
			}
			if !equalMem(s.b[at:end], n.flat.b[at:end]) {
				copyMem(s.b[at:end], n.flat.b[at:end])
			}
			copyMem(s.seen[at:end], n.flat.b[at:end])
		}
	}
}

// mergeMem takes over the bytes of src that differ from seen.
//
//go:norace
func mergeMem(dst, src, seen []byte) {
	for i := range src {
		if src[i] != seen[i] {
			dst[i] = src[i]
		}
	}
}

// poison is what memory holds after its mapping was closed.
const poison = 0xDB

// fill is seen by the race detector on purpose: whoever still uses the memory races with its unmapping.
func fill(p []byte, value byte) {
	p[0] = value
	for done := 1; done < len(p); done *= 2 {
		copy(p[done:], p[:done])
	}
}

// memMapping implements vfs.Mapping.
type memMapping struct {
	m    *Mem
	n    *inode
	name string
	buf  *buffer
	data []byte // guarded by m.mu; poisoned memory after Close
	open bool   // guarded by m.mu
}

// Bytes implements vfs.Mapping. After Close it returns memory filled with 0xDB.
func (p *memMapping) Bytes() []byte {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	return p.data
}

// Flush implements vfs.Mapping.
func (p *memMapping) Flush() error {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if !p.open {
		return &fs.PathError{Op: "flush", Path: p.name, Err: fs.ErrClosed}
	}
	p.m.enter(p.n)
	p.m.sync(p.n, false)
	return nil
}

// Close implements vfs.Mapping. When the last mapping of the same memory is closed, the memory is filled with 0xDB, so
// that a slice that is still used shows it; stores into such a slice reach no file.
func (p *memMapping) Close() error {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if !p.open {
		return &fs.PathError{Op: "unmap", Path: p.name, Err: fs.ErrClosed}
	}
	p.m.enter(p.n)
	p.m.findSparse(p.n)
	p.open = false
	p.n.maps--
	p.buf.live--
	if p.n.maps == 0 {
		p.m.mapped = slices.DeleteFunc(p.m.mapped, func(n *inode) bool { return n == p.n })
	}
	if p.buf.live > 0 {
		p.data = bytes.Repeat([]byte{poison}, len(p.data))
		return nil
	}
	if p.n.flat == p.buf {
		if len(p.n.stale) == 0 {
			p.n.unflatten()
		} else {
			old := p.n.flat
			p.n.flat = &buffer{b: bytes.Clone(old.b)}
		}
	} else {
		p.n.stale = slices.DeleteFunc(p.n.stale, func(s *staleBuffer) bool { return s.buffer == p.buf })
		if len(p.n.stale) == 0 && p.n.flat.live == 0 {
			p.n.unflatten()
		}
	}
	fill(p.buf.b[:p.buf.shown], poison)
	p.m.release(p.n)
	return nil
}

// failSync is called when an injected error takes the place of Flush.
func (p *memMapping) failSync() { p.m.failSync(p.n) }
