package record

import (
	"bytes"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// smallestGzipMember is a header, an empty deflate stream of two bytes at least, and a trailer: Kafka does not look for
// another member in fewer bytes.
const smallestGzipMember = 18

// gzipWriters has a pool for each level from 1 to 9 and, at 0, one for the default.
var gzipWriters [gzipMaxLevel + 1]sync.Pool

type gzipWriter struct {
	out appendWriter
	z   *gzip.Writer
}

func appendGzip(dst []byte, level int, payload []byte) ([]byte, error) {
	pool := &gzipWriters[max(level, 0)]
	w, _ := pool.Get().(*gzipWriter)
	if w == nil {
		if level == 0 {
			level = gzipDefaultLevel
		}
		w = new(gzipWriter)
		z, err := gzip.NewWriterLevel(&w.out, level)
		if err != nil {
			return dst, err
		}
		w.z = z
	}
	w.out.b = dst
	w.z.Reset(&w.out)
	_, err := w.z.Write(payload)
	if err == nil {
		err = w.z.Close()
	}
	out := w.out.b
	w.out.b = nil
	if err != nil {
		return dst, err
	}
	pool.Put(w)
	return out, nil
}

var gzipReaders = sync.Pool{New: func() any { return new(gzipReader) }}

// gzipReader reads the members of a gzip stream one after the other. What follows a member and is not another one is
// ignored, as by the JDK's GZIPInputStream, through which Kafka reads.
type gzipReader struct {
	src  bytes.Reader
	z    gzip.Reader
	done bool
}

func newGzipReader(payload []byte) (*gzipReader, error) {
	g := gzipReaders.Get().(*gzipReader)
	g.src.Reset(payload)
	g.done = false
	if err := g.z.Reset(&g.src); err != nil {
		g.release()
		return nil, unexpectedEOF(err)
	}
	g.z.Multistream(false)
	return g, nil
}

func (g *gzipReader) Read(p []byte) (int, error) {
	for !g.done {
		n, err := g.z.Read(p)
		if err != io.EOF {
			return n, err
		}
		g.done = g.src.Len() < smallestGzipMember || g.z.Reset(&g.src) != nil
		if !g.done {
			g.z.Multistream(false)
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, io.EOF
}

func (g *gzipReader) release() {
	g.src.Reset(nil)
	gzipReaders.Put(g)
}
