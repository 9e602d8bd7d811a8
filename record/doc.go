// Package record reads and writes the batches that a Kafka partition log consists of.
//
// A log file is batches laid end to end, without a file header, padding or a footer. Next and All cut a slice of bytes into
// batches; a Batch is a view of its bytes whose accessors decode one field each, so that walking a log costs nothing for
// the fields nobody asks for. Validate verifies the checksum, CheckHeader the numbers that a sound log agrees on, and
// Records yields the records after checking all that Kafka's readers check. A Builder writes a batch, AppendEndTxnMarker
// the one that ends a transaction. The package does no input or output and knows no time.
//
// # Format
//
// All integers with a fixed width are big-endian and signed unless said otherwise. A batch of format version 2 starts with
// a header of 61 bytes:
//
//	offset size field
//	     0    8 baseOffset            offset of the first record as written; set by the leader
//	     8    4 length                bytes after this field: size of the batch less 12, at least 49
//	    12    4 partitionLeaderEpoch  epoch of the leader that appended the batch, -1 unknown
//	    16    1 magic                 2
//	    17    4 crc                   unsigned; CRC-32C of everything from byte 21 to the end
//	    21    2 attributes            flags, below
//	    23    4 lastOffsetDelta       last offset as written, less baseOffset
//	    27    8 baseTimestamp         ms; what the records' deltas are relative to, or the delete horizon
//	    35    8 maxTimestamp          ms; greatest time of a record, or with LogAppendTime the time of all
//	    43    8 producerId            -1 none
//	    51    2 producerEpoch         -1 none
//	    53    4 baseSequence          sequence number of the first record as written, -1 none
//	    57    4 recordsCount          records that are in the batch
//	    61      records               plain, or one compressed stream that holds them
//
// The checksum (Castagnoli polynomial, check value e3069283 for "123456789") is taken over the records as stored,
// compressed if they are. It leaves out the first 21 bytes, so that a leader can give a batch its offset and epoch without
// reading it; damage there has to be found by other means: the length by the checksum of what it delimits, the offset by
// the order of the batches, the epoch by the partition's epoch history.
//
//	attributes bits 0-2  codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd
//	           bit  3    the times are LogAppendTime rather than CreateTime
//	           bit  4    transactional
//	           bit  5    control batch
//	           bit  6    baseTimestamp is a delete horizon
//	           bits 7-15 undefined, written as 0, ignored by readers
//
// Compaction removes records, even all of them, and keeps baseOffset, lastOffsetDelta, the producer's three fields, the
// leader epoch and the flags. So the log goes on at baseOffset + lastOffsetDelta + 1, never at a number derived from
// recordsCount or from the last record that is left.
//
// A record has no fixed width. Its numbers are zig-zag encoded, then written in groups of seven bits, the lowest first,
// each byte but the last with its top bit set; at most 5 bytes, timestampDelta at most 10:
//
//	length             bytes after this field
//	attributes         one byte, 0, ignored by readers
//	timestampDelta     time less baseTimestamp
//	offsetDelta        offset less baseOffset
//	keyLength, key     a negative length is a null key
//	valueLength, value a negative length is a null value
//	headersCount       then for each header:
//	  keyLength, key     never null
//	  valueLength, value a negative length is a null value
//
// A control batch holds one record, whose key is an int16 version, 0, and an int16 ControlType. The value of an
// end-transaction marker is an int16 version, 0, and the int32 epoch of the transaction coordinator.
//
// Entries of the format versions 0 and 1, which Kafka wrote before 0.11 and reads to this day, can be cut, validated and
// read, and nothing here writes them. Offset, length and magic lie where they do in version 2. The fields that such an
// entry has not got read as the values that stand for none.
//
// The format is fixed by Kafka's DefaultRecordBatch, DefaultRecord, LegacyRecord and ControlRecordType (KIP-98, KIP-82,
// KIP-534, KIP-110 for zstd).
//
// # Limits
//
// Nothing that is read is trusted with memory: a length is compared with what is there before it is used, a decompressed
// record may be bounded by Limits, and its buffer grows with what the decompressor has really produced.
//
// # Concurrency
//
// A Batch and everything derived from it may be read by several goroutines at once, as long as none uses a setter or
// changes the bytes below. A Builder serves one goroutine. Functions keep no state between calls but pools of buffers.
//
// # Errors
//
// ErrTruncated says that bytes end inside a batch, ErrCorrupt that they cannot have been written like that, ErrMagic and
// ErrUnsupportedCompression that they may belong to a newer version, io.EOF, from Next only, that a log ends cleanly.
// These four do not overlap. *CorruptError (a field of a header) and *RecordError (a record; matches ErrInvalidRecord
// too) name the field, its position, what it holds and what it should hold. Positions count from the start of the batch,
// or of its records: whoever knows the file adds its name and the position of the batch.
package record
