package wal

import (
	"encoding/binary"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/oncelog/oncelog/internal/vfs"
)

// The file systems here make the log behave as if it had a bug. A harness that does not notice them would not notice the
// bugs either.

// noDirSync forgets to sync directories.
type noDirSync struct{ vfs.FS }

func (noDirSync) SyncDir(string) error { return nil }

// ackEarly acknowledges before the batches are on disk.
type ackEarly struct{ vfs.FS }

func (f ackEarly) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	file, err := f.FS.OpenFile(name, flag, perm)
	if err == nil && strings.HasSuffix(name, ".log") {
		file = unsyncedFile{file}
	}
	return file, err
}

type unsyncedFile struct{ vfs.File }

func (unsyncedFile) SyncData() error { return nil }

// fourBatches remembers four batches of each producer across a restart.
type fourBatches struct{ vfs.FS }

func (f fourBatches) Rename(from, to string) error {
	if strings.HasPrefix(filepath.Base(to), "oncelog.producers-") {
		if err := f.forgetOldest(from); err != nil {
			return err
		}
	}
	return f.FS.Rename(from, to)
}

func (f fourBatches) forgetOldest(name string) error {
	p, err := vfs.ReadFile(f.FS, name, 1<<20)
	if err != nil {
		return err
	}
	const header, producer, batch, sum = 88, 39, 24, 8
	out := append([]byte(nil), p[:header]...)
	rest := p[header : len(p)-sum]
	for range binary.BigEndian.Uint32(p[28:]) {
		n := int(rest[producer-1])
		entry := rest[:producer+n*batch]
		rest = rest[len(entry):]
		kept := append([]byte(nil), entry...)
		if n == 5 {
			kept = append(kept[:producer], kept[producer+batch:]...)
			kept[producer-1] = 4
		}
		out = append(out, kept...)
	}
	out = append(out, rest...)
	out = binary.BigEndian.AppendUint64(out, xxhash.Sum64(out))
	file, err := f.FS.OpenFile(name, vfs.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Truncate(int64(len(out))); err != nil {
		return err
	}
	if _, err := file.WriteAt(out, 0); err != nil && err != io.EOF {
		return err
	}
	return file.Sync()
}

// snapshotFirst writes the snapshot before its side file.
type snapshotFirst struct {
	vfs.FS
	waiting map[string]string // side file by the name it will get
}

func (f snapshotFirst) Rename(from, to string) error {
	if base := filepath.Base(to); strings.HasPrefix(base, "oncelog.producers-") && !strings.HasSuffix(from, ".next") {
		f.waiting[to] = from
		return nil
	}
	if err := f.FS.Rename(from, to); err != nil || !strings.HasSuffix(to, ".snapshot") {
		return err
	}
	if err := f.FS.SyncDir(filepath.Dir(to)); err != nil {
		return err
	}
	for name, temp := range f.waiting {
		if err := f.FS.Rename(temp, name); err != nil {
			return err
		}
		delete(f.waiting, name)
	}
	return nil
}

func TestCrash_SeededBugsAreFound(t *testing.T) {
	for _, bug := range []struct {
		name  string
		wrap  func(vfs.FS) vfs.FS
		modes []SyncMode // where it is a bug
		want  []string   // what the complaint is about, one of them
	}{
		{"no directory sync", func(f vfs.FS) vfs.FS { return noDirSync{f} }, modes,
			[]string{"I1", "I4", "not opened for writing", "problem"}},
		{"acknowledged before the sync", func(f vfs.FS) vfs.FS { return ackEarly{f} }, modes,
			[]string{"I1", "I4", "not opened for writing", "problem"}},
		{"four batches remembered", func(f vfs.FS) vfs.FS { return fourBatches{f} }, modes,
			[]string{"I9", "I13", "problem"}},
		{"snapshot before its side file", func(f vfs.FS) vfs.FS { return snapshotFirst{f, map[string]string{}} }, modes,
			[]string{"I16"}},
	} {
		for _, mode := range bug.modes {
			t.Run(bug.name+"/"+mode.String(), func(t *testing.T) {
				t.Parallel()
				states := 0
				for seed := uint64(1); seed <= 40; seed++ {
					n, err := runCrashes(seed, mode, 60, 2, bug.wrap)
					states += n
					if err == nil {
						continue
					}
					for _, w := range bug.want {
						if strings.Contains(err.Error(), w) {
							t.Logf("found after %d states: %.200s", states, err)
							return
						}
					}
					t.Fatalf("found after %d states, but not for what it is: %v", states, err)
				}
				t.Errorf("not found in %d crash states", states)
			})
		}
	}
}
