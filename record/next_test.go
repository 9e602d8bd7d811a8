package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"testing"
)

// goldenLog is all version 2 examples in a row.
func goldenLog(t testing.TB) (log []byte, sizes []int) {
	for _, name := range []string{"plain", "idempotent", "commit", "emptied", "snappy", "lz4", "magic0", "magic1"} {
		b := readHex(t, name)
		log = append(log, b...)
		sizes = append(sizes, len(b))
	}
	return log, sizes
}

func TestNext_Walk(t *testing.T) {
	log, sizes := goldenLog(t)
	rest := log
	for i, size := range sizes {
		b, r, err := Next(rest)
		if err != nil || len(b) != size || len(r) != len(rest)-size || &b[0] != &rest[0] {
			t.Fatalf("batch %d: size %d, %d bytes left, %v", i, len(b), len(r), err)
		}
		if cap(b) != size {
			t.Errorf("batch %d: appending to it would overwrite the next one", i)
		}
		rest = r
	}
	if b, r, err := Next(rest); err != io.EOF || b != nil || len(r) != 0 {
		t.Errorf("at the end: %v, %d bytes left, %v", b, len(r), err)
	}
}

func TestNext_CutAtEveryLength(t *testing.T) {
	for name := range goldenHeaders {
		b := readHex(t, name)
		for n := 1; n < len(b); n++ {
			got, rest, err := Next(b[:n:n])
			var cut *TruncatedError
			if got != nil || len(rest) != n || !errors.As(err, &cut) || !errors.Is(err, ErrTruncated) || errors.Is(err, ErrCorrupt) {
				t.Fatalf("%s cut to %d bytes: %v, %v", name, n, got, err)
			}
			want := int64(len(b))
			if n < HeaderUpToMagic {
				want = HeaderUpToMagic
			}
			if cut.Have != int64(n) || cut.Need != want {
				t.Errorf("%s cut to %d bytes: have %d, need %d", name, n, cut.Have, cut.Need)
			}
		}
	}
}

func TestNext_Length(t *testing.T) {
	tests := []struct {
		magic  int8
		length int32
		want   int64 // smallest length, 0 for a truncated batch, -1 for a good one
	}{
		{2, 0, 14}, {2, -1, 14}, {2, math.MinInt32, 14}, {2, 5, 14}, {2, 13, 14},
		{2, 14, 49}, {2, 48, 49}, {2, 49, -1}, {2, 58, -1}, {2, 59, 0}, {2, math.MaxInt32, 0},
		{1, 13, 14}, {1, 14, 22}, {1, 21, 22}, {1, 22, -1}, {1, math.MaxInt32, 0},
		{0, 13, 14}, {0, 14, -1}, {0, math.MaxInt32, 0},
		{3, 13, 14}, {-1, 0, 14}, // the length is judged before the magic
	}
	for _, tt := range tests {
		p := bytes.Clone(readHex(t, "plain"))
		binary.BigEndian.PutUint32(p[posLength:], uint32(tt.length))
		p[posMagic] = byte(tt.magic)
		b, _, err := Next(p)
		var corrupt *CorruptError
		switch {
		case tt.want < 0:
			if err != nil || len(b) != int(tt.length)+LogOverhead {
				t.Errorf("magic %d length %d: %d bytes, %v", tt.magic, tt.length, len(b), err)
			}
		case tt.want == 0:
			if !errors.Is(err, ErrTruncated) {
				t.Errorf("magic %d length %d: %v, want truncated", tt.magic, tt.length, err)
			}
		case !errors.As(err, &corrupt) || !errors.Is(err, ErrCorrupt) || errors.Is(err, ErrTruncated):
			t.Errorf("magic %d length %d: %v, want corrupt", tt.magic, tt.length, err)
		case corrupt.Field != "length" || corrupt.Pos != 8 || corrupt.Got != int64(tt.length) || corrupt.Want != tt.want:
			t.Errorf("magic %d length %d: %+v", tt.magic, tt.length, corrupt)
		}
	}
}

func TestNext_LengthIsJudgedFirst(t *testing.T) {
	// Twelve bytes hold the length and nothing behind it. A bad one is corrupt, not cut off.
	if _, _, err := Next(make([]byte, 12)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v", err)
	}
	if _, _, err := Next(make([]byte, 11)); !errors.Is(err, ErrTruncated) {
		t.Errorf("got %v", err)
	}
}

func TestNext_Magic(t *testing.T) {
	for magic := math.MinInt8; magic <= math.MaxInt8; magic++ {
		p := bytes.Clone(readHex(t, "plain"))
		p[posMagic] = byte(int8(magic))
		_, rest, err := Next(p)
		if magic >= 0 && magic <= 2 {
			if err != nil {
				t.Errorf("magic %d: %v", magic, err)
			}
			continue
		}
		var m *MagicError
		if !errors.As(err, &m) || int(m.Magic) != magic || !errors.Is(err, ErrMagic) || !errors.Is(err, ErrUnsupportedVersion) ||
			errors.Is(err, ErrCorrupt) || errors.Is(err, ErrTruncated) || len(rest) != len(p) {
			t.Errorf("magic %d: %v", magic, err)
		}
	}
}

func TestNext_ClaimsCostNothing(t *testing.T) {
	p := bytes.Clone(readHex(t, "plain"))
	binary.BigEndian.PutUint32(p[posLength:], math.MaxInt32)
	if n := testing.AllocsPerRun(10, func() {
		if _, _, err := Next(p); err == nil {
			t.Fatal("no error")
		}
	}); n > 1 { // the error
		t.Errorf("%v allocations", n)
	}
}

func TestAll(t *testing.T) {
	log, sizes := goldenLog(t)
	i := 0
	for b, err := range All(log) {
		if err != nil || len(b) != sizes[i] {
			t.Fatalf("batch %d: %d bytes, %v", i, len(b), err)
		}
		i++
	}
	if i != len(sizes) {
		t.Errorf("%d batches, want %d", i, len(sizes))
	}
	for range All(nil) {
		t.Error("an empty log has a batch")
	}
}

func TestAll_ErrorIsLast(t *testing.T) {
	log, sizes := goldenLog(t)
	var errs []error
	n := 0
	for b, err := range All(log[:len(log)-1]) {
		if errs = append(errs, err); err == nil {
			n++
		} else if b != nil {
			t.Error("a batch beside an error")
		}
	}
	if n != len(sizes)-1 || !errors.Is(errs[len(errs)-1], ErrTruncated) || len(errs) != n+1 {
		t.Errorf("%d batches, then %v", n, errs[len(errs)-1])
	}
}

func TestAll_Stop(t *testing.T) {
	log, _ := goldenLog(t)
	n := 0
	for range All(log) {
		if n++; n == 2 {
			break
		}
	}
	if n != 2 {
		t.Errorf("%d steps", n)
	}
}
