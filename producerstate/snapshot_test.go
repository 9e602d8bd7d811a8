package producerstate

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
)

// The two snapshots that the format's description works out.
const (
	emptySnapshot = "00 01 48 67 4b c7 00 00 00 00"
	twoProducers  = `
		00 01 dc 57 e0 5f 00 00 00 02 00 00 00 00 00 00
		12 34 00 01 00 00 00 00 00 00 00 00 00 00 00 66
		00 00 00 02 00 00 01 8b cf e5 68 0f 00 00 00 09
		ff ff ff ff ff ff ff ff 00 00 00 00 00 00 12 35
		00 00 00 00 00 07 00 00 00 00 00 00 00 6b 00 00
		00 03 00 00 01 8b cf e5 68 1e ff ff ff ff 00 00
		00 00 00 00 00 68`
)

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		panic(err)
	}
	return b
}

// goldenEntries are the producers of twoProducers.
func goldenEntries() []Entry {
	a := Entry{ProducerID: 0x1234, ProducerEpoch: 1, LastTimestamp: 1700000000015, CoordinatorEpoch: 9, CurrentTxnFirstOffset: -1, AppendClock: -1}
	a.AddBatch(BatchMetadata{LastSequence: 0, LastOffset: 102, OffsetDelta: 2, Timestamp: 1700000000015})
	b := Entry{ProducerID: 0x1235, LastTimestamp: 1700000000030, CoordinatorEpoch: -1, CurrentTxnFirstOffset: 104, AppendClock: -1}
	b.AddBatch(BatchMetadata{LastSequence: 7, LastOffset: 107, OffsetDelta: 3, Timestamp: 1700000000030})
	return []Entry{a, b}
}

func TestSnapshot_Golden(t *testing.T) {
	if got := AppendSnapshot([]byte("x"), slices.Values([]Entry(nil))); !bytes.Equal(got[1:], unhex(emptySnapshot)) {
		t.Errorf("empty: % x", got)
	}
	got := AppendSnapshot(nil, slices.Values(goldenEntries()))
	if want := unhex(twoProducers); !bytes.Equal(got, want) {
		t.Errorf("got\n%swant\n%s", hex.Dump(got), hex.Dump(want))
	}
	s, err := decodeSnapshot(got, "00000000000000000108.snapshot", 108)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(goldenEntries(), slices.Collect(s.Entries()), cmp.AllowUnexported(Entry{})); d != "" {
		t.Error(d)
	}
	if !s.Bare || s.Offset != 108 || s.SnapshotCRC != 0xdc57e05f || s.Len() != 2 {
		t.Errorf("%+v", s)
	}
}

// The stream that writes files, which works in blocks, produces the same bytes.
func TestSnapshot_StreamEqualsAppend(t *testing.T) {
	mem := newLog(t, Config{}).fsys
	for _, n := range []int{0, 1, 2, blockSize/snapshotEntry - 1, blockSize / snapshotEntry, blockSize/snapshotEntry + 1, 20000} {
		s := &State{Offset: 1 << 40, table: newTable()}
		for i := range n {
			p := unknown(int64(i) * 7)
			p.push(BatchMetadata{LastOffset: int64(i), LastSequence: int32(i)})
			s.table.add(p)
		}
		want := AppendSnapshot(nil, s.Entries())
		f := s.Freeze()
		if err := WriteSnapshot(mem, testDir, f); err != nil {
			t.Fatal(err)
		}
		got, err := vfs.ReadFile(mem, snapshotPath(testDir, 1<<40), 1<<30)
		if err != nil || !bytes.Equal(got, want) || int64(len(got)) != f.SnapshotBytes() {
			t.Errorf("%d producers: %d bytes, want %d, %v", n, len(got), len(want), err)
		}
	}
}

// seal gives a snapshot's bytes a right checksum.
func seal(b []byte) []byte {
	binary.BigEndian.PutUint32(b[2:], crc32.Checksum(b[6:], castagnoli))
	return b
}

// snapshotOf returns a snapshot of zeros with a version, a count and a right checksum.
func snapshotOf(version, count uint32, rest int) []byte {
	b := make([]byte, 10+rest)
	binary.BigEndian.PutUint16(b, uint16(version))
	binary.BigEndian.PutUint32(b[6:], count)
	return seal(b)
}

func TestSnapshot_Malformed(t *testing.T) {
	entry := func(change func(b []byte)) []byte {
		b := unhex(twoProducers)
		change(b)
		return seal(b)
	}
	put64 := func(at int, v int64) func([]byte) {
		return func(b []byte) { binary.BigEndian.PutUint64(b[at:], uint64(v)) }
	}
	put32 := func(at int, v int32) func([]byte) {
		return func(b []byte) { binary.BigEndian.PutUint32(b[at:], uint32(v)) }
	}
	long := AppendSnapshot(nil, slices.Values(goldenEntries()))
	short := AppendSnapshot(nil, slices.Values(goldenEntries()[:1]))
	stale := append(slices.Clone(short), long[len(short):]...)
	zeroed := make([]byte, len(long))

	tests := []struct {
		name string
		data []byte
		kind SnapshotFault
	}{
		{"nothing", nil, TooShort},
		{"one byte", []byte{0}, TooShort},
		{"nine bytes", unhex(emptySnapshot)[:9], TooShort},
		{"version 0", snapshotOf(0, 0, 0), BadVersion},
		{"version 2", snapshotOf(2, 0, 0), BadVersion},
		{"version 0x7fff", snapshotOf(0x7fff, 0, 0), BadVersion},
		{"negative version", snapshotOf(0xffff, 0, 0), BadVersion},
		{"count -1", snapshotOf(1, 0xffffffff, 0), BadCount},
		{"count 0x7fffffff", snapshotOf(1, 0x7fffffff, 0), BadCount},
		{"count 1, 45 bytes", snapshotOf(1, 1, 45), BadCount},
		{"count 1, 47 bytes", snapshotOf(1, 1, 47), TrailingBytes},
		{"count 0, 1 byte", snapshotOf(1, 0, 1), TrailingBytes},
		{"length right, content zero", zeroed, BadVersion},
		{"37 zeros in the middle", append(long[:20:20], make([]byte, len(long)-20)...), BadChecksum},
		{"half", long[:len(long)/2], BadChecksum},
		{"stale tail", stale, StaleTail},
		{"last offset at its own offset", entry(put64(24, 108)), Inconsistent},
		{"last offset above", entry(put64(24, 1000)), Inconsistent},
		{"transaction above", entry(put64(94, 108)), Inconsistent},
		{"transaction below -1", entry(put64(94, -2)), Inconsistent},
		{"negative id", entry(put64(10, -1)), Inconsistent},
		{"id twice", entry(put64(10, 0x1235)), Inconsistent},
		{"last offset below -1", entry(put64(24, -2)), Inconsistent},
		{"sequence below -1", entry(put32(20, -2)), Inconsistent},
		{"delta above the offset", entry(put32(32, 103)), Inconsistent},
		{"negative delta", entry(put32(32, -1)), Inconsistent},
		{"no offset but a sequence", entry(put64(24, -1)), Inconsistent},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := decodeSnapshot(tt.data, "dir/00000000000000000108.snapshot", 108)
			var e *SnapshotError
			if !errors.As(err, &e) || e.Kind != tt.kind || e.Offset != 108 {
				t.Fatalf("got %v, want %v", err, tt.kind)
			}
			corrupt, version := errors.Is(err, ErrSnapshotCorrupt), errors.Is(err, ErrUnsupportedVersion)
			if version != (tt.kind == BadVersion) || corrupt == version {
				t.Errorf("matches ErrSnapshotCorrupt: %v, ErrUnsupportedVersion: %v", corrupt, version)
			}
			if !strings.Contains(err.Error(), "dir/00000000000000000108.snapshot") {
				t.Errorf("text: %v", err)
			}
		})
	}
	if s, err := decodeSnapshot(snapshotOf(1, 0, 0), "", 0); err != nil || s.Len() != 0 {
		t.Errorf("the empty snapshot: %v", err)
	}
}

// A claimed count must not size anything.
func TestSnapshot_ClaimedCountAllocatesNothing(t *testing.T) {
	b := make([]byte, 10)
	b[1] = 1
	binary.BigEndian.PutUint32(b[6:], 0x7fffffff)
	seal(b)
	if n := testing.AllocsPerRun(100, func() { _, _ = decodeSnapshot(b, "", 5) }); n > 20 {
		t.Errorf("%v allocations", n)
	}
}

func TestSnapshot_CutAtEveryLength(t *testing.T) {
	data := unhex(twoProducers)
	for n := range data {
		var e *SnapshotError
		if _, err := decodeSnapshot(data[:n], "", 108); !errors.As(err, &e) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
}

func TestSnapshot_FlipEveryBit(t *testing.T) {
	data := unhex(twoProducers)
	for i := range len(data) * 8 {
		b := slices.Clone(data)
		b[i/8] ^= 1 << (i % 8)
		var e *SnapshotError
		if _, err := decodeSnapshot(b, "", 108); !errors.As(err, &e) {
			t.Fatalf("bit %d: %v", i, err)
		}
	}
}

func FuzzSnapshot(f *testing.F) {
	f.Add(unhex(emptySnapshot))
	f.Add(unhex(twoProducers))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, resealed := range []bool{false, true} {
			if resealed {
				if len(data) < snapshotHeader {
					return
				}
				data = seal(slices.Clone(data))
			}
			s, err := decodeSnapshot(data, "f", 1<<40)
			if err != nil {
				var e *SnapshotError
				if !errors.As(err, &e) || e.Error() == "" {
					t.Fatalf("untyped error %v", err)
				}
				continue
			}
			if got := AppendSnapshot(nil, s.Entries()); !bytes.Equal(got, data) {
				t.Fatalf("decoded and encoded:\n% x\n% x", data, got)
			}
		}
	})
}

// Kafka 4.4 writes more than a million producers and cannot read them back.
func TestSnapshot_MoreThanAMillion(t *testing.T) {
	const n = 1_000_001
	s := &State{Offset: 5, table: newTable()}
	s.table.reserve(n)
	for i := range int64(n) {
		s.table.add(unknown(i))
	}
	data := AppendSnapshot(nil, s.Entries())
	got, err := decodeSnapshot(data, "", 5)
	if err != nil || got.Len() != n {
		t.Fatalf("%v", err)
	}
	if _, ok := got.Entry(n - 1); !ok {
		t.Error("the last producer is missing")
	}
}

func TestReadSnapshot_Names(t *testing.T) {
	mem := vfstest.NewMem()
	for _, name := range []string{"108.snapshot", "00000000000000000108", "-0000000000000000108.snapshot", "99999999999999999999.snapshot", "00000000000000000108.snapshot.deleted"} {
		if _, err := ReadSnapshot(mem, "/"+name); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, ok := ParseSnapshotName(name); ok {
			t.Errorf("%s: parsed", name)
		}
	}
	for _, o := range []int64{0, 108, 1<<63 - 1} {
		if got, ok := ParseSnapshotName(SnapshotName(o)); !ok || got != o {
			t.Errorf("%s: %d, %v", SnapshotName(o), got, ok)
		}
		if got, ok := ParseSideFileName(SideFileName(o)); !ok || got != o {
			t.Errorf("%s: %d, %v", SideFileName(o), got, ok)
		}
	}
	if want := "00000000000000000108.snapshot oncelog.producers-00000000000000000108"; fmt.Sprint(SnapshotName(108), " ", SideFileName(108)) != want {
		t.Errorf("names %s %s", SnapshotName(108), SideFileName(108))
	}
}
