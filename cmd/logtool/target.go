package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/oncelog/oncelog/internal/kafkadir"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/segment"
)

// targetKind says what an argument is.
type targetKind int

const (
	partitionDir targetKind = iota
	logDir
	singleFile
)

// target is what a command was pointed at.
type target struct {
	path       string // absolute, links resolved
	kind       targetKind
	partitions []string // names of the partition directories of a log directory
	skipped    []string // names that look like one and are no directories
	holdsLog   bool     // a directory with at least one file of a log in it
}

// find looks at what an argument leads to. A link in the argument is followed, since the user named it; none behind it is.
func (a *app) find(arg string) (*target, error) {
	if arg == "" {
		return nil, errors.New("the path is empty")
	}
	path, err := filepath.Abs(arg)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return nil, err
	}
	info, err := a.fsys.Stat(path)
	if err != nil {
		return nil, err
	}
	t := &target{path: path}
	switch info.Kind {
	case vfs.Directory:
		return t, a.findIn(t)
	case vfs.Regular:
		t.kind = singleFile
		return t, nil
	}
	return nil, fmt.Errorf("%s is neither a directory nor a regular file", quote(path))
}

// findIn tells a partition directory from a log directory.
func (a *app) findIn(t *target) error {
	entries, err := a.fsys.ReadDir(t.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if n := segment.Parse(e.Name); n.Kind != segment.KindUnknown && n.Kind != segment.KindLock {
			t.holdsLog = true
		}
		if name, err := kafkadir.ParseName(e.Name); err == nil && name.Topic != "" {
			if e.Kind == vfs.Directory {
				t.partitions = append(t.partitions, e.Name)
			} else if e.Kind != vfs.Regular {
				t.skipped = append(t.skipped, e.Name)
			}
		}
	}
	if t.holdsLog {
		t.partitions, t.skipped = nil, nil
		return nil
	}
	isLogDir, err := kafkadir.IsLogDir(a.fsys, t.path)
	if err != nil {
		return err
	}
	if isLogDir || len(t.partitions) > 0 {
		t.kind = logDir
	}
	return nil
}

// findPartition is find for commands that work on one partition.
func (a *app) findPartition(arg string) (*target, error) {
	t, err := a.find(arg)
	if err != nil {
		return nil, err
	}
	switch t.kind {
	case singleFile:
		return nil, fmt.Errorf("%s is a file; a partition directory is wanted", quote(arg))
	case logDir:
		return nil, fmt.Errorf("%s is a log directory of %s; name one of them", quote(arg), count(len(t.partitions), "partition"))
	}
	return t, nil
}

// exists tells whether a path leads anywhere.
func (a *app) exists(path string) (bool, error) {
	_, err := a.fsys.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// readOnlyFS refuses every change. The commands that read are given it, so that a fault of theirs cannot write either.
type readOnlyFS struct{ vfs.FS }

var errReadOnly = fmt.Errorf("logtool: %w: this command changes nothing", vfs.ErrReadOnly)

// OpenFile implements vfs.FS.
func (r readOnlyFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	if flag&(vfs.O_RDWR|vfs.O_WRONLY|vfs.O_CREATE|vfs.O_TRUNC) != 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errReadOnly}
	}
	return r.FS.OpenFile(name, flag, perm)
}

// Remove implements vfs.FS.
func (r readOnlyFS) Remove(name string) error {
	return &fs.PathError{Op: "remove", Path: name, Err: errReadOnly}
}

// Rename implements vfs.FS.
func (r readOnlyFS) Rename(oldname, _ string) error {
	return &fs.PathError{Op: "rename", Path: oldname, Err: errReadOnly}
}

// SetModTime implements vfs.FS.
func (r readOnlyFS) SetModTime(name string, _ time.Time) error {
	return &fs.PathError{Op: "chtimes", Path: name, Err: errReadOnly}
}

// MkdirAll implements vfs.FS.
func (r readOnlyFS) MkdirAll(dir string, _ fs.FileMode) error {
	return &fs.PathError{Op: "mkdir", Path: dir, Err: errReadOnly}
}

// SyncDir implements vfs.FS.
func (r readOnlyFS) SyncDir(string) error { return nil }
