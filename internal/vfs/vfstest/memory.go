package vfstest

import "unsafe"

// Sizes of the model: a device writes sectors, possibly torn, and the page cache keeps chunks.
const (
	sectorSize = 512
	chunkSize  = 4096
	perChunk   = chunkSize / sectorSize
)

// chunk is one page of a file. It may be changed only by the inode whose epoch it carries; under any other epoch it is
// shared with another layer, another version or a crash clone, and immutable.
type chunk struct {
	epoch uint64
	b     [chunkSize]byte
}

// zeroChunk stands for a chunk that was never written. It is never changed.
var zeroChunk chunk

// layer is the content of a file at one level. Bytes at and behind size are zeros in every chunk.
type layer struct {
	size   int64
	chunks []*chunk // nil or missing means zeros
}

func (l *layer) at(i int) *chunk {
	if i < len(l.chunks) && l.chunks[i] != nil {
		return l.chunks[i]
	}
	return &zeroChunk
}

func (l *layer) set(i int, c *chunk) {
	if c == &zeroChunk {
		c = nil
	}
	if i >= len(l.chunks) {
		if c == nil {
			return
		}
		l.chunks = append(l.chunks, make([]*chunk, i+1-len(l.chunks))...)
	}
	l.chunks[i] = c
}

// cut drops what lies at and behind size.
func (l *layer) cut(size int64) {
	l.size = min(l.size, size)
	n := chunksIn(size)
	if n < len(l.chunks) {
		clear(l.chunks[n:])
		l.chunks = l.chunks[:n]
	}
	if rest := int(size % chunkSize); rest != 0 {
		if c := l.at(n - 1); c != &zeroChunk && !equalMem(c.b[rest:], zeroChunk.b[rest:]) {
			kept := &chunk{}
			copyMem(kept.b[:rest], c.b[:rest])
			l.set(n-1, kept)
		}
	}
}

// chunksIn is how many chunks size bytes take.
func chunksIn(size int64) int { return int((size + chunkSize - 1) / chunkSize) }

// sectorsIn is how many sectors size bytes take.
func sectorsIn(size int64) int { return int((size + sectorSize - 1) / sectorSize) }

// copyMem copies as copy does, from or to memory that may be mapped. A store into a mapping that the kernel
// reads meanwhile is no data race of the program, so that the race detector must not see this side of it. The runtime
// reports what copy and bytes.Equal touch in its own functions, whatever their caller is marked as: arrays are moved
// and compared by the compiler's own code.
//
//go:norace
func copyMem(dst, src []byte) {
	src = src[:min(len(src), len(dst))]
	for len(src) >= sectorSize {
		*(*[sectorSize]byte)(dst) = *(*[sectorSize]byte)(src)
		dst, src = dst[sectorSize:], src[sectorSize:]
	}
	for len(src) >= wordSize {
		*(*[wordSize]byte)(dst) = *(*[wordSize]byte)(src)
		dst, src = dst[wordSize:], src[wordSize:]
	}
	//lint:ignore S1001 the race detector would see copy
	for i := range src {
		dst[i] = src[i]
	}
}

const wordSize = 8

// equalMem compares memory that may be mapped, see copyMem.
//
//go:norace
func equalMem(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	return len(a) == 0 || unsafe.String(&a[0], len(a)) == unsafe.String(&b[0], len(b))
}

// clearMem zeroes memory that may be mapped, see copyMem.
func clearMem(p []byte) {
	for len(p) > chunkSize {
		copyMem(p, zeroChunk.b[:])
		p = p[chunkSize:]
	}
	copyMem(p, zeroChunk.b[:len(p)])
}

// bitmap is a set of sectors.
type bitmap []uint64

func (b bitmap) has(i int) bool { return i>>6 < len(b) && b[i>>6]&(1<<(i&63)) != 0 }

func (b *bitmap) set(i int) {
	if need := i>>6 + 1; need > len(*b) {
		*b = append(*b, make(bitmap, need-len(*b))...)
	}
	(*b)[i>>6] |= 1 << (i & 63)
}

// missing counts the sectors of [from, to) that are not in the set.
func (b bitmap) missing(from, to int) int {
	n := 0
	for i := from; i < to; i++ {
		if i&63 == 0 && i+64 <= to && i>>6 < len(b) && b[i>>6] == ^uint64(0) {
			i += 63
			continue
		}
		if !b.has(i) {
			n++
		}
	}
	return n
}

// cut removes the sectors from i on and returns how many there were.
func (b *bitmap) cut(i int) int {
	n := 0
	for j := i; j < len(*b)*64; j++ {
		if j&63 == 0 && (*b)[j>>6] == 0 {
			j += 63
			continue
		}
		if b.has(j) {
			(*b)[j>>6] &^= 1 << (j & 63)
			n++
		}
	}
	return n
}

func (b bitmap) count() int {
	return len(b)*64 - b.missing(0, len(b)*64)
}

func (b bitmap) or(other bitmap) bitmap {
	out := make(bitmap, max(len(b), len(other)))
	copy(out, b)
	for i, w := range other {
		out[i] |= w
	}
	return out
}
