package wal

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/oncelog/oncelog/segment"
)

// Any bit of a batch's header that flips costs the batch and none of its neighbours, wherever its length then leads and
// whichever format its magic then claims. The leader epoch may be anything.
func TestDamage_AnyBitOfTheHeader(t *testing.T) {
	for _, interval := range []int32{1, 4096} {
		for _, batch := range []int{0, 3, 7, 19} {
			t.Run(fmt.Sprint(interval, "/", batch), func(t *testing.T) {
				t.Parallel()
				l, _ := exactLog(t, filepath.Join(t.TempDir(), "t-0"), interval)
				base := int64(batch/exactRolls) * exactRolls * exactPer
				size := int64(len(exactBatch(t, 0)))
				flip := func(bit int) {
					damage(t, l, base, int64(batch%exactRolls)*size, func(p []byte) { p[bit/8] ^= 1 << (bit % 8) })
				}
				for bit := 8 * 8; bit < 8*61; bit++ {
					if bit/8 >= 12 && bit/8 < 16 || bit/8 > 26 && bit%8 > 0 {
						continue
					}
					flip(bit)
					checkExact(t, l, batch)
					if t.Failed() {
						t.Fatalf("bit %d of byte %d", bit%8, bit/8)
					}
					flip(bit)
				}
				checkExact(t, l)
			})
		}
	}
}

// The same of a log whose offsets may jump, where nothing but checksums tells what is wrong.
func TestDamage_LengthMagicAndChecksumWithGaps(t *testing.T) {
	for _, interval := range []int32{1, 4096} {
		l, _ := exactLog(t, filepath.Join(t.TempDir(), "t-0"), interval)
		l.mu.Lock()
		l.gaps = true
		l.publish()
		l.mu.Unlock()
		if !l.visible.load().gaps {
			t.Fatal("the log is not known to have gaps")
		}
		for _, batch := range []int{0, 3, 7} {
			flip := func(bit int) {
				damage(t, l, 0, int64(batch*len(exactBatch(t, 0))), func(p []byte) { p[bit/8] ^= 1 << (bit % 8) })
			}
			for bit := 8 * 8; bit < 8*21; bit++ {
				if bit/8 >= 12 && bit/8 < 16 {
					continue
				}
				flip(bit)
				checkExact(t, l, batch)
				if t.Failed() {
					t.Fatalf("batch %d, bit %d of byte %d", batch, bit%8, bit/8)
				}
				flip(bit)
			}
		}
	}
}

// A length that leads to a later batch does not hide those in between.
func TestDamage_LengthOverBatches(t *testing.T) {
	for _, interval := range []int32{1, 4096} {
		l, _ := exactLog(t, filepath.Join(t.TempDir(), "t-0"), interval)
		size := len(exactBatch(t, 0))
		for _, batch := range []int{0, 2, 5} {
			for n := 2; batch+n <= exactRolls; n++ {
				set := func(n int) {
					damage(t, l, 0, int64(batch*size), func(p []byte) { binary.BigEndian.PutUint32(p[8:], uint32(n*size-12)) })
				}
				set(n)
				checkExact(t, l, batch)
				if t.Failed() {
					t.Fatalf("batch %d has the length of %d", batch, n)
				}
				set(1)
			}
		}
	}
}

// What is missing as a whole, or is there once more, costs nothing else: batches inside a segment, all of a segment, the
// first segments, and the last one.
func TestDamage_MissingBatches(t *testing.T) {
	size := len(exactBatch(t, 0))
	without := func(first, n int) func(p []byte) []byte {
		return func(p []byte) []byte { return slices.Delete(p, first*size, (first+n)*size) }
	}
	again := func(first, n, at int) func(p []byte) []byte {
		return func(p []byte) []byte { return slices.Insert(p, at*size, slices.Clone(p[first*size:(first+n)*size])...) }
	}
	batches := func(from, to int) (list []int) {
		for i := from; i < to; i++ {
			list = append(list, i)
		}
		return list
	}
	cases := map[string]struct {
		segment int
		change  func(p []byte) []byte // nil removes the file
		missing []int
	}{
		"first":              {0, without(0, 1), batches(0, 1)},
		"inside":             {0, without(3, 1), batches(3, 4)},
		"two inside":         {1, without(2, 2), batches(10, 12)},
		"last":               {0, without(7, 1), batches(7, 8)},
		"last but one":       {0, without(6, 1), batches(6, 7)},
		"all but the last":   {0, without(0, 7), batches(0, 7)},
		"all but the first":  {1, without(1, 7), batches(9, 16)},
		"two places":         {0, func(p []byte) []byte { return without(2, 1)(without(5, 1)(p)) }, []int{2, 5}},
		"twice":              {0, again(3, 1, 4), nil},
		"two of them twice":  {0, again(3, 2, 5), nil},
		"later ones again":   {1, again(1, 3, 6), nil},
		"the last one again": {0, again(7, 1, 8), nil},
		"emptied":            {0, func([]byte) []byte { return nil }, batches(0, 8)},
		"emptied inside":     {1, func([]byte) []byte { return nil }, batches(8, 16)},
		"emptied last":       {2, func([]byte) []byte { return nil }, batches(16, 20)},
		"first removed":      {0, nil, batches(0, 8)},
	}
	for name, c := range cases {
		for _, interval := range []int32{1, 4096} {
			for _, closed := range []bool{true, false} {
				t.Run(fmt.Sprint(name, "/", interval, "/", closed), func(t *testing.T) {
					t.Parallel()
					dir := filepath.Join(t.TempDir(), "t-0")
					l, o := exactLog(t, dir, interval)
					endExact(t, l, closed)
					path := filepath.Join(dir, segment.FileName(segment.KindLog, int64(c.segment)*exactRolls*exactPer))
					if c.change == nil {
						if err := os.Remove(path); err != nil {
							t.Fatal(err)
						}
					} else {
						changeFile(t, path, c.change)
					}
					o.ReadOnly = true
					r := openTest(t, dir, o)
					if o := r.Offsets(); o.LogStart != 0 || o.LogEnd != exactBatches*exactPer {
						t.Errorf("the log goes from %d to %d", o.LogStart, o.LogEnd)
					}
					checkExact(t, r, c.missing...)
					if mustCheck(t, dir).Healthy {
						t.Error("a check says healthy")
					}
				})
			}
		}
	}
}
