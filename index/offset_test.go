package index

import (
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	p, err := hex.DecodeString(strings.NewReplacer(" ", "", "\n", "", "\t", "", "|", "").Replace(s))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantIs(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("got error %v, want %v", err, target)
	}
}

// osPath returns the path of a file that does not exist, in a directory of the operating system.
func osPath(t testing.TB) string { return filepath.Join(t.TempDir(), "00000000000000000100.index") }

func openOffset(t testing.TB, fsys vfs.FS, path string, base int64, c Config) *Offset {
	t.Helper()
	x, err := OpenOffset(fsys, path, base, c)
	ok(t, err)
	t.Cleanup(func() { ok(t, x.Close()) })
	return x
}

// The entries of the worked example: base offset 100, (102 at 0) and (150 at 4200).
const goldenOffsets = "00 00 00 02 00 00 00 00 | 00 00 00 32 00 00 10 68"

func TestOffset_Golden(t *testing.T) {
	path := osPath(t)
	x := openOffset(t, vfs.OS, path, 100, Config{})
	if !x.Created() {
		t.Error("a missing file was not created")
	}
	ok(t, x.Append(102, 0))
	ok(t, x.Append(150, 4200))
	ok(t, x.Trim())
	ok(t, x.Flush())
	got, err := os.ReadFile(path)
	ok(t, err)
	if want := unhex(t, goldenOffsets); string(got) != string(want) {
		t.Fatalf("file is % x, want % x", got, want)
	}
	for _, y := range []*Offset{x, openOffset(t, vfs.OS, path, 100, Config{ReadOnly: true})} {
		for _, c := range []struct {
			target int64
			want   OffsetPosition
		}{
			{-1, OffsetPosition{100, 0}},
			{99, OffsetPosition{100, 0}},
			{101, OffsetPosition{100, 0}},
			{102, OffsetPosition{102, 0}},
			{149, OffsetPosition{102, 0}},
			{150, OffsetPosition{150, 4200}},
			{1 << 62, OffsetPosition{150, 4200}},
		} {
			if got, err := y.Lookup(c.target); err != nil || got != c.want {
				t.Errorf("Lookup(%d) = %v, %v, want %v", c.target, got, err, c.want)
			}
		}
		if y.Entries() != 2 || y.LastOffset() != 150 || y.ZeroTail() != 0 {
			t.Errorf("%d entries, last %d, tail %d", y.Entries(), y.LastOffset(), y.ZeroTail())
		}
		ok(t, y.SanityCheck())
		ok(t, y.CheckEntries(4201))
		wantIs(t, y.CheckEntries(4200), ErrCorrupt)
	}
}
