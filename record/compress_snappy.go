package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/snappy"
)

// Kafka's snappy is the stream of the snappy-java library, neither a bare block nor the framing format of snappy itself:
//
//	offset  size  field
//	0       8     82 53 4e 41 50 50 59 00
//	8       4     version, big-endian, 1
//	12      4     lowest version whose readers understand the stream, 1; neither version is looked at
//	16      …     chunks up to the end: int32 big-endian length n, then a snappy block of n bytes
const (
	snappyHeader           = "\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
	snappyMagicSize        = 8
	snappyChunkBytes       = 32 << 10
	snappyHeaderAsLength   = 0x82534e41 // a length that is the start of a header: streams were concatenated
	snappyLengthFieldBytes = 4
)

var (
	errSnappyEmpty = errors.New("no data, want a stream header or a block")
	errSnappyBlock = errors.New("damaged block")
)

func appendSnappy(dst, payload []byte) []byte {
	dst = append(dst, snappyHeader...)
	for len(payload) > 0 {
		chunk := payload[:min(len(payload), snappyChunkBytes)]
		payload = payload[len(chunk):]
		// The block is encoded in place, behind room for its length.
		start := len(dst) + snappyLengthFieldBytes
		end := start + s2.MaxEncodedLen(len(chunk))
		dst = slices.Grow(dst, end-len(dst))
		block := s2.EncodeSnappy(dst[start:end], chunk)
		binary.BigEndian.PutUint32(dst[start-snappyLengthFieldBytes:start], uint32(len(block)))
		dst = dst[:start+len(block)]
	}
	return dst
}

var snappyReaders = sync.Pool{New: func() any { return new(snappyReader) }}

// snappyReader reads a snappy-java stream as that library's SnappyInputStream does, with its leniencies: a payload
// without the stream header is one bare block, as some clients write it; where a chunk's length is the start of a header,
// streams were concatenated, and 16 bytes are skipped whatever they are; up to three bytes after the last chunk are ignored.
type snappyReader struct {
	rest []byte // what of the payload is not decoded yet
	bare bool   // rest is one block without a length in front
	buf  []byte // the last decoded block
	out  []byte // the part of buf that is not read yet
}

func newSnappyReader(payload []byte) (*snappyReader, error) {
	if len(payload) == 0 {
		return nil, errSnappyEmpty
	}
	rest, bare := payload, true
	if len(payload) >= len(snappyHeader) && string(payload[:snappyMagicSize]) == snappyHeader[:snappyMagicSize] {
		rest, bare = payload[len(snappyHeader):], false
	}
	s := snappyReaders.Get().(*snappyReader)
	s.rest, s.bare, s.out = rest, bare, nil
	return s, nil
}

func (s *snappyReader) Read(p []byte) (int, error) {
	for len(s.out) == 0 {
		block, err := s.nextBlock()
		if err != nil {
			return 0, err
		}
		size, err := snappyBlockLen(block)
		if err != nil {
			return 0, err
		}
		if cap(s.buf) < size {
			s.buf = make([]byte, max(size, snappyChunkBytes))
		}
		if s.out, err = snappy.Decode(s.buf[:size], block); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.out)
	s.out = s.out[n:]
	return n, nil
}

// nextBlock cuts the next block off the payload; io.EOF says that there is none.
func (s *snappyReader) nextBlock() ([]byte, error) {
	if s.bare {
		block := s.rest
		s.rest, s.bare = nil, false
		return block, nil
	}
	for {
		if len(s.rest) < snappyLengthFieldBytes {
			return nil, io.EOF
		}
		length := binary.BigEndian.Uint32(s.rest)
		if length != snappyHeaderAsLength {
			s.rest = s.rest[snappyLengthFieldBytes:]
			if int64(length) > int64(len(s.rest)) {
				return nil, fmt.Errorf("chunk of %d bytes with %d left: %w", int32(length), len(s.rest), io.ErrUnexpectedEOF)
			}
			block := s.rest[:length]
			s.rest = s.rest[length:]
			return block, nil
		}
		if len(s.rest) < len(snappyHeader) {
			return nil, fmt.Errorf("repeated stream header: %w", io.ErrUnexpectedEOF)
		}
		s.rest = s.rest[len(snappyHeader):]
	}
}

// snappyBlockLen returns how many bytes block decodes to, by adding up its elements without decoding them, and requires
// the length that the block claims to be that sum. So a block of ten bytes that claims 4 GiB costs nothing, and what is
// allocated for a block is at most 22 times its size (the longest copy, 64 bytes, takes three). It also keeps the decoder
// strict: it knows an extension in which a copy from offset 0 repeats the last offset, and no other reader of a log does.
func snappyBlockLen(block []byte) (int, error) {
	claimed, n := binary.Uvarint(block)
	if n <= 0 || n > 5 || claimed > math.MaxInt32 {
		return 0, fmt.Errorf("%w: bad length in front", errSnappyBlock)
	}
	total := uint64(0)
	for i := n; i < len(block); {
		size, length, offset := snappyElement(block[i:])
		if size == 0 || size > uint64(len(block)-i) {
			return 0, fmt.Errorf("%w: element at byte %d runs past its end", errSnappyBlock, i)
		}
		if offset == 0 {
			return 0, fmt.Errorf("%w: copy from offset 0 at byte %d", errSnappyBlock, i)
		}
		i += int(size)
		total += length
	}
	if total != claimed {
		return 0, fmt.Errorf("%w: %d bytes claimed, %d found", errSnappyBlock, claimed, total)
	}
	return int(total), nil
}

// snappyElement tells of the element that p, which is not empty, starts with: its size in the block, how many bytes it
// decodes to, and the offset that it copies from, which for a literal is reported as 1. A size of 0 means that p ends
// inside its header.
func snappyElement(p []byte) (size, length, offset uint64) {
	tag := p[0]
	switch tag & 3 {
	case 0:
		length = uint64(tag>>2) + 1
		if length <= 60 {
			return 1 + length, length, 1
		}
		extra := int(length) - 60
		if len(p) <= extra {
			return 0, 0, 0
		}
		length = 0
		for i := extra; i > 0; i-- {
			length = length<<8 | uint64(p[i])
		}
		length++
		return uint64(1+extra) + length, length, 1
	case 1:
		if len(p) < 2 {
			return 0, 0, 0
		}
		return 2, uint64(tag>>2&7) + 4, uint64(tag>>5)<<8 | uint64(p[1])
	case 2:
		if len(p) < 3 {
			return 0, 0, 0
		}
		return 3, uint64(tag>>2) + 1, uint64(binary.LittleEndian.Uint16(p[1:]))
	default:
		if len(p) < 5 {
			return 0, 0, 0
		}
		return 5, uint64(tag>>2) + 1, uint64(binary.LittleEndian.Uint32(p[1:]))
	}
}

func (s *snappyReader) release() {
	s.rest, s.out = nil, nil
	if cap(s.buf) > pooledBlockBytes {
		s.buf = nil
	}
	snappyReaders.Put(s)
}
