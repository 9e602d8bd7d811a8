package producerstate

import "unsafe"

// table holds all producers: a slab of fixed structs in chunks, an index from id to slot, and a list of free slots.
//
// Chunks make growing cheap, since nothing is copied, and let a frozen view share them: a chunk that a view may still be
// reading is copied before it is changed for the first time.
type table struct {
	index  hashIndex
	chunks [][]producer
	shared []bool // shared[i]: a frozen view may be reading chunks[i]
	used   uint32 // slots ever handed out
	free   uint32 // first free slot plus one, 0: none
	live   int

	lastID   int64 // the producer found last, -1: none
	lastSlot uint32
}

const (
	chunkBits  = 8
	chunkSize  = 1 << chunkBits // 40 KiB
	chunkMask  = chunkSize - 1
	firstChunk = 4 // capacity that the first chunk starts with: most partitions have few producers
)

func newTable() *table { return &table{index: newHashIndex(), lastID: -1} }

// at returns the producer in slot for reading.
func (t *table) at(slot uint32) *producer { return &t.chunks[slot>>chunkBits][slot&chunkMask] }

// holds tells whether slot is that of a producer.
func (t *table) holds(slot uint32, id int64) bool { return slot < t.used && t.at(slot).id == id }

// mut returns the producer in slot for writing.
func (t *table) mut(slot uint32) *producer {
	if t.shared[slot>>chunkBits] {
		t.unshare(slot >> chunkBits)
	}
	return &t.chunks[slot>>chunkBits][slot&chunkMask]
}

func (t *table) unshare(chunk uint32) {
	c := make([]producer, len(t.chunks[chunk]), cap(t.chunks[chunk]))
	copy(c, t.chunks[chunk])
	t.chunks[chunk] = c
	t.shared[chunk] = false
}

// find returns the slot of a producer.
func (t *table) find(id int64) (uint32, bool) {
	if id == t.lastID && id >= 0 {
		return t.lastSlot, true
	}
	slot, ok := t.index.find(id, t)
	if ok {
		t.lastID, t.lastSlot = id, slot
	}
	return slot, ok
}

// add stores a producer that is not there and returns its slot.
func (t *table) add(p producer) uint32 {
	slot := t.newSlot()
	*t.mut(slot) = p
	t.index.insert(p.id, slot)
	t.live++
	return slot
}

func (t *table) newSlot() uint32 {
	if t.free != 0 {
		slot := t.free - 1
		t.free = uint32(^t.at(slot).id)
		return slot
	}
	slot := t.used
	chunk := slot >> chunkBits
	if int(chunk) == len(t.chunks) {
		size := chunkSize
		if chunk == 0 {
			size = firstChunk
		}
		t.chunks = append(t.chunks, make([]producer, 0, size))
		t.shared = append(t.shared, false)
	}
	if t.shared[chunk] {
		t.unshare(chunk)
	}
	c := t.chunks[chunk]
	if len(c) == cap(c) { // only the first chunk starts small
		bigger := make([]producer, len(c), min(2*cap(c), chunkSize))
		copy(bigger, c)
		c = bigger
	}
	t.chunks[chunk] = c[:len(c)+1]
	t.used++
	return slot
}

// remove deletes the producer in slot.
func (t *table) remove(slot uint32) {
	p := t.mut(slot)
	t.index.remove(p.id, t)
	if p.id == t.lastID {
		t.lastID = -1
	}
	*p = producer{id: ^int64(t.free)}
	t.free = slot + 1
	t.live--
}

// reserve prepares an empty table for n producers.
func (t *table) reserve(n int) { t.index.reserve(n) }

// shrink moves the producers that are left into a table of their size, if few of many are left.
func (t *table) shrink() {
	if t.used < 4*chunkSize || t.live*8 > int(t.used) {
		return
	}
	small := newTable()
	small.reserve(t.live)
	for p := range all(t.chunks) {
		small.add(*p)
	}
	*t = *small
}

// freeze returns the chunks as they are now. They are not changed from here on.
func (t *table) freeze() [][]producer {
	chunks := make([][]producer, len(t.chunks))
	copy(chunks, t.chunks)
	for i := range t.shared {
		t.shared[i] = true
	}
	return chunks
}

// all yields the producers of some chunks in slot order.
func all(chunks [][]producer) func(yield func(*producer) bool) {
	return func(yield func(*producer) bool) {
		for _, c := range chunks {
			for i := range c {
				if c[i].id >= 0 && !yield(&c[i]) {
					return
				}
			}
		}
	}
}

// bytes returns the memory held.
func (t *table) bytes() int64 {
	n := t.index.bytes()
	for _, c := range t.chunks {
		n += int64(cap(c)) * int64(unsafe.Sizeof(producer{}))
	}
	return n
}
