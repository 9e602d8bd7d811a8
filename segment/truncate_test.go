package segment

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
)

// A truncated segment is one that never had the later batches, up to the places of index entries.
func TestTruncateTo_Model(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		st := memory(t)
		batches := timed(t, r, 25)
		c := Config{IndexIntervalBytes: rapid.Int32Range(1, 300).Draw(r, "interval")}
		s := st.create(t, 100, c, batches...)
		defer func() { ok(t, s.Close()) }()
		for i, b := range batches {
			if i%5 == 4 {
				ok(t, s.AppendAborted(index.AbortedTxn{ProducerID: 1, FirstOffset: b.LastOffset() - 1, LastOffset: b.LastOffset(), LastStableOffset: b.LastOffset() + 1}))
			}
		}
		sealed := rapid.Bool().Draw(r, "sealed")
		if sealed {
			ok(t, s.Seal())
			ok(t, s.Park())
		}
		target := rapid.Int64Range(99, 230).Draw(r, "target")
		kept := batches
		for i, b := range batches {
			if b.LastOffset() >= target {
				kept = batches[:i]
				break
			}
		}
		want := join(kept...)
		before := size(t, s)
		removed, err := s.TruncateTo(target)
		if err != nil || removed != before-int64(len(want)) || size(t, s) != int64(len(want)) {
			t.Fatalf("removed %d of %d, want %d left; %v", removed, before, len(want), err)
		}
		if got := st.read(t, KindLog, 100); !bytes.Equal(got, want) {
			t.Fatalf("%d bytes left in the file, want %d", len(got), len(want))
		}
		checkByTime(r, s, stampsOf(r, kept))
		if sealed {
			ok(t, s.OpenActive(int64(len(want))))
		}
		offsets, times := entries(t, s)
		for _, e := range offsets {
			if e.Offset >= target || int(e.Position) >= len(want) {
				t.Fatalf("entry %+v in %d bytes below %d", e, len(want), target)
			}
		}
		for _, e := range times {
			if e.Offset >= target {
				t.Fatalf("entry %+v below %d", e, target)
			}
		}
		txns, _, err := s.AbortedTxns(0, 1000)
		ok(t, err)
		for _, x := range txns {
			if x.LastOffset >= target {
				t.Fatalf("aborted %+v below %d", x, target)
			}
		}
		// The offsets below target are not given out again, whether or not a batch with them is left.
		next := max(target, 100)
		more := spec{base: next, records: 2, times: []int64{70, 1}}.batch(t)
		ok(t, s.Append(more))
		kept = append(append([]record.Batch{}, kept...), more)
		checkByTime(r, s, stampsOf(r, kept))
		bases, tail := scan(t, s.ScanWith(0, ToEnd, ScanOptions{Ordered: true}))
		if tail.Kind != CleanEnd || len(bases) != len(kept) {
			t.Fatalf("%d batches, %+v", len(bases), tail)
		}
		if s.Suspects() != 0 {
			t.Fatalf("%d look-ups were misled", s.Suspects())
		}
	})
}

func TestTruncateTo_EveryOffset(t *testing.T) {
	storages(t, func(t *testing.T, st storage) {
		for target := int64(0); target <= 101; target++ {
			s := st.create(t, 0, Config{IndexIntervalBytes: 200}, row(t, 0, 100, 20)...)
			if _, err := s.TruncateTo(target); err != nil {
				t.Fatal(err)
			}
			next := min(target, 100)
			if n, err := s.NextOffset(); err != nil || n != next {
				t.Fatalf("next offset %d, %v", n, err)
			}
			ok(t, s.Sync())
			ok(t, s.Close())
			s = Open(st.FS, st.dir, 0, Config{IndexIntervalBytes: 200})
			if n, err := s.NextOffset(); err != nil || n != next {
				t.Fatalf("next offset %d after reopening, %v", n, err)
			}
			ok(t, s.OpenActive(size(t, s)))
			ok(t, s.Append(some(t, next, 1)))
			if n, err := s.NextOffset(); err != nil || n != next+1 {
				t.Fatalf("next offset %d after an append, %v", n, err)
			}
			ok(t, s.Remove())
		}
	})
}

// A torn batch is cut before the next append, which is then found after reopening.
func TestTruncateToPosition_TornTail(t *testing.T) {
	storages(t, func(t *testing.T, st storage) {
		first, torn, next := some(t, 0, 5), some(t, 5, 5), some(t, 5, 1)
		s := st.log(t, 0, Config{}, append(bytes.Clone(first), torn[:40]...))
		_, tail := scan(t, s.Scan(0))
		if tail.Kind != Torn || tail.Position != int64(len(first)) {
			t.Fatalf("%+v", tail)
		}
		ok(t, s.TruncateToPosition(tail.Position))
		ok(t, s.Sync())
		ok(t, s.OpenActive(tail.Position))
		ok(t, s.Append(next))
		ok(t, s.Sync())
		ok(t, s.Close())
		if got, want := st.read(t, KindLog, 0), join(first, next); !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, want %d", len(got), len(want))
		}
		s = Open(st.FS, st.dir, 0, Config{})
		defer s.Close()
		if bases, tail := scan(t, s.Scan(0)); len(bases) != 2 || tail.Kind != CleanEnd {
			t.Fatalf("%v %+v", bases, tail)
		}
		if err := s.TruncateToPosition(size(t, s) + 1); err == nil {
			t.Error("cut behind the end")
		}
		if err := s.TruncateToPosition(-1); err == nil {
			t.Error("cut before the start")
		}
		ok(t, s.TruncateToPosition(0))
		if n, err := s.NextOffset(); err != nil || n != 0 {
			t.Errorf("emptied: next offset %d, %v", n, err)
		}
	})
}

// Entries that point behind a cut go with it, also those of batches that the file has not got any more.
func TestTruncateToPosition_IndexAhead(t *testing.T) {
	batches := row(t, 0, 20, 50)
	whole := join(batches[:12]...)
	for _, gone := range []bool{true, false} {
		st := memory(t)
		s := st.create(t, 0, Config{IndexIntervalBytes: 1}, batches...)
		ok(t, s.Seal())
		ok(t, s.Close())
		if gone {
			st.write(t, KindLog, 0, whole)
		}
		s = Open(st.FS, st.dir, 0, Config{})
		ok(t, s.TruncateToPosition(int64(len(whole))))
		offsets, times := entries(t, s)
		if len(offsets) != 11 || offsets[10].Offset != 11 || len(times) != 11 {
			t.Errorf("%v, %v", offsets, times)
		}
		before := s.Suspects()
		ok(t, s.OpenActive(int64(len(whole))))
		if next, err := s.NextOffset(); err != nil || next != 12 || s.Suspects() != before {
			t.Errorf("%d %v, %d look-ups misled", next, err, s.Suspects()-before)
		}
		ok(t, s.Close())
	}
}

func TestTruncateTo_DamagedIndex(t *testing.T) {
	st := memory(t)
	batches := row(t, 0, 20, 50)
	s := st.create(t, 0, Config{IndexIntervalBytes: 1}, batches...)
	ok(t, s.Seal())
	ok(t, s.Close())
	for _, kind := range []Kind{KindOffsetIndex, KindTimeIndex} {
		st.write(t, kind, 0, bytes.Repeat([]byte{0xff}, 48))
	}
	s = Open(st.FS, st.dir, 0, Config{})
	defer s.Close()
	if _, err := s.TruncateTo(7); err != nil {
		t.Fatal(err)
	}
	ok(t, s.OpenActive(size(t, s)))
	for _, b := range batches[7:] {
		if err := s.Append(b); err != nil && !errors.Is(err, ErrIndex) {
			t.Fatal(err)
		}
	}
	for o := range int64(20) {
		if _, h, found, err := s.Locate(o, ToEnd); err != nil || !found || h.BaseOffset != o {
			t.Fatalf("%d: %+v %v %v", o, h, found, err)
		}
	}
}

// Before a cut is known to have happened the bytes are there or the operation has failed; indexes never know more than the log.
func TestTruncateTo_ErrorAtEveryOperation(t *testing.T) {
	broken := errors.New("broken")
	for n := 1; ; n++ {
		st := memory(t)
		batches := row(t, 0, 20, 50)
		s := st.create(t, 0, Config{IndexIntervalBytes: 1}, batches...)
		ok(t, s.Seal())
		ok(t, s.Close())
		inj := vfstest.FailNth(func(vfstest.Op) bool { return true }, n, vfstest.Fault{Err: broken}, false)
		s = Open(vfstest.Inject(st.FS, inj), st.dir, 0, Config{})
		_, err := s.TruncateTo(7)
		s.Close()
		s = Open(st.FS, st.dir, 0, Config{})
		next, nerr := s.NextOffset()
		ok(t, nerr)
		if next != 7 && (err == nil || next != 20) {
			t.Fatalf("operation %d: next offset %d, %v", n, next, err)
		}
		for o := range next {
			if _, h, found, err := s.Locate(o, ToEnd); err != nil || !found || h.BaseOffset != o {
				t.Fatalf("operation %d: %d: %+v %v %v", n, o, h, found, err)
			}
		}
		ok(t, s.Close())
		if err == nil && next == 7 && n > 30 {
			return
		}
	}
}

func TestResetIndexes_RebuildsTheSameFiles(t *testing.T) {
	storages(t, func(t *testing.T, st storage) {
		s := st.create(t, 0, Config{IndexIntervalBytes: 300}, row(t, 0, 100, 50)...)
		ok(t, s.Seal())
		ok(t, s.Close())
		offsets, times := st.read(t, KindOffsetIndex, 0), st.read(t, KindTimeIndex, 0)
		st.write(t, KindOffsetIndex, 0, []byte("garbage, odd length"))
		ok(t, st.Remove(st.path(KindTimeIndex, 0)))
		s = Open(st.FS, st.dir, 0, Config{IndexIntervalBytes: 300})
		defer s.Close()
		ok(t, s.ResetIndexes())
		c := s.Scan(0)
		for c.Next() {
			ok(t, s.Note(c.Batch().Batch, c.Batch().Position))
		}
		ok(t, s.Seal())
		ok(t, s.Flush())
		if diff := cmp.Diff(offsets, st.read(t, KindOffsetIndex, 0)); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(times, st.read(t, KindTimeIndex, 0)); diff != "" {
			t.Error(diff)
		}
	})
}

// From any batch on the indexes can be made again; they end as if they had never been touched.
func TestRewindIndexes(t *testing.T) {
	st := memory(t)
	batches := row(t, 0, 30, 50)
	c := Config{IndexIntervalBytes: 1}
	s := st.create(t, 0, c, batches...)
	ok(t, s.Seal())
	offsets, times := st.read(t, KindOffsetIndex, 0), st.read(t, KindTimeIndex, 0)
	one := int64(len(batches[0]))
	for i := range int64(30) {
		s = Open(st.FS, st.dir, 0, c)
		// An end inside batch i: the entry of that batch is passed over.
		pos, offset, err := s.LastIndexed(i*one + 100)
		if want := max(i-1, 0); err != nil || pos != want*one || offset != want {
			t.Fatalf("batch %d: at %d, offset %d, %v", i, pos, offset, err)
		}
		if newest, err := s.MaxTimestamp(); err != nil || newest.Offset != 29 {
			t.Fatalf("%+v %v", newest, err)
		}
		ok(t, s.RewindIndexes(i*one, i))
		if i > 0 {
			// The count since the last entry begins at 0, so say that more than the interval has passed.
			s.since = one
		}
		walk := s.Scan(i * one)
		for walk.Next() {
			ok(t, s.Note(walk.Batch().Batch, walk.Batch().Position))
		}
		ok(t, s.Seal())
		if !bytes.Equal(offsets, st.read(t, KindOffsetIndex, 0)) || !bytes.Equal(times, st.read(t, KindTimeIndex, 0)) {
			t.Fatalf("from batch %d: other indexes", i)
		}
		ok(t, s.Close())
	}
}

func TestReadOnly_ChangesNothing(t *testing.T) {
	storages(t, func(t *testing.T, st storage) {
		st.write(t, KindLog, 0, join(row(t, 0, 10, 10)...))
		s := Open(st.FS, st.dir, 0, Config{ReadOnly: true})
		defer s.Close()
		for name, f := range map[string]func() error{
			"truncate":    func() error { _, err := s.TruncateTo(3); return err },
			"to position": func() error { return s.TruncateToPosition(0) },
			"reset":       s.ResetIndexes,
			"reset txn":   s.ResetTxnIndex,
			"rewind":      func() error { return s.RewindIndexes(10, 1) },
			"open active": func() error { return s.OpenActive(0) },
			"append":      func() error { return s.Append(some(t, 10, 1)) },
			"write":       func() error { return s.WriteAt([]byte("x"), 0) },
			"note":        func() error { return s.Note(some(t, 10, 1), 0) },
			"seal":        s.Seal,
			"trim":        s.TrimLog,
		} {
			if err := f(); !errors.Is(err, ErrNotWritable) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, h, found, err := s.Locate(7, ToEnd); err != nil || !found || h.BaseOffset != 7 {
			t.Errorf("%+v %v %v", h, found, err)
		}
		if ts, err := s.LargestTimestamp(); err != nil || ts != startTime+9 {
			t.Errorf("%d, %v", ts, err)
		}
		list, err := st.ReadDir(st.dir)
		if err != nil || len(list) != 1 || list[0] != (vfs.DirEntry{Name: FileName(KindLog, 0), Kind: vfs.Regular}) {
			t.Errorf("%v, %v", list, err)
		}
	})
}
