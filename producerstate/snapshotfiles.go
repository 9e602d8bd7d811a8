package producerstate

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/oncelog/oncelog/record"
)

func pathIn(dir, name string) string { return filepath.Join(dir, name) }

// TakeSnapshot writes the state to files named after MapEndOffset, unless a snapshot was already taken there: then nothing
// has changed. last names the last batch below that offset, see WritePair; it is not used with Compat. The files are
// durable when it returns. It holds whatever lock the caller holds; Freeze, WritePair and NoteSnapshot do the same in
// parts. (Kafka: ProducerStateManager.takeSnapshot.)
func (m *Manager) TakeSnapshot(last record.Identity) error {
	if m.config.ReadOnly {
		return ErrReadOnly
	}
	if m.mapEnd <= m.lastSnapshot {
		return nil
	}
	f := m.Freeze()
	var err error
	if m.config.Compat {
		err = WriteSnapshot(m.fsys, m.dir, f)
	} else {
		err = WritePair(m.fsys, m.dir, f, last)
	}
	if err != nil {
		return err
	}
	m.NoteSnapshot(f.Offset())
	return nil
}

// NeedsSnapshot tells whether TakeSnapshot would write.
func (m *Manager) NeedsSnapshot() bool { return m.mapEnd > m.lastSnapshot }

// NoteSnapshot enters a snapshot that was written outside the Manager from a Frozen of it.
func (m *Manager) NoteSnapshot(offset int64) {
	m.snapshots = sortedInsert(m.snapshots, offset)
	m.lastSnapshot = max(m.lastSnapshot, offset)
}

// LastSnapshotOffset returns the offset at or below which TakeSnapshot does nothing (Kafka: lastSnapshotOffset).
func (m *Manager) LastSnapshotOffset() int64 { return m.lastSnapshot }

// Snapshots returns the offsets of the snapshot files in ascending order.
func (m *Manager) Snapshots() []int64 { return slices.Clone(m.snapshots) }

// LatestSnapshotOffset returns the offset of the newest snapshot file.
func (m *Manager) LatestSnapshotOffset() (int64, bool) {
	if len(m.snapshots) == 0 {
		return 0, false
	}
	return m.snapshots[len(m.snapshots)-1], true
}

// OldestSnapshotOffset returns the offset of the oldest snapshot file.
func (m *Manager) OldestSnapshotOffset() (int64, bool) {
	if len(m.snapshots) == 0 {
		return 0, false
	}
	return m.snapshots[0], true
}

// HasSnapshot tells whether there is a snapshot file for offset.
func (m *Manager) HasSnapshot(offset int64) bool {
	_, ok := slices.BinarySearch(m.snapshots, offset)
	return ok
}

// DeleteSnapshot removes the snapshot for offset and its side file, if they are there.
func (m *Manager) DeleteSnapshot(offset int64) error {
	return m.dropSnapshots(func(o int64) bool { return o == offset })
}

// DeleteSnapshotsBefore removes the snapshots below offset (Kafka: deleteSnapshotsBefore).
func (m *Manager) DeleteSnapshotsBefore(offset int64) error {
	return m.dropSnapshots(func(o int64) bool { return o < offset })
}

// DeleteSnapshotsAfter removes the snapshots above offset.
func (m *Manager) DeleteSnapshotsAfter(offset int64) error {
	return m.dropSnapshots(func(o int64) bool { return o > offset })
}

// dropSnapshots removes the chosen snapshots. With ReadOnly it does nothing.
func (m *Manager) dropSnapshots(chosen func(offset int64) bool) error {
	if m.config.ReadOnly {
		return nil
	}
	var gone []int64
	for _, o := range m.snapshots {
		if chosen(o) {
			gone = append(gone, o)
		}
	}
	if err := RemovePair(m.fsys, m.dir, gone...); err != nil {
		return err
	}
	m.snapshots = slices.DeleteFunc(m.snapshots, chosen)
	return nil
}

func (m *Manager) forget(offset int64) {
	m.snapshots = slices.DeleteFunc(m.snapshots, func(o int64) bool { return o == offset })
}

// RetireSnapshot gives the snapshot for offset the suffix .deleted, under which Kafka keeps the files of a deleted segment
// for a while, and forgets it. Its side file is removed. It returns the file's new name, without a directory, or an
// empty string if there was no snapshot. (Kafka: removeAndMarkSnapshotForDeletion.)
func (m *Manager) RetireSnapshot(offset int64) (string, error) {
	if m.config.ReadOnly {
		return "", ErrReadOnly
	}
	if !m.HasSnapshot(offset) {
		return "", nil
	}
	retired := SnapshotName(offset) + deletedSuffix
	err := m.fsys.Rename(snapshotPath(m.dir, offset), pathIn(m.dir, retired))
	if errors.Is(err, fs.ErrNotExist) {
		err, retired = nil, ""
	}
	if err != nil {
		return "", err
	}
	m.forget(offset)
	return retired, RemovePair(m.fsys, m.dir, offset)
}

// RemoveStraySnapshots lists the directory again and removes the snapshots that no segment starts at, except the newest of
// them if it is not below the last segment's base: that is the one of the last clean stop (Kafka: removeStraySnapshots).
//
// Unless Compat is set, the two newest at or above the last segment's base stay: snapshots are then also taken inside the
// active segment, and the older one is there for the case that the newer cannot be used.
func (m *Manager) RemoveStraySnapshots(segmentBases []int64) error {
	if err := m.relist(nil); err != nil {
		return err
	}
	return m.PruneSnapshots(segmentBases)
}

// PruneSnapshots is RemoveStraySnapshots of the snapshots that the Manager knows, for one who is told of each: it does not
// list the directory, which in a log of many segments takes long.
func (m *Manager) PruneSnapshots(segmentBases []int64) error {
	bases := make(map[int64]bool, len(segmentBases))
	for _, b := range segmentBases {
		bases[b] = true
	}
	var strays []int64
	for _, o := range m.snapshots {
		if !bases[o] {
			strays = append(strays, o)
		}
	}
	keep := 2
	if m.config.Compat {
		keep = 1
	}
	kept := strays[max(0, len(strays)-keep):]
	if len(segmentBases) > 0 {
		last := slices.Max(segmentBases)
		kept = slices.DeleteFunc(slices.Clone(kept), func(o int64) bool { return o < last })
	}
	return m.dropSnapshots(func(o int64) bool {
		return !bases[o] && !slices.Contains(kept, o)
	})
}
