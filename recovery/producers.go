package recovery

import (
	"fmt"
	"slices"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// loadProducers brings the producer state to the log end: from the newest pair of snapshot files that belongs to this
// log, and from there by replaying it. Then it finds out what the transaction indexes have to hold. It changes no file.
func (l *loader) loadProducers() error {
	c := l.producerConfig()
	c.ReadOnly = true // until all is decided
	m, err := l.openProducers(c)
	if err != nil {
		return err
	}
	l.producers = m
	if l.us {
		m.NoteTime(l.slot.AppendClock)
	}
	// What is scanned is replayed, even where a later snapshot is there: it brings back all batches of each producer, and
	// the transaction index behind the recovery point.
	at := min(l.end.Offset, l.derivedOffset)
	if err := m.Load(l.segments.First().BaseOffset(), at, l.p.Now().UnixMilli()); err != nil {
		return err
	}
	found := abortedTxns{}
	r := replay{l: l, m: m, aborted: func(s *segment.Segment, t index.AbortedTxn) error {
		if t.LastOffset < at {
			return nil
		}
		return found.add(s, t)
	}}
	if err := r.run(m.MapEndOffset(), l.end.Offset); err != nil {
		return err
	}
	m.UpdateMapEndOffset(l.end.Offset)
	l.doubtAtEnd()
	return l.decideTxns(found, at)
}

// openProducers makes a manager of what is there when all that was put off is done.
func (l *loader) openProducers(c producerstate.Config) (*producerstate.Manager, error) {
	if !l.acting {
		c.Files = slices.DeleteFunc(slices.Clone(l.entries), func(e vfs.DirEntry) bool {
			n := segment.Parse(e.Name)
			return n.Kind == segment.KindSnapshot && slices.Contains(l.leaving, n.Offset)
		})
	}
	return producerstate.Open(l.fsys, l.p.Dir, c)
}

// producersAt is the producer state of an older snapshot, at or below an offset, in a manager of its own.
func (l *loader) producersAt(offset int64) (*producerstate.Manager, error) {
	c := l.producerConfig()
	c.ReadOnly, c.AllowBareSnapshots, c.Report = true, true, nil
	m, err := l.openProducers(c)
	if err != nil {
		return nil, err
	}
	return m, m.TruncateAndReload(l.segments.First().BaseOffset(), offset, l.p.Now().UnixMilli())
}

// actOnProducers lets the files follow what loadProducers found.
func (l *loader) actOnProducers() error {
	if err := l.producers.AllowChanges(l.unchanged()); err != nil {
		return err
	}
	if _, err := producerstate.RemoveOrphans(l.fsys, l.p.Dir, l.unchanged()); err != nil {
		return err
	}
	return l.writeTxns()
}

func (l *loader) producerConfig() producerstate.Config {
	c := l.p.Producers
	c.Compat, c.ReadOnly = l.p.Compat, l.p.ReadOnly
	c.AllowBareSnapshots = !l.us
	c.Accept = func(_ int64, last record.Identity) bool { return l.accepts(last) }
	c.Report = func(f producerstate.Finding) {
		reason := f.Kind.String()
		decision := Note
		if f.Kind == producerstate.SnapshotRejected {
			decision, reason = FallBack, f.Err.Error()
		} else {
			reason = fmt.Sprintf("%s: producer %d: %d, known is %d", reason, f.ProducerID, f.Got, f.Current)
		}
		l.find(Finding{Path: l.p.Dir, Decision: decision, Offset: f.Offset, End: -1, Reason: reason, Err: f.Err,
			Problem: f.Kind == producerstate.SnapshotRejected})
	}
	return c
}

// accepts tells whether the log has the batch that a side file names as the last one below it. One that lies below the
// first segment, or that compaction may have moved, cannot be looked at and is believed.
func (l *loader) accepts(last record.Identity) bool {
	if last.Size > 0 && (last.SegmentBase < l.segments.First().BaseOffset() || last.BaseOffset < l.compacted) {
		return true
	}
	ok, err := l.identityIsThere(last)
	return ok && err == nil
}
