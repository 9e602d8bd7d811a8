package index

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
)

// The entries of the worked example: base offset 100, (102 at 0) and (150 at 4200).
const goldenOffsets = "00 00 00 02 00 00 00 00 | 00 00 00 32 00 00 10 68"

func TestOffset_Golden(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		x := openOffset(t, fsys, path, 100, Config{})
		if !x.Created() {
			t.Error("a missing file was not created")
		}
		ok(t, x.Append(102, 0))
		ok(t, x.Append(150, 4200))
		ok(t, x.Trim())
		ok(t, x.Flush())
		if got, want := get(t, fsys, path), unhex(t, goldenOffsets); string(got) != string(want) {
			t.Fatalf("file is % x, want % x", got, want)
		}
		for _, y := range []*Offset{x, openOffset(t, fsys, path, 100, Config{ReadOnly: true})} {
			for _, c := range []struct {
				target int64
				want   OffsetPosition
			}{
				{math.MinInt64, OffsetPosition{100, 0}},
				{99, OffsetPosition{100, 0}},
				{101, OffsetPosition{100, 0}},
				{102, OffsetPosition{102, 0}},
				{149, OffsetPosition{102, 0}},
				{150, OffsetPosition{150, 4200}},
				{math.MaxInt64, OffsetPosition{150, 4200}},
			} {
				if got, err := y.Lookup(c.target); err != nil || got != c.want {
					t.Errorf("Lookup(%d) = %v, %v, want %v", c.target, got, err, c.want)
				}
			}
			if y.Entries() != 2 || y.LastOffset() != 150 || y.ZeroTail() != 0 || y.UsedBytes() != 16 {
				t.Errorf("%d entries, last %d, tail %d", y.Entries(), y.LastOffset(), y.ZeroTail())
			}
			if e, err := y.Entry(1); err != nil || e != (OffsetPosition{150, 4200}) {
				t.Errorf("Entry(1) = %v, %v", e, err)
			}
			for _, i := range []int{-1, 2, math.MaxInt} {
				_, err := y.Entry(i)
				wantIs(t, err, ErrInvalidEntries)
			}
			ok(t, y.SanityCheck())
			ok(t, y.CheckEntries(4201))
			wantIs(t, y.CheckEntries(4200), ErrCorrupt)
		}
	})
}

func TestOffset_Empty(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		missing := openOffset(t, fsys, path+".missing", 45, Config{ReadOnly: true})
		put(t, fsys, path, nil)
		for _, x := range []*Offset{
			missing,
			openOffset(t, fsys, path, 45, Config{ReadOnly: true}),
			openOffset(t, fsys, path, 45, Config{}),
			openOffset(t, fsys, path, 45, Config{KafkaOpen: true}),
		} {
			for _, target := range []int64{0, 45, 46, math.MaxInt64} {
				if got, err := x.Lookup(target); err != nil || got != (OffsetPosition{45, 0}) {
					t.Errorf("Lookup(%d) = %v, %v", target, got, err)
				}
			}
			if _, found, err := x.UpperBound(OffsetPosition{}, 5); found || err != nil {
				t.Errorf("UpperBound: %v, %v", found, err)
			}
			for e, err := range x.All() {
				t.Errorf("yielded %v, %v", e, err)
			}
			if x.LastEntry() != (OffsetPosition{45, 0}) || x.Entries() != 0 || x.IsFull() || x.Created() {
				t.Errorf("last entry %v, %d entries, created %v", x.LastEntry(), x.Entries(), x.Created())
			}
			ok(t, x.SanityCheck())
			ok(t, x.CheckEntries(0))
			ok(t, x.Flush())
		}
		if get(t, fsys, path+".missing") != nil {
			t.Error("reading created a file")
		}
		wantIs(t, missing.Append(45, 0), ErrReadOnly)
		wantIs(t, missing.Trim(), ErrReadOnly)
		wantIs(t, missing.Reset(), ErrReadOnly)
		wantIs(t, missing.Resize(8), ErrReadOnly)
		wantIs(t, missing.TruncateTo(0), ErrReadOnly)
	})
}

func TestOffset_RandomLookup(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		rng := rand.New(rand.NewPCG(7, 8))
		x := openOffset(t, fsys, path, 50, Config{})
		var want []OffsetPosition
		offset, position := int64(50), int32(0)
		for range 5000 {
			offset += 1 + rng.Int64N(50)
			position += 1 + rng.Int32N(5000)
			ok(t, x.Append(offset, position))
			want = append(want, OffsetPosition{offset, position})
		}
		for i, e := range want {
			for _, target := range []int64{e.Offset, e.Offset + 1} {
				if i+1 < len(want) && target == want[i+1].Offset {
					continue
				}
				if got, err := x.Lookup(target); err != nil || got != e {
					t.Fatalf("Lookup(%d) = %v, %v, want %v", target, got, err, e)
				}
			}
		}
		i := 0
		for e, err := range x.All() {
			ok(t, err)
			if e != want[i] {
				t.Fatalf("entry %d is %v, want %v", i, e, want[i])
			}
			i++
		}
		if i != len(want) {
			t.Fatalf("%d entries, want %d", i, len(want))
		}
		ok(t, x.CheckEntries(int64(position)+1))
	})
}

func TestOffset_AppendRefused(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		x := openOffset(t, fsys, path, 100, Config{MaxBytes: 31})
		ok(t, x.Append(151, 10))
		for _, c := range []struct {
			offset   int64
			position int32
			want     error
		}{
			{150, 20, ErrInvalidOffset},
			{151, 20, ErrInvalidOffset},
			{99, 20, ErrInvalidOffset},
			{100 + math.MaxInt32 + 1, 20, ErrOffsetOverflow},
			{math.MaxInt64, 20, ErrOffsetOverflow},
			{152, -1, ErrInvalidPosition},
		} {
			wantIs(t, x.Append(c.offset, c.position), c.want)
		}
		ok(t, x.Append(152, 20))
		ok(t, x.Append(100+math.MaxInt32, math.MaxInt32))
		if got, err := x.Lookup(math.MaxInt64); err != nil || got != (OffsetPosition{100 + math.MaxInt32, math.MaxInt32}) {
			t.Errorf("the greatest entry reads as %v, %v", got, err)
		}
		if !x.IsFull() || x.MaxEntries() != 3 {
			t.Errorf("full %v with %d entries of %d", x.IsFull(), x.Entries(), x.MaxEntries())
		}
		wantIs(t, x.Append(100+math.MaxInt32, 21), ErrFull)

		y := openOffset(t, fsys, path+"2", 100, Config{})
		wantIs(t, y.Append(99, 0), ErrOffsetOverflow)
		wantIs(t, y.Append(math.MinInt64, 0), ErrOffsetOverflow)
		for _, small := range []int32{7, 1, -1, math.MinInt32} {
			_, err := OpenOffset(fsys, path+"3", 0, Config{MaxBytes: small})
			wantIs(t, err, ErrInvalidSize)
		}
		if get(t, fsys, path+"3") != nil {
			t.Error("a refused open created a file")
		}
	})
}

func TestOffset_UpperBound(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		x := openOffset(t, fsys, path, 0, Config{})
		e := []OffsetPosition{{0, 0}, {1, 10}, {2, 23}, {3, 37}}
		for _, e := range e {
			ok(t, x.Append(e.Offset, e.Position))
		}
		for _, c := range []struct {
			from OffsetPosition
			size int32
			want int
		}{
			{e[0], 5, 1}, {e[0], 10, 1}, {e[0], 22, 2}, {e[0], 23, 2}, {e[1], 22, 3}, {e[1], 27, 3}, {e[1], 28, 4},
			{e[0], 0, 0}, {e[0], math.MaxInt32, 4}, {OffsetPosition{9, math.MaxInt32}, math.MaxInt32, 4},
		} {
			got, found, err := x.UpperBound(c.from, c.size)
			ok(t, err)
			if found != (c.want < len(e)) || found && got != e[c.want] {
				t.Errorf("UpperBound(%v, %d) = %v, %v, want entry %d", c.from, c.size, got, found, c.want)
			}
		}
	})
}

func TestOffset_Truncate(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		x := openOffset(t, fsys, path, 0, Config{MaxBytes: 10 * 8})
		fill := func(from int64) {
			for i := from; i < 10; i++ {
				ok(t, x.Append(i, int32(i)))
			}
		}
		for _, c := range []struct{ to, left int64 }{{12, 9}, {10, 9}, {9, 8}, {5, 4}, {1, 0}, {0, 0}, {-5, 0}, {math.MaxInt64, 9}} {
			ok(t, x.Reset())
			fill(1)
			ok(t, x.TruncateTo(c.to))
			if x.Entries() != int(c.left) || x.LastOffset() != c.left {
				t.Errorf("to %d: %d entries, last %d, want %d", c.to, x.Entries(), x.LastOffset(), c.left)
			}
			if got := len(get(t, fsys, path)); c.left < 9 && got != int(c.left)*8 {
				t.Errorf("to %d: %d bytes stay in the file", c.to, got)
			}
			if got, err := x.Lookup(99); err != nil || got.Offset != c.left {
				t.Errorf("to %d: Lookup = %v, %v", c.to, got, err)
			}
			fill(c.left + 1)
			ok(t, x.CheckEntries(10))
			if x.Entries() != 9 {
				t.Errorf("%d entries after appending again", x.Entries())
			}
		}
	})
}

// Space grows in steps, holds whole entries only and is given back by Trim.
func TestOffset_Reservation(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		x := openOffset(t, fsys, path, 0, Config{MaxBytes: 3<<20 + 5})
		sizes := []int{0}
		for i := int64(1); ; i++ {
			err := x.Append(i, int32(i))
			if err != nil {
				wantIs(t, err, ErrFull)
				break
			}
			if i&(i-1) == 0 || i > 1<<17 && i%16384 == 1 {
				if n := len(get(t, fsys, path)); n != sizes[len(sizes)-1] {
					sizes = append(sizes, n)
				}
			}
		}
		const k, m = 1 << 10, 1 << 20
		want := fmt.Sprint([]int{0, 4 * k, 8 * k, 16 * k, 32 * k, 64 * k, 128 * k, 256 * k, 512 * k, m, 2 * m, 3 * m})
		if got := fmt.Sprint(sizes); got != want {
			t.Errorf("sizes %v, want %v", got, want)
		}
		if x.Entries() != 3*m/8 {
			t.Errorf("%d entries", x.Entries())
		}
		ok(t, x.TruncateTo(100))
		ok(t, x.Append(500, 500))
		if got := len(get(t, fsys, path)); got != 792+4096 {
			t.Errorf("%d bytes after an append to a cut index", got)
		}
		ok(t, x.Trim())
		if got := len(get(t, fsys, path)); got != 800 {
			t.Errorf("%d bytes after a trim", got)
		}
		ok(t, x.CheckEntries(501))
	})
}

func TestOffset_Reopen(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		x := openOffset(t, fsys, path, 50, Config{MaxBytes: 80})
		ok(t, x.Append(51, 1))
		ok(t, x.Append(52, 2))
		ok(t, x.Trim())
		ok(t, x.Close())
		ok(t, x.Close())

		y := openOffset(t, fsys, path, 50, Config{MaxBytes: 80})
		if y.Entries() != 2 || y.LastOffset() != 52 || y.MaxEntries() != 10 || y.Created() {
			t.Errorf("%d entries of %d, last %d", y.Entries(), y.MaxEntries(), y.LastOffset())
		}
		ok(t, y.Append(53, 3))
		ok(t, y.Close())

		// Not trimmed: the file keeps what it had reserved, and the limit follows the longer of the two.
		z := openOffset(t, fsys, path, 50, Config{MaxBytes: 16})
		if z.Entries() != 3 || z.MaxEntries() != 10 || z.ZeroTail() != 7 {
			t.Errorf("%d entries of %d, tail %d", z.Entries(), z.MaxEntries(), z.ZeroTail())
		}
		ok(t, z.Resize(20))
		if z.Entries() != 3 || z.MaxEntries() != 3 || !z.IsFull() {
			t.Errorf("%d entries of %d", z.Entries(), z.MaxEntries())
		}
		wantIs(t, z.Append(54, 4), ErrFull)
		wantIs(t, z.Resize(7), ErrInvalidSize)
		ok(t, z.Resize(800))
		ok(t, z.Append(54, 4))
		ok(t, z.CheckEntries(5))
	})
}

func TestOffset_Closed(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		x := openOffset(t, fsys, path, 50, Config{})
		ok(t, x.Append(51, 1))
		ok(t, x.Close())
		_, lookup := x.Lookup(51)
		_, below := x.Lookup(0)
		_, _, bound := x.UpperBound(OffsetPosition{}, 1)
		_, entry := x.Entry(0)
		var all error
		for _, all = range x.All() {
		}
		for _, err := range []error{
			lookup, below, bound, entry, all, x.Append(52, 2), x.TruncateTo(0), x.Reset(), x.SetEntries(0),
			x.Resize(80), x.Trim(), x.Flush(), x.Unmap(), x.SanityCheck(), x.CheckEntries(5),
		} {
			wantIs(t, err, ErrClosed)
		}
		if x.LastOffset() != 51 || x.Path() != path || x.BaseOffset() != 50 {
			t.Errorf("last offset %d, path %s", x.LastOffset(), x.Path())
		}
	})
}

func TestOffset_LookupDoesNotAllocate(t *testing.T) {
	x := openOffset(t, vfs.OS, osPath(t), 0, Config{})
	for i := int64(1); i < 5000; i++ {
		ok(t, x.Append(i*40, int32(i*4100)))
	}
	target := int64(0)
	if n := testing.AllocsPerRun(1000, func() {
		target += 37
		if _, err := x.Lookup(target); err != nil {
			t.Error(err)
		}
		if _, _, err := x.UpperBound(OffsetPosition{0, int32(target)}, 1<<20); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	next := x.LastOffset()
	if n := testing.AllocsPerRun(50, func() {
		next++
		if err := x.Append(next, math.MaxInt32); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations an append", n)
	}
}

func BenchmarkOffsetLookup(b *testing.B) {
	for _, n := range []int{4 << 10, 64 << 10, 1_310_720} {
		b.Run(fmt.Sprintf("entries=%d", n), func(b *testing.B) {
			x := openOffset(b, vfs.OS, osPath(b), 0, Config{})
			rng := rand.New(rand.NewPCG(9, 10))
			for i, offset := 0, int64(0); i < n; i++ {
				offset += 1 + rng.Int64N(80)
				ok(b, x.Append(offset, int32(i*1600)))
			}
			targets := make([]int64, 1<<12)
			for i := range targets {
				targets[i] = rng.Int64N(int64(n) * 40)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if _, err := x.Lookup(targets[i&(len(targets)-1)]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkOffsetAppend(b *testing.B) {
	x := openOffset(b, vfs.OS, osPath(b), 0, Config{MaxBytes: math.MaxInt32})
	b.ReportAllocs()
	for i := range b.N {
		if err := x.Append(int64(i)+1, int32(i)); err != nil {
			b.Fatal(err)
		}
	}
}
