package index

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
)

// The model of an index is a slice. Any sequence of operations gives what the slice gives.
func TestModel_Offset(t *testing.T) {
	const base = 1000
	rapid.Check(t, func(t *rapid.T) {
		m := vfstest.NewMem()
		c := Config{MaxBytes: rapid.Int32Range(8, 9000).Draw(t, "MaxBytes")}
		var model []OffsetPosition
		x := reopenOffset(t, m, base, c)
		defer func() { x.Close() }()
		last := func() OffsetPosition {
			if len(model) == 0 {
				return OffsetPosition{Offset: base}
			}
			return model[len(model)-1]
		}
		near := func() int64 { return rapid.Int64Range(base-3, last().Offset+40).Draw(t, "offset") }
		cut := func(to int64) {
			i, _ := slices.BinarySearchFunc(model, to, func(e OffsetPosition, to int64) int { return int(e.Offset - to) })
			model = model[:i]
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				for range rapid.IntRange(1, 300).Draw(t, "n") {
					e := OffsetPosition{last().Offset + rapid.Int64Range(-1, 50).Draw(t, "step"), last().Position + 1}
					var want error
					switch {
					case len(model) == int(c.MaxBytes)/8:
						want = ErrFull
					case len(model) > 0 && e.Offset <= last().Offset:
						want = ErrInvalidOffset
					case e.Offset < base:
						want = ErrOffsetOverflow
					default:
						model = append(model, e)
					}
					if err := x.Append(e.Offset, e.Position); !errors.Is(err, want) {
						t.Fatalf("Append(%v) = %v, want %v", e, err, want)
					}
				}
			},
			"lookup": func(t *rapid.T) {
				target := near()
				want := OffsetPosition{Offset: base}
				for _, e := range model {
					if e.Offset <= target {
						want = e
					}
				}
				if got, err := x.Lookup(target); err != nil || got != want {
					t.Fatalf("Lookup(%d) = %v, %v, want %v", target, got, err, want)
				}
			},
			"upper bound": func(t *rapid.T) {
				at, size := rapid.Int32Range(0, last().Position+3).Draw(t, "at"), rapid.Int32Range(0, 100).Draw(t, "size")
				i := slices.IndexFunc(model, func(e OffsetPosition) bool { return e.Position >= at+size })
				got, found, err := x.UpperBound(OffsetPosition{0, at}, size)
				if err != nil || found != (i >= 0) || found && got != model[i] {
					t.Fatalf("UpperBound(%d, %d) = %v, %v, %v, want entry %d", at, size, got, found, err, i)
				}
			},
			"truncate": func(t *rapid.T) { to := near(); fatal(t, x.TruncateTo(to)); cut(to) },
			"set": func(t *rapid.T) {
				n := rapid.IntRange(0, len(model)).Draw(t, "n")
				fatal(t, x.SetEntries(n))
				model = model[:n]
			},
			"reset": func(t *rapid.T) { fatal(t, x.Reset()); model = nil },
			"trim":  func(t *rapid.T) { fatal(t, x.Trim()) },
			"unmap": func(t *rapid.T) { fatal(t, x.Unmap()) },
			"flush": func(t *rapid.T) { fatal(t, x.Flush()) },
			"reopen": func(t *rapid.T) {
				if rapid.Bool().Draw(t, "crash") {
					m = m.Crash(vfstest.CrashOptions{Mode: vfstest.Kill})
				}
				fatal(t, x.Close())
				x = reopenOffset(t, m, base, c)
			},
			"": func(t *rapid.T) {
				if x.Entries() != len(model) || x.LastEntry() != last() || x.IsFull() != (len(model) == int(c.MaxBytes)/8) {
					t.Fatalf("%d entries, last %v, want %d, %v", x.Entries(), x.LastEntry(), len(model), last())
				}
				i := 0
				for e, err := range x.All() {
					if err != nil || e != model[i] {
						t.Fatalf("entry %d is %v, %v, want %v", i, e, err, model[i])
					}
					i++
				}
				if s := m.SparseStores(); len(s) > 0 {
					t.Fatalf("stores into space that was not reserved: %v", s)
				}
			},
		})
	})
}

func reopenOffset(t *rapid.T, fsys vfs.FS, base int64, c Config) *Offset {
	x, err := OpenOffset(fsys, "/a.index", base, c)
	fatal(t, err)
	// A file that was closed with space reserved is as long as its limit at most.
	if x.MaxEntries() != int(c.MaxBytes)/8 {
		t.Fatalf("%d entries at most", x.MaxEntries())
	}
	return x
}

func fatal(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

func TestModel_Time(t *testing.T) {
	const base = 1000
	rapid.Check(t, func(t *rapid.T) {
		m := vfstest.NewMem()
		c := Config{MaxBytes: rapid.Int32Range(12, 9000).Draw(t, "MaxBytes")}
		var model []TimestampOffset
		x, err := OpenTime(m, "/a.timeindex", base, c)
		fatal(t, err)
		defer func() { x.Close() }()
		last := func() TimestampOffset {
			if len(model) == 0 {
				return TimestampOffset{NoTimestamp, base}
			}
			return model[len(model)-1]
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				for range rapid.IntRange(1, 300).Draw(t, "n") {
					e := TimestampOffset{
						last().Timestamp + rapid.Int64Range(-1, 50).Draw(t, "ms"),
						last().Offset + rapid.Int64Range(-1, 50).Draw(t, "step"),
					}
					final := rapid.Bool().Draw(t, "final")
					capacity := int(c.MaxBytes) / 12
					var want error
					switch {
					case !final && len(model) >= capacity-1:
						want = ErrFull
					case len(model) > 0 && e.Offset < last().Offset:
						want = ErrInvalidOffset
					case len(model) > 0 && e.Timestamp < last().Timestamp:
						want = ErrInvalidTimestamp
					case e.Timestamp <= last().Timestamp:
					case e.Offset < base:
						want = ErrOffsetOverflow
					case len(model) == capacity:
						want = ErrFull
					default:
						model = append(model, e)
					}
					if err := x.MaybeAppend(e.Timestamp, e.Offset, final); !errors.Is(err, want) {
						t.Fatalf("MaybeAppend(%v, %v) = %v, want %v", e, final, err, want)
					}
				}
			},
			"lookup": func(t *rapid.T) {
				target := rapid.OneOf(rapid.Int64Range(-2, last().Timestamp+3), rapid.Just[int64](math.MaxInt64)).Draw(t, "ms")
				want := TimestampOffset{NoTimestamp, base}
				for _, e := range model {
					if e.Timestamp <= target {
						want = e
					}
				}
				if got, err := x.Lookup(target); err != nil || got != want {
					t.Fatalf("Lookup(%d) = %v, %v, want %v", target, got, err, want)
				}
			},
			"truncate": func(t *rapid.T) {
				to := rapid.Int64Range(base-3, last().Offset+3).Draw(t, "offset")
				fatal(t, x.TruncateTo(to))
				model = slices.DeleteFunc(model, func(e TimestampOffset) bool { return e.Offset >= to })
			},
			"trim": func(t *rapid.T) { fatal(t, x.Trim()) },
			"reopen": func(t *rapid.T) {
				fatal(t, x.Close())
				x, err = OpenTime(m, "/a.timeindex", base, c)
				fatal(t, err)
				// One slot of zeros is an entry; more of them are not. Nothing is lost but what reads as no entry.
				if len(model) == 1 && model[0] == (TimestampOffset{0, base}) && x.Entries() == 0 {
					model = nil
				}
			},
			"": func(t *rapid.T) {
				if x.Entries() != len(model) || x.LastEntry() != last() {
					t.Fatalf("%d entries, last %v, want %d, %v", x.Entries(), x.LastEntry(), len(model), last())
				}
				fatal(t, x.CheckEntries(math.MaxInt64))
			},
		})
	})
}

func TestModel_Txn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := vfstest.NewMem()
		var model []AbortedTxn
		x, err := OpenTxn(m, "/a.txnindex", 0, Config{})
		fatal(t, err)
		defer func() { x.Close() }()
		last := func() int64 {
			if len(model) == 0 {
				return 0
			}
			return model[len(model)-1].LastOffset
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				for range rapid.IntRange(1, 80).Draw(t, "n") {
					end := last() + rapid.Int64Range(1, 9).Draw(t, "step")
					e := AbortedTxn{
						rapid.Int64Range(0, 5).Draw(t, "id"), rapid.Int64Range(0, end-1).Draw(t, "first"), end,
						rapid.Int64Range(0, end+1).Draw(t, "stable"),
					}
					fatal(t, x.Append(e))
					model = append(model, e)
				}
			},
			"collect": func(t *rapid.T) {
				from := rapid.Int64Range(0, last()+3).Draw(t, "from")
				upper := from + rapid.Int64Range(1, 50).Draw(t, "n")
				var want []AbortedTxn
				complete := false
				for _, e := range model {
					if e.LastOffset >= from && e.FirstOffset < upper {
						want = append(want, e)
					}
					if complete = e.LastStableOffset >= upper; complete {
						break
					}
				}
				got, c, err := x.Collect(from, upper)
				if err != nil || c != complete || !slices.Equal(got, want) {
					t.Fatalf("Collect(%d, %d) = %v, %v, %v, want %v, %v", from, upper, got, c, err, want, complete)
				}
			},
			"truncate": func(t *rapid.T) {
				to := rapid.Int64Range(0, last()+3).Draw(t, "offset")
				fatal(t, x.TruncateTo(to))
				model = slices.DeleteFunc(model, func(e AbortedTxn) bool { return e.LastOffset >= to })
			},
			"reopen": func(t *rapid.T) {
				fatal(t, x.Close())
				x, err = OpenTxn(m, "/a.txnindex", 0, Config{})
				fatal(t, err)
			},
			"": func(t *rapid.T) {
				i := 0
				for e, err := range x.All() {
					if err != nil || e != model[i] {
						t.Fatalf("entry %d is %v, %v, want %v", i, e, err, model[i])
					}
					i++
				}
				if i != len(model) || x.Entries() != i {
					t.Fatalf("%d entries, want %d", i, len(model))
				}
			},
		})
	})
}
