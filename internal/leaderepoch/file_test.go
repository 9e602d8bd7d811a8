package leaderepoch_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/leaderepoch"
	"github.com/oncelog/oncelog/internal/vfs"
)

// golden is the worked example of the format.
const golden = "0\n3\n0 0\n5 100\n7 250\n"

var goldenEntries = []leaderepoch.Entry{{Epoch: 0, StartOffset: 0}, {Epoch: 5, StartOffset: 100}, {Epoch: 7, StartOffset: 250}}

func TestFile_Golden(t *testing.T) {
	got, err := leaderepoch.Decode("f", []byte(golden))
	if err != nil || !slices.Equal(got, goldenEntries) {
		t.Errorf("decoded %v, %v", got, err)
	}
	if p := leaderepoch.Encode(goldenEntries); string(p) != golden {
		t.Errorf("encoded %q", p)
	}
	if p := leaderepoch.Encode([]leaderepoch.Entry{{Epoch: 0, StartOffset: 0}, {Epoch: 7, StartOffset: 100}}); string(p) != "0\n2\n0 0\n7 100\n" {
		t.Errorf("encoded %q", p)
	}
}

func TestFile_Corrupt(t *testing.T) {
	for _, c := range []struct {
		name, content string
		line          int
	}{
		{"one field", "0\n1\n5\n", 3},
		{"three fields", "0\n1\n5 6 7\n", 3},
		{"epoch is no number", "0\n1\nx 6\n", 3},
		{"negative epoch", "0\n1\n-1 6\n", 3},
		{"epoch beyond 31 bits", "0\n1\n2147483648 6\n", 3},
		{"negative start", "0\n1\n1 -6\n", 3},
		{"start beyond 63 bits", "0\n1\n1 9223372036854775808\n", 3},
		{"epoch repeated", "0\n2\n1 0\n1 6\n", 4},
		{"epoch falls", "0\n3\n0 0\n2 3\n1 6\n", 5},
		{"start repeated", "0\n2\n1 6\n2 6\n", 4},
		{"start falls", "0\n2\n1 6\n2 5\n", 4},
		{"zeros", strings.Repeat("\x00", 12), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := leaderepoch.Decode("f", []byte(c.content))
			var ce *checkpoint.CorruptError
			if !errors.As(err, &ce) || ce.Line != c.line {
				t.Errorf("got %v, want a *CorruptError in line %d", err, c.line)
			}
		})
	}
}

func TestFile_CutEverywhere(t *testing.T) {
	for n := range len(golden) {
		got, err := leaderepoch.Decode("f", []byte(golden[:n]))
		switch untouched := n == 0 || n == len("0\n"); {
		case untouched && (err != nil || len(got) != 0):
			t.Errorf("cut to %d bytes: %v, %v; want no entries", n, got, err)
		case !untouched && !errors.Is(err, checkpoint.ErrCorrupt):
			t.Errorf("cut to %d bytes: %v, %v; want ErrCorrupt", n, got, err)
		}
	}
}

func TestFile_FlipEveryBit(t *testing.T) {
	for i := range len(golden) * 8 {
		p := []byte(golden)
		p[i/8] ^= 1 << (i % 8)
		got, err := leaderepoch.Decode("f", p)
		switch {
		case err != nil:
			if !errors.Is(err, checkpoint.ErrCorrupt) && !errors.Is(err, checkpoint.ErrUnsupportedVersion) {
				t.Errorf("bit %d: untyped error %v", i, err)
			}
		case slices.Equal(got, goldenEntries):
			t.Errorf("bit %d: %q read as if nothing had happened", i, p)
		}
	}
}

func FuzzFile(f *testing.F) {
	for _, s := range []string{golden, "", "0\n", "0\n0\n", "0\n1\n5\t6 \r\n", "1\n", "0\n2\n1 6\n1 6\n", "0\n1\n1 5"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		entries, err := leaderepoch.Decode("f", p)
		if err != nil {
			if !errors.Is(err, checkpoint.ErrCorrupt) && !errors.Is(err, checkpoint.ErrUnsupportedVersion) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		written := leaderepoch.Encode(entries)
		again, err := leaderepoch.Decode("f", written)
		if err != nil || !slices.Equal(entries, again) {
			t.Fatalf("%q decodes to %v, written %q, then %v, %v", p, entries, written, again, err)
		}
	})
}

func TestCache_OpenAndFlush(t *testing.T) {
	path := filepath.Join(t.TempDir(), leaderepoch.FileName)
	c := open(t, path)
	if c.Dirty() || c.Flush() != nil {
		t.Error("an empty cache without a file wants to write")
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a partition without epochs got a file: %v", err)
	}
	for _, e := range goldenEntries {
		if _, err := c.Assign(e.Epoch, e.StartOffset); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Assign wrote: %v", err)
	}
	if !c.Dirty() || string(c.Encode()) != golden {
		t.Errorf("dirty %v, would write %q", c.Dirty(), c.Encode())
	}
	flush(t, c, path, golden)
	if c = open(t, path); c.Dirty() || !slices.Equal(c.Entries(), goldenEntries) {
		t.Errorf("opened again: dirty %v, %v", c.Dirty(), c.Entries())
	}
	c.TruncateFromEnd(250)
	flush(t, c, path, "0\n2\n0 0\n5 100\n")
	c.Clear()
	flush(t, c, path, "0\n0\n")
}

func TestCache_FlushWritesOnlyChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), leaderepoch.FileName)
	// Other white space, same entries: nothing to write.
	const spaced = "0\n3\n0\t0\n5  100\n7 250\n"
	write(t, path, spaced)
	c := open(t, path)
	c.TruncateFromEnd(250)
	if _, err := c.Assign(7, 250); err != nil {
		t.Fatal(err)
	}
	flush(t, c, path, spaced)
	// One from New does not know the file and replaces it.
	c = leaderepoch.New(vfs.OS, path, false)
	flush(t, c, path, "0\n0\n")
}

func TestCache_OpenDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), leaderepoch.FileName)
	write(t, path, strings.Repeat("\x00", len(golden)))
	if _, err := leaderepoch.Open(vfs.OS, path, false); !errors.Is(err, checkpoint.ErrCorrupt) {
		t.Errorf("zero-filled file: %v", err)
	}
	write(t, path, "1\n0\n")
	if _, err := leaderepoch.Open(vfs.OS, path, false); !errors.Is(err, checkpoint.ErrUnsupportedVersion) {
		t.Errorf("other version: %v", err)
	}
	// The way on from a corrupt file: rebuild.
	write(t, path, strings.Repeat("\x00", len(golden)))
	c := leaderepoch.New(vfs.OS, path, false)
	for _, e := range goldenEntries {
		if _, err := c.Assign(e.Epoch, e.StartOffset); err != nil {
			t.Fatal(err)
		}
	}
	flush(t, c, path, golden)
}

func TestCache_ReadOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), leaderepoch.FileName)
	write(t, path, golden)
	c, err := leaderepoch.Open(vfs.OS, path, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Flush(); err != nil {
		t.Errorf("nothing to write: %v", err)
	}
	c.TruncateFromEnd(200)
	if e, _ := c.Latest(); e.Epoch != 5 {
		t.Errorf("latest %v", e)
	}
	if err := c.Flush(); !errors.Is(err, leaderepoch.ErrReadOnly) {
		t.Errorf("got %v, want ErrReadOnly", err)
	}
	if got := read(t, path); got != golden {
		t.Errorf("file is now %q", got)
	}
}

func open(t *testing.T, path string) *leaderepoch.Cache {
	t.Helper()
	c, err := leaderepoch.Open(vfs.OS, path, false)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func flush(t *testing.T, c *leaderepoch.Cache, path, want string) {
	t.Helper()
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); got != want {
		t.Errorf("file %q, want %q", got, want)
	}
	if c.Dirty() {
		t.Error("dirty after Flush")
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(p)
}
