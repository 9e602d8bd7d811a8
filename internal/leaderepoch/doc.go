// Package leaderepoch keeps the leader epochs of one partition: which epoch's leader wrote from which offset on.
//
// Each time a partition gets a new leader its epoch grows, and the first offset of each epoch is remembered. Two
// replicas find out with it where their logs part ways: the one that follows asks where an epoch ended and cuts its own
// log there. A log without replicas needs it too, because a broker that opens the directory does.
//
// # Model
//
// The cache is a list of entries, (epoch, start offset), both strictly ascending. An epoch ends where the next one
// starts; the newest one ends at the log end. The rules are those of Kafka's LeaderEpochFileCache.
//
// # Format
//
// The file leader-epoch-checkpoint in the partition's directory, a text file of the grammar of package checkpoint,
// version 0, one line "epoch startOffset" an entry, ascending:
//
//	0\n
//	2\n
//	0 0\n
//	7 100\n
//
// A partition of message format 0 or 1 has no such file. An entry that is negative or not above the one before it makes
// the file corrupt; Kafka would drop the entries that contradict later ones. There is no checksum: a digit that turned
// into another one may go unnoticed. Since every batch carries its leader epoch, the file can be made again from the
// log, which is what to do with one that is corrupt, missing or in doubt.
//
// # When it is written
//
// The cache never writes by itself. The caller changes it, may look at what will be written (Encode), and decides when
// (Flush). After Assign the file must be written before the first batch of the new epoch is acknowledged. After a
// truncation it may be late: a file with too many entries is put right by the same truncations when the log is opened,
// a file with too few is not.
//
// # Concurrency
//
// Everything may be called from several goroutines. Readers load one pointer and never wait. The methods that change the
// cache exclude one another; Flush holds no lock that a reader or a changer waits for while it writes, and two of them
// run one after the other.
//
// # Errors
//
// Those of package checkpoint, and ErrReadOnly.
package leaderepoch
