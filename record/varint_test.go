package record

import (
	"bytes"
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestVarint_Golden(t *testing.T) {
	for want, v := range map[string]int64{
		"00": 0, "01": -1, "02": 1, "03": -2, "7e": 63, "7f": -64, "80 01": 64, "81 01": -65, "d8 04": 300,
		"fe ff ff ff 0f": math.MaxInt32, "ff ff ff ff 0f": math.MinInt32,
	} {
		p, _ := hex.DecodeString(strings.ReplaceAll(want, " ", ""))
		if got := appendVarint(nil, int32(v)); !bytes.Equal(got, p) || sizeVarint(int32(v)) != len(p) {
			t.Errorf("%d: % x, want %s", v, got, want)
		}
		if got := appendVarlong(nil, v); !bytes.Equal(got, p) || sizeVarlong(v) != len(p) {
			t.Errorf("%d: % x, want %s", v, got, want)
		}
		if got, n := varint(p); int64(got) != v || n != len(p) {
			t.Errorf("%s: %d in %d bytes, want %d", want, got, n, v)
		}
		if got, n := varlong(p); got != v || n != len(p) {
			t.Errorf("%s: %d in %d bytes, want %d", want, got, n, v)
		}
	}
	for want, v := range map[string]int64{
		"feffffffffffffffff01": math.MaxInt64, "ffffffffffffffffff01": math.MinInt64,
	} {
		p, _ := hex.DecodeString(want)
		if got := appendVarlong(nil, v); !bytes.Equal(got, p) || sizeVarlong(v) != len(p) {
			t.Errorf("%d: % x, want %s", v, got, want)
		}
		if got, n := varlong(p); got != v || n != len(p) {
			t.Errorf("%s: %d in %d bytes, want %d", want, got, n, v)
		}
	}
}

func TestVarint_Ends(t *testing.T) {
	for in, want := range map[string]int{
		"": 0, "80": 0, "ffffffff": 0, "8080808080": -5, "ffffffffff01": -5,
		"8000": 2, "8080808000": 5, // longer than need be: accepted
		"ffffffff7f": 5, // surplus bits of the fifth byte: dropped
	} {
		p, _ := hex.DecodeString(in)
		if _, n := varint(p); n != want {
			t.Errorf("varint %q: %d, want %d", in, n, want)
		}
	}
	if v, _ := varint([]byte{0xff, 0xff, 0xff, 0xff, 0x7f}); v != math.MinInt32 {
		t.Errorf("surplus bits changed the value: %d", v)
	}
	nine := bytes.Repeat([]byte{0x80}, 9)
	for _, tt := range []struct {
		p    []byte
		want int
	}{
		{nil, 0}, {nine, 0}, {append(bytes.Clone(nine), 0x80), -10}, {append(bytes.Clone(nine), 0x80, 0), -10},
		{append(bytes.Clone(nine), 0x00), 10}, {append(bytes.Clone(nine), 0x7f), 10},
	} {
		if _, n := varlong(tt.p); n != tt.want {
			t.Errorf("varlong % x: %d, want %d", tt.p, n, tt.want)
		}
	}
}

func TestVarint_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Int64().Draw(t, "v")
		p := appendVarlong(nil, v)
		if got, n := varlong(append(p, 0xff)); got != v || n != len(p) || n != sizeVarlong(v) {
			t.Fatalf("varlong %d: %d in %d bytes", v, got, n)
		}
		p = appendVarint(nil, int32(v))
		if got, n := varint(append(p, 0xff)); got != int32(v) || n != len(p) || n != sizeVarint(int32(v)) {
			t.Fatalf("varint %d: %d in %d bytes", int32(v), got, n)
		}
	})
}
