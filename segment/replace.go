package segment

import (
	"fmt"
	"time"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/internal/vfs"
)

// ModTime returns the time at which the log file was last modified, which stands for the time of records that carry none.
func (s *Segment) ModTime() (t time.Time, err error) {
	err = s.withLog(func(f vfs.File) error {
		info, err := f.Stat()
		if err != nil {
			return fmt.Errorf("segment: %w", err)
		}
		t = info.ModTime
		return nil
	})
	return t, err
}

// SetModTime sets that time, for a segment that takes the place of another one: of the log and of the offset and the time
// index, which Kafka keeps together. Source: LogSegment.setLastModified.
func (s *Segment) SetModTime(t time.Time) error {
	for _, kind := range segmentKinds[:3] {
		if err := s.fsys.SetModTime(s.PathOf(kind), t); err != nil {
			return fmt.Errorf("segment: %w", err)
		}
	}
	return nil
}

// IndexBytes returns how many bytes the entries of the offset and of the time index take.
func (s *Segment) IndexBytes() (offsets, times int64, err error) {
	err = s.withIndexes(func(o *index.Offset, t *index.Time) error {
		offsets, times = 8*int64(o.Entries()), 12*int64(t.Entries())
		return nil
	})
	return offsets, times, err
}
