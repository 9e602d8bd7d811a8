package wal

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"
)

func sampleCursors() []cursorState {
	return []cursorState{{name: "a", offset: 3, cutFrom: -1, at: 5, pins: true}, {name: "bc", offset: 4, cutFrom: 9, at: 6}}
}

func TestCursorsFile_Golden(t *testing.T) {
	got := appendCursors(nil, sampleCursors())
	want := "6f6e636375727372" + "0001" + "0000" + "00000002" +
		"0000000000000003" + "ffffffffffffffff" + "0000000000000005" + "0001" + "0001" + "61" +
		"0000000000000004" + "0000000000000009" + "0000000000000006" + "0000" + "0002" + "6263"
	sum := len(got) - 8
	if hex.EncodeToString(got[:sum]) != want || binary.BigEndian.Uint64(got[sum:]) != xxhash.Sum64(got[:sum]) {
		t.Errorf("%x", got)
	}
	back, err := parseCursors(got)
	if err != nil || !slices.Equal(back, sampleCursors()) {
		t.Errorf("%+v, %v", back, err)
	}
}

func TestCursorsFile_CutFlipAndVersion(t *testing.T) {
	p := appendCursors(nil, sampleCursors())
	for n := range p {
		if _, err := parseCursors(p[:n]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
		for bit := range 8 {
			p[n] ^= 1 << bit
			if _, err := parseCursors(p); !errors.Is(err, ErrCorrupt) {
				t.Errorf("byte %d, bit %d: %v", n, bit, err)
			}
			p[n] ^= 1 << bit
		}
	}
	p[9]++
	putLastSum(p)
	if _, err := parseCursors(p); !errors.Is(err, ErrUnsupportedVersion) {
		t.Errorf("a later version: %v", err)
	}
}

func FuzzCursorsFile(f *testing.F) {
	f.Add(appendCursors(nil, sampleCursors()))
	f.Add(appendCursors(nil, nil))
	f.Fuzz(func(t *testing.T, p []byte) {
		putLastSum(p)
		list, err := parseCursors(p)
		if err != nil {
			return
		}
		if again, err := parseCursors(appendCursors(nil, list)); err != nil || !slices.Equal(list, again) {
			t.Errorf("%+v became %+v, %v", list, again, err)
		}
	})
}
