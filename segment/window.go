package segment

import (
	"encoding/binary"
	"io"
	"sync"

	"github.com/oncelog/oncelog/record"
)

const (
	// scanStep is how much a full scan reads at once: larger reads bring nothing, smaller ones cost system calls.
	scanStep = 1 << 20
	// A walk of headers begins with a small read, since most walks go from an index entry to a batch nearby, about twice
	// the usual index interval, and doubles it up to maxStep.
	minStep = 8 << 10
	maxStep = 256 << 10
	// From this size on a batch is stepped over without being read by a walk of headers.
	skipSize = 64 << 10
	// From this size on the checksum of a batch is verified in pieces before memory is taken for it, so that a damaged
	// length does not cost hundreds of megabytes.
	pieceSize = 16 << 20
)

// window is a part of the log file in memory. The file is read through one buffer, which is used again and again.
type window struct {
	s    *Segment
	end  int64  // nothing is read from here on
	step int    // bytes to read at once, if there are as many
	pos  int64  // position of buf[0]
	buf  []byte // what is in memory
}

// Buffers of the two usual sizes are kept for the next walk.
var (
	scanBuffers = sync.Pool{New: func() any { return new([scanStep]byte) }}
	stepBuffers = sync.Pool{New: func() any { return new([maxStep]byte) }}
)

// view returns n bytes at pos, which must lie below end. They are valid until the next call.
func (w *window) view(pos, n int64) ([]byte, error) {
	if at := pos - w.pos; at >= 0 && at+n <= int64(len(w.buf)) {
		return w.buf[at : at+n : at+n], nil
	}
	return w.fill(pos, n)
}

func (w *window) fill(pos, n int64) ([]byte, error) {
	want := min(max(n, int64(w.step)), w.end-pos)
	var keep []byte
	if at := pos - w.pos; at >= 0 && at < int64(len(w.buf)) {
		keep = w.buf[at:]
	}
	old, buf := w.buf, w.buf[:cap(w.buf)]
	if int64(len(buf)) < want || len(buf) > scanStep && want <= scanStep {
		buf = allocate(want)
	}
	have := int64(copy(buf, keep))
	w.buf, w.pos = buf[:0], pos
	if cap(old) != cap(buf) {
		recycle(old)
	}
	if have < want {
		if err := w.s.readAt(buf[have:want], pos+have); err != nil {
			return nil, err
		}
	}
	w.buf = buf[:want]
	return w.buf[:n:n], nil
}

func allocate(n int64) []byte {
	switch {
	case n <= maxStep:
		return stepBuffers.Get().(*[maxStep]byte)[:]
	case n <= scanStep:
		return scanBuffers.Get().(*[scanStep]byte)[:]
	}
	return make([]byte, n)
}

func recycle(buf []byte) {
	switch cap(buf) {
	case maxStep:
		stepBuffers.Put((*[maxStep]byte)(buf[:maxStep]))
	case scanStep:
		scanBuffers.Put((*[scanStep]byte)(buf[:scanStep]))
	}
}

// release gives the buffer back. What view returned is invalid from then on.
func (w *window) release() {
	recycle(w.buf)
	w.buf, w.pos = nil, 0
}

// entry returns the size of the entry at pos and its first bytes, record.Overhead of them or all if it has fewer. The
// entry lies below the end of the window as a whole. Otherwise the error is io.EOF if pos is the end, a readError, or
// what record.Next says about the entry.
func (w *window) entry(pos int64) (head []byte, size int64, err error) {
	left := w.end - pos
	if left <= 0 {
		return nil, 0, io.EOF
	}
	head, err = w.view(pos, min(left, record.Overhead))
	if err != nil {
		return nil, 0, err
	}
	size, ok := entrySize(head)
	if !ok {
		// Fewer bytes than a header, or a size or magic that cannot be. record.Next knows what to say about it.
		_, _, err = record.Next(head)
		return head, 0, err
	}
	if size > left {
		return head, size, &record.TruncatedError{Have: left, Need: size}
	}
	return head[:min(size, int64(len(head)))], size, nil
}

// entrySize returns the size that the entry beginning with head claims, if head is long enough to tell and the size is
// one that its magic can have. The rules are those of record.Next, in a form that makes no error.
func entrySize(head []byte) (size int64, ok bool) {
	if len(head) < record.HeaderUpToMagic {
		return 0, false
	}
	size = record.LogOverhead + int64(int32(binary.BigEndian.Uint32(head[8:])))
	switch head[16] {
	case 0:
		return size, size >= smallestV0
	case 1:
		return size, size >= smallestV1
	case record.Magic:
		return size, size >= record.Overhead
	}
	return 0, false
}

// Sizes of the smallest legacy entries. Format.
const (
	smallestV0 = 26
	smallestV1 = 34
)
