// Package producerstate knows what each producer of a partition log may append next: it recognises a batch that is sent
// again, refuses one that does not continue what is stored, fences producers and coordinators that have been superseded,
// and keeps track of transactions. It also reads and writes the files in which this knowledge survives a restart.
//
// # Model
//
// A producer has an id, an epoch, and a sequence number for each record, counted per partition and epoch from 0 to 2^31-1
// and on from 0. A new epoch, which the same producer gets after a failure or a new incarnation of it, starts at 0. The
// table keeps for each id the newest epoch, the last BatchesRetained batches of it, the open transaction if there is one,
// and the epoch of the transaction coordinator. From that follows the answer to a batch of a client:
//
//   - exactly one of the remembered batches (epoch, first and last sequence): a duplicate, answered with the offsets and
//     the time of the stored one;
//   - the next sequence: accepted;
//   - a lower epoch: *EpochError, the writer is a zombie;
//   - anything else: *SequenceError, see below;
//   - of a producer that is not known: accepted at whatever sequence it starts, because its earlier batches may have been
//     deleted and forgotten (KIP-360). Config.UnknownProducers has other rules.
//
// A Manager holds this for one log (Kafka: ProducerStateManager), and an append takes three steps:
//
//	m.Prepare(&a, producerstate.AppendOptions{Origin: producerstate.Client, Clock: nowMs})
//	dup, isDup, err := a.Append(batch, at)     // for each batch; changes nothing
//	                                           // now the bytes go into the log
//	m.Publish(&a)                              // now the state follows
//	for _, t := range a.Completed() {
//		lso := m.LastStableOffset(t)           // for the transaction index, if t.Aborted
//		err = m.CompleteTxn(t)
//	}
//	m.UpdateMapEndOffset(nextOffset)
//
// An append that fails in between leaves nothing behind, because an AppendInfo works on copies until it is published.
// State is never ahead of the log, so a snapshot never speaks of offsets at or above its own.
//
// Transactions hold back the last stable offset from their first batch until the high watermark passes their marker.
// FirstUnstableOffset gives the lowest one, AdvanceHighWatermark lets go. What verification is for is said at Guard.
//
// # Reading a SequenceError
//
// The error gives numbers; which of the causes below applies, a single error cannot tell.
//
// Gap is how many records lie between the sequence that would have been next and the one that came. A small gap that
// closes by itself is reordering: a producer with several requests in flight had one of them delayed or refused, and the
// ones behind it arrived first. Each is refused and sent again, and once the missing one is stored they pass, in order; a
// client that retries sees nothing. A gap that persists over retries means that the missing records are not coming: either
// the producer gave up on a batch and went on, or the log has lost records that it had acknowledged, as after the
// election of a leader that lacked them, or a restored backup. In the second case the gap is as large as the loss, Known
// is set, and Offset is the last record of the producer that survived: those between it and the producer's own
// position are gone, and only the producer knows what was in them. Retrying does not help; a client raises its epoch and
// starts at 0 again, or stops.
//
// Gap is -1 for a batch at or behind what is stored. It is a retry of a batch older than the BatchesRetained ones
// remembered, whose fate the numbers tell all the same: what lies below Expected in this epoch was stored, unless the
// producer itself skipped numbers. Or it overlaps, because a client split or merged batches between attempts.
//
// Sequences wrap at 2^31, so a distance of more than half of that counts as one backwards.
//
// # Named producers
//
// Ids from MinNamedProducerID on stand for names. They never expire, and their names, with the count their first record
// had, are kept with the state. With Compat they are ids like others.
//
// # Differences from Kafka
//
// All five batches are remembered across a restart. Batches and markers that are replayed or replicated never set an
// epoch, a coordinator epoch or a sequence back. A producer expires by the later of its batches' timestamps and the log's
// clock when it appended, and the clock counts no further than the log's newest time. A control record of an unknown type
// is skipped where Kafka cannot load the log. Snapshots are replaced atomically, read back at any size, and not used if
// they speak of offsets at or above their own. Config.Compat turns all of these off but those in the last sentence.
//
// # Format of snapshots
//
// A snapshot NNNNNNNNNNNNNNNNNNNN.snapshot, with the offset in 20 digits, reflects the log below that offset. It is
// Kafka's file of version 1, the same from Kafka 0.11 to 4.4. Numbers are big-endian and signed unless said otherwise.
//
//	offset  size  field
//	     0     2  version, 1
//	     2     4  CRC-32C of all bytes from 6 to the end of the file, unsigned; it does not cover the version
//	     6     4  number of entries n
//	    10  46*n  entries
//
//	entry
//	     0     8  producer id
//	     8     2  producer epoch, -1: none
//	    10     4  last sequence of the newest batch, -1: none
//	    14     8  last offset of the newest batch, -1: no batch
//	    22     4  last offset less base offset of the newest batch
//	    26     8  last timestamp of the producer in milliseconds
//	    34     4  coordinator epoch, -1: none
//	    38     8  first offset of the open transaction, -1: none
//
// There is no padding, and nothing may follow. The order of the entries has no meaning.
//
// # Format of side files
//
// The side file oncelog.producers-NNNNNNNNNNNNNNNNNNNN holds what has no room in the snapshot of the same offset: all
// batches with their times, append clocks and names. The name is one that Kafka does not look at. Every version begins
// with the magic and the version and ends with the checksum. Numbers are big-endian.
//
//	offset  size  field
//	     0     8  magic, the bytes "ONCEPROD"
//	     8     4  version, 1
//	    12     4  flags; bit 0: a last batch is given; all others 0
//	    16     8  offset, as in the name
//	    24     4  CRC-32C of the snapshot it belongs to
//	    28     4  number of producers p, unsigned
//	    32     4  number of names k, unsigned
//	    36     4  last batch below the offset: its size in bytes
//	    40     8    base offset of its segment
//	    48     8    position in the segment's log file
//	    56     8    its base offset
//	    64     4    its CRC
//	    68     4  0
//	    72     8  greatest clock of an append in milliseconds, -1: unknown
//	    80     8  0
//	    88     -  p producers, in the order of the snapshot's entries
//	     -     -  k names, in ascending order of ids
//	     -     8  XXH64, seed 0, of everything before, unsigned
//
//	producer
//	     0     8  producer id
//	     8     8  last timestamp
//	    16     8  clock of its last append in milliseconds, -1: unknown
//	    24     8  first offset of the open transaction, -1: none
//	    32     4  coordinator epoch
//	    36     2  producer epoch
//	    38     1  number of batches b, 0 to 5
//	    39  24*b  batches, oldest first: last offset (8), timestamp (8), last sequence (4), offset delta (4)
//
//	name
//	     0     8  producer id, at least 2^62
//	     8     8  count of its first record
//	    16     2  size of the name in bytes, unsigned; 0: not known
//	    18     -  the name
//
// A side file and its snapshot are written and removed so that no crash leaves a pair that is readable and wrong, see
// WritePair and RemovePair. A side file that has to replace another waits under its name with ".next" behind it until its
// snapshot is there.
//
// # Concurrency
//
// The methods of a Manager and of an AppendInfo must not run at once; the log calls them under the lock that orders its
// appends. A Frozen can be read and written by another goroutine while the Manager goes on. The functions that read and
// write files may run at once for different offsets.
//
// # Memory
//
// A producer takes 160 bytes in the slab and 11 to 22 in the index, 177 at a million. Neither holds pointers. The table
// grows by chunks and its index a few items at a time, so that no append waits for a rebuild.
//
// # Errors
//
// Errors about batches are *SequenceError, *EpochError, *TxnStateError and *CoordinatorError, each with the numbers and a
// sentinel that stands for one protocol error code. Errors about files are *SnapshotError with the file, the byte and the
// reason, or the error of the file system. Nothing read from a file or a batch makes this package panic.
package producerstate
