package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// reserve claims [0, size) of a file that is before bytes long. Mode 0 of fallocate extends the file and fills its
// holes, and leaves what is written alone.
func (f *osFile) reserve(before, size int64) error {
	err := f.control(func(fd uintptr) error {
		return retryEINTR(func() error { return unix.Fallocate(int(fd), 0, 0, size) })
	})
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	if err := f.fillHoles(min(before, size)); err != nil {
		return err
	}
	return writeZeros(f.File, before, size)
}

// fillHoles writes zeros where nothing was written below end, for file systems without fallocate.
func (f *osFile) fillHoles(end int64) error {
	for from := int64(0); from < end; {
		hole, err := f.seek(from, unix.SEEK_HOLE)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENXIO) {
			return nil // the file system does not know its holes, or from is behind its end
		}
		if err != nil || hole >= end {
			return err
		}
		data, err := f.seek(hole, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			data, err = end, nil // a hole to the end
		}
		if err != nil {
			return err
		}
		if err := writeZeros(f.File, hole, min(data, end)); err != nil {
			return err
		}
		from = data
	}
	return nil
}

// seek moves the file's own offset, which nothing else uses.
func (f *osFile) seek(off int64, whence int) (pos int64, err error) {
	err = f.control(func(fd uintptr) error {
		pos, err = unix.Seek(int(fd), off, whence)
		return err
	})
	return pos, err
}

// dataSync is one call of fdatasync. Calls are kept and used again: a log in which each append waits for a sync would
// otherwise allocate with each append.
type dataSync struct {
	run func(fd uintptr)
	err error
}

var dataSyncs = sync.Pool{New: func() any {
	c := &dataSync{}
	c.run = func(fd uintptr) {
		for c.err = unix.EINTR; c.err == unix.EINTR; {
			c.err = unix.Fdatasync(int(fd))
		}
	}
	return c
}}

func (f *osFile) syncData() error {
	c := dataSyncs.Get().(*dataSync)
	defer dataSyncs.Put(c)
	if f.raw.Control(c.run) != nil {
		return fs.ErrClosed // the only reason, as in control
	}
	return c.err
}

// cacheUnit is the most that the page cache keeps, and drops, as one piece: 2^11 pages (the kernel's MAX_XAS_ORDER), though
// few file systems go beyond 2^9.
var cacheUnit = int64(os.Getpagesize()) << 11

// dropCache begins at a border of such a piece, since the kernel keeps one that lies across the beginning of the range.
// It does the same at the end of a range.
func (f *osFile) dropCache(off, n int64) error {
	if below := off % cacheUnit; below > 0 {
		off -= below
		if n > 0 {
			n += below
		}
	}
	return f.control(func(fd uintptr) error {
		return retryEINTR(func() error { return unix.Fadvise(int(fd), off, n, unix.FADV_DONTNEED) })
	})
}

// retryEINTR repeats a call that a signal interrupted. An interrupted call did not report a failed write, so that
// repeating it hides nothing.
func retryEINTR(do func() error) error {
	for {
		if err := do(); err != unix.EINTR {
			return err
		}
	}
}

// mapHandle returns the file that a mapping needs besides its memory: none, as msync alone makes stores durable here.
func mapHandle(*os.File) (*os.File, error) { return nil, nil }

// bootIDFile names the boot of the running kernel.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// bootID joins the kernel's boot id with the mount that dir lies on. From Linux 6.8 the mount has an id that is never
// given twice, so that an unmount shows. Older kernels hand a freed number out again: a file system that was unmounted
// and mounted once more may then look as if it had stayed. Where even that is unknown, the device number stands in. The
// word before the number says which it is, so that a kernel update changes the whole id.
func bootID(dir string) (string, error) {
	f, err := os.Open(bootIDFile)
	if err != nil {
		return "", nil // no procfs: unknown, which equals nothing
	}
	text, err := io.ReadAll(io.LimitReader(f, 128))
	f.Close()
	boot := string(bytes.TrimSpace(text))
	if err != nil || boot == "" {
		return "", nil
	}

	var sx unix.Statx_t
	err = retryEINTR(func() error {
		return unix.Statx(unix.AT_FDCWD, dir, unix.AT_STATX_SYNC_AS_STAT, unix.STATX_MNT_ID|unix.STATX_MNT_ID_UNIQUE, &sx)
	})
	switch {
	case err == nil && sx.Mask&unix.STATX_MNT_ID_UNIQUE != 0:
		return fmt.Sprintf("%s unique-mount %d", boot, sx.Mnt_id), nil
	case err == nil && sx.Mask&unix.STATX_MNT_ID != 0:
		return fmt.Sprintf("%s mount %d", boot, sx.Mnt_id), nil
	}
	var st unix.Stat_t
	if err := retryEINTR(func() error { return unix.Stat(dir, &st) }); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s device %d", boot, st.Dev), nil
}
