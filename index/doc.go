// Package index reads and writes the three indexes that Kafka keeps beside each segment of a log: the offset index
// (offset to byte position), the time index (timestamp to offset) and the transaction index (aborted transactions).
//
// The offset and the time index are sparse: one entry about every index interval (4096 bytes of log by default). A
// lookup gives the greatest entry that is not above the target; from there the log itself is walked. An index is
// therefore a hint and can be rebuilt from the log at any time. None of the three files has a checksum, so what an
// entry claims about the log has to be checked against the log before it is trusted.
//
// # Format
//
// All integers are big-endian. A relative offset is the offset less the base offset of the segment, 0 to 2^31-1.
//
// Offset index (.index), 8 bytes an entry:
//
//	offset  size  field
//	0       4     relative offset: last offset of the batch
//	4       4     position: byte of the .log file at which that batch begins
//
// Offsets and positions strictly increase.
//
// Time index (.timeindex), 12 bytes an entry:
//
//	offset  size  field
//	0       8     timestamp in milliseconds: the greatest in the segment so far
//	8       4     relative offset: last offset of the first batch that reached it
//
// Timestamps strictly increase, offsets do not decrease.
//
// Transaction index (.txnindex), 34 bytes an entry; the file exists from the first aborted transaction on:
//
//	offset  size  field
//	0       2     version, 0
//	2       8     producer id
//	10      8     first offset of the transaction
//	18      8     last offset: that of the abort marker
//	26      8     last stable offset when the marker was appended, this transaction apart
//
// Last offsets strictly increase. There is no padding, no header, no checksum and, apart from the version field of
// the transaction index, no version. None of the formats has changed in Kafka since it was introduced.
//
// # Reserved space and the zero tail
//
// While a segment is active, its offset and time index are longer than their entries: space is reserved ahead and
// reads as zeros. [Offset.Trim] cuts the file to its entries, which is what a sealed segment has on disk. After a
// crash the zeros are still there, and so they are in every copy of a running directory. Kafka then takes each slot of
// zeros for an entry; here the entries are counted up to the last slot that holds anything but zeros. Nothing is lost
// by that: an entry of zeros can only be the first one (offsets, and timestamps, strictly increase), and a lookup that
// does not find it answers the same as one that does, namely the base offset at position 0. In the time index the
// first entry may be (timestamp 0, base offset); without it the answer is "no timestamp at or below", and the log is
// searched from its start as well. A file of exactly one slot of zeros has one entry, since only a trimmed file has
// that length. Whoever knows the log can correct the count with [Offset.SetEntries]; [Config.KafkaOpen] counts as
// Kafka does.
//
// A zero tail, or a partial entry, is cut off before the first append, and what a truncation removes is cut off the
// file too, so that no crash can turn it into an entry.
//
// # What a lookup promises about a damaged index
//
// It never panics, never reads outside the entries and ends after a number of probes that is logarithmic in their
// count. The offset returned by [Offset.Lookup] is between the base offset and the target, the position is
// not negative; an entry that cannot be so is a *[CorruptError]. What only the log can tell, whether the position
// lies inside it and whether a batch with that offset begins there, the caller has to check, and fall back to the
// start of the segment when it is not so. SanityCheck is Kafka's own test, CheckEntries the complete one.
//
// # Concurrency
//
// Each index takes one writer and any number of readers at once. Methods that change an index (Append, MaybeAppend,
// TruncateTo, Reset, SetEntries, Resize, Trim, Unmap, Close) exclude each other and may be called beside lookups. A
// lookup sees whole entries only, and all those whose append had returned before it began. The memory behind an
// index is unmapped only when no reader is inside. Flush runs beside everything else and holds nobody up but Close.
// SanityCheck and CheckEntries compare entries that they read one after the other: not beside a truncation.
//
// A file is mapped at its first use, not when it is opened, never longer than the file, and read-only in an index that
// was opened so. Where the system refuses a map (the limit of maps per process is a common one), the entries are read
// into memory and the writes go through the file: slower to begin with, the same otherwise.
//
// # Errors
//
// [ErrFull], [ErrInvalidOffset], [ErrOffsetOverflow], [ErrInvalidTimestamp] and [ErrInvalidPosition] refuse an
// append and change nothing. A full disk is an error that matches vfs.ErrNoSpace, and changes nothing either.
// *[CorruptError] (matches [ErrCorrupt]) says that the index has to be rebuilt, *[VersionError] (matches
// [ErrUnsupportedVersion]) that it was written by a newer program and must be left alone. *[FaultError] says that
// mapped memory could not be read or written: somebody cut the file, or the device failed. All but the sentinels of
// an append carry the path.
package index
