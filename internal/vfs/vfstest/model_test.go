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

func TestMem_againstNaiveModel(t *testing.T) {
	crashes := 0
	for seed := range uint64(150) {
		r := newRand(t, seed)
		m := NewMemWith(MemOptions{Seed: seed})
		f := mustOpen(t, m, "a", os.O_RDWR|os.O_CREATE)
		must(t, m.SyncDir("/"))
		model := &naive{versions: [][]byte{nil}}
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
				if got := content(t, base.Crash(CrashOptions{Mode: PowerCut, Seed: seed<<8 | k}), "a"); !model.explains(got) {
					t.Fatalf("seed %d, step %d, crash %d: no version explains what a power cut left", seed, step, k)
				}
			}
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
