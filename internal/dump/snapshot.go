package dump

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"iter"
	"path/filepath"

	"github.com/oncelog/oncelog/internal/vfs"
)

// Sizes of Kafka's producer snapshot.
const (
	snapshotHeader  = 10
	snapshotEntry   = 46
	snapshotVersion = 1
)

// Snapshot is a producer snapshot.
type Snapshot struct {
	File    string
	Size    int64
	HasHead bool // Version, CRC and Count are there
	Version int16
	CRC     uint32
	Count   int32
	Damage  *Damage // it is unreadable and has no entries

	file *blockReader
}

// SnapshotEntry is one producer of a snapshot, with the fields of the file. LastSequence and LastOffset are −1 and
// OffsetDelta is 0 if it has no batch.
type SnapshotEntry struct {
	ProducerID       int64
	ProducerEpoch    int16
	LastSequence     int32
	LastOffset       int64
	OffsetDelta      int32
	Timestamp        int64
	CoordinatorEpoch int32
	TxnFirstOffset   int64
}

// OpenSnapshot opens a snapshot and verifies its checksum.
func OpenSnapshot(ctx context.Context, fsys vfs.FS, path string) (*Snapshot, error) {
	f, err := openBlocks(ctx, fsys, path)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{File: filepath.Base(path), Size: f.size, file: f}
	if err := s.check(); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return s, nil
}

func (s *Snapshot) check() error {
	s.Damage = &Damage{File: s.File, Reason: "CorruptSnapshotException"}
	if s.Size < snapshotHeader {
		return nil
	}
	p, err := s.file.at(0, snapshotHeader)
	if errors.Is(err, errShrunk) {
		return nil
	}
	if err != nil {
		return err
	}
	s.HasHead = true
	s.Version = int16(binary.BigEndian.Uint16(p))
	s.CRC = binary.BigEndian.Uint32(p[2:])
	s.Count = int32(binary.BigEndian.Uint32(p[6:]))
	sum := crc32.Checksum(p[6:], castagnoli)
	// The length comes first: what is read is then as long as its header says, whatever the file claims to be.
	if s.Version != snapshotVersion || s.Count < 0 || s.Size != snapshotHeader+snapshotEntry*int64(s.Count) {
		return nil
	}
	for p, err := range s.file.pieces(snapshotHeader, s.Size, snapshotEntry) {
		if err != nil {
			return err
		}
		sum = crc32.Update(sum, castagnoli, p)
	}
	if sum == s.CRC {
		s.Damage = nil
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Close closes the file.
func (s *Snapshot) Close() error { return s.file.close() }

// Entries yields the producers in the order of the file. An error is the last element.
func (s *Snapshot) Entries() iter.Seq2[SnapshotEntry, error] {
	return func(yield func(SnapshotEntry, error) bool) {
		if s.Damage != nil {
			return
		}
		for p, err := range s.file.pieces(snapshotHeader, s.Size, snapshotEntry) {
			e := SnapshotEntry{}
			if err == nil {
				e = decodeSnapshotEntry(p)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

func decodeSnapshotEntry(p []byte) SnapshotEntry {
	e := SnapshotEntry{
		ProducerID:       int64(binary.BigEndian.Uint64(p)),
		ProducerEpoch:    int16(binary.BigEndian.Uint16(p[8:])),
		LastSequence:     int32(binary.BigEndian.Uint32(p[10:])),
		LastOffset:       int64(binary.BigEndian.Uint64(p[14:])),
		OffsetDelta:      int32(binary.BigEndian.Uint32(p[22:])),
		Timestamp:        int64(binary.BigEndian.Uint64(p[26:])),
		CoordinatorEpoch: int32(binary.BigEndian.Uint32(p[34:])),
		TxnFirstOffset:   int64(binary.BigEndian.Uint64(p[38:])),
	}
	if e.LastOffset < 0 {
		e.LastSequence, e.LastOffset, e.OffsetDelta = -1, -1, 0
	}
	if e.TxnFirstOffset < 0 {
		e.TxnFirstOffset = -1
	}
	return e
}
