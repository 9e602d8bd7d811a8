package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/wal"
)

// What lies below the last checkpoint an open does not look at. Where inspect finds something wrong there that a recovery does
// not repair, recover says so too and fails; of what it repairs nothing is left.
func TestRecover_ProblemsLeft(t *testing.T) {
	first := func(p []byte, n int) []byte { return slices.Clone(p[batchEnd(p, n):batchEnd(p, n+1)]) }
	cases := map[string]struct {
		change func(p []byte) []byte
		left   bool
	}{
		"nothing":                {func(p []byte) []byte { return p }, false},
		"a batch is missing":     {func(p []byte) []byte { return slices.Delete(p, batchEnd(p, 3), batchEnd(p, 4)) }, true},
		"a batch is there twice": {func(p []byte) []byte { return slices.Insert(p, batchEnd(p, 4), first(p, 3)...) }, true},
		"two batches are swapped": {func(p []byte) []byte {
			return slices.Concat(p[:batchEnd(p, 3)], first(p, 4), first(p, 3), p[batchEnd(p, 5):])
		}, true},
		"a byte is changed": {func(p []byte) []byte { p[batchEnd(p, 3)+70] ^= 1; return p }, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := honestLog(t, wal.SyncCommit, true, vfstest.Kill)
			d := &disk{t: t, Mem: m}
			dir := filepath.Join(t.TempDir(), "t-0")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			d.change("00000000000000000017.log", c.change)
			for name, p := range d.files() {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(p), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			status := 0
			if c.left {
				status = 1
			}
			if r := logtool(t, "", "inspect", dir); r.status != status {
				t.Errorf("inspect: exit status %d\n%s", r.status, r.stdout)
			}
			for _, args := range [][]string{{"recover", dir}, {"recover", dir, "--json"}, {"recover", dir, "--policy", "strict", "--apply"}, {"recover", dir}} {
				r := logtool(t, "", args...)
				if r.status != status || !strings.Contains(r.stdout, `"left"`) && strings.Contains(r.stdout, "left that no recovery repairs") != c.left {
					t.Errorf("%q: exit status %d\n%s%s", args, r.status, r.stdout, r.err)
				}
			}
		})
	}
}
