package recovery

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/leaderepoch"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// rebuild is a segment whose offset and time index are made anew.
type rebuild struct {
	base  int64 // offset of the segment
	from  int64 // byte from which on
	extra bool  // it lies below what is made anew anyway
	whole bool  // an index is missing, or an earlier load was at work on them
}

// planRebuilds finds out which offset and time indexes cannot be trusted: those behind the recovery point, since an index is
// not synced with its log, and those of which a file is missing. The transaction indexes follow with the producers.
func (l *loader) planRebuilds() error {
	missing := l.segmentsWithoutIndex()
	for s := range l.segments.All() {
		from := int64(-1)
		switch {
		case s.BaseOffset() == l.derivedFrom.segment:
			from = l.derivedFrom.position
		case s.BaseOffset() > l.derivedFrom.segment:
			from = 0
		}
		r := rebuild{base: s.BaseOffset(), from: from}
		if from < 0 && l.isDeleted(s) {
			continue
		}
		name := missing[s.BaseOffset()]
		if name != "" && l.asWriter() {
			lost := from != 0 && !l.indexMayBeMissing(s)
			l.find(Finding{Path: filepath.Join(l.p.Dir, name), Decision: Rebuild, Problem: lost, Reason: "the index is missing"})
		}
		if name != "" || s.BaseOffset() >= l.rebuildFrom {
			r.from, r.extra, r.whole = 0, from != 0, true
		}
		if r.from >= 0 {
			l.rebuilds = append(l.rebuilds, r)
		}
		if r.from > 0 {
			if err := l.readNewest(s, r.from); err != nil {
				return err
			}
		}
	}
	if s := l.segments.Active(); len(l.rebuilds) == 0 || l.rebuilds[len(l.rebuilds)-1].base != s.BaseOffset() {
		size, err := s.Size()
		if err != nil {
			return fmt.Errorf("recovery: %w", err)
		}
		return l.readNewest(s, size)
	}
	return nil
}

// newestBelow is the greatest timestamp of a segment below a byte.
type newestBelow struct {
	end    int64
	newest index.TimestampOffset
}

// readNewest reads what a segment has to know of its batches below end when it is written to. One that is damaged is not.
func (l *loader) readNewest(s *segment.Segment, end int64) error {
	if l.goesAround() {
		return nil
	}
	newest, err := s.NewestBelow(end)
	if err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	if l.newestOf == nil {
		l.newestOf = map[int64]newestBelow{}
	}
	l.newestOf[s.BaseOffset()] = newestBelow{end, newest}
	return nil
}

// rebuildIndexes makes the offset and time indexes anew as planned.
func (l *loader) rebuildIndexes() error {
	for _, r := range l.rebuilds {
		s, ok := l.segments.Get(r.base)
		if !ok {
			continue
		}
		if r.extra {
			if err := l.noteRebuild(r.base); err != nil {
				return err
			}
		}
		if r.whole {
			l.rebuilt = append(l.rebuilt, s)
		}
		if err := l.rebuildIndex(s, r.from); err != nil {
			return err
		}
	}
	return nil
}

// indexMayBeMissing tells whether the removal or the replacement of a segment, interrupted perhaps twice, may have left it
// without an index: some of its files had been set aside; or an earlier load has removed those and left the log file, with
// nothing but the log start to tell; or the files of a replacement were taken for those that it replaces.
func (l *loader) indexMayBeMissing(s *segment.Segment) bool {
	base := s.BaseOffset()
	return l.deleted[base] || l.us && base < l.slot.LogStart || base >= l.rebuildFrom || slices.Contains(l.swapped, base)
}

// segmentsWithoutIndex names, for each segment that lacks an index file, the first one that is missing.
func (l *loader) segmentsWithoutIndex() map[int64]string {
	have := map[segment.Name]bool{}
	for _, n := range l.names {
		have[n] = true
	}
	missing := map[int64]string{}
	for s := range l.segments.All() {
		for _, k := range [...]segment.Kind{segment.KindTimeIndex, segment.KindOffsetIndex} {
			n := segment.Name{Kind: k, Offset: s.BaseOffset()}
			if !have[n] {
				missing[s.BaseOffset()] = n.String()
			}
		}
	}
	return missing
}

// rebuildIndex enters the batches of a segment from byte from on into its indexes again.
func (l *loader) rebuildIndex(s *segment.Segment, from int64) error {
	size, err := s.Size()
	if err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	offset := s.BaseOffset()
	if from > 0 {
		// Even where no batch lies behind it, entries of batches that are gone may.
		offset = l.derivedOffset
	}
	if from == 0 || l.txnLost[s.BaseOffset()] {
		// What a power cut has left of the transaction index may look like anything, and all of it is written again.
		if err := l.resetTxns(s); err != nil {
			return err
		}
	}
	if err := s.RewindIndexes(from, offset); err != nil {
		return fmt.Errorf("recovery: rebuild the indexes of %s: %w", s.Path(), err)
	}
	s.SetSize(size)
	c := s.ScanWith(from, size, segment.ScanOptions{})
	for c.Next() {
		b := c.Batch()
		if err := s.Note(b.Batch, b.Position); err != nil && !errors.Is(err, segment.ErrIndex) {
			return fmt.Errorf("recovery: rebuild the indexes of %s: %w", s.Path(), err)
		}
	}
	if err := c.Err(); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	l.report.BytesReplayed += c.Tail().Position - from
	s.SetSize(size)
	if s == l.segments.Active() {
		return nil
	}
	if err := s.Seal(); err != nil && !errors.Is(err, segment.ErrIndex) {
		return fmt.Errorf("recovery: %w", err)
	}
	return nil
}

// loadEpochs reads the leader epochs, makes them anew from the log where they are missing or damaged, and makes them fit.
func (l *loader) loadEpochs() error {
	path := filepath.Join(l.p.Dir, LeaderEpochFileName)
	cache, err := leaderepoch.Open(l.fsys, path, l.p.ReadOnly)
	from := placeInLog{segment: unlimited}
	if l.scanned {
		from = l.scannedFrom
	}
	switch {
	case errors.Is(err, checkpoint.ErrCorrupt):
		l.find(Finding{Path: path, Decision: Rebuild, Problem: true, Reason: "is damaged: " + err.Error(), Err: err})
		cache = leaderepoch.New(l.fsys, path, l.p.ReadOnly)
		from = placeInLog{}
	case err != nil:
		return fmt.Errorf("recovery: %w", err)
	case l.foreign.LeaderEpochs == nil:
		from = placeInLog{}
	}
	odd, err := l.epochsFromLog(cache, from)
	if err != nil {
		return err
	}
	if odd {
		if cache, err = l.epochsAnew(cache); err != nil {
			return err
		}
	}
	if l.foreign.LeaderEpochs == nil && len(cache.Entries()) > 0 {
		l.find(Finding{Path: path, Decision: Rebuild, Problem: true, Reason: "is missing"})
	}
	cache.TruncateFromEnd(l.end.Offset)
	l.epochs = cache
	return nil
}

// epochsAnew takes the leader epochs from all of the log, where what is on record contradicts it. There is no checksum in
// the file: a digit that was changed is found by the batches only.
func (l *loader) epochsAnew(old *leaderepoch.Cache) (*leaderepoch.Cache, error) {
	path := filepath.Join(l.p.Dir, LeaderEpochFileName)
	cache := leaderepoch.New(l.fsys, path, l.p.ReadOnly)
	if _, err := l.epochsFromLog(cache, placeInLog{}); err != nil {
		return nil, err
	}
	cache.TruncateFromStart(l.kafkaLogStart())
	if slices.Equal(cache.Entries(), old.Entries()) {
		return old, nil // the batches contradict one another
	}
	l.find(Finding{Path: path, Decision: Rebuild, Problem: true,
		Reason: fmt.Sprintf("leader epochs %v are not those of the batches, %v", old.Entries(), cache.Entries())})
	return cache, nil
}

// epochsFromLog enters the leader epochs of the batches from a place on. odd tells that a batch has another epoch than the
// cache says. Kafka: LogSegment.recover.
func (l *loader) epochsFromLog(cache *leaderepoch.Cache, from placeInLog) (odd bool, err error) {
	start := l.kafkaLogStart() // the epochs below are forgotten
	for s := range l.segments.All() {
		begin := int64(0)
		switch {
		case s.BaseOffset() < from.segment:
			continue
		case s.BaseOffset() == from.segment:
			begin = from.position
		}
		size, err := s.Size()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("recovery: %w", err)
		}
		c := s.ScanHeaders(begin, size)
		for c.Next() {
			h := c.Header()
			if h.Magic < record.Magic || h.PartitionLeaderEpoch < 0 || h.BaseOffset < 0 {
				continue
			}
			if latest, any := cache.Latest(); !any || h.PartitionLeaderEpoch > latest.Epoch {
				if _, err := cache.Assign(h.PartitionLeaderEpoch, h.BaseOffset); err != nil {
					return false, fmt.Errorf("recovery: %w", err)
				}
			} else if e, ok := cache.EpochForOffset(h.BaseOffset); h.BaseOffset >= start && (!ok || e != h.PartitionLeaderEpoch) {
				odd = true
			}
		}
		if err := c.Err(); err != nil {
			return false, fmt.Errorf("recovery: %w", err)
		}
	}
	return odd, nil
}

// flushEpochs stores the leader epochs if they changed. The state file learns the new content first, so that a crash in
// between does not look like another program's work.
func (l *loader) flushEpochs() error {
	if l.p.ReadOnly || !l.epochs.Dirty() {
		return nil
	}
	next := l.foreign
	next.LeaderEpochs = l.epochs.Encode()
	if l.us && !l.p.Compat {
		slot, _ := l.file.Newest()
		slot.Who, slot.Bare = Writers(&l.foreign, &next)
		if err := l.file.Sync(slot); err != nil {
			return err
		}
	}
	if err := l.epochs.Flush(); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	l.foreign = next
	return nil
}

// setLogStart takes the log start from whoever set it last, and keeps it inside the log.
func (l *loader) setLogStart() {
	l.logStart = l.kafkaLogStart()
	if first := l.segments.First().BaseOffset(); first > l.logStart && !l.startIsGone() {
		l.logStart = first
	}
	if l.logStart > l.end.Offset {
		l.find(Finding{Path: l.p.Dir, Decision: Clamp, Problem: !l.us || !l.scanned, Position: -1, Bytes: -1, Offset: l.end.Offset, End: l.logStart,
			Reason: fmt.Sprintf("the log start, %d, lies behind the log end and is moved there; a broker would delete the whole log", l.logStart)})
		l.logStart = l.end.Offset
	}
	l.epochs.TruncateFromStart(l.logStart)
}
