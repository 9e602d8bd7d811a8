package bench

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/wal"
)

// A batch header has 61 bytes; 14 of them are the producer id (8), the base sequence (4) and the producer epoch (2).
// The first two are the 96 bits.
const (
	idBytes       = 8 + 4
	idEpochBytes  = idBytes + 2
	bareHeader    = headerBytes - idEpochBytes
	overheadBlock = 128 << 10 // bytes in a block of batches, about
)

// BenchmarkOverhead measures what exactly-once costs a batch: what it takes with a producer id, epoch and sequence less
// what it takes without. Blocks with and without alternate, with, without, without, with, and a round gives one
// difference; the metrics are
//
//	with-ns/op     median time of a batch with the fields
//	cost-ns/op     median of the differences, with cost-low-ns/op and cost-high-ns/op around it as its 95% interval
//	cost-%         of the time without; cost-low-% and cost-high-% likewise
//	B/batch        size of the batch
//	12B-%, 14B-%   share of id and sequence, and of all three, of a batch without any (whose header would have 47 bytes)
//
// in three steps, each of which contains the one before:
//
//	step=bytes     writing the header, summing, copying into memory: 61 bytes against the 47 of a header without them
//	step=check     the same and, on the one side only, the duplicate check and its bookkeeping
//	step=append    AppendAsLeader in SyncNone, against the same batch with no producer (-1 in each field): the format has
//	               the bytes in any case, so they are on both sides here
//
// The last two are measured with one producer, whose state stays in the nearest cache, and with 1,000 that take turns, of
// which the next one's state has been driven out by the batches in between, the more so the larger these are.
//
// Everything but the header, the checksum and the copy was prepared before. ns/op, of a whole round, means nothing here
// and is left out.
func BenchmarkOverhead(b *testing.B) {
	for _, records := range []int{1, 10, 100} {
		for _, value := range []int{39, 100, 1 << 10, 16 << 10} {
			if records*value > 1<<20 {
				continue // larger than max.message.bytes
			}
			name := func(step string) string { return fmt.Sprintf("records=%d/value=%d/step=%s", records, value, step) }
			b.Run(name("bytes"), func(b *testing.B) { newEncoding(b, records, value, 1).compare(b, false) })
			for _, n := range []int{1, 1000} {
				producers := fmt.Sprintf("/producers=%d", n)
				b.Run(name("check")+producers, func(b *testing.B) { newEncoding(b, records, value, n).compare(b, true) })
				b.Run(name("append")+producers, func(b *testing.B) { compareAppends(b, records, value, n) })
			}
		}
	}
}

// pairs runs the rounds. A block does n batches; prepare is not timed.
func pairs(b *testing.B, step overheadStep, batch record.Batch, n int, prepare, block func(with bool)) {
	var cost, with, percent samples
	timed := func(with bool) float64 {
		prepare(with)
		return nsPer(n, func() { block(with) })
	}
	for b.Loop() {
		w1, o1, o2, w2 := timed(true), timed(false), timed(false), timed(true)
		cost = append(cost, (w1+w2-o1-o2)/2)
		with = append(with, (w1+w2)/2)
		percent = append(percent, 100*(w1+w2-o1-o2)/(o1+o2))
	}
	overhead.add(b, step, batch, with, cost, percent)
}

// encoding writes batches into memory with a header of 61 or 47 bytes.
type encoding struct {
	batch   record.Batch
	memory  *memory
	n       int
	client  client
	offset  int64
	manager *producerstate.Manager
	staging producerstate.AppendInfo
}

func newEncoding(b *testing.B, records, value, producers int) *encoding {
	e := &encoding{batch: batchOf(b, records, value), memory: newMemory(), client: client{producers: producers}}
	e.n = max(4, overheadBlock/e.batch.Size())
	m, err := producerstate.Open(vfs.OS, b.TempDir(), producerstate.Config{SkipVerification: true})
	ok(b, err)
	e.manager = m
	for range producers {
		ok(b, e.check(e.withFields()))
	}
	return e
}

func (e *encoding) compare(b *testing.B, check bool) {
	step := overheadStep{"bytes", 0}
	if check {
		step = overheadStep{"check", e.client.producers}
	}
	pairs(b, step, e.batch, e.n, func(bool) {}, func(with bool) {
		switch {
		case !with:
			for range e.n {
				e.withoutFields()
			}
		case !check:
			for range e.n {
				e.withFields()
			}
		default:
			for range e.n {
				if err := e.check(e.withFields()); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

// withFields writes the next batch as it is.
func (e *encoding) withFields() record.Batch {
	src, c := e.batch, &e.client
	dst := e.memory.next(len(src))
	e.common(dst)
	binary.BigEndian.PutUint64(dst[posProducerID:], uint64(c.next))
	binary.BigEndian.PutUint16(dst[posEpoch:], 0)
	binary.BigEndian.PutUint32(dst[posSequence:], uint32(c.sequence))
	binary.BigEndian.PutUint32(dst[posCount:], uint32(src.Count()))
	if c.next++; c.next == c.producers {
		c.next = 0
		c.sequence = record.IncrementSequence(c.sequence, src.Count())
	}
	copy(dst[headerBytes:], src[headerBytes:])
	binary.BigEndian.PutUint32(dst[posCRC:], record.Checksum(dst[posAttributes:]))
	return dst
}

// withoutFields writes the next batch as it would be in a format without the fields.
func (e *encoding) withoutFields() {
	src := e.batch
	dst := e.memory.next(len(src) - idEpochBytes)
	e.common(dst)
	binary.BigEndian.PutUint32(dst[posProducerID:], uint32(src.Count()))
	copy(dst[bareHeader:], src[headerBytes:])
	binary.BigEndian.PutUint32(dst[posCRC:], record.Checksum(dst[posAttributes:]))
}

// common writes the fields in front of the producer id.
func (e *encoding) common(dst []byte) {
	src := e.batch
	_ = dst[bareHeader-1]
	binary.BigEndian.PutUint64(dst[0:], uint64(e.offset))
	binary.BigEndian.PutUint32(dst[8:], uint32(len(dst)-12))
	binary.BigEndian.PutUint32(dst[12:], uint32(src.PartitionLeaderEpoch()))
	dst[16] = record.Magic
	binary.BigEndian.PutUint16(dst[21:], uint16(src.Attributes()))
	binary.BigEndian.PutUint32(dst[23:], uint32(src.LastOffsetDelta()))
	binary.BigEndian.PutUint64(dst[27:], uint64(src.BaseTimestamp()))
	binary.BigEndian.PutUint64(dst[35:], uint64(src.MaxTimestamp()))
	e.offset += int64(src.Count())
}

// check is what a log asks of producerstate about a batch.
func (e *encoding) check(b record.Batch) error {
	at := producerstate.OffsetMetadata{Offset: b.BaseOffset(), Position: int64(e.memory.pos)}
	e.manager.Prepare(&e.staging, producerstate.AppendOptions{Clock: b.MaxTimestamp()})
	if _, duplicate, err := e.staging.Append(b, at); err != nil || duplicate {
		return fmt.Errorf("offset %d, duplicate %v: %w", at.Offset, duplicate, err)
	}
	e.manager.Publish(&e.staging)
	e.manager.UpdateMapEndOffset(e.offset)
	return nil
}

// compareAppends lets batches with and without a producer go through the same log.
func compareAppends(b *testing.B, records, value, n int) {
	l := newLog(b, wal.Options{Sync: wal.SyncNone})
	batch := batchOf(b, records, value)
	list := copies(batch, max(4, overheadBlock/batch.Size()))
	producers, nobody := &client{producers: n}, &client{first: none}
	appendBytes(b, l, producers, batch, int64(n*batch.Size()))
	pairs(b, overheadStep{"append", n}, batch, len(list), func(with bool) {
		if with {
			producers.signAll(list)
		} else {
			nobody.signAll(list)
		}
	}, func(bool) { ok(b, appendAll(l, list)) })
}

// TestEncodingIsThatOfRecord keeps the encoder that BenchmarkOverhead times to what package record writes.
func TestEncodingIsThatOfRecord(t *testing.T) {
	e := encoding{batch: batchOf(t, 3, 100), memory: &memory{p: make([]byte, 1024)}, client: client{producers: 1}}
	if got := e.withFields(); !slices.Equal(got, e.batch) {
		t.Errorf("got  %x\nwant %x", got, e.batch)
	}
}
