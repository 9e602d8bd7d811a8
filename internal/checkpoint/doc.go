// Package checkpoint reads and writes the small text files in which Apache Kafka keeps numbers about its logs.
//
// In the directory that holds the partitions stand four files of one kind, one line a partition: the recovery points,
// the log start offsets, the high watermarks and the cleaner's positions. In each partition stands a fifth with another
// line, the leader epochs (package leaderepoch). All five share one grammar and one way to be replaced.
//
// # Format
//
//	line  content
//	1     version, decimal; 0 is the only one so far
//	2     number of lines that follow, decimal
//	3…    one entry a line, its fields separated by white space
//
// Text is ASCII, a line ends with "\n" ("\r\n" is read too, as a broker on Windows writes it). One space separates
// fields when writing; any run of spaces, tabs, vertical tabs and form feeds does when reading. A file without a byte, or with nothing
// but the version, has no entries: a broker creates its files empty and fills them later.
//
// The entry of an offset checkpoint is "topic partition offset". There is no checksum. Reading is therefore as strict
// as the writer is regular, and stricter than Kafka (CheckpointFile.CheckpointReadBuffer) in five points that no broker
// writes and that damage produces: a last line without its line end, a partition named twice, a negative partition or
// offset, a byte that no topic name contains, a zero byte. What remains undetected is a digit or a letter that turned
// into another one, and a file cut to nothing or to its version line. Whoever acts on a value holds it against the log.
//
// # Replacement
//
// A file is never changed in place: the new content goes to "<name>.tmp", is synced, renamed over the old name, and the
// directory is synced (vfs.WriteFileAtomic). The sync before the rename is not optional: without it a power cut can
// leave the new name with the right length and zeros for content.
//
// # Concurrency
//
// Functions keep no state. Two changes of one file at the same time lose one of them, so that writers need a lock;
// SetOffset says which.
//
// # Errors
//
// A file that breaks the grammar is a *CorruptError, which matches ErrCorrupt. Another version is
// ErrUnsupportedVersion, and never called corrupt. A missing file is fs.ErrNotExist.
package checkpoint
