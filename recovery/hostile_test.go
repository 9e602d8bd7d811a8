package recovery

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/oncelog/oncelog/internal/kafkadir"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// What a broker that stopped in order left, with a bad last batch: the indexes must not name it once it is cut off.
func TestLoad_CutBehindACleanStop(t *testing.T) {
	d := build(t, dirSpec{segments: [][]int{{2}}})
	b := testBatch(t, 2, 180, nil)
	position := int64(len(d.files[0]))
	bad := append(append([]byte{}, d.files[0]...), b...)
	bad[len(bad)-1] ^= 1
	d.write(segment.FileName(segment.KindLog, 0), bad)
	entry := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 181), uint32(position))
	d.write(segment.FileName(segment.KindOffsetIndex, 0), entry)
	d.write("../"+kafkadir.MarkerFile, nil)
	s, err := Load(context.Background(), d.fsys, params(d.fsys, TolerateTornTail))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.End.Offset != 2 || s.Report.BytesCut != int64(len(b)) {
		t.Fatalf("end %d, %d bytes cut", s.End.Offset, s.Report.BytesCut)
	}
	seg := s.Segments.Active()
	pos := position
	for offset := int64(2); offset < 200; offset += 2 {
		b := testBatch(t, offset, 2, make([]byte, 100))
		if err := seg.Append(b); err != nil {
			t.Fatalf("append at %d: %v", offset, err)
		}
		pos += int64(len(b))
	}
	if size, err := seg.Size(); err != nil || size != pos {
		t.Error(size, err)
	}
}

// Directories made of numbers at the ends of their ranges: an answer, and neither a panic nor a hang.
func TestLoad_ExtremeNumbers(t *testing.T) {
	numbers := []int64{0, 1, math.MaxInt32, math.MaxInt32 + 1, math.MaxInt64 - math.MaxInt32, math.MaxInt64 - 2, math.MaxInt64 - 1, math.MaxInt64}
	opened := 0
	seeds := uint64(400)
	if os.Getenv("ONCELOG_LONG") != "" {
		seeds = 20_000
	}
	for seed := uint64(1); seed <= seeds; seed++ {
		r := rand.New(rand.NewPCG(seed, 29))
		pick := func() int64 { return numbers[r.IntN(len(numbers))] }
		m := vfstest.NewMem()
		if err := m.MkdirAll(testDir, 0o755); err != nil {
			t.Fatal(err)
		}
		d := &dirBuilder{t: t, fsys: m}
		for range 1 + r.IntN(3) {
			base := pick()
			var log []byte
			for range r.IntN(3) {
				b := testBatch(t, 0, 1+r.IntN(3), make([]byte, 10))
				b.SetBaseOffset(pick() - r.Int64N(4))
				if r.IntN(3) == 0 {
					binary.BigEndian.PutUint32(b[23:], uint32(r.Uint32())) // last offset delta, with its checksum
					binary.BigEndian.PutUint32(b[17:], record.Checksum(b[21:]))
				}
				if r.IntN(4) == 0 {
					binary.BigEndian.PutUint32(b[8:], r.Uint32())
				}
				log = append(log, b...)
			}
			d.write(segment.FileName(segment.KindLog, base), log)
			if r.IntN(2) == 0 {
				d.write(segment.FileName(segment.KindOffsetIndex, base), []byte{0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff})
			}
			if r.IntN(4) == 0 {
				d.write(segment.FileName(segment.KindLog, pick())+".swap", log)
			}
			if r.IntN(4) == 0 {
				d.write(segment.FileName(segment.KindSnapshot, pick()), log)
			}
		}
		if r.IntN(3) > 0 {
			position := func() Position {
				return Position{Offset: pick(), Last: record.Identity{SegmentBase: pick(), Position: pick() - r.Int64N(200), BaseOffset: pick(), Size: int32(r.Uint32() >> 1), CRC: r.Uint32()}}
			}
			s := Slot{LogStart: pick(), Durable: position(), Recovery: position(), SnapshotOffset: pick(), GroupBound: pick(),
				Mode: SyncMode(r.IntN(3)), Clean: r.IntN(3) == 0, Gaps: r.IntN(2) == 0, Cutting: r.IntN(4) == 0, BootID: "simulated boot 1"}
			f, err := ReadForeign(m, testDir)
			if err != nil {
				t.Fatal(err)
			}
			s.Who[0] = f.Fingerprint()
			d.writeRawSlot(s)
		}
		for _, p := range []Policy{TolerateTornTail, PointInTime, Strict} {
			for _, readOnly := range []bool{true, false} {
				fsys := m.Crash(vfstest.CrashOptions{})
				o := params(fsys, p)
				o.ReadOnly, o.Segments.ReadOnly, o.Producers.ReadOnly = readOnly, readOnly, readOnly
				s, err := Load(context.Background(), fsys, o)
				if err == nil {
					opened++
					s.Close()
				} else if errors.Is(err, vfs.ErrLocked) {
					t.Fatal(err)
				}
			}
		}
		o := params(m, TolerateTornTail)
		_, _ = Inspect(context.Background(), m, o)
	}
	if opened < 200 {
		t.Errorf("only %d opened", opened)
	}
}

func (d *dirBuilder) writeRawSlot(s Slot) {
	d.t.Helper()
	s.Generation = 1
	d.write(filepath.Base(StateFileName), s.append(nil))
}
