package recovery

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
)

func sampleSlot() Slot {
	return Slot{
		Generation: 7, LogStart: 3,
		Durable:        Position{Offset: 120, Last: record.Identity{SegmentBase: 100, Position: 4096, BaseOffset: 110, Size: 300, CRC: 0xdeadbeef}},
		Recovery:       Position{Offset: 100, Last: record.Identity{SegmentBase: 40, Position: 77, BaseOffset: 99, Size: 80, CRC: 1}},
		SnapshotOffset: 100, NewestTimestamp: 1_700_000_000_000, AppendClock: 1_700_000_000_001,
		Clean: true, Gaps: true, Replacing: true, Mode: SyncInterval, GroupBound: 1 << 20, BootID: "boot", Who: [2]uint64{1, 2},
		Newest: index.TimestampOffset{Timestamp: 1_700_000_000_000, Offset: 97}, RebuildFrom: 41, Cleaned: 55, Compacted: 77, Changes: 43,
		Segments: SegmentSum{Count: 7, Sum: 1 << 63}, Bare: [2]uint64{5, 6},
		Txns: TxnSum{Count: 258, Sum: 0x0123456789abcdef}, TxnsKnown: true,
	}
}

func TestSlot_Golden(t *testing.T) {
	s := sampleSlot()
	got := s.append(nil)
	want := "6f6e63656c6f670a" + "0001" + "0019" + "01" + "000000" + "0000000000000007" + "0000000000000003" +
		"0000000000000078" + "0000000000000064" + "0000000000001000" + "000000000000006e" + "0000012c" + "deadbeef" +
		"0000000000000064" + "0000000000000028" + "000000000000004d" + "0000000000000063" + "00000050" + "00000001" +
		"0000000000000064" + "0000018bcfe56800" + "0000018bcfe56801" + "0000000000100000" +
		"0000000000000001" + "0000000000000002" + "04" + hex.EncodeToString([]byte("boot"))
	if len(got) != slotSize || hex.EncodeToString(got[:len(want)/2]) != want {
		t.Errorf("slot is\n%x\nwant\n%s", got[:len(want)/2], want)
	}
	const rest = "0000018bcfe56800" + "0000000000000061" + "0000000000000029" + "0000000000000037" + "000000000000004d"
	if hex.EncodeToString(got[256:296]) != rest {
		t.Errorf("behind the boot id are %x, want %s", got[256:296], rest)
	}
	const more = "000000000000002b" + "0000000000000007" + "8000000000000000" + "0000000000000005" + "0000000000000006" +
		"0123456789abcdef" + "0000000000000103"
	if hex.EncodeToString(got[296:352]) != more {
		t.Errorf("at byte 296 are %x, want %s", got[296:352], more)
	}
	clear(got[256:352])
	if !bytes.Equal(got[len(want)/2:slotSum], make([]byte, slotSum-len(want)/2)) {
		t.Error("what is not used must be zero")
	}
	back, err := parseSlot(s.append(nil))
	if err != nil || back != s {
		t.Errorf("read back %+v, %v", back, err)
	}
}

func TestSlot_CutAndFlip(t *testing.T) {
	s := sampleSlot()
	p := s.append(nil)
	for n := range p {
		if _, err := parseSlot(p[:n]); !errors.Is(err, errNoSlot) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
	for bit := range 8 * len(p) {
		q := bytes.Clone(p)
		q[bit/8] ^= 1 << (bit % 8)
		if _, err := parseSlot(q); !errors.Is(err, errNoSlot) {
			t.Fatalf("bit %d flipped: %v", bit, err)
		}
	}
}

func TestSlot_OtherVersionIsNotCorruption(t *testing.T) {
	s := sampleSlot()
	p := s.append(nil)
	p[9] = 2
	putSum(p)
	if _, err := parseSlot(p); !errors.Is(err, ErrUnsupportedVersion) {
		t.Errorf("version 2: %v", err)
	}
}

// A slot of a version of this program that did not keep account of the transaction indexes says that it does not know.
func TestSlot_WithoutTransactions(t *testing.T) {
	s := sampleSlot()
	p := s.append(nil)
	clear(p[336:352])
	putSum(p)
	s.Txns, s.TxnsKnown = TxnSum{}, false
	if got, err := parseSlot(p); err != nil || got != s {
		t.Errorf("read %+v, %v", got, err)
	}
	// None is not the same as not known, also after something was removed that had not been added.
	for _, n := range []uint64{0, 1, math.MaxUint64} {
		s.Txns, s.TxnsKnown = TxnSum{Count: n}, true
		if got, err := parseSlot(s.append(nil)); err != nil || !got.TxnsKnown || got.Txns.Count != min(n, math.MaxUint64-1) {
			t.Errorf("%d entries: read %+v, %v", n, got.Txns, err)
		}
	}
}

// The sum is a format: that of the entry of the example of an index, 0x1234 from 100 to 103, and 104.
func TestTxnSum(t *testing.T) {
	a := index.AbortedTxn{ProducerID: 0x1234, FirstOffset: 100, LastOffset: 103, LastStableOffset: 104}
	b := index.AbortedTxn{ProducerID: 0x1234, FirstOffset: 105, LastOffset: 109, LastStableOffset: 104}
	var s, r TxnSum
	s.Add(a)
	if want := (TxnSum{1, xxhash.Sum64(append(append(append(append([]byte{},
		0, 0, 0, 0, 0, 0, 0x12, 0x34), 0, 0, 0, 0, 0, 0, 0, 100), 0, 0, 0, 0, 0, 0, 0, 103), 0, 0, 0, 0, 0, 0, 0, 104))}); s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
	s.Add(b)
	r.Add(b)
	r.Add(a)
	if s != r || s.Count != 2 {
		t.Errorf("in one order %+v, in the other %+v", s, r)
	}
	s.Remove(a)
	s.Remove(b)
	if s != (TxnSum{}) {
		t.Errorf("nothing is left, and the sum is %+v", s)
	}
}

func putSum(p []byte) {
	sum := xxhash.Sum64(p[:slotSum])
	for i := range 8 {
		p[slotSum+i] = byte(sum >> (56 - 8*i))
	}
}

func TestSlot_LongBootID(t *testing.T) {
	a := Slot{BootID: string(bytes.Repeat([]byte("x"), 500))}
	s, err := parseSlot(a.append(nil))
	if err != nil || s.BootID != bootField(a.BootID) || len(s.BootID) > maxBootIDLen {
		t.Errorf("boot id %q, %v", s.BootID, err)
	}
}

func FuzzSlot(f *testing.F) {
	s := sampleSlot()
	f.Add(s.append(nil))
	f.Add(new(Slot).append(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, p []byte) {
		if len(p) >= slotSize {
			p = bytes.Clone(p[:slotSize])
			putSum(p) // else nothing gets past the checksum
		}
		s, err := parseSlot(p)
		if err != nil {
			return
		}
		again, err := parseSlot(s.append(nil))
		if err != nil || again != s {
			t.Errorf("%+v became %+v, %v", s, again, err)
		}
	})
}

func openMem(t *testing.T, m vfs.FS) *StateFile {
	t.Helper()
	f, err := OpenStateFile(m, "/p", false)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func memDir(t *testing.T, seed uint64) *vfstest.Mem {
	t.Helper()
	m := vfstest.NewMemWith(vfstest.MemOptions{Seed: seed})
	if err := m.MkdirAll("/p", 0o755); err != nil {
		t.Fatal(err)
	}
	m.SyncAll()
	return m
}

// Whatever a power cut leaves, the newest slot is one that was written, and none older than the newest synced one.
func TestStateFile_PowerCuts(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := memDir(t, seed)
		f := openMem(t, m)
		synced, last := int64(-1), int64(-1)
		for i := range int64(1 + r.IntN(12)) {
			s := sampleSlot()
			s.LogStart = i
			var err error
			switch {
			case i == 0 || r.IntN(3) == 0:
				err = f.Sync(s)
				synced = i
			case r.IntN(4) == 0:
				err = f.SyncBoth(s)
				synced = i
			default:
				err = f.Hint(s)
			}
			if err != nil {
				t.Fatal(err)
			}
			last = i
		}
		c := m.Crash(vfstest.CrashOptions{Mode: vfstest.PowerCut, Seed: seed, Torn: true, Garbage: true})
		s, ok := openMem(t, c).Newest()
		if !ok || s.LogStart < synced || s.LogStart > last {
			t.Fatalf("seed %d: newest slot after a power cut says %d (%v), synced %d, written %d", seed, s.LogStart, ok, synced, last)
		}
		s, ok = openMem(t, m.Crash(vfstest.CrashOptions{})).Newest()
		if !ok || s.LogStart != last {
			t.Fatalf("seed %d: newest slot after a kill says %d (%v), written %d", seed, s.LogStart, ok, last)
		}
	}
}

// A log start that moved up must not come back down when either of the synced slots is lost.
func TestStateFile_SyncBothSurvivesALostSlot(t *testing.T) {
	for lost := range 2 {
		m := memDir(t, 1)
		f := openMem(t, m)
		old, moved := sampleSlot(), sampleSlot()
		old.LogStart, moved.LogStart = 1, 2
		for range 3 {
			if err := f.Sync(old); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.SyncBoth(moved); err != nil {
			t.Fatal(err)
		}
		file, err := m.OpenFile(filepath.Join("/p", StateFileName), vfs.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteAt(make([]byte, slotSize), int64(lost)*slotStride); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		if s, ok := openMem(t, m).Newest(); !ok || s.LogStart != 2 {
			t.Errorf("slot %d lost: log start %d (%v)", lost, s.LogStart, ok)
		}
	}
}

func TestStateFile_FailedSyncKeepsTheOlderSlot(t *testing.T) {
	m := memDir(t, 1)
	nth := vfstest.FailNth(vfstest.Kinds(vfstest.OpSyncData), 2, vfstest.Fault{Err: errors.New("input/output error")}, false)
	f := openMem(t, vfstest.Inject(m, nth))
	a, b := sampleSlot(), sampleSlot()
	a.LogStart, b.LogStart = 1, 2
	if err := f.Sync(a); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(b); err == nil {
		t.Fatal("a failed sync was not reported")
	}
	if s, _ := f.Newest(); s.LogStart != 1 {
		t.Errorf("after a failed sync the newest slot says %d", s.LogStart)
	}
	if s, ok := openMem(t, m.Crash(vfstest.CrashOptions{Mode: vfstest.AllLost})).Newest(); !ok || s.LogStart != 1 {
		t.Errorf("after a power cut the newest slot says %d (%v)", s.LogStart, ok)
	}
}
