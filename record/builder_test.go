package record

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// build returns a copy of the batch that a fresh builder makes of the records and their times.
func build(t testing.TB, o BuilderOptions, records ...Record) Batch {
	t.Helper()
	w := NewBuilder(o)
	for i, r := range records {
		if err := w.Append(r.Timestamp, r); err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
	}
	b, err := w.Batch()
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(b)
}

// The examples come out byte for byte, also the two whose records are too short to be compressed in more than one way.
func TestBuilder_Golden(t *testing.T) {
	for name, o := range map[string]BuilderOptions{
		"plain":  {PartitionLeaderEpoch: NoPartitionLeaderEpoch},
		"snappy": {PartitionLeaderEpoch: NoPartitionLeaderEpoch, Compression: Snappy},
		"lz4":    {PartitionLeaderEpoch: NoPartitionLeaderEpoch, Compression: LZ4},
		"idempotent": {
			Producer:   &Producer{ID: 0x1234, Epoch: 1, BaseSequence: 2147483646},
			BaseOffset: 100, PartitionLeaderEpoch: 7,
		},
		"commit": {
			Producer:      &Producer{ID: 0x1234, Epoch: 1, BaseSequence: NoSequence},
			Transactional: true, BaseOffset: 103, PartitionLeaderEpoch: 7, Rebuild: &Rebuild{Control: true},
		},
	} {
		got := build(t, o, goldenRecords[name]...)
		if want := readHex(t, name); !bytes.Equal(got, want) {
			t.Errorf("%s\n got % x\nwant % x", name, got, want)
		}
	}
}

func TestBuilder_CompressedHeader(t *testing.T) {
	for _, codec := range []Compression{Gzip, Snappy, LZ4, Zstd} {
		b := build(t, BuilderOptions{Compression: codec, PartitionLeaderEpoch: NoPartitionLeaderEpoch}, goldenRecords["plain"]...)
		got, want := headerOf(b), goldenHeaders["plain"]
		want.Size, want.CRC, want.Attributes = len(b), Checksum(b[posAttributes:]), Attributes(codec)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v: -want +got\n%s", codec, diff)
		}
		records, err := collect(t, b, Limits{})
		if diff := cmp.Diff(goldenRecords["plain"], records); err != nil || diff != "" {
			t.Errorf("%v: %v\n%s", codec, err, diff)
		}
	}
}

// The bytes that idempotence costs, by building the same batch with and without it: none, the fields are always there.
func TestBuilder_ProducerFieldsAbsent(t *testing.T) {
	with := build(t, BuilderOptions{Producer: &Producer{}}, Record{})
	without := build(t, BuilderOptions{}, Record{})
	if len(with) != len(without) {
		t.Errorf("%d bytes with a producer, %d without", len(with), len(without))
	}
	if with.ProducerID() != 0 || with.ProducerEpoch() != 0 || with.BaseSequence() != 0 || !with.HasProducerID() {
		t.Errorf("producer 0: %+v", headerOf(with))
	}
	if without.ProducerID() != -1 || without.ProducerEpoch() != -1 || without.BaseSequence() != -1 || without.HasProducerID() {
		t.Errorf("no producer: %+v", headerOf(without))
	}
}

func TestBuilder_Times(t *testing.T) {
	at := func(ts ...int64) (records []Record) {
		for _, ts := range ts {
			records = append(records, Record{Timestamp: ts})
		}
		return records
	}
	for _, tt := range []struct {
		what      string
		o         BuilderOptions
		records   []Record
		base, max int64
		firstTime int64
	}{
		{"the first is the base, not the smallest", BuilderOptions{}, at(50, 70, 20), 50, 70, 50},
		{"no times", BuilderOptions{}, at(-1, -1), -1, -1, -1},
		{"the first has none", BuilderOptions{}, at(-1, 9), -1, 9, -1},
		{"time 0", BuilderOptions{}, at(0), 0, 0, 0},
		{"the ends", BuilderOptions{}, at(-1, math.MaxInt64), -1, math.MaxInt64, -1},
		{"append time", BuilderOptions{TimestampType: LogAppendTime, AppendTime: 60}, at(50, 70), 50, 60, 60},
		{
			"delete horizon", BuilderOptions{Rebuild: &Rebuild{LastOffsetDelta: 5, HasDeleteHorizon: true, DeleteHorizon: 1000}},
			at(50), 1000, 50, 50,
		},
	} {
		b := build(t, tt.o, tt.records...)
		if b.BaseTimestamp() != tt.base || b.MaxTimestamp() != tt.max {
			t.Errorf("%s: base %d, max %d", tt.what, b.BaseTimestamp(), b.MaxTimestamp())
		}
		records, err := collect(t, b, Limits{})
		if err != nil || records[0].Timestamp != tt.firstTime {
			t.Errorf("%s: first time %d, %v", tt.what, records[0].Timestamp, err)
		}
		if tt.o.TimestampType == CreateTime {
			for i := range records {
				if records[i].Timestamp != tt.records[i].Timestamp {
					t.Errorf("%s: record %d: time %d, want %d", tt.what, i, records[i].Timestamp, tt.records[i].Timestamp)
				}
			}
		}
	}
}

func TestBuilder_RefusesAndStaysAsItWas(t *testing.T) {
	rebuild := BuilderOptions{Rebuild: &Rebuild{LastOffsetDelta: 5}}
	gib := make([]byte, 1<<30) // never touched, so it takes no memory
	huge := Record{Headers: []Header{{"a", gib}, {"b", gib}}}
	for _, tt := range []struct {
		what string
		o    BuilderOptions
		ts   int64
		r    Record
		want error
	}{
		{"time -2", BuilderOptions{}, -2, Record{}, ErrInvalidTimestamp},
		{"smallest time", BuilderOptions{}, math.MinInt64, Record{}, ErrInvalidTimestamp},
		{"two GiB", BuilderOptions{}, 0, huge, ErrBatchTooLarge},
		{"two GiB in one value", BuilderOptions{}, 0, Record{Value: gib, Key: gib}, ErrBatchTooLarge},
		{"last offset", BuilderOptions{BaseOffset: math.MaxInt64 - 1}, 0, Record{}, ErrBatchTooLarge},
		{"same delta", rebuild, 0, Record{OffsetDelta: 0}, ErrInvalidRecord},
		{"lower delta", rebuild, 0, Record{OffsetDelta: -1}, ErrInvalidRecord},
		{"delta above the last", rebuild, 0, Record{OffsetDelta: 6}, ErrInvalidRecord},
	} {
		w := NewBuilder(tt.o)
		if err := w.Append(7, Record{Value: []byte("good")}); err != nil {
			t.Fatalf("%s: %v", tt.what, err)
		}
		size := w.Size()
		if err := w.Append(tt.ts, tt.r); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.what, err, tt.want)
		}
		if w.Size() != size || w.Count() != 1 {
			t.Errorf("%s: %d records, %d bytes, was 1 and %d", tt.what, w.Count(), w.Size(), size)
		}
		if b, err := w.Batch(); err != nil || !bytes.Equal(b, build(t, tt.o, Record{Timestamp: 7, Value: []byte("good")})) {
			t.Errorf("%s: the batch changed: %v", tt.what, err)
		}
	}
}

func TestBuilder_TooManyRecords(t *testing.T) {
	w := NewBuilder(BuilderOptions{})
	w.last, w.head.count = math.MaxInt32-2, math.MaxInt32-1 // as if so many had been appended
	if err := w.Append(0, Record{}); err != nil || w.head.count != math.MaxInt32 {
		t.Fatalf("record 2^31-1: %v", err)
	}
	if err := w.Append(0, Record{}); !errors.Is(err, ErrBatchTooLarge) {
		t.Errorf("record 2^31: %v", err)
	}
}

func TestBuilder_Gaps(t *testing.T) {
	o := BuilderOptions{Producer: &Producer{BaseSequence: 40}, BaseOffset: 1000, Rebuild: &Rebuild{LastOffsetDelta: 9}}
	b := build(t, o, Record{OffsetDelta: 2}, Record{OffsetDelta: 3}, Record{OffsetDelta: 8})
	if b.Count() != 3 || b.LastOffset() != 1009 || b.LastSequence() != 49 || b.CheckHeader() != nil {
		t.Errorf("%+v, %v", headerOf(b), b.CheckHeader())
	}
	records, err := collect(t, b, Limits{})
	if err != nil || len(records) != 3 || records[2].Offset != 1008 || records[2].Sequence != 48 {
		t.Errorf("%+v, %v", records, err)
	}
	// Without Rebuild the deltas of the records do not count.
	if b := build(t, BuilderOptions{}, Record{OffsetDelta: 7}, Record{OffsetDelta: -4}); b.LastOffsetDelta() != 1 {
		t.Errorf("last delta %d", b.LastOffsetDelta())
	}
}

func TestBuilder_State(t *testing.T) {
	w := NewBuilder(BuilderOptions{})
	if _, err := w.Batch(); !errors.Is(err, ErrBuilderState) {
		t.Errorf("Batch of nothing: %v", err)
	}
	if err := w.Append(0, Record{}); err != nil {
		t.Fatal(err)
	}
	first, err := w.Batch()
	if err != nil || cap(first) != len(first) {
		t.Fatalf("capacity %d of %d, %v", cap(first), len(first), err)
	}
	first.SetBaseOffset(99)
	if again, err := w.Batch(); err != nil || &again[0] != &first[0] || again.BaseOffset() != 99 {
		t.Errorf("Batch again: %v", err)
	}
	if err := w.Append(0, Record{}); !errors.Is(err, ErrBuilderState) {
		t.Errorf("Append after Batch: %v", err)
	}
	w.Reset(BuilderOptions{Compression: Zstd, Transactional: true, Producer: &Producer{}})
	w.Reset(BuilderOptions{})
	if w.Count() != 0 || w.Size() != Overhead {
		t.Errorf("after Reset: %d records, %d bytes", w.Count(), w.Size())
	}
	if err := w.Append(0, Record{}); err != nil {
		t.Fatal(err)
	}
	if b, err := w.Batch(); err != nil || !bytes.Equal(b, build(t, BuilderOptions{}, Record{})) {
		t.Errorf("after Reset: %v\n% x", err, b)
	}
}

func TestBuilderOptions_Validate(t *testing.T) {
	level := BuilderOptions{Compression: Gzip, CompressionLevel: 99}
	for _, o := range []BuilderOptions{
		{Producer: &Producer{ID: -1}},
		{Producer: &Producer{Epoch: -1}},
		{Producer: &Producer{BaseSequence: -1}},
		{Transactional: true},
		{Compression: 5},
		level,
		{TimestampType: NoTimestampType},
		{TimestampType: 2},
		{TimestampType: LogAppendTime, AppendTime: -1},
		{BaseOffset: -1},
		{PartitionLeaderEpoch: -2},
		{Rebuild: &Rebuild{LastOffsetDelta: -1}},
		{Rebuild: &Rebuild{HasDeleteHorizon: true, DeleteHorizon: -1}},
	} {
		if err := o.Validate(); !errors.Is(err, ErrInvalidOptions) {
			t.Errorf("%+v: %v", o, err)
		}
		w := NewBuilder(o)
		if err := w.Append(0, Record{}); !errors.Is(err, ErrInvalidOptions) {
			t.Errorf("%+v: Append: %v", o, err)
		}
		if _, err := w.Batch(); !errors.Is(err, ErrInvalidOptions) {
			t.Errorf("%+v: Batch: %v", o, err)
		}
	}
	if err := level.Validate(); !errors.Is(err, ErrCompressionLevel) {
		t.Errorf("the level: %v", err)
	}
	for _, o := range []BuilderOptions{
		{}, {Producer: &Producer{}}, {PartitionLeaderEpoch: -1},
		{Producer: &Producer{ID: -5, Epoch: -1, BaseSequence: -1}, Rebuild: &Rebuild{}},
	} {
		if err := o.Validate(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestBuilder_Allocations(t *testing.T) {
	key, value := []byte("key"), bytes.Repeat([]byte("value "), 100)
	r := Record{Key: key, Value: value, Headers: []Header{{"h", value}}}
	for _, codec := range []Compression{None, Snappy, LZ4, Zstd} {
		w := NewBuilder(BuilderOptions{})
		p := Producer{ID: 1}
		n := testing.AllocsPerRun(100, func() {
			w.Reset(BuilderOptions{Producer: &p, Transactional: true, Compression: codec})
			for i := range 100 {
				if err := w.Append(int64(i), r); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := w.Batch(); err != nil {
				t.Fatal(err)
			}
		})
		// A pool may lose what it holds, and does so on purpose under the race detector; hence the room for codecs.
		if codec == None && n != 0 || n > 20 {
			t.Errorf("%v: %v allocations a batch", codec, n)
		}
	}
}

func anyBytes() *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return []byte{}
		case 2:
			return bytes.Repeat([]byte{rapid.Byte().Draw(t, "fill")}, rapid.IntRange(0, 70000).Draw(t, "size"))
		}
		return rapid.SliceOfN(rapid.Byte(), 1, 100).Draw(t, "bytes")
	})
}

func anyRecord() *rapid.Generator[Record] {
	time := rapid.OneOf(rapid.Int64Range(-1, 3), rapid.Int64Range(exampleTime-100, exampleTime+100), rapid.Int64Range(-1, math.MaxInt64))
	return rapid.Custom(func(t *rapid.T) Record {
		r := Record{Timestamp: time.Draw(t, "time"), Key: anyBytes().Draw(t, "key"), Value: anyBytes().Draw(t, "value")}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			r.Headers = append(r.Headers, Header{rapid.String().Draw(t, "name"), anyBytes().Draw(t, "header")})
		}
		return r
	})
}

func anyOptions() *rapid.Generator[BuilderOptions] {
	return rapid.Custom(func(t *rapid.T) BuilderOptions {
		o := BuilderOptions{
			Compression:          Compression(rapid.IntRange(0, 4).Draw(t, "codec")),
			TimestampType:        TimestampType(rapid.IntRange(0, 1).Draw(t, "type")),
			BaseOffset:           rapid.Int64Range(0, math.MaxInt64-1000).Draw(t, "offset"),
			PartitionLeaderEpoch: rapid.Int32Range(-1, math.MaxInt32).Draw(t, "epoch"),
		}
		if o.TimestampType == LogAppendTime {
			o.AppendTime = rapid.Int64Range(0, math.MaxInt64).Draw(t, "append time")
		}
		if rapid.Bool().Draw(t, "idempotent") {
			o.Producer = &Producer{
				ID:           rapid.Int64Range(0, math.MaxInt64).Draw(t, "id"),
				Epoch:        rapid.Int16Range(0, math.MaxInt16).Draw(t, "producer epoch"),
				BaseSequence: rapid.OneOf(rapid.Int32Range(0, 9), rapid.Int32Range(math.MaxInt32-3, math.MaxInt32)).Draw(t, "sequence"),
			}
			o.Transactional = rapid.Bool().Draw(t, "transactional")
		}
		return o
	})
}

// expect fills in what the batch decides about a record.
func expect(o BuilderOptions, records []Record) []Record {
	want := make([]Record, len(records))
	for i, r := range records {
		r.TimestampDelta = r.Timestamp - records[0].Timestamp
		if o.Rebuild == nil {
			r.OffsetDelta = int32(i)
		}
		r.Offset = o.BaseOffset + int64(r.OffsetDelta)
		if o.TimestampType == LogAppendTime {
			r.Timestamp = o.AppendTime
		}
		r.Sequence = NoSequence
		if o.Producer != nil {
			r.Sequence = IncrementSequence(o.Producer.BaseSequence, r.OffsetDelta)
		}
		want[i] = r
	}
	return want
}

func TestBuilder_RoundTrip(t *testing.T) {
	w := NewBuilder(BuilderOptions{})
	rapid.Check(t, func(t *rapid.T) {
		o := anyOptions().Draw(t, "options")
		records := rapid.SliceOfN(anyRecord(), 1, 8).Draw(t, "records")
		if rapid.Bool().Draw(t, "gaps") {
			o.Rebuild = &Rebuild{}
			for i := range records {
				records[i].OffsetDelta = o.Rebuild.LastOffsetDelta + rapid.Int32Range(0, 5).Draw(t, "gap")
				o.Rebuild.LastOffsetDelta = records[i].OffsetDelta + 1
			}
		}
		w.Reset(o)
		for i, r := range records {
			size := w.SizeWith(r.Timestamp, r)
			if err := w.Append(r.Timestamp, r); err != nil {
				t.Fatalf("record %d: %v", i, err)
			}
			if int64(w.Size()) != size {
				t.Fatalf("record %d: size %d, announced %d", i, w.Size(), size)
			}
		}
		b, err := w.Batch()
		if err != nil || w.Size() != len(b) {
			t.Fatal(err)
		}
		cut, rest, err := Next(b)
		if err != nil || len(rest) != 0 || cut.Validate() != nil || cut.CheckHeader() != nil {
			t.Fatalf("Next: %v, %d bytes left; %v; %v", err, len(rest), cut.Validate(), cut.CheckHeader())
		}
		var got []Record
		for r, err := range cut.Records(Limits{}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, cloneRecord(r))
		}
		if diff := cmp.Diff(expect(o, records), got); diff != "" {
			t.Fatalf("-want +got\n%s", diff)
		}
	})
}

func BenchmarkBuilder(b *testing.B) {
	for _, codec := range []Compression{None, LZ4} {
		b.Run("codec="+codec.String()+"/records=10/value=100", func(b *testing.B) {
			value := make([]byte, 100)
			w := NewBuilder(BuilderOptions{})
			b.ReportAllocs()
			for b.Loop() {
				w.Reset(BuilderOptions{Compression: codec})
				for range 10 {
					if err := w.Append(exampleTime, Record{Value: value}); err != nil {
						b.Fatal(err)
					}
				}
				if _, err := w.Batch(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
