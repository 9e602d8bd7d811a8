package segment

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/oncelog/oncelog/record"
)

// searchFactor and searchFree bound the bytes that FindBatch computes checksums of: so many times the range, plus so many.
const (
	searchFactor = 4
	searchFree   = 16 << 20
)

// FindBatch looks for a whole v2 batch with a good checksum in [from, end), where the bytes at from are not one: evidence
// that more than the tail was lost, and the place from which reading can go on. It looks first where the bad batch at from
// claims to end, so that a batch which somebody stored inside a record's value is not preferred to a real one, and then at
// each byte after from. It returns the position of the first batch that it finds.
//
// A place is looked at more closely if magic 2 stands there, the length fits into the range and is at most maxSize, the
// offsets have a place in the segment, the other fields are in range, and expect, given the header, agrees: it is the caller
// who knows which base offset may come. Only then the checksum is computed. Bytes that were made to look like many overlapping batches could make that work
// quadratic, so it ends with ErrSearchLimit when checksums of four times the range, and 16 MiB, have been computed: take
// that for "there may be one". The fields are narrow enough that other bytes need next to none.
func (s *Segment) FindBatch(from, end int64, maxSize int64, expect func(Header) bool) (pos int64, found bool, err error) {
	end, err = s.limit(end)
	if err != nil {
		return 0, false, err
	}
	if from < 0 || from > end {
		return 0, false, s.outside(from, end)
	}
	f := finder{s: s, end: end, maxSize: maxSize, expect: expect}
	f.budget = searchFactor*(end-from) + searchFree
	f.w = window{s: s, end: end, step: maxStep}
	defer f.w.release()
	_, claimed, err := f.w.entry(from)
	if isReadError(err) {
		return 0, false, err
	}
	if err == nil && claimed > 0 && from+claimed <= end-record.Overhead {
		p, err := f.w.view(from+claimed, record.Overhead)
		if err != nil {
			return 0, false, err
		}
		if ok, err := f.check(p, from+claimed); ok || err != nil {
			return from + claimed, ok, err
		}
	}
	return f.search(from + 1)
}

type finder struct {
	s       *Segment
	w       window
	end     int64
	maxSize int64
	expect  func(Header) bool
	budget  int64 // bytes whose checksum may still be computed
}

// search looks at each byte from pos on. It jumps from one byte that could be the magic to the next.
func (f *finder) search(pos int64) (int64, bool, error) {
	for pos <= f.end-record.Overhead {
		p, err := f.w.view(pos, min(f.end-pos, maxStep))
		if err != nil {
			return 0, false, err
		}
		last := len(p) - record.Overhead // a header that begins behind this is not whole in p
		for i := 0; i <= last; i++ {
			next := bytes.IndexByte(p[i+posMagic:], record.Magic)
			if next < 0 || i+next > last {
				break
			}
			i += next
			if !plausible(p[i:]) {
				continue
			}
			if ok, err := f.check(p[i:i+record.Overhead], pos+int64(i)); ok || err != nil {
				return pos + int64(i), ok, err
			}
		}
		pos += int64(last) + 1
	}
	return 0, false, nil
}

const posMagic = 16

// plausible tells whether the header fields that cost nothing to look at can be those of a v2 batch. The upper byte of the
// attributes is not in use, and a record takes at least seven bytes unless it is compressed.
func plausible(p []byte) bool {
	_ = p[60]
	length := int64(int32(binary.BigEndian.Uint32(p[8:])))
	delta := int32(binary.BigEndian.Uint32(p[23:]))
	count := int32(binary.BigEndian.Uint32(p[57:]))
	if p[posMagic] != record.Magic || p[21] != 0 || p[22]&0x80 != 0 || p[22]&7 > byte(record.Zstd) {
		return false
	}
	if length < record.Overhead-record.LogOverhead || delta < 0 || count < 0 || int64(count) > int64(delta)+1 {
		return false
	}
	if p[22]&7 == byte(record.None) && 7*int64(count) > length+record.LogOverhead-record.Overhead {
		return false
	}
	base := binary.BigEndian.Uint64(p)
	return bits.Len64(base) < 64 && base <= math.MaxInt64-1-uint64(delta)
}

// check tells whether the batch whose header is p at pos is whole and good.
func (f *finder) check(p []byte, pos int64) (bool, error) {
	if !plausible(p) {
		return false, nil
	}
	size := record.LogOverhead + int64(int32(binary.BigEndian.Uint32(p[8:])))
	if size > f.end-pos || size > f.maxSize {
		return false, nil
	}
	h := parseHeader(p, pos, size)
	if h.BaseOffset < f.s.base || h.LastOffset-f.s.base > MaxRelativeOffset {
		return false, nil
	}
	if f.expect != nil && !f.expect(h) {
		return false, nil
	}
	if f.budget -= size; f.budget < 0 {
		return false, fmt.Errorf("%w: %s: at byte %d", ErrSearchLimit, f.s.Path(), pos)
	}
	var err error
	if at := pos - f.w.pos; at >= 0 && at+size <= int64(len(f.w.buf)) {
		err = record.Batch(f.w.buf[at : at+size]).Validate()
	} else {
		err = f.s.verify(h)
	}
	if isReadError(err) {
		return false, err
	}
	return err == nil, nil
}

// FirstNonZero returns the position of the first byte in [from, end) that is not zero, and false if there is none. An end
// beyond the file means its length.
func (s *Segment) FirstNonZero(from, end int64) (pos int64, found bool, err error) {
	size, err := s.FileSize()
	if err != nil {
		return 0, false, err
	}
	buf := scanBuffers.Get().(*[scanStep]byte)
	defer scanBuffers.Put(buf)
	for pos, end = max(from, 0), min(end, size); pos < end; {
		p := buf[:min(scanStep, end-pos)]
		if err := s.readAt(p, pos); err != nil {
			return 0, false, err
		}
		if i := firstNonZero(p); i < len(p) {
			return pos + int64(i), true, nil
		}
		pos += int64(len(p))
	}
	return 0, false, nil
}

// firstNonZero returns the index of the first byte that is not zero, or len(p).
func firstNonZero(p []byte) int {
	i := 0
	for i+len(zeros) <= len(p) && bytes.Equal(p[i:i+len(zeros)], zeros[:]) {
		i += len(zeros)
	}
	for i < len(p) && p[i] == 0 {
		i++
	}
	return i
}

var zeros [4096]byte
