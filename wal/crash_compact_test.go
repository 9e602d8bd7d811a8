package wal

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/oncelog/oncelog/record"
)

// compactLog makes the log of a simulation a compacted one.
func (s *simulation) compactLog() {
	s.compacts = true
	s.opts.SegmentBytes = int32(700 + s.rand.IntN(1200))
	s.opts.CleanupPolicy, s.opts.MinDirtyRatio = CleanupCompact, 1e-9
	s.opts.DeleteRetention = time.Duration(1+s.rand.IntN(20_000)) * time.Millisecond
	s.opts.DedupeBufferBytes = int64(1 + s.rand.IntN(8000))
	if s.rand.IntN(2) == 0 {
		s.opts.CleanupPolicy |= CleanupDelete
	}
}

// keyed gives a record one of a few keys, and at times no value.
func (s *simulation) keyed(r *record.Record) {
	r.Key = []byte{'k', byte('0' + s.rand.IntN(9))}
	if s.rand.IntN(5) == 0 {
		r.Value = nil
	}
}

func (s *simulation) compact() error {
	before := s.ledger.compacted
	s.log.mu.Lock()
	s.ledger.compacted = max(before, s.log.ends.lastStable().offset)
	s.log.mu.Unlock()
	stats, err := s.log.Compact(context.Background(), s.now)
	s.replaced += stats.SegmentsReplaced
	if err == nil && stats.Passes == 0 {
		s.ledger.compacted = before
	}
	return s.note(fmt.Sprintf("compact: %d passes, %d segments for %d, %d to %d",
		stats.Passes, stats.SegmentsWritten, stats.SegmentsReplaced, stats.FirstDirty, stats.NextDirty), err)
}

// checkCompactedSurvivors is checkSurvivors for a log that was compacted, or was just being compacted: what lies behind is
// as it was sent, byte for byte; below, batches may be gone or have lost records, but none that is the latest of its key.
func checkCompactedSurvivors(l *Log, led *ledger, kill bool) error {
	stored, err := readLevel(l, LogEnd)
	if err != nil {
		return err
	}
	o := l.Offsets()
	must := led.durable
	if kill {
		must = led.acked
	}
	survived := 0
	for survived < len(led.sent) && led.sent[survived].first < o.LogEnd {
		survived++
	}
	clamped := !kill && len(stored) == 0 && o.LogStart >= led.durableEnd()
	if o.LogStart < led.logStart && !clamped || o.LogStart > led.highestStart {
		return fmt.Errorf("I3: log start %d, it was moved to %d and may have been moved to %d", o.LogStart, led.logStart, led.highestStart)
	}
	if survived < must {
		return fmt.Errorf("I1: the log ends at %d, which is behind %d batches; %d had been acknowledged for good", o.LogEnd, survived, must)
	}
	if survived > 0 && led.sent[survived-1].last+1 != o.LogEnd && o.LogStart != o.LogEnd {
		return fmt.Errorf("I3: log end %d, the batches end at %d", o.LogEnd, led.sent[survived-1].last+1)
	}
	i := 0
	for i < survived && led.sent[i].last < o.LogStart {
		i++
	}
	for _, p := range stored {
		b := record.Batch(p)
		for ; i < survived && led.sent[i].last < b.BaseOffset(); i++ {
			if led.sent[i].last >= led.compacted {
				return fmt.Errorf("I4: the batch at %d is missing, nothing behind %d was compacted", led.sent[i].first, led.compacted)
			}
		}
		if i == survived || led.sent[i].first != b.BaseOffset() || led.sent[i].last != b.LastOffset() {
			return fmt.Errorf("I4: no batch %d to %d was sent", b.BaseOffset(), b.LastOffset())
		}
		if !bytes.Equal(p, led.sent[i].stored) && led.sent[i].first >= led.compacted {
			return fmt.Errorf("I4: the batch at %d is not the one sent there, nothing behind %d was compacted", b.BaseOffset(), led.compacted)
		}
		i++
	}
	for ; i < survived; i++ {
		if led.sent[i].last >= max(led.compacted, o.LogStart) {
			return fmt.Errorf("I4: the batch at %d is missing at the end", led.sent[i].first)
		}
	}
	var all [][]byte
	for _, b := range led.sent[:survived] {
		all = append(all, b.stored)
	}
	records, err := sentRecords(all)
	if err != nil {
		return err
	}
	if err := checkCompacted(l, records); err != nil {
		return fmt.Errorf("I4: %w", err)
	}
	if err := checkReplay(l, all, true); err != nil {
		return err
	}
	return checkRetries(l, led, all)
}

// stillListed are the aborted transactions that a compacted log lists: what has lost its data, and then its marker, is not
// there any more, and where an index was made anew a transaction begins with the first batch that is left.
func stillListed(aborted, indexed []AbortedTxn) (list []AbortedTxn) {
	for _, t := range aborted {
		for _, x := range indexed {
			if x.ProducerID == t.ProducerID && x.LastOffset == t.LastOffset && x.FirstOffset >= t.FirstOffset {
				list = append(list, x)
			}
		}
	}
	return list
}
