package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
)

// gaps makes batches of three offsets with a gap of two after each.
func gaps(t testing.TB, n int) []record.Batch {
	list := make([]record.Batch, n)
	for i := range list {
		list[i] = spec{base: int64(1000 + 5*i), records: 3, value: 30}.batch(t)
	}
	return list
}

// checkLocate compares every look-up with a search through the list.
func checkLocate(t *testing.T, name string, s *Segment, batches []record.Batch) {
	t.Helper()
	last := batches[len(batches)-1].LastOffset()
	for o := int64(990); o <= last+3; o++ {
		pos, want, found := int64(0), record.Batch(nil), false
		for _, b := range batches {
			if found = b.LastOffset() >= o; found {
				want = b
				break
			}
			pos += int64(len(b))
		}
		gotPos, h, ok, err := s.Locate(o, ToEnd)
		if err != nil || ok != found || found && (gotPos != pos || h.BaseOffset != want.BaseOffset() || h.Position != pos || h.Size != int64(len(want))) {
			t.Fatalf("%s: offset %d: at %d, %+v, %v, %v; want %d", name, o, gotPos, h, ok, err, pos)
		}
	}
	if next, err := s.NextOffset(); err != nil || next != last+1 {
		t.Fatalf("%s: next offset %d, %v", name, next, err)
	}
}

func TestLocate_SoundIndex(t *testing.T) {
	storages(t, func(t *testing.T, st storage) {
		batches := gaps(t, 40)
		s := st.create(t, 1000, Config{IndexIntervalBytes: 300}, batches...)
		checkLocate(t, "active", s, batches)
		ok(t, s.Seal())
		checkLocate(t, "sealed", s, batches)
		ok(t, s.Close())
		s = Open(st.FS, st.dir, 1000, Config{ReadOnly: true})
		defer s.Close()
		checkLocate(t, "read-only", s, batches)
		if n := s.Suspects(); n != 0 {
			t.Errorf("%d look-ups were misled by a sound index", n)
		}
	})
}

// Whatever the index holds, the answers are those of the log, and the look-ups that could not use it are counted.
func TestLocate_DamagedIndex(t *testing.T) {
	batches := gaps(t, 40)
	mangle := func(each func(i int, e []byte)) func([]byte) []byte {
		return func(p []byte) []byte {
			for i := 0; i+8 <= len(p); i += 8 {
				each(i/8, p[i:i+8])
			}
			return p
		}
	}
	position := func(e []byte, f func(uint32) uint32) {
		binary.BigEndian.PutUint32(e[4:], f(binary.BigEndian.Uint32(e[4:])))
	}
	rows := map[string]struct {
		damage func([]byte) []byte
		silent bool // the answers are right without anything to notice
	}{
		"three bytes inside":        {damage: mangle(func(_ int, e []byte) { position(e, func(p uint32) uint32 { return p + 3 }) })},
		"eight bytes further":       {damage: mangle(func(_ int, e []byte) { position(e, func(p uint32) uint32 { return p + 8 }) })},
		"positions beyond the file": {damage: mangle(func(_ int, e []byte) { position(e, func(p uint32) uint32 { return p + 1<<20 }) })},
		"positions negative":        {damage: mangle(func(_ int, e []byte) { position(e, func(p uint32) uint32 { return p | 1<<31 }) })},
		"positions 17":              {damage: mangle(func(_ int, e []byte) { position(e, func(uint32) uint32 { return 17 }) })},
		"next batch's position":     {damage: mangle(func(_ int, e []byte) { position(e, func(p uint32) uint32 { return p + uint32(len(batches[0])) }) })},
		"offsets turned round": {damage: func(p []byte) []byte {
			for i, j := 0, len(p)-8; i < j; i, j = i+8, j-8 {
				var e [8]byte
				copy(e[:], p[i:])
				copy(p[i:], p[j:j+8])
				copy(p[j:], e[:])
			}
			return p
		}, silent: true},
		"offsets too low": {damage: mangle(func(i int, e []byte) { binary.BigEndian.PutUint32(e, uint32(i)) })},
		"all ones":        {damage: mangle(func(_ int, e []byte) { copy(e, bytes.Repeat([]byte{0xff}, 8)) }), silent: true},
		"all zeros":       {damage: mangle(func(_ int, e []byte) { clear(e) }), silent: true},
		"nine bytes":      {damage: func(p []byte) []byte { return p[:9] }, silent: true},
		"empty":           {damage: func([]byte) []byte { return nil }, silent: true},
		"zeros behind":    {damage: func(p []byte) []byte { return append(p, make([]byte, 800)...) }, silent: true},
	}
	for name, r := range rows {
		t.Run(name, func(t *testing.T) {
			st := memory(t)
			s := st.create(t, 1000, Config{IndexIntervalBytes: 300}, batches...)
			ok(t, s.Seal())
			ok(t, s.Close())
			st.write(t, KindOffsetIndex, 1000, r.damage(st.read(t, KindOffsetIndex, 1000)))
			before := st.read(t, KindLog, 1000)
			for _, kafka := range []bool{false, true} {
				s = Open(st.FS, st.dir, 1000, Config{KafkaIndexes: kafka})
				checkLocate(t, name, s, batches)
				if s.Suspects() == 0 && !r.silent {
					t.Error("nothing was noticed")
				}
				ok(t, s.Close())
			}
			if !bytes.Equal(before, st.read(t, KindLog, 1000)) {
				t.Error("the log file was changed")
			}
		})
	}
}

func TestLocate_RandomIndex(t *testing.T) {
	batches := gaps(t, 40)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		st := memory(t)
		st.write(t, KindLog, 1000, join(batches...))
		p := make([]byte, rng.IntN(200))
		for i := range p {
			if p[i] = byte(rng.Uint32()); rng.IntN(2) == 0 {
				p[i] = byte(rng.IntN(3))
			}
		}
		st.write(t, KindOffsetIndex, 1000, p)
		s := Open(st.FS, st.dir, 1000, Config{})
		checkLocate(t, "random", s, batches)
		ok(t, s.Close())
	}
}

func TestLocate_UnusableIndex(t *testing.T) {
	storages(t, func(t *testing.T, st storage) {
		batches := gaps(t, 20)
		st.write(t, KindLog, 1000, join(batches...))
		ok(t, st.MkdirAll(st.path(KindOffsetIndex, 1000), 0o755))
		s := Open(st.FS, st.dir, 1000, Config{})
		defer s.Close()
		checkLocate(t, "directory", s, batches)
		if s.Suspects() == 0 {
			t.Error("nothing was noticed")
		}
		ok(t, s.ResetIndexes())
		c := s.Scan(0)
		for c.Next() {
			ok(t, s.Note(c.Batch().Batch, c.Batch().Position))
		}
		ok(t, s.Seal())
		checkLocate(t, "rebuilt", s, batches)
		if n := s.Suspects(); n != 0 {
			t.Errorf("%d look-ups were misled after the rebuild", n)
		}
	})
}

// Bytes inside a record that look like a batch are left again when the walk from there does not come out at a batch.
func TestLocate_HintIntoARecord(t *testing.T) {
	fake := bytes.Clone(spec{base: 1001, records: 1}.batch(t)[:61])
	binary.BigEndian.PutUint32(fake[8:], 61-12)
	b := record.NewBuilder(record.BuilderOptions{BaseOffset: 1001})
	ok(t, b.Append(startTime, record.Record{Value: append(fake, bytes.Repeat([]byte{7}, 100)...)}))
	outer, err := b.Batch()
	ok(t, err)
	batches := []record.Batch{some(t, 1000, 1), outer, some(t, 1002, 3), some(t, 1005, 3)}
	whole := join(batches...)
	at := bytes.Index(whole, fake)
	st := memory(t)
	st.write(t, KindLog, 1000, whole)
	st.write(t, KindOffsetIndex, 1000, binary.BigEndian.AppendUint64(nil, uint64(1)<<32|uint64(at)))
	s := Open(st.FS, st.dir, 1000, Config{})
	defer s.Close()
	for _, o := range []int64{1002, 1004, 1005, 1007} {
		if _, h, found, err := s.Locate(o, ToEnd); err != nil || !found || h.BaseOffset > o || h.LastOffset < o {
			t.Errorf("%d: %+v %v %v", o, h, found, err)
		}
	}
	if next, err := s.NextOffset(); err != nil || next != 1008 {
		t.Errorf("%d %v", next, err)
	}
	if got, err := s.MaxTimestamp(); err != nil || got.Timestamp != startTime+1007 {
		t.Errorf("%+v %v", got, err)
	}
	if s.Suspects() == 0 {
		t.Error("nothing was noticed")
	}
}

// In a log of Kafka up to 3.8 an entry may name the last offset of an append of several batches and the first one's place.
func TestLocate_EntryForSeveralBatches(t *testing.T) {
	batches := gaps(t, 10)
	st := memory(t)
	st.write(t, KindLog, 1000, join(batches...))
	at := uint64(3 * len(batches[0]))
	st.write(t, KindOffsetIndex, 1000, binary.BigEndian.AppendUint64(nil, uint64(batches[5].LastOffset()-1000)<<32|at))
	s := Open(st.FS, st.dir, 1000, Config{})
	defer s.Close()
	// Offsets of the fourth batch are not above the entry's, and are found from the start.
	checkLocate(t, "append of three", s, batches)
	if n := s.Suspects(); n != 0 {
		t.Errorf("%d look-ups were misled", n)
	}
}

// Entries of batches that are noted and not yet published are passed over, and nothing is suspected.
func TestLocate_BelowAPublishedEnd(t *testing.T) {
	st := memory(t)
	batches := gaps(t, 40)
	s := st.create(t, 1000, Config{IndexIntervalBytes: 1}, batches...)
	end := int64(0)
	for i, b := range batches {
		pos, _, found, err := s.Locate(b.BaseOffset(), end)
		if err != nil || found || pos != 0 {
			t.Fatalf("batch %d: found at %d below %d, %v", i, pos, end, err)
		}
		if i > 0 {
			if _, h, found, err := s.Locate(batches[i-1].LastOffset(), end); err != nil || !found || h.End() != end {
				t.Fatalf("batch %d: %+v %v %v", i-1, h, found, err)
			}
		}
		end += int64(len(b))
	}
	if n := s.Suspects(); n != 0 {
		t.Errorf("%d look-ups were misled", n)
	}
}

// Damage on the way is reported with its place, not taken for the end, with and without an index.
func TestLocate_DamagedLog(t *testing.T) {
	batches := gaps(t, 40)
	whole := join(batches...)
	bad := 20 * len(batches[0])
	whole[bad+16] = 9
	for _, index := range []bool{false, true} {
		st := memory(t)
		s := st.create(t, 1000, Config{IndexIntervalBytes: 1}, batches...)
		ok(t, s.Seal())
		ok(t, s.Close())
		st.write(t, KindLog, 1000, whole)
		if !index {
			st.write(t, KindOffsetIndex, 1000, nil)
		}
		s = Open(st.FS, st.dir, 1000, Config{})
		var corrupt *CorruptError
		if _, _, _, err := s.Locate(1000+5*20, ToEnd); !errors.As(err, &corrupt) || corrupt.Position != int64(bad) || corrupt.LastOffset != batches[19].LastOffset() {
			t.Errorf("index %v: %v", index, err)
		}
		if _, h, found, err := s.Locate(1000+5*19, ToEnd); err != nil || !found || h.BaseOffset != 1000+5*19 {
			t.Errorf("index %v: before the damage: %+v %v %v", index, h, found, err)
		}
		_, h, found, err := s.Locate(1000+5*30, ToEnd)
		if index && (err != nil || !found || h.BaseOffset != 1000+5*30) || !index && !errors.As(err, &corrupt) {
			t.Errorf("index %v: behind the damage: %+v %v %v", index, h, found, err)
		}
		ok(t, s.Close())
	}
}

// A segment of offsets that do not fit an index is still read.
func TestLocate_OffsetOverflow(t *testing.T) {
	st := memory(t)
	batches := []record.Batch{some(t, 0, 1), some(t, MaxRelativeOffset, 1), some(t, MaxRelativeOffset+1, 1)}
	s := st.log(t, 0, Config{}, join(batches...))
	for _, b := range batches {
		if _, h, found, err := s.Locate(b.BaseOffset(), ToEnd); err != nil || !found || h.BaseOffset != b.BaseOffset() {
			t.Errorf("%d: %+v %v %v", b.BaseOffset(), h, found, err)
		}
	}
	ok(t, s.ResetIndexes())
	c := s.Scan(0)
	for i := 0; c.Next(); i++ {
		if err := s.Note(c.Batch().Batch, c.Batch().Position); (err == nil) != (i < 2) || i == 2 && !errors.Is(err, ErrOffsetOverflow) {
			t.Errorf("batch %d: %v", i, err)
		}
	}
	if n := size(t, s); n != int64(len(batches[0])+len(batches[1])) {
		t.Errorf("size %d", n)
	}
}

func TestUpperBound(t *testing.T) {
	st := memory(t)
	batches := gaps(t, 40)
	s := st.create(t, 1000, Config{IndexIntervalBytes: 300}, batches...)
	one := int64(len(batches[0]))
	offsets, _ := entries(t, s)
	bound := func(s *Segment, pos, n int64) (int64, bool) {
		o, found, err := s.UpperBound(pos, n, ToEnd)
		ok(t, err)
		return o, found
	}
	for i := range int64(40) {
		want, wantOK := int64(0), false
		for _, e := range offsets {
			if wantOK = int64(e.Position) >= i*one+one; wantOK {
				want = e.Offset
				break
			}
		}
		if got, found := bound(s, i*one, one); found != wantOK || got != want {
			t.Errorf("batch %d: %d %v, want %d %v", i, got, found, want, wantOK)
		}
	}
	// Batches behind the published end are noted and may not have been written.
	published := 20 * one
	for _, i := range []int64{0, 18, 19} {
		o, found, err := s.UpperBound(i*one, one, published)
		if err != nil || found && int64(len(batches)) <= (o-1000)/5 || found && (o-1000)/5 >= 20 || i == 19 && found {
			t.Errorf("batch %d below %d: %d %v %v", i, published, o, found, err)
		}
	}
	if n := s.Suspects(); n != 0 {
		t.Errorf("%d look-ups were misled", n)
	}
	ok(t, s.Seal())
	ok(t, s.Close())
	// An entry that lies too low would hide aborted transactions.
	p := st.read(t, KindOffsetIndex, 1000)
	for i := range len(p) / 8 {
		binary.BigEndian.PutUint32(p[8*i:], uint32(i))
	}
	st.write(t, KindOffsetIndex, 1000, p)
	s = Open(st.FS, st.dir, 1000, Config{})
	defer s.Close()
	if o, found := bound(s, 0, one); found {
		t.Errorf("believed %d", o)
	}
	if s.Suspects() == 0 {
		t.Error("nothing was noticed")
	}
}

func TestAbortedTxns(t *testing.T) {
	storages(t, func(t *testing.T, st storage) {
		s := st.create(t, 0, Config{})
		if txns, complete, err := s.AbortedTxns(0, 100); err != nil || complete || len(txns) != 0 {
			t.Fatalf("without an index: %v %v %v", txns, complete, err)
		}
		if st.exists(t, FileName(KindTxnIndex, 0)) {
			t.Fatal("created by a read")
		}
		all := []index.AbortedTxn{{ProducerID: 1, FirstOffset: 0, LastOffset: 29, LastStableOffset: 8}, {ProducerID: 2, FirstOffset: 8, LastOffset: 74, LastStableOffset: 36}}
		for _, x := range all {
			ok(t, s.AppendAborted(x))
		}
		txns, complete, err := s.AbortedTxns(0, 100)
		if err != nil || complete || len(txns) != 2 || txns[0] != all[0] || txns[1] != all[1] {
			t.Fatalf("%v %v %v", txns, complete, err)
		}
		if txns, complete, err = s.AbortedTxns(0, 8); err != nil || !complete || len(txns) != 1 {
			t.Fatalf("%v %v %v", txns, complete, err)
		}
		ok(t, s.Flush())
		ok(t, s.Seal())
		ok(t, s.ResetTxnIndex())
		if txns, _, err := s.AbortedTxns(0, 100); err != nil || len(txns) != 0 {
			t.Fatalf("after a reset: %v %v", txns, err)
		}
		ok(t, s.AppendAborted(all[0]))
		ok(t, s.Close())
		s = Open(st.FS, st.dir, 0, Config{ReadOnly: true})
		defer s.Close()
		if txns, _, err := s.AbortedTxns(0, 100); err != nil || len(txns) != 1 {
			t.Fatalf("filled again: %v %v", txns, err)
		}
		if err := s.AppendAborted(all[1]); !errors.Is(err, ErrNotWritable) {
			t.Errorf("append to a read-only segment: %v", err)
		}
	})
}

// One batch at the start, a hole, and the header of a batch at the very end of the largest possible file.
func TestSparse_LargestFile(t *testing.T) {
	if testing.Short() {
		t.Skip("reads two gibibytes of zeros")
	}
	st := storage{vfs.OS, t.TempDir()}
	s := st.create(t, 0, Config{}, some(t, 0, 1))
	ok(t, s.Close())
	first, last := some(t, 0, 1), some(t, 1, 1)
	f, err := st.OpenFile(st.path(KindLog, 0), os.O_RDWR, 0)
	ok(t, err)
	ok(t, f.Truncate(MaxBytes))
	s = Open(st.FS, st.dir, 0, Config{IndexIntervalBytes: 1})
	want := Tail{Kind: ZeroTail, Position: int64(len(first))}
	if bases, tail := scan(t, s.Scan(0)); len(bases) != 1 || tail != want {
		t.Errorf("%d batches, %+v", len(bases), tail)
	}
	ok(t, s.Close())
	// A header with 30 bytes left claims more than there is, wherever the sum would wrap.
	_, err = f.WriteAt(last[:30], MaxBytes-30)
	ok(t, err)
	s = Open(st.FS, st.dir, 0, Config{IndexIntervalBytes: 1})
	defer s.Close()
	if _, tail := scan(t, s.Scan(MaxBytes-30)); tail.Kind != Torn || tail.Claimed != int64(len(last)) {
		t.Errorf("%+v", tail)
	}
	ok(t, s.OpenActive(MaxBytes-100))
	if err := s.Append(spec{base: 1, records: 1, value: 40}.batch(t)); !errors.Is(err, ErrSegmentFull) {
		t.Errorf("append of more than the rest: %v", err)
	}
	batch := spec{base: 1, records: 1, value: 30}.batch(t)
	if len(batch) > 100 {
		t.Fatal("test batch too large")
	}
	s.since = 2
	ok(t, s.Append(batch))
	offsets, _ := entries(t, s)
	if e := offsets[len(offsets)-1]; e.Position != MaxBytes-100 || e.Offset != 1 {
		t.Errorf("%+v", e)
	}
	ok(t, f.Truncate(MaxBytes+1))
	ok(t, f.Close())
	if err := s.OpenActive(MaxBytes + 1); !errors.Is(err, ErrSegmentFull) {
		t.Errorf("a file above the limit: %v", err)
	}
}
