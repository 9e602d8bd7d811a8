package vfstest

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
)

func mustOpen(t testing.TB, fsys vfs.FS, name string, flag int) vfs.File {
	t.Helper()
	f, err := fsys.OpenFile(name, flag, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func mustWrite(t testing.TB, f vfs.File, off int64, p []byte) {
	t.Helper()
	if _, err := f.WriteAt(p, off); err != nil {
		t.Fatal(err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// content returns what a fresh open reads, or nil if the file is missing.
func content(t testing.TB, fsys vfs.FS, name string) []byte {
	t.Helper()
	p, err := vfs.ReadFile(fsys, name, 1<<30)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestMem_mappingIsTheCache(t *testing.T) {
	m := NewMem()
	f := mustOpen(t, m, "a", os.O_RDWR|os.O_CREATE)
	mustWrite(t, f, 0, bytes.Repeat([]byte("x"), 10000))
	small, err := f.Map(5000, true)
	must(t, err)
	held := small.Bytes()
	held[4999] = 'm'
	if got := content(t, m, "a"); got[4999] != 'm' {
		t.Fatalf("read %q after a store", got[4999])
	}
	mustWrite(t, f, 1, []byte("w"))
	if held[1] != 'w' {
		t.Fatalf("mapping shows %q after a write", held[1])
	}

	// The file outgrows its memory while it is mapped, again and again.
	for size := int64(20000); size < 2_000_000; size *= 3 {
		must(t, f.Truncate(size))
		big, err := f.Map(int(size), true)
		must(t, err)
		b := big.Bytes()
		b[size-1], b[7] = 'b', byte(size)
		held[8] = byte(size)
		if got := content(t, m, "a"); got[size-1] != 'b' || got[7] != byte(size) || got[8] != byte(size) {
			t.Fatal("a store through one of two mappings is not read")
		}
		if held[7] != byte(size) || b[8] != byte(size) {
			t.Fatal("a call did not exchange the stores of two mappings")
		}
		must(t, big.Close())
		// At first both mappings lie in the same memory, which lives until the second is closed.
		if size > 20480 && b[7] != poison || len(big.Bytes()) != int(size) || big.Bytes()[7] != poison {
			t.Fatal("closed mapping shows live bytes")
		}
	}
	must(t, small.Close())
	if held[1] != poison {
		t.Fatal("closed mapping shows live bytes")
	}
	held[1] = 'z'
	if got := content(t, m, "a"); got[1] != 'w' || got[4999] != 'm' {
		t.Fatal("a store into closed memory reached the file")
	}
	if err := small.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Fatalf("second close: %v", err)
	}
}

func TestMem_fullDisk(t *testing.T) {
	m := NewMemWith(MemOptions{Capacity: 4096})
	f := mustOpen(t, m, "a", os.O_RDWR|os.O_CREATE)
	must(t, f.Allocate(2048))
	if err := f.Allocate(5000); !errors.Is(err, vfs.ErrNoSpace) || m.Used() != 2048 {
		t.Fatalf("allocate: %v, %d bytes used", err, m.Used())
	}
	n, err := f.WriteAt(make([]byte, 5000), 1000)
	if n != 3096 || !errors.Is(err, vfs.ErrNoSpace) {
		t.Fatalf("wrote %d, %v", n, err)
	}
	must(t, f.Truncate(8192))
	mp, err := f.Map(8192, true)
	must(t, err)
	mp.Bytes()[6000] = 1
	must(t, mp.Flush())
	if s := m.SparseStores(); len(s) != 1 || s[0] != (Sparse{Path: "a", Off: 5632, N: 512, Full: true}) {
		t.Fatalf("sparse stores %+v", s)
	}
	must(t, mp.Close())
	must(t, f.Truncate(100))
	if m.Used() != 512 {
		t.Fatalf("%d bytes used after a cut", m.Used())
	}
	must(t, f.Close())
	must(t, m.Remove("a"))
	if m.Used() != 0 {
		t.Fatalf("%d bytes used after a removal", m.Used())
	}
}
