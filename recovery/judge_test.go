package recovery

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

const testDir = "/data/t-0"

// dirSpec describes a directory: segments of batches, what a damage does to them, and what the state file says.
type dirSpec struct {
	segments [][]int // records of each batch, a list a segment
	slot     *Slot   // nil: no state file; Durable and Recovery are set from the fields below
	durable  int     // batches below the durable end
	recovery int     // batches below the recovery point
	damage   func(d *dirBuilder)
}

// dirBuilder writes a directory into a simulated file system.
type dirBuilder struct {
	t     *testing.T
	fsys  *vfstest.Mem
	files map[int64][]byte // .log by base offset
	bases []int64
	place []record.Identity // of each batch
	next  []int64           // offset behind each batch
}

func testBatch(t testing.TB, base int64, n int, value []byte) record.Batch {
	t.Helper()
	b := record.NewBuilder(record.BuilderOptions{BaseOffset: base, Producer: &record.Producer{ID: 9, BaseSequence: int32(base)}})
	for range n {
		if err := b.Append(1_700_000_000_000, record.Record{Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	p, err := b.Batch()
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(p)
}

func build(t *testing.T, spec dirSpec) *dirBuilder {
	d := &dirBuilder{t: t, fsys: vfstest.NewMem(), files: map[int64][]byte{}}
	offset := int64(0)
	for _, batches := range spec.segments {
		base := offset
		d.bases = append(d.bases, base)
		d.files[base] = []byte{}
		for _, n := range batches {
			b := testBatch(t, offset, n, bytes.Repeat([]byte("v"), 100))
			d.place = append(d.place, b.Identity(base, int64(len(d.files[base]))))
			d.files[base] = append(d.files[base], b...)
			offset += int64(n)
			d.next = append(d.next, offset)
		}
	}
	if spec.damage != nil {
		spec.damage(d)
	}
	if err := d.fsys.MkdirAll(testDir, 0o755); err != nil {
		t.Fatal(err)
	}
	for base, p := range d.files {
		for _, k := range []segment.Kind{segment.KindLog, segment.KindOffsetIndex, segment.KindTimeIndex} {
			if k != segment.KindLog {
				p = nil
			}
			d.write(segment.FileName(k, base), p)
		}
	}
	if spec.slot != nil {
		d.writeSlot(spec)
	}
	d.fsys.SyncAll()
	return d
}

func (d *dirBuilder) write(name string, p []byte) {
	d.t.Helper()
	f, err := d.fsys.OpenFile(filepath.Join(testDir, name), vfs.O_RDWR|vfs.O_CREATE|vfs.O_TRUNC, 0o644)
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := f.WriteAt(p, 0); err != nil {
		d.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		d.t.Fatal(err)
	}
}

func (d *dirBuilder) position(batches int) Position {
	if batches == 0 {
		return Position{Offset: d.bases[0]}
	}
	return Position{Offset: d.next[batches-1], Last: d.place[batches-1]}
}

func (d *dirBuilder) writeSlot(spec dirSpec) {
	s := *spec.slot
	s.Durable, s.Recovery = d.position(spec.durable), d.position(spec.recovery)
	s.SnapshotOffset = -1
	if s.GroupBound == 0 {
		s.GroupBound = 1 << 20
	}
	if s.BootID == "same" {
		s.BootID, _ = d.fsys.BootID(testDir)
	}
	foreign, err := ReadForeign(d.fsys, testDir)
	if err != nil {
		d.t.Fatal(err)
	}
	if s.Who[0] != otherWriter {
		s.Who = [2]uint64{foreign.Fingerprint(), foreign.Fingerprint()}
	}
	f, err := OpenStateFile(d.fsys, testDir, false)
	if err != nil {
		d.t.Fatal(err)
	}
	if err := f.Sync(s); err != nil {
		d.t.Fatal(err)
	}
}

const otherWriter = 12345

func params(fsys vfs.FS, p Policy) Params {
	boot, _ := fsys.BootID(testDir)
	return Params{Dir: testDir, Policy: p, BootID: boot, Logger: slog.New(slog.DiscardHandler),
		Producers: producerstate.Config{}, Now: func() time.Time { return time.UnixMilli(1_700_000_001_000) }}
}

// at returns the bytes of the last segment, to be changed.
func (d *dirBuilder) last() (base int64, p []byte) {
	base = d.bases[len(d.bases)-1]
	return base, d.files[base]
}

func (d *dirBuilder) add(p ...byte) { base, q := d.last(); d.files[base] = append(q, p...) }

func (d *dirBuilder) flip(batch int) {
	id := d.place[batch]
	d.files[id.SegmentBase][id.Position+70] ^= 1
}

// zero overwrites from one byte of a batch to one of a later batch in the same segment.
func (d *dirBuilder) zero(batch int, at int64, last int, to int64) {
	from := d.place[batch]
	p := d.files[from.SegmentBase]
	end := int64(len(p))
	if last < len(d.place) {
		end = d.place[last].Position + to
	}
	clear(p[from.Position+at : end])
}

func garbage(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(37*i + 11)
	}
	return p
}

// One directory for each thing that can be found at the end of a scan: the row that decides, and what is left.
func TestJudge_Directories(t *testing.T) {
	commit := func() *Slot { return &Slot{Mode: SyncCommit, BootID: "other"} }
	none := func(boot string) *Slot { return &Slot{Mode: SyncNone, BootID: boot} }
	two := [][]int{{2, 2, 2}, {2, 2}}
	five := [][]int{{2, 2, 2}, {2, 2, 2, 2, 2}}
	for _, c := range []struct {
		name  string
		spec  dirSpec
		row   string // of the first finding that has one; empty if there is none
		end   int64  // of the log; −1 refused
		cut   int64  // bytes kept aside, which are all that are cut
		about string // part of the refusal
	}{
		{"nothing behind the recovery point", dirSpec{segments: two, slot: commit(), durable: 5, recovery: 5}, "", 10, 0, ""},
		{"batches behind it", dirSpec{segments: two, slot: commit(), durable: 4, recovery: 3}, "", 10, 0, ""},
		{"torn group", dirSpec{segments: two, slot: commit(), durable: 5, recovery: 3, damage: func(d *dirBuilder) { d.add(garbage(70)...) }},
			"synced writer, torn group", 10, 70, ""},
		{"reserved zeros", dirSpec{segments: two, slot: commit(), durable: 5, recovery: 3, damage: func(d *dirBuilder) { d.add(make([]byte, 900)...) }},
			"zeros at the end of the log", 10, 0, ""},
		{"zeros, then garbage, further than a group", dirSpec{segments: two, slot: &Slot{Mode: SyncCommit, GroupBound: 500}, durable: 5, recovery: 3,
			damage: func(d *dirBuilder) { d.add(make([]byte, 6000)...); d.add(garbage(9)...) }},
			"synced writer, more than one group behind", -1, 0, "after it had been synced"},
		{"the first segment is gone", dirSpec{segments: two, slot: commit(), durable: 5, recovery: 3,
			damage: func(d *dirBuilder) { delete(d.files, d.bases[0]) }},
			"below the promised end", -1, 0, "are gone, although the log begins at 0"},
		{"the same after a close", dirSpec{segments: two, slot: &Slot{Mode: SyncCommit, BootID: "same", Clean: true}, durable: 5, recovery: 5,
			damage: func(d *dirBuilder) { delete(d.files, d.bases[0]) }},
			"below the promised end", -1, 0, "are gone, although the log begins at 0"},
		{"the same within a group", dirSpec{segments: two, slot: &Slot{Mode: SyncCommit, GroupBound: 700}, durable: 5, recovery: 3,
			damage: func(d *dirBuilder) { d.add(make([]byte, 600)...); d.add(garbage(9)...) }},
			"synced writer, torn group", 10, 609, ""},
		{"flipped below the durable end", dirSpec{segments: two, slot: commit(), durable: 5, recovery: 3, damage: func(d *dirBuilder) { d.flip(4) }},
			"below the promised end", -1, 0, "crc at byte 17"},
		{"log file shorter than the durable end", dirSpec{segments: two, slot: commit(), durable: 5, recovery: 3,
			damage: func(d *dirBuilder) { base, p := d.last(); d.files[base] = p[:d.place[4].Position] }},
			"below the promised end", -1, 0, "had been promised"},
		{"batch at the durable end is another one", dirSpec{segments: two, slot: commit(), durable: 5, recovery: 3,
			damage: func(d *dirBuilder) {
				id := d.place[4]
				copy(d.files[id.SegmentBase][id.Position:], testBatch(d.t, id.BaseOffset, 2, bytes.Repeat([]byte("w"), 100)))
			}}, "below the promised end", -1, 0, ""},
		{"later segment behind a torn one, synced", dirSpec{segments: [][]int{{2, 2, 2}, {2}}, slot: commit(), durable: 1, recovery: 1, damage: func(d *dirBuilder) { d.flip(2) }},
			"synced writer, more than one group behind", -1, 0, ""},
		{"torn append, same boot", dirSpec{segments: two, slot: none("same"), durable: 3, recovery: 3, damage: func(d *dirBuilder) { d.add(garbage(70)...) }},
			"unsynced writer, same boot, torn append", 10, 70, ""},
		{"hole, same boot", dirSpec{segments: two, slot: none("same"), durable: 3, recovery: 3, damage: func(d *dirBuilder) { d.flip(3) }},
			"unsynced writer, same boot, batches behind a hole", -1, 0, "something changed the bytes"},
		{"zeros over the end of a batch and the head of the next, same boot", dirSpec{segments: five, slot: none("same"), durable: 3, recovery: 3,
			damage: func(d *dirBuilder) { d.zero(4, 150, 5, 90) }},
			"unsynced writer, same boot, batches behind a hole", -1, 0, "something changed the bytes"},
		{"the same over three batches", dirSpec{segments: five, slot: none("same"), durable: 3, recovery: 3,
			damage: func(d *dirBuilder) { d.zero(3, 150, 6, 0) }},
			"unsynced writer, same boot, batches behind a hole", -1, 0, ""},
		{"the same up to the last batch", dirSpec{segments: five, slot: none("same"), durable: 3, recovery: 3,
			damage: func(d *dirBuilder) { d.zero(6, 150, 7, 90) }},
			"unsynced writer, same boot, batches behind a hole", -1, 0, ""},
		{"the last batch is there to its end and not what was written, same boot", dirSpec{segments: five, slot: none("same"), durable: 3, recovery: 3,
			damage: func(d *dirBuilder) { d.flip(7) }},
			"unsynced writer, same boot, batches behind a hole", -1, 0, ""},
		{"the same, with reserved zeros behind it", dirSpec{segments: five, slot: none("same"), durable: 3, recovery: 3,
			damage: func(d *dirBuilder) { d.flip(7); d.add(make([]byte, 5000)...) }},
			"unsynced writer, same boot, batches behind a hole", -1, 0, ""},
		{"the end of the last batch is not there, same boot", dirSpec{segments: five, slot: none("same"), durable: 3, recovery: 3,
			damage: func(d *dirBuilder) { d.zero(7, 150, 8, 0); d.add(make([]byte, 5000)...) }},
			"unsynced writer, same boot, torn append", 14, 279, ""},
		{"the file ends before the last batch does, same boot", dirSpec{segments: five, slot: none("same"), durable: 3, recovery: 3,
			damage: func(d *dirBuilder) { base, p := d.last(); d.files[base] = p[:len(p)-2] }},
			"unsynced writer, same boot, torn append", 14, 277, ""},
		{"zeros over the end of a batch and the head of the next, a sync had failed", dirSpec{segments: five,
			slot: &Slot{Mode: SyncNone, BootID: "same", SyncFailed: true}, durable: 3, recovery: 3,
			damage: func(d *dirBuilder) { d.zero(6, 150, 7, 90) }}, "unsynced writer, cache lost", 12, 558, ""},
		{"hole, another boot", dirSpec{segments: two, slot: none("other"), durable: 3, recovery: 3, damage: func(d *dirBuilder) { d.flip(3) }},
			"unsynced writer, cache lost", 6, 558, ""},
		{"hole and later segments, another boot", dirSpec{segments: [][]int{{2, 2}, {2}, {2}}, slot: none("other"), durable: 1, recovery: 1, damage: func(d *dirBuilder) { d.flip(1) }},
			"unsynced writer, cache lost", 2, 837, ""},
		{"hole, same boot, a sync had failed", dirSpec{segments: two, slot: &Slot{Mode: SyncNone, BootID: "same", SyncFailed: true}, durable: 3, recovery: 3,
			damage: func(d *dirBuilder) { d.flip(3) }}, "unsynced writer, cache lost", 6, 558, ""},
		{"interrupted truncation", dirSpec{segments: [][]int{{2, 2}, {2}, {2}}, slot: &Slot{Mode: SyncCommit, Cutting: true}, durable: 2, recovery: 1,
			damage: func(d *dirBuilder) { delete(d.files, 4) }}, "synced writer, interrupted cut", 4, 279, ""},
		{"segment gone below the durable end", dirSpec{segments: [][]int{{2, 2}, {2}, {2}}, slot: commit(), durable: 4, recovery: 1,
			damage: func(d *dirBuilder) { delete(d.files, 4) }}, "below the promised end", -1, 0, "next segment starts at offset 6"},
		{"segment of the recovery point gone", dirSpec{segments: [][]int{{2, 2}, {2}, {2}}, slot: commit(), durable: 4, recovery: 3,
			damage: func(d *dirBuilder) { delete(d.files, 4) }}, "below the promised end", -1, 0, "base offset 4 is gone"},
		{"zeros that a roll did not cut", dirSpec{segments: two, slot: none("other"), durable: 2, recovery: 2,
			damage: func(d *dirBuilder) { d.files[0] = append(d.files[0], make([]byte, 300)...) }}, "zeros before the next segment", 10, 0, ""},
		{"another program, torn tail", dirSpec{segments: two, damage: func(d *dirBuilder) { d.add(garbage(70)...) }},
			"another writer, torn tail", 10, 70, ""},
		{"another program, hole", dirSpec{segments: two, damage: func(d *dirBuilder) { d.flip(3) }},
			"another writer, batches behind a hole", -1, 0, "crc at byte 17"},
		{"another program, gap between batches", dirSpec{segments: two, damage: func(d *dirBuilder) { d.add(testBatch(d.t, 500, 1, nil)...) }}, "", 501, 0, ""},
		{"ours, gap between batches", dirSpec{segments: two, slot: commit(), durable: 5, recovery: 3, damage: func(d *dirBuilder) { d.add(testBatch(d.t, 500, 1, nil)...) }},
			"synced writer, torn group", 10, 68, ""},
		{"a state file that another program has outlived", dirSpec{segments: two, slot: &Slot{Mode: SyncCommit, Who: [2]uint64{otherWriter}}, durable: 5, recovery: 5,
			damage: func(d *dirBuilder) { d.add(garbage(70)...) }}, "another writer, torn tail", 10, 70, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := build(t, c.spec)
			before := snapshotOf(t, d.fsys)
			s, err := Load(context.Background(), d.fsys, params(d.fsys, TolerateTornTail))
			var refused *RefusedError
			if c.end < 0 {
				if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.about) {
					t.Fatalf("not refused: %v", err)
				}
				if r := firstRule(refused.Findings); r != c.row {
					t.Errorf("row %q, want %q", r, c.row)
				}
				if after := snapshotOf(t, d.fsys); !equalFiles(before, after) {
					t.Error("refused, and the directory changed")
				}
				checkReadOnly(t, d, err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if r := firstRule(s.Report.Findings); r != c.row {
				t.Errorf("row %q, want %q", r, c.row)
			}
			if s.End.Offset != c.end || s.Report.BytesCut != c.cut {
				t.Errorf("end %d with %d bytes kept, want %d and %d: %v", s.End.Offset, s.Report.BytesCut, c.end, c.cut, s.Report.Findings)
			}
			checkKept(t, d, before, c.cut)
		})
	}
}

// checkReadOnly wants what is refused for writing to be readable around the damage.
func checkReadOnly(t *testing.T, d *dirBuilder, refusal error) {
	t.Helper()
	p := params(d.fsys, TolerateTornTail)
	p.ReadOnly, p.Segments.ReadOnly, p.Producers.ReadOnly = true, true, true
	s, err := Load(context.Background(), d.fsys, p)
	if err != nil {
		if strings.Contains(refusal.Error(), "is gone") {
			return // nothing to begin with
		}
		t.Fatalf("read-only: %v", err)
	}
	if len(s.Report.Holes) == 0 {
		t.Errorf("read-only: no hole is reported: %v", s.Report.Findings)
	}
	for _, h := range s.Report.Holes {
		if h.End >= 0 && h.End < h.Offset {
			t.Errorf("hole %+v", h)
		}
	}
}

func firstRule(list []Finding) string {
	i := slices.IndexFunc(list, func(f Finding) bool { return f.Rule != "" })
	if i < 0 {
		return ""
	}
	return list[i].Rule
}

func snapshotOf(t *testing.T, fsys vfs.FS) map[string][]byte {
	t.Helper()
	entries, err := fsys.ReadDir(testDir)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string][]byte{}
	for _, e := range entries {
		if m[e.Name], err = vfs.ReadFile(fsys, filepath.Join(testDir, e.Name), 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func equalFiles(a, b map[string][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for name, p := range a {
		if q, ok := b[name]; !ok || !bytes.Equal(p, q) {
			return false
		}
	}
	return true
}

// checkKept wants the bytes that were cut in files of their own, every one of them.
func checkKept(t *testing.T, d *dirBuilder, before map[string][]byte, want int64) {
	t.Helper()
	kept := int64(0)
	for name, p := range snapshotOf(t, d.fsys) {
		n := segment.Parse(name)
		if n.Kind != segment.KindCut {
			continue
		}
		kept += int64(len(p))
		if old := before[segment.FileName(segment.KindLog, n.Offset)]; !bytes.HasPrefix(old[n.Position:], p) {
			t.Errorf("%s does not hold the bytes that were there", name)
		}
	}
	if kept != want {
		t.Errorf("%d bytes are kept, want %d", kept, want)
	}
}

// A batch that somebody stored inside a record's value is no evidence of anything: the torn batch around it is cut, in
// the mode in which a plausible batch behind the bad place would be damage.
func TestJudge_BatchInsideAValueIsNotEvidence(t *testing.T) {
	for _, inner := range []int64{10, 11, 12, 0, 500} {
		d := build(t, dirSpec{segments: [][]int{{2, 2, 2}, {2, 2}}, slot: &Slot{Mode: SyncNone, BootID: "same"}, durable: 3, recovery: 3,
			damage: func(d *dirBuilder) {
				outer := testBatch(d.t, 10, 1, append(testBatch(d.t, inner, 1, []byte("x")), garbage(400)...))
				d.add(outer[:len(outer)-100]...)
			}})
		s, err := Load(context.Background(), d.fsys, params(d.fsys, TolerateTornTail))
		if inner == 11 {
			// Exactly the offset that the batch behind the torn one would have: then the stricter verdict counts.
			if !errors.Is(err, ErrRefused) {
				t.Errorf("inner base offset 11: %v", err)
			}
			continue
		}
		if err != nil || s.End.Offset != 10 {
			t.Errorf("inner base offset %d: %v", inner, err)
		}
	}
}

func TestJudge_StrictRefusesATornTailAndPassesZeros(t *testing.T) {
	spec := dirSpec{segments: [][]int{{2, 2}}, slot: &Slot{Mode: SyncCommit}, durable: 2, recovery: 2}
	spec.damage = func(d *dirBuilder) { d.add(garbage(30)...) }
	d := build(t, spec)
	if _, err := Load(context.Background(), d.fsys, params(d.fsys, Strict)); !errors.Is(err, ErrRefused) {
		t.Errorf("torn tail: %v", err)
	}
	spec.damage = func(d *dirBuilder) { d.add(make([]byte, 300)...) }
	d = build(t, spec)
	if s, err := Load(context.Background(), d.fsys, params(d.fsys, Strict)); err != nil || s.End.Offset != 4 {
		t.Errorf("zeros: %v", err)
	}
}

// Inspect says what Load would do, and changes nothing.
func TestInspect_ChangesNothing(t *testing.T) {
	d := build(t, dirSpec{segments: [][]int{{2, 2}}, slot: &Slot{Mode: SyncCommit}, durable: 2, recovery: 2,
		damage: func(d *dirBuilder) { d.add(garbage(30)...) }})
	before := snapshotOf(t, d.fsys)
	r, err := Inspect(context.Background(), d.fsys, params(d.fsys, TolerateTornTail))
	if err != nil || firstRule(r.Findings) != "synced writer, torn group" || r.LogEnd != 4 || !r.DryRun || r.Refused() {
		t.Errorf("report %+v, %v", r, err)
	}
	if !equalFiles(before, snapshotOf(t, d.fsys)) {
		t.Error("the directory changed")
	}
}

// Without room for all copies nothing is changed, and with room the same open works.
func TestAct_NoRoomForTheCopies(t *testing.T) {
	for _, room := range []int64{0, 1 << 10, 5 << 10} {
		d := build(t, dirSpec{segments: [][]int{{2, 2}, {50}, {2}}, slot: &Slot{Mode: SyncNone, BootID: "other"}, durable: 1, recovery: 1,
			damage: func(d *dirBuilder) { d.flip(1); d.add(make([]byte, 64<<10)...) }})
		before := snapshotOf(t, d.fsys)
		d.fsys.SetCapacity(d.fsys.Used() + room)
		if _, err := Load(context.Background(), d.fsys, params(d.fsys, TolerateTornTail)); !errors.Is(err, vfs.ErrNoSpace) {
			t.Errorf("room for %d bytes: %v", room, err)
		}
		if after := snapshotOf(t, d.fsys); !equalFiles(before, after) {
			t.Errorf("room for %d bytes: the directory changed", room)
		}
		d.fsys.SetCapacity(0)
		s, err := Load(context.Background(), d.fsys, params(d.fsys, TolerateTornTail))
		if err != nil || s.End.Offset != 2 {
			t.Fatal(err)
		}
		checkKept(t, d, before, s.Report.BytesCut)
	}
}
