package bench

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
)

// samples are figures of one thing, one a round.
type samples []float64

// interval returns the median and a 95% confidence interval for it, made of two of the figures themselves: that assumes
// nothing about how the noise is distributed. Fewer than six figures have no such interval; it is then all of them.
func (s samples) interval() (median, low, high float64) {
	x := slices.Sorted(slices.Values(s))
	n := len(x)
	if n == 0 {
		return math.NaN(), math.NaN(), math.NaN()
	}
	rank := max(1, int(float64(n+1)/2-0.98*math.Sqrt(float64(n))))
	return (x[(n-1)/2] + x[n/2]) / 2, x[rank-1], x[n-rank]
}

func (s samples) median() float64 {
	m, _, _ := s.interval()
	return m
}

func (s samples) mean() float64 {
	sum := 0.0
	for _, v := range s {
		sum += v
	}
	return sum / float64(len(s))
}

// nsPer runs f and returns the nanoseconds that one of its n operations took.
func nsPer(n int, f func()) float64 {
	start := time.Now()
	f()
	return float64(time.Since(start).Nanoseconds()) / float64(n)
}

// mallocs is the number of allocations of the process so far.
func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// turns collects the rounds of a benchmark.
type turns struct {
	log, floor, ratio samples // ns an operation, and one over the other
	ops               int
	allocated         uint64 // before the first round
}

func newTurns() *turns { return &turns{allocated: mallocs()} }

// add notes a round of n operations.
func (t *turns) add(n int, log, floor float64) {
	t.log, t.floor, t.ratio = append(t.log, log), append(t.floor, floor), append(t.ratio, log/floor)
	t.ops += n
}

// report prints the metrics. bytes is the size of an operation, 0 to leave MB/s out.
func (t *turns) report(b *testing.B, bytes int) {
	b.ReportMetric(t.log.median(), "ns/op")
	b.ReportMetric(t.log.mean(), "mean-ns/op")
	b.ReportMetric(t.floor.median(), "floor-ns/op")
	b.ReportMetric(t.ratio.median(), "x-floor")
	if bytes > 0 {
		b.ReportMetric(float64(bytes)*1e3/t.log.median(), "MB/s")
	}
}

// reportMallocs prints the allocations since the first round, which is for benchmarks that do nothing but these rounds.
func (t *turns) reportMallocs(b *testing.B) {
	b.ReportMetric(float64(mallocs()-t.allocated)/float64(t.ops), "mallocs/op")
}

// sink keeps what floors compute from being left out.
var sink uint32

// memory is a destination that is larger than the caches, with its pages there: what is written to it goes to memory, as
// log bytes do.
type memory struct {
	p   []byte
	pos int
}

const memoryBytes = 64 << 20

func newMemory() *memory {
	p := make([]byte, memoryBytes)
	for i := 0; i < len(p); i += 4096 {
		p[i] = 1
	}
	return &memory{p: p}
}

// next returns the n bytes that are written next.
func (m *memory) next(n int) []byte {
	if m.pos+n > len(m.p) {
		m.pos = 0
	}
	m.pos += n
	return m.p[m.pos-n : m.pos : m.pos]
}

// put is the least that storing a batch takes: it is summed and copied.
func (m *memory) put(list []record.Batch) {
	for _, b := range list {
		sink ^= record.Checksum(b[posAttributes:])
		copy(m.next(len(b)), b)
	}
}

// rawFile is a file that batches are written to with nothing around it.
type rawFile struct {
	tb    testing.TB
	f     vfs.File
	pos   int64
	fresh bool // pages are new each time around
}

const rawBytes = 64 << 20

// newRaw makes a file. In a fresh one space is reserved and each page is touched for the first time, as in a log without
// syncs; otherwise it is written full of zeros and synced, so that a sync of what is written later concerns data only.
func newRaw(tb testing.TB, fresh bool) *rawFile {
	tb.Helper()
	f, err := vfs.OS.OpenFile(filepath.Join(tb.TempDir(), "raw"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	ok(tb, err)
	tb.Cleanup(func() { f.Close() })
	ok(tb, f.Allocate(rawBytes))
	if !fresh {
		var zeros [4096]byte
		for pos := int64(0); pos < rawBytes; pos += int64(len(zeros)) {
			_, err := f.WriteAt(zeros[:], pos)
			ok(tb, err)
		}
		ok(tb, f.Sync())
	}
	return &rawFile{tb: tb, f: f, fresh: fresh}
}

// rewind makes room for n bytes. It is not to be timed.
func (r *rawFile) rewind(n int) {
	if r.pos+int64(n) <= rawBytes {
		return
	}
	r.pos = 0
	if r.fresh {
		ok(r.tb, r.f.Truncate(0))
		ok(r.tb, r.f.Allocate(rawBytes))
	}
}

// write writes each batch, and syncs after each if it is to be on disk.
func (r *rawFile) write(list []record.Batch, sync bool) {
	for _, b := range list {
		_, err := r.f.WriteAt(b, r.pos)
		if err == nil && sync {
			err = r.f.SyncData()
		}
		if err != nil {
			r.tb.Fatal(err)
		}
		r.pos += int64(len(b))
	}
}
