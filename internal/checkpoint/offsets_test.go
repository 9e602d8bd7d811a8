package checkpoint_test

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/vfs"
)

// golden is a recovery point checkpoint as a broker writes it: its order is that of a hash map.
const golden = "0\n4\norders-eu 12 9223372036854775807\n__consumer_offsets 0 18\norders-eu 0 0\na.b_c 3 486\n"

func partition(topic string, n int32) checkpoint.TopicPartition {
	return checkpoint.TopicPartition{Topic: topic, Partition: n}
}

var goldenEntries = []checkpoint.PartitionOffset{
	{TopicPartition: partition("orders-eu", 12), Offset: 9223372036854775807},
	{TopicPartition: partition("__consumer_offsets", 0), Offset: 18},
	{TopicPartition: partition("orders-eu", 0), Offset: 0},
	{TopicPartition: partition("a.b_c", 3), Offset: 486},
}

func TestOffsets_Golden(t *testing.T) {
	got, err := checkpoint.DecodeOffsets("f", []byte(golden))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(goldenEntries, got); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
	if p := checkpoint.EncodeOffsets(goldenEntries); string(p) != golden {
		t.Errorf("encoded %q, want %q", p, golden)
	}
	if p := checkpoint.EncodeOffsets(nil); string(p) != "0\n0\n" {
		t.Errorf("no entries encoded as %q", p)
	}
}

func TestOffsets_AcceptedForms(t *testing.T) {
	one := []checkpoint.PartitionOffset{{TopicPartition: partition("t", 1), Offset: 5}}
	for _, c := range []struct {
		name, content string
		want          []checkpoint.PartitionOffset
	}{
		{"no byte at all", "", nil},
		{"version only", "0\n", nil},
		{"no entries", "0\n0\n", nil},
		{"any white space between fields", "0\n1\nt \t 1\v\f5\n", one},
		{"white space behind the last field", "0\n1\nt 1 5  \n", one},
		{"line ends of Windows", "0\r\n1\r\nt 1 5\r\n", one},
		{"leading zeros and a sign", "0\n1\nt 01 +5\n", one},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := checkpoint.DecodeOffsets("f", []byte(c.content))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestOffsets_Corrupt(t *testing.T) {
	long := strings.Repeat("x", 256)
	for _, c := range []struct {
		name, content string
		line          int
		reason        string // part of it
	}{
		{"version is no number", "x\n0\n", 1, "version"},
		{"blank in front of the version", " 0\n0\n", 1, "version"},
		{"negative version", "-1\n0\n", 1, "version"},
		{"version line cut", "0", 1, "cut"},
		{"count is no number", "0\n\n", 2, "number of entries"},
		{"count is negative", "0\n-1\n", 2, "number of entries"},
		{"count of more than 31 bits", "0\n2147483648\n", 2, "number of entries"},
		{"fewer lines than announced", "0\n2\nt 1 5\n", 2, "2 entries announced, 1 lines follow"},
		{"more lines than announced", "0\n1\nt 1 5\nt 2 5\n", 2, "1 entries announced, 2 lines follow"},
		{"huge count", "0\n2147483647\nt 1 5\n", 2, "2147483647 entries announced"},
		{"empty line", "0\n1\n\n", 3, "fields"},
		{"empty line at the end", "0\n1\nt 1 5\n\n", 2, "announced"},
		{"two fields", "0\n1\nt 1\n", 3, "3 fields"},
		{"four fields", "0\n1\nt 1 5 6\n", 3, "3 fields"},
		{"white space first", "0\n1\n t 1 5\n", 3, "3 fields"},
		{"last line cut", "0\n1\nt 1 5", 3, "cut"},
		{"partition is no number", "0\n1\nt x 5\n", 3, "partition number"},
		{"partition beyond 31 bits", "0\n1\nt 2147483648 5\n", 3, "partition number"},
		{"negative partition", "0\n1\nt -1 5\n", 3, "partition number"},
		{"offset is no number", "0\n1\nt 1 5x\n", 3, "offset"},
		{"offset beyond 63 bits", "0\n1\nt 1 9223372036854775808\n", 3, "offset"},
		{"negative offset", "0\n1\nt 1 -1\n", 3, "offset"},
		{"underscore in a number", "0\n1\nt 1 1_0\n", 3, "offset"},
		{"byte that no topic has", "0\n1\nt/x 1 5\n", 3, "topic name"},
		{"control byte", "0\n1\nt\x01 1 5\n", 3, "topic name"},
		{"byte beyond ASCII", "0\n1\nt\xff 1 5\n", 3, "0xff"},
		{"topic too long", "0\n1\n" + long + " 1 5\n", 3, "256 bytes"},
		{"return inside a line", "0\n1\nt\r1 5\n", 3, "0x0d"},
		{"same partition twice", "0\n2\nt 1 5\nt 1 6\n", 4, "line 3 too"},
		{"zero byte", "0\n1\nt 1\x00 5\n", 3, "zero bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := checkpoint.DecodeOffsets("some/file", []byte(c.content))
			ce := wantCorrupt(t, err)
			if ce.Path != "some/file" || ce.Line != c.line || !strings.Contains(ce.Reason, c.reason) {
				t.Errorf("got line %d of %s: %s; want line %d: …%s…", ce.Line, ce.Path, ce.Reason, c.line, c.reason)
			}
			if len(err.Error()) > 300 {
				t.Errorf("error text of %d bytes", len(err.Error()))
			}
		})
	}
}

// wantCorrupt requires a *CorruptError that matches the sentinel and is not called an unsupported version.
func wantCorrupt(t *testing.T, err error) *checkpoint.CorruptError {
	t.Helper()
	var ce *checkpoint.CorruptError
	if !errors.As(err, &ce) || !errors.Is(err, checkpoint.ErrCorrupt) || errors.Is(err, checkpoint.ErrUnsupportedVersion) {
		t.Fatalf("got %v, want a *CorruptError", err)
	}
	return ce
}

func TestOffsets_UnsupportedVersion(t *testing.T) {
	for _, content := range []string{"1\n0\n", "7\nanything"} {
		_, err := checkpoint.DecodeOffsets("f", []byte(content))
		if !errors.Is(err, checkpoint.ErrUnsupportedVersion) || errors.Is(err, checkpoint.ErrCorrupt) {
			t.Errorf("%q: got %v, want ErrUnsupportedVersion", content, err)
		}
	}
}

func TestOffsets_ZeroFilled(t *testing.T) {
	// What a power cut leaves of a file whose name reached the disk before its data: the right length, pages of zeros.
	for from := range len(golden) {
		p := []byte(golden)
		clear(p[from:])
		ce := wantCorrupt(t, second(checkpoint.DecodeOffsets("f", p)))
		if from == 0 && (ce.Line != 1 || !strings.Contains(ce.Reason, "zero bytes")) {
			t.Errorf("a file of zeros: line %d: %s", ce.Line, ce.Reason)
		}
		p = []byte(golden)
		clear(p[:from+1])
		wantCorrupt(t, second(checkpoint.DecodeOffsets("f", p)))
	}
	wantCorrupt(t, second(checkpoint.DecodeOffsets("f", make([]byte, 1<<20))))
}

func TestOffsets_CutEverywhere(t *testing.T) {
	for n := range len(golden) {
		got, err := checkpoint.DecodeOffsets("f", []byte(golden[:n]))
		if n == 0 || n == len("0\n") {
			// These two are what an untouched file looks like.
			if err != nil || len(got) != 0 {
				t.Errorf("cut to %d bytes: %v, %v; want no entries", n, got, err)
			}
			continue
		}
		wantCorrupt(t, err)
	}
}

func TestOffsets_FlipEveryBit(t *testing.T) {
	for i := range len(golden) * 8 {
		p := []byte(golden)
		p[i/8] ^= 1 << (i % 8)
		got, err := checkpoint.DecodeOffsets("f", p)
		switch {
		case errors.Is(err, checkpoint.ErrUnsupportedVersion):
			if i/8 != 0 {
				t.Errorf("bit %d: %v", i, err)
			}
		case err != nil:
			wantCorrupt(t, err)
		case isSpace(golden[i/8]) && isSpace(p[i/8]):
			// One kind of white space became another: the same meaning.
			if diff := cmp.Diff(goldenEntries, got); diff != "" {
				t.Errorf("bit %d: %s", i, diff)
			}
		case cmp.Equal(goldenEntries, got):
			t.Errorf("bit %d: %q read as if nothing had happened", i, p)
		}
	}
}

func isSpace(c byte) bool { return bytes.IndexByte([]byte(" \t\v\f"), c) >= 0 }

func second[T any](_ T, err error) error { return err }

func TestReadOffsets(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, checkpoint.RecoveryPointFile)
	if _, err := checkpoint.ReadOffsets(vfs.OS, path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	want := map[checkpoint.TopicPartition]int64{partition("b", 10): 1, partition("b", 9): 2, partition("a", 0): 3}
	if err := checkpoint.WriteOffsets(vfs.OS, path, want); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); got != "0\n3\na 0 3\nb 9 2\nb 10 1\n" {
		t.Errorf("written %q", got)
	}
	got, err := checkpoint.ReadOffsets(vfs.OS, path)
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("read %v, %v", got, err)
	}
	write(t, path, "0\n2\nb 10 1\n")
	wantCorrupt(t, second(checkpoint.ReadOffsets(vfs.OS, path)))
	if left := names(t, dir); !slices.Equal(left, []string{checkpoint.RecoveryPointFile}) {
		t.Errorf("files left: %v", left)
	}
}

func TestReadOffsets_TooLarge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "0\n")
	if err := os.Truncate(path, checkpoint.MaxSize+1); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.ReadOffsets(vfs.OS, path); err == nil || errors.Is(err, checkpoint.ErrCorrupt) {
		t.Errorf("got %v, want the error of a bounded read", err)
	}
}

func TestWriteOffsets_Refused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, golden)
	for _, bad := range []checkpoint.PartitionOffset{
		{TopicPartition: partition("", 0)},
		{TopicPartition: partition("two words", 0)},
		{TopicPartition: partition("line\n", 0)},
		{TopicPartition: partition("t", -1)},
		{TopicPartition: partition("t", 0), Offset: -1},
	} {
		all := map[checkpoint.TopicPartition]int64{bad.TopicPartition: bad.Offset, partition("good", 0): 1}
		if err := checkpoint.WriteOffsets(vfs.OS, path, all); err == nil {
			t.Errorf("%+v was written", bad)
		}
		if _, err := checkpoint.SetOffset(vfs.OS, path, bad.TopicPartition, bad.Offset); err == nil {
			t.Errorf("%+v was set", bad)
		}
	}
	if got := read(t, path); got != golden {
		t.Errorf("the file is now %q", got)
	}
}

func TestSetOffset(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, step := range []struct {
		name    string
		tp      checkpoint.TopicPartition
		offset  int64 // -1 removes
		changed bool
		want    string
	}{
		{"remove from a missing file", partition("a", 0), -1, false, ""},
		{"missing file", partition("b", 1), 7, true, "0\n1\nb 1 7\n"},
		{"new line at the end", partition("a", 1), 8, true, "0\n2\nb 1 7\na 1 8\n"},
		{"same value", partition("b", 1), 7, false, "0\n2\nb 1 7\na 1 8\n"},
		{"other value in place", partition("b", 1), 0, true, "0\n2\nb 1 0\na 1 8\n"},
		{"name that begins alike", partition("b", 11), 9, true, "0\n3\nb 1 0\na 1 8\nb 11 9\n"},
		{"remove", partition("a", 1), -1, true, "0\n2\nb 1 0\nb 11 9\n"},
		{"remove what is not there", partition("a", 1), -1, false, "0\n2\nb 1 0\nb 11 9\n"},
	} {
		t.Run(step.name, func(t *testing.T) {
			var changed bool
			var err error
			if step.offset < 0 {
				changed, err = checkpoint.RemoveOffset(vfs.OS, path, step.tp)
			} else {
				changed, err = checkpoint.SetOffset(vfs.OS, path, step.tp, step.offset)
			}
			if err != nil || changed != step.changed {
				t.Errorf("changed %v, %v; want %v", changed, err, step.changed)
			}
			if got := read(t, path); got != step.want {
				t.Errorf("file %q, want %q", got, step.want)
			}
		})
	}
}

func TestSetOffset_LeavesWhatItCannotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, content := range []string{"1\n0\n", "0\n1\nt 1 5", strings.Repeat("\x00", 30)} {
		write(t, path, content)
		if _, err := checkpoint.SetOffset(vfs.OS, path, partition("t", 1), 6); err == nil {
			t.Errorf("%q: set", content)
		}
		if _, err := checkpoint.RemoveOffset(vfs.OS, path, partition("t", 1)); err == nil {
			t.Errorf("%q: removed", content)
		}
		if got := read(t, path); got != content {
			t.Errorf("%q became %q", content, got)
		}
	}
}

func FuzzOffsets(f *testing.F) {
	for _, s := range []string{golden, "", "0\n", "0\n0\n", "0\n1\nt \t1\v5 \r\n", "1\n0\n", "0\n2\nt 1 5\nt 1 5\n", "0\n1\nt 1 5", "\x00\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		entries, err := checkpoint.DecodeOffsets("f", p)
		if err != nil {
			if !errors.Is(err, checkpoint.ErrCorrupt) && !errors.Is(err, checkpoint.ErrUnsupportedVersion) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		written := checkpoint.EncodeOffsets(entries)
		again, err := checkpoint.DecodeOffsets("f", written)
		if err != nil || !slices.Equal(entries, again) {
			t.Fatalf("%q decodes to %v, written %q, then %v, %v", p, entries, written, again, err)
		}
	})
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// read returns the content of a file, "" when it is missing.
func read(t *testing.T, path string) string {
	t.Helper()
	p, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(p)
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}
