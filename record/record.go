package record

import "math"

// Record is one record of a batch.
//
// As yielded by Batch.Records, its byte slices and Headers are views that stay valid until the iterator is asked for the
// next record or ends; clone what must live longer. Given to Builder.Append, they are only read during the call.
type Record struct {
	// Offset is the record's offset in the log. A Builder ignores it.
	Offset int64
	// Timestamp is the record's time in milliseconds, or NoTimestamp: the batch's time with LogAppendTime, else what
	// the producer gave. A Builder ignores it in favour of the argument of Append.
	Timestamp int64
	// OffsetDelta is the stored distance of the record from the batch's base offset. A Builder numbers the records
	// itself unless it rebuilds a batch.
	OffsetDelta int32
	// TimestampDelta is the stored distance from the batch's base timestamp. It says nothing about Timestamp with
	// LogAppendTime. A Builder ignores it.
	TimestampDelta int64
	// Sequence is the record's sequence number, or NoSequence. A Builder ignores it.
	Sequence int32
	// Key is nil for a null key; an empty key is not nil.
	Key []byte
	// Value is nil for a null value, which marks a deletion in a compacted topic; an empty value is not nil.
	Value []byte
	// Headers are in the order they were written; keys may repeat. It is nil when there are none.
	Headers []Header
}

// Header is a name with a value attached to a record.
type Header struct {
	// Key is UTF-8 by convention of the writers; it is not checked. It is never null. A string, once yielded, stays
	// valid, unlike Value.
	Key string
	// Value is nil for a null value; an empty value is not nil.
	Value []byte
}

// DefaultMaxRecordBytes is the largest body of a compressed record that is read when Limits says nothing else, Kafka's
// default of max.decompressed.message.bytes.
const DefaultMaxRecordBytes = math.MaxInt32 - 8

// Limits bound what reading a batch may take. The zero value has Kafka's defaults.
type Limits struct {
	// MaxRecordBytes is the largest body that a record may have after decompression, in bytes, the length field in
	// front of it not counted. A larger one is an error before memory is taken for it. Uncompressed records are never
	// measured against it. Zero or less means DefaultMaxRecordBytes. Kafka: max.decompressed.message.bytes.
	//
	// Memory grows with what the decompressor really produces and not with what a record claims, up to twice the
	// body, and by 40 bytes for each header, of which a body can hold one for every two bytes.
	MaxRecordBytes int
}

func (l Limits) maxRecordBytes() int {
	if l.MaxRecordBytes <= 0 || l.MaxRecordBytes > DefaultMaxRecordBytes {
		return DefaultMaxRecordBytes
	}
	return l.MaxRecordBytes
}

// fault is what the record decoder found wrong: a RecordError without the place of the record.
type fault struct {
	field, reason string
	pos           int
	got, want     int64
}

const (
	reasonShort    = "runs past the end"
	reasonUnended  = "number does not end"
	reasonNegative = "negative"
	reasonLimit    = "too large"
	reasonLeftOver = "bytes left over"
)

// decoder reads the body of one record, the bytes that its length field counts. The first fault sticks: later reads return
// zero values and change nothing, so that a caller has to look only once, and before each loop step.
type decoder struct {
	body  []byte
	pos   int
	fault fault
}

func (d *decoder) failed() bool { return d.fault.field != "" }

func (d *decoder) fail(field, reason string, got, want int64) {
	if !d.failed() {
		d.fault = fault{field: field, reason: reason, pos: d.pos, got: got, want: want}
	}
}

func (d *decoder) left() int { return len(d.body) - d.pos }

func (d *decoder) varint(field string) int32 {
	if d.pos < len(d.body) && d.body[d.pos] < 0x80 && !d.failed() {
		c := d.body[d.pos]
		d.pos++
		return unzigzag32(uint32(c))
	}
	return d.longVarint(field)
}

func (d *decoder) longVarint(field string) int32 {
	if d.failed() {
		return 0
	}
	v, n := varint(d.body[d.pos:])
	if n <= 0 {
		d.failNumber(field, n)
		return 0
	}
	d.pos += n
	return v
}

func (d *decoder) varlong(field string) int64 {
	if d.failed() {
		return 0
	}
	v, n := varlong(d.body[d.pos:])
	if n <= 0 {
		d.failNumber(field, n)
		return 0
	}
	d.pos += n
	return v
}

// failNumber reports a varint that could not be decoded; n is what varint returned.
func (d *decoder) failNumber(field string, n int) {
	if n < 0 {
		d.fail(field, reasonUnended, int64(-n+1), int64(-n))
		return
	}
	d.fail(field, reasonShort, int64(d.left()+1), int64(d.left()))
}

// bytes reads a length and that many bytes; any negative length is null.
func (d *decoder) bytes(lengthField, field string) []byte {
	n := d.varint(lengthField)
	if n < 0 || d.failed() {
		return nil
	}
	return d.take(field, n)
}

func (d *decoder) take(field string, n int32) []byte {
	if int64(n) > int64(d.left()) {
		d.fail(field, reasonShort, int64(n), int64(d.left()))
		return nil
	}
	p := d.body[d.pos : d.pos+int(n) : d.pos+int(n)]
	d.pos += int(n)
	return p
}

// decode reads a whole record body into r. Its headers go into the storage of scratch, which is returned for the next
// call, possibly grown.
func (d *decoder) decode(r *Record, scratch []Header) []Header {
	if len(d.body) == 0 {
		d.fail("attributes", reasonShort, 1, 0)
		return scratch
	}
	d.pos = 1 // No bit of the record attributes is defined; readers ignore them.
	r.TimestampDelta = d.varlong("timestampDelta")
	r.OffsetDelta = d.varint("offsetDelta")
	r.Key = d.bytes("keyLength", "key")
	r.Value = d.bytes("valueLength", "value")
	r.Headers = nil
	count := d.varint("headersCount")
	if count < 0 {
		d.fail("headersCount", reasonNegative, int64(count), 0)
	}
	if int64(count) > int64(d.left()) {
		d.fail("headersCount", reasonLimit, int64(count), int64(d.left()))
	}
	if count > 0 && !d.failed() {
		scratch = d.headers(scratch, int(count))
		r.Headers = scratch
	}
	if d.left() > 0 {
		d.fail("length", reasonLeftOver, int64(len(d.body)), int64(d.pos))
	}
	return scratch
}

// headers reads count headers. The slice grows with the headers that are there, not with count.
func (d *decoder) headers(scratch []Header, count int) []Header {
	old := scratch[:cap(scratch)]
	scratch = scratch[:0]
	for i := 0; i < count && !d.failed(); i++ {
		n := d.varint("headerKeyLength")
		if n < 0 {
			d.fail("headerKeyLength", reasonNegative, int64(n), 0)
		}
		if d.failed() {
			break
		}
		key := d.take("headerKey", n)
		value := d.bytes("headerValueLength", "headerValue")
		// The records of a batch mostly repeat the same header keys in the same order: the string that an earlier
		// record left in this place is used again where it is equal, without an allocation.
		h := Header{Value: value}
		if i < len(old) && old[i].Key == string(key) {
			h.Key = old[i].Key
		} else {
			h.Key = string(key)
		}
		scratch = append(scratch, h)
	}
	return scratch
}
