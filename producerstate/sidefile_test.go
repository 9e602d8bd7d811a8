package producerstate

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
)

// goldenSide is the side file of goldenState, field by field.
const goldenSide = `
	4f4e4345 50524f44 00000001 00000001
	00000000 0000006c c767c941 00000002
	00000002 0000004e 00000000 00000064
	00000000 00000200 00000000 0000006b
	a1b2c3d4 00000000 00000000 00003039
	00000000 00000000

	00000000 00001234 0000018b cfe5680f 00000000 00003039 ffffffff ffffffff 00000009 0001 02
	00000000 00000063 0000018b cfe56800 7ffffffd 00000001
	00000000 00000066 0000018b cfe5680f 00000000 00000002

	40000000 00000007 ffffffff ffffffff ffffffff ffffffff 00000000 00000068 ffffffff 0000 00

	40000000 00000007 00000000 00000005 0003 61 c3a9
	40000000 00000009 40000000 00000000 0001 62

	88c43f1c e4a2bd41`

var goldenLast = record.Identity{SegmentBase: 100, Position: 512, BaseOffset: 107, Size: 78, CRC: 0xa1b2c3d4}

// goldenState has a producer with two batches around the wrap, a named one known by nothing but its open transaction, and a
// name whose producer is not known.
func goldenState() *State {
	s := &State{Offset: 108, NewestClock: 12345, Last: goldenLast, table: newTable()}
	p := producer{id: 0x1234, epoch: 1, lastTimestamp: 1700000000015, appendClock: 12345, txnFirst: -1, coordinatorEpoch: 9}
	p.push(BatchMetadata{LastOffset: 99, Timestamp: 1700000000000, LastSequence: 2147483645, OffsetDelta: 1})
	p.push(BatchMetadata{LastOffset: 102, Timestamp: 1700000000015, LastSequence: 0, OffsetDelta: 2})
	s.table.add(p)
	q := unknown(1<<62 + 7)
	q.epoch, q.txnFirst = 0, 104
	s.table.add(q)
	s.Named = []Named{{1<<62 + 7, 5, "aé"}, {1<<62 + 9, 1 << 62, "b"}}
	return s
}

// encodeSide returns the bytes that WritePair writes for a state.
func encodeSide(t testing.TB, s *State) []byte {
	t.Helper()
	mem := newMemDir(t)
	if err := WritePair(mem, testDir, s.Freeze(), s.Last); err != nil {
		t.Fatal(err)
	}
	data, err := vfs.ReadFile(mem, sidePath(testDir, s.Offset), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func sealSide(b []byte) []byte {
	binary.BigEndian.PutUint64(b[len(b)-8:], xxhash.Sum64(b[:len(b)-8]))
	return b
}

// comparable returns all of a state that counts.
func comparable(s *State) any {
	return struct {
		Offset  int64
		CRC     uint32
		Last    record.Identity
		Clock   int64
		Named   []Named
		Entries []Entry
	}{s.Offset, s.SnapshotCRC, s.Last, s.NewestClock, s.Named, slices.Collect(s.Entries())}
}

func TestSideFile_Golden(t *testing.T) {
	want := unhex(goldenSide)
	got := encodeSide(t, goldenState())
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%swant\n%s", hex.Dump(got), hex.Dump(want))
	}
	s, err := decodeSideFile(want, "side", 108)
	if err != nil {
		t.Fatal(err)
	}
	g := goldenState()
	g.SnapshotCRC = s.SnapshotCRC
	if d := cmp.Diff(comparable(g), comparable(s), cmp.AllowUnexported(Entry{})); d != "" {
		t.Error(d)
	}
}

func TestSideFile_NoLastBatch(t *testing.T) {
	g := goldenState()
	g.Last = record.Identity{SegmentBase: 7, Position: 9} // without a size the rest means nothing
	s, err := decodeSideFile(encodeSide(t, g), "side", 108)
	if err != nil || s.Last != (record.Identity{}) {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestSideFile_Malformed(t *testing.T) {
	const first, second = sideHeader, sideHeader + sideProducer + 2*sideBatch
	const names = second + sideProducer
	change := func(at int, hexBytes string) []byte {
		b := unhex(goldenSide)
		copy(b[at:], unhex(hexBytes))
		return sealSide(b)
	}
	tests := []struct {
		name string
		data []byte
		kind SnapshotFault
	}{
		{"empty", nil, TooShort},
		{"header only", unhex(goldenSide)[:sideHeader], TooShort},
		{"other magic", change(0, "58"), BadChecksum},
		{"version 0", change(8, "00000000"), BadVersion},
		{"version 2", change(8, "00000002"), BadVersion},
		{"wrong sum", append(unhex(goldenSide)[:len(unhex(goldenSide))-1], 0), BadChecksum},
		{"unknown flag", change(12, "00000003"), Inconsistent},
		{"reserved field", change(68, "00000001"), Inconsistent},
		{"second reserved field", change(80, "01"), Inconsistent},
		{"another offset", change(16, "000000000000006d"), Inconsistent},
		{"last batch, not there", change(12, "00000000"), Inconsistent},
		{"last batch of no bytes", change(36, "00000000"), Inconsistent},
		{"too many producers", change(28, "ffffffff"), BadCount},
		{"one producer more", change(28, "00000003"), BadCount},
		{"one producer less", change(28, "00000001"), 0},
		{"too many names", change(32, "ffffffff"), BadCount},
		{"one name less", change(32, "00000001"), TrailingBytes},
		{"six batches", change(first+38, "06"), Inconsistent},
		{"more batches than bytes", change(second+38, "05"), 0},
		{"negative id", change(first, "80"), Inconsistent},
		{"id twice", change(second, "0000000000001234"), Inconsistent},
		{"transaction above", change(second+24, "000000000000006c"), Inconsistent},
		{"batch at the offset", change(first+sideProducer+sideBatch, "000000000000006c"), Inconsistent},
		{"batches out of order", change(first+sideProducer+sideBatch, "0000000000000062"), Inconsistent},
		{"low id of a name", change(names, "3fffffffffffffff"), Inconsistent},
		{"names out of order", change(names, "400000000000000a"), Inconsistent},
		{"name without its bytes", change(names+16, "0000"), 0},
		{"negative first count", change(names+8, "80"), Inconsistent},
		{"name past the end", change(names+16, "ffff"), BadCount},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := decodeSideFile(tt.data, "dir/side", 108)
			var e *SnapshotError
			if !errors.As(err, &e) || (tt.kind != 0 && e.Kind != tt.kind) {
				t.Fatalf("got %v, want %v", err, tt.kind)
			}
			if errors.Is(err, ErrUnsupportedVersion) != (tt.kind == BadVersion) {
				t.Errorf("matches ErrUnsupportedVersion: %v", err)
			}
			if !strings.Contains(err.Error(), "dir/side: byte ") {
				t.Errorf("text: %v", err)
			}
		})
	}
}

func TestSideFile_CutAtEveryLength(t *testing.T) {
	data := unhex(goldenSide)
	for n := range data {
		var e *SnapshotError
		if _, err := decodeSideFile(data[:n], "", 108); !errors.As(err, &e) {
			t.Fatalf("%d bytes: %v", n, err)
		}
		// Also where the checksum happens to fit what is left.
		if n >= sideTrailer {
			if _, err := decodeSideFile(sealSide(slices.Clone(data[:n])), "", 108); !errors.As(err, &e) {
				t.Fatalf("%d bytes, resealed: %v", n, err)
			}
		}
	}
}

func TestSideFile_FlipEveryBit(t *testing.T) {
	data := unhex(goldenSide)
	for i := range len(data) * 8 {
		b := slices.Clone(data)
		b[i/8] ^= 1 << (i % 8)
		_, err := decodeSideFile(b, "", 108)
		if !errors.Is(err, ErrSnapshotCorrupt) {
			t.Fatalf("bit %d: %v", i, err)
		}
	}
}

func FuzzSideFile(f *testing.F) {
	f.Add(unhex(goldenSide))
	f.Add(encodeSide(f, &State{Offset: 0, table: newTable()}))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, resealed := range []bool{false, true} {
			if resealed {
				if len(data) < sideHeader+sideTrailer {
					return
				}
				data = sealSide(slices.Clone(data))
			}
			offset := int64(1 << 40)
			if len(data) > 24 {
				offset = int64(binary.BigEndian.Uint64(data[16:]))
			}
			s, err := decodeSideFile(data, "f", offset)
			if err != nil {
				var e *SnapshotError
				if !errors.As(err, &e) || e.Error() == "" {
					t.Fatalf("untyped error %v", err)
				}
				continue
			}
			if s.Offset < 0 {
				continue // cannot be in a file's name
			}
			mem := newMemDir(t)
			file := func(f vfs.File) error { return streamSideFile(f, s.Freeze(), s.SnapshotCRC, s.Last) }
			if err := replaceFile(mem, "/x", file); err != nil {
				t.Fatal(err)
			}
			got, err := vfs.ReadFile(mem, "/x", 1<<30)
			if err != nil || !bytes.Equal(got, data) {
				t.Fatalf("decoded and encoded:\n% x\n% x\n%v", data, got, err)
			}
		}
	})
}
