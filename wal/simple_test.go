package wal

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oncelog/oncelog/record"
)

// values makes a record of each string.
func values(list ...string) []Record {
	recs := make([]Record, len(list))
	for i, v := range list {
		recs[i] = Record{Value: []byte(v)}
	}
	return recs
}

// contents collects what Records yields as "offset:value".
func contents(t testing.TB, l *Log, from int64) []string {
	t.Helper()
	var list []string
	for s, err := range l.Records(from) {
		if err != nil {
			t.Fatalf("after %v: %v", tail(list, 3), err)
		}
		list = append(list, fmt.Sprintf("%d:%s", s.Offset, s.Value))
	}
	return list
}

func wantContents(t testing.TB, l *Log, from int64, want ...string) {
	t.Helper()
	if got := contents(t, l, from); !slices.Equal(got, want) {
		t.Errorf("records from %d: %v, want %v", from, got, want)
	}
}

func TestAppend_ReadBack(t *testing.T) {
	for _, mode := range modes {
		for codec := record.None; codec <= record.Zstd; codec++ {
			t.Run(fmt.Sprint(mode, "/", codec), func(t *testing.T) {
				now := time.UnixMilli(1_700_000_000_123).UTC()
				o := Options{Sync: mode, Compression: Compression{Codec: codec}, Now: func() time.Time { return now }}
				dir := t.TempDir()
				l := openTest(t, dir, o)
				early := time.UnixMilli(77).UTC()
				in := []Record{
					{Key: []byte("k"), Value: []byte("v"), Headers: []record.Header{{Key: "a", Value: []byte("1")}, {Key: "a"}, {Key: "", Value: []byte{}}}},
					{Time: early},
					{Key: []byte{}, Value: []byte{}},
					{Value: bytes.Repeat([]byte("long "), 10_000)},
				}
				r, err := l.Append(in...)
				if err != nil || r != (Result{First: 0, Last: 3}) {
					t.Fatalf("%+v, %v", r, err)
				}
				if r, err = l.Append(in[1]); err != nil || r != (Result{First: 4, Last: 4}) {
					t.Fatalf("%+v, %v", r, err)
				}
				check := func() {
					t.Helper()
					var got []Stored
					for s, err := range l.Records(0) {
						if err != nil {
							t.Fatal(err)
						}
						got = append(got, s)
					}
					want := append(slices.Clone(in), in[1])
					if len(got) != len(want) {
						t.Fatalf("%d records", len(got))
					}
					for i, w := range want {
						g := got[i]
						if w.Time.IsZero() {
							w.Time = now
						}
						if g.Offset != int64(i) || !g.Time.Equal(w.Time) || !same(g.Key, w.Key) || !same(g.Value, w.Value) ||
							!slices.EqualFunc(g.Headers, w.Headers, func(a, b record.Header) bool { return a.Key == b.Key && same(a.Value, b.Value) }) {
							t.Errorf("record %d: %+v, want %+v", i, g, w)
						}
					}
				}
				check()
				b, err := l.batchAt(0)
				if err != nil || b.Attributes().Compression() != codec || b.Count() != 4 || b.HasProducerID() {
					t.Errorf("stored as %v, %v", b.Attributes(), err)
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				l = openTest(t, dir, o)
				check()
			})
		}
	}
}

// same tells nil from empty.
func same(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

func TestAppend_Refused(t *testing.T) {
	dir := t.TempDir()
	l := openTest(t, dir, Options{MaxMessageBytes: 500, SegmentBytes: 1000})
	var large *TooLargeError
	_, err := l.Append(append(values("a", "b"), Record{Value: make([]byte, 1<<20)})...)
	if !errors.As(err, &large) || !errors.Is(err, ErrMessageTooLarge) || large.Records != 3 || large.Bytes < 1<<20 || large.Limit != 500 {
		t.Errorf("giant record: %v", err)
	}
	if code, _ := ErrorCode(err); code != 10 || !strings.Contains(err.Error(), "3 records") {
		t.Errorf("code %d: %v", code, err)
	}
	if _, err := l.Append(); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("no records: %v", err)
	}
	for _, at := range []time.Time{time.UnixMilli(-1), time.Unix(-5, 0), time.Unix(math.MaxInt64/1000, 0), time.Now().Add(2 * time.Hour)} {
		var e *RecordsError
		_, err := l.Append(Record{}, Record{Time: at})
		if !errors.Is(err, ErrInvalidTimestamp) || !errors.As(err, &e) || len(e.Records) != 1 || e.Records[0].Index != 1 {
			t.Errorf("time %v: %v", at, err)
		}
	}
	if got := l.Offsets().LogEnd; got != 0 {
		t.Errorf("log end %d after refused appends", got)
	}
	if r, err := l.Append(values("a")...); err != nil || r.First != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	ro := openTest(t, dir, Options{ReadOnly: true})
	if _, err := ro.Append(values("a")...); !errors.Is(err, ErrReadOnly) {
		t.Errorf("read-only: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(values("a")...); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	for _, err := range l.Records(0) {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("Records of a closed log: %v", err)
		}
	}
}

func TestAppend_LimitIsExact(t *testing.T) {
	for _, codec := range []record.Compression{record.None, record.Gzip} {
		l := openTest(t, t.TempDir(), Options{Compression: Compression{Codec: codec}})
		b, err := (&batchBuilder{builder: record.NewBuilder(record.BuilderOptions{})}).build(l, values("some value"), &batchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for limit, ok := range map[int]bool{len(b): true, len(b) - 1: false} {
			l := openTest(t, t.TempDir(), Options{MaxMessageBytes: int32(limit), Compression: Compression{Codec: codec}})
			_, err := l.Append(values("some value")...)
			var large *TooLargeError
			if (err == nil) != ok || !ok && !errors.As(err, &large) {
				t.Errorf("%v: limit %d of %d bytes: %v", codec, limit, len(b), err)
			}
		}
	}
}

func TestAppend_CompactedLogNeedsKeys(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{CleanupPolicy: CleanupCompact})
	var e *RecordsError
	_, err := l.Append(Record{Key: []byte{}}, Record{})
	if !errors.As(err, &e) || !errors.Is(err, ErrInvalidRecord) || e.Records[0].Index != 1 {
		t.Errorf("%v", err)
	}
}

func TestAppend_LogAppendTime(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	l := openTest(t, t.TempDir(), Options{TimestampType: record.LogAppendTime, Now: func() time.Time { return now }})
	if _, err := l.Append(Record{Time: now.Add(-time.Hour)}); err != nil {
		t.Fatal(err)
	}
	for s, err := range l.Records(0) {
		if err != nil || !s.Time.Equal(now) {
			t.Errorf("%v, %v", s.Time, err)
		}
	}
}

// Old and future record times must not roll a segment each.
func TestAppend_RollsByTheAppendClock(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	o := Options{SegmentAge: time.Hour, Now: func() time.Time { return now }}
	l := openTest(t, t.TempDir(), o)
	for i := range 10 {
		if _, err := l.Append(Record{Time: now.Add(-time.Duration(9-i) * 24 * time.Hour)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := l.Stats().Segments; n != 1 {
		t.Errorf("%d segments", n)
	}
	now = now.Add(time.Hour + time.Millisecond)
	if _, err := l.Append(Record{}); err != nil {
		t.Fatal(err)
	}
	if n := l.Stats().Segments; n != 2 {
		t.Errorf("%d segments an hour later", n)
	}
}

// Where a broker has written before, its leader epoch goes on.
func TestAppend_KeepsTheLeaderEpoch(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{})
	if _, err := l.AppendAsLeader(producerBatch(t, 1, 0, 0, "x"), LeaderAppend{LeaderEpoch: 7}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(values("a")...); err != nil {
		t.Fatal(err)
	}
	if b, err := l.batchAt(1); err != nil || b.PartitionLeaderEpoch() != 7 {
		t.Errorf("leader epoch %d, %v", b.PartitionLeaderEpoch(), err)
	}
}

func TestCompressionOptions(t *testing.T) {
	for _, c := range []Compression{{Codec: 5}, {Codec: -1}, {Codec: record.Gzip, Level: 10}} {
		if err := (Options{Compression: c}).Validate(); !errors.Is(err, ErrInvalidOptions) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	// Without Recompress a ready batch stays as it is.
	l := openTest(t, t.TempDir(), Options{Compression: Compression{Codec: record.Zstd}})
	if _, err := l.AppendAsLeader(producerBatch(t, 1, 0, 0, "x"), LeaderAppend{}); err != nil {
		t.Fatal(err)
	}
	if b, err := l.batchAt(0); err != nil || b.Attributes().Compression() != record.None {
		t.Errorf("%v, %v", b.Attributes(), err)
	}
}
