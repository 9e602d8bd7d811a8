package producerstate

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
)

// Pair lists what a directory holds for one offset.
type Pair struct {
	// Offset is the offset in the names.
	Offset int64
	// HasSnapshot tells that Kafka's part is there.
	HasSnapshot bool
	// HasSideFile tells that our part is there. Without a snapshot it is an orphan.
	HasSideFile bool
	// HasNext tells that a side file is there which was about to replace the other one when writing was interrupted.
	HasNext bool
}

// ListPairs lists the snapshots and side files in dir in ascending order of their offsets, orphans included. It reads the
// directory only.
func ListPairs(fsys vfs.FS, dir string) ([]Pair, error) {
	files, err := list(fsys, dir, nil)
	return pairsIn(files), err
}

// list lists a directory, unless the caller has.
func list(fsys vfs.FS, dir string, files []vfs.DirEntry) ([]vfs.DirEntry, error) {
	if files != nil {
		return files, nil
	}
	files, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("producerstate: listing snapshots: %w", err)
	}
	return files, nil
}

func pairsIn(files []vfs.DirEntry) []Pair {
	byOffset := make(map[int64]*Pair)
	at := func(offset int64) *Pair {
		if byOffset[offset] == nil {
			byOffset[offset] = &Pair{Offset: offset}
		}
		return byOffset[offset]
	}
	for _, f := range files {
		if f.Kind != vfs.Regular {
			continue
		}
		if o, ok := ParseSnapshotName(f.Name); ok {
			at(o).HasSnapshot = true
		} else if o, ok := ParseSideFileName(f.Name); ok {
			at(o).HasSideFile = true
		} else if o, ok := ParseSideFileName(strings.TrimSuffix(f.Name, nextSuffix)); ok {
			at(o).HasNext = true
		}
	}
	pairs := make([]Pair, 0, len(byOffset))
	for _, p := range byOffset {
		pairs = append(pairs, *p)
	}
	slices.SortFunc(pairs, func(a, b Pair) int { return compareOffsets(a.Offset, b.Offset) })
	return pairs
}

func compareOffsets(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// WritePair writes the snapshot of f and the side file that goes with it, and returns when both are durable. last names
// the last batch of the log below f's offset; a Size of 0 says that there is none or that it is not known.
//
// The side file goes first: it is synced and so is its name, then the snapshot, which makes the pair valid, is written
// in the same way. Wherever that is interrupted, what was readable before still is, or the new pair is. This holds also
// where a pair for the same offset is replaced: the new side file then waits under a name of its own until its snapshot
// is there. If the side file cannot be written, there is no snapshot either.
func WritePair(fsys vfs.FS, dir string, f *Frozen, last record.Identity) error {
	if err := writePair(fsys, dir, f, last); err != nil {
		return fmt.Errorf("producerstate: writing the snapshot for offset %d: %w", f.offset, err)
	}
	return nil
}

func writePair(fsys vfs.FS, dir string, f *Frozen, last record.Identity) error {
	if err := checkWritable(f); err != nil {
		return err
	}
	sum, err := streamSnapshot(nil, f)
	if err != nil {
		return err
	}
	replacing, err := settle(fsys, dir, f.offset)
	if err != nil {
		return err
	}
	side := sidePath(dir, f.offset)
	if replacing {
		side = nextPath(dir, f.offset)
	}
	err = replaceFile(fsys, side, func(file vfs.File) error { return streamSideFile(file, f, sum, last) })
	if err != nil {
		return err
	}
	// The side file's name must be durable before the snapshot's: a snapshot without one is worth less.
	if err := fsys.SyncDir(dir); err != nil {
		return err
	}
	err = replaceFile(fsys, snapshotPath(dir, f.offset), func(file vfs.File) error {
		_, err := streamSnapshot(file, f)
		return err
	})
	if err != nil {
		return err
	}
	if err := fsys.SyncDir(dir); err != nil {
		return err
	}
	if !replacing {
		return nil
	}
	if err := fsys.Rename(side, sidePath(dir, f.offset)); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}

// settle ends a replacement of the pair for offset that was interrupted, and tells whether there is a side file to be
// replaced. Without this, writing once more would overwrite the waiting side file, which may be the only one that belongs
// to the snapshot.
func settle(fsys vfs.FS, dir string, offset int64) (hasSide bool, err error) {
	hasSide, err = exists(fsys, sidePath(dir, offset))
	if err != nil {
		return false, err
	}
	hasNext, err := exists(fsys, nextPath(dir, offset))
	if err != nil || !hasNext {
		return hasSide, err
	}
	snapshot, err := readHead(fsys, snapshotPath(dir, offset), snapshotHeader)
	if err != nil {
		return false, err
	}
	next, err := readHead(fsys, nextPath(dir, offset), sideHeader)
	if err != nil {
		return false, err
	}
	if len(snapshot) == snapshotHeader && len(next) == sideHeader && bytes.Equal(snapshot[2:6], next[24:28]) {
		if err := fsys.Rename(nextPath(dir, offset), sidePath(dir, offset)); err != nil {
			return false, err
		}
		return true, fsys.SyncDir(dir)
	}
	if err := fsys.Remove(nextPath(dir, offset)); err != nil {
		return false, err
	}
	return hasSide, fsys.SyncDir(dir)
}

func exists(fsys vfs.FS, name string) (bool, error) {
	_, err := fsys.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// readHead returns the first n bytes of a file, or fewer if it is shorter or missing.
func readHead(fsys vfs.FS, name string, n int) ([]byte, error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b := make([]byte, n)
	got, err := f.ReadAt(b, 0)
	if err == io.EOF {
		err = nil
	}
	return b[:got], errors.Join(err, f.Close())
}

// ReadPair reads the snapshot for offset together with its side file, checks that they belong together and agree in every
// producer, and returns the whole state. A missing snapshot is fs.ErrNotExist. Everything that makes the pair unusable
// is a *SnapshotError about the file to blame; its Kind is NoSideFile where only the snapshot is there, which
// ReadSnapshot can still read. It changes nothing in the directory.
func ReadPair(fsys vfs.FS, dir string, offset int64) (*State, error) {
	path := snapshotPath(dir, offset)
	data, err := readAll(fsys, path)
	if err != nil {
		return nil, fmt.Errorf("producerstate: reading a snapshot: %w", err)
	}
	n, sum, err := checkSnapshot(data, path, offset)
	if err != nil {
		return nil, err
	}
	s, err := readSideOf(fsys, sidePath(dir, offset), sum, n, data)
	if err == nil {
		return s, nil
	}
	// An interrupted replacement leaves the matching side file under its waiting name.
	if s, err2 := readSideOf(fsys, nextPath(dir, offset), sum, n, data); err2 == nil {
		return s, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &SnapshotError{Path: path, Offset: offset, Kind: NoSideFile, Reason: SideFileName(offset) + " is missing"}
	}
	return nil, err
}

// readSideOf reads a side file and compares it with the content of its snapshot.
func readSideOf(fsys vfs.FS, side string, sum uint32, n int, snapshot []byte) (*State, error) {
	s, err := ReadSideFile(fsys, side)
	if err != nil {
		return nil, err
	}
	fault := func(pos int64, format string, args ...any) error {
		return &SnapshotError{Path: side, Offset: s.Offset, Kind: NotAPair, Pos: pos, Reason: fmt.Sprintf(format, args...)}
	}
	if s.SnapshotCRC != sum {
		return nil, fault(24, "it belongs to a snapshot with checksum 0x%08x, the one there has 0x%08x", s.SnapshotCRC, sum)
	}
	if s.Len() != n {
		return nil, fault(28, "%d producers, the snapshot has %d", s.Len(), n)
	}
	at := snapshotHeader
	var entry [snapshotEntry]byte
	for p := range all(s.table.chunks) {
		if !bytes.Equal(appendSnapshotEntry(entry[:0], p), snapshot[at:at+snapshotEntry]) {
			return nil, fault(int64(sideHeader), "producer %d is not as in entry %d of the snapshot, producer %d",
				p.id, (at-snapshotHeader)/snapshotEntry, int64(binary.BigEndian.Uint64(snapshot[at:])))
		}
		at += snapshotEntry
	}
	return s, nil
}

// RemovePair removes the snapshots for some offsets and their side files, missing ones included. The snapshots go first
// and durably: a snapshot that came back after a power cut without its side file would remember less than it should.
func RemovePair(fsys vfs.FS, dir string, offsets ...int64) error {
	if len(offsets) == 0 {
		return nil
	}
	var snapshots, sides []string
	for _, o := range offsets {
		snapshots = append(snapshots, SnapshotName(o))
		for _, name := range []string{SideFileName(o), SideFileName(o) + nextSuffix} {
			ok, err := exists(fsys, pathIn(dir, name))
			if err != nil {
				return fmt.Errorf("producerstate: removing snapshots: %w", err)
			}
			if ok {
				sides = append(sides, name)
			}
		}
	}
	err := removeFiles(fsys, dir, snapshots)
	if err == nil {
		err = fsys.SyncDir(dir)
	}
	if err == nil && len(sides) > 0 {
		err = removeFiles(fsys, dir, sides)
	}
	if err != nil {
		return fmt.Errorf("producerstate: removing snapshots: %w", err)
	}
	return nil
}

// RemoveOrphans removes the side files without a snapshot and what interrupted writes have left, and returns the names.
// Kafka removes snapshots and leaves side files behind. Load the state first: an orphan may be the last to know a name.
// files is what the directory holds; if it is nil, it is listed.
func RemoveOrphans(fsys vfs.FS, dir string, files []vfs.DirEntry) (removed []string, err error) {
	if files, err = list(fsys, dir, files); err != nil {
		return nil, err
	}
	for _, p := range pairsIn(files) {
		if p.HasSnapshot {
			continue
		}
		if p.HasSideFile {
			removed = append(removed, SideFileName(p.Offset))
		}
		if p.HasNext {
			removed = append(removed, SideFileName(p.Offset)+nextSuffix)
		}
	}
	for _, f := range files {
		if f.Kind == vfs.Regular && isLeftover(f.Name) {
			removed = append(removed, f.Name)
		}
	}
	if err := removeFiles(fsys, dir, removed); err != nil {
		return nil, fmt.Errorf("producerstate: removing orphans: %w", err)
	}
	return removed, nil
}
