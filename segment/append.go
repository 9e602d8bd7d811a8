package segment

import (
	"errors"
	"fmt"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
)

// CanAppend tells whether size bytes whose last offset is lastOffset have a place at position pos: nil, or
// ErrSegmentFull, or ErrOffsetOverflow. It looks at the limits of the format only, not at segment.bytes.
func (s *Segment) CanAppend(pos, size, lastOffset int64) error {
	if pos < 0 || size < 0 || pos > MaxBytes || size > MaxBytes-pos {
		return fmt.Errorf("%w: base offset %d: %d bytes at byte %d, the limit is %d",
			ErrSegmentFull, s.base, size, pos, int64(MaxBytes))
	}
	// The difference is unsigned because it may exceed int64.
	if lastOffset < s.base || uint64(lastOffset)-uint64(s.base) > MaxRelativeOffset {
		return fmt.Errorf("%w: offset %d, base offset %d", ErrOffsetOverflow, lastOffset, s.base)
	}
	return nil
}

// WriteAt writes p at position pos of the log file and does nothing else: neither the size nor an index knows of it
// before Note. A write past MaxBytes is ErrSegmentFull, before a byte is written. After another error any part of p may
// be in the file. Ranges that do not overlap may be written at once.
func (s *Segment) WriteAt(p []byte, pos int64) error {
	if !s.writable.Load() {
		return s.notWritable()
	}
	if err := s.CanAppend(pos, int64(len(p)), s.base); err != nil {
		return err
	}
	return s.withLog(func(f vfs.File) error {
		if _, err := f.WriteAt(p, pos); err != nil {
			return fmt.Errorf("segment: %w", err)
		}
		return nil
	})
}

func (s *Segment) notWritable() error {
	return fmt.Errorf("%w: base offset %d in %s", ErrNotWritable, s.base, s.dir)
}

// Note does the bookkeeping for one batch that is stored at position pos, or is about to be: it raises the greatest
// timestamp, adds the index entries that are due, and moves the logical size to the end of the batch. Batches are noted
// in order, by one writer at a time; lookups may run meanwhile.
//
// The rule is Kafka's, batch by batch (LogSegment.append and LogSegment.updateIndexes of 4.x): a timestamp strictly
// above the greatest so far replaces it, with the batch's last offset; if more than the index interval has been noted
// since the last entry, the batch gets one in the offset index (last offset, pos), the time index one (greatest timestamp
// so far, its offset), and the count begins anew; then the batch's size is added to the count.
//
// ErrSegmentFull and ErrOffsetOverflow come before anything is changed. An *IndexError comes after everything else was
// done: an entry is missing, which costs look-ups a longer walk. A full index is no error, it just takes no more.
func (s *Segment) Note(b record.Batch, pos int64) error {
	last, size := b.LastOffset(), int64(len(b))
	if !s.writable.Load() {
		return s.notWritable()
	}
	if err := s.CanAppend(pos, size, last); err != nil {
		return err
	}
	newest, err := s.note(b.MaxTimestamp(), last, pos)
	if err != nil {
		return err
	}
	if s.cfg.KafkaIndexes {
		// Kafka asks both indexes about every batch, which makes their files.
		err = s.withIndexes(func(*index.Offset, *index.Time) error { return nil })
	}
	if s.since > s.cfg.interval() {
		s.since = 0
		err = s.addEntries(last, pos, newest)
	}
	s.since += size
	s.size.Store(pos + size)
	return err
}

// note takes the timestamp and the offset of a batch at pos and returns the newest timestamp. An error comes only from
// reading the batches before pos, where they are not known.
func (s *Segment) note(timestamp, last, pos int64) (index.TimestampOffset, error) {
	s.noted.Lock()
	defer s.noted.Unlock()
	if !s.noted.newestKnown {
		newest, err := s.newestBelow(pos)
		if err != nil {
			return newest, err
		}
		s.noted.newest, s.noted.newestKnown = newest, true
	}
	s.noted.next = last + 1
	if timestamp > s.noted.newest.Timestamp {
		s.noted.newest = index.TimestampOffset{Timestamp: timestamp, Offset: last}
	}
	if pos == 0 {
		s.noted.first, s.noted.firstKnown = timestamp, true
	}
	return s.noted.newest, nil
}

// addEntries adds one entry to each index. Neither keeps the other from getting its entry.
func (s *Segment) addEntries(last, pos int64, newest index.TimestampOffset) error {
	err := s.withIndexes(func(offsets *index.Offset, times *index.Time) error {
		defer s.changed()
		err := offsets.Append(last, int32(pos))
		if errors.Is(err, index.ErrFull) {
			err = nil
		}
		terr := times.MaybeAppend(newest.Timestamp, newest.Offset, false)
		if errors.Is(terr, index.ErrFull) {
			terr = nil
		}
		return errors.Join(err, terr)
	})
	if err != nil {
		return &IndexError{Path: s.Path(), Offset: last, Position: pos, Err: err}
	}
	return nil
}

// Append writes p, one or more whole batches whose offsets are final, at the logical end and notes each of them. The
// batches are not validated. Nothing is written if p does not consist of whole batches (an error of record.Next), or if
// one of them has no place (ErrSegmentFull, ErrOffsetOverflow). An *IndexError says that the batches are in the log and
// an index entry is missing. After an error of the write itself any part of p may lie behind the logical end.
func (s *Segment) Append(p []byte) error {
	pos, err := s.Size()
	if err != nil {
		return err
	}
	for b, err := range record.All(p) {
		if err == nil {
			err = s.CanAppend(pos, int64(len(p)), b.LastOffset())
		}
		if err != nil {
			return fmt.Errorf("segment: append: %w", err)
		}
	}
	if err := s.WriteAt(p, pos); err != nil {
		return err
	}
	var errs []error
	for b := range record.All(p) {
		if err := s.Note(b, pos); err != nil {
			errs = append(errs, err)
		}
		pos += int64(len(b))
	}
	return errors.Join(errs...)
}

// IndexFull tells whether one of the indexes has no room for another entry, which is a reason to roll.
func (s *Segment) IndexFull() (full bool, err error) {
	err = s.withIndexes(func(offsets *index.Offset, times *index.Time) error {
		full = offsets.IsFull() || times.IsFull()
		return nil
	})
	return full, err
}
