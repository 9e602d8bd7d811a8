package segment

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
)

// Whatever a segment remembers of its transaction index, it answers as the file does, through appends, cuts and resets, and
// whether or not its files are open.
func TestAbortedTxns_AsTheFile(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		mem := vfstest.NewMem()
		dir := "/d"
		ok(t, mem.MkdirAll(dir, 0o755))
		const base = 100
		s, err := Create(mem, dir, base, Config{})
		ok(t, err)
		b := row(t, base, 1, 20)[0]
		ok(t, s.Append(b))
		next, stable := int64(base), int64(0)
		var list []index.AbortedTxn
		for range 60 {
			switch rng.IntN(12) {
			case 0, 1:
				x := index.AbortedTxn{ProducerID: 1, FirstOffset: stable + rng.Int64N(next-stable+1), LastOffset: next + 1}
				stable = min(stable+rng.Int64N(40), x.LastOffset+1)
				x.LastStableOffset = stable
				ok(t, s.AppendAborted(x))
				list, next = append(list, x), next+2
			case 2:
				at := base + rng.Int64N(next-base+1)
				_, err := s.TruncateTo(max(at, base+1))
				ok(t, err)
				list = slices.DeleteFunc(list, func(x index.AbortedTxn) bool { return x.LastOffset >= max(at, base+1) })
			case 3:
				if rng.IntN(4) == 0 {
					ok(t, s.ResetTxnIndex())
					list = nil
				}
			case 4:
				s.writable.Store(false)
				ok(t, s.Park())
			default:
				from := rng.Int64N(next + 10)
				if rng.IntN(2) == 0 {
					from = rng.Int64N(base)
				}
				upper := from + 1 + rng.Int64N(100)
				txns, complete, err := s.AbortedTxns(from, upper)
				ok(t, err)
				var want []index.AbortedTxn
				all := false
				for _, x := range list {
					if x.LastOffset >= from && x.FirstOffset < upper {
						want = append(want, x)
					}
					if all = x.LastStableOffset >= upper && x.LastOffset >= from; all {
						break
					}
				}
				if !slices.Equal(txns, want) || complete != all {
					t.Fatalf("seed %d: [%d, %d): %v, %v, want %v, %v of %v", seed, from, upper, txns, complete, want, all, list)
				}
			}
		}
		ok(t, s.Close())
	}
}
