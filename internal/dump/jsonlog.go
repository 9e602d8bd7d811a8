package dump

import (
	"github.com/oncelog/oncelog/record"
)

// log writes the batches of a .log file and where they stop.
func (j *document) log(base int64, path string) error {
	r, err := OpenLog(j.ctx, j.fsys, path, j.o.MaxBatchBytes)
	if err != nil {
		return err
	}
	defer r.Close()
	next := base
	j.key("batches")
	j.begin('[')
	for r.Next() {
		e := r.Entry()
		unreadable, omitted := CheckRecords(e, j.o.MaxRecordBytes)
		if unreadable != "" {
			r.Reject("records unreadable: " + unreadable)
			break
		}
		j.begin('{')
		j.header(e)
		j.records(e, omitted)
		j.encoder.end('}')
		next = e.Batch.NextOffset()
		if j.err != nil {
			return j.err
		}
	}
	j.encoder.end(']')
	j.end = max(j.end, next)
	if r.Err() != nil {
		return r.Err()
	}
	if e := r.Rejected(); e != nil && e.Batch != nil {
		j.key("invalidBatch")
		j.begin('{')
		j.header(e)
		j.encoder.end('}')
	}
	if d := r.Damage(); d != nil {
		zeros, err := r.ZeroTail()
		if err != nil {
			return err
		}
		j.note(d)
		j.problem = j.problem || !zeros || base < j.last
		j.putDamage(d)
	}
	j.keyInt("validBytes", r.Position())
	return j.err
}

// header writes the fields of a batch, null for those that its format has not got.
func (j *document) header(e *Entry) {
	b := e.Batch
	j.keyInt("position", e.Position)
	j.keyInt("size", e.Size)
	j.keyInt("magic", int64(b.Magic()))
	if e.Legacy() {
		j.legacyHeader(e)
		return
	}
	j.keyInt("baseOffset", b.BaseOffset())
	j.keyInt("lastOffset", b.LastOffset())
	j.keyInt("count", int64(b.Count()))
	j.keyInt("baseSequence", int64(b.BaseSequence()))
	j.keyInt("lastSequence", int64(b.LastSequence()))
	j.keyInt("producerId", b.ProducerID())
	j.keyInt("producerEpoch", int64(b.ProducerEpoch()))
	j.keyInt("partitionLeaderEpoch", int64(b.PartitionLeaderEpoch()))
	j.keyStr("timestampType", timestampType(b))
	if ms, ok := b.DeleteHorizon(); ok {
		j.keyInt("baseTimestamp", ms)
	} else {
		j.keyInt("baseTimestamp", b.BaseTimestamp())
	}
	j.keyInt("maxTimestamp", b.MaxTimestamp())
	j.codecAndCRC(e)
	j.keyBool("isTransactional", b.Attributes().IsTransactional())
	j.keyBool("isControl", b.Attributes().IsControl())
	if ms, ok := b.DeleteHorizon(); ok {
		j.keyInt("deleteHorizonMs", ms)
	} else {
		j.keyNull("deleteHorizonMs")
	}
}

func (j *document) legacyHeader(e *Entry) {
	b := e.Batch
	if e.Valid && !e.Large {
		j.keyInt("baseOffset", b.BaseOffset())
	} else {
		j.keyNull("baseOffset")
	}
	j.keyInt("lastOffset", b.LastOffset())
	j.keyNull("count", "baseSequence", "lastSequence", "producerId", "producerEpoch", "partitionLeaderEpoch")
	if b.Magic() == 0 {
		j.keyNull("timestampType", "baseTimestamp", "maxTimestamp")
	} else {
		j.keyStr("timestampType", timestampType(b))
		j.keyNull("baseTimestamp")
		j.keyInt("maxTimestamp", b.MaxTimestamp())
	}
	j.codecAndCRC(e)
	j.keyNull("isTransactional", "isControl", "deleteHorizonMs")
	j.keyInt("attributes", int64(b[17]))
}

func (j *document) codecAndCRC(e *Entry) {
	if e.Valid {
		j.keyStr("codec", e.Batch.Attributes().Compression().String())
	} else {
		j.keyNull("codec")
	}
	j.keyInt("crc", int64(e.Batch.CRC()))
	j.keyBool("valid", e.Valid)
}

func timestampType(b record.Batch) string {
	if b.TimestampType() == record.LogAppendTime {
		return "LogAppendTime"
	}
	return "CreateTime"
}

// records writes the records of a good batch, which were read before without an error. The control records are written
// always: what they say is about the log, not of its users.
func (j *document) records(e *Entry, omitted string) {
	control := !e.Legacy() && e.Batch.Attributes().IsControl()
	switch {
	case j.o.NoRecords && !control:
		return
	case omitted != "":
		j.keyStr("recordsOmitted", omitted)
		return
	}
	limits := record.Limits{MaxRecordBytes: j.o.MaxRecordBytes}
	j.key("records")
	j.begin('[')
	for r, err := range e.Batch.Records(limits) {
		if err != nil {
			break // cannot happen: nothing has changed since the check
		}
		j.record(e, r, control)
	}
	j.encoder.end(']')
	if e.Legacy() && e.Batch.Attributes().Compression() != record.None && !j.o.NoRecords {
		j.inner(e, limits)
	}
}

func (j *document) record(e *Entry, r record.Record, control bool) {
	j.begin('{')
	j.keyInt("offset", r.Offset)
	if e.Batch.Magic() == 0 {
		j.keyNull("timestamp")
	} else {
		j.keyInt("timestamp", r.Timestamp)
	}
	if e.Legacy() {
		j.keyNull("sequence", "headers")
	} else {
		j.keyInt("sequence", int64(r.Sequence))
		j.key("headers")
		j.begin('[')
		for _, h := range r.Headers {
			j.begin('[')
			j.str(h.Key)
			if h.Value == nil {
				j.null()
			} else {
				j.base64(h.Value)
			}
			j.encoder.end(']')
		}
		j.encoder.end(']')
	}
	j.key("key")
	j.blob(r.Key)
	j.key("value")
	j.blob(r.Value)
	if control {
		j.control(r)
	}
	j.encoder.end('}')
}

func (j *document) control(r record.Record) {
	c, err := ControlOf(r)
	if err != nil {
		return // it was read before
	}
	j.key("control")
	j.begin('{')
	j.keyStr("type", controlName(c.Type))
	j.keyInt("keyVersion", int64(c.KeyVersion))
	if c.IsMarker {
		j.keyInt("version", int64(c.Version))
		j.keyInt("coordinatorEpoch", int64(c.CoordinatorEpoch))
	}
	j.encoder.end('}')
}

// inner writes the entries of a wrapper as they are stored.
func (j *document) inner(e *Entry, limits record.Limits) {
	j.key("inner")
	j.begin('[')
	for m, err := range e.Batch.LegacyEntries(limits) {
		if err != nil {
			break // the records were read before; what is behind them does not matter to a reader
		}
		j.begin('[')
		j.int(m.Offset)
		j.int(int64(m.Size))
		j.int(int64(m.Magic))
		j.int(int64(uint8(m.Attributes)))
		if m.Magic == 0 {
			j.null()
		} else {
			j.int(m.Timestamp)
		}
		j.int(int64(m.CRC))
		j.bool(m.CRCValid)
		j.encoder.end(']')
	}
	j.encoder.end(']')
}
