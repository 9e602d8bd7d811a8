package record

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// ErrCompressionLevel says that a codec has no such level.
var ErrCompressionLevel = errors.New("record: compression level out of range")

// The default levels of Kafka's configuration, and the ends of the ranges that it accepts.
const (
	gzipDefaultLevel = -1
	gzipMinLevel     = 1
	gzipMaxLevel     = 9

	lz4DefaultLevel = 9
	lz4MinLevel     = 1
	lz4MaxLevel     = 17

	zstdDefaultLevel = 3
	zstdMinLevel     = -131072
	zstdMaxLevel     = 22
)

// Sizes of what codecs keep in their pools. A buffer that a large block made grow is left to the garbage collector.
const (
	pooledBlockBytes  = 64 << 10
	pooledWindowBytes = 8 << 20
)

var errReaderClosed = errors.New("payload read after its reader was closed")

// ValidateLevel returns an error matching ErrCompressionLevel if the codec has no such level, and one matching
// ErrUnsupportedCompression if there is no such codec. 0 stands for the default everywhere. The ranges and defaults are
// those of Kafka's compression.<codec>.level settings; what a level does here depends on the library behind it:
//   - gzip takes -1, the default, and 1 (fastest) to 9;
//   - lz4 takes 1 to 17. The default, 9, is the fast compressor and every other level the slow one, which searches up to
//     2^(8+level) candidates for a match, from level 10 on as many as level 9 would. So 1 is smaller and slower than 9;
//   - zstd takes -131072 to 22, default 3, in four grades: below 3, 3 to 5, 6 to 9, and 10 and above;
//   - none and snappy have no levels.
//
// A level is not stored. Readers need not know it, and a batch is never compressed again because of it.
func (c Compression) ValidateLevel(level int) error {
	ok, want := false, "0, for it has no levels"
	switch c {
	case None, Snappy:
	case Gzip:
		ok, want = level == gzipDefaultLevel || level >= gzipMinLevel && level <= gzipMaxLevel, "-1 or 1 to 9"
	case LZ4:
		ok, want = level >= lz4MinLevel && level <= lz4MaxLevel, "1 to 17"
	case Zstd:
		ok, want = level >= zstdMinLevel && level <= zstdMaxLevel, "-131072 to 22"
	default:
		return unsupportedCompression(c)
	}
	if ok || level == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s level %d, want %s", ErrCompressionLevel, c, level, want)
}

func unsupportedCompression(c Compression) error {
	return fmt.Errorf("%w: codec %d, want 0 to 4", ErrUnsupportedCompression, int(c))
}

// appendCompressed appends payload, compressed as one stream, to dst. Level 0 is the codec's default. The two slices must
// not overlap. An empty payload gives the codec's empty stream, which Kafka itself never writes.
func appendCompressed(dst []byte, c Compression, level int, payload []byte) ([]byte, error) {
	if err := c.ValidateLevel(level); err != nil {
		return dst, err
	}
	switch c {
	case Gzip:
		return appendGzip(dst, level, payload)
	case Snappy:
		return appendSnappy(dst, payload), nil
	case LZ4:
		return appendLZ4(dst, level, payload)
	case Zstd:
		return appendZstd(dst, level, payload), nil
	}
	return append(dst, payload...), nil
}

// decompressor returns a reader of what payload decompresses to. It streams: besides payload it holds one block and one
// window of the codec, neither larger than what the bytes of payload really produce, whatever their headers claim. The
// magic is that of the entry with the payload; it decides about zstd and about the header checksum of LZ4. Closing the
// reader gives its buffers to the next one.
func decompressor(c Compression, magic int8, payload []byte) (io.ReadCloser, error) {
	var r codecReader
	var err error
	switch c {
	case None:
		return io.NopCloser(bytes.NewReader(payload)), nil
	case Gzip:
		r, err = newGzipReader(payload)
	case Snappy:
		r, err = newSnappyReader(payload)
	case LZ4:
		r, err = newLZ4Reader(payload, magic)
	case Zstd:
		if magic < Magic {
			return nil, fmt.Errorf("%w: zstd in an entry with magic %d, want 2", ErrUnsupportedCompression, magic)
		}
		r, err = newZstdReader(payload)
	default:
		return nil, unsupportedCompression(c)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c, err)
	}
	return &payloadReader{codec: c, r: r}, nil
}

// codecReader is the pooled state of one decompression. After release it belongs to its pool.
type codecReader interface {
	io.Reader
	release()
}

// payloadReader is what a caller holds of a codecReader, so that closing twice or reading late cannot touch a state that
// has gone on to somebody else.
type payloadReader struct {
	codec Compression
	r     codecReader
}

func (p *payloadReader) Read(b []byte) (int, error) {
	if p.r == nil {
		return 0, fmt.Errorf("%s: %w", p.codec, errReaderClosed)
	}
	if len(b) == 0 {
		return 0, nil
	}
	n, err := p.r.Read(b)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("%s: %w", p.codec, err)
	}
	return n, err
}

func (p *payloadReader) Close() error {
	if p.r != nil {
		p.r.release()
		p.r = nil
	}
	return nil
}

// appendWriter is an io.Writer that appends to a slice.
type appendWriter struct{ b []byte }

func (w *appendWriter) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}

// unexpectedEOF turns the end of the input into an error where more of it was due.
func unexpectedEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
