package record

import (
	"encoding/binary"
	"io"
	"iter"
	"math"
)

// LegacyEntry describes one entry inside a compressed entry with magic 0 or 1, as it is stored.
type LegacyEntry struct {
	// Offset is the stored offset: that of the record in a wrapper with magic 0, relative in one with magic 1.
	Offset int64
	// Size is the length of the entry in bytes, offset and length fields included.
	Size int
	// Magic is 0 or 1, and in wrappers of old cleaners not always the wrapper's.
	Magic int8
	// Attributes is the stored byte, with all its bits.
	Attributes int8
	// Timestamp is the stored time in milliseconds, whatever type of time the wrapper has, and NoTimestamp with magic 0.
	Timestamp int64
	// CRC is the stored checksum.
	CRC uint32
	// CRCValid tells whether CRC is the checksum of the entry's bytes.
	CRCValid bool
}

// LegacyEntries yields what is inside a compressed entry with magic 0 or 1, for a reader that wants to see how it is
// stored; Records interprets it. It yields nothing for any other entry. An error is yielded last, with a zero entry: those
// of Records except that checksums, offsets and nested compression are shown and not judged. Limits apply as to Records.
func (b Batch) LegacyEntries(l Limits) iter.Seq2[LegacyEntry, error] {
	return func(yield func(LegacyEntry, error) bool) {
		if !b.isLegacy() || b.Attributes().Compression() == None {
			return
		}
		w, err := openWrapper(b, l.maxRecordBytes())
		if err != nil {
			yield(LegacyEntry{}, err)
			return
		}
		defer w.close()
		for {
			inner, err := w.next()
			if err != nil {
				yield(LegacyEntry{}, err)
				return
			}
			if inner == nil || !yield(legacyEntryOf(inner), nil) {
				return
			}
		}
	}
}

func legacyEntryOf(b Batch) LegacyEntry {
	return LegacyEntry{
		Offset: b.storedOffset(), Size: len(b), Magic: b.Magic(), Attributes: int8(b[posLegacyAttributes]),
		Timestamp: b.MaxTimestamp(), CRC: b.CRC(), CRCValid: b.CRC() == legacyChecksum(b),
	}
}

// wrapper reads the entries inside a compressed entry one after the other.
type wrapper struct {
	src   io.Closer
	s     *stream
	limit int   // the most that an entry may state as its length
	index int   // how many entries were read
	start int64 // where the last of them starts in the decompressed stream
}

func openWrapper(b Batch, limit int) (*wrapper, error) {
	var r Record
	if f := legacyKeyValue(b, &r); f.field != "" {
		return nil, recordFault(-1, f, 0)
	}
	if r.Value == nil {
		return nil, &RecordError{Index: -1, Field: "value", Reason: reasonNull}
	}
	src, err := decompressor(b.Attributes().Compression(), b.Magic(), r.Value)
	if err != nil {
		return nil, payloadError(-1, 0, err)
	}
	s := streams.Get().(*stream)
	s.src = src
	// With the 12 bytes in front an entry still has to fit an int of 32 bits.
	return &wrapper{src: src, s: s, limit: min(limit, math.MaxInt32-LogOverhead)}, nil
}

func (w *wrapper) close() {
	w.s.release()
	_ = w.src.Close() // What could not be decompressed was an error of Read; closing only gives buffers back.
}

// fault places a fault of the entry that was read last.
func (w *wrapper) fault(f fault) error { return recordFault(w.index-1, f, w.start) }

// next reads one entry and returns a view that is valid until the next call, or nil at the end. A wrapper without entries
// is an error.
func (w *wrapper) next() (Batch, error) {
	size, err := w.header()
	if err != nil || size == 0 {
		return nil, err
	}
	if !w.s.need(size) {
		return nil, w.short(size)
	}
	b := Batch(w.s.buf[w.s.r : w.s.r+size])
	w.s.r += size
	return b, nil
}

// skip reads one entry without keeping it and returns its offset; ok is false at the end.
func (w *wrapper) skip() (offset int64, ok bool, err error) {
	size, err := w.header()
	if err != nil || size == 0 {
		return 0, false, err
	}
	offset = int64(binary.BigEndian.Uint64(w.s.buf[w.s.r:]))
	for left := size; left > 0; {
		if !w.s.need(1) {
			return 0, false, w.short(size)
		}
		n := min(left, w.s.w-w.s.r)
		w.s.r += n
		left -= n
	}
	return offset, true, nil
}

// header makes sure that the first fields of the next entry are in the buffer and are such that a Batch may be made of it.
// It returns the entry's size, and 0 at the end.
func (w *wrapper) header() (size int, err error) {
	s := w.s
	if !s.need(1) && s.err == io.EOF {
		if w.index == 0 {
			return 0, &RecordError{Index: -1, Field: "records", Reason: reasonNone}
		}
		return 0, nil
	}
	w.start = s.pos()
	w.index++
	if !s.need(HeaderUpToMagic) {
		return 0, w.short(HeaderUpToMagic)
	}
	head := s.buf[s.r:s.w]
	length := int32(binary.BigEndian.Uint32(head[posLength:]))
	smallest := int32(legacyOverheadV0 - LogOverhead)
	switch magic := int8(head[posMagic]); magic {
	case 0:
	case 1:
		smallest = legacyOverheadV1 - LogOverhead
	default:
		return 0, w.fault(fault{field: "magic", reason: reasonUnknown, pos: posMagic, got: int64(magic), want: 1})
	}
	if length < smallest {
		return 0, w.fault(fault{field: "length", reason: reasonSmall, pos: posLength, got: int64(length), want: int64(smallest)})
	}
	if int(length) > w.limit {
		return 0, w.fault(fault{field: "length", reason: reasonLimit, pos: posLength, got: int64(length), want: int64(w.limit)})
	}
	return LogOverhead + int(length), nil
}

// short reports that the stream ended, or failed, before the size bytes of the current entry were there.
func (w *wrapper) short(size int) error {
	if w.s.err != io.EOF {
		return payloadError(w.index-1, w.s.pos(), w.s.err)
	}
	return w.fault(fault{field: "length", reason: reasonShort, got: int64(size), want: w.s.base + int64(w.s.w) - w.start})
}

// decode sets the key and the value of r from an entry that next returned, and checks the entry.
func (w *wrapper) decode(inner Batch, r *Record) error {
	if inner.Attributes().Compression() != None {
		return w.fault(fault{
			field: "attributes", reason: reasonNested, pos: posLegacyAttributes, got: int64(inner.Attributes().Compression()),
		})
	}
	if want := legacyChecksum(inner); inner.CRC() != want {
		err := recordFault(w.index-1, fault{
			field: "crc", reason: reasonMismatch, pos: posLegacyCRC, got: int64(inner.CRC()), want: int64(want),
		}, w.start)
		err.Err = ErrChecksum
		return err
	}
	if f := legacyKeyValue(inner, r); f.field != "" {
		return w.fault(f)
	}
	return nil
}
