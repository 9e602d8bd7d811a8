package wal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/recovery"
	"github.com/oncelog/oncelog/segment"
)

var caseTime = time.UnixMilli(1_700_000_000_000)

func caseOptions(mode SyncMode) Options {
	return Options{Sync: mode, SegmentBytes: 2000, IndexIntervalBytes: 200, MaxIndexBytes: 4096, manual: true,
		Now: func() time.Time { return caseTime }}
}

// caseDisk is a simulated disk with a directory for a log.
func caseDisk(t testing.TB, o vfstest.MemOptions) *vfstest.Mem {
	t.Helper()
	m := vfstest.NewMemWith(o)
	if err := errors.Join(m.MkdirAll("/data", 0o755), m.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	return m
}

func openCase(t testing.TB, fsys vfs.FS, o Options) *Log {
	t.Helper()
	l, err := OpenFS(context.Background(), fsys, simDir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// caseBatch is a batch of n records of 100 bytes.
func caseBatch(t testing.TB, base int64, n int) record.Batch {
	t.Helper()
	w := record.NewBuilder(record.BuilderOptions{BaseOffset: base})
	for range n {
		if err := w.Append(caseTime.UnixMilli(), record.Record{Value: make([]byte, 100)}); err != nil {
			t.Fatal(err)
		}
	}
	b, err := w.Batch()
	if err != nil {
		t.Fatal(err)
	}
	return append(record.Batch(nil), b...)
}

func lead(t testing.TB, l *Log, n int) {
	t.Helper()
	if _, err := l.AppendAsLeader(caseBatch(t, 0, n), LeaderAppend{TransactionVersion: NoTransactionVersion}); err != nil {
		t.Fatal(err)
	}
}

func follow(t testing.TB, l *Log, base int64, n int) {
	t.Helper()
	if _, err := l.AppendAsFollower(caseBatch(t, base, n), 0); err != nil {
		t.Fatal(err)
	}
}

func closeCase(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func abandonCase(t testing.TB, l *Log) {
	t.Helper()
	if err := abandonLog(l); err != nil {
		t.Fatal(err)
	}
}

func TestOpen_PointInTimeAfterAClose(t *testing.T) {
	m := caseDisk(t, vfstest.MemOptions{})
	l := openCase(t, m, caseOptions(SyncCommit))
	lead(t, l, 3)
	closeCase(t, l)
	o := caseOptions(SyncCommit)
	o.DamagePolicy = PointInTime
	if r := openCase(t, m, o).RecoveryReport(); !r.Clean || r.LogEnd != 3 {
		t.Errorf("%+v", r)
	}
}

// Offsets that jump are no damage where a follower made them, inside an append, between two, and at the start of a segment.
func TestOpen_FollowersGapsAfterACrash(t *testing.T) {
	for _, mode := range modes {
		m := caseDisk(t, vfstest.MemOptions{})
		l := openCase(t, m, caseOptions(mode))
		lead(t, l, 2)
		follow(t, l, 10, 2)
		if _, err := l.AppendAsFollower(append(caseBatch(t, 20, 1), caseBatch(t, 30, 1)...), 0); err != nil {
			t.Fatal(err)
		}
		for base := int64(100); base < 1000; base += 100 {
			follow(t, l, base, 5)
		}
		if l.Stats().Segments < 3 {
			t.Fatal("no segment was rolled")
		}
		again := openCase(t, m.Crash(vfstest.CrashOptions{}), caseOptions(mode))
		if r := again.RecoveryReport(); r.Problems() || r.LogEnd != 905 || r.BytesCut > 0 {
			t.Errorf("%v: %+v", mode, r)
		}
	}
}

// A follower's append that begins a segment behind a gap and then fails must not leave the log end below that segment.
func TestAppend_LeaderGoesOnBehindAFailedAppendAfterAGap(t *testing.T) {
	m := caseDisk(t, vfstest.MemOptions{})
	allocate := vfstest.FailNth(func(o vfstest.Op) bool {
		return o.Kind == vfstest.OpAllocate && filepath.Base(o.Path) == segment.FileName(segment.KindLog, 50)
	}, 1, vfstest.Fault{Err: vfstest.ErrNoSpace}, true)
	fails := true
	fsys := vfstest.Inject(m, vfstest.Hook{BeforeOp: func(o vfstest.Op) vfstest.Fault {
		if !fails {
			return vfstest.Fault{}
		}
		return allocate.Before(o)
	}})
	l := openCase(t, fsys, caseOptions(SyncCommit))
	lead(t, l, 10)
	if _, err := l.AppendAsFollower(caseBatch(t, 50, 10), 0); !errors.Is(err, vfs.ErrNoSpace) {
		t.Fatalf("%v", err)
	}
	fails = false
	for range 9 {
		lead(t, l, 10)
	}
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	for at := int64(50); at < l.Offsets().LogEnd; at++ {
		f, err := l.Read(at, ReadOptions{MaxBytes: 1, MinOneMessage: true})
		if err != nil || f.Records.Size == 0 {
			t.Fatalf("offset %d of %d: %v", at, l.Offsets().LogEnd, err)
		}
		f.Close()
	}
	end := l.Offsets().LogEnd
	again := openCase(t, m.Crash(vfstest.CrashOptions{Mode: vfstest.AllLost}), caseOptions(SyncCommit))
	if r := again.RecoveryReport(); r.Problems() || r.LogEnd != end {
		t.Errorf("%+v", r)
	}
}

// The flag of a failed sync ends with the recovery that it was for.
func TestOpen_StateIsKeptAfterAFailedSync(t *testing.T) {
	m := caseDisk(t, vfstest.MemOptions{})
	nth := vfstest.FailNth(func(o vfstest.Op) bool { return o.Kind == vfstest.OpSyncData && filepath.Ext(o.Path) == ".log" }, 2,
		vfstest.Fault{Err: syscall.EIO}, false)
	l := openCase(t, vfstest.Inject(m, nth), caseOptions(SyncCommit))
	lead(t, l, 1)
	if _, err := l.AppendAsLeader(caseBatch(t, 0, 1), LeaderAppend{}); !errors.Is(err, ErrFailed) {
		t.Fatal(err)
	}
	_ = l.Close()
	l = openCase(t, m, caseOptions(SyncCommit))
	lead(t, l, 1)
	closeCase(t, l)
	r := openCase(t, m, caseOptions(SyncCommit)).RecoveryReport()
	if !r.Clean || r.Durable != r.LogEnd || r.LogEnd != 2 {
		t.Errorf("%+v", r)
	}
}

// A reader opens around whatever is missing.
func TestOpen_ReadOnlyWithoutLogFiles(t *testing.T) {
	for _, c := range []struct {
		name string
		gone []int64
		want string
	}{{"all", []int64{0, 10, 20}, "not a log"}, {"the one with the recovery point", []int64{10}, ""}, {"the last one", []int64{20}, ""}} {
		m := caseDisk(t, vfstest.MemOptions{})
		l := openCase(t, m, caseOptions(SyncCommit))
		for i := range 3 {
			lead(t, l, 10)
			if i == 1 {
				if err := l.Checkpoint(); err != nil {
					t.Fatal(err)
				}
			}
			if i < 2 {
				l.maintenance.Lock() // keeps the recovery point where it is
				err := l.exclusively(func() error { return l.roll(l.end.offset, caseTime) })
				l.mu.Lock()
				l.jobs = nil
				l.mu.Unlock()
				l.maintenance.Unlock()
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		abandonCase(t, l)
		for _, base := range c.gone {
			if err := m.Remove(filepath.Join(simDir, segment.FileName(segment.KindLog, base))); err != nil {
				t.Fatal(err)
			}
		}
		o := caseOptions(SyncCommit)
		if _, err := OpenFS(context.Background(), m.Crash(vfstest.CrashOptions{}), simDir, o); !errors.Is(err, recovery.ErrRefused) {
			t.Errorf("%s: a writer opened it: %v", c.name, err)
		}
		o.ReadOnly = true
		r, err := OpenFS(context.Background(), m.Crash(vfstest.CrashOptions{}), simDir, o)
		if c.want != "" {
			if !errors.Is(err, recovery.ErrRefused) && !errors.Is(err, ErrNotLog) {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		report := r.RecoveryReport()
		if !report.Problems() || !report.Refused() {
			t.Errorf("%s: %+v", c.name, report)
		}
		for at := range int64(30) {
			if at/10*10 == c.gone[0] || at >= report.LogEnd {
				continue
			}
			f, err := r.Read(at, ReadOptions{MaxBytes: 1, MinOneMessage: true})
			if err != nil || f.Records.Size == 0 {
				t.Errorf("%s: offset %d of %d: %v", c.name, at, report.LogEnd, err)
				continue
			}
			f.Close()
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A checkpoint of the log directory that cannot be read is no sign of another program.
func TestOpen_CheckpointThatCannotBeRead(t *testing.T) {
	m := caseDisk(t, vfstest.MemOptions{})
	path := filepath.Join("/data", checkpoint.RecoveryPointFile)
	if err := checkpoint.WriteOffsets(m, path, map[checkpoint.TopicPartition]int64{{Topic: "t"}: 7}); err != nil {
		t.Fatal(err)
	}
	l := openCase(t, m, caseOptions(SyncCommit))
	lead(t, l, 10)
	abandonCase(t, l)
	eio := vfstest.Inject(m, vfstest.FailNth(func(o vfstest.Op) bool { return o.Kind == vfstest.OpRead && o.Path == path }, 1,
		vfstest.Fault{Err: syscall.EIO}, true))
	if l, err := OpenFS(context.Background(), eio, simDir, caseOptions(SyncCommit)); !errors.Is(err, syscall.EIO) {
		t.Errorf("%v, %+v", err, l.RecoveryReport())
	}
}

// What was acknowledged as durable must not vanish with a directory that was made for it.
func TestOpen_NewDirectoriesAreDurable(t *testing.T) {
	m := caseDisk(t, vfstest.MemOptions{})
	const dir = "/data/a/b/t-0"
	open := func(fsys vfs.FS) *Log {
		l, err := OpenFS(context.Background(), fsys, dir, caseOptions(SyncCommit))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := open(m)
	lead(t, l, 1)
	abandonCase(t, l)
	l = open(m.Crash(vfstest.CrashOptions{Mode: vfstest.AllLost}))
	if end := l.Offsets().LogEnd; end != 1 {
		t.Errorf("log end %d", end)
	}
	abandonCase(t, l)

	// Made by somebody who was killed before he could sync it.
	m = caseDisk(t, vfstest.MemOptions{})
	if err := m.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l = open(m)
	lead(t, l, 1)
	abandonCase(t, l)
	if _, err := m.Crash(vfstest.CrashOptions{Mode: vfstest.AllLost}).Stat(dir); err == nil {
		return
	}
	t.Log("directories above the parent are the caller's")
}

// On a full disk an append fails as a whole, and the next one works when there is room again: F5. Nothing is stored twice or
// lost, whatever the moment.
func TestAppend_FullDiskAndRoomAgain(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 4
	}
	for _, mode := range modes {
		full, rolls := 0, 0
		for seed := uint64(1); seed <= seeds; seed++ {
			r := rand.New(rand.NewPCG(seed, 23))
			m := caseDisk(t, vfstest.MemOptions{Seed: seed, Capacity: 600 << 10})
			o := caseOptions(mode)
			o.CheckpointBytes = 1500
			l := openCase(t, m, o)
			hog := false
			var first []int64
			for step := range 150 {
				if r.IntN(6) == 0 {
					if hog = !hog; hog {
						hogDisk(t, m, r.Int64N(4096))
					} else if err := m.Remove("/data/hog"); err != nil {
						t.Fatal(err)
					}
				}
				var err error
				switch n := r.IntN(20); {
				case n < 15:
					end := l.Offsets().LogEnd
					info, appendErr := l.AppendAsLeader(caseBatch(t, 0, 1+r.IntN(9)), LeaderAppend{TransactionVersion: NoTransactionVersion})
					if err = appendErr; err == nil {
						if info.FirstOffset != end {
							t.Fatalf("stored at %d, the log ended at %d", info.FirstOffset, end)
						}
						first = append(first, end)
					}
				case n < 17:
					err = l.Roll()
				default:
					err = l.Checkpoint()
				}
				if err != nil {
					full++
					if n := l.failure(); n != nil || !hog || !errors.Is(err, vfs.ErrNoSpace) {
						t.Fatalf("%v, seed %d, step %d, full %v: %v", mode, seed, step, hog, err)
					}
				}
			}
			if hog {
				if err := m.Remove("/data/hog"); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.Checkpoint(); err != nil {
				t.Fatal(err)
			}
			lead(t, l, 1)
			rolls += l.Stats().Segments
			if got := l.Offsets(); got.RecoveryPoint != got.LogEnd-1 {
				t.Errorf("seed %d: the recovery point stays at %d, the log ends at %d", seed, got.RecoveryPoint, got.LogEnd)
			}
			again := openCase(t, m.Crash(vfstest.CrashOptions{}), o)
			stored, err := readAll(again)
			if err != nil || len(stored) != len(first)+1 {
				t.Fatalf("%v, seed %d: %d batches, want %d: %v", mode, seed, len(stored), len(first)+1, err)
			}
			for i, at := range first {
				if record.Batch(stored[i]).BaseOffset() != at {
					t.Fatalf("seed %d: batch %d is at %d, want %d", seed, i, record.Batch(stored[i]).BaseOffset(), at)
				}
			}
			if r := again.RecoveryReport(); r.Problems() {
				t.Errorf("seed %d: %v", seed, r.Findings)
			}
			abandonCase(t, l)
		}
		if full == 0 || rolls < 4*int(seeds) {
			t.Errorf("%v: the disk was full %d times, %d segments", mode, full, rolls)
		}
	}
}

// hogDisk fills the disk but for some bytes.
func hogDisk(t testing.TB, m *vfstest.Mem, free int64) {
	t.Helper()
	f, err := m.OpenFile("/data/hog", vfs.O_RDWR|vfs.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := int64(600 << 10); size >= 0; size -= 512 {
		if f.Allocate(size) == nil {
			if err := f.Truncate(max(0, size-free)); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
}

// A failed sync that nobody could write down is found by reading past the page cache, and only once: a recovery that is
// killed afterwards must leave word for the next one.
func TestOpen_KilledWhileItCutsWhatAFailedSyncLost(t *testing.T) {
	dead := false
	m := caseDisk(t, vfstest.MemOptions{})
	l := openCase(t, vfstest.Inject(m, vfstest.Hook{BeforeOp: func(o vfstest.Op) vfstest.Fault {
		if dead && (o.Kind == vfstest.OpSyncData || o.Kind == vfstest.OpSync || o.Kind == vfstest.OpWrite) {
			return vfstest.Fault{Err: syscall.EIO}
		}
		return vfstest.Fault{}
	}}), caseOptions(SyncNone))
	lead(t, l, 1)
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	for range 9 {
		lead(t, l, 5) // of several blocks, the first of which the device gets
	}
	f, err := l.active.File()
	if err != nil {
		t.Fatal(err)
	}
	dead = true
	if err := l.Flush(); !errors.Is(err, ErrFailed) {
		t.Fatal(err)
	}
	abandonCase(t, l)
	// What is written after the failed sync reaches the disk, behind a hole.
	if _, err := f.WriteAt(caseBatch(t, l.Offsets().LogEnd, 3), l.end.position); err == nil {
		t.Fatal("the disk is not dead")
	}
	dead = false
	if _, err := f.WriteAt(caseBatch(t, l.Offsets().LogEnd, 3), l.end.position); err != nil {
		t.Fatal(err)
	}
	opens, written := 0, false
	disk := m.Crash(vfstest.CrashOptions{})
	again, err := OpenFS(context.Background(), vfstest.Inject(disk, vfstest.Each(vfstest.Writes, func(o vfstest.Op, after bool) {
		// Before that word is written nothing can tell the two apart.
		if written = written || after && o.Kind == vfstest.OpWrite && filepath.Base(o.Path) == recovery.StateFileName; !written {
			return
		}
		l, err := OpenFS(context.Background(), disk.Crash(vfstest.CrashOptions{}), simDir, caseOptions(SyncNone))
		if err != nil {
			t.Fatalf("killed at %v: %v", o, err)
		}
		opens++
		abandonCase(t, l)
	})), simDir, caseOptions(SyncNone))
	if err != nil || opens < 10 {
		t.Fatal(err, opens)
	}
	if r := again.RecoveryReport(); r.LogEnd >= 46 || r.BytesCut == 0 {
		t.Errorf("nothing was lost: %+v", r)
	}
	abandonCase(t, again)
}

// Partitions of one log directory write their lines into one file, and may do so at the same moment.
func TestCompat_PartitionsCloseTogether(t *testing.T) {
	m := caseDisk(t, vfstest.MemOptions{})
	if err := checkpoint.WriteOffsets(m, filepath.Join("/data", checkpoint.RecoveryPointFile), nil); err != nil {
		t.Fatal(err)
	}
	const partitions = 16
	errs := make(chan error, partitions)
	for i := range partitions {
		o := caseOptions(SyncNone)
		o.Compat = true
		l, err := OpenFS(context.Background(), m, fmt.Sprintf("/data/t-%d", i), o)
		if err != nil {
			t.Fatal(err)
		}
		lead(t, l, 1+i)
		go func() { errs <- l.Close() }()
	}
	for range partitions {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	offsets, err := checkpoint.ReadOffsets(m, filepath.Join("/data", checkpoint.RecoveryPointFile))
	for i := range partitions {
		if got := offsets[checkpoint.TopicPartition{Topic: "t", Partition: int32(i)}]; err != nil || got != int64(1+i) {
			t.Errorf("partition %d: %d, %v", i, got, err)
		}
	}
}
