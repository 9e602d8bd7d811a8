package record

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

func TestChecksum(t *testing.T) {
	if got := Checksum([]byte("123456789")); got != 0xe3069283 {
		t.Errorf("check value %08x", got)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	p := make([]byte, 3*chainedFrom)
	for i := range p {
		p[i] = byte(rng.Uint32())
	}
	for n := range p {
		if got, want := Checksum(p[:n]), crc32.Checksum(p[:n], crc32.MakeTable(crc32.Castagnoli)); got != want {
			t.Fatalf("%d bytes: %08x, want %08x", n, got, want)
		}
	}
}

func BenchmarkChecksum(b *testing.B) {
	for _, size := range []int{100, 1 << 10, 16 << 10, 64 << 10} {
		// 64 MiB are more than the caches hold: each call finds its bytes in memory.
		p := make([]byte, 64<<20)
		for i := range p {
			p[i] = byte(i * 7)
		}
		table := crc32.MakeTable(crc32.Castagnoli)
		for name, sum := range map[string]func([]byte) uint32{
			"chained": Checksum,
			"whole":   func(p []byte) uint32 { return crc32.Checksum(p, table) },
		} {
			b.Run(fmt.Sprintf("cold/%s/bytes=%d", name, size), func(b *testing.B) {
				b.SetBytes(int64(size))
				pos := 0
				for b.Loop() {
					if pos+size > len(p) {
						pos = 0
					}
					sum(p[pos : pos+size])
					pos += size
				}
			})
		}
	}
}
