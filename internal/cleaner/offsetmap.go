package cleaner

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
)

// offsetMap maps keys to the greatest offset seen with each: a hash table with open addressing, and the keys, one after the
// other, in chunks beside it. A hash only says where to look, the key itself decides.
type offsetMap struct {
	limit int64 // bytes that slots and chunks may take
	hash  func(key []byte) uint64

	slots  []slot // a power of two
	used   int
	chunks [][]byte // the last one is being filled
	bytes  int64    // of slots and chunks
}

// slot is a place of the table. It keeps half of the hash, so that growing does not look at the keys.
type slot struct {
	next int64  // offset + 1; 0 in a free slot
	key  uint32 // chunk and byte of the key, which is preceded by its length
	hash uint32
}

const (
	slotBytes  = int64(16) // size of a slot
	firstSlots = 64
	firstChunk = 1 << 10
	chunkBits  = 20 // a chunk has at most so many bytes, unless it holds a single key
	maxChunks  = 1 << (32 - chunkBits)
)

// MaxMapBytes is the greatest useful limit of the map: a key is found by 32 bits.
const MaxMapBytes = 8 << 30

func newOffsetMap(limit int64) *offsetMap {
	seed := maphash.MakeSeed()
	m := &offsetMap{limit: min(limit, MaxMapBytes), hash: func(key []byte) uint64 { return maphash.Bytes(seed, key) }}
	m.slots = make([]slot, firstSlots)
	m.bytes = firstSlots * slotBytes
	return m
}

// find returns the slot of the key, or the free one where it belongs.
func (m *offsetMap) find(key []byte, h uint32) *slot {
	mask := uint32(len(m.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		s := &m.slots[i]
		if s.next == 0 || s.hash == h && bytes.Equal(m.keyAt(s.key), key) {
			return s
		}
	}
}

func (m *offsetMap) keyAt(at uint32) []byte {
	p := m.chunks[at>>chunkBits][at&(1<<chunkBits-1):]
	n, size := binary.Uvarint(p)
	return p[size : size+int(n)]
}

// get returns the greatest offset of the key, or −1.
func (m *offsetMap) get(key []byte) int64 { return m.find(key, fold(m.hash(key))).next - 1 }

// put enters the offset of a key and returns false if there is no room for one more key. With force the limit does not count.
func (m *offsetMap) put(key []byte, offset int64, force bool) bool {
	h := fold(m.hash(key))
	s := m.find(key, h)
	if s.next == 0 {
		if !m.grow(force) {
			return false
		}
		at, ok := m.store(key, force)
		if !ok {
			return false
		}
		s = m.find(key, h) // the table may have grown
		s.key, s.hash = at, h
		m.used++
	}
	s.next = max(s.next, offset+1)
	return true
}

// fold makes the 32 bits that a slot keeps.
func fold(h uint64) uint32 { return uint32(h) ^ uint32(h>>32) }

// grow makes room for one more slot. The table doubles when it is three quarters full; where the limit does not allow that,
// it is filled to nine tenths, as Kafka's is.
func (m *offsetMap) grow(force bool) bool {
	n := len(m.slots)
	if (m.used+1)*4 <= n*3 {
		return true
	}
	grown := 2 * int64(n) * slotBytes
	if !force && m.bytes+grown > m.limit || int64(n) >= 1<<31 {
		return (m.used+1)*10 <= n*9
	}
	old := m.slots
	m.slots = make([]slot, 2*n)
	mask := uint32(len(m.slots) - 1)
	for _, s := range old {
		if s.next == 0 {
			continue
		}
		i := s.hash & mask
		for m.slots[i].next != 0 {
			i = (i + 1) & mask
		}
		m.slots[i] = s
	}
	m.bytes += grown - int64(n)*slotBytes
	return true
}

// store copies a key into the chunks.
func (m *offsetMap) store(key []byte, force bool) (at uint32, ok bool) {
	need := binary.MaxVarintLen32 + len(key)
	last := len(m.chunks) - 1
	if last < 0 || cap(m.chunks[last])-len(m.chunks[last]) < need {
		size := int64(firstChunk)
		if last >= 0 {
			size = min(2*int64(cap(m.chunks[last])), 1<<chunkBits)
		}
		if !force {
			size = min(size, m.limit-m.bytes)
		}
		size = max(size, int64(need))
		if !force && m.bytes+size > m.limit || last+1 >= maxChunks {
			return 0, false
		}
		m.chunks = append(m.chunks, make([]byte, 0, size))
		m.bytes += size
		last++
	}
	c := &m.chunks[last]
	at = uint32(last)<<chunkBits | uint32(len(*c))
	*c = append(binary.AppendUvarint(*c, uint64(len(key))), key...)
	return at, true
}
