package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/oncelog/oncelog/record"
)

func atLeast(offset int64) func(Header) bool {
	return func(h Header) bool { return h.BaseOffset >= offset }
}

func TestFindBatch_Places(t *testing.T) {
	batches := row(t, 100, 5, 60)
	one := len(batches[0])
	junk := func(n int) []byte { return bytes.Repeat([]byte{0x5a, 2, 0}, n/3+1)[:n] }
	for _, gap := range []int{1, 2, 60, 61, 62, 4096, maxStep - 61, maxStep - 1, maxStep, maxStep + 1, 3 * maxStep} {
		st := memory(t)
		p := append(join(batches[0]), junk(gap)...)
		p = append(p, batches[2]...)
		s := st.log(t, 100, Config{}, p)
		pos, found, err := s.FindBatch(int64(one), ToEnd, 1<<20, atLeast(101))
		if err != nil || !found || pos != int64(one+gap) {
			t.Errorf("gap %d: %d %v %v", gap, pos, found, err)
		}
		// A range that ends inside the batch does not hold it.
		if pos, found, err = s.FindBatch(int64(one), int64(len(p)-1), 1<<20, atLeast(101)); err != nil || found {
			t.Errorf("gap %d: %d %v %v", gap, pos, found, err)
		}
		for name, expect := range map[string]func(Header) bool{"offset": atLeast(103), "size": nil} {
			limit := int64(1 << 20)
			if name == "size" {
				limit = int64(one - 1)
			}
			if pos, found, err = s.FindBatch(int64(one), ToEnd, limit, expect); err != nil || found {
				t.Errorf("gap %d: a batch of the wrong %s at %d, %v", gap, name, pos, err)
			}
		}
		ok(t, s.Close())
	}
}

// A batch inside a record of the bad batch is passed over for the one that follows the bad batch.
func TestFindBatch_NestedBatch(t *testing.T) {
	inner := some(t, 105, 2)
	b := record.NewBuilder(record.BuilderOptions{BaseOffset: 101})
	ok(t, b.Append(startTime, record.Record{Value: append(bytes.Repeat([]byte("x"), 10), inner...)}))
	outer, err := b.Batch()
	ok(t, err)
	outer[len(outer)-1] ^= 1
	st := memory(t)
	p := join(outer, some(t, 102, 1))
	s := st.log(t, 100, Config{}, p)
	if pos, found, err := s.FindBatch(0, ToEnd, 1<<20, atLeast(101)); err != nil || !found || pos != int64(len(outer)) {
		t.Errorf("%d %v %v", pos, found, err)
	}
	// With its length damaged too, the base offset alone tells.
	binary.BigEndian.PutUint32(p[8:], 0)
	s2 := st.log(t, 50, Config{}, p)
	pos, found, err := s2.FindBatch(0, ToEnd, 1<<20, func(h Header) bool { return h.BaseOffset == 102 })
	if err != nil || !found || pos != int64(len(outer)) {
		t.Errorf("%d %v %v", pos, found, err)
	}
}

func TestFindBatch_DamagedBatchesOnly(t *testing.T) {
	st := memory(t)
	var p []byte
	for _, b := range row(t, 0, 500, 300) {
		b[len(b)-1] ^= 1
		p = append(p, b...)
	}
	s := st.log(t, 0, Config{}, p)
	if pos, found, err := s.FindBatch(0, ToEnd, 1<<20, nil); err != nil || found {
		t.Errorf("%d %v %v", pos, found, err)
	}
}

// Headers that overlap, each claiming the rest of the file, would cost a checksum over the rest for each of them.
func TestFindBatch_HostileOverlap(t *testing.T) {
	const n = 8 << 20
	p := make([]byte, n)
	head := bytes.Clone(some(t, 5, 1)[:61])
	for i := 0; i+64 <= n; i += 64 {
		copy(p[i:], head)
		binary.BigEndian.PutUint32(p[i+8:], uint32(n-i-12))
	}
	st := memory(t)
	s := st.log(t, 0, Config{}, p)
	start := time.Now()
	_, found, err := s.FindBatch(0, ToEnd, n, nil)
	if found || !errors.Is(err, ErrSearchLimit) {
		t.Errorf("%v, %v", found, err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	// A bound on the size makes the work small enough to finish.
	if _, found, err := s.FindBatch(0, ToEnd, 64, nil); found || err != nil {
		t.Errorf("%v, %v", found, err)
	}
}

// Small numbers are what looks most like a header without being one.
func TestFindBatch_SmallNumbers(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	p := make([]byte, 4<<20)
	for i := range p {
		p[i] = byte(rng.Uint32() % 5)
	}
	st := memory(t)
	s := st.log(t, 0, Config{}, p)
	if _, found, err := s.FindBatch(0, ToEnd, int64(len(p)), nil); found || err != nil {
		t.Errorf("%v, %v", found, err)
	}
}

// Large batches are verified in pieces and then delivered whole; a damaged one costs no memory.
func TestScan_LargeBatch(t *testing.T) {
	st := memory(t)
	large := spec{base: 1, records: 17, value: 1 << 20}.batch(t)
	if len(large) < pieceSize {
		t.Fatal("not large enough")
	}
	p := join(some(t, 0, 1), large, some(t, 18, 1))
	s := st.log(t, 0, Config{}, p)
	c := s.Scan(0)
	for i, want := range []int64{0, 1, 18} {
		if !c.Next() || c.Batch().BaseOffset() != want {
			t.Fatalf("batch %d: %+v", i, c.Tail())
		}
	}
	if c.Next() || c.Tail().Kind != CleanEnd || cap(c.w.buf) > scanStep {
		t.Errorf("%+v", c.Tail())
	}
	h := s.ScanHeaders(0, ToEnd)
	h.Next()
	h.Next()
	b, buf, err := s.ReadBatch([]byte("x"), h.Header())
	if err != nil || !bytes.Equal(b, large) || len(buf) != len(large)+1 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	ok(t, s.Close())
	p[len(p)/2] ^= 1
	s = st.log(t, 0, Config{}, p)
	c = s.Scan(0)
	for c.Next() {
	}
	if tail := c.Tail(); tail.Kind != Damage || !errors.Is(tail.Reason, record.ErrChecksum) || tail.LastOffset != 0 {
		t.Errorf("%+v", tail)
	}
	if _, _, err := s.ReadBatch(nil, h.Header()); !errors.Is(err, record.ErrChecksum) {
		t.Errorf("%v", err)
	}
}

// In pieces or at once, a checksum is the same, for every format.
func TestVerify_LikeValidate(t *testing.T) {
	st := memory(t)
	for _, batch := range goldenLog(t) {
		for _, damaged := range []bool{false, true} {
			if damaged {
				batch[len(batch)-1] ^= 0x40
			}
			s := st.log(t, 0, Config{}, batch)
			h, err := s.HeaderAt(0, ToEnd)
			ok(t, err)
			got, want := s.verify(h), batch.Validate()
			if (want != nil) != damaged || (got == nil) != (want == nil) || damaged && got.Error() != want.Error() {
				t.Errorf("magic %d: %v, want %v", h.Magic, got, want)
			}
			ok(t, s.Close())
		}
	}
}
