package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
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

// FindBatch looks for a whole batch with a good checksum in [from, end), where the bytes at from are not one: evidence
// that more than the tail was lost, and the place from which reading can go on. Messages of the formats 0 and 1 are looked
// for too, unless the segment begins with a v2 batch, since no log goes back to an older format. It looks first where the bad batch at from
// claims to end, so that a batch which somebody stored inside a record's value is not preferred to a real one, and then at
// each byte after from. It returns the position of the first batch that it finds.
//
// A place is looked at more closely if a magic stands there, the length fits into the range and is at most maxSize, the
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
	head, _, err := f.w.entry(0)
	if isReadError(err) {
		return 0, false, err
	}
	f.least = record.Overhead
	if f.legacy = len(head) <= posMagic || head[posMagic] != record.Magic; f.legacy {
		f.least = smallestV0
	}
	bad, claimed, err := f.w.entry(from)
	if isReadError(err) {
		return 0, false, err
	}
	bad = bytes.Clone(bad) // the window moves on
	if at := from + claimed; err == nil && claimed > 0 && at <= end-f.least {
		p, err := f.w.view(at, min(end-at, record.Overhead))
		if err != nil {
			return 0, false, err
		}
		if ok, err := f.check(p, at); err != nil {
			return 0, false, err
		} else if ok {
			return f.nearer(bad, from, at, int64(binary.BigEndian.Uint64(p)))
		}
	}
	return f.search(from+1, end)
}

type finder struct {
	s       *Segment
	w       window
	end     int64
	maxSize int64
	expect  func(Header) bool
	budget  int64 // bytes whose checksum may still be computed
	legacy  bool  // messages of the old formats may be there
	least   int64 // bytes that a batch has at least
}

// nearer returns the place of a batch in front of the one at claimed, where the bad batch at from claims to end, if that one
// does not begin at the offset behind the bad batch and there is one that does: then the length is wrong.
func (f *finder) nearer(bad []byte, from, claimed, base int64) (int64, bool, error) {
	if len(bad) < record.Overhead || bad[posMagic] != record.Magic {
		return claimed, true, nil
	}
	h := parseHeader(bad, from, claimed-from)
	next := h.NextOffset()
	if next == base {
		return claimed, true, nil
	}
	g := *f
	g.w = window{s: f.s, end: f.end, step: maxStep}
	defer g.w.release()
	g.expect = func(h Header) bool { return h.BaseOffset == next && (f.expect == nil || f.expect(h)) }
	at, found, err := g.search(from+1, claimed)
	if errors.Is(err, ErrSearchLimit) || err == nil && !found {
		return claimed, true, nil
	}
	return at, found, err
}

// search looks for a batch that begins at pos or behind, below until.
func (f *finder) search(pos, until int64) (int64, bool, error) {
	until = min(until, f.end-f.least+1)
	for pos < until {
		p, err := f.w.view(pos, min(f.end-pos, maxStep))
		if err != nil {
			return 0, false, err
		}
		for i := f.candidate(p, 0); i >= 0; i = f.candidate(p, i+1) {
			at := pos + int64(i)
			if at >= until {
				return 0, false, nil
			}
			if ok, err := f.check(p[i:min(len(p), i+record.Overhead)], at); ok || err != nil {
				return at, ok, err
			}
		}
		if pos+int64(len(p)) >= f.end {
			break
		}
		pos += int64(len(p)) - record.Overhead + 1 // a header that begins behind this is not whole in p
	}
	return 0, false, nil
}

// candidate returns the first place in p, from i on, at which a batch may begin, or -1. It jumps from one byte that could be
// the magic to the next.
func (f *finder) candidate(p []byte, i int) int {
	for last := len(p) - int(f.least); i <= last; i++ {
		if !f.legacy {
			next := bytes.IndexByte(p[i+posMagic:last+posMagic+1], record.Magic)
			if next < 0 {
				return -1
			}
			i += next
		}
		if plausible(p[i:]) || f.legacy && plausibleOld(p[i:]) {
			return i
		}
	}
	return -1
}

const posMagic = 16

// plausible tells whether the header fields that cost nothing to look at can be those of a v2 batch. The upper byte of the
// attributes is not in use, and a record takes at least seven bytes unless it is compressed.
func plausible(p []byte) bool {
	if len(p) < record.Overhead || p[posMagic] != record.Magic {
		return false
	}
	length := int64(int32(binary.BigEndian.Uint32(p[8:])))
	delta := int32(binary.BigEndian.Uint32(p[23:]))
	count := int32(binary.BigEndian.Uint32(p[57:]))
	if p[21] != 0 || p[22]&0x80 != 0 || p[22]&7 > byte(record.Zstd) {
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

// plausibleOld tells the same of a message of format 0 or 1. Its attributes are a codec of three and, in format 1, the type
// of the timestamp; the length of its key is −1 or fits into the message.
func plausibleOld(p []byte) bool {
	if len(p) < smallestV0 || p[posMagic] > 1 || p[17]&0xf0 != 0 || p[17]&7 > byte(record.LZ4) {
		return false
	}
	size, ok := entrySize(p)
	if !ok || p[0]&0x80 != 0 || binary.BigEndian.Uint64(p) == math.MaxInt64 {
		return false
	}
	key := posKeyV0 + 8*int(p[posMagic]) // format 1 has a timestamp in front of it
	if len(p) < key+4 {
		return false
	}
	n := int64(int32(binary.BigEndian.Uint32(p[key:])))
	return n >= -1 && int64(key)+8+n <= size
}

const posKeyV0 = 18

// fieldsFit tells whether key and value of an old message fill it exactly, which other bytes do not.
func (f *finder) fieldsFit(p []byte, h *Header) (bool, error) {
	at := h.Position + posKeyV0 + 8*int64(h.Magic)
	key := int64(int32(binary.BigEndian.Uint32(p[at-h.Position:])))
	at += 4 + max(0, key)
	if at+4 > h.End() {
		return false, nil
	}
	var length [4]byte
	if i := at - f.w.pos; i >= 0 && i+4 <= int64(len(f.w.buf)) {
		copy(length[:], f.w.buf[i:])
	} else if err := f.s.readAt(length[:], at); err != nil {
		return false, err
	}
	value := int64(int32(binary.BigEndian.Uint32(length[:])))
	return value >= -1 && at+4+max(0, value) == h.End(), nil
}

// check tells whether the batch whose header is p at pos is whole and good.
func (f *finder) check(p []byte, pos int64) (bool, error) {
	old := f.legacy && plausibleOld(p)
	if !old && !plausible(p) {
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
	if old {
		if ok, err := f.fieldsFit(p, &h); err != nil || !ok {
			return false, err
		}
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
