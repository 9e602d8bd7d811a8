package recovery

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/internal/leaderepoch"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// loadAsKafka loads the log in the steps of Kafka's LogLoader: with what Kafka's own files say about recovery point, log
// start and clean stop, and cutting wherever Kafka cuts. It is for Compat: nothing is refused, and nothing kept.
func (l *loader) loadAsKafka() error {
	l.openSegments(l.p.ReadOnly)
	if err := l.removeOrphans(); err != nil {
		return err
	}
	if err := l.checkSpans(); err != nil {
		return err
	}
	clean, recoveryPoint := l.foreign.Marker, l.foreign.RecoveryPoint()
	l.logStart = l.kafkaLogStart()
	if err := l.kafkaEpochs(); err != nil {
		return err
	}
	for s := range l.segments.From(recoveryPoint) {
		if clean {
			break
		}
		if _, err := l.syncBeforeTrust(placeInLog{segment: s.BaseOffset()}); err != nil {
			return err
		}
		break
	}
	if err := l.kafkaCheckSegments(); err != nil {
		return err
	}
	if !clean {
		if err := l.kafkaRecoverFrom(recoveryPoint); err != nil {
			return err
		}
	}
	l.report.Clean = clean
	return l.kafkaFinish(clean, recoveryPoint)
}

// kafkaLogStart is the log start that is on record. A state file of ours is asked too, for the first open with Compat.
func (l *loader) kafkaLogStart() int64 {
	start := l.foreign.LogStart()
	if slot, found := l.file.Newest(); found && (l.us || !l.foreign.KafkaDir) {
		start = max(start, slot.LogStart)
	}
	return start
}

func (l *loader) kafkaEpochs() error {
	path := filepath.Join(l.p.Dir, LeaderEpochFileName)
	cache, err := leaderepoch.Open(l.fsys, path, l.p.ReadOnly)
	if err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	l.epochs = cache
	if l.foreign.LeaderEpochs == nil {
		// Kafka makes the file as soon as it looks for it (CheckpointFile).
		if err := vfs.WriteFileAtomic(l.fsys, path, 0o644, nil); err != nil {
			return fmt.Errorf("recovery: %w", err)
		}
		l.foreign.LeaderEpochs = []byte{}
	}
	return nil
}

// kafkaCheckSegments is LogLoader.loadSegmentFiles: segments whose offset index is missing, or whose transaction index is
// damaged, are recovered whatever the shutdown was like.
func (l *loader) kafkaCheckSegments() error {
	have := map[segment.Name]bool{}
	for _, n := range l.names {
		have[n] = true
	}
	for s := range l.segments.All() {
		base := s.BaseOffset()
		reason := ""
		if !have[segment.Name{Kind: segment.KindOffsetIndex, Offset: base}] {
			reason = "the offset index is missing"
		} else {
			err := s.WithIndexes(func(_ *index.Offset, _ *index.Time, x *index.Txn) error { return x.SanityCheck() })
			switch {
			case errors.Is(err, index.ErrCorrupt):
				reason = err.Error()
			case err != nil:
				return fmt.Errorf("recovery: %w", err)
			}
		}
		if reason == "" {
			continue
		}
		l.find(Finding{Path: s.Path(), Decision: Rebuild, Reason: reason, Problem: true})
		if _, err := l.kafkaRecoverSegment(s); err != nil {
			return err
		}
	}
	return nil
}

// kafkaSwapEnd returns the offset where a segment ends that replaces others. Kafka verifies nothing for that, and makes
// the indexes that are missing, so that they do not count as missing later (LogLoader.load, LogSegment.readNextOffset).
func (l *loader) kafkaSwapEnd(n segment.Name) (int64, error) {
	c := l.p.Segments
	c.Suffix = n.Suffix
	s := segment.Open(l.fsys, l.p.Dir, n.Offset, c)
	err := s.WithIndexes(func(*index.Offset, *index.Time, *index.Txn) error { return nil })
	end := n.Offset
	if err == nil {
		end, err = s.NextOffset()
	}
	if err = errors.Join(err, s.Close()); err != nil {
		return 0, fmt.Errorf("recovery: %w", err)
	}
	for _, k := range [...]segment.Kind{segment.KindOffsetIndex, segment.KindTimeIndex} {
		made := n
		made.Kind = k
		if !slices.Contains(l.names, made) {
			l.names = append(l.names, made)
		}
	}
	return end, nil
}

// kafkaRecoverFrom is LogLoader.recoverLog: every segment from the one with the recovery point on is read and indexed
// anew; the first bad byte ends the log.
func (l *loader) kafkaRecoverFrom(recoveryPoint int64) error {
	l.scanned = true
	for s := range l.segments.From(recoveryPoint) {
		if err := l.ctx.Err(); err != nil {
			return fmt.Errorf("recovery: %w", err)
		}
		cut, err := l.kafkaRecoverSegment(s)
		if errors.Is(err, index.ErrInvalidOffset) || errors.Is(err, fs.ErrNotExist) {
			cut, err = l.kafkaEmpty(s, err)
		}
		if err != nil {
			return err
		}
		if cut > 0 {
			return l.kafkaDropAfter(s)
		}
	}
	return nil
}

// kafkaDropAfter removes every segment behind one, as Kafka does when it met a bad byte there.
func (l *loader) kafkaDropAfter(s *segment.Segment) error {
	var gone []*segment.Segment
	for later := range l.after(s) {
		gone = append(gone, later)
	}
	for i := len(gone) - 1; i >= 0; i-- {
		if err := l.kafkaDelete(gone[i]); err != nil {
			return err
		}
	}
	return nil
}

// kafkaDelete takes a segment with its snapshot out of the log. The files keep their content under the suffix .deleted, as
// with Kafka, whose next start removes them.
func (l *loader) kafkaDelete(s *segment.Segment) error {
	size, err := s.FileSize()
	if err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	base := s.BaseOffset()
	l.find(Finding{Path: s.Path(), Decision: CutSegment, Bytes: size, Offset: base, End: -1, Problem: true,
		Reason: "lies behind the place where the log now ends",
		Kept:   segment.Name{Kind: segment.KindLog, Offset: base, Suffix: segment.SuffixDeleted}.String()})
	l.segments = l.segments.Without(base)
	if err := s.Rename(segment.SuffixDeleted); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	if err := s.Close(); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	snapshot := filepath.Join(l.p.Dir, segment.FileName(segment.KindSnapshot, base))
	err = l.fsys.Rename(snapshot, snapshot+segment.SuffixDeleted)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("recovery: %w", err)
	}
	return nil
}

// kafkaEmpty cuts a segment to nothing, where its batches contradict one another.
func (l *loader) kafkaEmpty(s *segment.Segment, why error) (int64, error) {
	size, err := s.FileSize()
	if err != nil {
		return 0, fmt.Errorf("recovery: %w", err)
	}
	l.find(Finding{Path: s.Path(), Decision: CutTail, Bytes: size, Offset: s.BaseOffset(), End: -1, Problem: true,
		Reason: "offsets of its batches are not in order, and Kafka's rule is to empty the segment: " + why.Error(), Err: why})
	if err := l.cutFile(s, 0); err != nil {
		return 0, err
	}
	return size, s.ResetIndexes()
}

// kafkaRecoverSegment is LogLoader.recoverSegment and LogSegment.recover: it reads a segment from its first byte, makes
// its indexes anew, feeds a producer state of its own that starts from an earlier snapshot, and cuts the file behind
// the last good batch. It returns how many bytes went.
func (l *loader) kafkaRecoverSegment(s *segment.Segment) (removed int64, err error) {
	m, err := l.kafkaStateAt(s.BaseOffset())
	if err != nil {
		return 0, err
	}
	if err := s.ResetIndexes(); err != nil {
		return 0, fmt.Errorf("recovery: %w", err)
	}
	size, err := s.FileSize()
	if err != nil {
		return 0, fmt.Errorf("recovery: %w", err)
	}
	s.SetSize(size)
	r := replay{l: l, m: m, aborted: (*segment.Segment).AppendAborted, strict: true}
	c := s.ScanWith(0, size, segment.ScanOptions{})
	end := int64(0)
	for c.Next() {
		b := c.Batch()
		if err := s.Note(b.Batch, b.Position); err != nil {
			return 0, fmt.Errorf("recovery: %s at byte %d: %w", s.Path(), b.Position, err)
		}
		end = b.Position + int64(b.Size())
		if e := b.PartitionLeaderEpoch(); b.Magic() >= record.Magic && e >= 0 {
			if latest, ok := l.epochs.Latest(); !ok || e > latest.Epoch {
				if _, err := l.epochs.Assign(e, b.BaseOffset()); err != nil {
					return 0, fmt.Errorf("recovery: %w", err)
				}
			}
		}
		l.newest = max(l.newest, b.MaxTimestamp())
		if err := r.batch(s, b); err != nil {
			return 0, err
		}
		s.SetSize(size)
	}
	l.report.SegmentsScanned++
	l.report.BytesScanned += end
	if err := c.Err(); err != nil {
		return 0, fmt.Errorf("recovery: %w", err)
	}
	s.SetSize(end)
	if removed = size - end; removed > 0 {
		t := c.Tail()
		d := CutTail
		if t.Kind == segment.ZeroTail {
			d = TrimZeros
		}
		l.find(Finding{Path: s.Path(), Decision: d, Position: end, Bytes: removed, Offset: m.MapEndOffset(), End: -1,
			Problem: t.Kind == segment.Damage, Reason: "Kafka's rule is to cut at the first bad byte" + detail(t.Reason), Err: t.Reason})
		if err := l.cutFile(s, end); err != nil {
			return 0, err
		}
	}
	if err := s.Seal(); err != nil {
		return 0, fmt.Errorf("recovery: %w", err)
	}
	return removed, m.TakeSnapshot(l.lastIdentity(s))
}

func detail(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// lastIdentity names the last batch at or below a segment.
func (l *loader) lastIdentity(s *segment.Segment) record.Identity {
	for set := l.segments; s != nil; {
		if size, err := s.Size(); err == nil && size > 0 {
			if pos, _, err := s.LastIndexed(size); err == nil {
				c := s.ScanHeaders(pos, size)
				var last segment.Header
				for c.Next() {
					last = c.Header()
				}
				if last.Size > 0 {
					return last.Identity(s.BaseOffset())
				}
			}
		}
		below, ok := set.Floor(s.BaseOffset() - 1)
		if !ok {
			break
		}
		s = below
	}
	return record.Identity{}
}

// kafkaStateAt is the producer state at the base offset of a segment, rebuilt from the segments before it.
func (l *loader) kafkaStateAt(offset int64) (*producerstate.Manager, error) {
	m, err := producerstate.Open(l.fsys, l.p.Dir, l.producerConfig())
	if err != nil {
		return nil, err
	}
	return m, l.kafkaRebuild(m, l.logStart, offset, false)
}

// kafkaRebuild is UnifiedLog.rebuildProducerState.
func (l *loader) kafkaRebuild(m *producerstate.Manager, logStart, end int64, clean bool) error {
	at := map[int64]bool{end: true}
	for i := max(0, l.segments.Len()-2); i < l.segments.Len(); i++ {
		at[l.segments.At(i).BaseOffset()] = true
	}
	snapshot := func(offset int64) error {
		m.UpdateMapEndOffset(offset)
		s, ok := l.segments.Floor(offset - 1)
		if !ok {
			s = nil
		}
		return m.TakeSnapshot(l.lastIdentity(s))
	}
	if _, any := m.LatestSnapshotOffset(); !any && clean {
		// Taken for an upgrade from a version without snapshots: the producers are forgotten.
		for s := range l.segments.All() {
			if base := s.BaseOffset(); at[base] && base < end {
				if err := snapshot(base); err != nil {
					return err
				}
			}
		}
		return snapshot(end)
	}
	skip := m.IsEmpty() && m.MapEndOffset() >= end
	if err := m.TruncateAndReload(logStart, end, l.p.Now().UnixMilli()); err != nil {
		return err
	}
	if end > m.MapEndOffset() && !skip {
		r := replay{l: l, m: m, strict: true, lenient: true}
		from := m.MapEndOffset()
		for s := range l.segments.From(from) {
			if s.BaseOffset() >= end {
				break
			}
			start := max(s.BaseOffset(), m.MapEndOffset(), logStart)
			m.UpdateMapEndOffset(start)
			if at[s.BaseOffset()] {
				if err := m.TakeSnapshot(l.lastIdentityBelow(s)); err != nil {
					return err
				}
			}
			if err := r.segment(s, start, end); err != nil {
				return err
			}
		}
	}
	return snapshot(end)
}

func (l *loader) lastIdentityBelow(s *segment.Segment) record.Identity {
	below, ok := l.segments.Floor(s.BaseOffset() - 1)
	if !ok {
		return record.Identity{}
	}
	return l.lastIdentity(below)
}

// kafkaFinish is the rest of LogLoader.load: where the log ends and starts, the leader epochs, and the producer state.
func (l *loader) kafkaFinish(clean bool, recoveryPoint int64) error {
	end, err := l.kafkaLogEnd()
	if err != nil {
		return err
	}
	known := end >= 0
	if l.segments.Len() == 0 {
		s, err := segment.Create(l.fsys, l.p.Dir, l.logStart, l.p.Segments)
		if err != nil {
			return fmt.Errorf("recovery: %w", err)
		}
		l.segments = segment.NewSet(s)
		end = l.logStart
	}
	active := l.segments.Active()
	size, err := active.Size()
	if err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	if err := active.OpenActive(size); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	l.end = Position{Offset: end, Last: l.lastIdentity(active)}
	l.recoveryPoint = Position{Offset: min(recoveryPoint, end), Last: l.end.Last}
	if clean && known {
		l.recoveryPoint.Offset = end
	}
	l.epochs.TruncateFromEnd(end)
	l.epochs.TruncateFromStart(l.logStart)
	if err := l.flushEpochs(); err != nil {
		return err
	}
	l.logStart = max(l.logStart, l.segments.First().BaseOffset())
	l.recoveryPoint.Offset = max(l.recoveryPoint.Offset, l.logStart)
	return l.kafkaProducers(clean)
}

// kafkaLogEnd is the end of the last segment, −1 if no segment is left. A log that ends below its start is dropped.
func (l *loader) kafkaLogEnd() (int64, error) {
	if l.segments.Len() == 0 {
		return -1, nil
	}
	end, err := l.segments.Active().NextOffset()
	if err != nil {
		return 0, fmt.Errorf("recovery: %w", err)
	}
	if end >= l.logStart {
		return end, nil
	}
	l.find(Finding{Path: l.p.Dir, Decision: CutSegment, Problem: true, Position: -1, Bytes: -1, Offset: l.segments.First().BaseOffset(), End: end,
		Reason: fmt.Sprintf("the log ends at %d, below its start %d, and Kafka's rule is to drop it", end, l.logStart)})
	// Here Kafka removes all snapshots at once, and does not keep them for a while with their segments.
	m, err := producerstate.Open(l.fsys, l.p.Dir, l.producerConfig())
	if err == nil {
		err = m.TruncateFullyAndStartAt(l.logStart)
	}
	if err != nil {
		return 0, err
	}
	for l.segments.Len() > 0 {
		if err := l.kafkaDelete(l.segments.Active()); err != nil {
			return 0, err
		}
	}
	l.epochs.Clear()
	return -1, nil
}

func (l *loader) kafkaProducers(clean bool) error {
	m, err := producerstate.Open(l.fsys, l.p.Dir, l.producerConfig())
	if err != nil {
		return err
	}
	l.producers = m
	var bases []int64
	for s := range l.segments.All() {
		bases = append(bases, s.BaseOffset())
	}
	if err := m.RemoveStraySnapshots(bases); err != nil {
		return err
	}
	if err := l.kafkaRebuild(m, l.logStart, l.end.Offset, clean); err != nil {
		return err
	}
	if o, ok := m.LatestSnapshotOffset(); ok {
		l.snapshotOffset = o
	}
	return nil
}
