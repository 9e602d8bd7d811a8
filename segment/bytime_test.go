package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/record"
)

// timed draws batches with random times, codecs and gaps.
func timed(t *testing.T, r *rapid.T, n int) []record.Batch {
	var list []record.Batch
	next := int64(100)
	for range rapid.IntRange(0, n).Draw(r, "batches") {
		k := rapid.IntRange(1, 4).Draw(r, "records")
		list = append(list, spec{
			base: next, records: k, value: rapid.IntRange(0, 40).Draw(r, "value"), epoch: int32(next % 7),
			times: rapid.SliceOfN(rapid.Int64Range(0, 60), k, k).Draw(r, "times"),
			codec: rapid.SampledFrom([]record.Compression{record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd}).Draw(r, "codec"),
		}.batch(t))
		next += int64(k) + rapid.Int64Range(0, 2).Draw(r, "gap")
	}
	return list
}

type stamped struct {
	TimestampHit
	batchLast int64
}

func stampsOf(t *rapid.T, batches []record.Batch) (all []stamped) {
	for _, b := range batches {
		for r, err := range b.Records(record.Limits{}) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, stamped{TimestampHit{r.Timestamp, r.Offset, b.PartitionLeaderEpoch()}, b.LastOffset()})
		}
	}
	return all
}

// Look-ups by time give what a search through all records gives, with the index that was written, with one cut after any
// entry, with none, and with random bytes.
func TestByTime_Model(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		st := memory(t)
		batches := timed(t, r, 25)
		all := stampsOf(r, batches)
		c := Config{IndexIntervalBytes: rapid.Int32Range(1, 300).Draw(r, "interval")}
		s := st.create(t, 100, c, batches...)
		checkByTime(r, s, all)
		ok(t, s.Seal())
		ok(t, s.Close())
		p := st.read(t, KindTimeIndex, 100)
		switch rapid.IntRange(0, 4).Draw(r, "damage") {
		case 1:
			p = p[:rapid.IntRange(0, len(p)).Draw(r, "cut")]
		case 2:
			p = rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(r, "random")
		case 3:
			p = append(p, make([]byte, 12*rapid.IntRange(1, 20).Draw(r, "zeros"))...)
		case 4:
			clear(p)
		}
		st.write(t, KindTimeIndex, 100, p)
		for _, kafka := range []bool{false, true} {
			c.KafkaIndexes = kafka
			s = Open(st.FS, st.dir, 100, c)
			checkByTime(r, s, all)
			ok(t, s.Close())
		}
	})
}

func checkByTime(t *rapid.T, s *Segment, all []stamped) {
	want := stamped{TimestampHit{Timestamp: -1}, 100}
	for _, x := range all {
		if x.Timestamp > want.Timestamp {
			want = x
		}
	}
	if got, err := s.MaxTimestamp(); err != nil || got != (index.TimestampOffset{Timestamp: want.Timestamp, Offset: want.batchLast}) {
		t.Fatalf("newest %+v, %v; want %+v", got, err, want)
	}
	if got, found, err := s.FindMaxTimestamp(ToEnd); err != nil || found != (len(all) > 0) || found && got != want.TimestampHit {
		t.Fatalf("record with the newest time %+v, %v, %v; want %+v", got, found, err, want)
	}
	for _, from := range []int64{0, 100, 110, 123, 1000} {
		for ts := int64(-1); ts <= 62; ts++ {
			var want TimestampHit
			found := false
			for _, x := range all {
				if found = x.Timestamp >= ts && x.Offset >= from; found {
					want = x.TimestampHit
					break
				}
			}
			if got, ok, err := s.OffsetByTimestamp(ts, from, ToEnd); err != nil || ok != found || got != want {
				t.Fatalf("time %d from %d: %+v %v %v; want %+v", ts, from, got, ok, err, want)
			}
		}
	}
}

// The offset of the greatest time is that of the record, however the batch came here.
func TestFindMaxTimestamp_Compressed(t *testing.T) {
	st := memory(t)
	batch := spec{base: 0, records: 3, times: []int64{5, 9, 7}, codec: record.Gzip}.batch(t)
	s := st.create(t, 0, Config{}, batch)
	want := TimestampHit{Timestamp: 9, Offset: 1}
	for _, step := range []func() error{func() error { return nil }, s.Seal, s.Park, s.ResetIndexes} {
		ok(t, step())
		if got, found, err := s.FindMaxTimestamp(ToEnd); err != nil || !found || got != want {
			t.Errorf("%+v %v %v", got, found, err)
		}
	}
}

// A batch that compaction has emptied keeps its greatest time; no record has it any more.
func TestFindMaxTimestamp_EmptiedBatch(t *testing.T) {
	st := memory(t)
	emptied := golden(t, goldenEmptied)
	after := spec{base: 110, records: 2, times: []int64{40, 30}}.batch(t)
	s := st.create(t, 90, Config{}, spec{base: 90, records: 1, times: []int64{20}}.batch(t), emptied, after)
	if got, err := s.MaxTimestamp(); err != nil || got.Timestamp != emptied.MaxTimestamp() {
		t.Errorf("%+v %v", got, err)
	}
	if got, found, err := s.FindMaxTimestamp(ToEnd); err != nil || !found || got != (TimestampHit{Timestamp: 40, Offset: 110}) {
		t.Errorf("%+v %v %v", got, found, err)
	}
	if got, found, err := s.OffsetByTimestamp(50, 0, ToEnd); err != nil || found {
		t.Errorf("%+v %v %v", got, found, err)
	}
}

// Zeros at the end of the time index, or in place of it, must not make a fresh segment look old.
func TestLargestTimestamp_ZeroTimeIndex(t *testing.T) {
	storages(t, func(t *testing.T, st storage) {
		s := st.create(t, 0, Config{IndexIntervalBytes: 100}, row(t, 0, 50, 50)...)
		ok(t, s.Seal())
		ok(t, s.Close())
		good := st.read(t, KindTimeIndex, 0)
		for name, p := range map[string][]byte{
			"12 zeros": append(bytes.Clone(good), make([]byte, 12)...), "1200 zeros": append(bytes.Clone(good), make([]byte, 1200)...),
			"only zeros": make([]byte, len(good)), "nothing": nil, "last entry lost": good[:len(good)-12], "odd": good[:len(good)-5],
			"time 0": make([]byte, 12),
		} {
			st.write(t, KindTimeIndex, 0, p)
			for _, kafka := range []bool{false, true} {
				s := Open(st.FS, st.dir, 0, Config{KafkaIndexes: kafka})
				if ts, err := s.LargestTimestamp(); err != nil || ts != startTime+49 {
					t.Errorf("%s, kafka %v: %d, %v", name, kafka, ts, err)
				}
				if ts, err := s.FirstTimestamp(); err != nil || ts != startTime {
					t.Errorf("%s: first %d, %v", name, ts, err)
				}
				ok(t, s.Close())
			}
		}
	})
}

func TestLargestTimestamp_Fallback(t *testing.T) {
	storages(t, func(t *testing.T, st storage) {
		s := st.create(t, 0, Config{})
		modified := func() int64 {
			info, err := st.Stat(s.Path())
			ok(t, err)
			return info.ModTime.UnixMilli()
		}
		if ts, err := s.LargestTimestamp(); err != nil || ts != modified() {
			t.Errorf("empty: %d, %v", ts, err)
		}
		if ts, err := s.FirstTimestamp(); err != nil || ts != record.NoTimestamp {
			t.Errorf("empty: first %d, %v", ts, err)
		}
		ok(t, s.Append(golden(t, goldenMagic0)))
		if ts, err := s.LargestTimestamp(); err != nil || ts != modified() {
			t.Errorf("magic 0: %d, %v", ts, err)
		}
		ok(t, s.Close())
		// A damaged segment counts as being as young as its file at least.
		bad := join(spec{base: 0, records: 1, times: []int64{5}}.batch(t), some(t, 1, 1))
		bad[len(bad)-len(some(t, 1, 1))+16] = 7
		s = st.log(t, 0, Config{ReadOnly: true}, bad)
		var corrupt *CorruptError
		if _, err := s.MaxTimestamp(); !errors.As(err, &corrupt) {
			t.Errorf("damaged: %v", err)
		}
		if ts, err := s.LargestTimestamp(); err != nil || ts != modified() || time.Since(time.UnixMilli(ts)) > 10*365*24*time.Hour {
			t.Errorf("damaged: %d, %v", ts, err)
		}
	})
}

// A time index whose entries name real batches with other times is not believed.
func TestByTime_WrongEntry(t *testing.T) {
	st := memory(t)
	batches := row(t, 0, 20, 10)
	s := st.create(t, 0, Config{}, batches...)
	ok(t, s.Seal())
	ok(t, s.Close())
	e := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, startTime+3), 15)
	st.write(t, KindTimeIndex, 0, e)
	s = Open(st.FS, st.dir, 0, Config{})
	defer s.Close()
	if got, found, err := s.OffsetByTimestamp(startTime+5, 0, ToEnd); err != nil || !found || got.Offset != 5 {
		t.Errorf("%+v %v %v", got, found, err)
	}
	if got, err := s.MaxTimestamp(); err != nil || got.Timestamp != startTime+19 {
		t.Errorf("%+v %v", got, err)
	}
	if s.Suspects() == 0 {
		t.Error("nothing was noticed")
	}
}

// Records that would take more than the limits are refused while looking for a time.
func TestOffsetByTimestamp_Limits(t *testing.T) {
	st := memory(t)
	s := st.create(t, 0, Config{Limits: func() record.Limits { return record.Limits{MaxRecordBytes: 100} }},
		spec{base: 0, records: 1, value: 5000, codec: record.Gzip}.batch(t), some(t, 1, 1))
	if _, _, err := s.OffsetByTimestamp(startTime, 0, ToEnd); !errors.Is(err, record.ErrInvalidRecord) {
		t.Errorf("%v", err)
	}
	if got, found, err := s.OffsetByTimestamp(startTime+1, 0, ToEnd); err != nil || !found || got.Offset != 1 {
		t.Errorf("%+v %v %v", got, found, err)
	}
}
