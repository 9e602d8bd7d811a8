package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
)

// MaxBytes is the largest size of a log file in bytes, since a position in the offset index has 31 bits.
const MaxBytes = math.MaxInt32

// MaxRelativeOffset is the greatest distance of an offset from the base offset, since it is stored in 31 bits.
const MaxRelativeOffset = math.MaxInt32

// DefaultIndexIntervalBytes is Kafka's default of index.interval.bytes.
const DefaultIndexIntervalBytes = 4096

// filePerm is what the log file is created with, less the umask. Kafka creates its files like this.
const filePerm = 0o644

// Config says how the files of a segment are kept. The zero value has Kafka's defaults.
type Config struct {
	// IndexIntervalBytes is how many bytes are appended between two index entries at least: a batch gets an entry if
	// more than that many bytes came since the last one. Kafka's index.interval.bytes; 0 means 4096. To index every
	// batch but the first, which in Kafka is 0, use 1: no batch is that small.
	IndexIntervalBytes int32

	// MaxIndexBytes is the size up to which each of the offset and time index may grow. Kafka's segment.index.bytes; 0
	// means 10 MiB. Below 12 there is no room for a time entry, which Create and OpenActive refuse.
	MaxIndexBytes int32

	// Preallocate reserves that many bytes for the log file when it is created; the logical size begins at 0 all the
	// same. 0 reserves nothing. Kafka's preallocate reserves segment.bytes.
	Preallocate int64

	// ReadOnly opens files for reading and creates none. A missing index is an empty one.
	ReadOnly bool

	// KafkaIndexes opens indexes as Kafka does, zeros at their end counted as entries (index.Config.KafkaOpen).
	KafkaIndexes bool

	// Suffix follows the name of each file: ".cleaned", ".swap", ".deleted", or nothing. Rename changes it.
	Suffix string

	// Pool bounds how many of the segments that share it have their files open; nil bounds nothing.
	Pool *Pool

	// Limits is asked, at each look-up by time, what reading records may take; nil stands for no limits but the format's.
	Limits func() record.Limits
}

func (c Config) interval() int64 {
	if c.IndexIntervalBytes <= 0 {
		return DefaultIndexIntervalBytes
	}
	return int64(c.IndexIntervalBytes)
}

func (c Config) limits() record.Limits {
	if c.Limits == nil {
		return record.Limits{}
	}
	return c.Limits()
}

func (c Config) index() index.Config {
	return index.Config{MaxBytes: c.MaxIndexBytes, ReadOnly: c.ReadOnly, KafkaOpen: c.KafkaIndexes}
}

// segmentKinds are the files of a segment in the order in which Kafka renames and removes them.
var segmentKinds = [...]Kind{KindLog, KindOffsetIndex, KindTimeIndex, KindTxnIndex}

// Segment is one log file with its indexes. See the package comment for what may run at the same time.
type Segment struct {
	fsys vfs.FS
	dir  string
	base int64
	cfg  Config

	// life counts those who hold the segment.
	life struct {
		sync.Mutex
		held    int  // Acquire less Release
		closing bool // no further Acquire
	}
	done chan struct{} // closed when the files are

	// use is held for reading while a file or index is in use, and for writing while one is closed, cut or trimmed.
	// It is taken at the lowest level only, for one operation on a file, never while calling an exported method.
	use    sync.RWMutex
	closed bool // guarded by use

	// syncing is held for reading over a sync, which must not hold up those who wait for use, and for writing while
	// files are closed. It is taken before use.
	syncing sync.RWMutex

	// opening is held while a file is opened or renamed, inside use.
	opening sync.Mutex
	suffix  [len(segmentKinds)]string // guarded by opening
	files   struct {
		log    lazy[openFile]
		offset lazy[index.Offset]
		time   lazy[index.Time]
		txn    lazy[index.Txn]
	}

	size     atomic.Int64 // logical bytes of the log file, -1 before it is known
	cuts     atomic.Int64 // truncations so far
	writable atomic.Bool
	suspects atomic.Int64 // look-ups that an index misled or could not serve
	member   member
	shadow   atomic.Pointer[shadow]
	aborts   atomic.Pointer[knownAborts]

	since int64 // writer only: bytes noted since the last index entry

	// noted is what is known about the batches below size, told what was known before the segment was opened.
	noted struct {
		sync.Mutex
		next        int64 // offset after the last batch, -1 before it is known
		newest      index.TimestampOffset
		newestKnown bool
		first       int64 // greatest timestamp of the first batch
		firstKnown  bool
	}
	told atomic.Pointer[told]
}

// openFile lets a lazy value hold a vfs.File.
type openFile struct{ vfs.File }

// lazy is a file or index that is opened at its first use.
type lazy[T any] struct{ p atomic.Pointer[T] }

// get returns what l holds, opening it if it holds nothing. However many goroutines ask, one opens and the others wait;
// an error is not remembered. The caller holds s.use.
func (l *lazy[T]) get(s *Segment, open func(*Segment) (*T, error)) (*T, error) {
	if p := l.p.Load(); p != nil {
		return p, nil
	}
	p, err := l.open(s, open)
	if err == nil {
		s.opened()
	}
	return p, err
}

func (l *lazy[T]) open(s *Segment, open func(*Segment) (*T, error)) (*T, error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	if p := l.p.Load(); p != nil {
		return p, nil
	}
	p, err := open(s)
	if err != nil {
		return nil, err
	}
	l.p.Store(p)
	return p, nil
}

// Open returns the segment with that base offset without any I/O: files are opened when they are first used, and kept
// open until Park, Close, or until a Pool needs the place. It is for reading, truncation and rebuilding; OpenActive makes it writable.
func Open(fsys vfs.FS, dir string, base int64, c Config) *Segment {
	s := &Segment{fsys: fsys, dir: dir, base: base, cfg: c, done: make(chan struct{})}
	for i := range s.suffix {
		s.suffix[i] = c.Suffix
	}
	s.size.Store(-1)
	s.noted.next = -1
	return s
}

// Create makes the files of a new segment and opens it for writing. A file that is there already is fs.ErrExist and
// is left alone. The names are durable after the caller has synced the directory.
func Create(fsys vfs.FS, dir string, base int64, c Config) (*Segment, error) {
	if c.ReadOnly {
		return nil, fmt.Errorf("%w: read-only: create %d in %s", ErrNotWritable, base, dir)
	}
	s := Open(fsys, dir, base, c)
	if base < 0 {
		return nil, fmt.Errorf("%w: base offset %d is negative", ErrOffsetOverflow, base)
	}
	for i := range segmentKinds {
		path := s.path(i)
		if _, err := fsys.Stat(path); err == nil {
			return nil, fmt.Errorf("segment: create: %w", &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist})
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("segment: create: %w", err)
		}
	}
	if err := s.create(); err != nil {
		err = errors.Join(err, s.closeFiles())
		for i := range segmentKinds {
			if rerr := fsys.Remove(s.path(i)); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
				err = errors.Join(err, fmt.Errorf("segment: undo create: %w", rerr))
			}
		}
		return nil, err
	}
	return s, nil
}

// create makes the indexes first, and their names durable: a broker that finds a log file without an offset index reads the
// segments before it as if they had been recovered, and does not start if the last one of them ends in reserved space.
func (s *Segment) create() error {
	if !s.cfg.KafkaIndexes {
		if err := s.withIndexes(func(*index.Offset, *index.Time) error { return nil }); err != nil {
			return err
		}
		if err := s.fsys.SyncDir(s.dir); err != nil {
			return fmt.Errorf("segment: create: %w", err)
		}
	}
	f, err := s.fsys.OpenFile(s.path(0), os.O_RDWR|os.O_CREATE|os.O_EXCL, filePerm)
	if err != nil {
		return fmt.Errorf("segment: create: %w", err)
	}
	s.files.log.p.Store(&openFile{f})
	s.opened()
	if s.cfg.Preallocate > 0 {
		if err := f.Allocate(min(s.cfg.Preallocate, MaxBytes)); err != nil {
			return fmt.Errorf("segment: %s: reserve %d bytes: %w", f.Name(), s.cfg.Preallocate, err)
		}
	}
	s.size.Store(0)
	s.forget()
	// Kafka makes index files when it first needs them, and a crash before that leaves none.
	return s.letWritesIn(!s.cfg.KafkaIndexes)
}

// OpenActive opens the files for writing, at the given logical size: bytes beyond it are reserved space, or will be
// overwritten. Missing indexes are created empty. What is known about the batches below size, from Note or from
// reading them, is kept if size has not changed. The next index entry comes when more than the index interval has been
// appended, as in Kafka after each open.
func (s *Segment) OpenActive(size int64) error {
	if s.cfg.ReadOnly {
		return fmt.Errorf("%w: read-only: %s", ErrNotWritable, s.Path())
	}
	physical, err := s.FileSize()
	if err != nil {
		return err
	}
	if size < 0 || size > physical {
		return fmt.Errorf("segment: %s: logical size %d, the file has %d bytes: %w", s.Path(), size, physical, fs.ErrInvalid)
	}
	if size > MaxBytes {
		return fmt.Errorf("%w: %s: %d bytes, at most %d", ErrSegmentFull, s.Path(), size, int64(MaxBytes))
	}
	s.SetSize(size)
	if _, err := s.MaxTimestamp(); err != nil {
		return err
	}
	return s.letWritesIn(true)
}

// letWritesIn makes the segment writable, with its indexes open or not. The caller is the writer.
func (s *Segment) letWritesIn(indexes bool) error {
	if n := s.cfg.MaxIndexBytes; n != 0 && n < 12 {
		return fmt.Errorf("segment: %s: segment.index.bytes is %d, a time index needs 12: %w", s.Path(), n, fs.ErrInvalid)
	}
	if indexes {
		if err := s.withIndexes(func(*index.Offset, *index.Time) error { return nil }); err != nil {
			return err
		}
	}
	s.since = 0
	s.writable.Store(true)
	return nil
}

// BaseOffset returns the offset that the segment is named after, at or below that of its first record.
func (s *Segment) BaseOffset() int64 { return s.base }

// Path returns the present path of the log file.
func (s *Segment) Path() string { return s.PathOf(KindLog) }

// PathOf returns the present path of the log file or of one of the indexes, whether or not that exists. Other kinds
// have none.
func (s *Segment) PathOf(kind Kind) string {
	for i, k := range segmentKinds {
		if k == kind {
			s.opening.Lock()
			defer s.opening.Unlock()
			return s.path(i)
		}
	}
	return ""
}

// path is the path of file i of segmentKinds. The caller holds opening, or is alone.
func (s *Segment) path(i int) string {
	return filepath.Join(s.dir, Name{Kind: segmentKinds[i], Offset: s.base, Suffix: s.suffix[i]}.String())
}

// Writable tells whether the segment takes appends: after Create, OpenActive and ResetIndexes, until Seal or Close.
func (s *Segment) Writable() bool { return s.writable.Load() }

// Size returns the logical size of the log file in bytes: the length of the file, or for a segment that is or was
// written to, the end of the last batch that was noted. Note may run ahead of the bytes, so a reader beside a writer
// needs an end of its own.
func (s *Segment) Size() (int64, error) {
	if n := s.size.Load(); n >= 0 {
		return n, nil
	}
	n, err := s.FileSize()
	if err != nil {
		return 0, err
	}
	if s.size.CompareAndSwap(-1, n) {
		return n, nil
	}
	return s.size.Load(), nil
}

// SetSize sets the logical size, for a file with reserved space behind its batches. What was known about the batches
// is forgotten if the size changes. The caller is the writer.
func (s *Segment) SetSize(n int64) {
	if s.size.Swap(n) != n {
		s.noted.Lock()
		s.noted.next, s.noted.newestKnown, s.noted.firstKnown = -1, false, false
		s.noted.Unlock()
		if k := s.told.Load(); k != nil && n < k.end {
			s.told.Store(nil)
		}
	}
}

// FileSize returns the length of the log file, reserved space included.
func (s *Segment) FileSize() (n int64, err error) {
	err = s.withLog(func(f vfs.File) error {
		info, err := f.Stat()
		if err != nil {
			return fmt.Errorf("segment: %w", err)
		}
		n = info.Size
		return nil
	})
	return n, err
}

// forget sets what is known of an empty segment. The caller is the writer.
func (s *Segment) forget() {
	s.since = 0
	s.noted.Lock()
	defer s.noted.Unlock()
	s.noted.next = s.base
	s.noted.newest, s.noted.newestKnown = index.TimestampOffset{Timestamp: record.NoTimestamp, Offset: s.base}, true
	s.noted.first, s.noted.firstKnown = record.NoTimestamp, false
	s.told.Store(nil)
}
