package bench

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/record"
)

// BenchmarkProducers measures the table of producers by its size, each producer with five batches remembered.
//
//	op=check        the check of a batch that continues, and noting it, in a random order of producers; the floor does the
//	                same in a map of pointers to structs, which is the simplest program that could. Each is under a mutex,
//	                as in a log: it also keeps the processor from fetching the next producer before this one is done,
//	                which between two appends it could not
//	op=duplicate    the answer to a retry of the oldest batch remembered; no floor
//	op=write        snapshot and side file, with all syncs; ns/producer is per producer
//	op=write-bare   Kafka's snapshot alone, which knows one batch a producer
//	op=load         reading both back into a table that is ready for appends, from files in the cache
//	op=load-bare    reading the snapshot alone
//
// With op=check come the memory of a producer as the table counts it, B/producer, and as the heap shows it,
// heap-B/producer, and for the map likewise, map-heap-B/producer.
func BenchmarkProducers(b *testing.B) {
	for _, n := range []int{1e2, 1e3, 1e4, 1e5, 1e6} {
		if n > 1e5 && testing.Short() {
			continue
		}
		b.Run(fmt.Sprintf("producers=%d", n), func(b *testing.B) {
			t := newTable(b, n)
			b.Run("op=check", t.benchmarkCheck)
			b.Run("op=duplicate", t.benchmarkDuplicate)
			t.benchmarkFiles(b)
		})
	}
}

// remembered is how many batches a producer has behind it when a benchmark begins.
const remembered = producerstate.BatchesRetained

// table is a manager full of producers, and a map that knows the same.
type table struct {
	mu       sync.Mutex
	dir      string
	manager  *producerstate.Manager
	staging  producerstate.AppendInfo
	pointers map[int64]*pointerEntry
	ids      []int64
	batch    record.Batch
	offset   int64
	heap     [2]float64 // bytes a producer of manager and pointers
	next     [2]int     // place in ids of manager and pointers
	sequence [2]int32
}

func newTable(b *testing.B, n int) *table {
	t := &table{dir: b.TempDir(), ids: make([]int64, n), batch: batchOf(b, 1, 100)}
	order := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range t.ids {
		t.ids[i] = order.Int64N(1 << 62)
	}
	start := liveHeap()
	m, err := producerstate.Open(vfs.OS, t.dir, producerstate.Config{SkipVerification: true})
	ok(b, err)
	t.manager = m
	for range remembered * n {
		if err := t.check(); err != nil {
			b.Fatal(err)
		}
	}
	filled := liveHeap()
	t.pointers = make(map[int64]*pointerEntry)
	for range remembered * n {
		if !t.checkPointers() {
			b.Fatal("the map refused a batch that continues")
		}
	}
	t.heap = [2]float64{(filled - start) / float64(n), (liveHeap() - filled) / float64(n)}
	order.Shuffle(n, func(i, k int) { t.ids[i], t.ids[k] = t.ids[k], t.ids[i] })
	return t
}

func liveHeap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// turn returns whose turn it is in one of the two tables, and the sequence number that it expects.
func (t *table) turn(which int) (id int64, sequence int32) {
	id, sequence = t.ids[t.next[which]], t.sequence[which]
	if t.next[which]++; t.next[which] == len(t.ids) {
		t.next[which] = 0
		t.sequence[which]++
	}
	return id, sequence
}

// address writes producer and sequence into the batch. Nothing here looks at the checksum.
func (t *table) address(id int64, sequence int32) {
	binary.BigEndian.PutUint64(t.batch[posProducerID:], uint64(id))
	binary.BigEndian.PutUint32(t.batch[posSequence:], uint32(sequence))
}

// check does what a log does with the next batch, as far as producers go.
func (t *table) check() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, sequence := t.turn(0)
	t.address(id, sequence)
	t.manager.Prepare(&t.staging, producerstate.AppendOptions{Clock: t.batch.MaxTimestamp()})
	if _, duplicate, err := t.staging.Append(t.batch, producerstate.OffsetOnly(t.offset)); err != nil || duplicate {
		return fmt.Errorf("producer %d, sequence %d, duplicate %v: %w", id, sequence, duplicate, err)
	}
	t.manager.Publish(&t.staging)
	t.offset++
	t.manager.UpdateMapEndOffset(t.offset)
	return nil
}

// pointerEntry is what the simplest program remembers of a producer, as much as producerstate does.
type pointerEntry struct {
	last, clock int64
	epoch       int16
	count, head uint8
	sequences   [remembered]int32
	deltas      [remembered]int32
	offsets     [remembered]int64
	timestamps  [remembered]int64
}

// checkPointers is check with the map.
func (t *table) checkPointers() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, sequence := t.turn(1)
	t.address(id, sequence)
	b := t.batch
	e := t.pointers[b.ProducerID()]
	if e == nil {
		e = &pointerEntry{epoch: b.ProducerEpoch()}
		t.pointers[b.ProducerID()] = e
	}
	newest := (e.head + remembered - 1) % remembered
	if e.epoch != b.ProducerEpoch() || e.count > 0 && b.BaseSequence() != record.IncrementSequence(e.sequences[newest], 1) {
		return false
	}
	k := e.head
	e.sequences[k], e.deltas[k] = b.LastSequence(), b.LastOffsetDelta()
	e.offsets[k], e.timestamps[k] = t.offset, b.MaxTimestamp()
	e.head, e.count = (k+1)%remembered, min(e.count+1, remembered)
	e.last, e.clock = b.MaxTimestamp(), b.MaxTimestamp()
	return true
}

func (t *table) benchmarkCheck(b *testing.B) {
	const block = 512
	r := newTurns()
	for b.Loop() {
		checks := nsPer(block, func() {
			for range block {
				if err := t.check(); err != nil {
					b.Fatal(err)
				}
			}
		})
		r.add(block, checks, nsPer(block, func() {
			for range block {
				if !t.checkPointers() {
					b.Fatal("the map refused a batch that continues")
				}
			}
		}))
	}
	r.report(b, 0)
	r.reportMallocs(b)
	n := float64(len(t.ids))
	b.ReportMetric(float64(t.manager.Stats().TableBytes)/n, "B/producer")
	b.ReportMetric(t.heap[0], "heap-B/producer")
	b.ReportMetric(t.heap[1], "map-heap-B/producer")
}

func (t *table) benchmarkDuplicate(b *testing.B) {
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		sequence := t.sequence[0] - remembered
		if i < t.next[0] {
			sequence++ // it has had one turn more
		}
		t.address(t.ids[i], sequence)
		t.manager.Prepare(&t.staging, producerstate.AppendOptions{})
		if _, duplicate, err := t.staging.Append(t.batch, producerstate.OffsetOnly(t.offset)); err != nil || !duplicate {
			b.Fatalf("producer %d, sequence %d, duplicate %v: %v", t.ids[i], sequence, duplicate, err)
		}
		if i++; i == len(t.ids) {
			i = 0
		}
	}
}

// benchmarkFiles writes and reads the files of the state as it is.
func (t *table) benchmarkFiles(b *testing.B) {
	frozen := t.manager.Freeze()
	snapshot := t.dir + "/" + producerstate.SnapshotName(frozen.Offset())
	ok(b, producerstate.WritePair(vfs.OS, t.dir, frozen, record.Identity{}))
	for _, op := range []struct {
		name string
		do   func() error
	}{
		{"write", func() error { return producerstate.WritePair(vfs.OS, t.dir, frozen, record.Identity{}) }},
		{"load", func() error { return t.load(producerstate.ReadPair(vfs.OS, t.dir, frozen.Offset())) }},
		{"write-bare", func() error { return producerstate.WriteSnapshot(vfs.OS, t.dir, frozen) }},
		{"load-bare", func() error { return t.load(producerstate.ReadSnapshot(vfs.OS, snapshot)) }},
	} {
		b.Run("op="+op.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ok(b, op.do())
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(t.ids)), "ns/producer")
		})
	}
}

// load looks at what was read, so that it is known to be all.
func (t *table) load(s *producerstate.State, err error) error {
	if err == nil && s.Len() != len(t.ids) {
		err = fmt.Errorf("%d producers were read, want %d", s.Len(), len(t.ids))
	}
	return err
}
