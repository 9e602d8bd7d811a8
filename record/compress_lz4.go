package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/pierrec/lz4/v4"
)

// Kafka uses a subset of the LZ4 frame format. Everything is little-endian.
//
//	size  field
//	4     magic 04 22 4d 18
//	1     FLG: bits 6-7 version 1, 5 independent blocks (must be set), 4 block checksums, 3 content size,
//	      2 content checksum, 1 reserved, 0 dictionary (both must be clear)
//	1     BD: bits 4-6 largest block, 4 = 64 KiB, 5 = 256 KiB, 6 = 1 MiB, 7 = 4 MiB; the others must be clear
//	8     content size, if FLG has bit 3
//	1     second byte of the XXH32 of FLG to content size
//	…     blocks: uint32 n, n bytes, uint32 XXH32 of them if FLG has bit 4. With the top bit of the length set the bytes
//	      are stored as they are. A length of 0 ends the frame.
//	4     content checksum, if FLG has bit 2
const (
	lz4Magic       = "\x04\x22\x4d\x18"
	lz4FrameHeader = lz4Magic + "\x60\x40\x82" // version 1, independent blocks of up to 64 KiB, and nothing else
	lz4BlockBytes  = 64 << 10

	lz4FlagVersion         = 0xc0
	lz4FlagVersion1        = 0x40
	lz4FlagIndependent     = 0x20
	lz4FlagBlockChecksum   = 0x10
	lz4FlagContentSize     = 0x08
	lz4FlagContentChecksum = 0x04
	lz4FlagReserved        = 0x02
	lz4FlagDictionary      = 0x01

	lz4StoredBlock = 1 << 31

	// No block decodes to more than this times its size: behind the first bytes of an element each further one adds 255
	// bytes at most.
	lz4MaxExpansion = 255
)

// The ways in which a frame is refused.
var (
	errLZ4Magic      = errors.New("no frame magic 04224d18 at the start")
	errLZ4Header     = errors.New("frame header not readable")
	errLZ4HeaderHash = errors.New("header checksum mismatch")
	errLZ4BlockHash  = errors.New("block checksum mismatch")
	errLZ4BlockSize  = errors.New("block exceeds the frame's maximum")
)

// lz4Writers has a pool of the fast compressor at 0 and one for each level of the slow one.
var lz4Writers [lz4MaxLevel + 1]sync.Pool

type lz4Writer interface {
	CompressBlock(src, dst []byte) (int, error)
}

// lz4SearchDepths are the levels of the slow compressor, from 1 on.
var lz4SearchDepths = [...]lz4.CompressionLevel{
	lz4.Level1, lz4.Level2, lz4.Level3, lz4.Level4, lz4.Level5, lz4.Level6, lz4.Level7, lz4.Level8, lz4.Level9,
}

func newLZ4Writer(level int) lz4Writer {
	if level == 0 {
		return new(lz4.Compressor)
	}
	return &lz4.CompressorHC{Level: lz4SearchDepths[min(level, len(lz4SearchDepths))-1]}
}

func appendLZ4(dst []byte, level int, payload []byte) ([]byte, error) {
	if level == lz4DefaultLevel {
		level = 0
	}
	w, _ := lz4Writers[level].Get().(lz4Writer)
	if w == nil {
		w = newLZ4Writer(level)
	}
	defer lz4Writers[level].Put(w)

	out := append(dst, lz4FrameHeader...)
	for len(payload) > 0 {
		chunk := payload[:min(len(payload), lz4BlockBytes)]
		payload = payload[len(chunk):]
		start := len(out) + 4
		end := start + lz4.CompressBlockBound(len(chunk))
		out = slices.Grow(out, end-len(out))
		n, err := w.CompressBlock(chunk, out[start:end])
		if err != nil {
			return dst, err
		}
		length := uint32(n)
		if n == 0 || n >= len(chunk) {
			n = copy(out[start:end], chunk)
			length = uint32(n) | lz4StoredBlock
		}
		binary.LittleEndian.PutUint32(out[start-4:start], length)
		out = out[:start+n]
	}
	return append(out, 0, 0, 0, 0), nil
}

var lz4Readers = sync.Pool{New: func() any { return new(lz4Reader) }}

// lz4Reader reads one LZ4 frame as Kafka's Lz4BlockInputStream does: content size and content checksum are skipped, and
// what follows the frame is ignored.
type lz4Reader struct {
	rest            []byte // what of the payload is not decoded yet
	blockChecksum   bool
	contentChecksum bool
	maxBlock        int
	done            bool   // the end mark was read
	buf             []byte // decoded block
	out             []byte // the part of a block that is not read yet, of buf or of the payload
}

func newLZ4Reader(payload []byte, magic int8) (*lz4Reader, error) {
	l := lz4Readers.Get().(*lz4Reader)
	l.rest, l.out, l.done = payload, nil, false
	if err := l.readHeader(magic); err != nil {
		l.release()
		return nil, err
	}
	return l, nil
}

// readHeader reads the frame header. The writers of magic 0 hashed the frame's magic along with the rest and so stored a
// wrong checksum in it, which readers of magic 0 therefore ignore.
func (l *lz4Reader) readHeader(magic int8) error {
	p := l.rest
	if len(p) < len(lz4FrameHeader) {
		return fmt.Errorf("frame header: %w", io.ErrUnexpectedEOF)
	}
	if string(p[:len(lz4Magic)]) != lz4Magic {
		return errLZ4Magic
	}
	flags, descriptor := p[4], p[5]
	switch {
	case flags&lz4FlagVersion != lz4FlagVersion1:
		return fmt.Errorf("%w: version %d, want 1", errLZ4Header, flags>>6)
	case flags&lz4FlagIndependent == 0:
		return fmt.Errorf("%w: its blocks are linked, and Kafka's format has independent ones only", errLZ4Header)
	case flags&(lz4FlagReserved|lz4FlagDictionary) != 0:
		return fmt.Errorf("%w: reserved bits in FLG 0x%02x", errLZ4Header, flags)
	case descriptor&0x8f != 0 || descriptor>>4 < 4:
		return fmt.Errorf("%w: no block size in BD 0x%02x", errLZ4Header, descriptor)
	}
	l.blockChecksum = flags&lz4FlagBlockChecksum != 0
	l.contentChecksum = flags&lz4FlagContentChecksum != 0
	l.maxBlock = 1 << (8 + 2*(descriptor>>4))
	end := 6
	if flags&lz4FlagContentSize != 0 {
		end += 8
	}
	if len(p) <= end {
		return fmt.Errorf("frame header: %w", io.ErrUnexpectedEOF)
	}
	if want := byte(xxh32(p[4:end]) >> 8); magic > 0 && p[end] != want {
		return fmt.Errorf("%w: 0x%02x, want 0x%02x", errLZ4HeaderHash, p[end], want)
	}
	l.rest = p[end+1:]
	return nil
}

func (l *lz4Reader) Read(p []byte) (int, error) {
	for len(l.out) == 0 {
		if l.done {
			return 0, io.EOF
		}
		if err := l.readBlock(); err != nil {
			return 0, err
		}
	}
	n := copy(p, l.out)
	l.out = l.out[n:]
	return n, nil
}

// readBlock decodes the next block, or sets done at the end of the frame.
func (l *lz4Reader) readBlock() error {
	length, err := l.readUint32()
	if err != nil {
		return err
	}
	size := int(length &^ lz4StoredBlock)
	if size == 0 {
		l.done = true
		if l.contentChecksum {
			_, err = l.readUint32()
		}
		return err
	}
	if size > l.maxBlock {
		return fmt.Errorf("%w: %d bytes, want at most %d", errLZ4BlockSize, size, l.maxBlock)
	}
	if size > len(l.rest) {
		return fmt.Errorf("block of %d bytes with %d left: %w", size, len(l.rest), io.ErrUnexpectedEOF)
	}
	block := l.rest[:size]
	l.rest = l.rest[size:]
	if l.blockChecksum {
		sum, err := l.readUint32()
		if err != nil {
			return err
		}
		if want := xxh32(block); sum != want {
			return fmt.Errorf("%w: 0x%08x, want 0x%08x", errLZ4BlockHash, sum, want)
		}
	}
	if length&lz4StoredBlock != 0 {
		l.out = block
		return nil
	}
	room := min(l.maxBlock, size*lz4MaxExpansion)
	if cap(l.buf) < room {
		l.buf = make([]byte, room)
	}
	n, err := lz4.UncompressBlock(block, l.buf[:room])
	if err != nil {
		return fmt.Errorf("block of %d bytes: %w", size, err)
	}
	l.out = l.buf[:n]
	return nil
}

func (l *lz4Reader) readUint32() (uint32, error) {
	if len(l.rest) < 4 {
		return 0, io.ErrUnexpectedEOF
	}
	v := binary.LittleEndian.Uint32(l.rest)
	l.rest = l.rest[4:]
	return v, nil
}

func (l *lz4Reader) release() {
	l.rest, l.out = nil, nil
	if cap(l.buf) > pooledBlockBytes {
		l.buf = nil
	}
	lz4Readers.Put(l)
}
