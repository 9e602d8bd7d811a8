package record

// RebuildOptions returns the options with which a Builder writes the batch again, with the same header and those of its
// records that are to stay: append each with its Timestamp, as yielded by Records. What may differ afterwards:
//   - the maximum timestamp of a CreateTime batch becomes that of the records that stay;
//   - the stored deltas of a LogAppendTime batch become those to its one time;
//   - undefined attribute bits and record attributes become 0.
//
// Compaction in Kafka does the same (MemoryRecords.buildRetainedRecordsInto). It panics on a legacy entry.
func (b Batch) RebuildOptions() BuilderOptions {
	b.mustBeWritable("RebuildOptions")
	a := b.Attributes()
	o := BuilderOptions{
		Transactional:        a.IsTransactional(),
		Compression:          a.Compression(),
		TimestampType:        a.TimestampType(),
		BaseOffset:           b.BaseOffset(),
		PartitionLeaderEpoch: b.PartitionLeaderEpoch(),
		Rebuild:              &Rebuild{LastOffsetDelta: b.LastOffsetDelta(), Control: a.IsControl()},
	}
	if a.TimestampType() == LogAppendTime {
		o.AppendTime = b.MaxTimestamp()
	}
	if p := (Producer{ID: b.ProducerID(), Epoch: b.ProducerEpoch(), BaseSequence: b.BaseSequence()}); p != noProducer {
		o.Producer = &p
	}
	if ms, ok := b.DeleteHorizon(); ok {
		o.Rebuild.HasDeleteHorizon, o.Rebuild.DeleteHorizon = true, ms
	}
	return o
}

// AppendEmptied appends what is left of a batch when compaction removes all its records but has to keep the producer's
// last sequence number: the header with no records, no codec and no base timestamp (Kafka:
// DefaultRecordBatch.writeEmptyHeader). It panics on a legacy entry. dst and b may not overlap.
func AppendEmptied(dst []byte, b Batch) []byte {
	b.mustBeWritable("AppendEmptied")
	a := b.Attributes()
	h := batchHeader{
		baseOffset: b.BaseOffset(), leaderEpoch: b.PartitionLeaderEpoch(), lastOffsetDelta: b.LastOffsetDelta(),
		attributes:    a & (attrLogAppendTime | attrTransactional | attrControl),
		baseTimestamp: NoTimestamp, maxTimestamp: b.MaxTimestamp(),
		producer: Producer{ID: b.ProducerID(), Epoch: b.ProducerEpoch(), BaseSequence: b.BaseSequence()},
	}
	start := len(dst)
	dst = append(dst, make([]byte, Overhead)...)
	h.put(dst[start:])
	return dst
}
