package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/oncelog/oncelog/internal/dump"
	"github.com/oncelog/oncelog/recovery"
	"github.com/oncelog/oncelog/segment"
)

// settleTries is how often a directory is read again that looks wrong, or cannot be read, and is being written meanwhile.
const settleTries = 20

// fileClockTick is the coarsest step in which a file system counts the time of a change.
const fileClockTick = 20 * time.Millisecond

// inspectPartition tells what an open with the policy would do; with verify it reads everything. A directory that changes
// while it is read may look wrong and be right: what was read first does not fit what was read last. So it is read again,
// and a place in a log file that is right by now was not wrong before, only unfinished.
func (a *app) inspectPartition(ctx context.Context, dir string, policy recovery.Policy, verify bool) (r *partitionResult, err error) {
	err = a.settle(ctx, dir, func() (again bool, err error) {
		r, err = a.inspectOnce(ctx, dir, policy, verify)
		return err != nil || r.Verdict != verdictHealthy, err
	}, func() (bool, error) {
		r.Changing = true
		err := a.dropFinished(ctx, dir, r)
		return r.Verdict != verdictHealthy, err
	})
	return r, err
}

// settle calls read until the directory did not change meanwhile, or read says that there is no need to call again. Between
// two calls changed is asked, which may take back the need for another; nil asks nothing.
func (a *app) settle(ctx context.Context, dir string, read func() (again bool, err error), changed func() (again bool, err error)) error {
	for try := 1; ; try++ {
		before, _, err := a.fingerprint(dir)
		if err != nil {
			return err
		}
		again, err := read()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !again {
			return err
		}
		after, fresh, err2 := a.fingerprint(dir)
		if err2 != nil {
			return err2
		}
		switch {
		case before != after:
			if err == nil && changed != nil {
				if again, err = changed(); !again && err == nil {
					return nil
				}
			}
		case !fresh:
			return err
		default: // a second change within one tick of the file system's clock would not show
			select {
			case <-time.After(fileClockTick):
			case <-ctx.Done():
			}
		}
		if try == settleTries {
			return err
		}
	}
}

// fingerprint is a text that changes when the directory does, unless that happens in the very moment of a fresh one.
func (a *app) fingerprint(dir string) (text string, fresh bool, err error) {
	entries, err := a.fsys.ReadDir(dir)
	if err != nil {
		return "", false, err
	}
	h := newDigest()
	for _, e := range entries {
		n := segment.Parse(e.Name)
		fmt.Fprintf(h, "%q %d\n", e.Name, e.Kind)
		if n.Kind != segment.KindLog && n.Kind != segment.KindState || n.Suffix != "" {
			continue
		}
		info, err := a.fsys.Stat(filepath.Join(dir, e.Name))
		if err != nil {
			continue // it has just gone; the next list says so
		}
		fmt.Fprintf(h, "%d %d\n", info.Size, info.ModTime.UnixNano())
		fresh = fresh || time.Since(info.ModTime).Abs() < fileClockTick
	}
	return string(h.Sum(nil)), fresh, nil
}

// dropFinished takes back the findings about places of log files where a whole batch is by now, or that are gone.
func (a *app) dropFinished(ctx context.Context, dir string, r *partitionResult) error {
	var kept []finding
	for _, f := range r.found.List {
		finished, err := a.isFinished(ctx, dir, &f)
		if err != nil {
			return err
		}
		if !finished {
			kept = append(kept, f)
		}
	}
	r.found.List = kept
	r.conclude()
	return nil
}

func (a *app) isFinished(ctx context.Context, dir string, f *finding) (bool, error) {
	if n := segment.Parse(f.File); f.Position == nil || n.Kind != segment.KindLog || n.Suffix != "" {
		return false, nil
	}
	l, err := dump.OpenLog(ctx, a.fsys, filepath.Join(dir, f.File), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer l.Close()
	l.Skip(*f.Position)
	good := l.Next()
	return good && (f.Offset == nil || l.Entry().Batch.BaseOffset() == *f.Offset) || !good && l.Damage() == nil && l.Err() == nil, nil
}
