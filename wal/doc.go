// Package wal is a log of records on disk: one partition of Apache Kafka, as a library.
//
// # Model
//
// A log is a directory. Records are appended at its end, get ascending offsets from 0 on, and are stored in batches; a
// batch is there as a whole or not at all. The batches lie in segments, files of up to Options.SegmentBytes that are
// named after their first offset, each with indexes that are derived from it. One process at a time writes; any number
// read.
//
// Everything below LogEnd is stored. Readers of committed records stop at LastStable, which is the same offset unless a
// transaction is open or, in a replica, the high watermark lies below. The records of aborted transactions and the
// log's own control records take offsets but are not yielded, so a reader must not expect offsets without gaps.
//
// # Two floors
//
// The simple floor needs no Kafka knowledge:
//
//	Open, Append, AppendAsync     store records
//	Records, Tail                 read them to the end, and wait for more
//	ReadRecords, Get, Wait        read some, or one, without waiting; wait for one
//	Cursor                        go on reading where an earlier run had committed
//	Typed                         keys and values of Go types
//	Producer                      store records under a name, each of them once
//	Producer.Begin                and several of them as a whole or not at all
//
// The broker's floor takes ready batches (package record builds and reads them) and is what a server of Kafka's
// protocol, or a test double of one, is made of: AppendAsLeader, AppendAsFollower, AppendEndTxnMarker,
// VerifyTransaction, Read at an Isolation, Wait, UpdateHighWatermark, ListOffsets, OffsetForTimestamp, OffsetForLeaderEpoch,
// Producers, ErrorCode. Both floors may be used on one log at the same time. On the simple floor segments roll by the
// clock of the appends instead of the records' times, so that old or future times do not make a segment each.
//
// # Durability
//
// What an acknowledged append is, by Options.Sync:
//
//	mode          acknowledged means           after kill -9   after a power cut
//	SyncCommit    on disk; appends that come   there           there
//	(default)     together share a sync
//	SyncInterval  in the page cache; synced    there           there up to the last sync; what came after
//	              every SyncEvery, SyncBytes                   it may be cut
//	SyncNone      in the page cache; synced    there           there up to the last sync; what came after
//	              at rolls, checkpoints, Close                 it may be cut
//
// In no mode is there a hole in the middle of what is left, nor a record that a producer stored twice. In SyncCommit
// one notion, the durable end, decides what is acknowledged, what readers see and what Producer.NextSequence tells, so
// nobody can act on a record that a power cut takes back; the answer to a duplicate waits for it too. Flush makes
// everything durable in every mode.
//
// An append that returns an error stored nothing, except with ErrFailed: the first write or sync of the log's own data
// that fails ends the log, and nothing is tried again, since a system may drop what it could not write and report success
// the next time. Close it and open it again; recovery finds out what is there. A full disk is an error of that append
// alone. A file that is only derived (index, snapshot, hint) and cannot be written is a warning and a slower next open.
//
// # Deleting
//
// What goes from the beginning of the log, by what a program asks for:
//
//	records before an offset      IncrementLogStartOffset(offset), at once and exact
//	all but the newest n          IncrementLogStartOffset(LogEnd - n), or RetentionCount by whole segments
//	what is too much, or too old  RetentionBytes, RetentionAge, by whole segments
//	the files of all of these     DeleteOldSegments(now), called now and then; RemoveDiscarded after FileDeleteDelay
//	what stays, and why           ExplainRetention; Pin, and CursorOptions.Pin, hold records back
//
// IncrementLogStartOffset makes what lies before an offset unreadable, durably. DeleteOldSegments removes the segments that
// are wholly before it, and those that Options.RetentionBytes, RetentionCount and RetentionAge do not keep; what an open transaction or a
// Pin needs stays, and ExplainRetention says why. Ages go by the clock only as far as the log supports it.
// TruncateTo cuts the end, TruncateFullyAndStartAt everything. What was deleted does not come back, whenever the process or
// the power ends.
//
// # Compaction
//
// With Options.CleanupPolicy CleanupCompact each record has a key, and Compact removes the records that a later one with
// their key has replaced. A record without a value deletes its key, and goes itself when readers have had
// Options.DeleteRetention to see it. Offsets stay as they are. Readers of any kind find the latest value of each key; what was
// removed does not come back, not even where a truncation takes away what had replaced it. Nothing compacts by itself: a
// program calls Compact now and then, as it calls DeleteOldSegments and RemoveDiscarded. Appends and reads go on meanwhile,
// and a crash at any moment leaves, for each piece of the log, the old segments or the new one. The rules are in package
// cleaner, and the result is that of Kafka's own cleaner, but for one thing: the segment with the last batch of the log stays
// as it is, and the record of a named producer that may carry its position (AppendWithPosition) does.
//
// # Cursors
//
// Log.Cursor keeps the place of a named reader in the directory. A commit is on disk when it returns, in every mode, and a
// crash takes a cursor back to a commit that was asked for, never forward. Where the log was cut below it, by a truncation
// or by a power cut in an unsynced mode, it is taken back to the end of the log before anything is appended there, and
// says so. With CursorOptions.Pin retention waits for the reader, also after a restart.
//
// # Backup
//
// Log.Backup copies the log as it is at one moment into another directory, while everything goes on, and later only what is
// new. The copy is a log of its own, closed in order. The file oncelog.backup in it says what has been copied, with a
// checksum; as long as there is an oncelog.unfinished.log no open, and no broker, takes half a copy for a log. The log
// start is in our files only: a broker begins with the first record of the first segment.
//
// # Reading beside a writer
//
// A log that is opened with Options.ReadOnly takes no lock and changes nothing. It sees the log as it was at the open and
// then, by Tail, Wait and Refresh, what a writer in another process makes of it. From a writer in SyncCommit it gets what is
// on disk: an acknowledged record at once, in rare cases a second later. From the other modes it gets whole batches, which
// a power cut may take back. After a crash it sees what the next writer will find, but for batches that were not
// acknowledged. A broker tells nobody when it truncates or compacts: beside one, open anew after it did.
//
// # Recovery
//
// After Close no batch is read at the next open, and a segment that is gone is noticed; Options.CheckSegments looks at the
// ends of all. Of the indexes those of aborted transactions are read, which have no checksum: the state file says what they
// hold, and where they do not they are made anew from the log. After a crash what lies behind the last checkpoint is read, at
// most about Options.CheckpointBytes. An interrupted write at the end is cut and kept in a file. Bytes that had been promised
// and are missing or different make Open for writing fail with ErrRefused and change nothing; an open with ReadOnly works,
// and reads around them (UnreadableError), also around the records of a transaction whose end may have been among them.
// Options.DamagePolicy makes that stricter, or cuts at damage as Kafka does, with the bytes kept.
// RecoveryReport tells what was found, what was cut, where it is kept, and up to where appends are known to have been
// acknowledged as durable. The rules are in package recovery.
//
// What stays undetected: damage that keeps a CRC-32C; and after a power cut, damage that hit only bytes above the newest
// synced state, at most a second of appends, and looks like one torn write is cut, kept and reported, but not refused. In
// SyncInterval and SyncNone that is so for anything above the durable end. A sync that reports success is believed, and a
// written sector is taken not to change its neighbours.
//
// # Producers
//
// A batch may carry a producer id, an epoch and a sequence number, as Kafka's idempotent producers send them. The last
// five batches of each producer are remembered, across restarts too: one that is sent again is answered with the offsets
// that it has, one that does not continue the sequence is refused. See package producerstate.
//
// A named producer (Log.Producer) rests on that: its id is made of the name (NamedProducerID), and the count of its
// records, of 46 bits, is the epoch and the sequence. So its memory lies in the batches themselves and survives what they
// survive, and a Kafka broker that takes the directory over goes on to deduplicate it. What the batches do not
// say, the name and the count of its first record, is kept in the side files; if those are lost the log is searched.
//
// # Transactions
//
// Producer.Begin starts a transaction of a name over this log: what is appended in it counts with Commit, all at once, and
// otherwise never. It survives a crash as that: one without its commit is aborted by the next Open, as the lock says that its
// writer is gone. Readers of committed records wait at the first open transaction; HeldBack says which it is and how far they
// are held back, OpenTransactions lists them, and AbortTransaction ends one that nobody else will end.
//
// # Acknowledgements
//
// What an append waits for is Options.Sync's, or for one append or one named producer an Ack: nothing, the memory of the system, or
// the disk. With it go the three ways to deliver: at most once (AckNone), at least once (Append, and again after an error), and
// exactly once (a named Producer, and again after an error or a restart, for what has no answer). Settings that would defeat a
// name's promise are an error.
//
// # Files
//
// As Kafka has them, byte for byte: <offset>.log, .index, .timeindex, .txnindex, .snapshot, leader-epoch-checkpoint. See
// packages record, index, segment and producerstate for the formats. Of our own, under names that Kafka ignores:
//
//	oncelog.lock             held while a writer has the directory open
//	oncelog.state            durable end, recovery point, log start and more (package recovery)
//	oncelog.producers-*      what a snapshot has no room for (package producerstate)
//	oncelog.cursors          places of named readers
//	oncelog.backup           what was copied into a backup; oncelog.unfinished.log while it is being made
//	oncelog.cut-*            bytes that a recovery cut off; never removed by this library
//
// Deleting the state or producer files costs time at the next open, the batches of each producer but the last one where
// a snapshot holds no more, the log start if it was moved, and the first count of names whose batches are gone. In a
// Kafka log directory the parent's checkpoints and lock are respected and kept right.
//
// # Compatibility
//
// What this package writes a Kafka broker of version 2.8 to 4.4 opens, and the other way round, whatever happened in
// between. Formats of our own carry a version; one that is not known is ErrUnsupportedVersion and changes nothing. A
// later version of this package reads what an earlier one wrote.
//
// The rules are those of Kafka 4.4, except that on purpose
//
//   - five batches of each producer are remembered across a restart, where Kafka remembers one;
//   - damage inside the log is refused, where Kafka truncates there and deletes what follows;
//   - producers expire by the log's own time: a clock that jumps at a restart expires nobody, nor one that runs on while
//     nothing is appended;
//   - segments grow old by the log's own time too, and those that an open transaction needs are not deleted;
//   - a clean start without snapshots replays the log, where Kafka takes it for an upgrade and forgets all producers;
//   - snapshots are replaced atomically, where Kafka writes them in place;
//   - epochs and sequences never move backwards on replay;
//   - a high watermark or last stable offset inside a batch stays there, where Kafka 4.4 lowers it to the batch's start;
//   - snapshots of more than 1,000,000 producers are read back, where Kafka 4.4 calls them corrupt;
//   - a closed log is always trimmed to its content and flushed.
//
// Options.Compat turns these off as a set and keeps no file of ours but the lock: then the log forgets, truncates and
// answers as Kafka 4.4 does.
//
// # Concurrency
//
// All methods of Log, Producer, Transaction, Pin and Pending may be called by any number of goroutines at once. Appends are ordered
// by one lock; readers take none and see one consistent state. Iterators hold nothing while the loop body runs, so
// that it may append, roll and close. A log that is open for writing has one goroutine, and with AppendAsync in
// SyncCommit a second; Close ends both.
//
// Byte slices given to Append and its kin are read during the call only. Batches given to AppendAsLeader and
// AppendAsFollower belong to the log during the call; after it they are as before. What Records and Tail yield belongs
// to the caller.
//
// # Errors
//
// Errors are sentinels for errors.Is, and types with the numbers for errors.As. ErrorCode maps them to those of Kafka's
// protocol. That a batch was stored before is not an error.
package wal
