package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Numbers of the zstd format (RFC 8878) that are needed to look at frames without decoding them.
const (
	zstdMagic         = 0xfd2fb528
	zstdSkippable     = 0x184d2a50 // the low four bits are free
	zstdFlagSingle    = 0x20
	zstdFlagReserved  = 0x08
	zstdFlagChecksum  = 0x04
	zstdBlockBytes    = 128 << 10 // no block decodes to more
	zstdMinWindowLog  = 10
	zstdBlockRaw      = 0
	zstdBlockRLE      = 1
	zstdBlockReserved = 3

	// zstdMaxWindow is the largest window that Kafka's decoder accepts, and the largest that its levels ask for.
	zstdMaxWindow = 128 << 20

	// The windows that are written: the one of Kafka's default level, and for better grades the largest that every
	// decoder must accept. An encoder keeps a window's worth of memory in its pool.
	zstdFastWindow = 2 << 20
	zstdSlowWindow = 8 << 20
)

// The ways in which a frame is refused before it is decoded.
var (
	errZstdMagic  = errors.New("no frame magic 28b52ffd")
	errZstdHeader = errors.New("frame header not readable")
	errZstdWindow = errors.New("window too large")
	errZstdSize   = errors.New("more content claimed than the blocks can hold")
	errZstdEmpty  = errors.New("no frame")
)

// zstdWriters has a pool for each grade of the encoder.
var zstdWriters [zstd.SpeedBestCompression + 1]sync.Pool

// appendZstd appends one frame with neither checksum nor content size, as Kafka's streaming encoder writes it.
func appendZstd(dst []byte, level int, payload []byte) []byte {
	if level == 0 {
		level = zstdDefaultLevel
	}
	grade := zstd.EncoderLevelFromZstd(level)
	e, _ := zstdWriters[grade].Get().(*zstd.Encoder)
	if e == nil {
		var err error
		window := zstdFastWindow
		if grade > zstd.SpeedDefault {
			window = zstdSlowWindow
		}
		e, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(grade), zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true),
			zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithSingleSegment(false), zstd.WithZeroFrames(true))
		if err != nil {
			panic("record: the options of the zstd encoder contradict each other: " + err.Error())
		}
	}
	start := len(dst)
	dst = e.EncodeAll(payload, dst)
	zstdWriters[grade].Put(e)
	return dropZstdContentSize(dst, start)
}

// dropZstdContentSize removes the content size from the header of the frame that starts at start, where it has a window
// of its own: the encoder always writes the size when it is given all of the content at once.
func dropZstdContentSize(dst []byte, start int) []byte {
	flags := dst[start+4]
	if flags&zstdFlagSingle != 0 || flags>>6 == 0 {
		return dst
	}
	dst[start+4] = flags & 0x3f
	rest := start + 6
	return append(dst[:rest], dst[rest+1<<(flags>>6):]...)
}

var zstdReaders = sync.Pool{New: func() any { return new(zstdReader) }}

// zstdReader reads zstd frames up to the end of the payload.
type zstdReader struct {
	src    zstdSource
	dec    *zstd.Decoder
	window uint64 // the largest window among the frames
}

func newZstdReader(payload []byte) (*zstdReader, error) {
	z := zstdReaders.Get().(*zstdReader)
	err := z.reset(payload)
	if err != nil {
		z.release()
		return nil, err
	}
	return z, nil
}

func (z *zstdReader) reset(payload []byte) error {
	if len(payload) == 0 {
		return errZstdEmpty
	}
	if err := z.plan(payload); err != nil {
		return err
	}
	if z.dec == nil {
		// A concurrency of 1 decodes in the goroutine that reads. So a decoder can be dropped without closing it.
		dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(zstdMaxWindow), zstd.WithDecoderMaxMemory(zstdMaxWindow))
		if err != nil {
			return err
		}
		z.dec = dec
	}
	return z.dec.Reset(&z.src)
}

// plan walks the frames of payload and lowers each window to what the frame's blocks can fill. The decoder allocates a
// window as large as the header says before it has decoded a byte: Kafka's default level says 2 MiB for the smallest
// batch, and ten forged bytes say 128 MiB.
func (z *zstdReader) plan(payload []byte) error {
	z.src = zstdSource{payload: payload, patches: z.src.patches[:0]}
	z.window = 0
	for pos := 0; pos < len(payload); {
		f, err := parseZstdFrame(payload[pos:])
		if err != nil {
			return fmt.Errorf("frame at byte %d: %w", pos, err)
		}
		if f.needed < f.window && !f.single {
			log := max(bits.Len64(f.needed-1), zstdMinWindowLog)
			if lower := uint64(1) << log; lower < f.window {
				z.src.patches = append(z.src.patches, zstdPatch{at: pos + 5, value: byte(log-zstdMinWindowLog) << 3})
				f.window = lower
			}
		}
		z.window = max(z.window, f.window)
		pos += f.size
	}
	return nil
}

func (z *zstdReader) Read(p []byte) (int, error) { return z.dec.Read(p) }

func (z *zstdReader) release() {
	z.src.payload = nil
	if z.dec != nil {
		if z.window > pooledWindowBytes || z.dec.Reset(nil) != nil {
			z.dec = nil
		}
	}
	zstdReaders.Put(z)
}

// zstdFrame is what the headers of one frame and of its blocks tell.
type zstdFrame struct {
	size   int    // of the frame, in bytes of the payload
	single bool   // a single segment: the window is the content
	window uint64 // claimed
	needed uint64 // the content can't be larger, or else a whole block's worth where that is more
}

// parseZstdFrame reads the headers of the frame that p starts with. Its content can only be judged by decoding it.
func parseZstdFrame(p []byte) (zstdFrame, error) {
	var f zstdFrame
	if len(p) < 8 {
		return f, io.ErrUnexpectedEOF
	}
	magic := binary.LittleEndian.Uint32(p)
	if magic&^0xf == zstdSkippable {
		size := 8 + int64(binary.LittleEndian.Uint32(p[4:]))
		if size > int64(len(p)) {
			return f, io.ErrUnexpectedEOF
		}
		f.size = int(size)
		return f, nil
	}
	if magic != zstdMagic {
		return f, errZstdMagic
	}
	pos, content, sized, err := f.parseHeader(p)
	if err != nil {
		return f, err
	}
	most, end, err := sumZstdBlocks(p, pos, f.window)
	if err != nil {
		return f, err
	}
	if sized && content > most {
		return f, fmt.Errorf("%w: %d bytes of %d", errZstdSize, content, most)
	}
	f.needed = max(most, zstdBlockBytes)
	f.size = end
	if p[4]&zstdFlagChecksum != 0 {
		f.size += 4
	}
	if f.size > len(p) {
		return f, io.ErrUnexpectedEOF
	}
	return f, nil
}

// parseHeader reads a frame header of p, which has 8 bytes at least. It returns where the blocks start and the content
// size, if there is one.
func (f *zstdFrame) parseHeader(p []byte) (pos int, content uint64, sized bool, err error) {
	flags := p[4]
	if flags&zstdFlagReserved != 0 {
		return 0, 0, false, fmt.Errorf("%w: reserved bit in 0x%02x", errZstdHeader, flags)
	}
	if flags&3 != 0 {
		return 0, 0, false, fmt.Errorf("%w: it names a dictionary", errZstdHeader)
	}
	f.single = flags&zstdFlagSingle != 0
	pos = 5
	if !f.single {
		log := zstdMinWindowLog + p[pos]>>3
		f.window = 1<<log + 1<<log/8*uint64(p[pos]&7)
		pos++
	}
	width := 1 << (flags >> 6)
	sized = width > 1 || f.single
	if sized {
		if len(p) < pos+width {
			return 0, 0, false, io.ErrUnexpectedEOF
		}
		var field [8]byte
		copy(field[:], p[pos:pos+width])
		content = binary.LittleEndian.Uint64(field[:])
		if width == 2 {
			content += 256
		}
		pos += width
	}
	if f.single {
		f.window = content
	}
	if f.window > zstdMaxWindow {
		return 0, 0, false, fmt.Errorf("%w: %d bytes, want at most %d", errZstdWindow, f.window, zstdMaxWindow)
	}
	return pos, content, sized, nil
}

// sumZstdBlocks walks the blocks that start at pos of p. It returns the most that they can decode to and where they end.
func sumZstdBlocks(p []byte, pos int, window uint64) (most uint64, end int, err error) {
	largest := min(max(window, 1<<zstdMinWindowLog), zstdBlockBytes)
	for {
		if len(p)-pos < 3 {
			return 0, 0, io.ErrUnexpectedEOF
		}
		header := int(p[pos]) | int(p[pos+1])<<8 | int(p[pos+2])<<16
		pos += 3
		size := header >> 3
		stored := size
		switch header >> 1 & 3 {
		case zstdBlockRaw:
			most += uint64(size)
		case zstdBlockRLE:
			most += uint64(size)
			stored = 1
		case zstdBlockReserved:
			return 0, 0, fmt.Errorf("%w: block of a reserved type", errZstdHeader)
		default:
			most += largest
		}
		if stored > len(p)-pos {
			return 0, 0, io.ErrUnexpectedEOF
		}
		pos += stored
		if header&1 != 0 {
			return most, pos, nil
		}
	}
}

type zstdPatch struct {
	at    int
	value byte
}

// zstdSource reads a payload with some of its bytes replaced, without copying or changing the payload.
type zstdSource struct {
	payload []byte
	pos     int
	patches []zstdPatch // by position
	next    int         // the first patch that is not behind pos
}

func (s *zstdSource) Read(p []byte) (int, error) {
	if s.pos == len(s.payload) {
		return 0, io.EOF
	}
	n := copy(p, s.payload[s.pos:])
	for s.next < len(s.patches) && s.patches[s.next].at < s.pos+n {
		p[s.patches[s.next].at-s.pos] = s.patches[s.next].value
		s.next++
	}
	s.pos += n
	return n, nil
}
