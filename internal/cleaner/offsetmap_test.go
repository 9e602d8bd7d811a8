package cleaner

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The map against Go's, with a hash that collides all the time, within a limit that it keeps.
func TestOffsetMap_Model(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		limit := rapid.Int64Range(0, 60_000).Draw(r, "limit")
		m := newOffsetMap(limit)
		bits := rapid.SampledFrom([]uint64{0, 3, 0xffff_ffff, ^uint64(0)}).Draw(r, "bits of the hash")
		hash := m.hash
		m.hash = func(key []byte) uint64 { return hash(key) & bits }
		want := map[string]int64{}
		full := false
		for i := range rapid.IntRange(0, 600).Draw(r, "puts") {
			key := fmt.Sprint(rapid.IntRange(0, 400).Draw(r, "key"))
			if i%7 == 0 {
				key = strings.Repeat(key, rapid.IntRange(0, 300).Draw(r, "times"))
			}
			offset := rapid.Int64Range(0, 1<<40).Draw(r, "offset")
			before := m.bytes
			ok := m.put([]byte(key), offset, false)
			_, known := want[key]
			if !ok && known {
				r.Fatalf("no room for a key that is there")
			}
			if ok {
				want[key] = max(want[key], offset)
			}
			full = full || !ok
			if m.bytes > max(limit, firstSlots*slotBytes) || !ok && m.bytes != before && m.bytes > limit {
				r.Fatalf("%d bytes, the limit is %d", m.bytes, limit)
			}
		}
		if m.used != len(want) {
			r.Fatalf("%d keys, want %d", m.used, len(want))
		}
		for key, offset := range want {
			if got := m.get([]byte(key)); got != offset {
				r.Fatalf("%q: %d, want %d", key, got, offset)
			}
		}
		for _, key := range []string{"no such key", "-1", "401"} {
			if got := m.get([]byte(key)); got != -1 {
				r.Fatalf("%q is at %d, was never put", key, got)
			}
		}
	})
}

// Keys of any length, offset 0, and a limit that does not count for what must be taken.
func TestOffsetMap_Limits(t *testing.T) {
	m := newOffsetMap(1)
	big := []byte(strings.Repeat("k", 3<<20))
	if m.put(big, 0, false) || m.put(nil, 0, false) {
		t.Error("there was room in one byte")
	}
	for i, key := range [][]byte{big, {}, []byte("a"), big[:1<<20], big[:1<<20-1], big[:1<<20-5]} {
		if !m.put(key, int64(i), true) {
			t.Fatalf("key %d of %d bytes was not taken", i, len(key))
		}
	}
	for i, key := range [][]byte{big, {}, []byte("a"), big[:1<<20], big[:1<<20-1], big[:1<<20-5]} {
		if got := m.get(key); got != int64(i) {
			t.Errorf("key %d of %d bytes: %d", i, len(key), got)
		}
	}
	// A key that is there needs no room.
	if !m.put([]byte("a"), 7, false) || m.get([]byte("a")) != 7 || !m.put([]byte("a"), 3, false) || m.get([]byte("a")) != 7 {
		t.Error("the greatest offset is not kept")
	}
}

// The memory of a key of sixteen bytes: at most 45 bytes where the table has just grown.
func TestOffsetMap_BytesPerKey(t *testing.T) {
	for _, limit := range []int64{1 << 20, 8 << 20} {
		m := newOffsetMap(limit)
		n := 0
		for m.put(fmt.Appendf(nil, "%016d", n), int64(n), false) {
			n++
		}
		if per := float64(limit) / float64(n); per > 80 {
			t.Errorf("limit %d: %d keys, %.1f bytes of the limit each", limit, n, per)
		}
		t.Logf("limit %d: %d keys, %.1f bytes each", limit, n, float64(m.bytes)/float64(n))
	}
}

func BenchmarkOffsetMap(b *testing.B) {
	keys := make([][]byte, 1<<16)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "key-%012d", i*7919)
	}
	m := newOffsetMap(1 << 30)
	b.Run("put", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			m.put(keys[i&(len(keys)-1)], int64(i), false)
		}
	})
	b.Run("get", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			m.get(keys[i&(len(keys)-1)])
		}
	})
}
