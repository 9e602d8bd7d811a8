package record

import "math/bits"

// Numbers inside a record are zig-zag encoded (0, -1, 1, -2 become 0, 1, 2, 3) and then written in groups of seven bits,
// lowest first, with the top bit of each byte set but for the last one.
const (
	maxVarintBytes  = 5
	maxVarlongBytes = 10
)

func zigzag32(v int32) uint32   { return uint32(v<<1) ^ uint32(v>>31) }
func unzigzag32(u uint32) int32 { return int32(u>>1) ^ -int32(u&1) }
func zigzag64(v int64) uint64   { return uint64(v<<1) ^ uint64(v>>63) }
func unzigzag64(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }

func appendVarint(dst []byte, v int32) []byte { return appendUvarint(dst, uint64(zigzag32(v))) }

func appendVarlong(dst []byte, v int64) []byte { return appendUvarint(dst, zigzag64(v)) }

func appendUvarint(dst []byte, u uint64) []byte {
	for u >= 0x80 {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
}

func sizeVarint(v int32) int { return sizeUvarint(uint64(zigzag32(v))) }

func sizeVarlong(v int64) int { return sizeUvarint(zigzag64(v)) }

func sizeUvarint(u uint64) int { return (bits.Len64(u|1) + 6) / 7 }

// varint decodes the number that p starts with and returns how many bytes it takes: 0 if p ends inside it, a negative
// number if its fifth byte still announces another one. Bits of the fifth byte that do not fit are dropped, as Kafka's
// ByteUtils.readVarint drops them.
func varint(p []byte) (v int32, n int) {
	var u uint32
	for i := range min(len(p), maxVarintBytes) {
		c := p[i]
		u |= uint32(c&0x7f) << (7 * i)
		if c < 0x80 {
			return unzigzag32(u), i + 1
		}
	}
	return 0, unfinished(p, maxVarintBytes)
}

// varlong is varint for 64 bits and at most ten bytes.
func varlong(p []byte) (v int64, n int) {
	var u uint64
	for i := range min(len(p), maxVarlongBytes) {
		c := p[i]
		u |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			return unzigzag64(u), i + 1
		}
	}
	return 0, unfinished(p, maxVarlongBytes)
}

func unfinished(p []byte, limit int) int {
	if len(p) < limit {
		return 0
	}
	return -limit
}
