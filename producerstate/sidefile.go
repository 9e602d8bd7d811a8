package producerstate

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
)

// Sizes and positions of the side file format, see the package documentation. None is computed from another.
const (
	sideMagic     = "ONCEPROD"
	sideVersion   = 1
	sideHeader    = 88
	sideProducer  = 39
	sideBatch     = 24
	sideNamed     = 18
	sideTrailer   = 8
	sideFlagLast  = 1
	sideKnownFlag = sideFlagLast
)

func appendSideHeader(dst []byte, f *Frozen, sum uint32, last record.Identity) []byte {
	flags := uint32(0)
	if last.Size > 0 {
		flags = sideFlagLast
	} else {
		last = record.Identity{}
	}
	dst = append(dst, sideMagic...)
	dst = binary.BigEndian.AppendUint32(dst, sideVersion)
	dst = binary.BigEndian.AppendUint32(dst, flags)
	dst = binary.BigEndian.AppendUint64(dst, uint64(f.offset))
	dst = binary.BigEndian.AppendUint32(dst, sum)
	dst = binary.BigEndian.AppendUint32(dst, uint32(f.live))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(f.named)))
	dst = binary.BigEndian.AppendUint32(dst, uint32(last.Size))
	dst = binary.BigEndian.AppendUint64(dst, uint64(last.SegmentBase))
	dst = binary.BigEndian.AppendUint64(dst, uint64(last.Position))
	dst = binary.BigEndian.AppendUint64(dst, uint64(last.BaseOffset))
	dst = binary.BigEndian.AppendUint32(dst, last.CRC)
	dst = binary.BigEndian.AppendUint32(dst, 0)
	dst = binary.BigEndian.AppendUint64(dst, uint64(f.newestClock))
	return binary.BigEndian.AppendUint64(dst, 0)
}

func appendSideProducer(dst []byte, p *producer) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(p.id))
	dst = binary.BigEndian.AppendUint64(dst, uint64(p.lastTimestamp))
	dst = binary.BigEndian.AppendUint64(dst, uint64(p.appendClock))
	dst = binary.BigEndian.AppendUint64(dst, uint64(p.txnFirst))
	dst = binary.BigEndian.AppendUint32(dst, uint32(p.coordinatorEpoch))
	dst = binary.BigEndian.AppendUint16(dst, uint16(p.epoch))
	dst = append(dst, p.count)
	for i := range p.count {
		m := p.batch(i)
		dst = binary.BigEndian.AppendUint64(dst, uint64(m.LastOffset))
		dst = binary.BigEndian.AppendUint64(dst, uint64(m.Timestamp))
		dst = binary.BigEndian.AppendUint32(dst, uint32(m.LastSequence))
		dst = binary.BigEndian.AppendUint32(dst, uint32(m.OffsetDelta))
	}
	return dst
}

// streamSideFile produces the content of f's side file.
func streamSideFile(file vfs.File, f *Frozen, sum uint32, last record.Identity) error {
	const largest = sideProducer + BatchesRetained*sideBatch
	digest := xxhash.New()
	size := min(blockSize, sideHeader+largest*f.live+sideTrailer)
	s := stream{f: file, buf: make([]byte, 0, size), sum: func(p []byte) { _, _ = digest.Write(p) }}
	s.done(appendSideHeader(s.room(sideHeader), f, sum, last))
	for p := range all(f.chunks) {
		s.done(appendSideProducer(s.room(largest), p))
	}
	named := slices.Clone(f.named)
	slices.SortFunc(named, func(a, b Named) int { return cmp.Compare(a.ID, b.ID) })
	for _, n := range named {
		b := s.room(sideNamed + len(n.Name))
		b = binary.BigEndian.AppendUint64(b, uint64(n.ID))
		b = binary.BigEndian.AppendUint64(b, uint64(n.FirstCount))
		b = binary.BigEndian.AppendUint16(b, uint16(len(n.Name)))
		s.done(append(b, n.Name...))
	}
	s.flush()
	if s.err == nil {
		_, s.err = file.WriteAt(binary.BigEndian.AppendUint64(nil, digest.Sum64()), s.pos)
	}
	return s.err
}

// ReadSideFile reads a side file by itself, without the snapshot it belongs to. ReadPair is what a log starts from; this
// one is for looking at files and for what only side files hold. Errors are as for ReadSnapshot.
func ReadSideFile(fsys vfs.FS, path string) (*State, error) {
	offset, ok := ParseSideFileName(strings.TrimSuffix(filepath.Base(path), nextSuffix))
	if !ok {
		return nil, fmt.Errorf("producerstate: not the name of a side file: %s", path)
	}
	data, err := readAll(fsys, path)
	if err != nil {
		return nil, fmt.Errorf("producerstate: reading a side file: %w", err)
	}
	return decodeSideFile(data, path, offset)
}

// sideReader walks the body of a side file.
type sideReader struct {
	path   string
	offset int64
	data   []byte // without the trailer
	pos    int
}

func (r *sideReader) fault(kind SnapshotFault, format string, args ...any) error {
	return &SnapshotError{
		Path: r.path, Offset: r.offset, Kind: kind, Pos: int64(r.pos), Reason: fmt.Sprintf(format, args...),
	}
}

// take returns the next n bytes, or nil if there are fewer.
func (r *sideReader) take(n int) []byte {
	if len(r.data)-r.pos < n {
		return nil
	}
	b := r.data[r.pos : r.pos+n]
	r.pos += n
	return b
}

// decodeSideFile reads the content of a side file for offset; path goes into errors.
func decodeSideFile(data []byte, path string, offset int64) (*State, error) {
	r := &sideReader{path: path, offset: offset, data: data, pos: len(data)}
	if len(data) < sideHeader+sideTrailer {
		return nil, r.fault(TooShort, "%d bytes, an empty one has %d", len(data), sideHeader+sideTrailer)
	}
	r.pos = 0
	if string(data[:len(sideMagic)]) != sideMagic {
		return nil, r.fault(BadChecksum, "the file does not begin with %q", sideMagic)
	}
	// Every version begins with the magic and its number and ends with the sum of all before: so a number that damage
	// made is not taken for one of the future.
	r.data = data[:len(data)-sideTrailer]
	if sum, want := binary.BigEndian.Uint64(data[len(r.data):]), xxhash.Sum64(r.data); sum != want {
		r.pos = len(r.data)
		return nil, r.fault(BadChecksum, "checksum 0x%016x, want 0x%016x as computed", sum, want)
	}
	if v := binary.BigEndian.Uint32(data[8:]); v != sideVersion {
		r.pos = 8
		return nil, r.fault(BadVersion, "version %d, only %d is known", v, sideVersion)
	}
	s, producers, named, err := r.header()
	if err != nil {
		return nil, err
	}
	s.table.reserve(producers)
	for i := range producers {
		if err := r.producer(s, i); err != nil {
			return nil, err
		}
	}
	for i := range named {
		if err := r.named(s, i); err != nil {
			return nil, err
		}
	}
	if left := len(r.data) - r.pos; left > 0 {
		return nil, r.fault(TrailingBytes, "%d bytes behind the last entry", left)
	}
	return s, nil
}

func (r *sideReader) header() (s *State, producers, named int, err error) {
	h := r.take(sideHeader)
	u32 := func(at int) uint32 { return binary.BigEndian.Uint32(h[at:]) }
	i64 := func(at int) int64 { return int64(binary.BigEndian.Uint64(h[at:])) }
	s = &State{Offset: i64(16), SnapshotCRC: u32(24), NewestClock: i64(72), table: newTable()}
	last := record.Identity{
		Size: int32(u32(36)), SegmentBase: i64(40), Position: i64(48), BaseOffset: i64(56), CRC: u32(64),
	}
	flags := u32(12)
	switch {
	case flags&^sideKnownFlag != 0 || u32(68) != 0 || i64(80) != 0:
		return nil, 0, 0, r.fault(Inconsistent, "reserved bits are set")
	case s.Offset != r.offset:
		return nil, 0, 0, r.fault(Inconsistent, "it is for offset %d", s.Offset)
	case flags&sideFlagLast == 0 && last != (record.Identity{}):
		return nil, 0, 0, r.fault(Inconsistent, "a last batch is given and said not to be there")
	case flags&sideFlagLast != 0 && last.Size <= 0:
		return nil, 0, 0, r.fault(Inconsistent, "the last batch has %d bytes", last.Size)
	}
	s.Last = last
	// Counts are held against what is left of the file before anything is sized by them.
	left := int64(len(r.data) - r.pos)
	p, n := int64(u32(28)), int64(u32(32))
	if p*sideProducer+n*sideNamed > left {
		return nil, 0, 0, r.fault(BadCount, "%d producers and %d names do not fit into %d bytes", p, n, left)
	}
	return s, int(p), int(n), nil
}

func (r *sideReader) producer(s *State, i int) error {
	b := r.take(sideProducer)
	if b == nil {
		return r.fault(BadCount, "the file ends before producer %d", i)
	}
	p := producer{
		id:               int64(binary.BigEndian.Uint64(b)),
		lastTimestamp:    int64(binary.BigEndian.Uint64(b[8:])),
		appendClock:      int64(binary.BigEndian.Uint64(b[16:])),
		txnFirst:         int64(binary.BigEndian.Uint64(b[24:])),
		coordinatorEpoch: int32(binary.BigEndian.Uint32(b[32:])),
		epoch:            int16(binary.BigEndian.Uint16(b[36:])),
	}
	count := int(b[38])
	if count > BatchesRetained {
		return r.fault(Inconsistent, "producer %d: %d batches", p.id, count)
	}
	batches := r.take(count * sideBatch)
	if batches == nil && count > 0 {
		return r.fault(BadCount, "the file ends inside producer %d", i)
	}
	for k := range count {
		b := batches[k*sideBatch:]
		m := BatchMetadata{
			LastOffset:   int64(binary.BigEndian.Uint64(b)),
			Timestamp:    int64(binary.BigEndian.Uint64(b[8:])),
			LastSequence: int32(binary.BigEndian.Uint32(b[16:])),
			OffsetDelta:  int32(binary.BigEndian.Uint32(b[20:])),
		}
		if why := checkBatch(m, s.Offset); why != "" {
			return r.fault(Inconsistent, "producer %d, batch %d: %s", p.id, k, why)
		}
		if previous, ok := p.last(); ok && m.LastOffset <= previous.LastOffset {
			return r.fault(Inconsistent, "producer %d: batches %d and %d are not in order", p.id, k-1, k)
		}
		p.push(m)
	}
	if p.id < 0 || p.txnFirst < NoOffset || p.txnFirst >= s.Offset {
		return r.fault(Inconsistent, "producer %d, transaction at %d: out of range", p.id, p.txnFirst)
	}
	if _, twice := s.table.find(p.id); twice {
		return r.fault(Inconsistent, "producer %d is listed twice", p.id)
	}
	s.table.add(p)
	return nil
}

func (r *sideReader) named(s *State, i int) error {
	b := r.take(sideNamed)
	if b == nil {
		return r.fault(BadCount, "the file ends before name %d", i)
	}
	n := Named{ID: int64(binary.BigEndian.Uint64(b)), FirstCount: int64(binary.BigEndian.Uint64(b[8:]))}
	name := r.take(int(binary.BigEndian.Uint16(b[16:])))
	switch {
	case name == nil:
		return r.fault(BadCount, "name %d runs past the end", i)
	case n.ID < MinNamedProducerID:
		return r.fault(Inconsistent, "name %d has id %d", i, n.ID)
	case n.FirstCount < 0:
		return r.fault(Inconsistent, "name %d begins at %d", i, n.FirstCount)
	case i > 0 && n.ID <= s.Named[i-1].ID:
		return r.fault(Inconsistent, "names %d and %d are not in order", i-1, i)
	}
	n.Name = string(name)
	s.Named = append(s.Named, n)
	return nil
}
