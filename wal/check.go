package wal

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/dump"
	"github.com/oncelog/oncelog/internal/verify"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/recovery"
)

// CheckFinding is one thing that is wrong, or worth telling, about a directory.
type CheckFinding = verify.Finding

// CheckResult is what Check found.
type CheckResult struct {
	Dir      string
	Healthy  bool // there is no problem
	Refused  bool // an open for writing is refused
	Findings []CheckFinding
	Omitted  int // findings beyond the first thousand

	Batches, Records, Bytes, IndexEntries, Snapshots int64 // that were verified

	// Changing says that a writer was at work all the time: what is said of bytes may be said of what was not finished.
	Changing bool
}

// Check verifies everything that the directory of a log holds, and changes nothing: the checksum of every batch, offsets,
// index entries, leader epochs, transactions and snapshots, and what an open for writing would make of it. It takes no
// lock; beside a writer it looks again where something seems wrong. It is what "logtool inspect" does. What is wrong is in
// the result; an error says that the directory could not be read, or that the context ended.
func Check(ctx context.Context, dir string) (CheckResult, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return CheckResult{}, err
	}
	return CheckFS(ctx, vfs.OS, dir)
}

// CheckFS is Check on another file system. It is for the tests and the tools of this module.
func CheckFS(ctx context.Context, fsys vfs.FS, dir string) (CheckResult, error) {
	const tries = 10
	for try := 1; ; try++ {
		before, _, err := recovery.ReadSlot(fsys, dir)
		if err != nil && !isVersion(err) {
			return CheckResult{}, err
		}
		r, err := checkOnce(ctx, fsys, dir)
		if ctx.Err() != nil {
			return CheckResult{}, ctx.Err()
		}
		if err == nil && r.Healthy {
			return r, nil
		}
		after, _, slotErr := recovery.ReadSlot(fsys, dir)
		if slotErr != nil || before.Generation == after.Generation || try == tries {
			r.Changing = before.Generation != after.Generation
			return r, err
		}
	}
}

func checkOnce(ctx context.Context, fsys vfs.FS, dir string) (CheckResult, error) {
	l := Log{fsys: fsys, dir: dir}
	l.configure(Options{ReadOnly: true})
	if err := l.checkIsLog(); err != nil {
		return CheckResult{}, err
	}
	list, err := dump.List(fsys, dir)
	if err != nil {
		return CheckResult{}, err
	}
	boot, err := fsys.BootID(dir)
	if err != nil {
		return CheckResult{}, err
	}
	var found verify.Findings
	report, err := recovery.Inspect(ctx, fsys, recovery.Params{Dir: dir, BootID: boot, CheckSegments: true,
		Logger: slog.New(slog.DiscardHandler), Now: time.Now})
	if refused, ok := errors.AsType[*recovery.RefusedError](err); ok {
		report, err = refused.Report, nil
	}
	switch {
	case isVersion(err):
		found.Add(verify.Finding{File: ".", Problem: true, Decision: recovery.Refuse.String(), Reason: err.Error()})
		report = nil
	case err != nil:
		return CheckResult{}, err
	default:
		for _, f := range report.Findings {
			found.Add(verify.OfRecovery(dir, f))
		}
	}
	c, err := verify.Run(ctx, fsys, list, &found, report)
	if err != nil {
		return CheckResult{}, err
	}
	return CheckResult{Dir: dir, Healthy: !found.Problems() && !found.Refused(), Refused: found.Refused(), Findings: found.List, Omitted: found.Omitted,
		Batches: c.Batches, Records: c.Records, Bytes: c.Bytes, IndexEntries: c.IndexEntries, Snapshots: c.Snapshots}, nil
}

// isVersion tells whether an error is about a version that only a newer program knows.
func isVersion(err error) bool {
	return errors.Is(err, recovery.ErrUnsupportedVersion) || errors.Is(err, index.ErrUnsupportedVersion) || errors.Is(err, checkpoint.ErrUnsupportedVersion)
}
