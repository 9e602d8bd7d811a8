package recovery

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/segment"
)

const copyStep = 1 << 20

// keepCopy copies the bytes [from, to) of a segment's log file into a file of its own in the directory and makes that
// durable. Zeros at the end take no space in the copy. It returns the name. A disk too full for the copy is an error, and leaves nothing behind: nothing is cut that was
// not kept.
func keepCopy(fsys vfs.FS, dir string, s *segment.Segment, from, to int64) (name string, err error) {
	end, err := lastNonZero(s, from, to)
	if err != nil {
		return "", err
	}
	f, name, err := createCut(fsys, dir, s.BaseOffset(), from)
	if err != nil {
		return "", err
	}
	src, err := s.File()
	if err == nil {
		err = copyRange(f, src, from, end)
	}
	if err == nil {
		err = f.Truncate(to - from)
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = fsys.SyncDir(dir)
	}
	if err != nil {
		return "", fmt.Errorf("recovery: keep a copy of %d bytes of %s before cutting: %w", to-from, s.Path(),
			errors.Join(err, fsys.Remove(filepath.Join(dir, name))))
	}
	return name, nil
}

// createCut makes a new file; earlier cuts at the same place keep theirs.
func createCut(fsys vfs.FS, dir string, base, position int64) (vfs.File, string, error) {
	for n := int64(0); ; n++ {
		name := segment.Name{Kind: segment.KindCut, Offset: base, Position: position, Number: n}.String()
		f, err := fsys.OpenFile(filepath.Join(dir, name), vfs.O_RDWR|vfs.O_CREATE|vfs.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, "", fmt.Errorf("recovery: keep a copy before cutting: %w", err)
		}
		return f, name, nil
	}
}

func copyRange(dst io.WriterAt, src io.ReaderAt, from, to int64) error {
	buf := make([]byte, min(copyStep, to-from))
	for pos := from; pos < to; {
		p := buf[:min(int64(len(buf)), to-pos)]
		if n, err := src.ReadAt(p, pos); err != nil && !(errors.Is(err, io.EOF) && n == len(p)) {
			return err
		}
		if _, err := dst.WriteAt(p, pos-from); err != nil {
			return err
		}
		pos += int64(len(p))
	}
	return nil
}

// lastNonZero returns the end of [from, to) without the zeros at its end.
func lastNonZero(s *segment.Segment, from, to int64) (int64, error) {
	f, err := s.File()
	if err != nil {
		return 0, fmt.Errorf("recovery: %w", err)
	}
	buf := make([]byte, max(0, min(copyStep, to-from)))
	for to > from {
		p := buf[:min(int64(len(buf)), to-from)]
		if n, err := f.ReadAt(p, to-int64(len(p))); err != nil && !(errors.Is(err, io.EOF) && n == len(p)) {
			return 0, fmt.Errorf("recovery: %w", err)
		}
		for i := len(p) - 1; i >= 0; i-- {
			if p[i] != 0 {
				return to - int64(len(p)) + int64(i) + 1, nil
			}
		}
		to -= int64(len(p))
	}
	return from, nil
}
