package bench

import (
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/wal"
)

// BenchmarkAppend appends batches of one record, each caller as a producer of its own. A round is a block of appends,
// shared evenly among the callers, and ns/op is its time over their number: with several callers, the inverse of the
// throughput and not what one of them waits.
//
// The floor of SyncNone and SyncInterval is one goroutine that sums and copies the same batches into memory; x-pwrite
// compares with a write to a file of each of them. The floor of SyncCommit is one goroutine that writes and syncs one
// batch after the other, in a file that was filled with zeros before; with n callers in a group x-floor is below 1.
// appends/sync tells how many acknowledgements a sync of the log file served.
func BenchmarkAppend(b *testing.B) {
	for _, mode := range []struct {
		name string
		mode wal.SyncMode
	}{{"none", wal.SyncNone}, {"interval", wal.SyncInterval}, {"commit", wal.SyncCommit}} {
		for _, size := range []int{100, 1 << 10, 16 << 10} {
			for _, callers := range []int{1, 8, 64} {
				if callers == 64 && size != 1<<10 && mode.mode != wal.SyncCommit {
					continue // 64 goroutines on few cores measure the scheduler; one size shows it
				}
				b.Run(fmt.Sprintf("sync=%s/bytes=%d/callers=%d", mode.name, size, callers), func(b *testing.B) {
					benchmarkAppend(b, mode.mode, size, callers)
				})
			}
		}
	}
}

func benchmarkAppend(b *testing.B, mode wal.SyncMode, size, callers int) {
	commit := mode == wal.SyncCommit
	each := 64 // batches a caller and round
	if !commit {
		each = max(32, min(1024, 1<<20/size)/callers)
	}
	counted := &syncCounter{FS: vfs.OS}
	l := openLog(b, counted, b.TempDir(), wal.Options{Sync: mode})
	defer func() { ok(b, l.Close()) }()
	team := newTeam(l, batchSized(b, size), callers, each)
	defer team.end()
	memory, raw := newMemory(), newRaw(b, !commit)
	var pwrite samples

	team.sign()
	ok(b, team.append()) // the first batch of a producer, the first pages of the file
	t, syncs := newTurns(), counted.n.Load()
	for b.Loop() {
		team.sign()
		log := nsPer(callers*each, func() { ok(b, team.append()) })
		same := team.callers[0].batches // summed and copied alike, whoever sends them
		raw.rewind(size * each)
		written := nsPer(each, func() { raw.write(same, commit) })
		if commit {
			t.add(callers*each, log, written)
			continue
		}
		t.add(callers*each, log, nsPer(each, func() { memory.put(same) }))
		pwrite = append(pwrite, log/written)
	}
	t.report(b, size)
	t.reportMallocs(b)
	if commit {
		b.ReportMetric(float64(t.ops)/float64(counted.n.Load()-syncs), "appends/sync")
	} else {
		b.ReportMetric(pwrite.median(), "x-pwrite")
	}
}

// team is a number of callers that append at the same time.
type team struct {
	log     *wal.Log
	callers []*caller
	running sync.WaitGroup
}

type caller struct {
	client
	batches []record.Batch
	start   chan struct{}
	err     error
}

func newTeam(l *wal.Log, b record.Batch, callers, each int) *team {
	t := &team{log: l}
	for i := range callers {
		c := &caller{client: client{first: int64(i), producers: 1}, batches: copies(b, each), start: make(chan struct{}, 1)}
		t.callers = append(t.callers, c)
		if callers == 1 {
			break // the benchmark's own goroutine
		}
		go func() {
			for range c.start {
				c.err = appendAll(l, c.batches)
				t.running.Done()
			}
		}()
	}
	return t
}

func (t *team) end() {
	for _, c := range t.callers {
		close(c.start)
	}
}

func (t *team) sign() {
	for _, c := range t.callers {
		c.signAll(c.batches)
	}
}

// append lets all append their batches and returns when all are done.
func (t *team) append() error {
	if len(t.callers) == 1 {
		return appendAll(t.log, t.callers[0].batches)
	}
	t.running.Add(len(t.callers))
	for _, c := range t.callers {
		c.start <- struct{}{}
	}
	t.running.Wait()
	for _, c := range t.callers {
		if c.err != nil {
			return c.err
		}
	}
	return nil
}

// syncCounter counts the syncs of data.
type syncCounter struct {
	vfs.FS
	n atomic.Int64
}

// OpenFile implements vfs.FS.
func (c *syncCounter) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := c.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return countedFile{f, c}, nil
}

type countedFile struct {
	vfs.File
	c *syncCounter
}

// SyncData implements vfs.File.
func (f countedFile) SyncData() error {
	f.c.n.Add(1)
	return f.File.SyncData()
}
