package record

import (
	"io"
	"iter"
	"sync"
)

// Records yields the records of the batch in stored order, decompressing them if need be, control records included. It
// checks all that Kafka's readers check (DefaultRecordBatch.iterator, DefaultRecord.readFrom); what they find is a
// *RecordError, yielded last with a zero Record after the records that precede it. A codec this package does not know is
// ErrUnsupportedCompression. The sequence can be walked more than once.
//
// Records does not verify the checksum: call Validate first wherever the bytes come from outside the process. Offset
// deltas are yielded as stored; a batch of a client that numbered them wrongly is readable. An emptied batch yields
// nothing, whatever follows its header.
//
// The slices of a yielded record are views that stay valid until the next step: of the batch itself where it is not
// compressed, else of a buffer that is used again.
func (b Batch) Records(l Limits) iter.Seq2[Record, error] {
	// So short that it is inlined into a caller's range loop, which then allocates nothing.
	return func(yield func(Record, error) bool) { b.records(l, yield) }
}

func (b Batch) records(l Limits, yield func(Record, error) bool) {
	if b.isLegacy() {
		legacyRecords(b, l)(yield)
		return
	}
	count := b.Count()
	switch {
	case count < 0:
		yield(Record{}, &RecordError{Index: -1, Field: "recordsCount", Reason: reasonNegative, Got: int64(count)})
	case count == 0:
	case b.Attributes().Compression() == None:
		b.plainRecords(int(count), yield)
	default:
		b.compressedRecords(int(count), l.maxRecordBytes(), yield)
	}
}

// recordBase holds what a batch header contributes to each of its records.
type recordBase struct {
	offset, timestamp, appendTime int64
	sequence                      int32
	isAppendTime                  bool
}

func (b Batch) recordBase() recordBase {
	return recordBase{
		offset: b.BaseOffset(), timestamp: b.BaseTimestamp(), appendTime: b.MaxTimestamp(),
		sequence: b.BaseSequence(), isAppendTime: b.Attributes().TimestampType() == LogAppendTime,
	}
}

func (h *recordBase) complete(r *Record) {
	r.Offset = h.offset + int64(r.OffsetDelta)
	r.Timestamp = h.timestamp + r.TimestampDelta
	if h.isAppendTime {
		r.Timestamp = h.appendTime
	}
	r.Sequence = NoSequence
	if h.sequence >= 0 {
		r.Sequence = IncrementSequence(h.sequence, r.OffsetDelta)
	}
}

func recordFault(index int, f fault, start int64) *RecordError {
	return &RecordError{
		Index: index, Field: f.field, Reason: f.reason, Pos: start + int64(f.pos), Got: f.got, Want: f.want,
	}
}

func (b Batch) plainRecords(count int, yield func(Record, error) bool) {
	base := b.recordBase()
	payload := b[posRecords:]
	var headers []Header
	pos := 0
	for i := range count {
		length, n := varint(payload[pos:])
		if n <= 0 {
			d := decoder{body: payload, pos: pos}
			d.failNumber("length", n)
			yield(Record{}, recordFault(i, d.fault, 0))
			return
		}
		if length < 0 || int64(length) > int64(len(payload)-pos-n) {
			f := fault{field: "length", reason: reasonShort, pos: pos, got: int64(length), want: int64(len(payload) - pos - n)}
			if length < 0 {
				f.reason, f.want = reasonNegative, 0
			}
			yield(Record{}, recordFault(i, f, 0))
			return
		}
		pos += n
		var r Record
		d := decoder{body: payload[pos : pos+int(length)]}
		headers = d.decode(&r, headers)
		if d.failed() {
			yield(Record{}, recordFault(i, d.fault, int64(pos)))
			return
		}
		pos += int(length)
		base.complete(&r)
		if !yield(r, nil) {
			return
		}
	}
	if left := len(payload) - pos; left > 0 {
		yield(Record{}, &RecordError{
			Index: count, Field: "records", Reason: reasonLeftOver, Pos: int64(pos), Got: int64(left), Want: 0,
		})
	}
}

func (b Batch) compressedRecords(count, limit int, yield func(Record, error) bool) {
	src, err := decompressor(b.Attributes().Compression(), b.Magic(), b[posRecords:])
	if err != nil {
		yield(Record{}, payloadError(-1, 0, err))
		return
	}
	defer src.Close() // Nothing is left to report: what could not be decompressed was an error of Read.
	s := streams.Get().(*stream)
	defer s.release()
	s.src = src

	base := b.recordBase()
	var headers []Header
	for i := range count {
		body, start, err := s.nextBody(i, limit)
		if err != nil {
			yield(Record{}, err)
			return
		}
		var r Record
		d := decoder{body: body}
		headers = d.decode(&r, headers)
		if d.failed() {
			yield(Record{}, recordFault(i, d.fault, start))
			return
		}
		base.complete(&r)
		if !yield(r, nil) {
			return
		}
	}
	if s.need(1) {
		yield(Record{}, &RecordError{Index: count, Field: "records", Reason: reasonLeftOver, Pos: s.pos(), Got: 1, Want: 0})
	} else if s.err != io.EOF {
		yield(Record{}, payloadError(count, s.pos(), s.err))
	}
}

// payloadError reports a payload that cannot be decompressed. An unknown codec is not an invalid record.
func payloadError(index int, pos int64, err error) error {
	if isUnsupported(err) {
		return err
	}
	return &RecordError{Index: index, Field: "records", Reason: "cannot be decompressed", Pos: pos, Err: err}
}

// stream buffers what a decompressor produces so that each record body lies in one piece.
type stream struct {
	src  io.Reader
	buf  []byte
	r, w int   // buf[r:w] is what was read and not consumed
	base int64 // position of buf[0] in the stream
	err  error // of src, io.EOF at its end; sticks
}

const (
	streamBuffer     = 16 << 10
	streamBufferKept = 1 << 20 // larger buffers are left to the garbage collector
	maxEmptyReads    = 100
)

var streams = sync.Pool{New: func() any { return &stream{buf: make([]byte, streamBuffer)} }}

func (s *stream) release() {
	if len(s.buf) > streamBufferKept {
		s.buf = make([]byte, streamBuffer)
	}
	*s = stream{buf: s.buf}
	streams.Put(s)
}

func (s *stream) pos() int64 { return s.base + int64(s.r) }

// nextBody returns the body of record i and its position in the stream. The body is valid until the next call.
func (s *stream) nextBody(i, limit int) (body []byte, start int64, err error) {
	s.need(maxVarintBytes) // fewer will do for a short number
	length, n := varint(s.buf[s.r:s.w])
	if n <= 0 {
		if n == 0 && s.err != io.EOF {
			return nil, 0, payloadError(i, s.pos(), s.err)
		}
		d := decoder{body: s.buf[s.r:s.w]}
		d.failNumber("length", n)
		return nil, 0, recordFault(i, d.fault, s.pos())
	}
	if length < 0 {
		return nil, 0, recordFault(i, fault{field: "length", reason: reasonNegative, got: int64(length)}, s.pos())
	}
	if int(length) > limit {
		f := fault{field: "length", reason: reasonLimit, got: int64(length), want: int64(limit)}
		return nil, 0, recordFault(i, f, s.pos())
	}
	at := s.pos()
	s.r += n
	if !s.need(int(length)) {
		if s.err != io.EOF {
			return nil, 0, payloadError(i, s.pos(), s.err)
		}
		f := fault{field: "length", reason: reasonShort, got: int64(length), want: int64(s.w - s.r)}
		return nil, 0, recordFault(i, f, at)
	}
	start = s.pos()
	body = s.buf[s.r : s.r+int(length)]
	s.r += int(length)
	return body, start, nil
}

// need reads until n bytes are buffered and tells whether they are. The buffer doubles only when it is full, so it is at
// most twice as large as what the source has produced, and never larger than n asks for.
func (s *stream) need(n int) bool {
	for empty := 0; s.w-s.r < n; {
		if s.err != nil {
			return false
		}
		if s.r > 0 {
			s.base += int64(s.r)
			s.w = copy(s.buf, s.buf[s.r:s.w])
			s.r = 0
		}
		if s.w == len(s.buf) {
			size := n
			if len(s.buf) < n/2 {
				size = 2 * len(s.buf)
			}
			grown := make([]byte, size)
			copy(grown, s.buf[:s.w])
			s.buf = grown
		}
		m, err := s.src.Read(s.buf[s.w:])
		s.w += m
		s.err = err
		if empty++; m > 0 {
			empty = 0
		} else if empty >= maxEmptyReads && err == nil {
			s.err = io.ErrNoProgress
		}
	}
	return true
}

// OffsetOfMaxTimestamp returns the offset of the first record whose time is the batch's MaxTimestamp, and false where no
// record has it or the batch has no times. It reads the records, compressed or not, so that the answer does not depend on
// how the batch is stored. Kafka: RecordBatch.offsetOfMaxTimestamp.
func (b Batch) OffsetOfMaxTimestamp(l Limits) (offset int64, ok bool, err error) {
	newest := b.MaxTimestamp()
	if newest == NoTimestamp {
		return 0, false, nil
	}
	for r, err := range b.Records(l) {
		if err != nil {
			return 0, false, err
		}
		if r.Timestamp == newest {
			return r.Offset, true, nil
		}
	}
	return 0, false, nil
}
