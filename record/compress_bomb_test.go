package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
)

// allocated returns how many bytes f allocates, garbage included. Pools are emptied first, so that what f takes counts.
func allocated(f func()) int64 {
	runtime.GC()
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// bombZstd is a frame of n blocks that repeat a byte 128 KiB times, of four bytes each, with the given window descriptor.
func bombZstd(n int, window byte) string {
	var f strings.Builder
	f.WriteString(le32(zstdMagic) + "\x00")
	f.WriteByte(window)
	for i := range n {
		header := uint32(zstdBlockBytes<<3 | zstdBlockRLE<<1)
		if i == n-1 {
			header |= 1
		}
		f.WriteString(le32(header)[:3] + "x")
	}
	return f.String()
}

// bombLZ4 is a block that repeats a byte up to the given size, 255 times per byte of it.
func bombLZ4(size int) string {
	block := "\x1fx\x01\x00" // one literal, then a copy of 19 and more
	size -= 1 + 19 + 5
	block += strings.Repeat("\xff", size/255) + string([]byte{byte(size % 255)})
	return block + "\x50xxxxx" // the last five bytes of a block are literals
}

// bombSnappy is a block of n copies of 64 bytes, three bytes each.
func bombSnappy(n int) string {
	return string(binary.AppendUvarint(nil, uint64(1+64*n))) + "\x00x" + strings.Repeat("\xfe\x01\x00", n)
}

// TestDecompressor_Bombs reads forged payloads to their end. What they cost must not depend on what they claim, and not on
// how much they produce beyond a block and a window.
func TestDecompressor_Bombs(t *testing.T) {
	gzipZeros := string(mustCompress(t, Gzip, 9, make([]byte, 64<<20)))
	lz4Block := bombLZ4(64 << 10)
	lz4Large := bombLZ4(4 << 20)
	for _, b := range []struct {
		name    string
		codec   Compression
		payload string
		size    int64 // what it produces, -1 for an error
		limit   int64 // of the bytes allocated
	}{
		{"snappy, ten bytes claiming 4 GiB", Snappy, "\xff\xff\xff\xff\x0f\x00abcd", -1, 16 << 10},
		{"snappy, ten bytes claiming 1 GiB", Snappy, "\x80\x80\x80\x80\x04\x00abcd", -1, 16 << 10},
		{"snappy, the same in a chunk", Snappy, snappyHeader + be32(10) + "\x80\x80\x80\x80\x04\x00abcd", -1, 16 << 10},
		{"snappy, literal claiming 4 GiB", Snappy, "\xff\xff\xff\xff\x07\xfc\xfe\xff\xff\x7fabcd", -1, 16 << 10},
		{"snappy, as dense as it gets", Snappy, bombSnappy(100_000), 1 + 6_400_000, 8 << 20},
		{"snappy, many chunks", Snappy, snappyHeader + strings.Repeat(be32(uint32(len(bombSnappy(500))))+bombSnappy(500), 1000), 32_001_000, 128 << 10},
		{"gzip, 1000 to 1", Gzip, gzipZeros, 64 << 20, 256 << 10},
		{"lz4, content size 2^63-1", LZ4, lz4Frame(0x68, 0x70, "\xff\xff\xff\xff\xff\xff\xff\x7f", "text"), 4, 16 << 10},
		{"lz4, tiny block where 4 MiB are allowed", LZ4, lz4Frame(0x60, 0x70, "")[:7] + le32(7) + "\x10x\x50xxxxx"[:7] + le32(0), -1, 16 << 10},
		{"lz4, 250 to 1", LZ4, lz4Frame(0x60, 0x40, "")[:7] + strings.Repeat(le32(uint32(len(lz4Block)))+lz4Block, 1000) + le32(0), 64 << 10 * 1000, 256 << 10},
		{"lz4, 250 to 1 in 4 MiB", LZ4, lz4Frame(0x60, 0x70, "")[:7] + strings.Repeat(le32(uint32(len(lz4Large)))+lz4Large, 20) + le32(0), 80 << 20, 5 << 20},
		{"zstd, window of 128 MiB for a byte", Zstd, le32(zstdMagic) + "\x00\x88\x09\x00\x00x", 1, 1 << 20},
		{"zstd, window of 128 MiB for nothing", Zstd, le32(zstdMagic) + "\x00\x88\x01\x00\x00", 0, 1 << 20},
		{"zstd, window of 128 MiB and no block", Zstd, le32(zstdMagic) + "\x00\x88", -1, 16 << 10},
		{"zstd, 32,000 to 1", Zstd, bombZstd(8000, 11<<3), 8000 * 128 << 10, 5 << 20},
		{"zstd, many frames with wide windows", Zstd, strings.Repeat(bombZstd(1, 17<<3), 500), 500 * 128 << 10, 1 << 20},
	} {
		t.Run(b.name, func(t *testing.T) {
			payload := []byte(b.payload)
			buf := make([]byte, 16<<10)
			var n int64
			var err error
			cost := allocated(func() {
				var r io.ReadCloser
				if r, err = decompressor(b.codec, Magic, payload); err != nil {
					return
				}
				n, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r}, buf)
				_ = r.Close()
			})
			if b.size < 0 && err == nil || b.size >= 0 && (err != nil || n != b.size) {
				t.Errorf("%d bytes, %v; want %d", n, err, b.size)
			}
			if cost > b.limit {
				t.Errorf("%d bytes allocated for a payload of %d, want at most %d", cost, len(payload), b.limit)
			}
			t.Logf("%d -> %d bytes, %d allocated", len(payload), n, cost)
		})
	}
}

// TestRecords_Bomb reads a wrapper and a batch whose only record claims to be huge and whose payload goes on and on.
func TestRecords_Bomb(t *testing.T) {
	const produced = 64 << 20
	for name, claim := range map[string]uint32{"as much as there is": produced - 12, "twice as much": 2 * produced} {
		plain := make([]byte, produced)
		binary.BigEndian.PutUint32(plain[posLength:], claim)
		b := legacyMessage(5, 1, Attributes(Gzip), 0, nil, mustCompress(t, Gzip, 9, plain))
		for _, tt := range []struct {
			limit int
			most  int64
		}{{1 << 20, 1 << 20}, {0, 5 * produced}} {
			var err error
			cost := allocated(func() {
				for _, err = range b.Records(Limits{MaxRecordBytes: tt.limit}) {
				}
			})
			if !errors.Is(err, ErrInvalidRecord) || cost > tt.most {
				t.Errorf("%s, limit %d: %d bytes allocated, want at most %d; %v", name, tt.limit, cost, tt.most, err)
			}
		}
	}
	// A window or a block belongs to the codec and not to a record: reading the first record takes no more than that.
	small := legacyMessage(0, 1, 0, 7, nil, []byte("v"))
	plain := append(bytes.Clone(small), make([]byte, produced)...)
	for _, c := range []Compression{Gzip, LZ4} {
		b := legacyMessage(0, 1, Attributes(c), 7, nil, mustCompress(t, c, 0, plain))
		cost := allocated(func() {
			for r, err := range b.Records(Limits{}) {
				if err != nil || string(r.Value) != "v" {
					t.Errorf("%s: %q, %v", c, r.Value, err)
				}
				break
			}
		})
		if cost > 512<<10 {
			t.Errorf("%s: %d bytes allocated for the first record", c, cost)
		}
	}
}
