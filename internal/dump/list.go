package dump

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/segment"
)

// Kinds are the files of a segment in the order of their names, as a document names them.
var Kinds = [...]segment.Kind{segment.KindOffsetIndex, segment.KindLog, segment.KindTimeIndex, segment.KindTxnIndex}

// Dir is what a partition directory holds.
type Dir struct {
	Path      string
	Segments  []Files // in order of base offsets
	Snapshots []File  // in order of offsets
	Other     []File  // in order of names
}

// Files are those of one segment.
type Files struct {
	Base int64
	Of   map[segment.Kind]File
}

// File is a name in the directory.
type File struct {
	Name string
	Kind vfs.Kind
}

// LastWritten returns the base offset of the last segment whose log file has bytes, or −1. Only a writer's segment may end in
// zeros, and while it begins the next one that is the last but one.
func (d *Dir) LastWritten(fsys vfs.FS) (int64, error) {
	for i := len(d.Segments) - 1; i >= 0; i-- {
		f, ok := d.Segments[i].Of[segment.KindLog]
		if !ok {
			continue
		}
		info, err := fsys.Stat(filepath.Join(d.Path, f.Name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return -1, fmt.Errorf("dump: %w", err)
		}
		if info.Size > 0 {
			return d.Segments[i].Base, nil
		}
	}
	return -1, nil
}

// List reads the directory. It opens no file.
func List(fsys vfs.FS, dir string) (*Dir, error) {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("dump: %w", err)
	}
	d := &Dir{Path: dir}
	bases := map[int64]int{}
	for _, e := range entries {
		f := File{Name: e.Name, Kind: e.Kind}
		n := segment.Parse(e.Name)
		switch {
		case n.Suffix == "" && slices.Contains(Kinds[:], n.Kind):
			i, ok := bases[n.Offset]
			if !ok {
				i = len(d.Segments)
				bases[n.Offset] = i
				d.Segments = append(d.Segments, Files{Base: n.Offset, Of: map[segment.Kind]File{}})
			}
			d.Segments[i].Of[n.Kind] = f
		case n.Suffix == "" && n.Kind == segment.KindSnapshot:
			d.Snapshots = append(d.Snapshots, f)
		default:
			d.Other = append(d.Other, f)
		}
	}
	slices.SortFunc(d.Other, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return d, nil
}

// has tells whether there is another file of that name.
func (d *Dir) has(name string) bool {
	return slices.ContainsFunc(d.Other, func(f File) bool { return f.Name == name && f.Kind == vfs.Regular })
}

// join is the path of a file of the directory.
func (d *Dir) join(f File) string { return filepath.Join(d.Path, f.Name) }

// Damage is where a file cannot be read on.
type Damage struct {
	File     string // name in the directory
	Position int64
	Reason   string
}

// notRegular is what is wrong with a name that leads to something else than a file.
func notRegular(f File) *Damage {
	return &Damage{File: f.Name, Reason: "not a regular file"}
}
