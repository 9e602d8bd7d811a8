package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/cespare/xxhash/v2"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
)

// Names of the files of a backup. As long as the second one is there neither this library nor a broker opens the directory.
const (
	backupFile     = "oncelog.backup"
	unfinishedFile = "oncelog.unfinished.log"
)

// Format of oncelog.backup, big-endian:
//
//	offset  size  field
//	     0     8  magic "oncbackp"
//	     8     2  version, 1
//	    10     2  bytes of the source's path
//	    12     4  number of segments
//	    16     8  count of changes of the source
//	    24     8  generation of the state file of the backup
//	    32     8  log start offset
//	    40     8  log end offset
//	    48        the source's path
//	      each 40 base offset, bytes, then of the last batch base offset, position, size (4), CRC (4)
//	  last     8  XXH64 of everything before
const (
	backupVersion    = 1
	backupHead       = 48
	backupEntry      = 40
	maxBackupEntries = 1 << 20
)

var backupMagic = [8]byte{'o', 'n', 'c', 'b', 'a', 'c', 'k', 'p'}

// manifest says what a directory holds as a backup.
type manifest struct {
	source        string
	changes       uint64
	generation    uint64
	logStart, end int64
	segments      []backedUp // ascending by base offset
}

// backedUp is a segment that a backup has in full: its log file, its indexes, durable.
type backedUp struct {
	base, size int64
	last       record.Identity // of its last batch; size 0 if it has none
}

func (m *manifest) append(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, backupMagic[:]...)
	dst = binary.BigEndian.AppendUint16(dst, backupVersion)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(m.source)))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(m.segments)))
	for _, v := range [...]uint64{m.changes, m.generation, uint64(m.logStart), uint64(m.end)} {
		dst = binary.BigEndian.AppendUint64(dst, v)
	}
	dst = append(dst, m.source...)
	for _, s := range m.segments {
		for _, v := range [...]int64{s.base, s.size, s.last.BaseOffset, s.last.Position} {
			dst = binary.BigEndian.AppendUint64(dst, uint64(v))
		}
		dst = binary.BigEndian.AppendUint32(dst, uint32(s.last.Size))
		dst = binary.BigEndian.AppendUint32(dst, s.last.CRC)
	}
	return binary.BigEndian.AppendUint64(dst, xxhash.Sum64(dst[start:]))
}

// parseManifest decodes a manifest. What is damaged matches ErrCorrupt, what a later version wrote ErrUnsupportedVersion.
func parseManifest(p []byte) (m manifest, err error) {
	bad := func(what string) (manifest, error) {
		return manifest{}, fmt.Errorf("%w: %s: %s", ErrCorrupt, backupFile, what)
	}
	if len(p) < backupHead+8 || [8]byte(p[:8]) != backupMagic {
		return bad("it does not begin as one")
	}
	if sum := len(p) - 8; binary.BigEndian.Uint64(p[sum:]) != xxhash.Sum64(p[:sum]) {
		return bad("the checksum is wrong")
	}
	if v := binary.BigEndian.Uint16(p[8:]); v != backupVersion {
		return m, fmt.Errorf("%w: %s of version %d, this program knows version %d", ErrUnsupportedVersion, backupFile, v, backupVersion)
	}
	path, n := int(binary.BigEndian.Uint16(p[10:])), int(binary.BigEndian.Uint32(p[12:]))
	if n > maxBackupEntries || len(p) != backupHead+path+n*backupEntry+8 {
		return bad(fmt.Sprintf("%d bytes do not hold a path of %d and %d segments", len(p), path, n))
	}
	m.changes, m.generation = binary.BigEndian.Uint64(p[16:]), binary.BigEndian.Uint64(p[24:])
	m.logStart, m.end = int64(binary.BigEndian.Uint64(p[32:])), int64(binary.BigEndian.Uint64(p[40:]))
	m.source = string(p[backupHead : backupHead+path])
	p = p[backupHead+path:]
	m.segments = make([]backedUp, n)
	for i := range m.segments {
		s := &m.segments[i]
		e := p[i*backupEntry:]
		s.base, s.size = int64(binary.BigEndian.Uint64(e)), int64(binary.BigEndian.Uint64(e[8:]))
		s.last = record.Identity{SegmentBase: s.base, BaseOffset: int64(binary.BigEndian.Uint64(e[16:])),
			Position: int64(binary.BigEndian.Uint64(e[24:])), Size: int32(binary.BigEndian.Uint32(e[32:])), CRC: binary.BigEndian.Uint32(e[36:])}
		if s.base < 0 || s.size < 0 || s.last.Size < 0 || s.last.Position < 0 || i > 0 && s.base <= m.segments[i-1].base {
			return bad(fmt.Sprintf("segment %d cannot be", i))
		}
	}
	return m, nil
}

// readManifest reads what a directory holds as a backup. It is not found if there is no file.
func readManifest(fsys vfs.FS, dir string) (m manifest, found bool, err error) {
	const most = backupHead + 1<<16 + maxBackupEntries*backupEntry + 8
	f, err := fsys.OpenFile(filepath.Join(dir, backupFile), vfs.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return m, false, nil
	}
	if err != nil {
		return m, false, err
	}
	info, err := f.Stat()
	if err == nil && info.Size > most {
		err = fmt.Errorf("%w: %s has %d bytes", ErrCorrupt, f.Name(), info.Size)
	}
	var p []byte
	if err == nil {
		p = make([]byte, info.Size)
		if n, readErr := f.ReadAt(p, 0); readErr != nil && !errors.Is(readErr, io.EOF) {
			err = readErr
		} else {
			p = p[:n]
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return m, false, err
	}
	m, err = parseManifest(p)
	return m, err == nil, err
}

func (m *manifest) write(fsys vfs.FS, dir string) error {
	return vfs.WriteFileAtomic(fsys, filepath.Join(dir, backupFile), 0o644, m.append(nil))
}

// find returns the segment with that base offset.
func (m *manifest) find(base int64) (backedUp, bool) {
	for _, s := range m.segments {
		if s.base == base {
			return s, true
		}
	}
	return backedUp{}, false
}
