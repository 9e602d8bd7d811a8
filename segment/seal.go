package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/internal/vfs"
)

// Seal ends writing: the time index gets the greatest timestamp as its last entry, both indexes and the log file are cut to
// their contents, and the log file is synced with its new size. After it the segment is for reading; OpenActive undoes it.
// A sealed segment stays as it is. The indexes are not synced, Flush does that. An *IndexError comes after the log file has
// been cut and synced: the segment is sealed, its time index lacks the last entry. Source: LogSegment.onBecomeInactiveSegment.
//
// What a segment looks like on disk matters to Kafka: it takes zeros behind the last batch of a segment that is not the
// last for corruption and deletes all that follow. So the next segment must not get a batch before TrimLog or Seal.
func (s *Segment) Seal() error {
	if !s.writable.Load() {
		if s.cfg.ReadOnly {
			return s.notWritable()
		}
		return nil
	}
	newest, err := s.MaxTimestamp()
	if err != nil {
		return err
	}
	indexErr := s.alone(func() error {
		defer s.changed()
		return s.indexes(func(offsets *index.Offset, times *index.Time) error {
			err := times.MaybeAppend(newest.Timestamp, newest.Offset, true)
			return errors.Join(err, offsets.Trim(), times.Trim())
		})
	})
	if errors.Is(indexErr, ErrClosed) {
		return indexErr
	}
	if err := s.TrimLog(); err != nil {
		return err
	}
	if err := s.Sync(); err != nil {
		return err
	}
	s.writable.Store(false)
	s.member.pinned.Store(false)
	if indexErr != nil {
		return &IndexError{Path: s.Path(), Offset: newest.Offset, Position: -1, Err: indexErr}
	}
	return nil
}

// Sync makes the bytes and the size of the log file durable. It may run beside appends and reads, holds neither up, and
// covers the writes that returned before it began. After an error the bytes may be gone although a later sync succeeds: do
// not retry.
func (s *Segment) Sync() error { return s.sync(vfs.File.Sync) }

// SyncData is Sync without the metadata that is not needed to read the bytes. A size that was cut needs Sync.
func (s *Segment) SyncData() error { return s.sync(vfs.File.SyncData) }

func (s *Segment) sync(how func(vfs.File) error) error {
	s.syncing.RLock()
	defer s.syncing.RUnlock()
	var f vfs.File
	err := s.withLog(func(open vfs.File) error {
		f = open
		return nil
	})
	if err != nil {
		return err
	}
	if err := how(f); err != nil {
		return fmt.Errorf("segment: %w", err)
	}
	return nil
}

// Flush makes the log file and those indexes durable that exist, whether or not this process has written to them. The
// error rule is that of Sync. Source: LogSegment.flush.
func (s *Segment) Flush() error {
	if err := s.SyncData(); err != nil {
		return err
	}
	return s.FlushIndexes()
}

// FlushIndexes makes the indexes durable that exist. An index that was not synced costs a rebuild, never a record.
func (s *Segment) FlushIndexes() error {
	s.syncing.RLock()
	defer s.syncing.RUnlock()
	if err := s.enter(); err != nil {
		return err
	}
	files := openFiles{offset: s.files.offset.p.Load(), time: s.files.time.p.Load(), txn: s.files.txn.p.Load()}
	s.leave()
	if failed := s.member.failed.Load(); failed != nil {
		return *failed
	}
	return s.flushIndexes(files)
}

// flushIndexes is FlushIndexes of what is open. The caller holds syncing for reading.
func (s *Segment) flushIndexes(open openFiles) error {
	changes := s.member.changes.Load()
	var errs []error
	if open.offset != nil {
		errs = append(errs, open.offset.Flush())
	} else {
		errs = append(errs, s.syncFile(1))
	}
	if open.time != nil {
		errs = append(errs, open.time.Flush())
	} else {
		errs = append(errs, s.syncFile(2))
	}
	if open.txn != nil {
		errs = append(errs, open.txn.Flush())
	} else {
		errs = append(errs, s.syncFile(3))
	}
	err := errors.Join(errs...)
	for f := s.member.flushed.Load(); err == nil && f < changes && !s.member.flushed.CompareAndSwap(f, changes); {
		f = s.member.flushed.Load()
	}
	return err
}

// syncFile syncs file i of segmentKinds, which is not open, if it exists.
func (s *Segment) syncFile(i int) error {
	flag := os.O_RDWR
	if s.cfg.ReadOnly {
		flag = os.O_RDONLY
	}
	s.opening.Lock()
	f, err := s.fsys.OpenFile(s.path(i), flag, filePerm)
	s.opening.Unlock()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("segment: flush: %w", err)
	}
	if err := errors.Join(f.SyncData(), f.Close()); err != nil {
		return fmt.Errorf("segment: flush: %w", err)
	}
	return nil
}

// DropCache asks the system to forget the cached bytes of the log file from byte from on, so that the next read comes from
// the device. It is a request; an error says that it could not be made.
func (s *Segment) DropCache(from int64) error {
	return s.withLog(func(f vfs.File) error { return f.DropCache(from, 0) })
}
