package recovery

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"

	"github.com/cespare/xxhash/v2"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
)

// StateFileName is the name of the state file in a partition directory.
const StateFileName = "oncelog.state"

// Layout of a slot. This is a format: later versions keep the magic, the place of the version and of the checksum.
const (
	slotStride   = 4096 // distance of slots: each lies in a page and in disk sectors of its own
	slotSize     = 512  // bytes of a slot that carry something
	slotSum      = 504  // position of the XXH64 of the bytes before it
	slotCount    = 3
	hintSlot     = 2 // never synced; slots 0 and 1 are synced in turn
	slotVersion  = 1
	maxBootIDLen = 95
)

var slotMagic = [8]byte{'o', 'n', 'c', 'e', 'l', 'o', 'g', '\n'}

const (
	flagClean = 1 << iota
	flagSyncFailed
	flagCutting
	flagGaps
	flagReplacing
)

// Position is the end of a stretch of the log, with the identity of the last batch below it. An identity of size 0
// says that no batch lies below the end: the log is empty up to there, or the batch was deleted on purpose.
type Position struct {
	Offset int64 // the first offset that is not covered
	Last   record.Identity
}

// EndPosition returns the byte behind the last batch below the position.
func (p Position) EndPosition() int64 { return p.Last.Position + int64(p.Last.Size) }

// Slot is what a slot of the state file says: how far the log had come, and what had been promised, at one moment.
type Slot struct {
	Generation uint64 // counts every write of a slot; the greatest valid one is the newest

	LogStart        int64                 // first offset that readers may see
	Durable         Position              // everything below is on disk
	Recovery        Position              // everything below is on disk together with its index entries and a pair of snapshot files
	SnapshotOffset  int64                 // offset of that pair, −1 if there is none
	NewestTimestamp int64                 // greatest batch timestamp below the durable end, milliseconds, −1 if there is none
	Newest          index.TimestampOffset // greatest batch timestamp of the active segment, and the last offset of the first such batch
	AppendClock     int64                 // the clock of the newest append, milliseconds

	Clean      bool // the log was closed, and nothing was written since
	SyncFailed bool // a sync of the log's own data failed: nothing newer than this slot may be believed
	Cutting    bool // a truncation to the durable end is under way
	Gaps       bool // offsets may jump: a follower's, a compacted or another program's log
	Replacing  bool // files of segments are being renamed, by compaction: a reader waits

	Mode       SyncMode
	GroupBound int64     // SyncCommit: most bytes that are ever written between two syncs
	BootID     string    // whose page cache it was
	Who        [2]uint64 // fingerprints of the files that another program rewrites; either one means that it was us
	Bare       [2]uint64 // the same without the leader epochs, for when that file was lost

	// Segments stands for the segments from the one with the log start on whose base offset lies below the durable end. It
	// says nothing while a truncation is under way.
	Segments SegmentSum

	// Changes grows whenever bytes of the log that somebody may have read are taken away or replaced, before that is done:
	// by a truncation, and by an open that has to cut. It begins with the clock, so that it differs when the file was lost.
	Changes uint64

	Cleaned   int64 // everything below has been compacted: the first dirty offset
	Compacted int64 // compaction may have moved, changed or removed any batch below

	// Doubtful says that a slot of the file is damaged, which may have been a newer one. It is not stored.
	Doubtful bool

	// RebuildFrom is 1 + the base offset of a segment, from which on a load was making indexes anew; 0 if none was.
	RebuildFrom int64

	// Txns stands for the aborted transactions whose marker is at or behind LogStart and below Recovery, in the
	// transaction indexes. TxnsKnown is false while segments are being replaced.
	Txns      TxnSum
	TxnsKnown bool
}

// append encodes the slot behind dst.
func (s *Slot) append(dst []byte) []byte {
	var b [slotSize]byte
	copy(b[:], slotMagic[:])
	binary.BigEndian.PutUint16(b[8:], slotVersion)
	var flags uint16
	for i, on := range [...]bool{s.Clean, s.SyncFailed, s.Cutting, s.Gaps, s.Replacing} {
		if on {
			flags |= 1 << i
		}
	}
	binary.BigEndian.PutUint16(b[10:], flags)
	b[12] = byte(s.Mode)
	binary.BigEndian.PutUint64(b[16:], s.Generation)
	binary.BigEndian.PutUint64(b[24:], uint64(s.LogStart))
	putPosition(b[32:], s.Durable)
	putPosition(b[72:], s.Recovery)
	for i, v := range [...]int64{s.SnapshotOffset, s.NewestTimestamp, s.AppendClock, s.GroupBound} {
		binary.BigEndian.PutUint64(b[112+8*i:], uint64(v))
	}
	binary.BigEndian.PutUint64(b[144:], s.Who[0])
	binary.BigEndian.PutUint64(b[152:], s.Who[1])
	binary.BigEndian.PutUint64(b[256:], uint64(s.Newest.Timestamp))
	binary.BigEndian.PutUint64(b[264:], uint64(s.Newest.Offset))
	boot := bootField(s.BootID)
	b[160] = byte(len(boot))
	copy(b[161:], boot)
	binary.BigEndian.PutUint64(b[272:], uint64(s.RebuildFrom))
	binary.BigEndian.PutUint64(b[280:], uint64(s.Cleaned))
	binary.BigEndian.PutUint64(b[288:], uint64(s.Compacted))
	binary.BigEndian.PutUint64(b[296:], s.Changes)
	binary.BigEndian.PutUint64(b[304:], s.Segments.Count)
	binary.BigEndian.PutUint64(b[312:], s.Segments.Sum)
	binary.BigEndian.PutUint64(b[320:], s.Bare[0])
	binary.BigEndian.PutUint64(b[328:], s.Bare[1])
	if s.TxnsKnown {
		binary.BigEndian.PutUint64(b[336:], s.Txns.Sum)
		binary.BigEndian.PutUint64(b[344:], min(s.Txns.Count, math.MaxUint64-1)+1)
	}
	binary.BigEndian.PutUint64(b[slotSum:], xxhash.Sum64(b[:slotSum]))
	return append(dst, b[:]...)
}

// bootField shortens a boot id that does not fit: it is only ever compared.
func bootField(id string) string {
	if len(id) <= maxBootIDLen {
		return id
	}
	return fmt.Sprintf("xxh64:%016x", xxhash.Sum64String(id))
}

func putPosition(b []byte, p Position) {
	binary.BigEndian.PutUint64(b[0:], uint64(p.Offset))
	binary.BigEndian.PutUint64(b[8:], uint64(p.Last.SegmentBase))
	binary.BigEndian.PutUint64(b[16:], uint64(p.Last.Position))
	binary.BigEndian.PutUint64(b[24:], uint64(p.Last.BaseOffset))
	binary.BigEndian.PutUint32(b[32:], uint32(p.Last.Size))
	binary.BigEndian.PutUint32(b[36:], p.Last.CRC)
}

func getPosition(b []byte) Position {
	return Position{
		Offset: int64(binary.BigEndian.Uint64(b[0:])),
		Last: record.Identity{
			SegmentBase: int64(binary.BigEndian.Uint64(b[8:])),
			Position:    int64(binary.BigEndian.Uint64(b[16:])),
			BaseOffset:  int64(binary.BigEndian.Uint64(b[24:])),
			Size:        int32(binary.BigEndian.Uint32(b[32:])),
			CRC:         binary.BigEndian.Uint32(b[36:]),
		},
	}
}

var errNoSlot = errors.New("recovery: not a state slot")

// parseSlot decodes a slot. A slot that was never written or was torn is errNoSlot; one of another version is
// ErrUnsupportedVersion.
func parseSlot(b []byte) (s Slot, err error) {
	if len(b) < slotSize || [8]byte(b[:8]) != slotMagic ||
		binary.BigEndian.Uint64(b[slotSum:]) != xxhash.Sum64(b[:slotSum]) {
		return s, errNoSlot
	}
	if v := binary.BigEndian.Uint16(b[8:]); v != slotVersion {
		return s, fmt.Errorf("%w: state slot of version %d, this program knows version %d", ErrUnsupportedVersion, v, slotVersion)
	}
	flags := binary.BigEndian.Uint16(b[10:])
	s.Clean, s.SyncFailed = flags&flagClean != 0, flags&flagSyncFailed != 0
	s.Cutting, s.Gaps, s.Replacing = flags&flagCutting != 0, flags&flagGaps != 0, flags&flagReplacing != 0
	s.Mode = SyncMode(b[12])
	s.Generation = binary.BigEndian.Uint64(b[16:])
	s.LogStart = int64(binary.BigEndian.Uint64(b[24:]))
	s.Durable, s.Recovery = getPosition(b[32:]), getPosition(b[72:])
	for i, p := range [...]*int64{&s.SnapshotOffset, &s.NewestTimestamp, &s.AppendClock, &s.GroupBound} {
		*p = int64(binary.BigEndian.Uint64(b[112+8*i:]))
	}
	s.Newest.Timestamp, s.Newest.Offset = int64(binary.BigEndian.Uint64(b[256:])), int64(binary.BigEndian.Uint64(b[264:]))
	s.RebuildFrom = int64(binary.BigEndian.Uint64(b[272:]))
	s.Cleaned, s.Compacted = int64(binary.BigEndian.Uint64(b[280:])), int64(binary.BigEndian.Uint64(b[288:]))
	s.Changes = binary.BigEndian.Uint64(b[296:])
	s.Segments = SegmentSum{binary.BigEndian.Uint64(b[304:]), binary.BigEndian.Uint64(b[312:])}
	if n := binary.BigEndian.Uint64(b[344:]); n > 0 {
		s.Txns, s.TxnsKnown = TxnSum{Count: n - 1, Sum: binary.BigEndian.Uint64(b[336:])}, true
	}
	s.Bare = [2]uint64{binary.BigEndian.Uint64(b[320:]), binary.BigEndian.Uint64(b[328:])}
	s.Who = [2]uint64{binary.BigEndian.Uint64(b[144:]), binary.BigEndian.Uint64(b[152:])}
	n := int(b[160])
	if n > maxBootIDLen || !s.plausible() {
		return Slot{}, errNoSlot
	}
	s.BootID = string(b[161 : 161+n])
	return s, nil
}

// plausible rejects what this program never writes, whatever the checksum says.
func (s *Slot) plausible() bool {
	if s.Mode > SyncNone || s.LogStart < 0 || s.GroupBound < 0 || s.SnapshotOffset < -1 || s.RebuildFrom < 0 ||
		s.Cleaned < 0 || s.Compacted < 0 {
		return false
	}
	for _, p := range [...]Position{s.Durable, s.Recovery} {
		if p.Offset < 0 || p.Last.Size < 0 || p.Last.Position < 0 || p.Last.SegmentBase < 0 ||
			p.Last.Position > math.MaxInt64-int64(p.Last.Size) {
			return false
		}
	}
	return true
}

// StateFile is the open state file of a partition. Its methods must not be called concurrently.
type StateFile struct {
	fsys   vfs.FS
	dir    string
	file   vfs.File // nil before the first write to a directory that has none
	cur    Slot     // the newest slot, or the zero Slot
	found  bool
	synced int // the slot that holds the newest synced state, −1 if there is none
	bad    [slotCount]bool
	buf    []byte
}

// OpenStateFile opens the state file of dir and reads its newest slot. For writing it first syncs the file and drops
// it from the page cache, so that what is believed is what a second crash would find. A missing file is not an error;
// the first write creates it.
func OpenStateFile(fsys vfs.FS, dir string, readOnly bool) (*StateFile, error) {
	f := &StateFile{fsys: fsys, dir: dir, synced: -1}
	flag := vfs.O_RDWR
	if readOnly {
		flag = vfs.O_RDONLY
	}
	file, err := fsys.OpenFile(f.path(), flag, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, fmt.Errorf("recovery: state file: %w", err)
	}
	f.file = file
	if err := f.load(readOnly); err != nil {
		file.Close()
		return nil, err
	}
	return f, nil
}

func (f *StateFile) load(readOnly bool) error {
	if !readOnly {
		if err := f.file.Sync(); err != nil {
			return fmt.Errorf("recovery: state file: %w", err)
		}
		// A failed drop only means that the cache may hide an earlier failed sync, as it may for any program.
		_ = f.file.DropCache(0, 0)
	}
	written := false
	for i := range slotCount {
		b, err := f.read(i)
		if err != nil {
			return err
		}
		written = written || len(bytes.Trim(b, "\x00")) > 0
		s, err := parseSlot(b)
		if errors.Is(err, errNoSlot) {
			f.bad[i] = len(b) < slotSize || len(bytes.Trim(b, "\x00")) > 0
			continue
		}
		if err != nil {
			return fmt.Errorf("%s, slot %d: %w", f.path(), i, err)
		}
		if !f.found || s.Generation > f.cur.Generation {
			f.cur, f.found = s, true
		}
		if i != hintSlot && (f.synced < 0 || s.Generation == f.cur.Generation) {
			f.synced = i
		}
	}
	if !written {
		f.bad = [slotCount]bool{} // the process ended before the first slot was there
	}
	f.cur.Doubtful = f.found && len(f.Damaged()) > 0
	return nil
}

// read returns the bytes of a slot, fewer than a slot has where the file ends. A reader has no lock: what is no slot may be one
// that is being written, and is read again until it stays the same.
func (f *StateFile) read(i int) ([]byte, error) {
	const most = 100
	var last []byte
	for try := 0; ; try++ {
		b := make([]byte, slotSize)
		n, err := f.file.ReadAt(b, int64(i)*slotStride)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("recovery: state file: %w", err)
		}
		b = b[:n]
		if _, err := parseSlot(b); !errors.Is(err, errNoSlot) || try > 0 && bytes.Equal(b, last) || try == most {
			return b, nil
		}
		last = b
	}
}

// SlotBytes returns the bytes that a slot takes in the file.
func SlotBytes(slot int) (from, end int64) {
	return int64(slot) * slotStride, int64(slot)*slotStride + slotSize
}

// Damaged returns the slots that are neither good nor empty. No writer leaves one, since a slot lies in one disk sector and is
// written in one piece, and the file has all its bytes before the first slot is there. The next writer makes them good.
func (f *StateFile) Damaged() (slots []int) {
	for i, bad := range f.bad {
		if bad {
			slots = append(slots, i)
		}
	}
	return slots
}

func (f *StateFile) path() string { return filepath.Join(f.dir, StateFileName) }

// Newest returns the newest slot, and whether there is one.
func (f *StateFile) Newest() (Slot, bool) { return f.cur, f.found }

// Sync writes the slot and makes it durable. The generation is set here. An error leaves the older synced slot.
func (f *StateFile) Sync(s Slot) error {
	created, err := f.create()
	if err != nil {
		return err
	}
	i := 0
	if f.synced == 0 {
		i = 1
	}
	if len(f.Damaged()) > 0 {
		if err := f.file.Allocate(slotCount * slotStride); err != nil {
			return fmt.Errorf("recovery: state file: %w", err)
		}
		if f.bad[hintSlot] {
			if err := f.write(&s, hintSlot); err != nil {
				return err
			}
			f.cur.Generation = s.Generation
		}
	}
	if err := f.write(&s, i); err != nil {
		return err
	}
	if err := f.file.SyncData(); err != nil {
		return fmt.Errorf("recovery: state file: %w", err)
	}
	if created {
		if err := f.fsys.SyncDir(f.dir); err != nil {
			return fmt.Errorf("recovery: state file: %w", err)
		}
	}
	f.cur, f.found, f.synced = s, true, i
	return nil
}

// SyncBoth writes the slot into both synced slots, one after the other, so that the loss of one cannot bring back
// what the other said before. It is for a log start that moves up.
func (f *StateFile) SyncBoth(s Slot) error {
	if err := f.Sync(s); err != nil {
		return err
	}
	return f.Sync(s)
}

// Hint writes the slot without a sync: exact after the end of a process, arbitrarily old after a power cut.
func (f *StateFile) Hint(s Slot) error {
	if f.file == nil {
		return errors.New("recovery: state file: hint before the first synced slot")
	}
	if err := f.write(&s, hintSlot); err != nil {
		return err
	}
	f.cur = s
	return nil
}

func (f *StateFile) write(s *Slot, i int) error {
	s.Generation = f.cur.Generation + 1
	f.buf = s.append(f.buf[:0])
	if _, err := f.file.WriteAt(f.buf, int64(i)*slotStride); err != nil {
		return fmt.Errorf("recovery: state file: %w", err)
	}
	f.bad[i] = false
	s.Doubtful = len(f.Damaged()) > 0
	return nil
}

// create opens the file if this is the first write. Its full size is reserved, so that later writes need no space.
func (f *StateFile) create() (created bool, err error) {
	if f.file != nil {
		return false, nil
	}
	file, err := f.fsys.OpenFile(f.path(), vfs.O_RDWR|vfs.O_CREATE, 0o644)
	if err != nil {
		return false, fmt.Errorf("recovery: state file: %w", err)
	}
	if err := file.Allocate(slotCount * slotStride); err != nil {
		file.Close()
		return false, fmt.Errorf("recovery: state file: %w", err)
	}
	f.file = file
	return true, nil
}

// Close closes the file. It writes nothing.
func (f *StateFile) Close() error {
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}
