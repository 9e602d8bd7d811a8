package index

import (
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
)

// readers runs f in some goroutines until stop is called, each with its own random numbers.
func readers(f func(rng *rand.Rand)) (stop func()) {
	var done atomic.Bool
	var wg sync.WaitGroup
	for i := range uint64(4) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(11, i))
			for !done.Load() {
				f(rng)
			}
		})
	}
	return func() { done.Store(true); wg.Wait() }
}

// One writer appends, grows, trims, unmaps and cuts, while readers look up. Entry i is (10 i, 7 i) at any time, so
// that a torn entry, or one of memory that is gone, shows.
func TestConcurrent_Offset(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		x := openOffset(t, fsys, path, 0, Config{MaxBytes: 64 << 10})
		var low atomic.Int64  // no fewer entries
		var cuts atomic.Int64 // counts what lowers them, before it does
		whole := func(e OffsetPosition) {
			if e.Offset%10 != 0 || int64(e.Position) != e.Offset/10*7 {
				t.Errorf("entry %v", e)
			}
		}
		stop := readers(func(rng *rand.Rand) {
			before, least := cuts.Load(), low.Load()
			target := rng.Int64N(90_000)
			e, err := x.Lookup(target)
			if err != nil {
				t.Error(err)
			}
			whole(e)
			if e.Offset > target || e.Offset < min(target/10, least)*10 && cuts.Load() == before {
				t.Errorf("Lookup(%d) = %v with at least %d entries", target, e, least)
			}
			switch rng.IntN(500) {
			case 0:
				for e, err := range x.All() {
					if err != nil {
						t.Error(err)
					}
					whole(e)
				}
			case 1:
				if _, _, err := x.UpperBound(e, 1000); err != nil {
					t.Error(err)
				}
				whole(x.LastEntry())
			case 2:
				if err := x.Flush(); err != nil {
					t.Error(err)
				}
			}
		})
		rng := rand.New(rand.NewPCG(12, 0))
		for range 40 {
			for i := int64(x.Entries()) + 1; !x.IsFull() && rng.IntN(2000) > 0; i++ {
				ok(t, x.Append(10*i, int32(7*i)))
				low.Store(i)
			}
			switch rng.IntN(4) {
			case 0:
				ok(t, x.Trim())
			case 1:
				ok(t, x.Unmap())
			case 2:
				n := rng.Int64N(low.Load() + 1)
				cuts.Add(1)
				low.Store(n)
				ok(t, x.TruncateTo(10*n+1))
			case 3:
				cuts.Add(1)
				low.Store(0)
				ok(t, x.Reset())
			}
		}
		stop()
		ok(t, x.CheckEntries(1<<20))
	})
}

func TestConcurrent_Time(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		x := openTime(t, fsys, path, 0, Config{MaxBytes: 64 << 10})
		stop := readers(func(rng *rand.Rand) {
			target := rng.Int64N(60_000)
			e, err := x.Lookup(target)
			if err != nil {
				t.Error(err)
			}
			for _, e := range []TimestampOffset{e, x.LastEntry()} {
				if e.Timestamp >= 0 && e.Timestamp != 10*e.Offset {
					t.Errorf("entry %v", e)
				}
			}
		})
		for range 20 {
			for i := int64(x.Entries()) + 1; !x.IsFull(); i++ {
				ok(t, x.MaybeAppend(10*i, i, false))
			}
			ok(t, x.TruncateTo(3))
			ok(t, x.Trim())
		}
		stop()
		ok(t, x.CheckEntries(1<<20))
	})
}

func TestConcurrent_Txn(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		x := openTxn(t, fsys, path, 0, Config{})
		stop := readers(func(rng *rand.Rand) {
			from := rng.Int64N(3000)
			txns, _, err := x.Collect(from, from+100)
			if err != nil {
				t.Error(err)
			}
			for _, e := range txns {
				if e != (AbortedTxn{e.ProducerID, e.ProducerID, 2*e.ProducerID + 1, 2*e.ProducerID + 2}) {
					t.Errorf("entry %v", e)
				}
			}
			if rng.IntN(500) == 0 {
				if err := x.Flush(); err != nil {
					t.Error(err)
				}
			}
		})
		for round := range 5 {
			for i := int64(x.Entries()) + 1; i < 1500; i++ {
				ok(t, x.Append(AbortedTxn{i, i, 2*i + 1, 2*i + 2}))
			}
			if round%2 == 0 {
				ok(t, x.TruncateTo(1000))
			} else {
				ok(t, x.Reset())
			}
		}
		stop()
		ok(t, x.SanityCheck())
	})
}

// Close waits for the readers inside, and those that come later are told.
func TestConcurrent_Close(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		for range 10 {
			put(t, fsys, path, unhex(t, goldenOffsets))
			x := openOffset(t, fsys, path, 100, Config{})
			var looked atomic.Int64
			stop := readers(func(*rand.Rand) {
				e, err := x.Lookup(200)
				if err != nil && !errors.Is(err, ErrClosed) || err == nil && e != (OffsetPosition{150, 4200}) {
					t.Errorf("Lookup = %v, %v", e, err)
				}
				looked.Add(1)
			})
			for looked.Load() < 20 {
				runtime.Gosched()
			}
			ok(t, x.Close())
			stop()
			_, err := x.Lookup(200)
			wantIs(t, err, ErrClosed)
		}
	})
}

// Of many readers that come first at once, one maps the file; and an index that nobody uses is not mapped.
func TestConcurrent_FirstUse(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		put(t, fsys, path, unhex(t, goldenOffsets))
		h := &hooked{FS: fsys}
		maps := 0
		h.fail(func(op string, _ int64) error {
			switch op {
			case "map":
				maps++
			case "unmap":
				maps += 1000
			}
			return nil
		})
		x := openOffset(t, h, path, 100, Config{ReadOnly: true})
		if x.LastOffset() != 150 || maps != 0 {
			t.Errorf("last offset %d, %d maps after open", x.LastOffset(), maps)
		}
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				if e, err := x.Lookup(149); err != nil || e.Offset != 102 {
					t.Errorf("Lookup = %v, %v", e, err)
				}
			})
		}
		wg.Wait()
		ok(t, x.Close())
		ok(t, x.Close())
		if maps != 1001 {
			t.Errorf("%d maps and %d unmaps", maps%1000, maps/1000)
		}
	})
}

// Growing, trimming and closing leave no map behind.
func TestMapsAreGivenBack(t *testing.T) {
	count := func(path string) int {
		p, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			return 0 // no such file here: nothing to count
		}
		return strings.Count(string(p), path)
	}
	path := osPath(t)
	x := openOffset(t, vfs.OS, path, 0, Config{})
	for i := int64(1); i < 100_000; i++ {
		ok(t, x.Append(i, int32(i)))
	}
	if n := count(path); n > 1 {
		t.Errorf("%d maps of a growing index", n)
	}
	ok(t, x.Trim())
	if n := count(path); n > 0 {
		t.Errorf("%d maps of a trimmed index", n)
	}
	_, err := x.Lookup(5)
	ok(t, err)
	ok(t, x.Close())
	if n := count(path); n > 0 {
		t.Errorf("%d maps of a closed index", n)
	}
}
