package wal

import "github.com/oncelog/oncelog/producerstate"

// Stats are numbers about a log, as they were at one moment.
type Stats struct {
	Offsets Offsets

	Segments      int
	ActiveBase    int64 // base offset of the active segment
	ActiveBytes   int64 // bytes of batches in the active segment
	ReservedBytes int64 // bytes of its file behind them that have space already
	AppendedBytes int64 // since the open
	UnsyncedBytes int64 // of those, not known to be on disk

	BytesSinceCheckpoint int64 // what an open after a crash would have to read, about
	NewestTimestamp      int64 // greatest timestamp of a batch, milliseconds; record.NoTimestamp if none is known

	Producers producerstate.Stats

	CutFiles      int   // files with bytes that recoveries have cut off and kept, as the open left them
	IndexSuspects int64 // look-ups that found an index entry which does not fit the log, and were answered from the log
	Warnings      int64 // what went wrong without harm to the log itself, each of which Options.Logger got
	Failed        error // what ended the log, wrapped in ErrFailed; nil while it works
}

// Stats returns the numbers. It holds the lock that appends need for a moment.
func (l *Log) Stats() Stats {
	set := l.segments.Load()
	l.mu.Lock()
	s := Stats{
		ActiveBase: l.active.BaseOffset(), ActiveBytes: l.end.position, ReservedBytes: max(0, l.reserved-l.end.position),
		AppendedBytes: l.appendedBytes, UnsyncedBytes: l.appendedBytes - l.syncedBytes,
		BytesSinceCheckpoint: l.bytesSinceCheckpoint, NewestTimestamp: l.newest, Producers: l.producers.Stats(),
	}
	if l.opts.Sync == SyncCommit {
		s.UnsyncedBytes = int64(len(l.pending.buf))
	}
	l.mu.Unlock()
	s.Offsets, s.Segments, s.Warnings, s.Failed = l.Offsets(), set.Len(), l.warnings.Load(), l.failure()
	s.CutFiles = l.report.CutFiles
	for seg := range set.All() {
		s.IndexSuspects += seg.Suspects()
	}
	return s
}
