package producerstate

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
)

// stateOf returns a state for offset whose content depends on tag.
func stateOf(offset int64, tag int64, producers int) *State {
	s := &State{Offset: offset, NewestClock: tag, table: newTable(), Last: record.Identity{Size: 61, BaseOffset: tag, CRC: uint32(tag)}}
	for i := range int64(producers) {
		p := unknown(i)
		p.epoch, p.lastTimestamp = int16(tag), tag
		for k := range int64(5) {
			p.push(BatchMetadata{LastOffset: k, LastSequence: int32(tag + k), Timestamp: tag})
		}
		s.table.add(p)
	}
	s.Named = []Named{{ID: MinNamedProducerID + tag, Name: fmt.Sprint("name ", tag)}}
	return s
}

func write(t testing.TB, fsys vfs.FS, s *State) {
	t.Helper()
	if err := WritePair(fsys, testDir, s.Freeze(), s.Last); err != nil {
		t.Fatal(err)
	}
}

// tagOf reads a pair and returns the tag it was made with, after comparing all of it.
func tagOf(t *testing.T, fsys vfs.FS, offset int64, producers int) (int64, error) {
	t.Helper()
	s, err := ReadPair(fsys, testDir, offset)
	if err != nil {
		return 0, err
	}
	want := stateOf(offset, s.NewestClock, producers)
	want.SnapshotCRC = s.SnapshotCRC
	if !reflect.DeepEqual(comparable(want), comparable(s)) {
		t.Fatalf("a mixed pair was read:\n%s", cmp.Diff(comparable(want), comparable(s), cmp.AllowUnexported(Entry{})))
	}
	return s.NewestClock, nil
}

// crashes calls f with what many crashes leave around every operation that op does on mem.
func crashes(t *testing.T, mem *vfstest.Mem, op func(fsys vfs.FS) error, f func(when string, after *vfstest.Mem)) {
	t.Helper()
	step := 0
	look := func(o vfstest.Op, after bool) {
		step++
		modes := []vfstest.CrashOptions{{Mode: vfstest.Kill}, {Mode: vfstest.AllLost}, {Mode: vfstest.AllKept}}
		for seed := range uint64(12) {
			modes = append(modes, vfstest.CrashOptions{Mode: vfstest.PowerCut, Seed: seed + uint64(step)*100, Torn: seed%2 == 0, Garbage: seed%3 == 0})
		}
		for _, c := range modes {
			f(fmt.Sprintf("step %d, %v, after %v: %v, seed %d", step, o, after, c.Mode, c.Seed), mem.Crash(c))
		}
	}
	if err := op(vfstest.Inject(mem, vfstest.Each(vfstest.Writes, look))); err != nil {
		t.Fatal(err)
	}
	if step < 4 {
		t.Fatalf("only %d steps seen", step)
	}
}

func TestWritePair_CrashBesideOlderPair(t *testing.T) {
	mem := newMemDir(t)
	write(t, mem, stateOf(100, 1, 3))
	op := func(fsys vfs.FS) error {
		s := stateOf(200, 2, 40)
		return WritePair(fsys, testDir, s.Freeze(), s.Last)
	}
	seen := map[bool]int{}
	crashes(t, mem, op, func(when string, after *vfstest.Mem) {
		if tag, err := tagOf(t, after, 100, 3); err != nil || tag != 1 {
			t.Fatalf("%s: the older pair: %d, %v", when, tag, err)
		}
		tag, err := tagOf(t, after, 200, 40)
		seen[err == nil]++
		switch {
		case err == nil && tag != 2:
			t.Fatalf("%s: tag %d", when, tag)
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			// Its name appears last, so it is whole or not there.
			t.Fatalf("%s: the new pair: %v", when, err)
		}
	})
	if tag, err := tagOf(t, mem, 200, 40); err != nil || tag != 2 {
		t.Errorf("in the end: %d, %v", tag, err)
	}
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("whole and missing pairs after a crash: %v", seen)
	}
}

// Replacing the pair of one offset, interrupted, and again after that: always one of the pairs is there.
func TestWritePair_CrashWhileReplacing(t *testing.T) {
	replace := func(tag int64) func(fsys vfs.FS) error {
		return func(fsys vfs.FS) error {
			s := stateOf(100, tag, int(20/tag))
			return WritePair(fsys, testDir, s.Freeze(), s.Last)
		}
	}
	read := func(when string, fsys vfs.FS, most int64) int64 {
		s, err := ReadPair(fsys, testDir, 100)
		if err != nil || s.NewestClock < 1 || s.NewestClock > most {
			t.Fatalf("%s: %v", when, err)
		}
		tag, err := tagOf(t, fsys, 100, int(20/s.NewestClock))
		if err != nil {
			t.Fatal(err)
		}
		return tag
	}
	mem := newMemDir(t)
	if err := replace(1)(mem); err != nil {
		t.Fatal(err)
	}
	seen := map[int64]int{}
	n := 0
	crashes(t, mem, replace(2), func(when string, after *vfstest.Mem) {
		seen[read(when, after, 2)]++
		if n++; n%17 != 0 {
			return
		}
		crashes(t, after, replace(3), func(again string, after *vfstest.Mem) {
			seen[read(when+"; "+again, after, 3)]++
		})
		if tag := read(when, after, 3); tag != 3 {
			t.Fatalf("%s: tag %d after the second replacement", when, tag)
		}
		if pairs, _ := ListPairs(after, testDir); len(pairs) != 1 || pairs[0].HasNext {
			t.Fatalf("%s: left %+v", when, pairs)
		}
	})
	if seen[1] == 0 || seen[2] == 0 || seen[3] == 0 {
		t.Errorf("pairs seen: %v", seen)
	}
	t.Logf("crashes by surviving pair: %v", seen)
}

func TestRemovePair_Crash(t *testing.T) {
	mem := newMemDir(t)
	write(t, mem, stateOf(100, 1, 3))
	write(t, mem, stateOf(200, 2, 3))
	write(t, mem, stateOf(300, 3, 3))
	op := func(fsys vfs.FS) error { return RemovePair(fsys, testDir, 100, 300, 999) }
	crashes(t, mem, op, func(when string, after *vfstest.Mem) {
		for _, o := range []int64{100, 200, 300} {
			_, err := ReadPair(after, testDir, o)
			if err != nil && (o == 200 || !errors.Is(err, fs.ErrNotExist)) {
				t.Fatalf("%s: pair %d: %v", when, o, err)
			}
		}
	})
	pairs, err := ListPairs(mem, testDir)
	if err != nil || len(pairs) != 1 || pairs[0] != (Pair{Offset: 200, HasSnapshot: true, HasSideFile: true}) {
		t.Errorf("left %+v, %v", pairs, err)
	}
}

// Every operation fails once: the error is returned, and what was readable still is, or the new pair is.
func TestWritePair_ErrorAtEveryOperation(t *testing.T) {
	for _, how := range []vfstest.How{vfstest.Instead, vfstest.Half, vfstest.Done} {
		for n := 1; ; n++ {
			mem := newMemDir(t)
			write(t, mem, stateOf(100, 1, 20))
			boom := errors.New("boom")
			filter := vfstest.Filter(nil)
			if how == vfstest.Done {
				filter = vfstest.Writes // the result of a look-up that was done is that of the look-up
			}
			nth := vfstest.FailNth(filter, n, vfstest.Fault{Err: boom, How: how}, false)
			s := stateOf(100, 2, 20)
			err := WritePair(vfstest.Inject(mem, nth), testDir, s.Freeze(), s.Last)
			op, failed := nth.Failed()
			if !failed {
				if n < 10 {
					t.Fatalf("only %d operations", n)
				}
				break
			}
			if !errors.Is(err, boom) {
				t.Fatalf("%v failed: got %v", op, err)
			}
			if tag, err := tagOf(t, mem, 100, 20); err != nil || tag < 1 || tag > 2 {
				t.Fatalf("%v failed: the pair: %d, %v", op, tag, err)
			}
			write(t, mem, stateOf(100, 3, 20))
			if tag, err := tagOf(t, mem, 100, 20); err != nil || tag != 3 {
				t.Fatalf("%v failed: afterwards: %d, %v", op, tag, err)
			}
		}
	}
}

func TestWritePair_NoSideFileNoSnapshot(t *testing.T) {
	mem := newMemDir(t)
	full := vfstest.Hook{BeforeOp: func(o vfstest.Op) vfstest.Fault {
		if o.Kind == vfstest.OpWrite {
			return vfstest.Fault{Err: vfstest.ErrNoSpace}
		}
		return vfstest.Fault{}
	}}
	s := stateOf(100, 1, 3)
	err := WritePair(vfstest.Inject(mem, full), testDir, s.Freeze(), s.Last)
	if !errors.Is(err, vfs.ErrNoSpace) {
		t.Errorf("got %v", err)
	}
	if files, _ := mem.ReadDir(testDir); len(files) != 0 {
		t.Errorf("left %+v", files)
	}
}

// A shorter snapshot over a longer one has its own size, and leaves nothing of the longer one behind.
func TestWritePair_ShorterRewrite(t *testing.T) {
	mem := newMemDir(t)
	write(t, mem, stateOf(100, 1, 50))
	write(t, mem, stateOf(100, 2, 3))
	info, err := mem.Stat(snapshotPath(testDir, 100))
	if err != nil || info.Size != 10+3*46 {
		t.Errorf("%d bytes, %v", info.Size, err)
	}
	if tag, err := tagOf(t, mem, 100, 3); err != nil || tag != 2 {
		t.Errorf("%d, %v", tag, err)
	}
}

func TestReadPair_Mismatches(t *testing.T) {
	copyFile := func(mem *vfstest.Mem, from, to string) {
		data, err := vfs.ReadFile(mem, from, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if err := vfs.WriteFileAtomic(mem, to, 0o644, data); err != nil {
			t.Fatal(err)
		}
	}
	side, snap := sidePath(testDir, 100), snapshotPath(testDir, 100)
	tests := []struct {
		name   string
		damage func(mem *vfstest.Mem)
		kind   SnapshotFault
	}{
		{"side file missing", func(m *vfstest.Mem) { _ = m.Remove(side) }, NoSideFile},
		{"side file of another state", func(m *vfstest.Mem) {
			other := newMemDir(t)
			write(t, other, stateOf(100, 2, 3))
			data, _ := vfs.ReadFile(other, side, 1<<20)
			_ = vfs.WriteFileAtomic(m, side, 0o644, data)
		}, NotAPair},
		{"snapshot written again by another program", func(m *vfstest.Mem) {
			_ = WriteSnapshot(m, testDir, stateOf(100, 2, 3).Freeze())
		}, NotAPair},
		{"side file of another offset", func(m *vfstest.Mem) {
			write(t, m, stateOf(90, 1, 3))
			copyFile(m, sidePath(testDir, 90), side)
		}, Inconsistent},
		{"snapshot damaged", func(m *vfstest.Mem) { _ = vfs.WriteFileAtomic(m, snap, 0o644, []byte{0, 1, 2}) }, TooShort},
		{"side file damaged", func(m *vfstest.Mem) { _ = vfs.WriteFileAtomic(m, side, 0o644, make([]byte, 200)) }, BadChecksum},
	}
	for _, tt := range tests {
		mem := newMemDir(t)
		write(t, mem, stateOf(100, 1, 3))
		tt.damage(mem)
		_, err := ReadPair(mem, testDir, 100)
		var e *SnapshotError
		if !errors.As(err, &e) || e.Kind != tt.kind {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if _, err := ReadPair(newMemDir(t), testDir, 100); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no files: %v", err)
	}
}

// A side file that carries the right checksum of its snapshot and another producer inside is found by the entries.
func TestReadPair_EntriesAreCompared(t *testing.T) {
	mem := newMemDir(t)
	s := stateOf(100, 1, 3)
	write(t, mem, s)
	sum, err := streamSnapshot(nil, s.Freeze())
	if err != nil {
		t.Fatal(err)
	}
	wrong := func(f vfs.File) error { return streamSideFile(f, s.Freeze(), sum+1, s.Last) }
	if err := replaceFile(mem, sidePath(testDir, 100), wrong); err != nil {
		t.Fatal(err)
	}
	var e *SnapshotError
	if _, err := ReadPair(mem, testDir, 100); !errors.As(err, &e) || e.Kind != NotAPair {
		t.Errorf("another checksum: %v", err)
	}
	for name, change := range map[string]func(p *producer){
		"epoch":         func(p *producer) { p.epoch++ },
		"last sequence": func(p *producer) { p.sequences[p.place(p.count-1)]++ },
		"transaction":   func(p *producer) { p.txnFirst = 3 },
		"no batches":    func(p *producer) { p.count = 0 },
	} {
		o := stateOf(100, 1, 3)
		change(o.table.mut(1))
		file := func(f vfs.File) error { return streamSideFile(f, o.Freeze(), sum, o.Last) }
		if err := replaceFile(mem, sidePath(testDir, 100), file); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadPair(mem, testDir, 100); !errors.As(err, &e) || e.Kind != NotAPair {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestListPairsAndOrphans(t *testing.T) {
	mem := newMemDir(t)
	write(t, mem, stateOf(100, 1, 3))
	write(t, mem, stateOf(200, 2, 3))
	write(t, mem, stateOf(300, 3, 3))
	for _, name := range []string{SnapshotName(100), SideFileName(200)} {
		if err := mem.Remove(filepath.Join(testDir, name)); err != nil {
			t.Fatal(err)
		}
	}
	names := []string{
		SideFileName(400) + ".next", SnapshotName(500) + ".tmp", SideFileName(500) + ".tmp", SideFileName(500) + ".next.tmp",
		"00000000000000000000.log", SnapshotName(7) + ".deleted", "oncelog.state", "oncelog.producers-7", "x.tmp",
	}
	for _, n := range names {
		if err := vfs.WriteFileAtomic(mem, filepath.Join(testDir, n), 0o644, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := mem.MkdirAll(filepath.Join(testDir, SnapshotName(600)), 0o755); err != nil {
		t.Fatal(err)
	}
	want := []Pair{{100, false, true, false}, {200, true, false, false}, {300, true, true, false}, {400, false, false, true}}
	if got, err := ListPairs(mem, testDir); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	removed, err := RemoveOrphans(mem, testDir, nil)
	if err != nil || len(removed) != 5 {
		t.Errorf("removed %v, %v", removed, err)
	}
	files, _ := mem.ReadDir(testDir)
	var left []string
	for _, f := range files {
		left = append(left, f.Name)
	}
	wantLeft := []string{
		"00000000000000000000.log", SnapshotName(7) + ".deleted", SnapshotName(200), SnapshotName(300), SnapshotName(600),
		"oncelog.producers-7", SideFileName(300), "oncelog.state", "x.tmp",
	}
	slices.Sort(wantLeft)
	if !slices.Equal(left, wantLeft) {
		t.Errorf("left\n%v\nwant\n%v", left, wantLeft)
	}
}
