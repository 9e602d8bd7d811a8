package index

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"testing"
)

// column32 lays keys out as the first column of offset index entries.
func column32(keys []uint32) []byte {
	p := make([]byte, 0, 8*len(keys))
	for _, k := range keys {
		p = binary.BigEndian.AppendUint32(p, k)
		p = binary.BigEndian.AppendUint32(p, ^k)
	}
	return p
}

// bisect is what floor is measured against and checked with.
func bisect(p []byte, size int, c column, n int, target int64) int {
	return sort.Search(n, func(i int) bool { return c.load(p, i*size) > target }) - 1
}

func TestFloor_Ascending(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	shapes := map[string]func(i int) uint32{
		"dense":     func(i int) uint32 { return uint32(i) },
		"linear":    func(i int) uint32 { return uint32(i)*40 + rng.Uint32N(40) },
		"quadratic": func(i int) uint32 { return uint32(i) * uint32(i) },
		"one far": func(i int) uint32 {
			return []uint32{uint32(i), math.MaxInt32}[btoi(i > 40)] - uint32(btoi(i > 40)*(100-i))
		},
		"exponential": func(i int) uint32 { return uint32(math.Pow(1.2, float64(i))) + uint32(i) },
	}
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			for n := range 100 {
				keys := make([]uint32, n)
				for i := range keys {
					keys[i] = shape(i)
				}
				p := column32(keys)
				targets := []int64{-1, 0, math.MaxInt32, math.MaxInt64, math.MinInt64}
				for _, k := range keys {
					targets = append(targets, int64(k)-1, int64(k), int64(k)+1)
				}
				for _, target := range targets {
					got, want := floor(p, 8, offsetLayout.key, n, target), bisect(p, 8, offsetLayout.key, n, target)
					if got != want {
						t.Fatalf("%d entries, target %d: entry %d, want %d", n, target, got, want)
					}
				}
			}
		})
	}
}

func TestFloor_WideKeysOverTheWholeRange(t *testing.T) {
	keys := []int64{math.MinInt64, math.MinInt64 + 1, -5, -1, 0, 1, 1 << 40, math.MaxInt64 - 1, math.MaxInt64}
	var p []byte
	for _, k := range keys {
		p = binary.BigEndian.AppendUint64(p, uint64(k))
		p = append(p, 1, 2, 3, 4)
	}
	for _, k := range keys {
		for _, target := range []int64{k - 1, k, k + 1} { // wraps around at both ends, which is as good a target
			got, want := floor(p, 12, timeLayout.key, len(keys), target), bisect(p, 12, timeLayout.key, len(keys), target)
			if got != want {
				t.Fatalf("target %d: entry %d, want %d", target, got, want)
			}
		}
	}
}

// Entries that do not ascend: the answer is inside, its key is not above the target, and the search ends.
func TestFloor_NotAscending(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		n := rng.IntN(40)
		keys := make([]uint32, n)
		for i := range keys {
			keys[i] = rng.Uint32() >> rng.UintN(32)
		}
		target := int64(rng.Uint32() >> rng.UintN(32))
		i := floor(column32(keys), 8, offsetLayout.key, n, target)
		if i < -1 || i >= n || i >= 0 && int64(keys[i]) > target {
			t.Fatalf("floor(%v, %d) = %d", keys, target, i)
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func BenchmarkFloor(b *testing.B) {
	for _, n := range []int{4 << 10, 64 << 10, 1_310_720} {
		rng := rand.New(rand.NewPCG(5, 6))
		keys := make([]uint32, n)
		for i := 1; i < n; i++ { // a random walk, as offsets are where the sizes of batches vary
			keys[i] = keys[i-1] + 1 + rng.Uint32N(80)
		}
		p := column32(keys)
		targets := make([]int64, 1<<12)
		for i := range targets {
			targets[i] = rng.Int64N(int64(n) * 40)
		}
		for name, search := range map[string]func([]byte, int, column, int, int64) int{"guess": floor, "bisect": plainBisect} {
			b.Run(fmt.Sprintf("search=%s/entries=%d", name, n), func(b *testing.B) {
				for i := range b.N {
					search(p, 8, offsetLayout.key, n, targets[i&(len(targets)-1)])
				}
			})
		}
	}
}

// plainBisect is bisect without the cost of a closure.
func plainBisect(p []byte, size int, c column, n int, target int64) int {
	lo, hi := -1, n
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
