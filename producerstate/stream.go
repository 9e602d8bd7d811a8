package producerstate

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/oncelog/oncelog/internal/vfs"
)

// blockSize is how much of a file is put together before it is written.
const blockSize = 256 << 10

// filePerm is what Kafka gives its files under the usual umask.
const filePerm = 0o644

// stream writes a file block by block, so that a snapshot of a million producers takes no memory of its size.
type stream struct {
	f   vfs.File
	buf []byte
	pos int64          // where buf goes
	sum func(p []byte) // sees all bytes in order
	err error
}

// room returns the buffer for at most n more bytes to be appended and given back with done.
func (s *stream) room(n int) []byte {
	if len(s.buf)+n > cap(s.buf) {
		s.flush()
	}
	return s.buf
}

func (s *stream) done(buf []byte) { s.buf = buf }

func (s *stream) flush() {
	if s.err != nil || len(s.buf) == 0 {
		s.buf = s.buf[:0]
		return
	}
	s.sum(s.buf)
	if s.f != nil {
		_, s.err = s.f.WriteAt(s.buf, s.pos)
	}
	s.pos += int64(len(s.buf))
	s.buf = s.buf[:0]
}

// replaceFile writes a file under a temporary name, syncs it, and renames it to its own. The directory is not synced: the
// caller does that. When it fails before the rename, what was there under the name is untouched.
func replaceFile(fsys vfs.FS, name string, write func(f vfs.File) error) error {
	temp := name + vfs.TempSuffix
	err := writeTemp(fsys, temp, write)
	if err == nil {
		err = fsys.Rename(temp, name)
	}
	if err != nil {
		if rm := fsys.Remove(temp); rm != nil && !errors.Is(rm, fs.ErrNotExist) {
			err = errors.Join(err, rm)
		}
	}
	return err
}

func writeTemp(fsys vfs.FS, temp string, write func(f vfs.File) error) error {
	const flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	f, err := fsys.OpenFile(temp, flags, filePerm)
	if errors.Is(err, fs.ErrExist) { // left by a crash
		if err := fsys.Remove(temp); err != nil {
			return err
		}
		f, err = fsys.OpenFile(temp, flags, filePerm)
	}
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// readAll reads a file. It allocates what the file's size asks for and no more.
func readAll(fsys vfs.FS, name string) ([]byte, error) {
	return vfs.ReadFile(fsys, name, maxFileBytes)
}

// maxFileBytes is the largest file that is read, enough for 400 million producers.
const maxFileBytes = 1 << 36

// removeFiles removes files, of which some may be gone already.
func removeFiles(fsys vfs.FS, dir string, names []string) error {
	var errs []error
	for _, n := range names {
		if err := fsys.Remove(filepath.Join(dir, n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
