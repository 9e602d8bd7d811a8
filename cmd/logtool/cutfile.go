package main

import (
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/recovery"
	"github.com/oncelog/oncelog/segment"
	"github.com/oncelog/oncelog/wal"
)

// cutFile tells whether a target is a file of bytes that a recovery cut off.
func (t *target) cutFile() bool {
	return t.kind == singleFile && segment.Parse(filepath.Base(t.path)).Kind == segment.KindCut
}

// asPartition shows a file of bytes that a recovery cut off as a partition directory of its path, with nothing in it but a log
// file of these bytes: what can read the one can read the other. Positions are those in the file.
func (a *app) asPartition(t *target) *app {
	b := *a
	n := segment.Parse(filepath.Base(t.path))
	b.fsys = cutFS{a.fsys, t.path, segment.FileName(segment.KindLog, n.Offset)}
	return &b
}

// cutFS is a file system in which a file of cut bytes is a directory.
type cutFS struct {
	vfs.FS
	path string
	name string // of the one file in it
}

// inside tells whether a name leads into the directory, and whether to its file.
func (c cutFS) inside(name string) (inside, file bool) {
	return filepath.Dir(name) == c.path, name == filepath.Join(c.path, c.name)
}

// OpenFile implements vfs.FS.
func (c cutFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	switch inside, file := c.inside(name); {
	case file:
		return c.FS.OpenFile(c.path, flag, perm)
	case inside:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return c.FS.OpenFile(name, flag, perm)
}

// Stat implements vfs.FS.
func (c cutFS) Stat(name string) (vfs.Info, error) {
	inside, file := c.inside(name)
	if inside && !file {
		return vfs.Info{}, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	}
	if !file && name != c.path {
		return c.FS.Stat(name)
	}
	info, err := c.FS.Stat(c.path)
	if file {
		info.Name = c.name
	} else {
		info.Kind, info.Size = vfs.Directory, 0
	}
	return info, err
}

// ReadDir implements vfs.FS.
func (c cutFS) ReadDir(dir string) ([]vfs.DirEntry, error) {
	if dir != c.path {
		return c.FS.ReadDir(dir)
	}
	return []vfs.DirEntry{{Name: c.name, Kind: vfs.Regular}}, nil
}

// BootID implements vfs.FS.
func (c cutFS) BootID(dir string) (string, error) {
	if dir == c.path {
		dir = filepath.Dir(dir)
	}
	return c.FS.BootID(dir)
}

// reportRest says which bytes at the end of a file of cut bytes, or of all of it, are no whole batch.
func (a *app) reportRest(l *wal.Log) error {
	var err error
	for _, f := range l.RecoveryReport().Findings {
		if f.Decision != recovery.CutTail && f.Decision != recovery.TrimZeros {
			continue
		}
		what := "no whole batch"
		if f.Decision == recovery.TrimZeros {
			what = "zeros"
		}
		fmt.Fprintf(a.err, "logtool: %s: bytes %d to %d are %s\n", quote(filepath.Base(l.Dir())), f.Position, f.Position+f.Bytes-1, what)
		err = errProblems
	}
	return err
}
