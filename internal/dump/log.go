package dump

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"path/filepath"
	"time"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
)

// DefaultMaxBatchBytes is the largest batch that is held in memory, sixteen times what a broker accepts by default.
const DefaultMaxBatchBytes = 16 << 20

// readStep is how much is read at once.
const readStep = 256 << 10

// writerStep is how long a batch is waited for that a writer may have begun.
var writerStep = 20 * time.Millisecond // a variable for tests in which nobody writes

const maxWaits = 50 // in a file

// minLength is the smallest length field that Kafka's file reader lets pass.
const minLength = 14

// Entry is a batch where it lies, or with magic 0 and 1 a message or wrapper. It is valid until the next step.
type Entry struct {
	Position int64
	Size     int64 // bytes
	Valid    bool  // whole, with a good checksum

	// Batch is the whole entry, unless Large: then it is nothing but its header, whose accessors may be used, of magic 0
	// and 1 all but BaseOffset.
	Batch record.Batch
	Large bool // above the limit of the reader
}

// Legacy tells whether the entry is of message format 0 or 1.
func (e *Entry) Legacy() bool { return e.Batch.Magic() < record.Magic }

// End is the byte behind the entry.
func (e *Entry) End() int64 { return e.Position + e.Size }

// LogReader walks the entries of a .log file as Kafka's FileRecords does, and stops at the first that is not good. In a
// file that is being written it waits a moment for a batch that has only begun.
type LogReader struct {
	ctx      context.Context
	f        vfs.File
	name     string
	size     int64
	maxBatch int64

	pos    int64 // of the next entry
	bufPos int64 // position of buf[0]
	buf    []byte
	head   [record.Overhead]byte

	entry   Entry
	bad     bool      // entry is the one that is not good
	shrunk  bool      // the file has become shorter during the present step
	written time.Time // when a writer went on behind the place that looked damaged
	waits   int
	damage  *Damage
	err     error
}

// OpenLog opens a .log file. A maxBatch of 0 means DefaultMaxBatchBytes.
func OpenLog(ctx context.Context, fsys vfs.FS, path string, maxBatch int) (*LogReader, error) {
	f, err := fsys.OpenFile(path, vfs.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("dump: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("dump: %w", err), f.Close())
	}
	if maxBatch == 0 {
		maxBatch = DefaultMaxBatchBytes
	}
	return &LogReader{ctx: ctx, f: f, name: filepath.Base(path), size: info.Size, maxBatch: int64(maxBatch)}, nil
}

// Size is the length of the file when it was opened.
func (r *LogReader) Size() int64 { return r.size }

// Close closes the file.
func (r *LogReader) Close() error { return r.f.Close() }

// Next steps to the next good entry. False means the end, Damage, or Err.
func (r *LogReader) Next() bool {
	if r.damage != nil || r.err != nil {
		return false
	}
	for {
		if err := r.ctx.Err(); err != nil {
			r.err = err
			return false
		}
		r.shrunk = false
		good := r.step()
		if !r.shrunk {
			if good || r.damage == nil || !r.unfinished() {
				return good
			}
		}
		// A writer gave reserved space back, or went on. What lies before it is as it was.
		r.damage, r.bad, r.err = nil, false, nil
	}
}

// unfinished tells whether the damage may be a batch that a running writer has only begun, and then waits a moment: the
// file has been written since the last time that this place was looked at, if it was looked at before. A system may count
// the time of a change in steps of 10 ms.
func (r *LogReader) unfinished() bool {
	zeros, err := r.ZeroTail()
	if zeros || err != nil {
		r.err = err
		return false
	}
	info, err := r.f.Stat()
	if err != nil {
		return false
	}
	if info.ModTime.Equal(r.written) || r.waits == maxWaits {
		return false
	}
	r.written = info.ModTime
	r.waits++
	select {
	case <-time.After(writerStep):
	case <-r.ctx.Done():
	}
	r.size, r.bufPos = max(r.size, info.Size), -1<<62 // no byte that was read before counts
	return true
}

// step is Next for a file that keeps its length.
func (r *LogReader) step() bool {
	left := r.size - r.pos
	if left <= record.HeaderUpToMagic {
		if left > 0 {
			r.incomplete()
		}
		return false
	}
	head := r.view(r.pos, record.HeaderUpToMagic)
	if r.err != nil {
		return false
	}
	length, magic := int32(binary.BigEndian.Uint32(head[8:])), int8(head[16])
	switch size := int64(length) + record.LogOverhead; {
	case length < minLength:
		r.stop("CorruptRecordException: Found record size %d smaller than minimum record overhead (%d) in file %s.", length, minLength, r.name)
	case size > left:
		r.incomplete()
	case magic < 0 || magic > record.Magic:
		r.stop("CorruptRecordException: Invalid magic found in record: %d", magic)
	case size < smallest(magic):
		r.stop("size or CRC wrong")
	default:
		r.read(size)
	}
	return r.err == nil && r.damage == nil
}

// smallest is how long an entry must be for its header to be there.
func smallest(magic int8) int64 {
	switch magic {
	case 0:
		return 26
	case 1:
		return 34
	}
	return record.Overhead
}

// read makes the entry of size bytes at the present position the current one.
func (r *LogReader) read(size int64) {
	r.entry = Entry{Position: r.pos, Size: size, Large: size > r.maxBatch}
	if r.entry.Large {
		copy(r.head[:], r.view(r.pos, record.Overhead))
		r.entry.Batch = r.head[:]
		r.entry.Valid = r.verify(&r.entry)
	} else if p := r.view(r.pos, size); r.err == nil {
		b, _, err := record.Next(p)
		r.entry.Batch, r.entry.Valid = b, err == nil && b.Validate() == nil
	}
	switch {
	case r.err != nil:
	case r.entry.Valid:
		r.pos += size
	default:
		r.Reject("size or CRC wrong")
	}
}

// verify computes the checksum of a large entry in pieces.
func (r *LogReader) verify(e *Entry) bool {
	start, table := int64(21), crc32.MakeTable(crc32.Castagnoli)
	if e.Legacy() {
		start, table = 16, crc32.IEEETable
	}
	sum := uint32(0)
	for pos := e.Position + start; pos < e.End() && r.err == nil; {
		p := r.view(pos, min(readStep, e.End()-pos))
		sum = crc32.Update(sum, table, p)
		pos += int64(len(p))
		if err := r.ctx.Err(); err != nil {
			r.err = err
		}
	}
	return sum == e.Batch.CRC()
}

// view returns n bytes at pos, valid until the next call.
func (r *LogReader) view(pos, n int64) []byte {
	if at := pos - r.bufPos; at >= 0 && at+n <= int64(len(r.buf)) {
		return r.buf[at : at+n]
	}
	want := min(max(n, readStep), r.size-pos)
	if int64(cap(r.buf)) < want || cap(r.buf) > readStep && want <= readStep {
		r.buf = make([]byte, want)
	}
	r.buf, r.bufPos = r.buf[:want], pos
	if got, err := r.f.ReadAt(r.buf, pos); int64(got) < want {
		r.fail(err)
		clear(r.buf)
		r.bufPos = -1 << 62 // nothing of it is to be used again
	}
	return r.buf[:n]
}

// fail takes note of a failed read. One that met the end of the file is no error if the file has become shorter.
func (r *LogReader) fail(err error) {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
		if info, statErr := r.f.Stat(); statErr == nil && info.Size < r.size && info.Size >= r.pos {
			r.size, r.shrunk = info.Size, true
		}
	}
	r.err = fmt.Errorf("dump: %s: %w", r.name, err)
}

func (r *LogReader) stop(format string, args ...any) {
	r.damage = &Damage{File: r.name, Position: r.pos, Reason: fmt.Sprintf(format, args...)}
}

func (r *LogReader) incomplete() {
	r.stop("incomplete batch at the end: %d bytes", r.size-r.pos)
}

// Reject makes the current entry the bad one: its records cannot be read.
func (r *LogReader) Reject(reason string) {
	r.pos, r.bad = r.entry.Position, true
	r.stop("%s", reason)
}

// Skip goes on behind damage, at a place where an entry is known to begin.
func (r *LogReader) Skip(pos int64) {
	r.pos, r.bad, r.damage = pos, false, nil
}

// Entry is the current entry.
func (r *LogReader) Entry() *Entry { return &r.entry }

// Rejected is the whole entry that is not good, or nil where Damage is of another kind.
func (r *LogReader) Rejected() *Entry {
	if !r.bad {
		return nil
	}
	return &r.entry
}

// Damage is why the walk stopped before the end of the file, or nil.
func (r *LogReader) Damage() *Damage { return r.damage }

// ZeroTail tells whether nothing but zeros lies between the damage and the end of the file: space that a writer reserved
// and had no time to give back.
func (r *LogReader) ZeroTail() (bool, error) {
	if r.damage == nil || r.size > MaxFileBytes {
		return false, nil
	}
	for pos := r.pos; pos < r.size; {
		if err := r.ctx.Err(); err != nil {
			return false, err
		}
		r.shrunk = false
		p := r.view(pos, min(readStep, r.size-pos))
		if r.shrunk {
			r.err = nil
			continue
		}
		if r.err != nil {
			return false, r.err
		}
		for _, b := range p {
			if b != 0 {
				return false, nil
			}
		}
		pos += int64(len(p))
	}
	return true, nil
}

// Position is the end of the good entries.
func (r *LogReader) Position() int64 { return r.pos }

// Err is the error of the file system or the context that ended the walk.
func (r *LogReader) Err() error { return r.err }

// MaxFileBytes is the size that no file of a segment exceeds, for Kafka counts positions in 32 bits.
const MaxFileBytes = math.MaxInt32
