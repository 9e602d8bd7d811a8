package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/oncelog/oncelog/internal/kafkadir"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/recovery"
	"github.com/oncelog/oncelog/segment"
)

// Bytes of the log directory's lock file. A broker locks all of them, exclusively.
const (
	parentUseByte   = 0 // shared by every writer of a partition
	parentWriteByte = 1 // held exclusively by whoever rewrites a checkpoint
)

// prepareDir makes sure that there is a directory to open and that nobody else writes to it.
func (l *Log) prepareDir() error {
	if l.opts.ReadOnly {
		return l.checkIsLog()
	}
	if err := l.makeDir(); err != nil {
		return err
	}
	if err := l.checkIsLog(); err != nil {
		return err
	}
	return l.lockDir()
}

// lockDir keeps other writers out of the directory, and a broker out of the log directory around it.
func (l *Log) lockDir() error {
	path := filepath.Join(l.dir, lockFile)
	_, missing := l.fsys.Stat(path)
	if err := l.lock(path, 0, true, "another writer has it open"); err != nil {
		return err
	}
	l.lockIsNew = errors.Is(missing, fs.ErrNotExist)
	parent := filepath.Dir(l.dir)
	kafka, err := kafkadir.IsLogDir(l.fsys, parent)
	if err != nil {
		return fmt.Errorf("wal: open: %w", err)
	}
	if !kafka {
		return nil
	}
	return l.lock(filepath.Join(parent, kafkadir.LockFile), parentUseByte, false, "a Kafka broker uses the log directory; stop it first")
}

const lockFile = "oncelog.lock"

func (l *Log) lock(path string, off int64, exclusive bool, who string) error {
	c, err := l.fsys.Lock(path, off, 1, exclusive)
	if errors.Is(err, vfs.ErrLocked) {
		return fmt.Errorf("%w: %s: %s", ErrLocked, path, who)
	}
	if err != nil {
		return fmt.Errorf("wal: lock: %w", err)
	}
	l.locks = append(l.locks, c)
	return nil
}

// unlockRefused is unlock after an open that came to nothing, which leaves no lock file where there was none. Whoever has opened
// the file meanwhile finds that it is gone when he has the lock, and makes another (vfs.FS.Lock). That of the log directory
// stays: a broker does not look again.
func (l *Log) unlockRefused() error {
	if l.lockIsNew {
		// Where open files cannot be removed, it stays.
		_ = l.fsys.Remove(filepath.Join(l.dir, lockFile))
	}
	return l.unlock()
}

func (l *Log) unlock() error {
	var errs []error
	for _, c := range slices.Backward(l.locks) {
		errs = append(errs, c.Close())
	}
	l.locks = nil
	return errors.Join(errs...)
}

// makeDir creates the directory and those above it that are missing, and makes their names durable. Whoever made a
// directory that is there may have been interrupted before he could: its own name is made durable too, where the rights
// allow it.
func (l *Log) makeDir() error {
	var parents []string // of what is missing, the innermost first
	for dir := l.dir; ; dir = filepath.Dir(dir) {
		_, err := l.fsys.Stat(dir)
		if err == nil || filepath.Dir(dir) == dir {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("wal: open: %w", err)
		}
		parents = append(parents, filepath.Dir(dir))
	}
	if len(parents) == 0 {
		if err := l.fsys.SyncDir(filepath.Dir(l.dir)); err != nil && !errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("wal: open: %w", err)
		}
		return nil
	}
	if err := l.fsys.MkdirAll(l.dir, 0o755); err != nil {
		return fmt.Errorf("wal: open: %w", err)
	}
	for _, dir := range slices.Backward(parents) {
		if err := l.fsys.SyncDir(dir); err != nil {
			return fmt.Errorf("wal: open: %w", err)
		}
	}
	return nil
}

// checkIsLog refuses a directory that holds files but none of a log: it would be the wrong one. For reading it refuses
// an empty one as well.
func (l *Log) checkIsLog() error {
	if _, err := l.fsys.Stat(filepath.Join(l.dir, recovery.StateFileName)); err == nil {
		return nil // spares a listing, which recovery makes once more behind the lock
	}
	entries, err := l.fsys.ReadDir(l.dir)
	if err != nil {
		return fmt.Errorf("wal: open: %w", err)
	}
	stranger := ""
	for _, e := range entries {
		switch segment.Parse(e.Name).Kind {
		case segment.KindUnknown:
			stranger = e.Name
		case segment.KindLock:
			// Left by whoever began here; a log may have come of it or not.
		default:
			return nil
		}
	}
	switch {
	case stranger != "":
		return fmt.Errorf("%w: %s holds %q and no file of a log", ErrNotLog, l.dir, stranger)
	case l.opts.ReadOnly:
		return fmt.Errorf("%w: %s is empty", ErrNotLog, l.dir)
	}
	return nil
}

// countChanges goes on with the count of changes of the log. An open that cut something, or that finds another program's
// work, is one: whoever has read the log before cannot know that all of it is still there.
func (l *Log) countChanges(s *recovery.State) {
	l.changes = s.Slot.Changes
	if s.Slot.Generation == 0 {
		l.changes = uint64(l.opts.Now().UnixMilli())
	}
	replaced := slices.ContainsFunc(s.Report.Findings, func(f recovery.Finding) bool { return f.Decision == recovery.CompleteSwap })
	if s.Slot.Cutting || s.Report.BytesCut > 0 || replaced || s.Report.Writer != recovery.Us {
		l.changes++
	}
}

// becomeWriter writes down that this process is the one that changes the directory from now on. The mark of a clean
// stop goes first: with it a broker would not look at what we leave behind.
func (l *Log) becomeWriter() error {
	if l.foreign.Marker {
		if _, err := kafkadir.RemoveMarker(l.fsys, filepath.Dir(l.dir)); err != nil {
			return fmt.Errorf("wal: open: %w", err)
		}
		l.foreign.Marker = false
	}
	if err := l.syncState(l.slot()); err != nil {
		return fmt.Errorf("wal: open: %w", err)
	}
	return nil
}

// firstOpenInCompat leaves behind no file of ours that a later open could believe: what they know moves to where Kafka
// keeps it, the rest is forgotten on purpose.
func (l *Log) firstOpenInCompat() error {
	if !l.opts.Compat {
		return nil
	}
	if !l.foreign.KafkaDir {
		return fmt.Errorf("%w: Compat needs a Kafka log directory around %s: a meta.properties or a checkpoint beside it", ErrInvalidOptions, l.dir)
	}
	entries, err := l.fsys.ReadDir(l.dir)
	if err != nil {
		return fmt.Errorf("wal: open: %w", err)
	}
	var ours []string
	for _, e := range entries {
		if k := segment.Parse(e.Name).Kind; k == segment.KindState || k == segment.KindProducers {
			ours = append(ours, filepath.Join(l.dir, e.Name))
		}
	}
	if len(ours) == 0 {
		return nil
	}
	if l.ends.logStart > l.set.First().BaseOffset() {
		if !l.foreign.HasFile[recovery.LogStart] {
			return fmt.Errorf("%w: Compat would lose the log start %d: the log directory has no %s",
				ErrInvalidOptions, l.ends.logStart, recovery.LogStart.Name())
		}
		if err := l.setParentOffset(recovery.LogStart, l.ends.logStart); err != nil {
			return err
		}
	}
	for _, name := range ours {
		if err := l.fsys.Remove(name); err != nil {
			return fmt.Errorf("wal: open: %w", err)
		}
	}
	if err := l.fsys.SyncDir(l.dir); err != nil {
		return fmt.Errorf("wal: open: %w", err)
	}
	return nil
}
