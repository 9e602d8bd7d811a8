package dump

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"

	"github.com/oncelog/oncelog/internal/vfs"
)

// Sizes of the entries of the indexes.
const (
	offsetEntry = 8
	timeEntry   = 12
	txnEntry    = 34
)

// Table is an offset or a time index.
type Table struct {
	Slots         int64 // whole entries in the file
	ZeroSlots     int64 // of these, all zeros at the end
	TrailingBytes int64
	Damage        *Damage // the file is larger than any index

	file *blockReader
	base int64
	time bool
}

// OpenTable opens an offset index, or a time index.
func OpenTable(ctx context.Context, fsys vfs.FS, path string, base int64, isTime bool) (*Table, error) {
	f, err := openBlocks(ctx, fsys, path)
	if err != nil {
		return nil, err
	}
	t := &Table{file: f, base: base, time: isTime}
	for {
		err := t.measure(filepath.Base(path))
		if errors.Is(err, errShrunk) {
			continue
		}
		if err != nil {
			return nil, errors.Join(err, f.close())
		}
		return t, nil
	}
}

// measure finds out how many entries there are.
func (t *Table) measure(name string) error {
	width, size := int64(offsetEntry), t.file.size
	if t.time {
		width = timeEntry
	}
	t.Slots, t.TrailingBytes = size/width, size%width
	if size > MaxFileBytes {
		t.Damage = &Damage{File: name, Position: MaxFileBytes, Reason: fmt.Sprintf("%d bytes, larger than any index", size)}
		return nil
	}
	used, err := t.file.lastNonZero(t.Slots * width)
	t.ZeroSlots = t.Slots - (used+width-1)/width
	return err
}

// Close closes the file.
func (t *Table) Close() error { return t.file.close() }

// TableEntry is an entry of an offset index (offset, position) or of a time index (timestamp, offset).
type TableEntry [2]int64

// Entries yields all entries but the zeros at the end. An error is the last element.
func (t *Table) Entries() iter.Seq2[TableEntry, error] {
	return func(yield func(TableEntry, error) bool) {
		if t.Damage != nil {
			return
		}
		width := offsetEntry
		if t.time {
			width = timeEntry
		}
		end := (t.Slots - t.ZeroSlots) * int64(width)
		for p, err := range t.file.pieces(0, end, width) {
			if err != nil {
				yield(TableEntry{}, err)
				return
			}
			e := TableEntry{t.base + int64(int32(binary.BigEndian.Uint32(p))), int64(int32(binary.BigEndian.Uint32(p[4:])))}
			if t.time {
				e = TableEntry{int64(binary.BigEndian.Uint64(p)), t.base + int64(int32(binary.BigEndian.Uint32(p[8:])))}
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// AbortedTxn is an entry of a transaction index. Damage, with nothing but the version, is the last one.
type AbortedTxn struct {
	Version                                           int16
	ProducerID, FirstOffset, LastOffset, StableOffset int64
	Damage                                            *Damage
}

// TxnTable is a transaction index.
type TxnTable struct {
	// TrailingBytes is what was not read behind the entries. It is known when they have been walked.
	TrailingBytes int64

	file *blockReader
	name string
}

// OpenTxnTable opens a transaction index.
func OpenTxnTable(ctx context.Context, fsys vfs.FS, path string) (*TxnTable, error) {
	f, err := openBlocks(ctx, fsys, path)
	if err != nil {
		return nil, err
	}
	return &TxnTable{file: f, name: filepath.Base(path)}, nil
}

// Close closes the file.
func (t *TxnTable) Close() error { return t.file.close() }

// Entries yields the entries in the order of the file. An error is the last element.
func (t *TxnTable) Entries() iter.Seq2[AbortedTxn, error] {
	return func(yield func(AbortedTxn, error) bool) {
		read := int64(0)
		t.TrailingBytes = t.file.size
		for p, err := range t.file.pieces(0, min(t.file.size, MaxFileBytes), txnEntry) {
			e := AbortedTxn{}
			if err == nil {
				e = t.decode(p, read)
			}
			if err == nil && e.Damage == nil {
				read += txnEntry
				t.TrailingBytes = t.file.size - read
			}
			if !yield(e, err) || err != nil || e.Damage != nil {
				return
			}
		}
	}
}

func (t *TxnTable) decode(p []byte, pos int64) AbortedTxn {
	e := AbortedTxn{Version: int16(binary.BigEndian.Uint16(p))}
	if e.Version != 0 {
		e.Damage = &Damage{File: t.name, Position: pos, Reason: fmt.Sprintf("unsupported version %d", e.Version)}
		return e
	}
	e.ProducerID = int64(binary.BigEndian.Uint64(p[2:]))
	e.FirstOffset = int64(binary.BigEndian.Uint64(p[10:]))
	e.LastOffset = int64(binary.BigEndian.Uint64(p[18:]))
	e.StableOffset = int64(binary.BigEndian.Uint64(p[26:]))
	return e
}

// blockReader reads a file in blocks.
type blockReader struct {
	ctx  context.Context
	f    vfs.File
	size int64
	buf  []byte
}

func openBlocks(ctx context.Context, fsys vfs.FS, path string) (*blockReader, error) {
	f, err := fsys.OpenFile(path, vfs.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("dump: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("dump: %w", err), f.Close())
	}
	return &blockReader{ctx: ctx, f: f, size: info.Size}, nil
}

func (r *blockReader) close() error { return r.f.Close() }

// at returns n bytes at pos, at most 64 KiB, valid until the next call.
func (r *blockReader) at(pos, n int64) ([]byte, error) {
	if err := r.ctx.Err(); err != nil {
		return nil, err
	}
	if r.buf == nil {
		r.buf = make([]byte, blockStep)
	}
	got, err := r.f.ReadAt(r.buf[:n], pos)
	if int64(got) == n {
		return r.buf[:n], nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
		if info, statErr := r.f.Stat(); statErr == nil && info.Size < r.size {
			r.size = info.Size
			return nil, errShrunk
		}
	}
	return nil, fmt.Errorf("dump: %s: %w", r.f.Name(), err)
}

// errShrunk says that a file has become shorter than it was: a writer gave reserved space back, or truncated its log.
var errShrunk = errors.New("dump: the file has become shorter")

const blockStep = 64 << 10

// pieces yields the pieces of a width into which [from, to) can be divided; what is left at the end is not yielded.
func (r *blockReader) pieces(from, to int64, width int) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		step := int64(blockStep / width * width)
		for pos := from; to-pos >= int64(width); {
			p, err := r.at(pos, min(step, (to-pos)/int64(width)*int64(width)))
			if errors.Is(err, errShrunk) {
				to = min(to, r.size) // what is left of it is all there is
				continue
			}
			if err != nil {
				yield(nil, err)
				return
			}
			pos += int64(len(p))
			for ; len(p) > 0; p = p[width:] {
				if !yield(p[:width], nil) {
					return
				}
			}
		}
	}
}

// lastNonZero returns the end of [0, end) without the zeros at its end.
func (r *blockReader) lastNonZero(end int64) (int64, error) {
	for end > 0 {
		p, err := r.at(max(0, end-blockStep), min(end, blockStep))
		if err != nil {
			return 0, err
		}
		for i := len(p) - 1; i >= 0; i-- {
			if p[i] != 0 {
				return end - int64(len(p)) + int64(i) + 1, nil
			}
		}
		end -= int64(len(p))
	}
	return 0, nil
}
