package producerstate

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"iter"
	"math"
	"path/filepath"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
)

// Sizes and positions of the snapshot format, see the package documentation. None is computed from another.
const (
	snapshotVersion  = 1
	snapshotHeader   = 10
	snapshotEntry    = 46
	snapshotCRCStart = 6
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendSnapshotEntry appends the 46 bytes of a producer, of whose batches only the newest has room.
func appendSnapshotEntry(dst []byte, p *producer) []byte {
	lastSequence, lastOffset, delta := record.NoSequence, NoOffset, int32(0)
	if m, ok := p.last(); ok {
		lastSequence, lastOffset, delta = m.LastSequence, m.LastOffset, m.OffsetDelta
	}
	dst = binary.BigEndian.AppendUint64(dst, uint64(p.id))
	dst = binary.BigEndian.AppendUint16(dst, uint16(p.epoch))
	dst = binary.BigEndian.AppendUint32(dst, uint32(lastSequence))
	dst = binary.BigEndian.AppendUint64(dst, uint64(lastOffset))
	dst = binary.BigEndian.AppendUint32(dst, uint32(delta))
	dst = binary.BigEndian.AppendUint64(dst, uint64(p.lastTimestamp))
	dst = binary.BigEndian.AppendUint32(dst, uint32(p.coordinatorEpoch))
	return binary.BigEndian.AppendUint64(dst, uint64(p.txnFirst))
}

// decodeSnapshotEntry reads the 46 bytes of a producer.
func decodeSnapshotEntry(b []byte) producer {
	p := producer{
		id:               int64(binary.BigEndian.Uint64(b)),
		epoch:            int16(binary.BigEndian.Uint16(b[8:])),
		lastTimestamp:    int64(binary.BigEndian.Uint64(b[26:])),
		coordinatorEpoch: int32(binary.BigEndian.Uint32(b[34:])),
		txnFirst:         int64(binary.BigEndian.Uint64(b[38:])),
		appendClock:      record.NoTimestamp,
	}
	m := BatchMetadata{
		LastSequence: int32(binary.BigEndian.Uint32(b[10:])),
		LastOffset:   int64(binary.BigEndian.Uint64(b[14:])),
		OffsetDelta:  int32(binary.BigEndian.Uint32(b[22:])),
		Timestamp:    p.lastTimestamp, // the batch's own is not stored; Kafka takes this one too
	}
	if m.LastOffset >= 0 {
		p.push(m)
	}
	return p
}

// checkSnapshotEntry says what cannot be in a snapshot for offset, or nothing.
func checkSnapshotEntry(b []byte, p *producer, offset int64) string {
	lastSequence, lastOffset := int32(binary.BigEndian.Uint32(b[10:])), int64(binary.BigEndian.Uint64(b[14:]))
	delta := int32(binary.BigEndian.Uint32(b[22:]))
	switch {
	case p.id < 0:
		return "negative producer id"
	case lastOffset < NoOffset:
		return "negative last offset"
	case lastOffset == NoOffset && (lastSequence != record.NoSequence || delta != 0):
		return "sequence without a last offset"
	case p.txnFirst < NoOffset:
		return "negative first offset of a transaction"
	}
	if p.txnFirst >= offset {
		return "transaction begins at or above the snapshot's own offset"
	}
	if m, ok := p.last(); ok {
		return checkBatch(m, offset)
	}
	return ""
}

// checkBatch says what cannot be remembered of a batch below offset.
func checkBatch(m BatchMetadata, offset int64) string {
	switch {
	case m.LastOffset >= offset:
		return "last offset is at or above the snapshot's own offset"
	case m.LastSequence < record.NoSequence:
		return "negative sequence"
	case m.OffsetDelta < 0 || int64(m.OffsetDelta) > m.LastOffset:
		return "offset delta out of range"
	}
	return ""
}

// AppendSnapshot appends the content of a snapshot file with the given producers to dst: of each, the newest batch. It is
// the format of Kafka's ProducerStateManager.writeSnapshot.
func AppendSnapshot(dst []byte, producers iter.Seq[Entry]) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, snapshotHeader)...)
	n := 0
	for e := range producers {
		p := fromEntry(&e)
		dst = appendSnapshotEntry(dst, &p)
		n++
	}
	sum := crc32.Update(0, castagnoli, binary.BigEndian.AppendUint32(nil, uint32(n)))
	sum = crc32.Update(sum, castagnoli, dst[start+snapshotHeader:])
	putSnapshotHeader(dst[start:], sum, n)
	return dst
}

func putSnapshotHeader(b []byte, sum uint32, n int) {
	binary.BigEndian.PutUint16(b, snapshotVersion)
	binary.BigEndian.PutUint32(b[2:], sum)
	binary.BigEndian.PutUint32(b[snapshotCRCStart:], uint32(n))
}

// streamSnapshot produces the content of f's snapshot file and returns its checksum. With a nil file it only computes it.
func streamSnapshot(file vfs.File, f *Frozen) (uint32, error) {
	sum := crc32.Update(0, castagnoli, binary.BigEndian.AppendUint32(nil, uint32(f.live)))
	size := min(blockSize, snapshotEntry*f.live)
	s := stream{f: file, pos: snapshotHeader, buf: make([]byte, 0, size)}
	s.sum = func(p []byte) { sum = crc32.Update(sum, castagnoli, p) }
	for p := range all(f.chunks) {
		s.done(appendSnapshotEntry(s.room(snapshotEntry), p))
	}
	s.flush()
	if s.err == nil && file != nil {
		head := make([]byte, snapshotHeader)
		putSnapshotHeader(head, sum, f.live)
		_, s.err = file.WriteAt(head, 0)
	}
	return sum, s.err
}

// WriteSnapshot writes the snapshot file of f without a side file, as a log does that must leave a directory as Kafka
// would: under a temporary name, synced, renamed, and the directory synced. Unlike Kafka, which writes in place.
func WriteSnapshot(fsys vfs.FS, dir string, f *Frozen) error {
	if err := checkWritable(f); err != nil {
		return err
	}
	err := replaceFile(fsys, snapshotPath(dir, f.offset), func(file vfs.File) error {
		_, err := streamSnapshot(file, f)
		return err
	})
	if err != nil {
		return fmt.Errorf("producerstate: writing a snapshot: %w", err)
	}
	return fsys.SyncDir(dir)
}

func checkWritable(f *Frozen) error {
	if int64(f.live) > math.MaxInt32 || f.offset < 0 {
		return fmt.Errorf("producerstate: writing a snapshot: offset %d, %d producers: out of range", f.offset, f.live)
	}
	return nil
}

// ReadSnapshot reads a snapshot file, whose name must be that of its offset: the producers with at most one batch each.
// What the format does not allow, and what contradicts the name, is a *SnapshotError; the memory taken is a small multiple
// of the file's size. There is no limit to the number of producers, unlike in Kafka 4.4, which does not read back more
// than 1,000,000.
func ReadSnapshot(fsys vfs.FS, path string) (*State, error) {
	offset, ok := ParseSnapshotName(filepath.Base(path))
	if !ok {
		return nil, fmt.Errorf("producerstate: not the name of a snapshot: %s", path)
	}
	data, err := readAll(fsys, path)
	if err != nil {
		return nil, fmt.Errorf("producerstate: reading a snapshot: %w", err)
	}
	return decodeSnapshot(data, path, offset)
}

// decodeSnapshot reads the content of a snapshot file for offset; path goes into errors.
func decodeSnapshot(data []byte, path string, offset int64) (*State, error) {
	n, sum, err := checkSnapshot(data, path, offset)
	if err != nil {
		return nil, err
	}
	s := &State{Offset: offset, Bare: true, SnapshotCRC: sum, NewestClock: record.NoTimestamp, table: newTable()}
	s.table.reserve(n)
	for i := range n {
		at := snapshotHeader + i*snapshotEntry
		p := decodeSnapshotEntry(data[at:])
		why := checkSnapshotEntry(data[at:], &p, offset)
		if why == "" {
			if _, twice := s.table.find(p.id); twice {
				why = "producer listed twice"
			}
		}
		if why != "" {
			return nil, &SnapshotError{
				Path: path, Offset: offset, Kind: Inconsistent, Pos: int64(at),
				Reason: fmt.Sprintf("entry %d, producer %d: %s", i, p.id, why),
			}
		}
		s.table.add(p)
	}
	return s, nil
}

// checkSnapshot checks everything about a snapshot but its entries and returns how many there are.
func checkSnapshot(data []byte, path string, offset int64) (n int, sum uint32, err error) {
	fault := func(kind SnapshotFault, pos int64, format string, args ...any) error {
		return &SnapshotError{Path: path, Offset: offset, Kind: kind, Pos: pos, Reason: fmt.Sprintf(format, args...)}
	}
	if len(data) < snapshotHeader {
		return 0, 0, fault(TooShort, int64(len(data)), "%d bytes, the header alone has %d", len(data), snapshotHeader)
	}
	// The checksum does not cover the version.
	if v := int16(binary.BigEndian.Uint16(data)); v != snapshotVersion {
		return 0, 0, fault(BadVersion, 0, "version %d, only %d is known", v, snapshotVersion)
	}
	sum = binary.BigEndian.Uint32(data[2:])
	count := int64(int32(binary.BigEndian.Uint32(data[snapshotCRCStart:])))
	size := snapshotHeader + snapshotEntry*count
	computed := crc32.Checksum(data[snapshotCRCStart:], castagnoli)
	if computed != sum {
		if count >= 0 && size < int64(len(data)) && crc32.Checksum(data[snapshotCRCStart:size], castagnoli) == sum {
			return 0, 0, fault(StaleTail, size,
				"stale tail after a shorter rewrite: the first %d bytes are a whole snapshot, %d more follow", size, int64(len(data))-size)
		}
		return 0, 0, fault(BadChecksum, 2, "checksum 0x%08x, want 0x%08x as computed", sum, computed)
	}
	switch {
	case count < 0:
		return 0, 0, fault(BadCount, snapshotCRCStart, "entry count %d", count)
	case size > int64(len(data)):
		return 0, 0, fault(BadCount, snapshotCRCStart, "%d entries need %d bytes, the file has %d", count, size, len(data))
	case size < int64(len(data)):
		return 0, 0, fault(TrailingBytes, size, "%d bytes behind the last entry", int64(len(data))-size)
	}
	return int(count), sum, nil
}
