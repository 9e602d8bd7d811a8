package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// cloneRecord copies what a Record only lends.
func cloneRecord(r Record) Record {
	r.Key, r.Value, r.Headers = bytes.Clone(r.Key), bytes.Clone(r.Value), slices.Clone(r.Headers)
	for i := range r.Headers {
		r.Headers[i].Value = bytes.Clone(r.Headers[i].Value)
	}
	return r
}

// collect returns copies of the records before the first error, and that error.
func collect(t testing.TB, b Batch, l Limits) (records []Record, err error) {
	t.Helper()
	for r, e := range b.Records(l) {
		if err != nil {
			t.Fatal("a step after an error")
		}
		if e != nil {
			if !cmp.Equal(r, Record{}) {
				t.Errorf("a record beside an error: %+v", r)
			}
			err = e
			continue
		}
		records = append(records, cloneRecord(r))
	}
	return records, err
}

// withRecords returns a sound batch of count records whose bytes are payload.
func withRecords(count int32, codec Compression, payload []byte) Batch {
	h := batchHeader{
		baseOffset: 10, leaderEpoch: 1, lastOffsetDelta: max(count-1, 0), count: count, attributes: Attributes(codec),
		baseTimestamp: exampleTime, maxTimestamp: exampleTime, producer: noProducer,
	}
	p := make([]byte, Overhead, Overhead+len(payload))
	if codec == None {
		p = append(p, payload...)
	} else {
		var err error
		if p, err = appendCompressed(p, codec, 0, payload); err != nil {
			panic(err)
		}
	}
	h.put(p)
	b, rest, err := Next(p)
	if err != nil || len(rest) != 0 || b.Validate() != nil {
		panic("not a sound batch")
	}
	return b
}

var goldenRecords = map[string][]Record{
	"plain": {{Timestamp: exampleTime, Sequence: -1, Key: []byte("k"), Value: []byte("v")}},
	"idempotent": {
		{Offset: 100, Timestamp: exampleTime + 10, Sequence: 2147483646, Value: []byte("a")},
		{Offset: 101, OffsetDelta: 1, Timestamp: exampleTime + 15, TimestampDelta: 5, Sequence: 2147483647, Key: []byte{}},
		{
			Offset: 102, OffsetDelta: 2, Timestamp: exampleTime + 7, TimestampDelta: -3, Sequence: 0,
			Key: []byte("k2"), Value: []byte{}, Headers: []Header{{"h", []byte("x")}, {"n", nil}},
		},
	},
	"commit": {{
		Offset: 103, Timestamp: exampleTime + 20, Sequence: -1, Key: []byte{0, 0, 0, 1}, Value: []byte{0, 0, 0, 0, 0, 9},
	}},
	"emptied": nil,
	"snappy":  {{Timestamp: exampleTime, Sequence: -1, Key: []byte("k"), Value: []byte("v")}},
	"lz4":     {{Timestamp: exampleTime, Sequence: -1, Key: []byte("k"), Value: []byte("v")}},
	"magic0":  {{Timestamp: NoTimestamp, Sequence: -1, Key: []byte("k"), Value: []byte("v")}},
	"magic1":  {{Timestamp: exampleTime, Sequence: -1, Key: []byte("k"), Value: []byte("v")}},
}

func TestRecords_Golden(t *testing.T) {
	for name, want := range goldenRecords {
		b := readHex(t, name)
		for range 2 { // the sequence can be walked again
			got, err := collect(t, b, Limits{})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: -want +got\n%s", name, diff)
			}
		}
	}
}

func TestRecords_LogAppendTime(t *testing.T) {
	b := Batch(bytes.Clone(readHex(t, "idempotent")))
	b.SetMaxTimestamp(LogAppendTime, 5)
	records, err := collect(t, b, Limits{})
	if err != nil || len(records) != 3 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	for i, delta := range []int64{0, 5, -3} {
		if records[i].Timestamp != 5 || records[i].TimestampDelta != delta {
			t.Errorf("record %d: time %d, delta %d", i, records[i].Timestamp, records[i].TimestampDelta)
		}
	}
}

// What follows the header of an emptied batch is not looked at.
func TestRecords_EmptiedWithPayload(t *testing.T) {
	for _, codec := range []Compression{None, Gzip, 7} {
		b := withRecords(0, None, []byte("anything"))
		b[posAttributes+1] = byte(codec)
		if records, err := collect(t, b, Limits{}); len(records) != 0 || err != nil {
			t.Errorf("%v: %d records, %v", codec, len(records), err)
		}
	}
}

func TestRecords_Faults(t *testing.T) {
	const good = "\x10\x00\x00\x00\x02k\x02v\x00" // key "k", value "v"
	huge, longest := string(appendVarint(nil, math.MaxInt32)), string(appendVarint(nil, DefaultMaxRecordBytes))
	tests := []struct {
		what    string
		count   int32
		payload string
		before  int // records yielded before the error
		field   string
		reason  string
		pos     int64
	}{
		{"no record", 1, "", 0, "length", reasonShort, 0},
		{"fewer records than counted", 2, good, 1, "length", reasonShort, 9},
		{"bytes after the last record", 1, good + "\x00", 1, "records", reasonLeftOver, 9},
		{"another record", 1, good + good, 1, "records", reasonLeftOver, 9},
		{"length cut", 1, "\x80", 0, "length", reasonShort, 0},
		{"length does not end", 1, "\x80\x80\x80\x80\x80\x00", 0, "length", reasonUnended, 0},
		{"length beyond the batch", 1, "\x12" + good[1:], 0, "length", reasonShort, 0},
		{"largest length", 1, longest + good[1:], 0, "length", reasonShort, 0},
		{"negative length", 1, "\x01" + good[1:], 0, "length", reasonNegative, 0},
		{"length above the contents", 1, "\x12" + good[1:] + "\x00", 0, "length", reasonLeftOver, 9},
		{"empty body", 1, "\x00", 0, "attributes", reasonShort, 1},
		{"ends after the attributes", 1, "\x02\x00", 0, "timestampDelta", reasonShort, 2},
		{"time does not end", 1, "\x18\x00" + strings.Repeat("\x80", 11), 0, "timestampDelta", reasonUnended, 2},
		{"ends after the time", 1, "\x04\x00\x00", 0, "offsetDelta", reasonShort, 3},
		{"offset does not end", 1, "\x10\x00\x00\x80\x80\x80\x80\x80\x00", 0, "offsetDelta", reasonUnended, 3},
		{"ends after the offset", 1, "\x06\x00\x00\x00", 0, "keyLength", reasonShort, 4},
		{"key beyond the record", 1, "\x10\x00\x00\x00\x0ek\x02v\x00", 0, "key", reasonShort, 5},
		{"largest key", 1, "\x14\x00\x00\x00" + huge + "v\x00", 0, "key", reasonShort, 9},
		{"ends after the key", 1, "\x0a\x00\x00\x00\x02k", 0, "valueLength", reasonShort, 6},
		{"value beyond the record", 1, "\x10\x00\x00\x00\x02k\x06v\x00", 0, "value", reasonShort, 7},
		{"ends after the value", 1, "\x0e\x00\x00\x00\x02k\x02v", 0, "headersCount", reasonShort, 8},
		{"negative number of headers", 1, "\x10\x00\x00\x00\x02k\x02v\x01", 0, "headersCount", reasonNegative, 9},
		{"more headers than bytes", 1, "\x10\x00\x00\x00\x02k\x02v\x02", 0, "headersCount", reasonLimit, 9},
		{"largest number of headers", 1, "\x18\x00\x00\x00\x02k\x02v" + huge, 0, "headersCount", reasonLimit, 13},
		{"null header key", 1, "\x14\x00\x00\x00\x02k\x02v\x02\x01\x01", 0, "headerKeyLength", reasonNegative, 10},
		{"header key beyond the record", 1, "\x14\x00\x00\x00\x02k\x02v\x02\x04h", 0, "headerKey", reasonShort, 10},
		{"ends after the header key", 1, "\x14\x00\x00\x00\x02k\x02v\x02\x02h", 0, "headerValueLength", reasonShort, 11},
		{"header value beyond the record", 1, "\x16\x00\x00\x00\x02k\x02v\x02\x02h\x02", 0, "headerValue", reasonShort, 12},
		{"ends after a header", 1, "\x16\x00\x00\x00\x02k\x02v\x04\x02h\x01", 0, "headerKeyLength", reasonShort, 12},
		{"negative count", -1, good, 0, "recordsCount", reasonNegative, 0},
		{"smallest count", math.MinInt32, good, 0, "recordsCount", reasonNegative, 0},
		{"largest count", math.MaxInt32, good, 1, "length", reasonShort, 9},
	}
	for _, tt := range tests {
		for _, codec := range []Compression{None, Gzip, Snappy, LZ4, Zstd} {
			b := withRecords(tt.count, codec, []byte(tt.payload))
			records, err := collect(t, b, Limits{})
			var r *RecordError
			if !errors.As(err, &r) || !errors.Is(err, ErrInvalidRecord) || !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s, %v: %v, want a RecordError", tt.what, codec, err)
				continue
			}
			if len(records) != tt.before || r.Field != tt.field || r.Reason != tt.reason {
				t.Errorf("%s, %v: %d records, then %v", tt.what, codec, len(records), err)
			}
			if r.Index != tt.before && tt.field != "recordsCount" {
				t.Errorf("%s, %v: record %d, want %d", tt.what, codec, r.Index, tt.before)
			}
			if wrongPos := r.Pos != tt.pos; wrongPos && tt.reason != reasonLeftOver && tt.field != "recordsCount" {
				t.Errorf("%s, %v: position %d, want %d", tt.what, codec, r.Pos, tt.pos)
			}
		}
	}
}

// Any negative length is null, and numbers may be longer than need be.
func TestRecords_Leniency(t *testing.T) {
	payload := []byte("\x1a\x7f\x80\x00\x00\x03\x0b\x04\x02h\x05\x00\x81\x00")
	payload[0] = byte((len(payload) - 1) * 2)
	for _, codec := range []Compression{None, Gzip} {
		records, err := collect(t, withRecords(1, codec, payload), Limits{})
		want := []Record{{
			Offset: 10, Timestamp: exampleTime, Sequence: -1, Headers: []Header{{"h", nil}, {"", nil}},
		}}
		if diff := cmp.Diff(want, records); err != nil || diff != "" {
			t.Errorf("%v: %v\n%s", codec, err, diff)
		}
	}
}

func TestRecords_Limit(t *testing.T) {
	body := bodySize(0, 0, Record{Value: make([]byte, 1000)})
	payload := appendRecord(nil, int32(body), 0, 0, Record{Value: make([]byte, 1000)})
	for _, tt := range []struct {
		codec Compression
		limit int
		ok    bool
	}{
		{Gzip, int(body), true}, {Gzip, int(body) - 1, false}, {Gzip, 0, true}, {Gzip, -1, true}, {Zstd, 1, false},
		{None, 1, true}, // never measured
	} {
		records, err := collect(t, withRecords(1, tt.codec, payload), Limits{MaxRecordBytes: tt.limit})
		var r *RecordError
		if tt.ok && (err != nil || len(records) != 1) {
			t.Errorf("%v, limit %d: %v", tt.codec, tt.limit, err)
		}
		if !tt.ok && (!errors.As(err, &r) || r.Field != "length" || r.Reason != reasonLimit || r.Got != body || r.Want != int64(tt.limit)) {
			t.Errorf("%v, limit %d: %v", tt.codec, tt.limit, err)
		}
	}
}

// A length of nearly 2 GiB in front of a few bytes costs a buffer of the size that is always there.
func TestRecords_ClaimsCostNothing(t *testing.T) {
	payload := appendVarint(nil, DefaultMaxRecordBytes)
	payload = append(payload, make([]byte, 100)...)
	for _, codec := range []Compression{Gzip, Snappy, LZ4, Zstd} {
		b := withRecords(1, codec, payload)
		collect(t, b, Limits{}) // fill the pools
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := collect(t, b, Limits{})
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrInvalidRecord) {
			t.Errorf("%v: %v", codec, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
			t.Errorf("%v: %d bytes allocated", codec, n)
		}
	}
}

func TestRecords_UnknownCodec(t *testing.T) {
	for codec := range 8 {
		b := Batch(bytes.Clone(readHex(t, "plain")))
		b[posAttributes+1] = byte(codec)
		if _, err := collect(t, b, Limits{}); codec > 4 && (!errors.Is(err, ErrUnsupportedCompression) || errors.Is(err, ErrCorrupt)) {
			t.Errorf("codec %d: %v", codec, err)
		} else if codec > 0 && codec <= 4 && codec != int(Snappy) && !errors.Is(err, ErrInvalidRecord) {
			t.Errorf("codec %d over plain records: %v", codec, err)
		}
	}
}

func TestRecords_CompressedPayloadCut(t *testing.T) {
	payload := appendRecord(nil, int32(bodySize(0, 0, Record{Value: make([]byte, 300)})), 0, 0, Record{Value: make([]byte, 300)})
	for _, codec := range []Compression{Gzip, Snappy, LZ4, Zstd} {
		whole := withRecords(1, codec, payload)
		for n := Overhead; n < len(whole); n++ {
			p := bytes.Clone(whole[:n])
			binary.BigEndian.PutUint32(p[posLength:], uint32(n-LogOverhead))
			Batch(p).updateCRC()
			records, err := collect(t, p, Limits{})
			if err == nil {
				t.Errorf("%v cut to %d of %d bytes: %d records and no error", codec, n, len(whole), len(records))
			} else if !errors.Is(err, ErrInvalidRecord) {
				t.Errorf("%v cut to %d of %d bytes: %v", codec, n, len(whole), err)
			}
		}
	}
}

func TestRecords_Stop(t *testing.T) {
	for _, codec := range []Compression{None, Zstd} {
		b := buildMany(t, codec, 100)
		n := 0
		for _, err := range b.Records(Limits{}) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n == 3 {
				break
			}
		}
		if n != 3 {
			t.Errorf("%v: %d steps", codec, n)
		}
	}
}

func buildMany(t testing.TB, codec Compression, n int) Batch {
	t.Helper()
	w := NewBuilder(BuilderOptions{Compression: codec})
	for i := range n {
		r := Record{Key: []byte("key"), Value: bytes.Repeat([]byte{byte(i)}, 100), Headers: []Header{{"trace", []byte("id")}}}
		if err := w.Append(exampleTime+int64(i), r); err != nil {
			t.Fatal(err)
		}
	}
	b, err := w.Batch()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRecords_ViewsOfTheBatch(t *testing.T) {
	b := readHex(t, "plain")
	for r, err := range b.Records(Limits{}) {
		if err != nil || &r.Value[0] != &b[len(b)-2] || cap(r.Value) != 1 || cap(r.Key) != 1 {
			t.Errorf("the value is not a view of the batch: %v", err)
		}
	}
}

func drain(b Batch) error {
	for _, err := range b.Records(Limits{}) {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestRecords_Allocations(t *testing.T) {
	perBatch := func(b Batch) float64 {
		return testing.AllocsPerRun(100, func() {
			if err := drain(b); err != nil {
				t.Fatal(err)
			}
		})
	}
	if n := perBatch(readHex(t, "plain")); n != 0 {
		t.Errorf("%v allocations for a record without headers", n)
	}
	// The storage of the headers and the key they share; nothing for a record.
	for _, n := range []int{10, 1000} {
		if a := perBatch(buildMany(t, None, n)); a != 2 {
			t.Errorf("%v allocations for %d records with headers", a, n)
		}
	}
	if a, b := perBatch(buildMany(t, Zstd, 10)), perBatch(buildMany(t, Zstd, 1000)); b > a+10 {
		t.Errorf("compressed: %v allocations for 10 records, %v for 1000", a, b)
	}
}

func BenchmarkRecords(b *testing.B) {
	for _, codec := range []Compression{None, LZ4, Zstd} {
		batch := buildMany(b, codec, 100)
		b.Run("codec="+codec.String()+"/records=100/value=100", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := drain(batch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestStream_Need(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 10000)
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "one byte": iotest.OneByteReader, "half": iotest.HalfReader,
		"data with the end": iotest.DataErrReader,
	} {
		s := &stream{src: wrap(bytes.NewReader(data)), buf: make([]byte, 16)}
		for at, step := 0, 1; at < len(data); step = step*3%7919 + 1 {
			n := min(step, len(data)-at)
			if !s.need(n) {
				t.Fatalf("%s: %v after %d bytes", name, s.err, at)
			}
			if s.pos() != int64(at) || !bytes.Equal(s.buf[s.r:s.r+n], data[at:at+n]) {
				t.Fatalf("%s: wrong bytes at %d, position %d", name, at, s.pos())
			}
			s.r, at = s.r+n, at+n
		}
		if s.need(1) || s.err != io.EOF {
			t.Errorf("%s: at the end: %v", name, s.err)
		}
		if len(s.buf) > 8192 {
			t.Errorf("%s: the buffer grew to %d bytes", name, len(s.buf))
		}
	}
}

type stuckReader struct{}

func (stuckReader) Read([]byte) (int, error) { return 0, nil }

func TestStream_Stuck(t *testing.T) {
	if s := (&stream{src: stuckReader{}, buf: make([]byte, 16)}); s.need(1) || s.err != io.ErrNoProgress {
		t.Errorf("got %v", s.err)
	}
}

func TestOffsetOfMaxTimestamp(t *testing.T) {
	build := func(o BuilderOptions, times ...int64) Batch {
		o.BaseOffset = 100
		w := NewBuilder(o)
		for _, ts := range times {
			if err := w.Append(ts, Record{}); err != nil {
				t.Fatal(err)
			}
		}
		b, err := w.Batch()
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Clone(b)
	}
	wrong := build(BuilderOptions{}, 5, 9, 7)
	wrong.SetMaxTimestamp(CreateTime, 1000)
	for _, tt := range []struct {
		what string
		b    Batch
		want int64
		ok   bool
	}{
		{"in the middle", build(BuilderOptions{}, 5, 9, 7), 101, true},
		{"compressed", build(BuilderOptions{Compression: LZ4}, 5, 9, 7), 101, true},
		{"the first of two", build(BuilderOptions{}, 5, 9, 9), 101, true},
		{"append time", build(BuilderOptions{TimestampType: LogAppendTime, AppendTime: 3}, 5, 9, 7), 100, true},
		{"no times", build(BuilderOptions{}, -1, -1), 0, false},
		{"no such record", wrong, 0, false},
		{"emptied", readHex(t, "emptied"), 0, false},
		{"magic 0", readHex(t, "magic0"), 0, false},
		{"magic 1", readHex(t, "magic1"), 0, true},
	} {
		if got, ok, err := tt.b.OffsetOfMaxTimestamp(Limits{}); got != tt.want || ok != tt.ok || err != nil {
			t.Errorf("%s: %d %v %v, want %d %v", tt.what, got, ok, err, tt.want, tt.ok)
		}
	}
	if _, _, err := withRecords(1, None, []byte{1}).OffsetOfMaxTimestamp(Limits{}); !errors.Is(err, ErrInvalidRecord) {
		t.Errorf("got %v", err)
	}
}
