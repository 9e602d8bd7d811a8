package producerstate

import (
	"hash/maphash"
	"math/bits"
)

// hashIndex maps producer ids to slots of the slab, by open addressing with linear probing. An item is the upper half of
// the id's hash and the slot plus one; 0 is an empty place, so any id may be stored. The id itself is read from the slab,
// which costs nothing extra for an id that is there, and almost never happens for one that is not.
//
// When the index grows, the items move from the old array to the new one a few at a time with each insertion: moving a
// million at once would hold the log's lock for tens of milliseconds.
type hashIndex struct {
	items []uint64 // length is a power of two, or 0
	live  int      // items in use, those waiting in old included
	shift uint     // a hash's home is hash >> shift
	seed  uint64   // keeps a client from choosing ids that collide

	old      []uint64 // array being replaced, or nil
	oldShift uint
	oldNext  int // old items below it have been copied
}

const (
	minIndexSize = 16
	moveStep     = 16 // old places looked at per insertion; at least 4/3 are needed to end before the next growth

	// tombstone marks a deleted item of the old array, where items cannot be shifted without confusing the move.
	tombstone = 0xFFFFFFFF
)

func newHashIndex() hashIndex {
	return hashIndex{seed: maphash.Comparable(maphash.MakeSeed(), uint64(0))}
}

// hash mixes the id by a multiplication whose two halves are folded, and keeps 32 bits: enough to find a home in 2^32
// places and to tell ids apart before the slab is read.
func (x *hashIndex) hash(id int64) uint32 {
	hi, lo := bits.Mul64(uint64(id)^x.seed, 0x9E3779B97F4A7C15)
	return uint32((hi ^ lo) >> 32)
}

func item(hash uint32, slot uint32) uint64 { return uint64(hash)<<32 | uint64(slot+1) }

// find returns the slot whose id is id.
func (x *hashIndex) find(id int64, t *table) (uint32, bool) {
	h := x.hash(id)
	if slot, _, ok := probe(x.items, x.shift, h, id, t); ok {
		return slot, true
	}
	if x.old != nil {
		slot, _, ok := probe(x.old, x.oldShift, h, id, t)
		return slot, ok
	}
	return 0, false
}

// probe looks for id from its home on and ends at an empty place, which a load of at most 3/4 guarantees to exist.
func probe(items []uint64, shift uint, h uint32, id int64, t *table) (slot uint32, place int, found bool) {
	if len(items) == 0 {
		return 0, 0, false
	}
	mask := len(items) - 1
	for i := int(h >> shift); ; i = (i + 1) & mask {
		v := items[i]
		if v == 0 {
			return 0, 0, false
		}
		if uint32(v>>32) == h && uint32(v) != tombstone {
			if slot := uint32(v) - 1; t.at(slot).id == id {
				return slot, i, true
			}
		}
	}
}

// insert adds an id that is not there.
func (x *hashIndex) insert(id int64, slot uint32) {
	if (x.live+1)*4 > len(x.items)*3 {
		x.grow()
	}
	x.move(moveStep)
	x.put(item(x.hash(id), slot))
	x.live++
}

func (x *hashIndex) put(v uint64) {
	mask := len(x.items) - 1
	i := int(uint32(v>>32) >> x.shift)
	for x.items[i] != 0 {
		i = (i + 1) & mask
	}
	x.items[i] = v
}

// remove deletes id, which must be there.
func (x *hashIndex) remove(id int64, t *table) {
	h := x.hash(id)
	if x.old != nil {
		if _, i, ok := probe(x.old, x.oldShift, h, id, t); ok {
			x.old[i] |= tombstone
		}
	}
	if _, i, ok := probe(x.items, x.shift, h, id, t); ok {
		x.closeGap(i)
	}
	x.live--
}

// closeGap empties place i and shifts back the items behind it that would no longer be found past an empty place.
func (x *hashIndex) closeGap(i int) {
	mask := len(x.items) - 1
	for j := (i + 1) & mask; x.items[j] != 0; j = (j + 1) & mask {
		home := int(uint32(x.items[j]>>32) >> x.shift)
		if (j-home)&mask >= (j-i)&mask {
			x.items[i] = x.items[j]
			i = j
		}
	}
	x.items[i] = 0
}

// grow doubles the array. The items stay behind until move takes them over.
func (x *hashIndex) grow() {
	x.move(len(x.old))
	size := max(minIndexSize, 2*len(x.items))
	x.old, x.oldShift, x.oldNext = x.items, x.shift, 0
	x.reset(size)
	if len(x.old) == 0 {
		x.old = nil
	}
}

func (x *hashIndex) reset(size int) {
	x.items = make([]uint64, size)
	x.shift = uint(32 - bits.Len(uint(size-1)))
}

// move takes over the items of up to n old places.
func (x *hashIndex) move(n int) {
	if x.old == nil {
		return
	}
	end := min(x.oldNext+n, len(x.old))
	for ; x.oldNext < end; x.oldNext++ {
		if v := x.old[x.oldNext]; v != 0 && uint32(v) != tombstone {
			x.put(v)
		}
	}
	if x.oldNext == len(x.old) {
		x.old = nil
	}
}

// reserve makes an empty index large enough for n items, so that loading a snapshot never grows it.
func (x *hashIndex) reserve(n int) {
	size := minIndexSize
	for size*3 < n*4 {
		size *= 2
	}
	x.old = nil
	x.live = 0
	x.reset(size)
}

// bytes returns the memory held.
func (x *hashIndex) bytes() int64 { return 8 * int64(len(x.items)+len(x.old)) }
