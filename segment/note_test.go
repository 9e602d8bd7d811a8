package segment

import (
	"errors"
	"io/fs"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
)

// Twenty batches of 3,072 bytes in one append make nine entries: the first batch that comes after more than 4,096 bytes is
// the third, and then every second one.
func TestNote_OneAppendOfManyBatches(t *testing.T) {
	storages(t, func(t *testing.T, st storage) {
		batches := row(t, 0, 20, 3002)
		if len(batches[0]) != 3072 {
			t.Fatalf("a batch has %d bytes", len(batches[0]))
		}
		s := st.create(t, 0, Config{})
		ok(t, s.Append(join(batches...)))
		offsets, times := entries(t, s)
		var wantOffsets []index.OffsetPosition
		var wantTimes []index.TimestampOffset
		for i := int64(2); i < 20; i += 2 {
			wantOffsets = append(wantOffsets, index.OffsetPosition{Offset: i, Position: int32(i * 3072)})
			wantTimes = append(wantTimes, index.TimestampOffset{Timestamp: startTime + i, Offset: i})
		}
		if diff := cmp.Diff(wantOffsets, offsets); diff != "" || len(offsets) != 9 {
			t.Error(diff)
		}
		if diff := cmp.Diff(wantTimes, times); diff != "" {
			t.Error(diff)
		}
		ok(t, s.Seal())
		_, times = entries(t, s)
		if last := times[len(times)-1]; last != (index.TimestampOffset{Timestamp: startTime + 19, Offset: 19}) {
			t.Errorf("last time entry %+v", last)
		}
	})
}

// The rule, written down once more and naively, on random batches and random reopenings.
func TestNote_Model(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		st := memory(t)
		interval := rapid.Int32Range(1, 400).Draw(r, "interval")
		c := Config{IndexIntervalBytes: interval}
		s := st.create(t, 1000, c)
		defer func() { ok(t, s.Close()) }()
		var wantOffsets []index.OffsetPosition
		var wantTimes []index.TimestampOffset
		newest := index.TimestampOffset{Timestamp: -1, Offset: 1000}
		since, pos, next := int64(0), int64(0), int64(1000)
		for range rapid.IntRange(0, 40).Draw(r, "batches") {
			if rapid.IntRange(0, 9).Draw(r, "reopen") == 0 {
				ok(t, s.Close())
				s = Open(st.FS, st.dir, 1000, c)
				ok(t, s.OpenActive(pos))
				since = 0
			}
			n := rapid.IntRange(1, 3).Draw(r, "records")
			times := rapid.SliceOfN(rapid.Int64Range(0, 50), n, n).Draw(r, "times")
			base := next + rapid.Int64Range(0, 3).Draw(r, "gap")
			batch := spec{base: base, records: n, times: times, value: rapid.IntRange(0, 100).Draw(r, "value")}.batch(t)
			ok(t, s.Append(batch))
			last := base + int64(n) - 1
			for i := range times {
				if times[i] > newest.Timestamp {
					newest = index.TimestampOffset{Timestamp: times[i], Offset: last}
				}
			}
			if since > int64(interval) {
				wantOffsets = append(wantOffsets, index.OffsetPosition{Offset: last, Position: int32(pos)})
				if k := len(wantTimes); k == 0 || wantTimes[k-1].Timestamp < newest.Timestamp {
					wantTimes = append(wantTimes, newest)
				}
				since = 0
			}
			since += int64(len(batch))
			pos += int64(len(batch))
			next = last + 1
		}
		offsets, times := entries(t, s)
		if diff := cmp.Diff(wantOffsets, offsets) + cmp.Diff(wantTimes, times); diff != "" {
			t.Fatal(diff)
		}
		got, err := s.MaxTimestamp()
		if err != nil || got != newest {
			t.Fatalf("newest %+v, want %+v, %v", got, newest, err)
		}
		if got, err := s.NextOffset(); err != nil || got != next {
			t.Fatalf("next %d, want %d, %v", got, next, err)
		}
	})
}

// The bytes since the last entry are counted from each opening, also of the same value.
func TestOpenActive_CountsAnew(t *testing.T) {
	st := memory(t)
	batches := row(t, 0, 4, 3002)
	s := st.create(t, 0, Config{}, batches[:2]...)
	ok(t, s.Seal())
	ok(t, s.OpenActive(size(t, s)))
	ok(t, s.Append(batches[2]))
	if offsets, _ := entries(t, s); len(offsets) != 0 {
		t.Errorf("%v", offsets)
	}
}

func TestAppend_Refusals(t *testing.T) {
	storages(t, func(t *testing.T, st storage) {
		s := st.create(t, 10, Config{}, some(t, 10, 2))
		before := size(t, s)
		for _, r := range []struct {
			name string
			p    []byte
			want error
		}{
			{"offset below the base", some(t, 9, 1), ErrOffsetOverflow},
			{"offset too far above", some(t, 10+MaxRelativeOffset+1, 1), ErrOffsetOverflow},
			{"second batch too far above", join(some(t, 12, 1), some(t, 10+MaxRelativeOffset, 2)), ErrOffsetOverflow},
			{"torn", some(t, 12, 1)[:50], record.ErrTruncated},
			{"something behind", append(some(t, 12, 1), 0), record.ErrTruncated},
		} {
			if err := s.Append(r.p); !errors.Is(err, r.want) {
				t.Errorf("%s: %v", r.name, err)
			}
		}
		if n := size(t, s); n != before || int64(len(st.read(t, KindLog, 10))) != before {
			t.Errorf("a refused append left %d bytes, %d before", n, before)
		}
		ok(t, s.Append(some(t, 10+MaxRelativeOffset, 1)))
		if next, err := s.NextOffset(); err != nil || next != 11+MaxRelativeOffset {
			t.Errorf("%d, %v", next, err)
		}
	})
}

func TestCanAppend_Limits(t *testing.T) {
	s := Open(vfstest.NewMem(), "", 100, Config{})
	for _, r := range []struct {
		pos, size, last int64
		want            error
	}{
		{0, 0, 100, nil},
		{MaxBytes - 61, 61, 100, nil},
		{MaxBytes - 61, 62, 100, ErrSegmentFull},
		{MaxBytes, 1, 100, ErrSegmentFull},
		{1, math.MaxInt64, 100, ErrSegmentFull},
		{math.MaxInt64, math.MaxInt64, 100, ErrSegmentFull},
		{-1, 1, 100, ErrSegmentFull},
		{0, 61, 99, ErrOffsetOverflow},
		{0, 61, math.MinInt64, ErrOffsetOverflow},
		{0, 61, 100 + MaxRelativeOffset, nil},
		{0, 61, 101 + MaxRelativeOffset, ErrOffsetOverflow},
		{0, 61, math.MaxInt64, ErrOffsetOverflow},
	} {
		if err := s.CanAppend(r.pos, r.size, r.last); !errors.Is(err, r.want) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// A full disk under an index is an IndexError: the batch is in the log, the entry is missing, look-ups are right.
func TestNote_IndexOnFullDisk(t *testing.T) {
	st := memory(t)
	full := vfs.ErrNoSpace
	st.FS = vfstest.Inject(st.FS, vfstest.FailNth(vfstest.Kinds(vfstest.OpAllocate), 1, vfstest.Fault{Err: full}, true))
	s, err := Create(st.FS, st.dir, 0, Config{IndexIntervalBytes: 1})
	ok(t, err)
	defer s.Close()
	for i, batch := range row(t, 0, 10, 50) {
		err := s.Append(batch)
		var ie *IndexError
		if i == 0 && err != nil || i > 0 && (!errors.As(err, &ie) || !errors.Is(err, full) || ie.Offset != int64(i)) {
			t.Fatalf("batch %d: %v", i, err)
		}
	}
	for o := range int64(10) {
		if _, h, found, err := s.Locate(o, ToEnd); err != nil || !found || h.BaseOffset != o {
			t.Fatalf("%d: %+v %v %v", o, h, found, err)
		}
	}
	if got, err := s.MaxTimestamp(); err != nil || got.Timestamp != startTime+9 {
		t.Errorf("%+v %v", got, err)
	}
}

// A full index takes no more entries, and appends go on.
func TestNote_FullIndex(t *testing.T) {
	st := memory(t)
	s := st.create(t, 0, Config{IndexIntervalBytes: 1, MaxIndexBytes: 40}, row(t, 0, 20, 10)...)
	if full, err := s.IndexFull(); err != nil || !full {
		t.Errorf("full: %v, %v", full, err)
	}
	offsets, times := entries(t, s)
	if len(offsets) != 5 || len(times) != 2 {
		t.Errorf("%d and %d entries", len(offsets), len(times))
	}
	ok(t, s.Seal())
	if _, times = entries(t, s); len(times) != 3 || times[2].Offset != 19 {
		t.Errorf("%+v", times)
	}
	for o := range int64(20) {
		if _, h, found, err := s.Locate(o, ToEnd); err != nil || !found || h.BaseOffset != o {
			t.Fatalf("%d: %+v %v %v", o, h, found, err)
		}
	}
}

func TestCreate_Refusals(t *testing.T) {
	storages(t, func(t *testing.T, st storage) {
		for _, kind := range segmentKinds {
			st.write(t, kind, 7, []byte("x"))
			if _, err := Create(st.FS, st.dir, 7, Config{}); !errors.Is(err, fs.ErrExist) {
				t.Errorf("kind %d: %v", kind, err)
			}
			if p := st.read(t, kind, 7); string(p) != "x" {
				t.Errorf("kind %d was changed", kind)
			}
			ok(t, st.Remove(st.path(kind, 7)))
		}
		if _, err := Create(st.FS, st.dir, 7, Config{MaxIndexBytes: 11}); err == nil {
			t.Error("an index without room for an entry was accepted")
		}
		if _, err := Create(st.FS, st.dir, 7, Config{ReadOnly: true}); !errors.Is(err, ErrNotWritable) {
			t.Errorf("read-only: %v", err)
		}
		if _, err := Create(st.FS, st.dir, -1, Config{}); err == nil {
			t.Error("a negative base offset was accepted")
		}
		list, err := st.ReadDir(st.dir)
		if err != nil || len(list) != 0 {
			t.Errorf("left behind: %v, %v", list, err)
		}
	})
}

// Whatever fails while a segment is created, no file stays.
func TestCreate_ErrorAtEveryOperation(t *testing.T) {
	broken := errors.New("broken")
	for n := 1; ; n++ {
		st := memory(t)
		inj := vfstest.FailNth(vfstest.Kinds(vfstest.OpOpen, vfstest.OpCreate, vfstest.OpAllocate, vfstest.OpFileStat), n, vfstest.Fault{Err: broken}, false)
		s, err := Create(vfstest.Inject(st.FS, inj), st.dir, 0, Config{Preallocate: 4096})
		if err == nil {
			ok(t, s.Close())
			if n < 4 {
				t.Fatalf("only %d operations", n)
			}
			return
		}
		if !errors.Is(err, broken) {
			t.Fatal(err)
		}
		if list, err := st.ReadDir(st.dir); err != nil || len(list) != 0 {
			t.Fatalf("operation %d: left behind: %v, %v", n, list, err)
		}
	}
}
