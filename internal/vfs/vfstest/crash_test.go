package vfstest

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/oncelog/oncelog/internal/vfs"
)

// seeds is how many crashes a seeded check looks at.
const seeds = 1000

// synced returns a file system with a synced file "a" of n bytes 'o', and the file.
func synced(t testing.TB, n int) (*Mem, vfs.File) {
	m := NewMem()
	f := mustOpen(t, m, "a", os.O_RDWR|os.O_CREATE)
	mustWrite(t, f, 0, bytes.Repeat([]byte("o"), n))
	must(t, f.Sync())
	must(t, m.SyncDir("/"))
	return m, f
}

// outcomes counts what readers of "a" see after crashes with all seeds.
func outcomes(t *testing.T, m *Mem, o CrashOptions) map[string]int {
	t.Helper()
	seen := make(map[string]int)
	for seed := range uint64(seeds) {
		o.Mode, o.Seed = PowerCut, seed
		seen[string(content(t, m.Crash(o), "a"))]++
	}
	return seen
}

func TestCrash_kill(t *testing.T) {
	m, f := synced(t, 3000)
	mustWrite(t, f, 100, []byte("unsynced"))
	mp, err := f.Map(3000, true)
	must(t, err)
	mp.Bytes()[2999] = 's'
	l, err := m.Lock("lock", 0, 1, true)
	must(t, err)
	boot, _ := m.BootID("/")

	c := m.Crash(CrashOptions{})
	if got := content(t, c, "a"); !bytes.Equal(got, content(t, m, "a")) || got[2999] != 's' {
		t.Fatal("a kill lost what was in the cache")
	}
	if id, _ := c.BootID("/"); id != boot {
		t.Fatal("a kill changed the boot id")
	}
	if _, err := c.Lock("lock", 0, 1, true); err != nil {
		t.Fatalf("a kill left a lock: %v", err)
	}
	must(t, l.Close())
	// The cache that lives on is still not on the device.
	if got := content(t, c.Crash(CrashOptions{Mode: AllLost}), "a"); !bytes.Equal(got, bytes.Repeat([]byte("o"), 3000)) {
		t.Fatal("a kill made unsynced bytes durable")
	}
	mp.Bytes()[0] = 'x'
	if content(t, c, "a")[0] != 'o' {
		t.Fatal("a store into the original reached its clone")
	}
	g := mustOpen(t, c, "a", os.O_RDWR)
	mustWrite(t, g, 1, []byte("y"))
	if content(t, m, "a")[1] != 'o' {
		t.Fatal("a write to the clone reached the original")
	}
}

func TestCrash_allLostAllKept(t *testing.T) {
	m, f := synced(t, 10000)
	old := content(t, m, "a")
	mustWrite(t, f, 4000, []byte("new"))
	mustWrite(t, f, 12000, []byte("longer"))
	mp, err := f.Map(12006, true)
	must(t, err)
	mp.Bytes()[0] = 's'
	b := mustOpen(t, m, "b", os.O_RDWR|os.O_CREATE)
	mustWrite(t, b, 0, []byte("b"))
	must(t, b.Sync())

	lost := m.Crash(CrashOptions{Mode: AllLost})
	if !bytes.Equal(content(t, lost, "a"), old) {
		t.Error("unsynced bytes survived")
	}
	if content(t, lost, "b") != nil {
		t.Error("the name of a synced file survived without a sync of its directory")
	}
	kept := m.Crash(CrashOptions{Mode: AllKept})
	if !bytes.Equal(content(t, kept, "a"), content(t, m, "a")) || string(content(t, kept, "b")) != "b" {
		t.Error("what the device had got is lost")
	}
	if a, _ := m.BootID("/"); a != "" {
		if b, _ := kept.BootID("/"); a == b {
			t.Error("a power cut kept the boot id")
		}
	}
	must(t, mp.Flush())
	must(t, m.SyncDir("/"))
	lost = m.Crash(CrashOptions{Mode: AllLost})
	if !bytes.Equal(content(t, lost, "a"), content(t, m, "a")) || string(content(t, lost, "b")) != "b" {
		t.Error("flushed bytes or a synced name are lost")
	}
}

func TestCrash_syncedIsNeverLost(t *testing.T) {
	for seed := range uint64(seeds) {
		m := NewMemWith(MemOptions{Seed: seed})
		r := newRand(t, seed)
		f := mustOpen(t, m, "a", os.O_RDWR|os.O_CREATE)
		must(t, f.Allocate(20000))
		must(t, f.SyncData())
		must(t, m.SyncDir("/"))
		mp, err := f.Map(20000, true)
		must(t, err)
		end := 0
		for range 5 {
			n := 1 + r.IntN(2000)
			record := bytes.Repeat([]byte{byte('a' + r.IntN(26))}, n)
			if r.IntN(2) == 0 {
				copy(mp.Bytes()[end:], record)
				must(t, mp.Flush())
			} else {
				mustWrite(t, f, int64(end), record)
				must(t, f.SyncData())
			}
			end += n
		}
		want := content(t, m, "a")[:end]
		copy(mp.Bytes()[end:], bytes.Repeat([]byte("u"), 5000)) // never synced
		c := m.Crash(CrashOptions{Mode: PowerCut, Seed: seed, Torn: true, Garbage: true})
		if got := content(t, c, "a"); len(got) != 20000 || !bytes.Equal(got[:end], want) {
			t.Fatalf("seed %d: synced bytes are lost", seed)
		}
	}
}

func TestCrash_sectorsSurviveOnTheirOwn(t *testing.T) {
	m, f := synced(t, 3*sectorSize)
	mustWrite(t, f, 0, bytes.Repeat([]byte("n"), 3*sectorSize))
	patterns := make(map[string]int)
	for state, n := range outcomes(t, m, CrashOptions{}) {
		pattern := ""
		for s := 0; s < len(state); s += sectorSize {
			if state[s:s+sectorSize] != string(bytes.Repeat([]byte{state[s]}, sectorSize)) {
				t.Fatal("a sector is torn without being asked for")
			}
			pattern += state[s : s+1]
		}
		patterns[pattern] += n
	}
	if len(patterns) != 8 {
		t.Fatalf("of 8 subsets of 3 sectors came %v", patterns)
	}
}

func TestCrash_tornSectors(t *testing.T) {
	m, f := synced(t, sectorSize)
	mustWrite(t, f, 0, bytes.Repeat([]byte("n"), sectorSize))
	cuts := make(map[int]bool)
	for state := range outcomes(t, m, CrashOptions{Torn: true}) {
		cut := bytes.IndexByte([]byte(state+"o"), 'o')
		if bytes.IndexByte([]byte(state[cut:]), 'n') >= 0 {
			t.Fatal("a torn sector is no prefix of the new version and a rest of the old one")
		}
		cuts[cut] = true
	}
	if len(cuts) < 50 {
		t.Fatalf("%d places of a tear in %d crashes", len(cuts), seeds)
	}
}

func TestCrash_oldVersionSurvives(t *testing.T) {
	for _, way := range []string{"write", "store"} {
		m, f := synced(t, 100)
		write := func(b byte) { mustWrite(t, f, 0, bytes.Repeat([]byte{b}, 100)) }
		if way == "store" {
			mp, err := f.Map(100, true)
			must(t, err)
			write = func(b byte) {
				copy(mp.Bytes(), bytes.Repeat([]byte{b}, 100))
				for range 4 { // operations, during which the daemon may run
					f.Stat()
				}
			}
		}
		for b := byte('1'); b <= '6'; b++ {
			write(b)
		}
		between := 0
		seen := outcomes(t, m, CrashOptions{})
		for state, n := range seen {
			if b := state[0]; b >= '1' && b < '6' {
				between += n
			}
		}
		if between == 0 || seen[string(bytes.Repeat([]byte("o"), 100))] == 0 || seen[string(bytes.Repeat([]byte("6"), 100))] == 0 {
			t.Errorf("%s: %d crashes left a version in between; states %d", way, between, len(seen))
		}
		must(t, f.SyncData())
		if seen := outcomes(t, m, CrashOptions{}); len(seen) != 1 {
			t.Errorf("%s: %d states after a sync", way, len(seen))
		}
	}
}

func TestCrash_writeBackOnDemand(t *testing.T) {
	m, f := synced(t, 10)
	mp, err := f.Map(10, true)
	must(t, err)
	copy(mp.Bytes(), "half")
	for range 10 {
		m.WriteBack()
	}
	copy(mp.Bytes(), "1234567890")
	if outcomes(t, m, CrashOptions{})["halfoooooo"] == 0 {
		t.Fatal("the version between two stores never survives")
	}
}

func TestCrash_sizes(t *testing.T) {
	m, f := synced(t, 1000)
	mustWrite(t, f, 1000, bytes.Repeat([]byte("n"), 1000))
	mustWrite(t, f, 2000, bytes.Repeat([]byte("n"), 1000))
	sizes := make(map[int]int)
	zeros, garbage := 0, 0
	for state, n := range outcomes(t, m, CrashOptions{Garbage: true}) {
		sizes[len(state)] += n
		for _, b := range []byte(state[min(1024, len(state)):]) {
			switch b {
			case 0:
				zeros++
			case 'n', 'o':
			default:
				garbage++
			}
		}
	}
	if sizes[1000] == 0 || sizes[2000] == 0 || sizes[3000] == 0 || len(sizes) != 3 {
		t.Errorf("sizes %v", sizes)
	}
	if zeros == 0 || garbage == 0 {
		t.Errorf("%d zeros and %d stale bytes where only the size survived", zeros, garbage)
	}
}

func TestCrash_cutNeedsSync(t *testing.T) {
	m, f := synced(t, 3000)
	must(t, f.Truncate(1000))
	must(t, f.SyncData())
	if seen := outcomes(t, m, CrashOptions{}); len(seen) != 2 {
		t.Fatalf("%d states after a cut and a sync of data: want the old size and the new one", len(seen))
	}
	mustWrite(t, f, 0, []byte("new"))
	must(t, f.SyncData())
	for state := range outcomes(t, m, CrashOptions{}) {
		if state[:3] != "new" {
			t.Fatal("a sync of data below a pending cut lost its data")
		}
		if len(state) == 3000 && state[2999] != 'o' {
			t.Fatal("a lost cut lost the bytes behind it")
		}
	}
	must(t, f.Sync())
	if seen := outcomes(t, m, CrashOptions{}); len(seen) != 1 {
		t.Fatalf("%d states after a cut and a sync", len(seen))
	}
	// What was cut off does not come back when the file grows.
	must(t, f.Truncate(3000))
	must(t, f.SyncData())
	for state := range outcomes(t, m, CrashOptions{}) {
		if len(state) != 3000 || state[2999] != 0 {
			t.Fatal("bytes behind a synced cut came back")
		}
	}
	// The same with cut and growth in one: what the device had is hidden by the sync.
	must(t, f.Truncate(0))
	must(t, f.Truncate(4000))
	must(t, f.SyncData())
	for state := range outcomes(t, m, CrashOptions{}) {
		if !bytes.Equal([]byte(state), make([]byte, 4000)) {
			t.Fatal("bytes behind a cut came back after a sync of the grown file")
		}
	}
}

func TestCrash_names(t *testing.T) {
	m := NewMem()
	for _, name := range []string{"keep", "remove", "rename", "target"} {
		f := mustOpen(t, m, name, os.O_RDWR|os.O_CREATE)
		mustWrite(t, f, 0, []byte(name))
		must(t, f.Sync())
	}
	must(t, m.MkdirAll("dir", 0o755))
	must(t, m.SyncDir("/"))
	f := mustOpen(t, m, "create", os.O_RDWR|os.O_CREATE)
	mustWrite(t, f, 0, []byte("create"))
	must(t, f.Sync())
	must(t, m.Remove("remove"))
	must(t, m.Rename("rename", "target"))
	must(t, m.Rename("keep", "dir/keep"))

	check := func(c *Mem) string {
		state := ""
		for _, name := range []string{"create", "remove", "rename", "target", "keep", "dir/keep"} {
			got := content(t, c, name)
			if got == nil {
				state += "-"
			} else {
				state += string(got[:1])
			}
			if name == "target" && string(got) != "target" && string(got) != "rename" {
				t.Fatalf("target of a rename holds %q", got)
			}
		}
		if content(t, c, "keep") == nil && content(t, c, "dir/keep") == nil {
			t.Fatal("a rename between directories lost both names")
		}
		if content(t, c, "rename") == nil && string(content(t, c, "target")) != "rename" {
			t.Fatal("a rename lost both names")
		}
		return state
	}
	states := make(map[string]int)
	for seed := range uint64(4 * seeds) {
		states[check(m.Crash(CrashOptions{Mode: PowerCut, Seed: seed}))]++
	}
	// Creation, removal: 2 each; rename: not, both names, done; between directories: not, both, done.
	if len(states) != 2*2*3*3 {
		t.Errorf("%d combinations of four changes: %v", len(states), states)
	}
	if got := check(m.Crash(CrashOptions{Mode: AllLost})); got != "-rrtk-" {
		t.Errorf("all lost: %s", got)
	}
	if got := check(m.Crash(CrashOptions{Mode: AllKept})); got != "c--r-k" {
		t.Errorf("all kept: %s", got)
	}
	// The sync of the old directory does not make a name go whose new one is not durable.
	must(t, m.SyncDir("/"))
	if got := check(m.Crash(CrashOptions{Mode: AllLost})); got != "c--r-k" {
		t.Errorf("after a sync: %s", got)
	}
}

func TestCrash_changesAreDecidedInOrder(t *testing.T) {
	m := NewMem()
	for i := range 3 {
		must(t, vfs.WriteFileAtomic(noDirSync{m}, "a", 0o644, []byte{byte('0' + i)}))
	}
	seen := make(map[string]bool)
	for state := range outcomes(t, m, CrashOptions{}) {
		seen[state] = true
	}
	if !seen[""] || !seen["0"] || !seen["1"] || !seen["2"] || len(seen) != 4 {
		t.Errorf("states %v", seen)
	}
	must(t, vfs.WriteFileAtomic(m, "a", 0o644, []byte("3")))
	if seen := outcomes(t, m, CrashOptions{}); len(seen) != 1 || seen["3"] == 0 {
		t.Errorf("states after an atomic write: %v", seen)
	}
}

type noDirSync struct{ vfs.FS }

func (noDirSync) SyncDir(string) error { return nil }

func TestCrash_sectorByHand(t *testing.T) {
	m, f := synced(t, 2000)
	mustWrite(t, f, 500, bytes.Repeat([]byte("n"), 1000))
	dirty := m.DirtySectors()
	if want := []Sector{{"a", 0}, {"a", 512}, {"a", 1024}}; !slices.Equal(dirty, want) {
		t.Fatalf("dirty sectors %v", dirty)
	}
	for subset := range 1 << len(dirty) {
		c := m.Crash(CrashOptions{Mode: AllKept, Sector: func(s Sector) int {
			return subset >> (s.Off / 512) & 1 * 512
		}})
		got := content(t, c, "a")
		for i, at := range []int{505, 600, 1100} {
			if want := "on"[subset>>i&1]; got[at] != want {
				t.Fatalf("subset %b: byte %d is %q", subset, at, got[at])
			}
		}
	}
	c := m.Crash(CrashOptions{Mode: AllKept, Sector: func(s Sector) int { return 502 }})
	if got := content(t, c, "a"); string(got[500:504]) != "nnoo" || string(got[512+500:512+504]) != "nnoo" {
		t.Fatal("sectors are not torn where asked")
	}
}

func TestCrash_isDeterministic(t *testing.T) {
	states := make([][]byte, 2)
	for i := range states {
		m := NewMemWith(MemOptions{Seed: 3})
		f := mustOpen(t, m, "a", os.O_RDWR|os.O_CREATE)
		for k := range 50 {
			mustWrite(t, f, int64(k*100), bytes.Repeat([]byte{byte(k)}, 3000))
		}
		must(t, m.SyncDir("/"))
		for seed := range uint64(50) {
			o := RandomCrash(seed)
			states[i] = append(states[i], content(t, m.Crash(o), "a")...)
		}
	}
	if !bytes.Equal(states[0], states[1]) {
		t.Fatal("the same seeds gave two results")
	}
}

// TestCrash_isCheap takes many clones of a file system as a log leaves it. The limit is far above what is needed, for
// slow machines and the race detector.
func TestCrash_isCheap(t *testing.T) {
	m := NewMem()
	must(t, m.MkdirAll("log", 0o755))
	for i := range 10 {
		f := mustOpen(t, m, fmt.Sprintf("log/%02d", i), os.O_RDWR|os.O_CREATE)
		mustWrite(t, f, 0, bytes.Repeat([]byte("data"), 8<<10))
	}
	m.SyncAll()
	f := mustOpen(t, m, "log/00", os.O_RDWR)
	mp, err := f.Map(32<<10, true)
	must(t, err)
	const clones = 2000
	start := time.Now()
	for i := range clones {
		mp.Bytes()[i] = byte(i)
		c := m.Crash(RandomCrash(uint64(i)))
		g := mustOpen(t, c, "log/01", os.O_RDWR)
		mustWrite(t, g, 0, []byte("x"))
	}
	per := time.Since(start) / clones
	t.Logf("%v a clone", per)
	if per > 2*time.Millisecond {
		t.Fatalf("%v a clone", per)
	}
}
