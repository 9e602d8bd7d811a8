// Package segment is one piece of a log: a .log file of record batches with the three indexes beside it, and the ordered set
// of such pieces that makes a log.
//
// # Model
//
// A [Segment] is named after its base offset, which is at or below the offset of its first record and above every offset
// in the segments before it. [Open] does no I/O: the log file and each index are opened when they are first needed, exactly
// once however many goroutines need them, and may be closed in between, by [Segment.Park] or a [Pool]; a log of ten thousand sealed
// segments opens with the listing of its directory. The last segment is the active one; [Create] and [Segment.OpenActive]
// open it for writing, [Segment.Seal] ends that.
//
// Writing is split so that a log can store bytes its own way: [Segment.WriteAt] moves bytes and nothing else, [Segment.Note]
// does the bookkeeping for one batch and moves none; [Segment.Append] is both. Reading finds a range first ([Segment.Read],
// [Records]) and moves bytes when they are asked for.
//
// The log file is the truth and the indexes are hints. No index has a checksum, so an entry is used only after the batch
// that it points to has been looked at; if it does not fit, the answer comes from walking the log, more slowly and
// just as right. [Segment.Suspects] counts such look-ups. Nothing condemns a log file because of a pointer into it.
//
// A walk ([Segment.Scan], [Segment.ScanHeaders]) ends in one of four ways, [TailKind]: a clean end, zeros to the end of the
// file (reserved space), a batch that runs past the end (a write that was interrupted), or damage. Which of them may be cut
// is for recovery to decide; this package cuts only where it is told.
//
// # Format
//
// A log file is record batches end to end, described in package record, without header, padding or footer, at most
// 2^31-1 bytes, and with offsets at most 2^31-1 above the base offset. While space is reserved ahead, zeros follow the last
// batch; a sealed file ends with its last batch. The formats of the indexes are described in package index.
//
// The names of the files of a partition directory, each offset as twenty ASCII digits (N):
//
//	N.log                          record batches from offset N on
//	N.index .timeindex .txnindex   indexes of that segment
//	N.snapshot                     producers up to, but excluding, offset N
//	N-EEEEEEEEEE.checkpoint        snapshot of a KRaft metadata log, E its leader epoch
//	leader-epoch-checkpoint        leader epochs, text
//	partition.metadata             topic id, text
//	oncelog.state                  what is durable, and who wrote
//	oncelog.producers-N            what N.snapshot has no room for
//	oncelog.cut-N-P-K              bytes cut from N.log at byte P (twenty digits), for the Kth time
//	oncelog.backup                 what the directory is a backup of
//	oncelog.unfinished.log         the directory is a backup that was interrupted; a broker does not start with it
//	oncelog.lock .next .reserve .cursors
//
// Suffixes stack at the end: .deleted, .cleaned, .swap, and .tmp. [Parse] and [Name.String] are that table in both
// directions. Names that begin with "oncelog." are ours; Kafka ignores them.
//
// # Concurrency
//
// A segment takes one writer and any number of readers. The methods of the writer exclude each other and are marked by what
// they change: WriteAt, Note, Append, AppendAborted, OpenActive, SetSize, TruncateTo, TruncateToPosition, ResetIndexes,
// TrimLog, Seal. All others may be called by anybody at any time. A reader beside the writer passes the end up to which the
// log has published bytes, since Note may run ahead of them. Truncation, Seal, Rename and Park wait for operations that are
// under way and hold new ones up while they change files; syncs hold nobody up.
//
// [Segment.Acquire] and [Segment.Release] keep the files open, [Segment.Close] and [Segment.Remove] take effect on them when
// the last holder has let go. A removed segment can be read by its holders to the end. What they hold is not protected from
// TruncateTo: reads that began before it are [ErrCut].
//
// [Set] is an immutable value, safe for everybody.
//
// # Errors
//
// *[CorruptError] carries path, byte position, last good offset and the cause, which tells torn (record.ErrTruncated), from
// an unknown version (record.ErrUnsupportedVersion), from damage (record.ErrCorrupt). An error of the file system is never
// one of these, and says nothing about the bytes. [ErrSegmentFull] and [ErrOffsetOverflow] refuse an append before anything
// is written. *[IndexError] says that an index lacks an entry and all else was done: a warning. [ErrClosed],
// [ErrNotWritable] and [ErrCut] are what they say.
package segment
