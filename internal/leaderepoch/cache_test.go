package leaderepoch_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/oncelog/oncelog/internal/leaderepoch"
	"github.com/oncelog/oncelog/internal/vfs"
	"pgregory.net/rapid"
)

// cache returns a cache with the given pairs of epoch and start offset.
func cache(t testing.TB, pairs ...[2]int64) *leaderepoch.Cache {
	t.Helper()
	c := leaderepoch.New(vfs.OS, "none", true)
	for _, p := range pairs {
		if _, err := c.Assign(int32(p[0]), p[1]); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func pairs(c *leaderepoch.Cache) [][2]int64 {
	out := [][2]int64{}
	for _, e := range c.Entries() {
		out = append(out, [2]int64{int64(e.Epoch), e.StartOffset})
	}
	return out
}

func TestEndOffsetFor(t *testing.T) {
	const end = 300
	c := cache(t, [2]int64{0, 0}, [2]int64{5, 100}, [2]int64{7, 250})
	late := cache(t, [2]int64{2, 40}, [2]int64{4, 60})
	for _, q := range []struct {
		name      string
		c         *leaderepoch.Cache
		requested int32
		epoch     int32
		offset    int64
	}{
		{"newest", c, 7, 7, end},
		{"known", c, 5, 5, 250},
		{"between two", c, 6, 5, 250},
		{"between the first two", c, 3, 0, 100},
		{"oldest", c, 0, 0, 100},
		{"above the newest", c, 8, -1, -1},
		{"undefined", c, -1, -1, -1},
		{"below the oldest", late, 1, 1, 40},
		{"far below the oldest", late, 0, 0, 40},
		{"no entries", cache(t), 0, -1, -1},
		{"no entries, undefined", cache(t), -1, -1, -1},
	} {
		t.Run(q.name, func(t *testing.T) {
			if epoch, offset := q.c.EndOffsetFor(q.requested, end); epoch != q.epoch || offset != q.offset {
				t.Errorf("epoch %d: got (%d, %d), want (%d, %d)", q.requested, epoch, offset, q.epoch, q.offset)
			}
		})
	}
}

func TestEpochForOffset(t *testing.T) {
	c := cache(t, [2]int64{2, 10}, [2]int64{5, 100}, [2]int64{7, 250})
	for offset, want := range map[int64]int32{-1: -1, 0: -1, 9: -1, 10: 2, 99: 2, 100: 5, 249: 5, 250: 7, 1 << 62: 7} {
		epoch, ok := c.EpochForOffset(offset)
		if epoch != want || ok != (want >= 0) {
			t.Errorf("offset %d: epoch %d, %v; want %d", offset, epoch, ok, want)
		}
	}
	if _, ok := cache(t).EpochForOffset(0); ok {
		t.Error("an empty cache knows an epoch")
	}
}

func TestAssign(t *testing.T) {
	full := [][2]int64{{1, 10}, {3, 30}, {5, 50}}
	for _, c := range []struct {
		name    string
		epoch   int32
		start   int64
		changed bool
		want    [][2]int64
	}{
		{"same epoch further on", 5, 60, false, full},
		{"same entry", 5, 50, false, full},
		{"new epoch", 6, 60, true, [][2]int64{{1, 10}, {3, 30}, {5, 50}, {6, 60}}},
		{"new epoch where the newest starts: no record was written in that one", 6, 50, true, [][2]int64{{1, 10}, {3, 30}, {6, 50}}},
		{"newest epoch starts earlier", 5, 40, true, [][2]int64{{1, 10}, {3, 30}, {5, 40}}},
		{"newest epoch starts below the one before", 5, 20, true, [][2]int64{{1, 10}, {5, 20}}},
		{"lower epoch at the end removes the newest", 4, 60, true, [][2]int64{{1, 10}, {3, 30}, {4, 60}}},
		{"known lower epoch", 3, 60, true, [][2]int64{{1, 10}, {3, 60}}},
		{"below everything", 0, 0, true, [][2]int64{{0, 0}}},
		{"higher epoch below every start", 9, 5, true, [][2]int64{{9, 5}}},
		{"greatest numbers", 1<<31 - 1, 1<<63 - 1, true, [][2]int64{{1, 10}, {3, 30}, {5, 50}, {1<<31 - 1, 1<<63 - 1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := cache(t, full...)
			before := x.Entries()
			changed, err := x.Assign(c.epoch, c.start)
			if err != nil || changed != c.changed {
				t.Errorf("changed %v, %v", changed, err)
			}
			if diff := cmp.Diff(c.want, pairs(x)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(pairs(cache(t, full...)), asPairs(before)); diff != "" {
				t.Errorf("a slice handed out before changed:\n%s", diff)
			}
		})
	}
	x := cache(t, full...)
	for _, bad := range [][2]int64{{-1, 60}, {6, -1}} {
		if changed, err := x.Assign(int32(bad[0]), bad[1]); err == nil || changed {
			t.Errorf("%v: changed %v, %v; want an error", bad, changed, err)
		}
	}
	if diff := cmp.Diff(full, pairs(x)); diff != "" {
		t.Errorf("after refused entries:\n%s", diff)
	}
}

func asPairs(entries []leaderepoch.Entry) [][2]int64 {
	out := [][2]int64{}
	for _, e := range entries {
		out = append(out, [2]int64{int64(e.Epoch), e.StartOffset})
	}
	return out
}

func TestTruncate(t *testing.T) {
	full := [][2]int64{{1, 10}, {3, 30}, {5, 50}}
	for _, c := range []struct {
		name string
		cut  func(*leaderepoch.Cache) bool
		want [][2]int64 // nil: unchanged
	}{
		{"end beyond the newest start", func(c *leaderepoch.Cache) bool { return c.TruncateFromEnd(51) }, nil},
		{"end at the newest start", func(c *leaderepoch.Cache) bool { return c.TruncateFromEnd(50) }, [][2]int64{{1, 10}, {3, 30}}},
		{"end between", func(c *leaderepoch.Cache) bool { return c.TruncateFromEnd(11) }, [][2]int64{{1, 10}}},
		{"end at the oldest start", func(c *leaderepoch.Cache) bool { return c.TruncateFromEnd(10) }, [][2]int64{}},
		{"end at 0", func(c *leaderepoch.Cache) bool { return c.TruncateFromEnd(0) }, [][2]int64{}},
		{"negative end", func(c *leaderepoch.Cache) bool { return c.TruncateFromEnd(-1) }, nil},
		{"start below the oldest", func(c *leaderepoch.Cache) bool { return c.TruncateFromStart(9) }, nil},
		{"start at the oldest", func(c *leaderepoch.Cache) bool { return c.TruncateFromStart(10) }, nil},
		{"start inside the oldest", func(c *leaderepoch.Cache) bool { return c.TruncateFromStart(29) }, [][2]int64{{1, 29}, {3, 30}, {5, 50}}},
		{"start at the second", func(c *leaderepoch.Cache) bool { return c.TruncateFromStart(30) }, [][2]int64{{3, 30}, {5, 50}}},
		{"start inside the newest", func(c *leaderepoch.Cache) bool { return c.TruncateFromStart(70) }, [][2]int64{{5, 70}}},
		{"negative start", func(c *leaderepoch.Cache) bool { return c.TruncateFromStart(-1) }, nil},
		{"clear", (*leaderepoch.Cache).Clear, [][2]int64{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := cache(t, full...)
			before := x.Entries()
			changed := c.cut(x)
			want := c.want
			if want == nil {
				want = full
			}
			if changed != (c.want != nil) {
				t.Errorf("changed %v", changed)
			}
			if diff := cmp.Diff(want, pairs(x)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(full, asPairs(before)); diff != "" {
				t.Errorf("a slice handed out before changed:\n%s", diff)
			}
		})
	}
	if x := cache(t); x.TruncateFromEnd(0) || x.TruncateFromStart(5) || x.Clear() {
		t.Error("truncating nothing changed something")
	}
}

func TestEarliestAndLatest(t *testing.T) {
	c := cache(t)
	if _, ok := c.Earliest(); ok {
		t.Error("an empty cache has an earliest entry")
	}
	if _, ok := c.Latest(); ok {
		t.Error("an empty cache has a latest entry")
	}
	c = cache(t, [2]int64{1, 10}, [2]int64{3, 30})
	first, _ := c.Earliest()
	last, _ := c.Latest()
	if first != (leaderepoch.Entry{Epoch: 1, StartOffset: 10}) || last != (leaderepoch.Entry{Epoch: 3, StartOffset: 30}) {
		t.Errorf("from %v to %v", first, last)
	}
}

// model is a map from epoch to start offset with every question answered by walking over all of it.
type model map[int32]int64

func (m model) latest() int32 {
	latest := int32(-1)
	for epoch := range m {
		latest = max(latest, epoch)
	}
	return latest
}

// assign removes entries from the newest down as long as they are at or above the new one in either column.
func (m model) assign(epoch int32, start int64) {
	latest := m.latest()
	if latest == epoch && start >= m[latest] {
		return
	}
	for latest := m.latest(); latest >= 0 && (latest >= epoch || m[latest] >= start); latest = m.latest() {
		delete(m, latest)
	}
	m[epoch] = start
}

func (m model) truncateFromStart(start int64) {
	last := int32(-1)
	for epoch, s := range m {
		if s <= start {
			last = max(last, epoch)
			delete(m, epoch)
		}
	}
	if last >= 0 {
		m[last] = start
	}
}

func (m model) endOffsetFor(requested int32, end int64) (int32, int64) {
	floor, higher := int32(-1), int32(-1)
	for epoch := range m {
		if epoch <= requested {
			floor = max(floor, epoch)
		} else if higher < 0 || epoch < higher {
			higher = epoch
		}
	}
	switch {
	case requested == -1:
		return -1, -1
	case requested == m.latest():
		return requested, end
	case higher < 0:
		return -1, -1
	case floor < 0:
		return requested, m[higher]
	}
	return floor, m[higher]
}

func (m model) epochForOffset(offset int64) int32 {
	found := int32(-1)
	for epoch, start := range m {
		if start <= offset {
			found = max(found, epoch)
		}
	}
	return found
}

func (m model) pairs() [][2]int64 {
	out := [][2]int64{}
	for epoch, start := range m {
		out = append(out, [2]int64{int64(epoch), start})
	}
	slices.SortFunc(out, func(a, b [2]int64) int { return int(a[0] - b[0]) })
	return out
}

func TestCache_Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, m := leaderepoch.New(vfs.OS, "none", true), model{}
		epochs, offsets := rapid.Int32Range(-1, 12), rapid.Int64Range(-1, 40)
		t.Repeat(map[string]func(*rapid.T){
			"assign": func(t *rapid.T) {
				epoch, start := epochs.Draw(t, "epoch"), offsets.Draw(t, "start")
				before := m.pairs()
				changed, err := c.Assign(epoch, start)
				if epoch < 0 || start < 0 {
					if err == nil || changed {
						t.Fatalf("negative entry: %v, %v", changed, err)
					}
					return
				}
				m.assign(epoch, start)
				if err != nil || changed != !cmp.Equal(before, m.pairs()) {
					t.Fatalf("changed %v, %v: from %v to %v", changed, err, before, m.pairs())
				}
			},
			"truncateFromEnd": func(t *rapid.T) {
				end := offsets.Draw(t, "end")
				changed := c.TruncateFromEnd(end)
				before := len(m)
				if end >= 0 {
					for epoch, start := range m {
						if start >= end {
							delete(m, epoch)
						}
					}
				}
				if changed != (len(m) != before) {
					t.Fatalf("changed %v", changed)
				}
			},
			"truncateFromStart": func(t *rapid.T) {
				start := offsets.Draw(t, "start")
				before := m.pairs()
				changed := c.TruncateFromStart(start)
				m.truncateFromStart(start)
				if changed != !cmp.Equal(before, m.pairs()) {
					t.Fatalf("changed %v: from %v to %v", changed, before, m.pairs())
				}
			},
			"": func(t *rapid.T) {
				if want := m.pairs(); !cmp.Equal(want, pairs(c)) {
					t.Fatalf("model %v, cache %v", want, pairs(c))
				}
				const end = 41
				for epoch := int32(-1); epoch <= 13; epoch++ {
					we, wo := m.endOffsetFor(epoch, end)
					if ge, gotOffset := c.EndOffsetFor(epoch, end); ge != we || gotOffset != wo {
						t.Fatalf("%v: end of epoch %d: got (%d, %d), want (%d, %d)", m.pairs(), epoch, ge, gotOffset, we, wo)
					}
				}
				for offset := int64(-1); offset <= end; offset++ {
					got, ok := c.EpochForOffset(offset)
					if want := m.epochForOffset(offset); got != want || ok != (want >= 0) {
						t.Fatalf("%v: epoch of offset %d: got %d, %v, want %d", m.pairs(), offset, got, ok, want)
					}
				}
				// What is in memory can always be written and read back.
				again, err := leaderepoch.Decode("f", c.Encode())
				if err != nil || !slices.Equal(again, c.Entries()) {
					t.Fatalf("%q: %v, %v", c.Encode(), again, err)
				}
			},
		})
	})
}

// TestCache_Readers lets readers run beside a writer; every view must be ascending, whatever the writer does.
func TestCache_Readers(t *testing.T) {
	c := cache(t)
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				entries := c.Entries()
				for i := 1; i < len(entries); i++ {
					if entries[i-1].Epoch >= entries[i].Epoch || entries[i-1].StartOffset >= entries[i].StartOffset {
						t.Errorf("not ascending: %v", entries)
						return
					}
				}
				if epoch, offset := c.EndOffsetFor(1, 1000); epoch > 1 || offset > 1000 {
					t.Errorf("end of epoch 1: (%d, %d)", epoch, offset)
				}
				c.EpochForOffset(500)
			}
		})
	}
	for i := range 2000 {
		step := int64(i % 50)
		if _, err := c.Assign(int32(step), step*20); err != nil {
			t.Error(err)
		}
		switch i % 7 {
		case 3:
			c.TruncateFromEnd(step * 19)
		case 5:
			c.TruncateFromStart(step * 3)
		}
	}
	close(done)
	readers.Wait()
}
