package record

import "hash/crc32"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const (
	// Inputs of this size and above are likely to come from memory rather than from a cache.
	chainedFrom = 4 << 10
	// A step of this size lets the standard library interleave streams that are 168 bytes apart on amd64. In longer
	// inputs it interleaves streams 1344 bytes apart, which is fastest for cached data but defeats the hardware's
	// prefetcher: cold data goes through at less than half the speed. The number is four rounds of 3 times 168.
	chainStep = 2016
)

// Checksum returns the CRC-32C (Castagnoli) of p, the checksum of a v2 batch over everything from its attributes on. Large
// inputs are fed in small steps, which is faster when they are not in a cache, the common case of recovery and reads.
func Checksum(p []byte) uint32 {
	if len(p) < chainedFrom {
		return crc32.Checksum(p, castagnoli)
	}
	crc := uint32(0)
	for len(p) > chainStep {
		crc = crc32.Update(crc, castagnoli, p[:chainStep])
		p = p[chainStep:]
	}
	return crc32.Update(crc, castagnoli, p)
}
