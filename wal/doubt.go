package wal

import (
	"fmt"

	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/recovery"
	"github.com/oncelog/oncelog/segment"
)

// knownDamage is what a read-only log knows about its damage.
type knownDamage struct {
	doubts []recovery.Doubt
	gone   recovery.Lost // at the end
}

// doubtful tells whether nobody knows if a batch is committed: it belongs to a transaction that was open where a damaged log
// has a hole.
func (d *knownDamage) doubtful(h *segment.Header) (recovery.Doubt, bool) {
	if h.Magic < record.Magic || !h.Attributes.IsTransactional() || h.Attributes.IsControl() {
		return recovery.Doubt{}, false
	}
	for _, d := range d.doubts {
		if d.First > h.LastOffset {
			break
		}
		if (d.ProducerID == h.ProducerID || d.ProducerID < 0) && h.BaseOffset < d.End {
			return d, true
		}
	}
	return recovery.Doubt{}, false
}

func reason(d recovery.Doubt) string {
	if d.ProducerID < 0 {
		return fmt.Sprintf("the log is damaged at offsets %d to %d, and nobody knows which transactions in it were committed", d.First, d.End-1)
	}
	return fmt.Sprintf("the log is damaged at offset %d, where the transaction of producer %d from offset %d was open, and nobody knows whether it was committed",
		d.End, d.ProducerID, d.First)
}

// certain cuts a range for readers of committed records, which begins with the batch at its position, in front of the first
// doubtful batch. If that is the first one, it is an *UnreadableError about it and the doubtful ones that follow.
func (l *Log) certain(s *segment.Segment, position, size, start, end int64) (int64, error) {
	damaged := l.damaged.Load()
	if damaged == nil || len(damaged.doubts) == 0 {
		return size, nil
	}
	var bad *UnreadableError
	c := s.ScanHeaders(position, end)
	for c.Next() {
		h := c.Header()
		d, doubtful := damaged.doubtful(&h)
		switch {
		case bad != nil && !doubtful:
			return 0, bad
		case bad != nil:
			bad.Last = h.LastOffset
		case h.Position >= position+size:
			return size, nil
		case doubtful && h.Position > position:
			return h.Position - position, nil
		case doubtful && d.ProducerID < 0 && !isWhole(s, h.Position, end):
			return min(size, int64(h.Size)), nil // whoever reads it is told what is wrong with it
		case doubtful:
			bad = &UnreadableError{First: max(start, h.BaseOffset), Last: h.LastOffset, Path: s.Path(), Position: h.Position,
				Err: fmt.Errorf("%w: %s", ErrCorrupt, reason(d))}
		}
	}
	if bad != nil {
		return 0, bad
	}
	return size, c.Err()
}

// isWhole tells whether the batch at a position has a good checksum.
func isWhole(s *segment.Segment, position, end int64) bool {
	c := s.ScanWith(position, end, segment.ScanOptions{})
	return c.Next()
}

// lost is the error of a reader that finds nothing at an offset because the end of the log is gone, else nil.
func (l *Log) lost(at int64) error {
	d := l.damaged.Load()
	if d == nil || at < d.gone.From || at >= d.gone.End {
		return nil
	}
	return &UnreadableError{First: at, Last: d.gone.End - 1, Path: l.activePath(), Position: l.visible.load().end.position,
		Err: fmt.Errorf("%w: the log had been written up to here at least, and its end is gone", ErrCorrupt)}
}

func (l *Log) activePath() string { return l.segments.Load().Active().Path() }
