package segment

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/oncelog/oncelog/record"
)

// The model takes the range from the bytes themselves.
func TestRead_Model(t *testing.T) {
	st := memory(t)
	batches := gaps(t, 30)
	whole := join(batches...)
	s := st.create(t, 1000, Config{IndexIntervalBytes: 300}, batches...)
	ok(t, s.Seal())
	one := len(batches[0])
	rapid.Check(t, func(t *rapid.T) {
		o := ReadOptions{
			StartOffset:   rapid.Int64Range(990, 1160).Draw(t, "start"),
			MaxBytes:      rapid.OneOf(rapid.Just(0), rapid.IntRange(0, 2*one), rapid.IntRange(0, len(whole)+10)).Draw(t, "max"),
			MaxPosition:   int64(rapid.IntRange(0, 31).Draw(t, "limit") * one),
			MinOneMessage: rapid.Bool().Draw(t, "one"),
		}
		r, err := s.Read(o)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		end, pos := min(int(o.MaxPosition), len(whole)), 0
		for pos < end && batches[pos/one].LastOffset() < o.StartOffset {
			pos += one
		}
		if r.Found != (pos < end) {
			t.Fatalf("found %v", r.Found)
		}
		if !r.Found {
			return
		}
		n := o.MaxBytes
		if o.MinOneMessage {
			n = max(n, one)
		}
		incomplete := n < one
		n = min(n, end-pos)
		got, err := r.AppendTo([]byte("x"))
		if err != nil || !bytes.Equal(got, append([]byte("x"), whole[pos:pos+n]...)) || r.Size != n || r.Position != int64(pos) {
			t.Fatalf("%d bytes at %d, want %d at %d; %v", r.Size, r.Position, n, pos, err)
		}
		if r.FirstEntryIncomplete != incomplete || r.First.BaseOffset != batches[pos/one].BaseOffset() {
			t.Fatalf("%+v", r)
		}
		var w bytes.Buffer
		if m, err := r.WriteTo(&w); err != nil || m != int64(n) || !bytes.Equal(w.Bytes(), whole[pos:pos+n]) {
			t.Fatalf("wrote %d, %v", m, err)
		}
		var list []int64
		for b, err := range r.Batches() {
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, b.Position)
		}
		var want []int64
		for p := pos; p+one <= pos+n; p += one {
			want = append(want, int64(p))
		}
		if diff := cmp.Diff(want, list); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestRecords_ReadAt(t *testing.T) {
	st := memory(t)
	batches := row(t, 0, 3, 40)
	s := st.create(t, 0, Config{}, batches...)
	r, err := s.Read(ReadOptions{StartOffset: 1, MaxBytes: 1 << 20, MaxPosition: ToEnd})
	ok(t, err)
	want := join(batches[1:]...)
	got, err := io.ReadAll(io.NewSectionReader(r, 0, 1<<20))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	p := make([]byte, 10)
	for _, row := range []struct {
		off  int64
		n    int
		want error
	}{{0, 10, nil}, {int64(r.Size) - 4, 4, io.EOF}, {int64(r.Size), 0, io.EOF}, {1 << 40, 0, io.EOF}} {
		if n, err := r.ReadAt(p, row.off); n != row.n || !errors.Is(err, row.want) || row.want == nil && err != nil {
			t.Errorf("at %d: %d, %v", row.off, n, err)
		}
	}
	if _, err := r.ReadAt(p, -1); err == nil {
		t.Error("a negative place was read")
	}
	ok(t, r.Close())
	ok(t, r.Close())
	if _, err := r.ReadAt(p, 0); !errors.Is(err, ErrClosed) {
		t.Errorf("after close: %v", err)
	}
	for _, err := range r.Batches() {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("after close: %v", err)
		}
	}
	if _, err := s.Read(ReadOptions{MaxBytes: -1}); err == nil {
		t.Error("negative MaxBytes was accepted")
	}
}

// A damaged batch is an error with its place, never an end; what is before it is delivered.
func TestRecords_DamageIsNotTheEnd(t *testing.T) {
	batches := row(t, 0, 3, 40)
	one := len(batches[0])
	rows := map[string]struct {
		at   int
		flip byte
		want error
	}{
		"payload":           {65, 1, record.ErrChecksum},
		"length far beyond": {8, 0x7f, record.ErrTruncated},
		"length, some more": {10, 1, record.ErrTruncated},
		"magic":             {16, 8, record.ErrUnsupportedVersion},
	}
	for name, r := range rows {
		t.Run(name, func(t *testing.T) {
			whole := join(batches...)
			whole[one+r.at] ^= r.flip
			st := memory(t)
			s := st.log(t, 0, Config{}, whole)
			for _, max := range []int{len(whole), 2*one + one/2} {
				rec, err := s.Read(ReadOptions{MaxBytes: max, MaxPosition: ToEnd})
				ok(t, err)
				var last error
				n := 0
				for b, err := range rec.Batches() {
					if last = err; err == nil {
						if b.BaseOffset() != int64(n) {
							t.Errorf("offset %d", b.BaseOffset())
						}
						n++
					}
				}
				var corrupt *CorruptError
				if n != 1 || !errors.Is(last, r.want) || !errors.As(last, &corrupt) || corrupt.Position != int64(one) || corrupt.LastOffset != 0 {
					t.Errorf("%d bytes: %d batches, then %v", max, n, last)
				}
				ok(t, rec.Close())
			}
		})
	}
}

// A truncation makes earlier reads fail, so that nobody takes the bytes written since for those that were found.
func TestRecords_CutUnderneath(t *testing.T) {
	storages(t, func(t *testing.T, st storage) {
		s := st.create(t, 0, Config{}, row(t, 0, 10, 100)...)
		r, err := s.Read(ReadOptions{StartOffset: 2, MaxBytes: 1 << 20, MaxPosition: ToEnd})
		ok(t, err)
		defer r.Close()
		if _, err := s.TruncateTo(5); err != nil {
			t.Fatal(err)
		}
		ok(t, s.Append(spec{base: 5, records: 1, value: 400}.batch(t)))
		if p, err := r.AppendTo([]byte("x")); !errors.Is(err, ErrCut) || string(p) != "x" {
			t.Errorf("%d bytes, %v", len(p), err)
		}
		if _, err := r.WriteTo(io.Discard); !errors.Is(err, ErrCut) {
			t.Error(err)
		}
		var last error
		for _, last = range r.Batches() {
		}
		if !errors.Is(last, ErrCut) {
			t.Error(last)
		}
		r2, err := s.Read(ReadOptions{StartOffset: 2, MaxBytes: 1 << 20, MaxPosition: ToEnd})
		ok(t, err)
		defer r2.Close()
		for _, err := range r2.Batches() {
			ok(t, err)
		}
	})
}
