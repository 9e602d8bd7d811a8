package vfstest

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
)

// naive is a file as its definition says: every content that it had since its last sync, the synced one first.
type naive struct {
	versions [][]byte
}

func (n *naive) now() []byte { return n.versions[len(n.versions)-1] }

// next begins a new version of the given size.
func (n *naive) next(size int) []byte {
	p := make([]byte, size)
	copy(p, n.now())
	n.versions = append(n.versions, p)
	return p
}

// sync forgets all versions but the last. A sync of data keeps a size that was cut, and the bytes behind it.
func (n *naive) sync(metadata bool) {
	p := bytes.Clone(n.now())
	if old := n.versions[0]; !metadata && len(p) < len(old) {
		n.versions = [][]byte{append(bytes.Clone(p), old[len(p):]...), p}
		return
	}
	n.versions = [][]byte{p}
}

// explains says whether got can be what a power cut left.
func (n *naive) explains(got []byte) bool {
	size := false
	for _, v := range n.versions {
		size = size || len(v) == len(got)
	}
	for off := 0; off < len(got); off += sectorSize {
		sector, found := got[off:min(off+sectorSize, len(got))], false
		for _, v := range n.versions {
			want := make([]byte, sectorSize)
			if off < len(v) {
				copy(want, v[off:])
			}
			found = found || bytes.Equal(sector, want[:len(sector)])
		}
		if !found {
			return false
		}
	}
	return size
}

// clone is a crash clone with what could be read from it when it was made.
type clone struct {
	m     *Mem
	modes [4][]byte // by crash mode, after a second crash
}

func freeze(t *testing.T, m *Mem, o CrashOptions) clone {
	c := clone{m: m.Crash(o)}
	for mode := range c.modes {
		c.modes[mode] = c.read(t, CrashMode(mode))
	}
	// A twin from the same moment changes in every way, at once and again after a sync.
	twin := m.Crash(o)
	f := mustOpen(t, twin, "a", os.O_RDWR)
	for range 2 {
		size, before := len(content(t, twin, "a")), content(t, twin.Crash(CrashOptions{Mode: AllLost}), "a")
		mustWrite(t, f, int64(size/2), bytes.Repeat([]byte("twin"), 1000))
		must(t, f.Truncate(int64(size/3)))
		must(t, f.Truncate(int64(size+9000)))
		if tail := content(t, twin, "a")[size/3:]; !bytes.Equal(tail, make([]byte, len(tail))) {
			t.Fatal("a clone that was cut and grown shows old bytes")
		}
		if lost := content(t, twin.Crash(CrashOptions{Mode: AllLost}), "a"); !bytes.Equal(lost, before) {
			t.Fatalf("unsynced changes of a clone are durable from byte %d on", firstDifference(lost, before))
		}
		must(t, f.Allocate(int64(size+9000)))
		mp, err := f.Map(size+9000, true)
		must(t, err)
		fill(mp.Bytes(), 't')
		must(t, mp.Close())
		must(t, f.Sync())
	}
	return c
}

func (c clone) read(t *testing.T, mode CrashMode) []byte {
	// Space is part of what must not change under a clone.
	again := c.m.Crash(CrashOptions{Mode: mode, Seed: 5})
	return append(content(t, again, "a"), byte(again.Used()>>9))
}

func (c clone) check(t *testing.T) {
	t.Helper()
	for mode, want := range c.modes {
		if got := c.read(t, CrashMode(mode)); !bytes.Equal(got, want) {
			t.Fatalf("a clone changed with its original or a twin: %v, from byte %d", CrashMode(mode), firstDifference(got, want))
		}
	}
}

func TestMem_againstNaiveModel(t *testing.T) {
	crashes := 0
	for seed := range uint64(100) {
		r := newRand(t, seed)
		m := NewMemWith(MemOptions{Seed: seed})
		f := mustOpen(t, m, "a", os.O_RDWR|os.O_CREATE)
		must(t, m.SyncDir("/"))
		model := &naive{versions: [][]byte{nil}}
		var frozen []clone
		var mp vfs.Mapping
		for step := range 60 {
			size := len(model.now())
			switch op := r.IntN(10); {
			case op < 3:
				off, n := r.IntN(size+3000), r.IntN(6000)
				p := bytes.Repeat([]byte{byte(1 + r.IntN(255))}, n)
				mustWrite(t, f, int64(off), p)
				if n > 0 {
					copy(model.next(max(size, off+n))[off:], p)
				}
			case op == 3 && mp == nil:
				n := r.IntN(20000)
				must(t, f.Truncate(int64(n)))
				model.next(n)
			case op == 4:
				n := r.IntN(20000)
				must(t, f.Allocate(int64(n)))
				model.next(max(n, size))
			case op == 5:
				metadata := r.IntN(2) == 0
				if metadata {
					must(t, f.Sync())
				} else {
					must(t, f.SyncData())
				}
				model.sync(metadata)
			case op == 6 && mp != nil:
				must(t, mp.Close())
				mp = nil
			case op == 6 && size > 0:
				var err error
				mp, err = f.Map(1+r.IntN(size), true)
				must(t, err)
			case op >= 7 && mp != nil:
				b := mp.Bytes()
				from := r.IntN(len(b))
				to := from + r.IntN(min(2000, len(b)-from)+1)
				v := byte(r.IntN(256))
				p := model.next(size)
				for i := from; i < to; i++ {
					b[i], p[i] = v, v
				}
			case op == 7:
				must(t, f.DropCache(int64(r.IntN(10000)), 0))
			}
			if got := content(t, m, "a"); !bytes.Equal(got, model.now()) {
				t.Fatalf("seed %d, step %d: content differs at %d", seed, step, firstDifference(got, model.now()))
			}
			if !bytes.Equal(content(t, m.Crash(CrashOptions{}), "a"), model.now()) {
				t.Fatalf("seed %d, step %d: a kill changed the content", seed, step)
			}
			if step%9 == 0 {
				frozen = append(frozen, freeze(t, m, CrashOptions{Mode: CrashMode(r.IntN(4)), Seed: seed, Torn: true}))
			}
			base := m
			if step%7 == 0 {
				base = m.Crash(CrashOptions{Seed: seed}) // a power cut after a kill
			}
			lost := content(t, base.Crash(CrashOptions{Mode: AllLost}), "a")
			if !bytes.Equal(lost, model.versions[0]) {
				t.Fatalf("seed %d, step %d: the synced content differs at %d", seed, step, firstDifference(lost, model.versions[0]))
			}
			if kept := content(t, base.Crash(CrashOptions{Mode: AllKept}), "a"); !bytes.Equal(kept, model.now()) {
				t.Fatalf("seed %d, step %d: the newest content differs", seed, step)
			}
			for k := range uint64(3) {
				crashes++
				c := base.Crash(CrashOptions{Mode: PowerCut, Seed: seed<<8 | k})
				got := content(t, c, "a")
				if !model.explains(got) {
					t.Fatalf("seed %d, step %d, crash %d: no version explains what a power cut left", seed, step, k)
				}
				if used := c.Used(); used > int64(sectorsIn(int64(len(got))))*sectorSize {
					t.Fatalf("seed %d, step %d, crash %d: %d bytes taken by a file of %d", seed, step, k, used, len(got))
				}
				g := mustOpen(t, c, "a", os.O_RDWR)
				must(t, g.Truncate(int64(len(got)+5000)))
				if !bytes.Equal(content(t, c, "a"), append(got, make([]byte, 5000)...)) {
					t.Fatalf("seed %d, step %d, crash %d: a file that grew after a power cut shows old bytes", seed, step, k)
				}
			}
		}
		for _, c := range frozen {
			c.check(t)
		}
	}
	t.Logf("%d power cuts", crashes)
}

// TestMem_concurrent is for the race detector.
func TestMem_concurrent(t *testing.T) {
	m := NewMem()
	f := mustOpen(t, m, "a", os.O_RDWR|os.O_CREATE)
	must(t, f.Allocate(40000))
	mp, err := f.Map(40000, true)
	must(t, err)
	b := mp.Bytes()
	var wg sync.WaitGroup
	run := func(do func(i int) error) {
		wg.Go(func() {
			for i := range 300 {
				if err := do(i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	run(func(i int) error {
		b[i*100]++
		return nil
	})
	run(func(i int) error {
		_, err := f.WriteAt([]byte("written"), int64(30000+i))
		return err
	})
	run(func(i int) error { return errors.Join(f.SyncData(), m.SyncDir("/")) })
	run(func(i int) error {
		_, err := f.ReadAt(make([]byte, 40000), 0)
		return err
	})
	run(func(i int) error {
		c := m.Crash(RandomCrash(uint64(i)))
		g, err := c.OpenFile("b", os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return err
		}
		_, err = g.WriteAt([]byte("x"), 0)
		return err
	})
	run(func(i int) error {
		l, err := m.Lock("lock", 0, 1, true)
		if err != nil {
			return err
		}
		m.WriteBack()
		m.SparseStores()
		return l.Close()
	})
	run(func(i int) error { return vfs.WriteFileAtomic(m, "c", 0o644, []byte("content")) })
	wg.Wait()
	must(t, mp.Close())
}
