package index

import "encoding/binary"

// layout describes one kind of entry: its size and the two numbers in it. Format, see the package comment.
type layout struct {
	size  int
	key   column // what a lookup searches, strictly increasing
	value column // what a lookup finds, not decreasing
}

// column is one number of an entry. A number of four bytes is read without its sign: no valid entry has one, and a
// damaged entry then sorts above every target instead of below it, so that a search does not return it.
type column struct {
	at   int
	wide bool // eight bytes, signed
}

var (
	offsetLayout = layout{size: 8, key: column{at: 0}, value: column{at: 4}}
	timeLayout   = layout{size: 12, key: column{at: 0, wide: true}, value: column{at: 8}}
)

// load returns the column of the entry that begins at p[i].
func (c column) load(p []byte, i int) int64 {
	if c.wide {
		return int64(binary.BigEndian.Uint64(p[i+c.at:]))
	}
	return int64(binary.BigEndian.Uint32(p[i+c.at:]))
}

// floor returns the greatest i in [0, n) whose column c is not above target, or -1. The entries are those of p, size
// bytes each, ascending by c.
//
// One guess by interpolation, then steps that double until the target is enclosed, then bisection of what is left. The
// entries of a log are nearly linear, so the guess lands within a few entries of its aim and stays on one or two cache
// lines, where plain bisection of a large index misses the cache a dozen times. Where it is far off, the cost is that
// of two bisections. Entries that do not ascend give some i whose column is not above the target, or -1: both ends of
// the interval are only ever moved to entries that were compared.
func floor(p []byte, size int, c column, n int, target int64) int {
	if n == 0 {
		return -1
	}
	first, last := c.load(p, 0), c.load(p, (n-1)*size)
	if target < first {
		return -1
	}
	if target >= last {
		return n - 1
	}
	// From here on first <= target < last, and column(lo) <= target < column(hi) holds throughout.
	lo, hi := 0, n-1
	// The differences are taken as unsigned numbers because those of two timestamps may exceed int64.
	guess := int(float64(uint64(target)-uint64(first)) / float64(uint64(last)-uint64(first)) * float64(n-1))
	if guess > lo && guess < hi {
		if c.load(p, guess*size) <= target {
			lo = guess
			for step := 1; lo+step < hi; step *= 2 {
				if c.load(p, (lo+step)*size) > target {
					hi = lo + step
					break
				}
				lo += step
			}
		} else {
			hi = guess
			for step := 1; hi-step > lo; step *= 2 {
				if c.load(p, (hi-step)*size) <= target {
					lo = hi - step
					break
				}
				hi -= step
			}
		}
	}
	for hi-lo > 1 {
		mid := int(uint(lo+hi) / 2)
		if c.load(p, mid*size) <= target {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}
