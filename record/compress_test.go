package record

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

var codecs = []Compression{Gzip, Snappy, LZ4, Zstd}

// decompress returns all that a payload decompresses to, but no more than 64 MiB of it.
func decompress(c Compression, magic int8, payload []byte) ([]byte, error) {
	r, err := decompressor(c, magic, payload)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, 64<<20))
}

func mustCompress(t testing.TB, c Compression, level int, plain []byte) []byte {
	t.Helper()
	p, err := appendCompressed(nil, c, level, plain)
	if err != nil {
		t.Fatalf("%s level %d: %v", c, level, err)
	}
	return p
}

// texts are plain texts of the sizes at which the codecs change their ways.
func texts() map[string][]byte {
	rng := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 300<<10)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	var words bytes.Buffer
	for i := 0; words.Len() < 300<<10; i++ {
		fmt.Fprintf(&words, "record %d has key %x;", i, rng.Uint32N(1000))
	}
	w := words.Bytes()
	return map[string][]byte{
		"empty": {}, "one byte": {7}, "short": []byte("key and value"), "text 200": w[:200], "text 255": w[:255], "text 256": w[:256],
		"text 1 KiB": w[:1<<10], "text 32 KiB": w[:32<<10], "text 32 KiB + 1": w[:32<<10+1], "text 64 KiB": w[:64<<10],
		"text 64 KiB + 1": w[:64<<10+1], "text 70 KiB": w[:70<<10], "text 128 KiB + 1": w[:128<<10+1], "text 300 KiB": w,
		"noise 1 KiB": noise[:1<<10], "noise 64 KiB": noise[:64<<10], "noise 300 KiB": noise,
		"zeros": make([]byte, 1<<20), "zeros 100 KiB": make([]byte, 100<<10),
		"noise then text": append(bytes.Clone(noise[:40<<10]), w[:40<<10]...),
	}
}

func TestCompress_RoundTrip(t *testing.T) {
	levels := map[Compression][]int{
		None: {0}, Snappy: {0}, Gzip: {0, -1, 1, 5, 9}, LZ4: {0, 9, 1, 4, 10, 17}, Zstd: {0, -131072, 1, 3, 6, 10, 22},
	}
	prefix := []byte("in front")
	for c, ls := range levels {
		for name, plain := range texts() {
			for _, level := range ls {
				out, err := appendCompressed(bytes.Clone(prefix), c, level, plain)
				if err != nil {
					t.Fatalf("%s level %d, %s: %v", c, level, name, err)
				}
				if !bytes.HasPrefix(out, prefix) {
					t.Fatalf("%s level %d, %s: the bytes in front were changed", c, level, name)
				}
				got, err := decompress(c, Magic, out[len(prefix):])
				if err != nil || !bytes.Equal(got, plain) {
					t.Errorf("%s level %d, %s: %d bytes of %d came back, %v", c, level, name, len(got), len(plain), err)
				}
			}
		}
	}
}

// TestCompress_Format pins the bytes that readers of the log see first.
func TestCompress_Format(t *testing.T) {
	text := texts()["text 70 KiB"]
	for c, want := range map[Compression]string{
		Gzip:   "\x1f\x8b\x08\x00\x00\x00\x00\x00",                       // deflate, no name, no time
		Snappy: "\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00", // header, then a chunk of less than 64 KiB
		LZ4:    "\x04\x22\x4d\x18\x60\x40\x82",                           // independent blocks of 64 KiB, nothing else
		Zstd:   "\x28\xb5\x2f\xfd\x00",                                   // a window, no checksum, no content size
		None:   string(text[:16]),
	} {
		if p := mustCompress(t, c, 0, text); !strings.HasPrefix(string(p), want) {
			t.Errorf("%s starts with % x, want % x", c, p[:len(want)], want)
		}
	}
	if p := mustCompress(t, Zstd, 0, text[:100]); p[4] != 0 {
		t.Errorf("zstd of 100 bytes has frame flags 0x%02x, want none", p[4])
	}
	// 300 KiB are ten chunks or five blocks.
	text = texts()["noise 300 KiB"]
	if p := mustCompress(t, LZ4, 0, text); len(p) != len(text)+len(lz4FrameHeader)+5*4+4 {
		t.Errorf("lz4 of noise takes %d bytes more than the noise", len(p)-len(text))
	}
	if p := mustCompress(t, Snappy, 0, text); len(p) < len(text)+len(snappyHeader)+10*8 || len(p) > len(text)+len(snappyHeader)+10*16 {
		t.Errorf("snappy of noise takes %d bytes more than the noise", len(p)-len(text))
	}
}

// TestCompress_Golden compares the payloads of the format's worked examples with what is written now.
func TestCompress_Golden(t *testing.T) {
	for name, c := range map[string]Compression{"snappy": Snappy, "lz4": LZ4} {
		payload := readHex(t, name)[posRecords:]
		plain, err := decompress(c, Magic, payload)
		if err != nil || !bytes.Equal(plain, readHex(t, "plain")[posRecords:]) {
			t.Errorf("%s: % x, %v", name, plain, err)
		}
		if again := mustCompress(t, c, 0, plain); !bytes.Equal(again, payload) {
			t.Errorf("%s: written as\n% x, want\n% x", name, again, payload)
		}
	}
}

func TestCompress_Levels(t *testing.T) {
	for _, c := range []struct {
		codec     Compression
		ok, wrong []int
	}{
		{None, []int{0}, []int{-1, 1}},
		{Snappy, []int{0}, []int{-1, 1}},
		{Gzip, []int{-1, 0, 1, 9}, []int{-2, 10}},
		{LZ4, []int{0, 1, 9, 17}, []int{-1, 18}},
		{Zstd, []int{-131072, -1, 0, 3, 22}, []int{-131073, 23}},
	} {
		for _, level := range c.ok {
			if err := c.codec.ValidateLevel(level); err != nil {
				t.Errorf("%s: %v", c.codec, err)
			}
		}
		for _, level := range c.wrong {
			if err := c.codec.ValidateLevel(level); !errors.Is(err, ErrCompressionLevel) {
				t.Errorf("%s level %d: %v", c.codec, level, err)
			}
			if _, err := appendCompressed(nil, c.codec, level, nil); !errors.Is(err, ErrCompressionLevel) {
				t.Errorf("%s level %d, appendCompressed: %v", c.codec, level, err)
			}
		}
	}
	text := texts()["text 300 KiB"]
	smaller := func(c Compression, slow, fast int) {
		t.Helper()
		if s, f := len(mustCompress(t, c, slow, text)), len(mustCompress(t, c, fast, text)); s >= f {
			t.Errorf("%s: level %d gives %d bytes, level %d gives %d", c, slow, s, fast, f)
		}
	}
	smaller(Gzip, 9, 1)
	smaller(LZ4, 17, 9)
	smaller(LZ4, 1, 9)
	smaller(Zstd, 22, 1)
	if !bytes.Equal(mustCompress(t, Gzip, 0, text), mustCompress(t, Gzip, -1, text)) ||
		!bytes.Equal(mustCompress(t, LZ4, 0, text), mustCompress(t, LZ4, 9, text)) ||
		!bytes.Equal(mustCompress(t, Zstd, 0, text), mustCompress(t, Zstd, 3, text)) {
		t.Error("level 0 is not the default level")
	}
}

func TestCompress_Unsupported(t *testing.T) {
	for _, c := range []Compression{5, 6, 7, -1} {
		if err := c.ValidateLevel(0); !errors.Is(err, ErrUnsupportedCompression) {
			t.Errorf("%s: ValidateLevel: %v", c, err)
		}
		if _, err := appendCompressed(nil, c, 0, nil); !errors.Is(err, ErrUnsupportedCompression) {
			t.Errorf("%s: appendCompressed: %v", c, err)
		}
		if _, err := decompressor(c, Magic, nil); !errors.Is(err, ErrUnsupportedCompression) {
			t.Errorf("%s: decompressor: %v", c, err)
		}
	}
	p := mustCompress(t, Zstd, 0, []byte("text"))
	for magic := range int8(2) {
		if _, err := decompressor(Zstd, magic, p); !errors.Is(err, ErrUnsupportedCompression) {
			t.Errorf("zstd with magic %d: %v", magic, err)
		}
	}
}

// TestDecompressor_SmallReads reads a byte at a time, closes twice and reads after that.
func TestDecompressor_SmallReads(t *testing.T) {
	text := texts()["text 70 KiB"]
	for _, c := range codecs {
		r, err := decompressor(c, Magic, mustCompress(t, c, 0, text))
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		for one := make([]byte, 1); ; {
			n, err := r.Read(one)
			got = append(got, one[:n]...)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", c, err)
			}
		}
		if !bytes.Equal(got, text) {
			t.Errorf("%s: %d bytes of %d", c, len(got), len(text))
		}
		if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("%s: %d, %v behind the end", c, n, err)
		}
		if n, err := r.Read(nil); n != 0 || err != nil {
			t.Errorf("%s: %d, %v for an empty buffer", c, n, err)
		}
		for n := range 2 {
			if err := r.Close(); err != nil {
				t.Errorf("%s: Close %d: %v", c, n+1, err)
			}
		}
		if _, err := r.Read(make([]byte, 1)); !errors.Is(err, errReaderClosed) {
			t.Errorf("%s: %v after Close", c, err)
		}
	}
}

// TestDecompressor_Reuse checks that nothing of one payload, whether read to its end, left half read or damaged, is seen by
// the next one that gets its buffers.
func TestDecompressor_Reuse(t *testing.T) {
	all := texts()
	for _, c := range codecs {
		for name, plain := range all {
			p := mustCompress(t, c, 0, plain)
			if r, err := decompressor(c, Magic, p); err == nil {
				_, _ = io.CopyN(io.Discard, r, int64(len(plain)/2))
				_ = r.Close()
			}
			_, _ = decompress(c, Magic, p[:len(p)/2])
			if got, err := decompress(c, Magic, p); err != nil || !bytes.Equal(got, plain) {
				t.Errorf("%s, %s: %d bytes of %d, %v", c, name, len(got), len(plain), err)
			}
		}
	}
}

// TestDecompressor_Cut cuts payloads at every length. No codec but snappy, whose stream has no end mark, may take a cut
// payload for a whole one; what snappy gives must be a prefix of the text.
func TestDecompressor_Cut(t *testing.T) {
	all := texts()
	for _, c := range codecs {
		for _, name := range []string{"empty", "one byte", "short", "text 1 KiB", "text 32 KiB + 1", "zeros 100 KiB"} {
			plain := all[name]
			p := mustCompress(t, c, 0, plain)
			for n := range p {
				if n > 300 && n < len(p)-300 && n%997 != 0 {
					continue // A long payload is much the same in its middle.
				}
				got, err := decompress(c, Magic, p[:n])
				if err == nil && c != Snappy {
					t.Fatalf("%s, %s: %d bytes of %d are taken for all", c, name, n, len(p))
				}
				if !bytes.HasPrefix(plain, got) {
					t.Fatalf("%s, %s: %d bytes of %d give other text", c, name, n, len(p))
				}
			}
		}
	}
}

// TestDecompressor_Flipped flips every bit. Gzip's checksum must find what changes the text; the others have none, and a
// batch has its own: they must end without a panic and without more text than their blocks can hold.
func TestDecompressor_Flipped(t *testing.T) {
	plain := texts()["text 1 KiB"]
	for _, c := range codecs {
		p := mustCompress(t, c, 0, plain)
		for i := range 8 * len(p) {
			damaged := bytes.Clone(p)
			damaged[i/8] ^= 1 << (i % 8)
			got, err := decompress(c, Magic, damaged)
			if c == Gzip && err == nil && !bytes.Equal(got, plain) {
				t.Fatalf("gzip: bit %d flipped gives other text", i)
			}
			if len(got) > 256<<10 {
				t.Fatalf("%s: bit %d flipped gives %d bytes", c, i, len(got))
			}
		}
	}
}

func FuzzDecompressGzip(f *testing.F)   { fuzzDecompress(f, Gzip) }
func FuzzDecompressSnappy(f *testing.F) { fuzzDecompress(f, Snappy) }
func FuzzDecompressLZ4(f *testing.F)    { fuzzDecompress(f, LZ4) }
func FuzzDecompressZstd(f *testing.F)   { fuzzDecompress(f, Zstd) }

// fuzzDecompress reads data as a payload of each magic, compares it with a second decoder where there is one, and sends
// data through the codec and back.
func fuzzDecompress(f *testing.F, c Compression) {
	for name, plain := range texts() {
		p, err := appendCompressed(nil, c, 0, plain)
		if err != nil {
			f.Fatalf("%s: %v", name, err)
		}
		if len(p) > 4<<10 {
			continue // A fuzzer gets nowhere with long inputs; the zeros have many blocks in few bytes.
		}
		f.Add(p)
		if len(plain) <= 1<<10 {
			f.Add(append(bytes.Clone(p), p...))
			f.Add(plain)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for magic := range int8(3) {
			got, err := decompressSome(c, magic, data)
			if magic == Magic && err == nil {
				compareDecoders(t, c, data, got)
			}
		}
		p, err := appendCompressed(nil, c, 0, data)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decompress(c, Magic, p); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes of %d came back, %v", len(got), len(data), err)
		}
	})
}

// decompressSome is decompress with a limit of 4 MiB, enough for a fuzzer, which is an error.
func decompressSome(c Compression, magic int8, payload []byte) ([]byte, error) {
	r, err := decompressor(c, magic, payload)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	p, err := io.ReadAll(io.LimitReader(r, 4<<20))
	if err == nil && len(p) == 4<<20 {
		err = errors.New("too much")
	}
	return p, err
}
