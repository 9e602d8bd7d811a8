package checkpoint

import (
	"bytes"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/oncelog/oncelog/internal/vfs"
)

// MaxSize is the largest file that is read, in bytes: about a million partitions with long names. A larger one is an
// error before it is read.
const MaxSize int64 = 64 << 20

// perm is what Kafka's files have under the usual umask.
const perm fs.FileMode = 0o644

// Format describes the entries of one kind of checkpoint file. All its fields are needed.
type Format[T any] struct {
	// Version is the only version that is read, and the one that is written.
	Version int32

	// Fields is the number of fields of a line.
	Fields int

	// Parse turns the fields of a line, Fields of them, into an entry. The text of its error becomes the Reason of a
	// CorruptError. The strings are its own.
	Parse func(fields []string) (T, error)

	// Append appends the line of an entry without its line end.
	Append func(dst []byte, entry T) []byte
}

// Decode reads the content p of a file; path serves the error text only. The result is empty for an empty file. Memory
// grows with the lines that are there, not with the number that the file claims.
func (f Format[T]) Decode(path string, p []byte) ([]T, error) {
	r := lines{path: path, rest: p}
	if len(p) == 0 {
		return nil, nil
	}
	version, err := r.number("version")
	if err != nil {
		return nil, err
	}
	if version != int64(f.Version) {
		return nil, fmt.Errorf("%w: %s: version %d, this program reads %d; a newer Kafka may have written it",
			ErrUnsupportedVersion, path, version, f.Version)
	}
	if len(r.rest) == 0 {
		return nil, nil
	}
	count, err := r.number("number of entries")
	if err != nil {
		return nil, err
	}
	if have := bytes.Count(r.rest, []byte{'\n'}); int64(have) != count && !r.cut() {
		return nil, r.corrupt("%d entries announced, %d lines follow", count, have)
	}
	var entries []T
	for len(r.rest) > 0 {
		line, err := r.next()
		if err != nil {
			return nil, err
		}
		fields, err := r.fields(line, f.Fields)
		if err != nil {
			return nil, err
		}
		entry, err := f.Parse(fields)
		if err != nil {
			return nil, r.corrupt("%v", err)
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// Encode returns the content of a file with the entries in the given order.
func (f Format[T]) Encode(entries []T) []byte {
	p := strconv.AppendInt(nil, int64(f.Version), 10)
	p = append(p, '\n')
	p = strconv.AppendInt(p, int64(len(entries)), 10)
	p = append(p, '\n')
	for _, e := range entries {
		p = f.Append(p, e)
		p = append(p, '\n')
	}
	return p
}

// Read reads and decodes a file. A missing one is fs.ErrNotExist.
func (f Format[T]) Read(fsys vfs.FS, path string) ([]T, error) {
	p, err := vfs.ReadFile(fsys, path, MaxSize)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: read: %w", err)
	}
	return f.Decode(path, p)
}

// Write replaces a file atomically and makes it durable before it returns.
func (f Format[T]) Write(fsys vfs.FS, path string, entries []T) error {
	if err := vfs.WriteFileAtomic(fsys, path, perm, f.Encode(entries)); err != nil {
		return fmt.Errorf("checkpoint: replace: %w", err)
	}
	return nil
}
