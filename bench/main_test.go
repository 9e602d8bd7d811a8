package bench

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/wal"
)

var logBytes = flag.Int64("logbytes", 1<<30, "bytes of the log that BenchmarkOpen opens; with -short 64 MiB at most")

func TestMain(m *testing.M) {
	code := m.Run()
	large.remove()
	overhead.print(os.Stdout)
	os.Exit(code)
}

func ok(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func openLog(tb testing.TB, fsys vfs.FS, dir string, o wal.Options) *wal.Log {
	tb.Helper()
	l, err := wal.OpenFS(context.Background(), fsys, dir, o)
	ok(tb, err)
	return l
}

// newLog opens a log in a new directory, both of which last as long as the benchmark.
func newLog(tb testing.TB, o wal.Options) *wal.Log {
	l := openLog(tb, vfs.OS, tb.TempDir(), o)
	tb.Cleanup(func() { ok(tb, l.Close()) })
	return l
}

// Bytes of the header of a batch that the benchmarks write themselves.
const (
	posCRC           = 17
	posAttributes    = 21 // where the checksum begins to count
	posBaseTimestamp = 27
	posMaxTimestamp  = 35
	posProducerID    = 43
	posEpoch         = 51
	posSequence      = 53
	posCount         = 57
	headerBytes      = 61
)

// noise is a source of bytes that do not compress; the same in each run.
var noise = rand.NewChaCha8([32]byte{1})

// batchOf returns a batch of records that each have a value of the given size and nothing else.
func batchOf(tb testing.TB, records, value int) record.Batch {
	tb.Helper()
	now := time.Now().UnixMilli()
	w := record.NewBuilder(record.BuilderOptions{Producer: &record.Producer{}})
	for range records {
		p := make([]byte, value)
		_, err := noise.Read(p)
		ok(tb, err)
		ok(tb, w.Append(now, record.Record{Value: p}))
	}
	b, err := w.Batch()
	ok(tb, err)
	return b
}

// batchSized returns a batch of one record that takes size bytes in all.
func batchSized(tb testing.TB, size int) record.Batch {
	tb.Helper()
	for value := size - headerBytes - 16; ; value++ {
		if b := batchOf(tb, 1, value); b.Size() == size {
			return b
		} else if b.Size() > size {
			tb.Fatalf("no batch of one record has %d bytes", size)
		}
	}
}

// copies returns n copies of a batch, one behind the other in memory as a request would bring them.
func copies(b record.Batch, n int) []record.Batch {
	all := make([]byte, 0, n*b.Size())
	list := make([]record.Batch, n)
	for i := range list {
		all = append(all, b...)
		list[i] = record.Batch(all[len(all)-b.Size() : len(all) : len(all)])
	}
	return list
}

// client numbers the batches of producers that take turns, as their clients would.
type client struct {
	first     int64 // id of the first producer
	producers int
	next      int // whose turn it is
	sequence  int32
}

// none leaves the batches without a producer.
const none = -1

// sign makes a batch that may have been appended before ready to be sent: the present time, the next sequence number and
// the checksum that follows from them.
func (c *client) sign(b record.Batch, now int64) {
	b.SetBaseOffset(0)
	binary.BigEndian.PutUint64(b[posBaseTimestamp:], uint64(now))
	binary.BigEndian.PutUint64(b[posMaxTimestamp:], uint64(now))
	if c.first == none {
		signAs(b, record.NoProducerID, record.NoProducerEpoch, record.NoSequence)
		return
	}
	signAs(b, c.first+int64(c.next), 0, c.sequence)
	if c.next++; c.next == c.producers {
		c.next = 0
		c.sequence = record.IncrementSequence(c.sequence, b.Count())
	}
}

// signAs gives a batch a producer, and the checksum that follows.
func signAs(b record.Batch, id int64, epoch int16, sequence int32) {
	binary.BigEndian.PutUint64(b[posProducerID:], uint64(id))
	binary.BigEndian.PutUint16(b[posEpoch:], uint16(epoch))
	binary.BigEndian.PutUint32(b[posSequence:], uint32(sequence))
	binary.BigEndian.PutUint32(b[posCRC:], record.Checksum(b[posAttributes:]))
}

func (c *client) signAll(list []record.Batch) {
	now := time.Now().UnixMilli()
	for _, b := range list {
		c.sign(b, now)
	}
}

func appendAll(l *wal.Log, list []record.Batch) error {
	for _, b := range list {
		if info, err := l.AppendAsLeader(b, wal.LeaderAppend{}); err != nil || info.Duplicate {
			return fmt.Errorf("append at %d, duplicate %v: %w", info.FirstOffset, info.Duplicate, err)
		}
	}
	return nil
}

// appendBytes appends batches of a client until n bytes have come.
func appendBytes(tb testing.TB, l *wal.Log, c *client, b record.Batch, n int64) {
	tb.Helper()
	list := copies(b, 16)
	for done := int64(0); done+int64(b.Size()) <= n; {
		k := min(len(list), int((n-done)/int64(b.Size())))
		c.signAll(list[:k])
		ok(tb, appendAll(l, list[:k]))
		done += int64(k * b.Size())
	}
}
