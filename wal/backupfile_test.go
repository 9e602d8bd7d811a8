package wal

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/oncelog/oncelog/record"
)

func sampleManifest() manifest {
	return manifest{source: "/d", changes: 1, generation: 2, logStart: 3, end: 9, segments: []backedUp{
		{base: 0, size: 5, last: record.Identity{Position: 1, BaseOffset: 4, Size: 4, CRC: 0xdeadbeef}},
		{base: 5},
	}}
}

func TestManifest_Golden(t *testing.T) {
	m := sampleManifest()
	got := m.append(nil)
	want := "6f6e636261636b70" + "0001" + "0002" + "00000002" + "0000000000000001" + "0000000000000002" + "0000000000000003" + "0000000000000009" +
		"2f64" +
		"0000000000000000" + "0000000000000005" + "0000000000000004" + "0000000000000001" + "00000004" + "deadbeef" +
		"0000000000000005" + "0000000000000000" + "0000000000000000" + "0000000000000000" + "00000000" + "00000000"
	sum := len(got) - 8
	if hex.EncodeToString(got[:sum]) != want || binary.BigEndian.Uint64(got[sum:]) != xxhash.Sum64(got[:sum]) {
		t.Errorf("%x", got)
	}
	back, err := parseManifest(got)
	if d := cmp.Diff(m, withBases(back), cmp.AllowUnexported(manifest{}, backedUp{})); err != nil || d != "" {
		t.Errorf("%v\n%s", err, d)
	}
}

// withBases leaves out what the entry says twice.
func withBases(m manifest) manifest {
	for i := range m.segments {
		m.segments[i].last.SegmentBase = 0
	}
	return m
}

func TestManifest_CutFlipAndVersion(t *testing.T) {
	m := sampleManifest()
	p := m.append(nil)
	for n := range p {
		if _, err := parseManifest(p[:n]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
		for bit := range 8 {
			p[n] ^= 1 << bit
			if _, err := parseManifest(p); !errors.Is(err, ErrCorrupt) {
				t.Errorf("byte %d, bit %d: %v", n, bit, err)
			}
			p[n] ^= 1 << bit
		}
	}
	binary.BigEndian.PutUint16(p[8:], backupVersion+1)
	putLastSum(p)
	if _, err := parseManifest(p); !errors.Is(err, ErrUnsupportedVersion) {
		t.Errorf("a later version: %v", err)
	}
}

func putLastSum(p []byte) {
	if len(p) >= 8 {
		binary.BigEndian.PutUint64(p[len(p)-8:], xxhash.Sum64(p[:len(p)-8]))
	}
}

func FuzzManifest(f *testing.F) {
	m := sampleManifest()
	f.Add(m.append(nil))
	f.Add(new(manifest).append(nil))
	f.Fuzz(func(t *testing.T, p []byte) {
		putLastSum(p)
		m, err := parseManifest(p)
		if err != nil {
			return
		}
		if again, err := parseManifest(m.append(nil)); err != nil || cmp.Diff(m, again, cmp.AllowUnexported(manifest{}, backedUp{})) != "" {
			t.Errorf("%+v became %+v, %v", m, again, err)
		}
	})
}
