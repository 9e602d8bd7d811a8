package bench

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/wal"
)

// openOptions keep the large log in one segment.
var openOptions = wal.Options{Sync: wal.SyncNone, SegmentBytes: 1<<31 - 1}

// BenchmarkOpen opens a log of -logbytes in one segment, of batches of 16 records of 1 KiB from 100 producers. What is
// timed is wal.Open; closing the log, or killing it, and putting the directory back as it was are not.
//
//	end=clean       after Close
//	end=kill        after the writer was killed in SyncNone, with behind bytes appended since the last checkpoint
//
// The floor is to read as many bytes of the same file as recovery did, in pieces of 1 MiB, with the checksum of each
// piece, after the file was dropped from the cache: recovery does that too. After Close nothing is read, and the floor
// is to list the directory. MB-read is what recovery read of log files, to verify it or to make state from it anew.
// Everything is on the disk before the clock starts: that recovery would have to wait for what the killed writer had not
// synced is not in the figure.
func BenchmarkOpen(b *testing.B) {
	b.Run("end=clean", func(b *testing.B) {
		dir := large.open(b)
		benchmarkCleanOpen(b, dir, openOptions)
	})
	for _, behind := range []int64{4 << 20, 60 << 20} {
		b.Run(fmt.Sprintf("end=kill/behind=%dMiB", behind>>20), func(b *testing.B) { benchmarkKilled(b, behind) })
	}
}

// BenchmarkOpenSegments opens a log that was closed in order, by the number of its segments, each with its indexes and
// its pair of producer snapshots. The floor is to list the directory.
func BenchmarkOpenSegments(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		if n > 100 && testing.Short() {
			continue
		}
		b.Run(fmt.Sprintf("segments=%d", n), func(b *testing.B) {
			dir := b.TempDir()
			l := openLog(b, vfs.OS, dir, wal.Options{Sync: wal.SyncNone})
			batch, c := batchOf(b, 1, 1024), client{producers: 100}
			for i := range n {
				appendBytes(b, l, &c, batch, 4<<10)
				if i < n-1 {
					ok(b, l.Roll())
				}
			}
			ok(b, l.Close())
			benchmarkCleanOpen(b, dir, wal.Options{Sync: wal.SyncNone})
		})
	}
}

func benchmarkCleanOpen(b *testing.B, dir string, o wal.Options) {
	t := newTurns()
	read := int64(0)
	for b.Loop() {
		var l *wal.Log
		log := nsPer(1, func() { l = openLog(b, vfs.OS, dir, o) })
		r := l.RecoveryReport()
		if !r.Clean {
			b.Fatalf("the log was not closed in order: %v", r.Findings)
		}
		read = r.BytesScanned + r.BytesReplayed
		ok(b, l.Close())
		t.add(1, log, nsPer(1, func() {
			_, err := vfs.OS.ReadDir(dir)
			ok(b, err)
		}))
	}
	reportOpen(b, t, read)
}

func benchmarkKilled(b *testing.B, behind int64) {
	dir := large.open(b)
	mortal := newMortal()
	l := openLog(b, mortal.fs, dir, openOptions)
	ok(b, l.Checkpoint())
	large.fill(b, l, behind)
	mortal.kill(l)
	image := capture(b, dir)

	t := newTurns()
	var read int64
	buf := make([]byte, 1<<20)
	for b.Loop() {
		image.restore(b)
		mortal := newMortal()
		var l *wal.Log
		log := nsPer(1, func() { l = openLog(b, mortal.fs, dir, openOptions) })
		r := l.RecoveryReport()
		if r.Clean || r.Problems() {
			b.Fatalf("clean %v, findings %v", r.Clean, r.Findings)
		}
		read = r.BytesScanned + r.BytesReplayed
		end := l.Stats().ActiveBytes
		mortal.kill(l)
		t.add(1, log, nsPer(1, func() { ok(b, readCold(image.log, end-behind, end, buf)) }))
	}
	reportOpen(b, t, read)
	image.restore(b) // for whoever opens it next: the recovered one has no longer what its state file speaks of
}

func reportOpen(b *testing.B, t *turns, read int64) {
	t.report(b, 0)
	b.ReportMetric(t.log.median()/1e6, "ms/op")
	b.ReportMetric(float64(read)/1e6, "MB-read")
}

// readCold drops a part of a file from the cache and reads and sums it.
func readCold(name string, from, end int64, buf []byte) error {
	f, err := vfs.OS.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.DropCache(from, end-from); err != nil {
		return err
	}
	for from < end {
		p := buf[:min(int64(len(buf)), end-from)]
		if _, err := f.ReadAt(p, from); err != nil && err != io.EOF {
			return err
		}
		sink ^= record.Checksum(p)
		from += int64(len(p))
	}
	return nil
}

// mortal is a file system whose process can be killed: from then on it changes nothing, so that a Close lets go of files
// and locks and leaves behind what a kill leaves.
type mortal struct {
	fs   vfs.FS
	dead atomic.Bool
}

var errKilled = errors.New("killed")

func newMortal() *mortal {
	m := &mortal{}
	m.fs = vfstest.Inject(vfs.OS, vfstest.Hook{BeforeOp: func(o vfstest.Op) vfstest.Fault {
		if m.dead.Load() && vfstest.Writes(o) {
			return vfstest.Fault{Err: errKilled}
		}
		return vfstest.Fault{}
	}})
	return m
}

func (m *mortal) kill(l *wal.Log) {
	m.dead.Store(true)
	_ = l.Close() // it says that it could not write, as it should
}

// image is a directory at one moment: its small files by content, its one log file by size, since recovery gives back
// the space that was reserved in it and changes nothing else.
type image struct {
	dir, log string
	logSize  int64
	files    map[string][]byte
}

func capture(tb testing.TB, dir string) *image {
	tb.Helper()
	x := &image{dir: dir, files: map[string][]byte{}}
	entries, err := os.ReadDir(dir)
	ok(tb, err)
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if strings.HasSuffix(name, ".log") {
			info, err := e.Info()
			ok(tb, err)
			x.log, x.logSize = name, info.Size()
			continue
		}
		x.files[name], err = os.ReadFile(name)
		ok(tb, err)
	}
	return x
}

// restore puts the directory back and waits until it is on the disk.
func (x *image) restore(tb testing.TB) {
	tb.Helper()
	entries, err := os.ReadDir(x.dir)
	ok(tb, err)
	for _, e := range entries {
		if name := filepath.Join(x.dir, e.Name()); name != x.log && x.files[name] == nil {
			ok(tb, os.Remove(name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(x.files)) {
		ok(tb, vfs.WriteFileAtomic(vfs.OS, name, 0o644, x.files[name]))
	}
	f, err := vfs.OS.OpenFile(x.log, os.O_RDWR, 0)
	ok(tb, err)
	ok(tb, f.Allocate(x.logSize))
	ok(tb, f.Sync())
	ok(tb, f.Close())
}

// large is the log that BenchmarkOpen shares, made when it is first needed.
var large largeLog

type largeLog struct {
	dir    string
	client client
	batch  record.Batch
}

// open makes the log if there is none yet, and leaves it closed in order.
func (x *largeLog) open(tb testing.TB) string {
	tb.Helper()
	if x.dir == "" {
		dir, err := os.MkdirTemp("", "oncelog-bench")
		ok(tb, err)
		x.dir, x.batch, x.client = dir, batchOf(tb, 16, 1<<10), client{producers: 100}
		n := *logBytes
		if testing.Short() {
			n = min(n, 64<<20)
		}
		l := openLog(tb, vfs.OS, x.dir, openOptions)
		x.fill(tb, l, n)
		ok(tb, l.Close())
		return dir
	}
	// An earlier benchmark left it killed.
	ok(tb, openLog(tb, vfs.OS, x.dir, openOptions).Close())
	return x.dir
}

func (x *largeLog) fill(tb testing.TB, l *wal.Log, n int64) {
	tb.Helper()
	appendBytes(tb, l, &x.client, x.batch, n)
}

func (x *largeLog) remove() {
	if x.dir != "" {
		os.RemoveAll(x.dir)
	}
}
