// Package bench measures the log, and what each number can be held against. It has no code outside its tests:
//
//	go test ./bench -bench . -run '^$'
//	go test ./bench -bench Overhead -run '^$'      # ends with a table in Markdown
//	go test ./bench -bench . -run '^$' -count 10 | tee new.txt; benchstat old.txt new.txt
//
// # Method
//
// A machine is never quiet, and the absolute figures of one run differ from those of the next by more than most changes
// are worth. So whatever is compared is measured in the same process and in turns: each iteration of a benchmark is a
// round, a block of operations of the log followed by a block of its floor, the least that could be done instead with the
// same bytes. -benchtime 50x is 50 rounds. The metrics are
//
//	ns/op          median over the rounds, of one operation of the log (an append, a check, an open)
//	mean-ns/op     mean over the rounds: it has the stalls in it that the median leaves out, such as those of a checkpoint
//	MB/s           of batch bytes, from the median, in units of 10^6
//	mallocs/op     allocations of the whole process over the operations of the log
//	floor-ns/op    median of the floor
//	x-floor        median over the rounds of the log's time over that of the floor beside it; lower is better
//
// and those that a benchmark's comment names. Time is taken around blocks, never around single operations below a
// microsecond, and nothing sleeps.
//
// # What is measured, and what is not
//
// Batches are built before the clock runs, and so are the producer's next sequence number and the checksum that follows
// from it: they are a client's work. Everything that the log does with a batch is inside: verifying the checksum, walking
// the records, the duplicate check, offsets, bytes, index entries, publication, and in SyncCommit the wait for the disk.
// Checkpoints and rolls happen as they fall due. Batches are not compressed. The network and the decoding of requests,
// which a broker adds, are not there.
//
// Files are in the directory for temporary files (TMPDIR): a file system in memory there makes every figure about syncs
// meaningless.
//
// # Benchmarks
//
//	Append      bytes a batch × mode × callers, against copying and summing the same bytes, and against raw writes
//	Overhead    what producer id, epoch and sequence cost: the bytes, the duplicate check, the whole append
//	Open        a large log after Close and after a kill, against reading what had to be read; many segments
//	Producers   one check, memory and snapshots with 100 to 1,000,000 producers, against a map of pointers
//	Read        in order, at random, and at the tail, against pread
//	Compact     a log of which nothing has been compacted, against a walk over its batches; and its memory
package bench
