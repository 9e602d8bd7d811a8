// Package vfs is the file system as the log sees it: an interface small enough to be simulated, the operating system's
// implementation of it, and the two helpers that every small file of the log goes through.
//
// # Model
//
// A file has bytes that can be read (the page cache) and bytes that are durable (the device), and a directory has names
// that can be seen and names that are durable. A write, a store through a mapping, a creation, a rename and a removal
// change the first kind only. SyncData, Sync and Flush carry a file's bytes over, SyncDir carries a directory's names
// over, and nothing else does: a file that was synced while its name was not may be gone after a power cut. After a
// kill of the process everything that could be seen is still there.
//
// An error from a sync is final. Linux marks the pages that it could not write as clean and reports the error once, so
// that the next sync succeeds and a read shows bytes that no device holds. A caller stops writing at the first error,
// and a recovery asks for the truth with DropCache before it believes what it reads.
//
// # Platforms
//
// Linux is the first platform: fallocate, fdatasync, posix_fadvise, and open file description locks, which exclude Java's
// FileChannel.tryLock as well as a second open in the same process. What is weaker elsewhere:
//
//	                 Linux                other unix               windows
//	Allocate         fallocate            zeros are written        zeros are written
//	SyncData         fdatasync            fsync (F_FULLFSYNC)      FlushFileBuffers
//	SyncDir          fsync                fsync                    does nothing, NTFS orders its own journal
//	DropCache        posix_fadvise        errors.ErrUnsupported    errors.ErrUnsupported
//	Lock             OFD lock             POSIX lock and a table   LockFileEx, which also keeps others from reading
//	                                      of this process          the locked bytes
//	BootID           boot id, mount id    unknown                  unknown
//	OpenFile         O_NOFOLLOW           O_NOFOLLOW               the name is checked before and after the open
//
// On "other unix" a POSIX lock is lost when the process closes any descriptor of the locked file: a lock file must not
// be opened by other means than Lock. Where fallocate is missing, and on file systems that copy on write, a reservation
// is a promise that the file system may not keep.
//
// # Concurrency
//
// Everything in an FS may be called from several goroutines. On one File, ReadAt and WriteAt of ranges that do not
// overlap may run at once, and so may a sync beside them. Truncate and Allocate must not run beside a WriteAt that
// extends the file: an Allocate that fails cuts the file back to the size that it had. Flush and Close of a Mapping
// exclude each other.
//
// # Errors
//
// Every error carries its path: it is a *fs.PathError, or a *os.LinkError of a rename. A full disk or quota matches
// ErrNoSpace, a read-only mount ErrReadOnly, and both still match the system's own error. io.EOF of ReadAt is bare.
package vfs
