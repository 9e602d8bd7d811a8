package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
)

// TempSuffix is what WriteFileAtomic appends to a name until the file is complete.
const TempSuffix = ".tmp"

// ErrTooLarge means that a file is larger than the limit that the caller set.
var ErrTooLarge = errors.New("vfs: file is larger than the limit")

// WriteFileAtomic replaces name by a file of the given content, or leaves it alone. The content goes to name+TempSuffix,
// is synced, renamed over name, and the directory is synced, so that after a power cut the name leads to the old
// content or to the whole new one. When it returns nil, the new one is durable.
//
// After an error from before the rename, or from the rename, the old file is as it was and the temporary one removed;
// a temporary file that a crash left is replaced. After an error of the directory sync the new content is seen and may
// be gone after a power cut. Two calls for the same name must not run at once.
func WriteFileAtomic(fsys FS, name string, perm fs.FileMode, data []byte) error {
	temp := name + TempSuffix
	err := writeTemp(fsys, temp, perm, data)
	if err == nil {
		err = fsys.Rename(temp, name)
	}
	if err != nil {
		// The rename may have happened and been reported as an error: then there is no temporary file to remove.
		if removeErr := fsys.Remove(temp); removeErr != nil && !errors.Is(removeErr, fs.ErrNotExist) {
			err = errors.Join(err, removeErr)
		}
		return err
	}
	return fsys.SyncDir(filepath.Dir(name))
}

func writeTemp(fsys FS, temp string, perm fs.FileMode, data []byte) error {
	// O_EXCL, so that the file has the wanted permissions and is nobody's link: what an earlier crash left goes first.
	const flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	f, err := fsys.OpenFile(temp, flags, perm)
	if errors.Is(err, fs.ErrExist) {
		if err := fsys.Remove(temp); err != nil {
			return err
		}
		f, err = fsys.OpenFile(temp, flags, perm)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// ReadFile returns the content of a regular file of at most limit bytes; a larger one is ErrTooLarge and is not read.
// It never allocates more than the file's size and one byte.
func ReadFile(fsys FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	data, err := readAll(f, limit)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}

func readAll(f File, limit int64) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if limit = min(limit, math.MaxInt-1); info.Size > limit {
		return nil, &fs.PathError{
			Op: "read", Path: f.Name(), Err: fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, info.Size, limit),
		}
	}
	// One byte more than the size finds the end in a single read, and a file that grew meanwhile.
	buf := make([]byte, info.Size+1)
	n, err := f.ReadAt(buf, 0)
	if err == io.EOF {
		return buf[:n], nil
	}
	if err == nil {
		err = &fs.PathError{Op: "read", Path: f.Name(), Err: errors.New("vfs: file grew while it was read")}
	}
	return nil, err
}
