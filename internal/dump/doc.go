// Package dump reads the files of a partition directory as they are, without opening a log: every batch, record, index
// entry and snapshot entry, and the first thing in each file that cannot be read on. It changes nothing and takes no
// lock, so that it works beside a running writer and on a directory that nothing else opens.
//
// # Model
//
// List sorts the names of a directory, LogReader walks a .log file batch by batch, Table and TxnTable the indexes, Snapshot
// a producer snapshot. WriteJSON puts all of it into one document.
//
// A file is as long as it was when it was opened: what a writer appends meanwhile is not there. A batch that is being
// written at that moment looks like an incomplete one at the end.
//
// # The document
//
// WriteJSON describes a partition directory as Apache Kafka's own classes read it, so that the documents of a broker's
// directory and of ours can be compared word for word, the reasons of damage included. Its fields:
//
//	dir                name of the directory
//	segments           baseOffset, files (kind: size), batches, validBytes, index, timeIndex, txnIndex, in order of offsets;
//	                   invalidBatch and damage where the walk of the .log stopped
//	  batches          every field of the header; records; for magic 0 and 1 attributes, and inner, the entries of a wrapper:
//	                   [offset, size, magic, attributes, timestamp, crc, whether it is right]
//	  records          offset, timestamp, sequence, key, value, headers; control for a control record
//	  index            entries [offset, position]; slots, zeroSlotsAtEnd (reserved space, not listed), trailingBytes
//	  timeIndex        entries [timestamp, offset]
//	  txnIndex         entries; trailingBytes
//	snapshots          file, size, version, crc, count, entries
//	leaderEpochs       null without a file
//	partitionMetadata  the text of the file, null without one
//	otherFiles         names of all other files
//	logEndOffset       the offset behind the last good batch of any segment, −1 without a .log
//	damage             the first thing that is unreadable; absent if there is none
//
// Null stands for what a format has no field for. Bytes are base64, or {size, sha256} above 4096 bytes.
//
// # Limits
//
// Memory does not grow with the files. A batch above Options.MaxBatchBytes is verified in pieces and its records are left
// out, which recordsOmitted says; so does a record that decompresses to more than Options.MaxRecordBytes. Neither occurs in
// documents of Kafka's classes. A file of a segment above 2 GiB was written by nobody: its end is not looked at.
//
// # Concurrency
//
// Functions keep no state. A reader serves one goroutine.
//
// # Errors
//
// What is wrong with the bytes is a Damage, never an error. Errors are those of the file system, of the writer, and of a
// context that has ended.
package dump
