package recovery

import (
	"fmt"

	"github.com/oncelog/oncelog/segment"
)

// checkSpans refuses a segment whose offsets span more than the indexes have bits for, which a broker before 1.1 could
// write. A later one splits such a segment when it starts (LogLoader.retryOnOffsetOverflow); here it is left to that, since
// splitting replaces a file that holds the only copy of its records. A reader needs no index and reads it. We never write
// one, so only what another program left is looked at.
func (l *loader) checkSpans() error {
	if l.us {
		return nil
	}
	for i := range l.segments.Len() {
		s := l.segments.At(i)
		if i+1 < l.segments.Len() && l.segments.At(i+1).BaseOffset()-s.BaseOffset() <= segment.MaxRelativeOffset+1 {
			continue
		}
		next, err := s.NextOffset()
		if err != nil {
			continue // what is wrong there is found by a scan, or by whoever reads it
		}
		if next-1-s.BaseOffset() <= segment.MaxRelativeOffset {
			continue
		}
		err = l.refuse(Finding{Path: s.Path(), Position: -1, Bytes: -1, Problem: true, Offset: s.BaseOffset(), End: next,
			Err: segment.ErrOffsetOverflow,
			Reason: fmt.Sprintf("its offsets, %d to %d, span more than the %d that an index can name; a broker splits it when it starts",
				s.BaseOffset(), next-1, int64(segment.MaxRelativeOffset)+1)})
		if err != nil {
			return err
		}
	}
	return nil
}
