package segment

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAppend_ReadBack(t *testing.T) {
	storages(t, func(t *testing.T, st storage) {
		batches := row(t, 100, 50, 500)
		s := st.create(t, 100, Config{}, batches...)
		ok(t, s.Seal())
		ok(t, s.Close())
		s = Open(st.FS, st.dir, 100, Config{})
		defer s.Close()
		bases, tail := scan(t, s.Scan(0))
		if len(bases) != 50 || tail.Kind != CleanEnd || tail.Position != size(t, s) || tail.LastOffset != 149 {
			t.Fatalf("%d batches, %+v", len(bases), tail)
		}
		for o := int64(100); o < 150; o++ {
			r, err := s.Read(ReadOptions{StartOffset: o, MaxBytes: 600, MaxPosition: ToEnd, MinOneMessage: true})
			ok(t, err)
			got, err := r.AppendTo(nil)
			ok(t, err)
			want := join(batches[o-100:]...)
			if diff := cmp.Diff(want[:min(600, len(want))], got); diff != "" {
				t.Fatalf("offset %d: %s", o, diff)
			}
			ok(t, r.Close())
		}
		if s.Suspects() != 0 {
			t.Errorf("%d look-ups were misled by sound indexes", s.Suspects())
		}
	})
}
