package vfs

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestOpenFile_neverBlocks(t *testing.T) {
	dir := t.TempDir()
	fifo, socket := filepath.Join(dir, "fifo"), filepath.Join(dir, "socket")
	must(t, unix.Mkfifo(fifo, 0o644))
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: socket}))
	done := make(chan bool)
	go func() {
		defer close(done)
		for _, name := range []string{fifo, socket, "/dev/null", "/dev/zero"} {
			for _, flag := range []int{O_RDONLY, O_WRONLY, O_RDWR, O_RDWR | O_CREATE} {
				if _, err := OS.OpenFile(name, flag, 0o644); !errors.Is(err, ErrNotRegular) {
					t.Errorf("%s with flags %#x: %v, want ErrNotRegular", name, flag, err)
				}
			}
			if info, err := OS.Stat(name); err != nil || info.Kind != Other || info.Size != 0 {
				t.Errorf("stat of %s: %+v, %v", name, info, err)
			}
		}
		if _, err := ReadFile(OS, fifo, 100); !errors.Is(err, ErrNotRegular) {
			t.Errorf("read of a FIFO: %v", err)
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("an open blocks")
	}
}

func TestAllocate_takesSpace(t *testing.T) {
	f := create(t, filepath.Join(t.TempDir(), "a"))
	if err := unix.Fallocate(int(f.(*osFile).Fd()), 0, 0, 4096); err != nil {
		t.Skipf("no fallocate here: %v", err)
	}
	must(t, f.Truncate(0))
	must(t, f.Truncate(1<<20)) // a hole, as Kafka leaves index files
	must(t, f.Allocate(2<<20))
	var st unix.Stat_t
	must(t, unix.Fstat(int(f.(*osFile).Fd()), &st))
	if st.Size != 2<<20 || st.Blocks*512 < 2<<20 {
		t.Errorf("size %d, %d bytes taken", st.Size, st.Blocks*512)
	}
}

func TestFillHoles(t *testing.T) {
	f := create(t, filepath.Join(t.TempDir(), "a")).(*osFile)
	const end = 16 << 20
	must(t, f.Truncate(end))
	want := make([]byte, end)
	for _, at := range []int64{0, 5 << 20, 9<<20 + 123} {
		_, err := f.WriteAt([]byte("data"), at)
		must(t, err)
		copy(want[at:], "data")
	}
	must(t, f.Sync())
	must(t, f.fillHoles(end))
	must(t, f.Sync())
	got, err := ReadFile(OS, f.Name(), end)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Error("filling holes changed data")
	}
	var st unix.Stat_t
	must(t, unix.Stat(f.Name(), &st))
	if st.Blocks*512 < end {
		t.Errorf("%d of %d bytes taken", st.Blocks*512, end)
	}
	must(t, f.fillHoles(0))
}

// mount mounts a tmpfs, or skips the test. The file system is unmounted with the test.
func mount(t *testing.T, dir, options string) {
	t.Helper()
	if err := unix.Mount("oncelog-test", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("cannot mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
}

func TestAllocate_fullDisk(t *testing.T) {
	dir := t.TempDir()
	mount(t, dir, "size=1m")
	f := create(t, filepath.Join(dir, "a"))
	_, err := f.WriteAt([]byte("data"), 0)
	must(t, err)
	free := func() uint64 {
		var st unix.Statfs_t
		must(t, unix.Statfs(dir, &st))
		return st.Bfree * uint64(st.Bsize)
	}
	before := free()
	check := func(what string, err error) {
		t.Helper()
		var pathErr *fs.PathError
		if !errors.Is(err, ErrNoSpace) || !errors.Is(err, syscall.ENOSPC) || !errors.As(err, &pathErr) || pathErr.Path != f.Name() {
			t.Errorf("%s: %v", what, err)
		}
		if strings.Count(err.Error(), "no space") != 1 || strings.Count(err.Error(), f.Name()) != 1 {
			t.Errorf("%s reads badly: %v", what, err)
		}
	}
	check("allocate", f.Allocate(4<<20))
	if info, err := f.Stat(); err != nil || info.Size != 4 || free() != before {
		t.Errorf("size %d, %v; %d bytes free, %d before", info.Size, err, free(), before)
	}
	must(t, f.Allocate(512<<10))
	_, err = f.WriteAt(make([]byte, 2<<20), 0)
	check("write", err)
	must(t, f.Truncate(0))
	check("write of zeros", pathError("allocate", f.Name(), writeZeros(f.(*osFile).File, 0, 4<<20)))
	must(t, f.Truncate(0))
	must(t, f.Allocate(512<<10))

	must(t, f.Close()) // a mount with a file open for writing does not become read-only
	must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	for what, err := range map[string]error{
		"create": errorOf(OS.OpenFile(filepath.Join(dir, "b"), O_RDWR|O_CREATE, 0o644)),
		"open":   errorOf(OS.OpenFile(f.Name(), O_RDWR, 0)),
		"remove": OS.Remove(f.Name()),
		"rename": OS.Rename(f.Name(), filepath.Join(dir, "b")),
		"mkdir":  OS.MkdirAll(filepath.Join(dir, "d"), 0o755),
		"lock":   errorOf(OS.Lock(f.Name(), 0, 1, true)),
	} {
		if !errors.Is(err, ErrReadOnly) || !errors.Is(err, syscall.EROFS) {
			t.Errorf("%s on a read-only mount: %v", what, err)
		}
	}
	l, err := OS.Lock(f.Name(), 0, 1, false)
	must(t, err)
	must(t, l.Close())
}

// TestAllocate_givesBack needs a file system whose failed fallocate keeps what it got, as ext4 does.
func TestAllocate_givesBack(t *testing.T) {
	dir, image := t.TempDir(), filepath.Join(t.TempDir(), "image")
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, 16<<20))
	for _, command := range [][]string{{"mkfs.ext4", "-q", "-F", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Skipf("no ext4 in a file here: %v: %v: %s", command, err, out)
		}
	}
	defer exec.Command("umount", dir).Run()
	f := create(t, filepath.Join(dir, "a"))
	defer f.Close()
	must(t, f.Allocate(1<<20))
	must(t, f.Sync())
	var before, after unix.Statfs_t
	must(t, unix.Statfs(dir, &before))
	if err := f.Allocate(64 << 20); !errors.Is(err, ErrNoSpace) {
		t.Fatalf("64 MiB on a disk of 16: %v", err)
	}
	must(t, unix.Statfs(dir, &after))
	// A few blocks may have gone into the map of the file's extents.
	if info, err := f.Stat(); err != nil || info.Size != 1<<20 || after.Bfree+16 < before.Bfree {
		t.Errorf("size %d, %v; %d blocks free, %d before", info.Size, err, after.Bfree, before.Bfree)
	}
	must(t, f.Allocate(2<<20))
}

func errorOf[T any](_ T, err error) error { return err }

func TestBootID_mount(t *testing.T) {
	dir := t.TempDir()
	outside, err := OS.BootID(dir)
	must(t, err)
	boot, err := os.ReadFile(bootIDFile)
	must(t, err)
	if !strings.HasPrefix(outside, strings.TrimSpace(string(boot))+" ") {
		t.Errorf("id %q does not begin with the boot id %q", outside, boot)
	}
	mount(t, dir, "size=64k")
	first, err := OS.BootID(dir)
	must(t, err)
	must(t, os.Mkdir(filepath.Join(dir, "d"), 0o755))
	inside, err := OS.BootID(filepath.Join(dir, "d"))
	must(t, err)
	if first == outside || inside != first {
		t.Errorf("ids %q outside, %q and %q inside a mount", outside, first, inside)
	}
	must(t, unix.Unmount(dir, 0))
	mount(t, dir, "size=64k")
	second, err := OS.BootID(dir)
	must(t, err)
	var sx unix.Statx_t
	must(t, unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_MNT_ID_UNIQUE, &sx))
	if sx.Mask&unix.STATX_MNT_ID_UNIQUE != 0 && (second == first || !strings.Contains(first, "unique-mount")) {
		t.Errorf("id %q before an unmount, %q after it", first, second)
	}
}

func mincore(p, resident []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)),
		uintptr(unsafe.Pointer(&resident[0])))
	if errno != 0 {
		return errno
	}
	return nil
}

func TestDropCache(t *testing.T) {
	var st unix.Statfs_t
	if unix.Statfs(t.TempDir(), &st) == nil && st.Type == unix.TMPFS_MAGIC {
		t.Skip("a file system in memory drops nothing")
	}
	f := create(t, filepath.Join(t.TempDir(), "a"))
	p := bytes.Repeat([]byte("x"), 1<<20)
	_, err := f.WriteAt(p, 0)
	must(t, err)
	must(t, f.Sync())
	must(t, f.DropCache(0, 0))
	m, err := f.Map(len(p), false)
	must(t, err)
	defer m.Close()
	resident := make([]byte, len(p)/os.Getpagesize())
	if err := mincore(m.Bytes(), resident); err != nil {
		t.Skipf("no mincore: %v", err)
	}
	n := 0
	for _, r := range resident {
		n += int(r & 1)
	}
	if n > len(resident)/2 {
		t.Errorf("%d of %d pages stay", n, len(resident))
	}
	if !bytes.Equal(m.Bytes(), p) {
		t.Error("content changed")
	}
}

// The page that a range begins in, and a unit of several pages that lies across its beginning, are dropped with it.
func TestDropCache_FromTheMiddle(t *testing.T) {
	var st unix.Statfs_t
	if unix.Statfs(t.TempDir(), &st) == nil && st.Type == unix.TMPFS_MAGIC {
		t.Skip("a file system in memory drops nothing")
	}
	f := create(t, filepath.Join(t.TempDir(), "a"))
	p := bytes.Repeat([]byte("x"), 1<<20)
	for i := range int64(32) {
		_, err := f.WriteAt(p, i<<20)
		must(t, err)
	}
	must(t, f.Sync())
	m, err := f.Map(32<<20, false)
	must(t, err)
	defer m.Close()
	page := int64(os.Getpagesize())
	resident := make([]byte, 32<<20/page)
	if err := mincore(m.Bytes(), resident); err != nil {
		t.Skipf("no mincore: %v", err)
	}
	if resident[0]&1 == 0 {
		t.Skip("the pages are gone before they were dropped")
	}
	from := int64(21<<20 + 300<<10 + 123)
	must(t, f.DropCache(from, 0))
	must(t, mincore(m.Bytes(), resident))
	for i, r := range resident[from/page:] {
		if r&1 != 0 {
			t.Fatalf("page %d, %d bytes behind the beginning of the range, stays", from/page+int64(i), int64(i)*page)
		}
	}
	if page == 4096 && resident[0]&1 == 0 {
		t.Error("the pages far below the range went too")
	}
}

func TestSyncDataDoesNotAllocate(t *testing.T) {
	f := create(t, filepath.Join(t.TempDir(), "a"))
	must(t, f.SyncData())
	if n := testing.AllocsPerRun(100, func() { must(t, f.SyncData()) }); n >= 1 {
		t.Errorf("%v allocations a sync", n)
	}
}
