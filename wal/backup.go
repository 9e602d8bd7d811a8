package wal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/recovery"
	"github.com/oncelog/oncelog/segment"
)

// BackupReport tells what a backup did.
type BackupReport struct {
	Dir              string
	LogStart, LogEnd int64 // of the backup: those of the log at one moment of the call
	Producers        int   // that are known

	Segments    int   // of the backup
	Copied      int   // of those, written from the first byte
	Extended    int   // and with bytes added
	BytesCopied int64 // read from the log, verified, and written
	Compared    int64 // bytes of segments that were there and had to be compared, since the log was cut in between
	Resumed     bool  // an earlier backup had been interrupted
}

// Backup writes a copy of the log, as it is at one moment of the call, into another directory. The copy is a log that was
// closed in order: it opens here, and in a broker, with the producers, the duplicates that they may send, the open
// transactions and the log start of that moment. In SyncInterval and SyncNone it holds everything appended so far. When
// Backup returns nil it is durable.
//
// A second backup into the same directory copies what is new: of the segments that were there only the last one is
// added to. If the log was cut in between, the segments that are there are compared byte by byte, and replaced where they
// differ. Segments below the log start are removed. A directory that was opened for writing as a log of its own since is
// compared too.
//
// Appends, reads, retention and rolls go on meanwhile. Every batch is verified as it is copied; one that is damaged ends the
// backup with an *UnreadableError. A log that is open read-only can be backed up too, beside a writer in another process.
//
// The directory is made if it is missing. One that holds anything else than a backup of this log is ErrNotBackup, one that
// somebody writes to ErrLocked; then nothing was changed. After any other error, or a crash, it is half a backup: an open is
// ErrUnfinishedBackup, a broker does not start with it, and the next Backup completes it. ErrClosed and ErrFailed come
// from the log.
func (l *Log) Backup(ctx context.Context, dir string) (BackupReport, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return BackupReport{}, fmt.Errorf("wal: backup: %w", err)
	}
	b := &backup{l: l, report: BackupReport{Dir: dir}, to: &Log{fsys: l.fsys, dir: dir}}
	if err := b.run(ctx); err != nil {
		return BackupReport{}, err
	}
	return b.report, nil
}

// backup is one Backup on its way.
type backup struct {
	l        *Log
	to       *Log // holds the locks of the directory, and nothing else
	manifest manifest
	report   BackupReport
}

func (b *backup) run(ctx context.Context) (err error) {
	if err := b.claim(); err != nil {
		return errors.Join(err, b.to.unlock())
	}
	defer func() { err = errors.Join(err, b.to.unlock()) }()
	const tries = 5
	for range tries {
		m, err := b.l.moment()
		if err != nil {
			return err
		}
		err = b.copyAll(ctx, m)
		m.release()
		same, lookErr := b.l.unchangedSince(ctx, m, err)
		if lookErr != nil || same && err != nil {
			return errors.Join(err, lookErr)
		}
		if same {
			return b.finish(m)
		}
		// It was cut while it was read: what was copied may be gone.
	}
	return fmt.Errorf("wal: backup of %s: the log was cut %d times while it was read; try again", b.l.dir, tries)
}

// claim makes sure that the directory may be written to, and marks it as unfinished.
func (b *backup) claim() error {
	if err := b.to.makeDir(); err != nil {
		return err
	}
	if _, err := b.look(); err != nil {
		return err
	}
	if err := b.to.lockDir(); err != nil {
		return err
	}
	m, err := b.look() // nobody else changes it from now on
	if err != nil {
		return err
	}
	if err := b.mark(); err != nil {
		return err
	}
	return b.believe(m)
}

// look reads what the directory holds as a backup, and refuses what is none of this log.
func (b *backup) look() (*manifest, error) {
	entries, err := b.l.fsys.ReadDir(b.to.dir)
	if err != nil {
		return nil, fmt.Errorf("wal: backup: %w", err)
	}
	m, found, err := readManifest(b.l.fsys, b.to.dir)
	if errors.Is(err, ErrCorrupt) {
		found, err = true, nil // the backup begins anew
	}
	if err != nil {
		return nil, fmt.Errorf("wal: backup: %w", err)
	}
	stranger := ""
	for _, e := range entries {
		switch segment.Parse(e.Name).Kind {
		case segment.KindUnfinished:
			b.report.Resumed, found = true, true
		case segment.KindLock, segment.KindBackup:
		default:
			stranger = e.Name
		}
	}
	if stranger != "" && !found {
		return nil, fmt.Errorf("%w: %s holds %q and is no backup", ErrNotBackup, b.to.dir, stranger)
	}
	if m.source != "" && m.source != b.source() {
		return nil, fmt.Errorf("%w: %s is a backup of %s; remove it, or choose another directory", ErrNotBackup, b.to.dir, m.source)
	}
	return &m, nil
}

// source is what the manifest calls the log.
func (b *backup) source() string { return b.l.dir[:min(len(b.l.dir), 1<<16-1)] }

// mark keeps everybody from opening the directory as a log.
func (b *backup) mark() error {
	f, err := b.l.fsys.OpenFile(filepath.Join(b.to.dir, unfinishedFile), vfs.O_RDWR|vfs.O_CREATE, 0o644)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close(), b.l.fsys.SyncDir(b.to.dir))
	}
	if err != nil {
		return fmt.Errorf("wal: backup: %w", err)
	}
	return nil
}

// believe takes over what the directory holds according to the manifest. If somebody opened it as a log of its own since, or
// the log was cut since, its segments have to be compared first: the manifest then says so by a count of changes that no log
// has.
func (b *backup) believe(m *manifest) error {
	m.source = b.source()
	slot, found, err := recovery.ReadSlot(b.l.fsys, b.to.dir)
	if err != nil {
		return fmt.Errorf("wal: backup: %w", err)
	}
	if !b.report.Resumed && found && slot.Generation != m.generation {
		m.changes = 0
	}
	b.manifest = *m
	if err := b.manifest.write(b.l.fsys, b.to.dir); err != nil {
		return fmt.Errorf("wal: backup: %w", err)
	}
	return nil
}

// moment is a log at one moment. Its segments are held: they can be read even if they are removed.
type moment struct {
	segments    []*segment.Segment
	aborted     [][]AbortedTxn // of each segment: those whose marker is in it
	slot        recovery.Slot
	end         place
	frozen      *producerstate.Frozen
	epochs      []byte // leader-epoch-checkpoint, nil if there is none
	metadata    []byte // partition.metadata, nil if there is none
	truncations int64
}

// moment takes hold of the log as it is now.
func (l *Log) moment() (m *moment, err error) {
	take := func() error {
		m, err = l.holdNow()
		return err
	}
	switch {
	case l.isClosed.Load():
		err = ErrClosed
	case l.opts.ReadOnly:
		l.follow.mu.Lock()
		l.mu.Lock()
		err = take()
		l.mu.Unlock()
		l.follow.mu.Unlock()
	default:
		if err = l.failure(); err == nil {
			err = l.exclusively(take)
		}
	}
	if err != nil {
		return nil, err
	}
	for i, s := range m.segments {
		list, _, err := s.AbortedTxns(0, m.end.offset)
		if err != nil {
			m.release()
			return nil, err
		}
		for _, t := range list {
			if t.LastOffset >= m.end.offset {
				break // it was aborted since
			}
			m.aborted[i] = append(m.aborted[i], t)
			if t.LastOffset >= m.slot.LogStart {
				m.slot.Txns.Add(t)
			}
		}
	}
	return m, nil
}

// holdNow is moment for a caller that is alone, or holds mu of a log that is open read-only.
func (l *Log) holdNow() (*moment, error) {
	m := &moment{slot: l.slot(), end: l.end, frozen: l.producers.Freeze(), metadata: l.foreign.Metadata, truncations: l.ends.truncations}
	if len(l.epochs.Entries()) > 0 || l.foreign.LeaderEpochs != nil {
		m.epochs = l.epochs.Encode()
	}
	if l.opts.ReadOnly {
		m.slot.Mode, m.slot.Changes = l.follow.slot.Mode, l.follow.slot.Changes
		m.slot.GroupBound = max(m.slot.GroupBound, l.follow.slot.GroupBound)
	}
	m.slot.LogStart = l.ends.logStart
	for s := range l.set.From(l.ends.logStart) {
		if !s.Acquire() {
			m.release()
			return nil, ErrClosed
		}
		m.segments = append(m.segments, s)
	}
	m.aborted = make([][]AbortedTxn, len(m.segments))
	p := l.lastPosition()
	if p.Last.Size > 0 && p.Last.SegmentBase < m.segments[0].BaseOffset() {
		p.Last = position{}.Last
	}
	m.slot.Durable, m.slot.Recovery, m.slot.SnapshotOffset = p, p, p.Offset
	m.slot.Txns, m.slot.TxnsKnown = recovery.TxnSum{}, true // to be counted
	m.slot.Segments = recovery.SegmentSum{}
	for _, s := range m.segments {
		if s.BaseOffset() < p.Offset {
			m.slot.Segments = m.slot.Segments.Add(s.BaseOffset())
		}
	}
	m.slot.Clean, m.slot.SyncFailed, m.slot.Cutting, m.slot.Replacing = true, false, false, false
	m.slot.BootID, m.slot.RebuildFrom = "", 0
	return m, nil
}

func (m *moment) release() {
	for _, s := range m.segments {
		s.Release()
	}
	m.segments = nil
}

// unchangedSince tells whether all that was read of a moment was of that moment.
func (l *Log) unchangedSince(ctx context.Context, m *moment, failed error) (bool, error) {
	if l.opts.ReadOnly {
		return l.stillThere(ctx, m.truncations, failed)
	}
	return l.visible.load().truncations == m.truncations, nil
}

// finish writes down what the backup is, and lets it be opened.
func (b *backup) finish(m *moment) error {
	fsys, dir := b.l.fsys, b.to.dir
	readers := b.l.cursors.encode(m.end.offset)
	if b.l.opts.ReadOnly {
		list, err := readCursors(fsys, b.l.dir)
		if err != nil {
			return err
		}
		readers = (&cursors{list: list}).encode(m.end.offset)
	}
	for name, content := range map[string][]byte{recovery.LeaderEpochFileName: m.epochs, cursorsFile: readers,
		segment.Name{Kind: segment.KindPartitionMetadata}.String(): m.metadata} {
		if content != nil {
			if err := vfs.WriteFileAtomic(fsys, filepath.Join(dir, name), 0o644, content); err != nil {
				return fmt.Errorf("wal: backup: %w", err)
			}
		} else if err := fsys.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("wal: backup: %w", err)
		}
	}
	if err := producerstate.WritePair(fsys, dir, m.frozen, m.slot.Durable.Last); err != nil {
		return fmt.Errorf("wal: backup: %w", err)
	}
	foreign, err := recovery.ReadForeign(fsys, dir)
	if err != nil {
		return fmt.Errorf("wal: backup: %w", err)
	}
	m.slot.Who, m.slot.Bare = recovery.Writers(&foreign, &foreign)
	if b.manifest.generation, err = b.writeState(m); err != nil {
		return err
	}
	b.manifest.logStart, b.manifest.end = m.slot.LogStart, m.end.offset
	if err := b.manifest.write(fsys, dir); err != nil {
		return fmt.Errorf("wal: backup: %w", err)
	}
	err = fsys.Remove(filepath.Join(dir, unfinishedFile))
	if err = errors.Join(err, fsys.SyncDir(dir)); err != nil {
		return fmt.Errorf("wal: backup: %w", err)
	}
	b.report.LogStart, b.report.LogEnd = m.slot.LogStart, m.end.offset
	b.report.Producers, b.report.Segments = m.frozen.Len(), len(b.manifest.segments)
	return nil
}

func (b *backup) writeState(m *moment) (generation uint64, err error) {
	f, err := recovery.OpenStateFile(b.l.fsys, b.to.dir, false)
	if err != nil {
		return 0, err
	}
	err = f.SyncBoth(m.slot)
	slot, _ := f.Newest()
	return slot.Generation, errors.Join(err, f.Close())
}
