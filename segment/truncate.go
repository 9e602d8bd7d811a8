package segment

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/internal/vfs"
)

// TruncateTo removes the batches from the first one whose last offset is offset or higher, and what the indexes know of
// them, and returns how many bytes of batches went. A batch that holds offset goes as a whole. If every batch lies below
// offset only index entries from offset on go. The indexes are cut first: should the machine stop in between, a missing
// entry does less harm than one without a batch. The cut is not durable before Sync.
//
// The segment must not be appended to meanwhile. Readers wait while the files are cut, and Records taken before are ErrCut
// from then on. Damage before offset is a *CorruptError, and nothing is changed. Source: LogSegment.truncateTo.
func (s *Segment) TruncateTo(offset int64) (removed int64, err error) {
	if s.cfg.ReadOnly {
		return 0, s.notWritable()
	}
	size, err := s.Size()
	if err != nil {
		return 0, err
	}
	pos, _, found, err := s.Locate(offset, size)
	if err != nil {
		return 0, err
	}
	if !found {
		pos = size
	}
	return size - pos, s.cut(pos, offset)
}

// TruncateToPosition cuts the log file at byte pos, where a batch must end, whatever follows, and removes what the indexes
// know of later batches. The headers before pos are believed. It may be above the logical size, up to which a file of the
// segment is read, but not above the length of the file. For the rest see TruncateTo.
func (s *Segment) TruncateToPosition(pos int64) error {
	if s.cfg.ReadOnly {
		return s.notWritable()
	}
	physical, err := s.FileSize()
	if err != nil {
		return err
	}
	if pos < 0 || pos > physical {
		return s.outside(pos, physical)
	}
	next := s.base
	if pos > 0 {
		if size, err := s.Size(); err == nil && size < pos {
			s.SetSize(pos)
		}
		if next, err = s.nextOffset(pos); err != nil {
			return err
		}
	}
	return s.cut(pos, next)
}

// cut cuts the log at pos, the end of a batch, and the indexes at offset.
func (s *Segment) cut(pos, offset int64) error {
	size, err := s.Size()
	if err != nil {
		return err
	}
	err = s.alone(func() error {
		if err := s.cutIndexes(offset); err != nil {
			return err
		}
		f, err := s.files.log.get(s, openLog)
		if err != nil {
			return err
		}
		if pos < size {
			s.cuts.Add(1)
		}
		if err := f.Truncate(pos); err != nil {
			return fmt.Errorf("segment: cut to %d bytes: %w", pos, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.since = 0
	if pos == 0 {
		s.size.Store(0)
		s.forget()
		return nil
	}
	s.SetSize(pos)
	if !s.writable.Load() {
		return nil
	}
	_, err = s.MaxTimestamp()
	return err
}

// cutIndexes removes the entries from offset on. An index whose entries make no sense is emptied: look-ups then walk the
// log, and answer right. A missing transaction index is not created. The caller is alone.
func (s *Segment) cutIndexes(offset int64) error {
	defer s.changed()
	txn, err := s.files.txn.get(s, openTxnIndex)
	if err != nil {
		return err
	}
	return s.indexes(func(offsets *index.Offset, times *index.Time) error {
		for _, x := range [...]interface {
			TruncateTo(int64) error
			Reset() error
		}{offsets, times, txn} {
			err := x.TruncateTo(offset)
			if errors.Is(err, index.ErrCorrupt) && x != txn {
				s.suspects.Add(1)
				err = x.Reset()
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// ResetIndexes empties the three indexes, whatever they hold, and lets Note fill the offset and the time index again from
// the first batch on. The log file is left alone; its logical size becomes the end of the last batch that is noted. What
// cannot be opened as an index, a file that is too large, a link or an empty directory, is removed first.
func (s *Segment) ResetIndexes() error {
	if s.cfg.ReadOnly {
		return s.notWritable()
	}
	if _, err := s.Size(); err != nil {
		return err
	}
	err := s.alone(func() error {
		defer s.changed()
		if err := s.removeUnusable(); err != nil {
			return err
		}
		err := s.indexes(func(offsets *index.Offset, times *index.Time) error {
			if err := offsets.Reset(); err != nil {
				return err
			}
			return times.Reset()
		})
		if err != nil {
			return err
		}
		x, err := s.files.txn.get(s, openTxnIndex)
		if err != nil {
			return err
		}
		return x.Reset()
	})
	if err != nil {
		return err
	}
	s.suspects.Store(0)
	s.member.failed.Store(nil)
	s.forget()
	s.writable.Store(true)
	return nil
}

// removeUnusable removes what stands in the place of an index and cannot be one. The caller is alone.
func (s *Segment) removeUnusable() error {
	opens := [...]func() error{
		1: func() error { _, err := s.files.offset.get(s, openOffsetIndex); return err },
		2: func() error { _, err := s.files.time.get(s, openTimeIndex); return err },
		3: func() error { _, err := s.files.txn.get(s, openTxnIndex); return err },
	}
	for i := 1; i < len(opens); i++ {
		err := opens[i]()
		if err == nil || !errors.Is(err, index.ErrCorrupt) && !errors.Is(err, vfs.ErrNotRegular) {
			continue
		}
		if err := s.fsys.Remove(s.path(i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("segment: %w", err)
		}
	}
	return nil
}

// TrimLog cuts the log file to its logical size, giving reserved space back. Readers are not disturbed. The cut is not
// durable before Sync.
func (s *Segment) TrimLog() error {
	if s.cfg.ReadOnly {
		return s.notWritable()
	}
	size, err := s.Size()
	if err != nil {
		return err
	}
	return s.withLog(func(f vfs.File) error {
		info, err := f.Stat()
		if err == nil && info.Size > size {
			err = f.Truncate(size)
		}
		if err != nil {
			return fmt.Errorf("segment: cut to %d bytes: %w", size, err)
		}
		return nil
	})
}
