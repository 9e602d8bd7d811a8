package record

import (
	"encoding/binary"
	"math/bits"
)

// The constants of XXH32.
const (
	xxh32Prime1 uint32 = 2654435761
	xxh32Prime2 uint32 = 2246822519
	xxh32Prime3 uint32 = 3266489917
	xxh32Prime4 uint32 = 668265263
	xxh32Prime5 uint32 = 374761393
)

// xxh32 returns the XXH32 hash of p with seed 0, which LZ4 frames carry as their checksums.
func xxh32(p []byte) uint32 {
	size := uint32(len(p))
	h := xxh32Prime5
	if len(p) >= 16 {
		// The sums wrap, which constant expressions may not.
		prime1, prime2 := xxh32Prime1, xxh32Prime2
		v1, v2, v3, v4 := prime1+prime2, prime2, uint32(0), -prime1
		for len(p) >= 16 {
			v1 = xxh32Round(v1, binary.LittleEndian.Uint32(p))
			v2 = xxh32Round(v2, binary.LittleEndian.Uint32(p[4:]))
			v3 = xxh32Round(v3, binary.LittleEndian.Uint32(p[8:]))
			v4 = xxh32Round(v4, binary.LittleEndian.Uint32(p[12:]))
			p = p[16:]
		}
		h = bits.RotateLeft32(v1, 1) + bits.RotateLeft32(v2, 7) + bits.RotateLeft32(v3, 12) + bits.RotateLeft32(v4, 18)
	}
	h += size
	for ; len(p) >= 4; p = p[4:] {
		h += binary.LittleEndian.Uint32(p) * xxh32Prime3
		h = bits.RotateLeft32(h, 17) * xxh32Prime4
	}
	for _, c := range p {
		h += uint32(c) * xxh32Prime5
		h = bits.RotateLeft32(h, 11) * xxh32Prime1
	}
	h ^= h >> 15
	h *= xxh32Prime2
	h ^= h >> 13
	h *= xxh32Prime3
	return h ^ h>>16
}

func xxh32Round(v, lane uint32) uint32 {
	return bits.RotateLeft32(v+lane*xxh32Prime2, 13) * xxh32Prime1
}
