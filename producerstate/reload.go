package producerstate

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/oncelog/oncelog/record"
)

// TruncateAndReload makes the state fit a log that spans [logStart, logEnd). Snapshots of another range are removed. If the
// state does not already end at logEnd, it is dropped and loaded from the newest snapshot that is left and usable; the
// caller then replays the log from MapEndOffset on. If none is usable the state is empty and MapEndOffset is logStart.
// (Kafka: ProducerStateManager.truncateAndReload.)
//
// A damaged snapshot is removed and the next older one tried, as Kafka does. So is, without being removed, one that has no
// matching side file, unless Config.AllowBareSnapshots is set, and one that Config.Accept turns down. A side file of
// an unknown version is an error, since going on without it would forget what it holds. With Compat the snapshots alone
// are loaded, and producers expired at nowMs, the clock in milliseconds, are left out.
//
// Kafka removes the snapshot at logStart as well; here it stays, because the producers in it are as good as later ones.
// Pass as logStart the first offset that can still be replayed. Loading also replaces the named producers: names that were
// entered since the snapshot have to be entered again. Verifications stay.
func (m *Manager) TruncateAndReload(logStart, logEnd, nowMs int64) error {
	err := m.dropSnapshots(func(o int64) bool {
		return o > logEnd || o < logStart || (o == logStart && m.config.Compat)
	})
	if err != nil {
		return err
	}
	if logEnd == m.mapEnd {
		m.OnLogStartIncremented(logStart)
		return nil
	}
	m.clearState()
	return m.load(logStart, logEnd, nowMs)
}

// load fills the empty state from the newest usable snapshot.
func (m *Manager) load(logStart, logEnd, nowMs int64) error {
	for i := len(m.snapshots) - 1; i >= 0; i-- {
		offset := m.snapshots[i]
		if offset > logEnd || offset < logStart {
			continue // only with ReadOnly, where it could not be removed
		}
		s, err := m.read(offset)
		if err == nil {
			if m.config.Compat {
				m.dropExpired(s, nowMs)
			}
			m.Restore(s)
			if s.Bare && !m.config.Compat {
				return m.adoptNamed(offset)
			}
			return nil
		}
		if err := m.passOver(offset, err); err != nil {
			return err
		}
	}
	m.mapEnd, m.lastSnapshot = logStart, logStart
	if m.config.Compat {
		return nil
	}
	return m.adoptNamed(logEnd)
}

// read reads the state for one offset as the settings want it.
func (m *Manager) read(offset int64) (*State, error) {
	if m.config.Compat {
		return ReadSnapshot(m.fsys, snapshotPath(m.dir, offset))
	}
	s, err := ReadPair(m.fsys, m.dir, offset)
	var fault *SnapshotError
	if m.config.AllowBareSnapshots && errors.As(err, &fault) && fault.Kind != BadVersion {
		// The side file is missing or useless; if it is the snapshot, this says so once more.
		s, err = ReadSnapshot(m.fsys, snapshotPath(m.dir, offset))
	}
	if err != nil {
		return nil, err
	}
	if m.config.Accept != nil && !m.config.Accept(offset, s.Last) {
		return nil, &SnapshotError{
			Path: snapshotPath(m.dir, offset), Offset: offset, Kind: NotAccepted,
			Reason: fmt.Sprintf("the log does not have its last batch, at offset %d", s.Last.BaseOffset),
		}
	}
	return s, nil
}

// passOver decides what becomes of a snapshot that could not be used. Its result is an error that loading ends with.
func (m *Manager) passOver(offset int64, err error) error {
	var fault *SnapshotError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		m.forget(offset)
		return nil
	case !errors.As(err, &fault):
		return err // the disk, not the file: a retry may succeed, so nothing is removed
	}
	m.reportSnapshot(offset, err)
	_, isSnapshot := ParseSnapshotName(filepath.Base(fault.Path))
	switch {
	case fault.Kind == BadVersion && !isSnapshot:
		return err
	case !m.config.Compat && !fault.isDamage():
		return nil
	case m.config.ReadOnly:
		m.damaged = append(m.damaged, offset)
		return nil
	}
	return m.DeleteSnapshot(offset)
}

// adoptNamed takes over the named producers of the newest readable side file at or below limit, if the state has none:
// another program that wrote to the log forgets them, and their batches may be gone.
func (m *Manager) adoptNamed(limit int64) error {
	pairs, err := ListPairs(m.fsys, m.dir)
	if err != nil {
		return err
	}
	for _, p := range slices.Backward(pairs) {
		if !p.HasSideFile || p.Offset > limit {
			continue
		}
		s, err := ReadSideFile(m.fsys, sidePath(m.dir, p.Offset))
		if err != nil {
			if errors.Is(err, ErrUnsupportedVersion) {
				return err
			}
			m.reportSnapshot(p.Offset, err)
			continue
		}
		if m.config.Accept != nil && !m.config.Accept(p.Offset, s.Last) {
			continue
		}
		m.adopt(s)
		return nil
	}
	return nil
}

func (m *Manager) adopt(s *State) {
	m.named = names{list: s.Named}
	m.named.reindex()
	for p := range all(s.table.chunks) {
		if p.id < MinNamedProducerID {
			continue
		}
		if _, known := m.table.find(p.id); known {
			continue
		}
		c := *p
		c.txnFirst = NoOffset // if it is still open, the replay opens it again
		m.table.add(c)
		m.noteLoaded(&c)
	}
	m.newestClock = max(m.newestClock, s.NewestClock)
}

// OnLogStartIncremented says that the log now begins at logStart: ended transactions below it are dropped, producers are
// not, since they outlive their data (Kafka: onLogStartOffsetIncremented).
func (m *Manager) OnLogStartIncremented(logStart int64) {
	m.decided.removeBelow(logStart)
	m.mapEnd = max(m.mapEnd, logStart)
	m.lastSnapshot = logStart
	if latest, ok := m.LatestSnapshotOffset(); ok {
		m.lastSnapshot = latest
	}
}

// TruncateFullyAndStartAt forgets everything and removes all snapshots; the log goes on at offset (Kafka:
// truncateFullyAndStartAt).
func (m *Manager) TruncateFullyAndStartAt(offset int64) error {
	m.clearState()
	m.lastSnapshot, m.mapEnd = 0, offset
	return m.dropSnapshots(func(int64) bool { return true })
}

// TruncateFullyAndReloadSnapshots forgets everything, removes the snapshots it knows of, and lists the directory again
// (Kafka: truncateFullyAndReloadSnapshots).
func (m *Manager) TruncateFullyAndReloadSnapshots() error {
	if err := m.TruncateFullyAndStartAt(0); err != nil {
		return err
	}
	return m.relist(nil)
}

// Load replaces the state by that of the newest usable snapshot in [logStart, offset], as TruncateAndReload does, and
// leaves the other snapshots alone. If none is usable the state is empty and MapEndOffset is logStart.
func (m *Manager) Load(logStart, offset, nowMs int64) error {
	m.clearState()
	return m.load(logStart, offset, nowMs)
}

// SetAccept changes Config.Accept, for a log whose segments have changed since.
func (m *Manager) SetAccept(accept func(offset int64, last record.Identity) bool) {
	m.config.Accept = accept
}
