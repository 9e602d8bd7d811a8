// Package vfstest simulates a file system that loses power, and injects errors into any file system.
//
// # Model
//
// Mem keeps each file in a page cache, which is what can be read, and on a device, which is what a power cut leaves. A
// write goes to the cache. A mapping is the cache itself, so that a store is seen by ReadAt at once and needs no hook:
// a sector of 512 bytes is dirty if it differs from what the kernel believes that the device holds. A sync carries the
// dirty sectors over. A directory works the same way: names that can be seen, names that are durable, and a list of
// changes between them, which SyncDir carries over.
//
// Crash returns a new file system as the next process finds it. After a kill it sees the whole cache. After a power cut
//
//   - each dirty sector is in the last synced version, in the newest one, or in one of the versions in between that the
//     write-back daemon remembered, on its own, in any order, and on request torn between two versions at any byte;
//   - the file has the synced size, the newest, or one in between, and what was never written there reads as zeros or,
//     on request, as garbage;
//   - each change of a directory has happened or not, on its own; a rename may leave both names, never none.
//
// A sync that fails, which only an injector makes, has written nothing: the dirty sectors count as clean afterwards, can
// be read, are not on the device, and later syncs succeed. DropCache shows the truth. This is what Linux does, and what
// makes a retried sync lose data. A mapped store of the very bytes that were lost is not seen as a store.
//
// The model is harsher than file systems are: the name of a synced file is lost without SyncDir, and no order between
// two unsynced writes holds. It is deterministic for a seed as long as one goroutine runs.
//
// Disk space is taken sector by sector by writes and Allocate. A store through a mapping into a hole is reported by
// SparseStores, because on a real full disk it kills the process.
//
// # Errors
//
// Inject wraps a file system and shows each operation to an Injector before and after it happens. The errors of Mem are
// those of package vfs, with the path.
package vfstest
