package segment

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/internal/vfs"
)

// enter lets the files be used until leave.
func (s *Segment) enter() error {
	s.used()
	s.use.RLock()
	if s.closed {
		s.use.RUnlock()
		return fmt.Errorf("%w: base offset %d in %s", ErrClosed, s.base, s.dir)
	}
	return nil
}

func (s *Segment) leave() { s.use.RUnlock() }

// withLog runs f on the open log file, beside other users.
func (s *Segment) withLog(f func(vfs.File) error) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	file, err := s.files.log.get(s, openLog)
	if err != nil {
		return err
	}
	return f(file)
}

// withIndexes runs f on the open offset and time index, beside other users.
func (s *Segment) withIndexes(f func(*index.Offset, *index.Time) error) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	return s.indexes(f)
}

// indexes runs f on the open offset and time index. The caller holds use.
func (s *Segment) indexes(f func(*index.Offset, *index.Time) error) error {
	offsets, err := s.files.offset.get(s, openOffsetIndex)
	if err != nil {
		return err
	}
	times, err := s.files.time.get(s, openTimeIndex)
	if err != nil {
		return err
	}
	return f(offsets, times)
}

// withTxn runs f on the open transaction index, beside other users.
func (s *Segment) withTxn(f func(*index.Txn) error) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	txn, err := s.files.txn.get(s, openTxnIndex)
	if err != nil {
		return err
	}
	return f(txn)
}

// alone runs f while nobody else uses the files.
func (s *Segment) alone(f func() error) error {
	s.use.Lock()
	defer s.use.Unlock()
	if s.closed {
		return fmt.Errorf("%w: base offset %d in %s", ErrClosed, s.base, s.dir)
	}
	return f()
}

// aloneWithoutSync runs f while nobody else uses or syncs the files, so that f may close them.
func (s *Segment) aloneWithoutSync(f func() error) error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	return s.alone(f)
}

func openLog(s *Segment) (*openFile, error) {
	flag := os.O_RDWR
	if s.cfg.ReadOnly {
		flag = os.O_RDONLY
	}
	f, err := s.fsys.OpenFile(s.path(0), flag, filePerm)
	if err != nil {
		return nil, fmt.Errorf("segment: open: %w", err)
	}
	return &openFile{f}, nil
}

func openOffsetIndex(s *Segment) (*index.Offset, error) {
	return index.OpenOffset(s.fsys, s.path(1), s.base, s.cfg.index())
}

func openTimeIndex(s *Segment) (*index.Time, error) {
	return index.OpenTime(s.fsys, s.path(2), s.base, s.cfg.index())
}

func openTxnIndex(s *Segment) (*index.Txn, error) {
	return index.OpenTxn(s.fsys, s.path(3), s.base, s.cfg.index())
}

// File returns the open log file, for a writer that reserves space or maps it. It belongs to the segment and is closed
// by Park, Rename, Close and Remove; a Pool leaves it open up to Seal. All writes and syncs of an active segment should go through this one file, since a
// failed write-back is reported once to each open file.
func (s *Segment) File() (f vfs.File, err error) {
	err = s.withLog(func(open vfs.File) error {
		if o, ok := open.(*openFile); ok {
			open = o.File
		}
		s.member.pinned.Store(true)
		f = open
		return nil
	})
	return f, err
}

// Vanished tells whether an error of a reader says that a file, or the end of it, is no longer there: a writer in another
// process has removed or cut it since the reader looked.
func Vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.ErrUnexpectedEOF)
}

// readAt fills p from position pos of the log file. A file that ends before is io.ErrUnexpectedEOF. Errors are
// readErrors.
func (s *Segment) readAt(p []byte, pos int64) error {
	if err := s.enter(); err != nil {
		return &readError{err}
	}
	defer s.leave()
	f, err := s.files.log.get(s, openLog)
	if err != nil {
		return &readError{err}
	}
	n, err := f.ReadAt(p, pos)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return &readError{fmt.Errorf("segment: %s: read %d bytes at byte %d: %w", f.Name(), len(p), pos, err)}
}

// Park closes the files of a segment that is not written to, to give descriptors and maps back; the next use opens them
// again. It waits for operations that are under way, not for holders. A writable segment stays open.
func (s *Segment) Park() error {
	return s.aloneWithoutSync(func() error {
		if s.writable.Load() {
			return nil
		}
		return s.closeFiles()
	})
}

// closeFiles closes what is open. The caller holds use for writing, or is alone.
func (s *Segment) closeFiles() error { return s.detach().close() }

func (o openFiles) close() error {
	var errs []error
	if o.offset != nil {
		errs = append(errs, o.offset.Close())
	}
	if o.time != nil {
		errs = append(errs, o.time.Close())
	}
	if o.txn != nil {
		errs = append(errs, o.txn.Close())
	}
	if o.log != nil {
		if err := o.log.Close(); err != nil {
			errs = append(errs, fmt.Errorf("segment: close: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Acquire keeps the files from being closed until Release, and returns false if the segment is closed or about to be:
// take a newer set then. It does not keep the segment from being truncated, renamed or removed.
func (s *Segment) Acquire() bool {
	s.life.Lock()
	defer s.life.Unlock()
	if s.life.closing {
		return false
	}
	s.life.held++
	return true
}

// Release ends what one Acquire began. The last one closes the files if Close or Remove was called meanwhile; an error
// of that is lost, so what has to be durable must have been synced before.
func (s *Segment) Release() {
	s.life.Lock()
	if s.life.held == 0 {
		s.life.Unlock()
		panic("segment: Release without Acquire")
	}
	s.life.held--
	last := s.life.closing && s.life.held == 0
	s.life.Unlock()
	if last {
		s.shut()
	}
}

// Close closes the files, at once or, while somebody holds the segment, with the last Release. It neither trims nor
// syncs. It may be called several times and by several goroutines; only one closes.
func (s *Segment) Close() error {
	s.life.Lock()
	now := !s.life.closing && s.life.held == 0
	s.life.closing = true
	s.life.Unlock()
	s.writable.Store(false)
	if now {
		return s.shut()
	}
	return nil
}

// Done is closed when the files have been closed, after Close or Remove and the last Release.
func (s *Segment) Done() <-chan struct{} { return s.done }

func (s *Segment) shut() error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	s.use.Lock()
	defer s.use.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	err := s.closeFiles()
	close(s.done)
	return err
}

// Rename replaces the suffix of all files of the segment, in Kafka's order: the log, the offset, the time, the
// transaction index. A missing index is passed over. After an error some files have the new suffix; calling it again
// goes on from there. Open files are closed first, since Windows renames only closed ones, and opened again under their
// new names when they are used; the memory of a mapping taken from File must have been given back. The new names are
// durable after a sync of the directory. Source: LogSegment.changeFileSuffixes.
func (s *Segment) Rename(suffix string) error {
	return s.aloneWithoutSync(func() error {
		if err := s.closeFiles(); err != nil {
			return err
		}
		s.opening.Lock()
		defer s.opening.Unlock()
		for i, kind := range segmentKinds {
			from := s.path(i)
			old := s.suffix[i]
			if old == suffix {
				continue
			}
			s.suffix[i] = suffix
			err := s.fsys.Rename(from, s.path(i))
			if err != nil && (kind == KindLog || !errors.Is(err, fs.ErrNotExist)) {
				s.suffix[i] = old
				return fmt.Errorf("segment: rename: %w", err)
			}
		}
		return nil
	})
}

// Remove closes the segment and removes its files, in Kafka's order; missing ones are passed over. Whoever holds the
// segment reads on: the log file stays open until the last Release. That is how unix removes files; on Windows removal
// fails while somebody reads, and is to be tried again after Done. The removal is durable after a sync of the directory.
// Source: LogSegment.deleteIfExists.
func (s *Segment) Remove() error {
	s.life.Lock()
	held := s.life.held > 0
	s.life.closing = true
	s.life.Unlock()
	s.writable.Store(false)
	var errs []error
	if held {
		// A holder may not have read yet; later there is no name to open.
		err := s.withLog(func(vfs.File) error { return nil })
		if err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	} else {
		errs = append(errs, s.shut())
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	for i := range segmentKinds {
		if err := s.fsys.Remove(s.path(i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("segment: remove: %w", err))
		}
	}
	return errors.Join(errs...)
}

// RemoveIndexes removes the index files with that base offset in dir, which an earlier segment of the same base offset left
// behind; missing ones are passed over. A log file stays. No segment with that base offset may be open. Kafka removes such
// files, the log too, when it rolls (LocalLog.roll).
func RemoveIndexes(fsys vfs.FS, dir string, base int64) error {
	for _, kind := range segmentKinds[1:] {
		err := fsys.Remove(Name{Kind: kind, Offset: base}.Path(dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("segment: remove: %w", err)
		}
	}
	return nil
}
