package kafkatest

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
)

func archive(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range headers {
		h.Mode = 0o644
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, h.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestReadArchive_Refused(t *testing.T) {
	dir := tar.Header{Typeflag: tar.TypeDir, Name: "t-0/"}
	for _, c := range []struct {
		name string
		p    []byte
	}{
		{"nothing", archive(t)},
		{"absolute path", archive(t, tar.Header{Typeflag: tar.TypeReg, Name: "/t-0/f"})},
		{"parent directory", archive(t, dir, tar.Header{Typeflag: tar.TypeReg, Name: "t-0/../../f"})},
		{"parent directory that stays inside", archive(t, dir, tar.Header{Typeflag: tar.TypeReg, Name: "t-0/../t-0/f"})},
		{"top is the parent", archive(t, tar.Header{Typeflag: tar.TypeReg, Name: "../f"})},
		{"backslash", archive(t, dir, tar.Header{Typeflag: tar.TypeReg, Name: `t-0/..\..\f`})},
		{"second top", archive(t, dir, tar.Header{Typeflag: tar.TypeReg, Name: "t-1/f"})},
		{"symbolic link", archive(t, dir, tar.Header{Typeflag: tar.TypeSymlink, Name: "t-0/f", Linkname: "/etc/passwd"})},
		{"hard link", archive(t, dir, tar.Header{Typeflag: tar.TypeLink, Name: "t-0/f", Linkname: "t-0/g"})},
		{"FIFO", archive(t, dir, tar.Header{Typeflag: tar.TypeFifo, Name: "t-0/f"})},
		{"cut", archive(t, dir, tar.Header{Typeflag: tar.TypeReg, Name: "t-0/f", Size: 2000})[:1500]},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, entries, err := readArchive(c.p); err == nil {
				t.Errorf("taken: %v", entries)
			}
		})
	}
}

func TestUnpackTo_KeepsWhatIsThere(t *testing.T) {
	parent := t.TempDir()
	x := LoadFixture(t, "plain-one-batch")
	if _, err := x.UnpackTo(vfs.OS, parent); err != nil {
		t.Fatal(err)
	}
	if _, err := x.UnpackTo(vfs.OS, parent); err == nil {
		t.Error("unpacked over itself")
	}
}

func TestUnpack_ZerosAtTheEnd(t *testing.T) {
	parent := t.TempDir()
	if err := writeFile(vfs.OS, filepath.Join(parent, "f"), []byte("ab"), 5000); err != nil {
		t.Fatal(err)
	}
	p, err := os.ReadFile(filepath.Join(parent, "f"))
	if err != nil || !bytes.Equal(p, append([]byte("ab"), make([]byte, 4998)...)) {
		t.Errorf("%d bytes, %v", len(p), err)
	}
}

// TestUnpackTo_Memory holds the simulated file system against the real one.
func TestUnpackTo_Memory(t *testing.T) {
	x := LoadFixture(t, "txn-abort")
	mem := vfstest.NewMem()
	if err := mem.MkdirAll("/kafka", 0o755); err != nil {
		t.Fatal(err)
	}
	inMemory, err := x.UnpackTo(mem, "/kafka")
	if err != nil {
		t.Fatal(err)
	}
	onDisk := x.Unpack(t)
	for path, want := range walk(t, onDisk.LogDir) {
		got, err := vfs.ReadFile(mem, filepath.Join(inMemory.LogDir, path), 1<<30)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v; want %d", path, len(got), err, len(want))
		}
	}
}
