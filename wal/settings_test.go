package wal

import (
	"errors"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/oncelog/oncelog/record"
)

// The defaults are those of Kafka 4.4, but for the ones that a log without replicas cannot live with.
func TestOptions_Defaults(t *testing.T) {
	day := 24 * time.Hour
	want := Options{
		SegmentBytes: 1073741824, SegmentAge: 7 * day, MaxIndexBytes: 10485760, IndexIntervalBytes: 4096,
		MaxMessageBytes: 1048588, MaxDecompressedBytes: 2147483639, TimestampBeforeMax: Never, TimestampAfterMax: time.Hour,
		CleanupPolicy: CleanupDelete, MaxCompactionLag: Never, RetentionAge: Never, FileDeleteDelay: time.Minute,
		SyncEvery: time.Second, SyncBytes: 16 << 20, SyncMessages: math.MaxInt64, GroupBytes: 1048588, CheckpointBytes: 64 << 20,
		ProducerIDExpiration: day, MaxTransactionTimeout: 15 * time.Minute,
	}
	got := Options{}.withDefaults()
	// What other tests are about, or what is no number.
	a, b := reflect.ValueOf(&want).Elem(), reflect.ValueOf(&got).Elem()
	for i := range a.NumField() {
		name := a.Type().Field(i).Name
		if f := a.Field(i); !f.IsZero() && f.Interface() != b.Field(i).Interface() {
			t.Errorf("%s is %v, want %v", name, b.Field(i).Interface(), f.Interface())
		}
	}
	if err := (Options{}).Validate(); err != nil {
		t.Error(err)
	}
}

// Every setting has its bounds, and the error names it.
func TestOptions_Validate(t *testing.T) {
	for name, o := range map[string]Options{
		"SegmentBytes":          {SegmentBytes: 13},
		"SegmentAge":            {SegmentAge: time.Microsecond},
		"SegmentJitter":         {SegmentJitter: -1},
		"MaxIndexBytes":         {MaxIndexBytes: 11},
		"IndexIntervalBytes":    {IndexIntervalBytes: -1},
		"MaxMessageBytes":       {MaxMessageBytes: -1},
		"MaxDecompressedBytes":  {MaxDecompressedBytes: -1},
		"TimestampBeforeMax":    {TimestampBeforeMax: -1},
		"TimestampAfterMax":     {TimestampAfterMax: -1},
		"MaxCompactionLag":      {MaxCompactionLag: -1},
		"RetentionBytes":        {RetentionBytes: -2},
		"RetentionAge":          {RetentionAge: -1},
		"FileDeleteDelay":       {FileDeleteDelay: -1},
		"SyncEvery":             {SyncEvery: -1},
		"SyncBytes":             {SyncBytes: -1},
		"SyncMessages":          {SyncMessages: -1},
		"CheckpointBytes":       {CheckpointBytes: -1},
		"ProducerIDExpiration":  {ProducerIDExpiration: -1},
		"MaxTransactionTimeout": {MaxTransactionTimeout: -1},
		"UnknownProducers":      {UnknownProducers: 9},
		"Sync":                  {Sync: 9},
		"DamagePolicy":          {DamagePolicy: 9},
		"CleanupPolicy":         {CleanupPolicy: 9},
		"Compression":           {Compression: Compression{Codec: record.LZ4, Level: 18}},
		"OpenSegments":          {OpenSegments: -1},
	} {
		if err := o.Validate(); !errors.Is(err, ErrInvalidOptions) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, c := range []struct {
		o    Options
		both [2]string
	}{
		{Options{GroupBytes: 1000, MaxMessageBytes: 2000}, [2]string{"GroupBytes (1000)", "MaxMessageBytes (2000)"}},
		{Options{Compat: true, DamagePolicy: Strict}, [2]string{"Compat", "DamagePolicy"}},
	} {
		err := c.o.Validate()
		for _, word := range c.both {
			if !errors.Is(err, ErrInvalidOptions) || !strings.Contains(err.Error(), word) {
				t.Errorf("%v does not name %s", err, word)
			}
		}
	}
	// What Kafka's 0 is.
	zero := Options{RetentionAge: 1, TimestampBeforeMax: 1, TimestampAfterMax: 1, FileDeleteDelay: 1, MaxMessageBytes: 1, RetentionBytes: RetainNothing}
	if err := zero.Validate(); err != nil {
		t.Error(err)
	}
}

// A segment rolls at its age less what chance takes off, never before the age less the jitter, nor later than the age.
func TestOptions_SegmentJitter(t *testing.T) {
	const age, jitter = time.Hour, 10 * time.Minute
	different := map[time.Duration]bool{}
	for range 20 {
		now := start
		l := openTest(t, t.TempDir(), Options{Sync: SyncNone, SegmentAge: age, SegmentJitter: jitter, Now: func() time.Time { return now }})
		put(t, l, Record{})
		if l.jitter < 0 || l.jitter >= jitter {
			t.Fatalf("jitter %v", l.jitter)
		}
		different[l.jitter] = true
		for _, step := range []struct {
			at       time.Duration
			segments int
		}{{age - l.jitter, 1}, {age - l.jitter + time.Millisecond, 2}} {
			now = start.Add(step.at)
			if put(t, l, Record{}); l.set.Len() != step.segments {
				t.Errorf("jitter %v, after %v: %d segments, want %d", l.jitter, step.at, l.set.Len(), step.segments)
			}
		}
	}
	if len(different) < 2 {
		t.Error("always the same jitter")
	}
	// More jitter than age takes the whole age at most.
	l := openTest(t, t.TempDir(), Options{Sync: SyncNone, SegmentAge: time.Second, SegmentJitter: time.Hour})
	if put(t, l, Record{}); l.jitter >= time.Second {
		t.Errorf("jitter %v", l.jitter)
	}
}

// Whatever codec a producer used, the log stores with its own, or as it came where it has none.
func TestOptions_CompressionType(t *testing.T) {
	codecs := []record.Compression{record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd}
	for _, sent := range codecs {
		for _, c := range append([]record.Compression{-1}, codecs...) {
			o, want := Options{Sync: SyncNone, manual: true}, sent
			if c >= 0 {
				o.Compression, want = Compression{Codec: c, Recompress: true}, c
			}
			l, _ := openMem(t, o)
			p := timedBatch(t, sent, 100, 200)
			info, err := l.AppendAsLeader(append([]byte(nil), p...), LeaderAppend{})
			if err != nil {
				t.Fatal(err)
			}
			b, err := l.batchAt(info.FirstOffset)
			if err != nil || b.Attributes().Compression() != want || b.Count() != 2 || info.LastOffset != 1 || b.MaxTimestamp() != 200 {
				t.Errorf("sent with %v to a log with %v: stored with %v, %+v, %v", sent, c, b.Attributes().Compression(), info, err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A level is for what the log compresses itself: one that differs makes no batch anew.
func TestOptions_CompressionLevel(t *testing.T) {
	var sizes []int
	value := []byte(strings.Repeat("some text that repeats itself in part, ", 40) + strings.Repeat("0123456789abcdef", 50))
	for _, level := range []int{1, 9} {
		l, _ := openMem(t, Options{Sync: SyncNone, manual: true, Compression: Compression{Codec: record.Gzip, Level: level, Recompress: true}})
		put(t, l, Record{Value: value})
		b, err := l.batchAt(0)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, b.Size())
		other := record.NewBuilder(record.BuilderOptions{Compression: record.Gzip, CompressionLevel: 10 - level})
		if err := other.Append(1, record.Record{Value: value}); err != nil {
			t.Fatal(err)
		}
		p, err := other.Batch()
		if err != nil {
			t.Fatal(err)
		}
		payload := string(p[record.Overhead:])
		if _, err := l.AppendAsLeader(append([]byte(nil), p...), LeaderAppend{}); err != nil {
			t.Fatal(err)
		}
		if b, err = l.batchAt(1); err != nil || string(b[record.Overhead:]) != payload {
			t.Errorf("a batch of the same codec was made anew, %v", err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if sizes[1] > sizes[0] {
		t.Errorf("gzip 1 and 9 make %v bytes", sizes)
	}
}

// Settings of the making of a segment hold from the next one on, as in Kafka.
func TestReconfigure_NextSegment(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{SegmentBytes: 4096, IndexIntervalBytes: 1})
	logSize := func() int64 {
		info, err := os.Stat(l.active.Path())
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	put(t, l, Record{})
	reconfigure(t, l, func(o *Options) { o.Preallocate, o.MaxIndexBytes = true, 24 })
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	if got := logSize(); got != 4096 {
		t.Errorf("the next segment's file has %d bytes, preallocated are 4096", got)
	}
	base := l.active.BaseOffset()
	for range 6 { // 24 bytes are three entries, or two times
		put(t, l, Record{})
	}
	if l.active.BaseOffset() == base {
		t.Error("an index of 24 bytes is never full")
	}
}
