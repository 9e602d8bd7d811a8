package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func addGolden(f *testing.F, add func(b Batch)) {
	f.Helper()
	for name := range goldenHeaders {
		add(readHex(f, name))
	}
	for _, codec := range []Compression{None, Gzip, Snappy, LZ4, Zstd} {
		add(buildMany(f, codec, 3))
	}
}

// Whatever the bytes are, the batches that are cut from them lie end to end, every accessor of them returns, and the error
// at the end is one of the four kinds.
func FuzzNext(f *testing.F) {
	addGolden(f, func(b Batch) {
		f.Add([]byte(b))
		f.Add(append(bytes.Clone(b), b[:len(b)/2]...))
	})
	log, _ := goldenLog(f)
	f.Add(log)
	f.Fuzz(func(t *testing.T, p []byte) {
		end := 0
		for b, err := range All(p) {
			if err != nil {
				kinds := 0
				for _, kind := range []error{ErrTruncated, ErrCorrupt, ErrMagic, io.EOF} {
					if errors.Is(err, kind) {
						kinds++
					}
				}
				if kinds != 1 || err == io.EOF || end == len(p) {
					t.Fatalf("after %d of %d bytes: %v", end, len(p), err)
				}
				return
			}
			if !bytes.Equal(b, p[end:end+len(b)]) || int(binary.BigEndian.Uint32(b[8:]))+12 != len(b) {
				t.Fatalf("batch at %d: wrong bytes", end)
			}
			end += b.Size()
			h := headerOf(b)
			if h.NextOffset != h.LastOffset+1 || h.Magic < 0 || h.Magic > 2 {
				t.Fatalf("%+v", h)
			}
			b.TimestampType()
			b.DeleteHorizon()
			b.Identity(0, 0)
			if err := b.Validate(); err != nil && !errors.Is(err, ErrChecksum) {
				t.Fatal(err)
			}
			if err := b.CheckHeader(); err == nil && (h.LastOffset < 0 || h.NextOffset <= h.LastOffset || int64(h.Count) > int64(h.LastOffsetDelta)+1) {
				t.Fatalf("a sound header: %+v", h)
			}
		}
		if end != len(p) {
			t.Fatalf("the walk ended at %d of %d bytes without an error", end, len(p))
		}
	})
}

// Whatever the records are, in a batch whose length and checksum are right, reading them ends with records or with an
// error, and what could be read is read again from what is written of it.
func FuzzRecords(f *testing.F) {
	addGolden(f, func(b Batch) { f.Add([]byte(b)) })
	f.Fuzz(func(t *testing.T, p []byte) {
		b := repaired(p)
		if b == nil {
			return
		}
		if err := b.Validate(); b.Magic() == Magic && err != nil {
			t.Fatal(err)
		}
		var records []Record
		for r, err := range b.Records(Limits{MaxRecordBytes: 1 << 20}) {
			if err != nil {
				if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupportedCompression) {
					t.Fatalf("an error of no known kind: %v", err)
				}
				return
			}
			if records = append(records, cloneRecord(r)); len(records) == 1000 {
				return
			}
		}
		if b.Magic() == Magic && len(records) != int(max(b.Count(), 0)) {
			t.Fatalf("%d records of %d without an error", len(records), b.Count())
		}
		if b.Magic() == Magic {
			writeAgain(t, b, records)
		}
	})
}

// repaired makes p a batch with the right length and checksum, nil if it is too short for one.
func repaired(p []byte) Batch {
	p = bytes.Clone(p)
	if len(p) < HeaderUpToMagic {
		return nil
	}
	binary.BigEndian.PutUint32(p[posLength:], uint32(len(p)-LogOverhead))
	b, _, err := Next(p)
	if err != nil {
		return nil
	}
	if b.Magic() == Magic {
		b.updateCRC()
	}
	return b
}

// writeAgain rebuilds the batch from its records and compares what is read from both. Records that a builder refuses, for
// their times or deltas, are legal to read and left alone.
func writeAgain(t *testing.T, b Batch, records []Record) {
	o := b.RebuildOptions()
	o.Compression = None
	w := NewBuilder(o)
	for _, r := range records {
		if w.Append(r.Timestamp, r) != nil {
			return
		}
	}
	again, err := w.Batch()
	if err != nil {
		return
	}
	got, err := collect(t, again, Limits{})
	if err != nil {
		t.Fatalf("not readable after writing it again: %v", err)
	}
	for i := range got {
		got[i].TimestampDelta = records[i].TimestampDelta
	}
	if diff := cmp.Diff(records, got); diff != "" {
		t.Fatalf("-first +again\n%s", diff)
	}
}

// What a builder accepts is read back as it was given.
func FuzzBuilderRoundTrip(f *testing.F) {
	f.Add(int64(exampleTime), int64(3), []byte("key"), []byte("value"), "header", []byte("x"), uint8(0), uint8(0), uint8(3))
	f.Add(int64(-1), int64(0), []byte{}, []byte{}, "", []byte{}, uint8(4), uint8(7), uint8(1))
	f.Add(int64(1<<62), int64(-1<<40), []byte("k"), []byte("v"), "h", []byte(nil), uint8(3), uint8(0x18), uint8(9))
	f.Fuzz(func(t *testing.T, ts, step int64, key, value []byte, name string, header []byte, codec, shape, n uint8) {
		o := BuilderOptions{Compression: Compression(codec % 5)}
		if shape&0x08 != 0 {
			o.Producer = &Producer{ID: 1, BaseSequence: 2147483646}
		}
		if shape&0x10 != 0 {
			o.TimestampType, o.AppendTime = LogAppendTime, 12
		}
		r := Record{Key: orNull(key, shape&1), Value: orNull(value, shape&2), Headers: []Header{{name, orNull(header, shape&4)}}}
		if shape&0x20 != 0 {
			r.Headers = nil
		}
		w := NewBuilder(o)
		var records []Record
		for i := range int64(n) {
			r.Timestamp = ts + i*step
			if err := w.Append(r.Timestamp, r); err != nil {
				if r.Timestamp >= NoTimestamp || !errors.Is(err, ErrInvalidTimestamp) {
					t.Fatal(err)
				}
				continue
			}
			records = append(records, r)
		}
		b, err := w.Batch()
		if len(records) == 0 {
			if !errors.Is(err, ErrBuilderState) {
				t.Fatal(err)
			}
			return
		}
		if err != nil || b.Validate() != nil || b.CheckHeader() != nil {
			t.Fatalf("%v; %v; %v", err, b.Validate(), b.CheckHeader())
		}
		got, err := collect(t, b, Limits{})
		if diff := cmp.Diff(expect(o, records), got); err != nil || diff != "" {
			t.Fatalf("%v\n-want +got\n%s", err, diff)
		}
	})
}

// orNull returns p as the encoder sees it: null if the bit is set, else not nil.
func orNull(p []byte, bit uint8) []byte {
	if bit != 0 {
		return nil
	}
	return append([]byte{}, p...)
}
