package vfs

import (
	"errors"
	"io"
	"io/fs"
	"time"
)

// FS is the part of a file system that the log needs. Every method may be called from several goroutines at once.
// Names are paths as the operating system writes them; nothing is created implicitly.
//
// Durability: a file's bytes are durable after SyncData or Sync of the file, its name after SyncDir of its directory.
// A rename, a creation or a removal that was not followed by SyncDir may be undone by a power cut, each on its own.
type FS interface {
	// OpenFile opens a regular file with the given os.O_* flags. The final path element is not followed if it is a
	// symbolic link, and opening never blocks: a FIFO, a device, a directory or a link is ErrNotRegular.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)

	// Stat describes name itself, not what a symbolic link points to.
	Stat(name string) (Info, error)

	// ReadDir lists a directory in ascending order of names, without a stat of each entry.
	ReadDir(dir string) ([]DirEntry, error)

	// Remove removes a file or an empty directory.
	Remove(name string) error

	// Rename replaces newname if it exists. It is atomic, and not durable before SyncDir.
	Rename(oldname, newname string) error

	// SetModTime sets the time at which a file was last modified. It is a hint: nothing makes it durable by itself.
	SetModTime(name string, t time.Time) error

	// MkdirAll creates dir and its missing parents.
	MkdirAll(dir string, perm fs.FileMode) error

	// SyncDir makes the entries of dir durable.
	SyncDir(dir string) error

	// Lock takes the bytes [off, off+n) of the named file, creating the file if it is missing. It does not wait:
	// ErrLocked says that another open file description holds a conflicting lock. The lock belongs to the returned
	// closer, not to the process, so that a second Lock in the same process conflicts too. After locking it checks
	// that the name still leads to the locked file and starts again if not. Close never removes the file.
	Lock(name string, off, n int64, exclusive bool) (io.Closer, error)

	// BootID names the life of the page cache behind dir: the boot of the system and the mount of the file system.
	// While it is the same, bytes that were written are still there, synced or not. An empty string means unknown
	// and equals nothing.
	BootID(dir string) (string, error)
}

// File is an open regular file. ReadAt and WriteAt may run concurrently on ranges that do not overlap.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer

	// Name is the path that the file was opened with.
	Name() string

	// Stat describes the open file.
	Stat() (Info, error)

	// Truncate sets the size. A larger size leaves a hole that reads as zeros and reserves nothing.
	Truncate(size int64) error

	// Allocate reserves space up to size and extends the file to it if it is shorter; it never shrinks. After it
	// succeeded, neither WriteAt nor a store through a mapping below size fails for want of space, as far as the file
	// system can promise that. On a full disk it gives back what it took and returns an error that matches ErrNoSpace.
	Allocate(size int64) error

	// SyncData makes the bytes, and what is needed to find them, durable. After an error the unsynced bytes may be
	// gone although they can still be read and although a later sync succeeds: the caller must not retry.
	SyncData() error

	// Sync is SyncData together with all metadata, among it a size that was cut.
	Sync() error

	// DropCache asks the system to forget cached clean pages of [off, off+n); n = 0 means to the end. What is read
	// afterwards comes from the device. Pages below the range may go too. It is a request: an error only says that it
	// could not be made, and pages across the end of a range may stay.
	DropCache(off, n int64) error

	// Map maps the first length bytes; length must be positive and at most the file's size.
	Map(length int, writable bool) (Mapping, error)
}

// Mapping is a shared mapping of the start of a file. Stores are visible to ReadAt at once and durable after Flush
// or after a sync of the file. A mapping must be closed before its file is cut below the mapping's length.
type Mapping interface {
	// Bytes is the mapped memory. It must not be used after Close, and not be stored to unless mapped writable.
	Bytes() []byte

	// Flush makes stores durable, as File.SyncData does, and with the same rule about errors.
	Flush() error

	// Close unmaps. Stores are not lost by it, and not made durable.
	Close() error
}

// Kind says what a directory entry is.
type Kind uint8

// The kinds of a directory entry.
const (
	Regular Kind = iota
	Directory
	Symlink
	Other // FIFO, socket, device
)

// DirEntry is one name in a directory.
type DirEntry struct {
	Name string
	Kind Kind
}

// Info describes a file.
type Info struct {
	Name    string // last path element
	Kind    Kind
	Size    int64 // bytes; 0 for anything but a regular file
	ModTime time.Time
}

// Errors that callers test for with errors.Is. A missing file is fs.ErrNotExist, an existing one fs.ErrExist,
// missing rights fs.ErrPermission.
var (
	// ErrLocked means that somebody else holds a conflicting lock.
	ErrLocked = errors.New("vfs: locked by another process or another open of this one")

	// ErrNotRegular means that the name leads to something else than a regular file.
	ErrNotRegular = errors.New("vfs: not a regular file")

	// ErrNoSpace means that the disk, or the quota, is full.
	ErrNoSpace = errors.New("vfs: no space left")

	// ErrReadOnly means that the file system is mounted read-only.
	ErrReadOnly = errors.New("vfs: read-only file system")
)
