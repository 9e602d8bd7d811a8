package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// payloadTest is a payload and what must come of it: text, or an error whose text has wantErr in it.
type payloadTest struct {
	name    string
	payload string
	want    string
	wantErr string
}

func runPayloadTests(t *testing.T, c Compression, magic int8, tests []payloadTest) {
	t.Helper()
	for _, tt := range tests {
		got, err := decompress(c, magic, []byte(tt.payload))
		if tt.wantErr == "" && (err != nil || string(got) != tt.want) {
			t.Errorf("%s: %q, %v; want %q", tt.name, got, err, tt.want)
		}
		if tt.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tt.wantErr)) {
			t.Errorf("%s: error %v, want %q in it", tt.name, err, tt.wantErr)
		}
	}
}

func be32(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }
func le32(n uint32) string { return string(binary.LittleEndian.AppendUint32(nil, n)) }

func TestGzip_Members(t *testing.T) {
	one := string(mustCompress(t, Gzip, 0, []byte("one,")))
	two := string(mustCompress(t, Gzip, 9, []byte("two")))
	none := string(mustCompress(t, Gzip, 0, nil))
	wrong := two[:len(two)-1] + "\x7f"
	runPayloadTests(t, Gzip, Magic, []payloadTest{
		{"one member", two, "two", ""},
		{"two members", one + two, "one,two", ""},
		{"empty members between", one + none + none + two, "one,two", ""},
		{"garbage behind a member", one + "neither a header nor a member", "one,", ""},
		{"zeros behind a member", one + strings.Repeat("\x00", 100), "one,", ""},
		{"garbage behind two members", one + two + "neither a header nor a member", "one,two", ""},
		{"a short rest", one + two[:17], "one,", ""},
		{"second member cut", one + two + one[:len(one)-3], "", "unexpected EOF"},
		{"second member with another size", one + wrong, "", "checksum"},
		{"nothing", "", "", "unexpected EOF"},
		{"no gzip", "not a gzip stream at all", "", "header"},
	})
}

func TestSnappy_Framing(t *testing.T) {
	block := func(text string) string { return string(snappy.Encode(nil, []byte(text))) }
	chunk := func(text string) string { return be32(uint32(len(block(text)))) + block(text) }
	long := strings.Repeat("a long text that is worth a copy ", 20)
	runPayloadTests(t, Snappy, Magic, []payloadTest{
		{"header alone", snappyHeader, "", ""},
		{"two chunks", snappyHeader + chunk("ab") + chunk(long), "ab" + long, ""},
		{"bare block", block(long), long, ""},
		{"bare block of less than a header", block("ab"), "ab", ""},
		{"empty bare block", "\x00", "", ""},
		{"empty block in a chunk", snappyHeader + chunk("") + chunk("ab"), "ab", ""},
		{"streams one after the other", snappyHeader + chunk("ab") + snappyHeader + chunk("cd"), "abcd", ""},
		{"header twice", snappyHeader + snappyHeader + chunk("ab"), "ab", ""},
		{"header with another name inside", snappyHeader + chunk("ab") + "\x82SNAPPX\x00\x00\x00\x00\x01\x00\x00\x00\x01" + chunk("cd"), "abcd", ""},
		{"half a header inside", snappyHeader + chunk("ab") + snappyHeader[:15], "", "repeated stream header"},
		{"three bytes at the end", snappyHeader + chunk("ab") + "\x00\x00\x00", "ab", ""},
		{"versions that do not exist", snappyHeader[:8] + "\xff\xff\xff\xff\x00\x00\x00\x00" + chunk("ab"), "ab", ""},
		{"nothing", "", "", "no data"},
		{"chunk longer than the rest", snappyHeader + be32(1000) + block("ab"), "", "chunk of 1000 bytes with 4 left"},
		{"negative chunk length", snappyHeader + be32(0xffffffff) + block("ab"), "", "chunk of -1 bytes"},
		{"chunk length 0", snappyHeader + be32(0) + chunk("ab"), "", "bad length"},
		{"claims less than there is", "\x01" + block("ab")[1:], "", "1 bytes claimed, 2 found"},
		{"claims more than there is", "\x03" + block("ab")[1:], "", "3 bytes claimed, 2 found"},
		{"literal past the end", "\x05\x10ab", "", "runs past its end"},
		{"literal header past the end", "\x05\xf4\x01", "", "runs past its end"},
		{"copy header past the end", "\x08\x00a\x02\x01", "", "runs past its end"},
		{"copy from before the start", "\x05\x00a\x01\x02", "", "corrupt"},
		{"copy from offset 0, an extension", "\x06\x00a\x01\x01\x01\x00", "", "offset 0"},
	})
	// The extended form of the library's own encoder is found out wherever it is used.
	extended := s2.EncodeBest(nil, []byte(strings.Repeat(long, 3)+"x"+strings.Repeat(long, 3)))
	if _, err := snappy.Decode(nil, extended); err != nil {
		t.Fatalf("the library does not read its own form: %v", err)
	}
	if _, err := decompress(Snappy, Magic, extended); err == nil {
		t.Error("the extended form is read as snappy")
	}
}

// lz4Frame builds a frame with the right header checksum and the given blocks, which are stored uncompressed.
func lz4Frame(flags, descriptor byte, contentSize string, blocks ...string) string {
	head := string([]byte{flags, descriptor}) + contentSize
	f := lz4Magic + head + string([]byte{byte(xxh32([]byte(head)) >> 8)})
	for _, b := range blocks {
		f += le32(uint32(len(b))|lz4StoredBlock) + b
		if flags&lz4FlagBlockChecksum != 0 {
			f += le32(xxh32([]byte(b)))
		}
	}
	f += le32(0)
	if flags&lz4FlagContentChecksum != 0 {
		f += "????" // never looked at
	}
	return f
}

func TestLZ4_Frame(t *testing.T) {
	good := lz4Frame(0x60, 0x40, "", "text")
	checked := lz4Frame(0x70, 0x40, "", "text")
	tests := []payloadTest{
		{"as Kafka writes", good, "text", ""},
		{"block checksums", checked, "text", ""},
		{"content size, ignored", lz4Frame(0x68, 0x40, "\xff\xff\xff\xff\xff\xff\xff\x7f", "text"), "text", ""},
		{"content checksum, ignored", lz4Frame(0x64, 0x40, "", "text"), "text", ""},
		{"everything", lz4Frame(0x7c, 0x70, "12345678", "text", "more"), "textmore", ""},
		{"blocks of 4 MiB", lz4Frame(0x60, 0x70, "", strings.Repeat("x", 70000)), strings.Repeat("x", 70000), ""},
		{"no block", lz4Frame(0x60, 0x40, ""), "", ""},
		{"a second frame, ignored", good + good, "text", ""},
		{"garbage behind the frame", good + "garbage", "text", ""},
		{"content checksum cut", lz4Frame(0x64, 0x40, "", "text")[:21], "", "unexpected EOF"},
		{"end mark with the top bit", good[:len(good)-1] + "\x80", "text", ""},
		{"block checksum wrong", checked[:len(checked)-5] + "?" + checked[len(checked)-4:], "", "block checksum mismatch"},
		{"block too large", lz4Frame(0x60, 0x40, "", strings.Repeat("x", 64<<10+1)), "", "65537 bytes, want at most 65536"},
		{"block past the end", good[:len(lz4FrameHeader)] + le32(1000) + "text", "", "block of 1000 bytes with 4 left"},
		{"block not decodable", good[:len(lz4FrameHeader)] + le32(4) + "\x1fa\x09\x00" + le32(0), "", "block of 4 bytes"},
		{"linked blocks", lz4Frame(0x40, 0x40, "", "text"), "", "linked"},
		{"dictionary", lz4Frame(0x61, 0x40, "", "text"), "", "reserved bits"},
		{"reserved bit in FLG", lz4Frame(0x62, 0x40, "", "text"), "", "reserved bits"},
		{"version 0", lz4Frame(0x20, 0x40, "", "text"), "", "version 0"},
		{"version 2", lz4Frame(0xa0, 0x40, "", "text"), "", "version 2"},
		{"block size 3", lz4Frame(0x60, 0x30, "", "text"), "", "no block size"},
		{"reserved bit in BD", lz4Frame(0x60, 0xc0, "", "text"), "", "no block size"},
		{"low bit in BD", lz4Frame(0x60, 0x41, "", "text"), "", "no block size"},
		{"other magic", "\x05" + good[1:], "", "magic"},
		{"legacy frame", "\x02\x21\x4c\x18" + good[4:], "", "magic"},
		{"nothing", "", "", "unexpected EOF"},
	}
	runPayloadTests(t, LZ4, Magic, tests)
	runPayloadTests(t, LZ4, 1, tests)
	runPayloadTests(t, LZ4, 0, tests)

	// The header checksum counts from magic 1 on; magic 0 was written with that of eight bytes.
	historic := good[:6] + "\x1a" + good[7:]
	wrong := []payloadTest{{"historic header checksum", historic, "", "header checksum mismatch: 0x1a, want 0x82"}}
	runPayloadTests(t, LZ4, Magic, wrong)
	runPayloadTests(t, LZ4, 1, wrong)
	runPayloadTests(t, LZ4, 0, []payloadTest{{"historic header checksum", historic, "text", ""}})
}

// TestLZ4_LibraryFrames reads frames of another writer, with every option that a reader has to know.
func TestLZ4_LibraryFrames(t *testing.T) {
	for name, plain := range texts() {
		for _, size := range []lz4.BlockSize{lz4.Block64Kb, lz4.Block256Kb, lz4.Block1Mb, lz4.Block4Mb} {
			for _, extras := range []bool{false, true} {
				opts := []lz4.Option{lz4.BlockSizeOption(size), lz4.BlockChecksumOption(extras), lz4.ChecksumOption(extras)}
				if extras {
					opts = append(opts, lz4.SizeOption(uint64(len(plain))))
				}
				var out bytes.Buffer
				w := lz4.NewWriter(&out)
				err := w.Apply(opts...)
				if err == nil {
					_, err = w.Write(plain)
				}
				if err == nil {
					err = w.Close()
				}
				if err != nil {
					t.Fatal(err)
				}
				if got, err := decompress(LZ4, Magic, out.Bytes()); err != nil || !bytes.Equal(got, plain) {
					t.Errorf("%s, blocks of %s, extras %v: %d bytes of %d, %v", name, size, extras, len(got), len(plain), err)
				}
			}
		}
		// Short blocks with a checksum, of every length that the hash treats differently.
		for n := 1; n < min(len(plain), 70); n++ {
			var out bytes.Buffer
			w := lz4.NewWriter(&out)
			if err := w.Apply(lz4.BlockChecksumOption(true)); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(plain[:n]); err != nil || w.Close() != nil {
				t.Fatal(err)
			}
			if got, err := decompress(LZ4, Magic, out.Bytes()); err != nil || !bytes.Equal(got, plain[:n]) {
				t.Errorf("%s, %d bytes: %d came back, %v", name, n, len(got), err)
			}
		}
	}
}

// zstdFrameOf compresses with the library's streaming encoder, which makes frames unlike those that this package writes.
func zstdFrameOf(t testing.TB, text string, opts ...zstd.EOption) string {
	t.Helper()
	var out bytes.Buffer
	e, err := zstd.NewWriter(&out, append([]zstd.EOption{zstd.WithEncoderConcurrency(1)}, opts...)...)
	if err == nil {
		_, err = io.WriteString(e, text)
	}
	if err == nil {
		err = e.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestZstd_Frames(t *testing.T) {
	long := strings.Repeat("a text that fills more than one block ", 10000)
	one := string(mustCompress(t, Zstd, 0, []byte("one,")))
	skippable := le32(zstdSkippable+7) + le32(5) + "12345"
	wide := one[:5] + "\x88" + one[6:] // the window exponent of 128 MiB
	checked := zstdFrameOf(t, long, zstd.WithEncoderCRC(true))
	runPayloadTests(t, Zstd, Magic, []payloadTest{
		{"one frame", one, "one,", ""},
		{"two frames", one + one, "one,one,", ""},
		{"skippable frames", skippable + one + skippable + one + skippable, "one,one,", ""},
		{"window of 128 MiB", wide, "one,", ""},
		{"windows of many sizes", wide + one + wide + checked + wide, "one,one,one," + long + "one,", ""},
		{"window of 144 MiB", one[:5] + "\x89" + one[6:], "", "window too large"},
		{"window of 2 TiB", one[:5] + "\xff" + one[6:], "", "window too large"},
		{"streamed, with a checksum", checked, long, ""},
		{"streamed, with a small window", zstdFrameOf(t, long, zstd.WithWindowSize(1<<10)), long, ""},
		{"single segment", zstdFrameOf(t, long, zstd.WithSingleSegment(true)), long, ""},
		{"checksum wrong", checked[:len(checked)-1] + "?", "", "CRC check failed"},
		{"single segment that claims 100 MiB", le32(zstdMagic) + "\xa0" + le32(100<<20) + "\x09\x00\x00x", "", "more content claimed"},
		{"single segment that claims 2^63", le32(zstdMagic) + "\xe0\x00\x00\x00\x00\x00\x00\x00\x80\x09\x00\x00x", "", "window too large"},
		{"dictionary", le32(zstdMagic) + "\x01\x00\x07\x09\x00\x00x", "", "dictionary"},
		{"reserved bit", le32(zstdMagic) + "\x08\x00\x09\x00\x00x", "", "reserved bit"},
		{"reserved block", le32(zstdMagic) + "\x00\x00\x07\x00\x00x", "", "reserved type"},
		{"raw block", le32(zstdMagic) + "\x00\x00\x09\x00\x00x", "x", ""},
		{"garbage behind a frame", one + "garbage, more than a header", "", "no frame magic"},
		{"a few bytes behind a frame", one + "123", "", "unexpected EOF"},
		{"skippable frame past the end", one + le32(zstdSkippable) + le32(1000), "", "unexpected EOF"},
		{"no frame magic", "\x29" + one[1:], "", "no frame magic"},
		{"nothing", "", "", "no frame"},
	})
}

// TestCodecs_Release checks that no pool keeps what a large block or a wide window needed.
func TestCodecs_Release(t *testing.T) {
	s := &snappyReader{buf: make([]byte, pooledBlockBytes+1)}
	s.release()
	l := &lz4Reader{buf: make([]byte, pooledBlockBytes+1)}
	l.release()
	if s.buf != nil || l.buf != nil {
		t.Error("a large block is kept")
	}
	for window, kept := range map[uint64]bool{pooledWindowBytes: true, pooledWindowBytes + 1: false} {
		z := new(zstdReader)
		if err := z.reset(mustCompress(t, Zstd, 0, []byte("text"))); err != nil {
			t.Fatal(err)
		}
		z.window = window
		z.release()
		if (z.dec != nil) != kept {
			t.Errorf("decoder with a window of %d bytes kept: %v", window, !kept)
		}
	}
}

// TestCodecs_Errors checks that an error says which codec it is about, once, and keeps its cause.
func TestCodecs_Errors(t *testing.T) {
	for _, c := range codecs {
		p := mustCompress(t, c, 0, []byte("text"))
		_, err := decompress(c, Magic, p[:len(p)-1])
		if err == nil || !strings.HasPrefix(err.Error(), c.String()+": ") || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v", c, err)
		}
	}
}
