package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// compareDecoders decompresses payload, which gave got without an error, in a second way and requires the same.
func compareDecoders(t *testing.T, c Compression, payload, got []byte) {
	t.Helper()
	var want []byte
	var err error
	switch c {
	case Snappy:
		want, err = slowSnappy(payload)
	case LZ4:
		// The library's frame reader is stricter in one thing, the checksum of the content, and reads on behind the frame.
		want, err = io.ReadAll(io.LimitReader(lz4.NewReader(bytes.NewReader(payload)), 4<<20))
		if errors.Is(err, lz4.ErrInvalidFrameChecksum) || errors.Is(err, lz4.ErrInvalidContentSize) || len(want) > len(got) {
			return
		}
		if err != nil && len(want) == len(got) {
			return // Behind the frame.
		}
	case Zstd:
		d, derr := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
		if derr != nil {
			t.Fatal(derr)
		}
		defer d.Close()
		want, err = d.DecodeAll(payload, nil)
	default:
		return
	}
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s: %d bytes, the other decoder says %d, %v", c, len(got), len(want), err)
	}
}

// slowSnappy is a decoder of snappy-java streams written for the tests alone, byte by byte and without any skill.
func slowSnappy(p []byte) (out []byte, err error) {
	if len(p) < 16 || string(p[:8]) != "\x82SNAPPY\x00" {
		return slowSnappyBlock(p)
	}
	for p = p[16:]; len(p) >= 4; {
		n := binary.BigEndian.Uint32(p)
		if n == 0x82534e41 {
			if len(p) < 16 {
				return nil, io.ErrUnexpectedEOF
			}
			p = p[16:]
			continue
		}
		p = p[4:]
		if int64(n) > int64(len(p)) {
			return nil, io.ErrUnexpectedEOF
		}
		block, err := slowSnappyBlock(p[:n])
		if err != nil {
			return nil, err
		}
		out = append(out, block...)
		p = p[n:]
	}
	return out, nil
}

func slowSnappyBlock(p []byte) (out []byte, err error) {
	defer func() {
		if recover() != nil {
			err = io.ErrUnexpectedEOF
		}
	}()
	want, n := binary.Uvarint(p)
	if n <= 0 {
		return nil, errors.New("length")
	}
	for p = p[n:]; len(p) > 0; {
		tag, n := int(p[0]), 1
		length, offset := tag>>2+1, 0
		switch tag & 3 {
		case 0:
			if length > 60 {
				n += length - 60
				length = 0
				for i := n - 1; i > 0; i-- {
					length = length<<8 | int(p[i])
				}
				length++
			}
			out = append(out, p[n:n+length]...)
			p = p[n+length:]
			continue
		case 1:
			length, offset, n = tag>>2&7+4, tag>>5<<8|int(p[1]), 2
		case 2:
			offset, n = int(p[1])|int(p[2])<<8, 3
		case 3:
			offset, n = int(p[1])|int(p[2])<<8|int(p[3])<<16|int(p[4])<<24, 5
		}
		if offset == 0 {
			return nil, errors.New("offset 0")
		}
		for range length {
			out = append(out, out[len(out)-offset])
		}
		p = p[n:]
	}
	if uint64(len(out)) != want {
		return nil, fmt.Errorf("%d bytes, want %d", len(out), want)
	}
	return out, nil
}

// TestXXH32 compares with values of the algorithm's reference implementation.
func TestXXH32(t *testing.T) {
	for text, want := range map[string]uint32{
		"":    0x02cc5d05,
		"a":   0x550d7456,
		"abc": 0x32d153ff,
		"Nobody inspects the spammish repetition": 0xe2293b2f,
	} {
		if got := xxh32([]byte(text)); got != want {
			t.Errorf("%q: %08x, want %08x", text, got, want)
		}
	}
	if got := byte(xxh32([]byte("\x60\x40")) >> 8); got != 0x82 {
		t.Errorf("header checksum of 60 40: %02x, want 82", got)
	}
	if got := byte(xxh32([]byte("\x04\x22\x4d\x18\x60\x40")) >> 8); got != 0x1a {
		t.Errorf("historic header checksum of 60 40: %02x, want 1a", got)
	}
}
