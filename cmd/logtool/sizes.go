package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/oncelog/oncelog/internal/dump"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/recovery"
	"github.com/oncelog/oncelog/segment"
)

// checkSizes finds the files that are larger than anything that was ever written. An open of such a directory would read,
// or map, all of them, which may be more than there is time or memory for. It also adds up the log.
func (a *app) checkSizes(list *dump.Dir, r *partitionResult) (sane bool, err error) {
	sane = true
	refuse := func(name, format string, args ...any) {
		sane = false
		r.found.Add(finding{File: name, Problem: true, Decision: recovery.Refuse.String(), Reason: fmt.Sprintf(format, args...)})
	}
	for _, s := range list.Segments {
		for _, k := range dump.Kinds {
			f, ok := s.Of[k]
			if !ok || f.Kind != vfs.Regular {
				continue
			}
			info, err := a.fsys.Stat(filepath.Join(list.Path, f.Name))
			if errors.Is(err, fs.ErrNotExist) {
				continue // a writer has just removed it
			}
			if err != nil {
				return false, err
			}
			if k == segment.KindLog {
				r.LogBytes += info.Size
			}
			if info.Size > dump.MaxFileBytes {
				refuse(f.Name, "has %d bytes, more than a file of a segment can have: it is not what its name says", info.Size)
			}
		}
	}
	for _, f := range list.Other {
		if segment.Parse(f.Name).Kind != segment.KindProducers || f.Kind != vfs.Regular {
			continue
		}
		most, size, err := a.sideFileSize(filepath.Join(list.Path, f.Name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, err
		}
		if size > max(most, maxDamaged) {
			refuse(f.Name, "has %d bytes, more than it says: it is not what its name says", size)
		}
	}
	for _, f := range list.Snapshots {
		if f.Kind != vfs.Regular {
			continue
		}
		s, err := dump.OpenSnapshot(context.Background(), a.fsys, filepath.Join(list.Path, f.Name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, err
		}
		if s.Damage != nil && s.Size > maxDamaged {
			refuse(f.Name, "has %d bytes and is not a snapshot of that length", s.Size)
		}
		if err := s.Close(); err != nil {
			return false, err
		}
	}
	return sane, nil
}

// maxDamaged is the size up to which an unreadable snapshot or side file is given to recovery, which reads it whole.
const maxDamaged = 16 << 20

// sideFileSize returns the most bytes that a side file can have by its header, and those that it has.
func (a *app) sideFileSize(path string) (most, size int64, err error) {
	f, err := a.fsys.OpenFile(path, vfs.O_RDONLY, 0)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	var head [88]byte
	if n, err := f.ReadAt(head[:], 0); n < len(head) {
		_ = err // a file that short is small
		return 0, info.Size, nil
	}
	if string(head[:8]) != "ONCEPROD" {
		return 0, info.Size, nil
	}
	const (
		producer = 39 + 5*24  // bytes, with all batches
		named    = 18 + 65535 // bytes, with the longest name
	)
	producers, names := int64(binary.BigEndian.Uint32(head[28:])), int64(binary.BigEndian.Uint32(head[32:]))
	return int64(len(head)) + producers*producer + names*named + 8, info.Size, nil
}

// openable refuses a directory that no open would come to an end with. One that is not there is made by an open.
func (a *app) openable(dir string) error {
	if there, err := a.exists(dir); err != nil || !there {
		return err
	}
	list, err := dump.List(a.fsys, dir)
	if err != nil {
		return err
	}
	var r partitionResult
	sane, err := a.checkSizes(list, &r)
	if err != nil || sane {
		return err
	}
	return problem{fmt.Errorf("%s: %s %s", quote(dir), quote(r.found.List[0].File), r.found.List[0].Reason)}
}
