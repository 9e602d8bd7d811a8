package wal

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/recovery"
)

// DirStat tells about the log of a directory that is not open.
type DirStat struct {
	Dir     string
	Offsets Offsets

	Segments int
	Bytes    int64 // of batches

	First, Last time.Time // greatest time of the first batch, and of all records; zero if there is none

	Writer recovery.Writer // who changed it last
	Mode   SyncMode        // of that writer, if it was this library
	Clean  bool            // it was closed in order
	Report recovery.Report // what an open for writing would find, from the last checkpoint on

	Producers, OpenTransactions, Cursors int
}

// Stat tells about the log in dir and changes nothing; it takes no lock, and may be called beside a writer. It reads what an
// open for reading reads: after a clean close no batch, else what lies behind the last checkpoint. Damage is in the
// report and is no error. Errors: ErrNotLog, ErrUnfinishedBackup, ErrUnsupportedVersion, and those of the file system.
func Stat(ctx context.Context, dir string) (DirStat, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return DirStat{}, err
	}
	return StatFS(ctx, vfs.OS, dir)
}

// StatFS is Stat on another file system. It is for the tests and the tools of this module.
func StatFS(ctx context.Context, fsys vfs.FS, dir string) (st DirStat, err error) {
	l, err := OpenFS(ctx, fsys, dir, Options{ReadOnly: true})
	if err != nil {
		return st, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	set := l.segments.Load()
	st = DirStat{Dir: dir, Offsets: l.Offsets(), Segments: set.Len(), Report: l.report}
	st.Writer, st.Mode, st.Clean = l.report.Writer, l.report.Mode, l.report.Clean
	st.Producers, st.OpenTransactions = l.Stats().Producers.Producers, l.Stats().Producers.OpenTxns
	for s := range set.All() {
		size, err := s.Size()
		if err != nil {
			return st, err
		}
		st.Bytes += size
	}
	if cursors, err := l.Cursors(); err == nil { // a file that is damaged is told by who asks for a cursor
		st.Cursors = len(cursors)
	}
	if hit, found, err := l.OffsetForTimestamp(MaxTimestamp); err == nil && found {
		st.Last = statTime(hit.Timestamp)
	} else if err != nil && !errors.Is(err, ErrCorrupt) {
		return st, err
	}
	if t, err := set.First().FirstTimestamp(); err == nil {
		st.First = statTime(t)
	} else if !errors.Is(err, ErrCorrupt) && !errors.Is(err, record.ErrTruncated) {
		return st, err
	}
	return st, nil
}

// statTime returns a timestamp in milliseconds as a time, the zero Time for record.NoTimestamp.
func statTime(ms int64) time.Time {
	if ms == record.NoTimestamp {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
