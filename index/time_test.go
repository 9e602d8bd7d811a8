package index

import (
	"math"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
)

// The entries of the worked example: base offset 100, (1700000000015, 102) and (1700000009999, 150).
const goldenTimes = "00 00 01 8b cf e5 68 0f 00 00 00 02 | 00 00 01 8b cf e5 8f 0f 00 00 00 32"

func TestTime_Golden(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		x := openTime(t, fsys, path, 100, Config{})
		ok(t, x.MaybeAppend(1700000000015, 102, false))
		ok(t, x.MaybeAppend(1700000009999, 150, false))
		ok(t, x.Trim())
		ok(t, x.Flush())
		if got, want := get(t, fsys, path), unhex(t, goldenTimes); string(got) != string(want) {
			t.Fatalf("file is % x, want % x", got, want)
		}
		for _, y := range []*Time{x, openTime(t, fsys, path, 100, Config{ReadOnly: true})} {
			for _, c := range []struct {
				target int64
				want   TimestampOffset
			}{
				{math.MinInt64, TimestampOffset{-1, 100}},
				{1700000000014, TimestampOffset{-1, 100}},
				{1700000000015, TimestampOffset{1700000000015, 102}},
				{1700000009998, TimestampOffset{1700000000015, 102}},
				{1700000009999, TimestampOffset{1700000009999, 150}},
				{math.MaxInt64, TimestampOffset{1700000009999, 150}},
			} {
				if got, err := y.Lookup(c.target); err != nil || got != c.want {
					t.Errorf("Lookup(%d) = %v, %v, want %v", c.target, got, err, c.want)
				}
			}
			if y.Entries() != 2 || y.LastEntry() != (TimestampOffset{1700000009999, 150}) || y.UsedBytes() != 24 {
				t.Errorf("%d entries, last %v", y.Entries(), y.LastEntry())
			}
			ok(t, y.SanityCheck())
			ok(t, y.CheckEntries(151))
			wantIs(t, y.CheckEntries(150), ErrCorrupt)
		}
	})
}

func TestTime_Empty(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		for _, x := range []*Time{
			openTime(t, fsys, path+".missing", 45, Config{ReadOnly: true}),
			openTime(t, fsys, path, 45, Config{}),
		} {
			if got, err := x.Lookup(math.MaxInt64); err != nil || got != (TimestampOffset{NoTimestamp, 45}) {
				t.Errorf("Lookup = %v, %v", got, err)
			}
			if x.LastEntry() != (TimestampOffset{NoTimestamp, 45}) {
				t.Errorf("last entry %v", x.LastEntry())
			}
			for e, err := range x.All() {
				t.Errorf("yielded %v, %v", e, err)
			}
			ok(t, x.SanityCheck())
			ok(t, x.CheckEntries(45))
		}
	})
}

func TestTime_MaybeAppend(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		x := openTime(t, fsys, path, 45, Config{MaxBytes: 4 * 12})
		step := func(timestamp, offset int64, skip bool, want error, entries int) {
			t.Helper()
			wantIs(t, x.MaybeAppend(timestamp, offset, skip), want)
			if x.Entries() != entries {
				t.Fatalf("%d entries after (%d, %d), want %d", x.Entries(), timestamp, offset, entries)
			}
		}
		step(-1, 46, false, nil, 0) // records without a time
		step(-5, 46, false, nil, 0)
		step(10, 55, false, nil, 1)
		step(10, 55, false, nil, 1)
		step(10, 56, false, nil, 1)
		step(11, 54, false, ErrInvalidOffset, 1)
		step(9, 56, false, ErrInvalidTimestamp, 1)
		step(11, 45+math.MaxInt32+1, false, ErrOffsetOverflow, 1)
		step(20, 55, false, nil, 2) // the same batch may be the first to reach a later time
		step(30, 75, false, nil, 3)
		if !x.IsFull() {
			t.Error("not full with one slot left")
		}
		step(40, 85, false, ErrFull, 3)
		step(30, 75, false, ErrFull, 3) // the full check comes first, as in Kafka
		step(40, 85, true, nil, 4)
		step(40, 85, true, nil, 4)
		step(50, 95, true, ErrFull, 4)
		wantIs(t, openTime(t, fsys, path+"2", 45, Config{}).MaybeAppend(0, 44, false), ErrOffsetOverflow)
	})
}

func TestTime_Truncate(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		x := openTime(t, fsys, path, 45, Config{})
		for _, c := range []struct {
			to      int64
			entries int
		}{{math.MaxInt64, 9}, {46 + 9*10, 9}, {45 + 90, 8}, {45 + 61, 6}, {45 + 60, 5}, {45 + 10, 0}, {45, 0}, {0, 0}} {
			ok(t, x.Reset())
			for i := int64(1); i < 10; i++ {
				ok(t, x.MaybeAppend(i*1000, 45+i*10, false))
			}
			ok(t, x.TruncateTo(c.to))
			want := TimestampOffset{int64(c.entries) * 1000, 45 + int64(c.entries)*10}
			if c.entries == 0 {
				want = TimestampOffset{NoTimestamp, 45}
			}
			if x.Entries() != c.entries || x.LastEntry() != want {
				t.Errorf("to %d: %d entries, last %v, want %v", c.to, x.Entries(), x.LastEntry(), want)
			}
			if got, err := x.Lookup(math.MaxInt64); err != nil || got != want {
				t.Errorf("to %d: Lookup = %v, %v", c.to, got, err)
			}
		}
	})
}

// The limit is whole entries below the configured size, and so is every reservation.
func TestTime_Sizes(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		x := openTime(t, fsys, path, 0, Config{})
		if x.MaxEntries() != 873_813 {
			t.Errorf("%d entries of 10 MiB", x.MaxEntries())
		}
		for i := int64(1); i < 1500; i++ {
			ok(t, x.MaybeAppend(i, i, false))
			if n := len(get(t, fsys, path)); n%12 != 0 {
				t.Fatalf("%d bytes", n)
			}
		}
		ok(t, x.SanityCheck())
		ok(t, x.Resize(1499*12))
		if x.MaxEntries() != 1499 || len(get(t, fsys, path)) != 1499*12 {
			t.Errorf("%d entries, %d bytes", x.MaxEntries(), len(get(t, fsys, path)))
		}
		ok(t, x.CheckEntries(1500))
	})
}

func TestTime_SanityCheck(t *testing.T) {
	for name, c := range map[string]struct {
		bytes  string
		kafka  bool // Kafka's own check finds it
		entry  int
		strict bool // the complete check finds it
	}{
		"last offset below the base": {"0000000000000001 ffffffff", true, 0, true},
		"last time below the first":  {"0000000000000005 00000001 | 0000000000000004 00000002", true, 1, true},
		"partial entry":              {"0000000000000005 00000001 | 00000000", true, -1, true},
		"times equal":                {"0000000000000005 00000001 | 0000000000000005 00000002", false, 1, true},
		"offset goes back":           {"0000000000000005 00000003 | 0000000000000006 00000002", false, 1, true},
		"negative time first":        {"ffffffffffffffff 00000001 | 0000000000000006 00000002", false, 0, true},
		"behind the end":             {"0000000000000005 00000003 | 0000000000000006 00000900", false, 1, true},
		"sound":                      {"0000000000000005 00000003 | 0000000000000006 00000003", false, 0, false},
		"time zero":                  {"0000000000000000 00000000", false, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
				put(t, fsys, path, unhex(t, c.bytes))
				x := openTime(t, fsys, path, 100, Config{ReadOnly: true})
				check(t, x.SanityCheck(), c.kafka, c.entry)
				check(t, x.CheckEntries(200), c.strict, c.entry)
			})
		})
	}
}
