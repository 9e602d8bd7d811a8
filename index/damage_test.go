package index

import (
	"bytes"
	"errors"
	"math"
	"os"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
)

// check requires a *CorruptError about the entry, or no error.
func check(t *testing.T, err error, corrupt bool, entry int) {
	t.Helper()
	var c *CorruptError
	switch {
	case !corrupt:
		ok(t, err)
	case !errors.As(err, &c):
		t.Fatalf("got %v, want a corrupt entry %d", err, entry)
	case c.Entry != entry:
		t.Fatalf("got %v, want entry %d", err, entry)
	}
}

func TestOffset_SanityCheck(t *testing.T) {
	for name, c := range map[string]struct {
		bytes  string
		kafka  bool // Kafka's own check finds it
		entry  int
		strict bool // the complete check finds it
	}{
		"last offset at the base":    {"00000000 00000000", false, 0, false},
		"last offset below the base": {"00000001 00000000 | ffffffff 00000008", true, 1, true},
		"partial entry":              {"00000001 00000000 | 00", true, -1, true},
		"offsets equal":              {"00000001 00000000 | 00000001 00000008", false, 1, true},
		"offset goes back":           {"00000005 00000000 | 00000004 00000008", false, 1, true},
		"position goes back":         {"00000005 00000010 | 00000006 00000008", false, 1, true},
		"positions equal":            {"00000005 00000010 | 00000006 00000010", false, 1, true},
		"negative position":          {"00000005 80000000", false, 0, true},
		"position outside":           {"00000005 00000001 | 00000006 00000400", false, 1, true},
		"sound":                      {"00000005 00000001 | 00000006 000003ff", false, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
				put(t, fsys, path, unhex(t, c.bytes))
				x := openOffset(t, fsys, path, 100, Config{ReadOnly: true})
				check(t, x.SanityCheck(), c.kafka, c.entry)
				check(t, x.CheckEntries(1024), c.strict, c.entry)
			})
		})
	}
}

// How many entries a file has: those up to the last slot that is not zero, or every slot.
func TestCount(t *testing.T) {
	zeros := func(n int) []byte { return make([]byte, n) }
	offsets, times := unhex(t, goldenOffsets), unhex(t, goldenTimes)
	first := append(zeros(8), 0, 0, 0, 1, 0, 0, 0, 61)
	for name, c := range map[string]struct {
		bytes         []byte
		size          int
		entries, tail int
	}{
		"one entry of zeros":        {zeros(8), 8, 1, 0},
		"two slots of zeros":        {zeros(16), 8, 0, 2},
		"10 MiB of zeros":           {zeros(10 << 20), 8, 0, 10 << 17},
		"entries":                   {offsets, 8, 2, 0},
		"entries and one zero slot": {append(bytes.Clone(offsets), zeros(8)...), 8, 2, 1},
		"entries and 2000":          {append(bytes.Clone(offsets), zeros(16000)...), 8, 2, 2000},
		"zeros first, then one":     {first, 8, 2, 0},
		"the same with a tail":      {append(bytes.Clone(first), zeros(80)...), 8, 2, 10},
		"a slot and a partial one":  {zeros(15), 8, 1, 0},
		"partial slot":              {zeros(7), 8, 0, 0},
		"time: one entry of zeros":  {zeros(12), 12, 1, 0},
		"time: zeros":               {zeros(24), 12, 0, 2},
		"time: all of 10 MiB":       {zeros(10485756), 12, 0, 873_813},
		"time: entries and 12":      {append(bytes.Clone(times), zeros(12)...), 12, 2, 1},
		"time: entries and 1200":    {append(bytes.Clone(times), zeros(1200)...), 12, 2, 100},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
				put(t, fsys, path, c.bytes)
				for _, kafka := range []bool{false, true} {
					var x *mapped
					if c.size == 8 {
						x = &openOffset(t, fsys, path, 100, Config{ReadOnly: true, KafkaOpen: kafka}).mapped
					} else {
						x = &openTime(t, fsys, path, 100, Config{ReadOnly: true, KafkaOpen: kafka}).mapped
					}
					entries, tail := c.entries, c.tail
					if kafka {
						entries, tail = c.entries+c.tail, 0
					}
					if x.Entries() != entries || x.ZeroTail() != tail {
						t.Errorf("kafka %v: %d entries, tail %d, want %d and %d", kafka, x.Entries(), x.ZeroTail(), entries, tail)
					}
				}
			})
		})
	}
}

// A zero tail, or a partial entry, makes room for the next entry and never becomes one.
func TestOffset_AppendAfterTail(t *testing.T) {
	for name, tail := range map[string][]byte{"zeros": make([]byte, 9000), "partial": {0, 0, 0, 99, 1}} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
				put(t, fsys, path, append(unhex(t, goldenOffsets), tail...))
				h := &hooked{FS: fsys}
				x := openOffset(t, h, path, 100, Config{})
				var sizes []int64
				h.fail(func(op string, n int64) error {
					if op == "truncate" || op == "allocate" {
						sizes = append(sizes, n)
					}
					return nil
				})
				ok(t, x.Append(160, 9000))
				if len(sizes) != 2 || sizes[0] != 16 || sizes[1] != 16+4096 {
					t.Errorf("cut and reserved %v", sizes)
				}
				ok(t, x.Trim())
				want := append(unhex(t, goldenOffsets), 0, 0, 0, 60, 0, 0, 35, 40)
				if got := get(t, fsys, path); !bytes.Equal(got, want) {
					t.Errorf("file is % x", got)
				}
			})
		})
	}
	t.Run("Kafka is full", func(t *testing.T) {
		onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
			put(t, fsys, path, append(unhex(t, goldenOffsets), make([]byte, 8*8)...))
			x := openOffset(t, fsys, path, 100, Config{KafkaOpen: true, MaxBytes: 80})
			if x.Entries() != 10 || !x.IsFull() || x.LastEntry() != (OffsetPosition{100, 0}) {
				t.Errorf("%d entries, full %v, last %v", x.Entries(), x.IsFull(), x.LastEntry())
			}
			wantIs(t, x.Append(160, 9000), ErrFull)
			ok(t, x.SanityCheck())
			ok(t, x.Resize(96))
			ok(t, x.Append(160, 9000))
			if e, err := x.Entry(10); err != nil || e != (OffsetPosition{160, 9000}) {
				t.Errorf("appended %v, %v", e, err)
			}
		})
	})
}

func TestSetEntries(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		content := append(unhex(t, goldenOffsets), make([]byte, 16)...)
		put(t, fsys, path, content)
		x := openOffset(t, fsys, path, 100, Config{ReadOnly: true})
		if got, err := x.Lookup(200); err != nil || got.Offset != 150 {
			t.Fatalf("Lookup = %v, %v", got, err)
		}
		ok(t, x.SetEntries(1))
		if got, err := x.Lookup(200); err != nil || got.Offset != 102 || x.LastOffset() != 102 {
			t.Fatalf("Lookup = %v, %v", got, err)
		}
		ok(t, x.SetEntries(4))
		if e, err := x.Entry(3); err != nil || e != (OffsetPosition{100, 0}) || x.LastOffset() != 100 {
			t.Fatalf("Entry(3) = %v, %v", e, err)
		}
		ok(t, x.SetEntries(0))
		if got, err := x.Lookup(200); err != nil || got != (OffsetPosition{100, 0}) {
			t.Fatalf("Lookup = %v, %v", got, err)
		}
		wantIs(t, x.SetEntries(5), ErrInvalidEntries)
		wantIs(t, x.SetEntries(-1), ErrInvalidEntries)
		wantIs(t, x.SetEntries(math.MaxInt), ErrInvalidEntries)
		if !bytes.Equal(get(t, fsys, path), content) {
			t.Error("a read-only index changed its file")
		}

		y := openOffset(t, fsys, path, 100, Config{})
		ok(t, y.SetEntries(1))
		if got := get(t, fsys, path); !bytes.Equal(got, content[:8]) {
			t.Errorf("file is % x", got)
		}
		wantIs(t, y.SetEntries(2), ErrInvalidEntries)
		ok(t, y.Append(103, 61))
		ok(t, y.CheckEntries(62))
	})
}

// exercise looks everything up in whatever the file holds and requires what the package comment promises.
func exercise(t *testing.T, fsys vfs.FS, path string, c Config) {
	t.Helper()
	const base = 100
	o := openOffset(t, fsys, path, base, c)
	for target := int64(base - 2); target < base+60; target++ {
		e, err := o.Lookup(target)
		if err != nil {
			wantIs(t, err, ErrCorrupt)
		} else if e.Offset < base || e.Offset > max(target, base) || e.Position < 0 {
			t.Fatalf("Lookup(%d) = %v", target, e)
		}
		if e, found, err := o.UpperBound(OffsetPosition{}, int32(target)); err != nil {
			wantIs(t, err, ErrCorrupt)
		} else if found && (e.Position < int32(target) || e.Offset < base) {
			t.Fatalf("UpperBound(%d) = %v", target, e)
		}
	}
	n := 0
	for _, err := range o.All() {
		ok(t, err)
		n++
	}
	if n != o.Entries() {
		t.Fatalf("%d entries, counted %d", n, o.Entries())
	}
	for _, err := range []error{o.SanityCheck(), o.CheckEntries(5000)} {
		if err != nil {
			wantIs(t, err, ErrCorrupt)
		}
	}

	x := openTime(t, fsys, path, base, c)
	for _, target := range []int64{math.MinInt64, -1, 0, 1, 1700000000014, 1700000000015, 1700000009998, 1700000009999, math.MaxInt64} {
		e, err := x.Lookup(target)
		if err != nil {
			wantIs(t, err, ErrCorrupt)
		} else if e.Offset < base || e.Timestamp > target && e.Timestamp != NoTimestamp || e.Timestamp < NoTimestamp {
			t.Fatalf("Lookup(%d) = %v", target, e)
		}
	}
	for _, err := range []error{x.SanityCheck(), x.CheckEntries(200)} {
		if err != nil {
			wantIs(t, err, ErrCorrupt)
		}
	}
	if !c.ReadOnly {
		if err := o.Append(base+1000, 5000); err != nil && !errors.Is(err, ErrInvalidOffset) && !errors.Is(err, ErrFull) {
			t.Fatal(err)
		}
		ok(t, o.TruncateTo(base+20))
		ok(t, x.Reset())
		ok(t, o.Close())
		ok(t, x.Close())
	}
}

func TestDamage_CutAtEveryLength(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		for _, golden := range []string{goldenOffsets, goldenTimes} {
			p := unhex(t, golden)
			for n := range len(p) + 1 {
				for _, c := range []Config{{ReadOnly: true}, {ReadOnly: true, KafkaOpen: true}, {}, {KafkaOpen: true}} {
					put(t, fsys, path, p[:n])
					exercise(t, fsys, path, c)
				}
			}
		}
	})
}

func TestDamage_FlipEveryBit(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		for _, golden := range []string{goldenOffsets, goldenTimes} {
			for bit := range 8 * len(unhex(t, golden)) {
				p := unhex(t, golden)
				p[bit/8] ^= 1 << (bit % 8)
				put(t, fsys, path, p)
				exercise(t, fsys, path, Config{ReadOnly: true})
			}
		}
	})
}

func TestDamage_Filled(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		for _, fill := range []byte{0, 1, 0x7f, 0x80, 0xff} {
			for _, n := range []int{8, 9, 12, 24, 4096, 9000} {
				for _, c := range []Config{{ReadOnly: true}, {KafkaOpen: true}, {}} {
					put(t, fsys, path, bytes.Repeat([]byte{fill}, n))
					exercise(t, fsys, path, c)
				}
			}
		}
	})
}

func TestOpen_NotAFile(t *testing.T) {
	path := osPath(t)
	ok(t, os.Mkdir(path, 0o755))
	for _, c := range []Config{{}, {ReadOnly: true}} {
		_, err := OpenOffset(vfs.OS, path, 0, c)
		wantIs(t, err, vfs.ErrNotRegular)
		_, err = OpenTime(vfs.OS, path, 0, c)
		wantIs(t, err, vfs.ErrNotRegular)
		_, err = OpenTxn(vfs.OS, path, 0, c)
		wantIs(t, err, vfs.ErrNotRegular)
	}
}

func TestOpen_TooLong(t *testing.T) {
	path := osPath(t)
	f, err := os.Create(path)
	ok(t, err)
	defer f.Close()
	ok(t, f.Truncate(math.MaxInt32+1))
	_, err = OpenOffset(vfs.OS, path, 0, Config{ReadOnly: true})
	check(t, err, true, -1)
	// One byte less is an index. It is not read into memory.
	ok(t, f.Truncate(math.MaxInt32))
	x := openOffset(t, vfs.OS, path, 0, Config{ReadOnly: true, KafkaOpen: true})
	if x.Entries() != math.MaxInt32/8 {
		t.Errorf("%d entries", x.Entries())
	}
	ok(t, x.Close())
	ok(t, f.Truncate(64<<20))
	y := openOffset(t, vfs.OS, path, 0, Config{ReadOnly: true})
	if y.Entries() != 0 || y.ZeroTail() != 8<<20 {
		t.Errorf("%d entries, tail %d", y.Entries(), y.ZeroTail())
	}
}
