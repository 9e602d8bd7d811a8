// Package cleaner compacts segments of a log: it reads sealed segments and writes, beside them, segments that hold the latest
// record of each key and nothing that nobody may see any more. Its rules are those of Kafka 4.4 (LogCleaner, Cleaner,
// CleanedTransactionMetadata, MemoryRecords.filterTo), so that two logs that were compacted by the two are the same.
// It changes no file of the log; package wal puts what it wrote in the place of what it read.
//
// # Model
//
// Offsets below the first dirty one have been compacted before. A round begins with [Cleaner.Index], which reads the dirty
// part up to a bound and keeps the greatest offset of each key in a map, until all is read or the map is full: what it has
// read by then is what the round is about, and the next round begins behind it. [Cleaner.Groups] then divides all segments
// up to there into groups that fit into one segment, and [Cleaner.Clean] writes each group anew.
//
// The map has bounded memory and knows each key itself, not a digest of it: two keys with the same hash are two keys, and
// no record is lost to a collision. (Kafka keeps an MD5 of each key, and believes it.) It is bounded by bytes and takes at
// least one batch, so that every round gets on.
//
// # What stays
//
// Of the records of a batch, in this order:
//
//	behind what the round is about                  stays
//	one that the log asks to keep                   stays
//	of an aborted transaction                       goes
//	without a key                                   goes
//	there is a later one with its key               goes
//	without a value, the batch's horizon has passed goes
//	otherwise                                       stays
//
// A batch that keeps a record without a value (a tombstone) for the first time gets a delete horizon, which is now and the
// delete retention: until then readers that are behind can learn of the deletion. It is stored in the place of the base
// timestamp, bit 6 of the attributes says so (package record).
//
// A transaction marker stays as long as a batch of its transaction is there. The first round that finds none gives it a
// horizon, and one after that removes it. The transaction index of what is written lists the aborted transactions of which
// a batch is left.
//
// A batch that loses all its records goes, except as an empty one if it is the last of its producer, whose next sequence
// number would else be forgotten, and if it ends at the high watermark, which would else lie where no batch ends.
//
// Every batch keeps base and last offset, producer, epoch, sequence, leader epoch, codec and kind of time. One that changes
// in nothing is copied byte for byte; one of an old format is written as format 2. A segment that changes in nothing is not
// written at all.
//
// # Concurrency
//
// A Cleaner serves one goroutine. The segments that it reads may be read by others, and removed from the log, meanwhile;
// they must not be cut or written to. The caller holds them (segment.Acquire).
//
// # Errors
//
// Damage is a *segment.CorruptError with file, byte and offset; a batch whose records cannot be read or written again is a
// *BatchError; an abort marker whose transaction no index lists is an *UnlistedAbortError, since its records would else be
// taken for committed ones and remove others. After an error of Clean nothing of what it wrote is left.
package cleaner
