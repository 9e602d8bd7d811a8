// Package recovery turns a partition directory, as whatever happened before has left it, into a log that can be opened,
// and tells what it found, what it decided and what it did.
//
// # Model
//
// A load has four steps, kept apart. It observes: names, sizes, the state file, what another program may have changed. It
// decides: a scan of what lies behind the last checkpoint stops somewhere, and a table, which is data (decide.go), says
// of the facts about that place what the bytes behind it are; what is derived from the log is found out as well, with the log
// read as if that were cut already. It acts: what has to go is copied first, and synced, and then cut in an order that leaves
// a log wherever it is interrupted. It reports. Inspect ends after deciding, and so does a load that is refused: all that an
// act reads has been read before, so that nothing is refused, and no bad batch met, when something has changed.
//
// After a clean close nothing is scanned. The names of the segments are held against the state file, so that one that is gone
// is noticed; what is in those below the recovery point is not looked at, but for the ends of each where Params ask for it, and
// for all of a segment whose indexes are made anew. After a crash the scan begins with the batch below the recovery point, whose
// place, size and checksum the state file names: a log that does not hold it is not the log that the state file speaks
// of, and that is damage.
//
// # Rules
//
// P is the end of the last good batch of a segment, where the scan stopped. The first row that fits decides.
//
//	facts                                                         verdict
//	the segment ends at P, the next one starts there              go on
//	zeros to the end, the next segment starts there               trim them, go on
//	P lies below the promised end                                 damage
//	the log ends at P                                             done
//	zeros to the end of the log                                   trim them
//	we wrote, SyncCommit, a truncation was under way              cut, later segments too
//	we wrote, SyncCommit, nothing at or behind P + group bound,   torn group: cut
//	  no later segment
//	we wrote, SyncCommit, otherwise                               damage
//	we wrote, unsynced modes, same boot, the batch at P is not    torn append: cut
//	  there to its end, nothing behind it, no later segment
//	the same, otherwise                                           damage
//	we wrote, unsynced modes, the cache was lost                  cut, later segments too
//	another program wrote, nothing plausible behind P, no later   torn tail: cut
//	another program wrote, otherwise                              damage
//
// The promised end is the durable end of the newest state slot where this library wrote last, else Kafka's recovery
// point. A plausible batch is whole, has a good checksum and the offset that a batch must have there. The same boot means
// the same boot and the same mount, and that nothing changed when the page cache was dropped and the files were read
// again, and that no sync had failed. Then an append that was interrupted is a beginning of one batch, and its end is missing;
// what is there to its end, or lies behind it, was written before. Cut bytes go into files oncelog.cut-<base>-<position>-<n>,
// all of them but reserved space; nothing here ever deletes those.
//
// Damage refuses an open for writing (RefusedError) and leaves everything as it is. An open for reading goes around it and
// lists the holes. With the policy PointInTime the same damage is cut instead, at the first bad byte, and every later segment is
// dropped, as Kafka does (LogLoader, LogSegment.recover), but with copies kept. Where Kafka does more than that, as to empty a
// segment whose offsets are not in order, or to drop a log that ends below its start, it keeps what can be kept. With Compat
// the steps are those of Kafka, in kafka.go, to the letter.
//
// Indexes, transaction indexes, leader epochs and producer state are derived: they are made anew from the recovery point
// on, and where a file is missing or damaged. Producer state comes from the newest pair of snapshot and side file whose
// last batch the log holds, and from the log behind it; after it all five remembered batches of each producer are known.
// Where compaction may have moved that batch the pair is believed: it was made by us, and is removed with what it speaks of.
// Where another program wrote, its snapshot has one batch a producer, and that is what is known of what lies before it.
//
// A transaction index has no checksum. Where this library wrote last, the state file has the sum of the entries below the
// recovery point; every load reads the indexes that there are, and if they do not add up to it makes all of them anew by a
// replay of the log. A reader, who changes no file, has what a writer would make in memory, and where the log has holes he is
// told of which transactions nobody knows the end (Doubt). Damage that a replay meets lets the load begin anew and scan that
// segment. The sum is not said while compaction replaces segments.
//
// # Format of oncelog.state
//
// Three slots at bytes 0, 4096 and 8192, each of 512 bytes; the valid one with the greatest generation counts. The first
// two are synced, in turn. The third is written without a sync after each sync of the log, so it is exact when only the
// process ended, and anything between there and nothing after a power cut. Numbers are big-endian.
//
//	offset  size  field
//	     0     8  magic "oncelog\n"
//	     8     2  version, 1
//	    10     2  flags: 1 closed in order, 2 a sync failed, 4 a truncation is under way, 8 offsets may jump,
//	               16 files of segments are being renamed
//	    12     1  mode: 0 SyncCommit, 1 SyncInterval, 2 SyncNone
//	    16     8  generation
//	    24     8  log start offset
//	    32    40  durable end
//	    72    40  recovery point
//	   112     8  offset of the snapshot that belongs to the recovery point, −1 none
//	   120     8  greatest batch timestamp, milliseconds, −1 none
//	   128     8  clock of the newest append, milliseconds, −1 none
//	   136     8  SyncCommit: most bytes between two syncs
//	   144    16  two fingerprints (XXH64) of what another program would change; either means that it was us
//	   160     1  length of the boot id
//	   161    95  boot id
//	   256     8  greatest batch timestamp of the active segment, milliseconds
//	   264     8  last offset of the first batch that has it
//	   272     8  1 + base offset of the segment from which on indexes were being made anew, 0 none
//	   280     8  first dirty offset: everything below has been compacted
//	   288     8  offset below which compaction may have moved, changed or removed batches
//	   296     8  count of truncations and cuts, from some time on
//	   304    16  how many segments there are from the one with the log start on whose base offset lies below the durable end,
//	              0 if that is not said, and the sum of the XXH64 of their base offsets
//	   320    16  the fingerprints at byte 144 as they are without the leader epochs, should that file be lost
//	   336     8  sum modulo 2⁶⁴ of the XXH64 of the 32 bytes behind the version of each transaction index entry whose marker
//	              is at or behind the log start and below the offset of the recovery point
//	   344     8  1 + their number, 0 if they were not counted
//	   504     8  XXH64 of bytes 0 to 503
//
//	an end or point
//	     0     8  offset
//	     8     8  base offset of the segment of the last batch below it
//	    16     8  position of that batch
//	    24     8  its base offset
//	    32     4  its size, 0 if there is none
//	    36     4  its CRC
//
// # Concurrency
//
// A load runs in one goroutine. It expects that the caller holds the locks of the directory, except for reading.
//
// # Errors
//
// RefusedError (ErrRefused) asks for a person. ErrUnsupportedVersion means a file of a newer program. Everything else
// comes from the file system. Whatever the directory holds, a load does not panic, and takes no more memory than one batch
// of the log, the producers, a few buffers of a MiB, and the aborted transactions whose index is made anew need.
package recovery
