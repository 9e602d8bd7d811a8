// Package kafkadir knows what stands around the log files in a directory of Apache Kafka: how partition directories are
// named, and the small files that belong to a partition or to the log directory as a whole. The text checkpoints are in
// package checkpoint.
//
// # Format
//
// A log directory, one entry of a broker's log.dirs:
//
//	.lock                 empty; a process that uses the directory holds a lock on it
//	.kafka_cleanshutdown  there only between a clean stop and the next start: Marker
//	meta.properties       identity of the node and the directory; only its presence matters here
//	*-offset-checkpoint   package checkpoint
//	<name>/               a partition directory: Name
//
// A partition directory's name is "<topic>-<partition>", the partition being what follows the last dash. Three suffixes
// behind a unique id, "<topic>-<partition>.<32 hex digits>-delete", "…-future" and "…-stray", set it aside.
//
// A partition directory holds partition.metadata, two lines without an end of the second:
//
//	version: 0
//	topic_id: xMDiZOIBRUmuwN4X3xcJHw
//
// A topic id is 16 bytes in URL-safe base64 without padding, 22 characters. Zero is no id. A broker that finds a
// directory without this file, or with another id than its metadata says, sets the directory aside and starts an empty
// one. Brokers before 2.8 write none, and a 2.8 broker with ZooKeeper does not either.
//
// The content of the marker is {"version":0,"brokerEpoch":N} without a line end, or nothing when a broker before 3.8
// wrote it. What counts is that it is there.
//
// # Concurrency
//
// Functions keep no state.
//
// # Errors
//
// *NameError for a name that no partition directory has; *MetadataError for a partition.metadata that cannot be used. A
// missing file is fs.ErrNotExist.
package kafkadir
