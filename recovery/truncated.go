package recovery

import (
	"context"
	"fmt"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/segment"
)

// RebuildProducers makes the state of m what a replay of the log says, after the log was cut: snapshots above its end are
// removed, the newest one that belongs to the log is loaded, and the rest is replayed. The transaction indexes are left
// alone: a truncation cuts them. With Compat it does what Kafka does, and writes the snapshots that Kafka writes
// (UnifiedLog.rebuildProducerState). Compaction may have moved the batches below compacted.
func RebuildProducers(
	ctx context.Context, fsys vfs.FS, p Params, set segment.Set, m *producerstate.Manager, logStart, end, compacted int64,
) error {
	l := newLoader(ctx, fsys, p)
	l.us, l.segments, l.logStart, l.gaps, l.compacted = true, set, logStart, true, compacted
	l.end.Offset = end
	m.SetAccept(l.producerConfig().Accept)
	if p.Compat {
		return l.kafkaRebuild(m, logStart, end, false)
	}
	first := set.First().BaseOffset()
	if err := m.TruncateAndReload(min(first, end), end, p.Now().UnixMilli()); err != nil {
		return err
	}
	r := replay{l: l, m: m}
	if err := r.run(m.MapEndOffset(), end); err != nil {
		return err
	}
	m.UpdateMapEndOffset(end)
	for _, f := range l.report.Findings {
		p.Logger.Warn("finding", "dir", p.Dir, "what", f.String())
	}
	return nil
}

// LastBatch returns the position of the log at byte pos of a segment, where a batch ends or the segment begins: the
// identity is that of the batch below it, in an earlier segment if need be.
func LastBatch(set segment.Set, s *segment.Segment, pos, offset int64) (Position, error) {
	for end := pos; ; {
		if end > 0 {
			from, _, err := s.LastIndexed(end)
			if err != nil {
				return Position{}, fmt.Errorf("recovery: %w", err)
			}
			c := s.ScanHeaders(from, end)
			var last segment.Header
			for c.Next() {
				last = c.Header()
			}
			if err := c.Err(); err != nil {
				return Position{}, fmt.Errorf("recovery: %w", err)
			}
			if last.Size > 0 {
				return Position{Offset: offset, Last: last.Identity(s.BaseOffset())}, nil
			}
		}
		below, ok := set.Floor(s.BaseOffset() - 1)
		if !ok {
			return Position{Offset: offset}, nil
		}
		var err error
		s = below
		if end, err = s.Size(); err != nil {
			return Position{}, fmt.Errorf("recovery: %w", err)
		}
	}
}
