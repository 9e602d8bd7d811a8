package bench

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/wal"
)

// BenchmarkRead reads a log of 256 MiB, with -short 64 MiB, of batches of one record and 1 KiB, all of it in the page
// cache, while it is open for appends.
//
//	order=sequential/verify=false   fetches of 1 MiB, the bytes copied out and walked batch by batch to know where to go on
//	order=sequential/verify=true    fetches of 1 MiB through an iterator that verifies each checksum
//	order=random                    one batch at an offset, copied out
//	order=tail                      the newest batch, copied out
//
// The floor is a pread of the same bytes, with a checksum over them where the log verifies.
func BenchmarkRead(b *testing.B) {
	size := int64(256 << 20)
	if testing.Short() {
		size = 64 << 20
	}
	r := newReader(b, size)
	b.Run("order=sequential/verify=false", func(b *testing.B) { r.run(b, 16, 1<<20, r.fetch, r.pread(false)) })
	b.Run("order=sequential/verify=true", func(b *testing.B) { r.run(b, 16, 1<<20, r.fetchVerified, r.pread(true)) })
	one := len(r.batch)
	pick := rand.New(rand.NewPCG(1, 2))
	b.Run("order=random", func(b *testing.B) {
		r.run(b, 64, one, func() error { return r.one(pick.Int64N(r.batches)) }, func() error { return r.rawOne(pick.Int64N(r.batches)) })
	})
	b.Run("order=tail", func(b *testing.B) {
		r.run(b, 64, one, func() error { return r.one(r.batches - 1) }, func() error { return r.rawOne(r.batches - 1) })
	})
}

// reader reads one log and the file below it.
type reader struct {
	log     *wal.Log
	raw     vfs.File
	batch   record.Batch
	batches int64 // in the log, each of one offset
	buf     []byte
	offset  int64 // where the next fetch begins
	pos     int64 // where the next pread begins
}

func newReader(b *testing.B, size int64) *reader {
	r := &reader{log: newLog(b, wal.Options{Sync: wal.SyncNone}), batch: batchSized(b, 1<<10), buf: make([]byte, 1<<20)}
	c := client{producers: 100}
	appendBytes(b, r.log, &c, r.batch, size)
	r.batches = r.log.Offsets().LogEnd
	names, err := filepath.Glob(filepath.Join(r.log.Dir(), "*.log"))
	ok(b, err)
	if len(names) != 1 {
		b.Fatalf("log files %q, want one", names)
	}
	r.raw, err = vfs.OS.OpenFile(names[0], os.O_RDONLY, 0)
	ok(b, err)
	b.Cleanup(func() { r.raw.Close() })
	return r
}

// run measures blocks of n reads of size bytes each.
func (r *reader) run(b *testing.B, n, size int, read, floor func() error) {
	block := func(f func() error) float64 {
		return nsPer(n, func() {
			for range n {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	t := newTurns()
	for b.Loop() {
		t.add(n, block(read), block(floor))
	}
	t.report(b, size)
	t.reportMallocs(b)
}

func (r *reader) fetch() error {
	f, err := r.log.Read(r.offset, wal.ReadOptions{MaxBytes: len(r.buf)})
	if err != nil {
		return err
	}
	p, err := f.Records.AppendTo(r.buf[:0])
	if err != nil {
		return err
	}
	for batch, err := range record.All(p) {
		if err != nil {
			break // the last one is cut off
		}
		r.offset = batch.NextOffset()
	}
	r.rewind(len(p))
	return f.Close()
}

func (r *reader) fetchVerified() error {
	f, err := r.log.Read(r.offset, wal.ReadOptions{MaxBytes: len(r.buf)})
	if err != nil {
		return err
	}
	for batch, err := range f.Records.Batches() {
		if err != nil {
			return err
		}
		r.offset = batch.NextOffset()
	}
	r.rewind(f.Records.Size)
	return f.Close()
}

// rewind begins at the start again when a fetch came to the end.
func (r *reader) rewind(got int) {
	if got < len(r.buf) {
		r.offset = 0
	}
}

func (r *reader) pread(verify bool) func() error {
	return func() error {
		n, err := r.raw.ReadAt(r.buf, r.pos)
		if err != nil && err != io.EOF {
			return err
		}
		if verify {
			sink ^= record.Checksum(r.buf[:n])
		}
		if r.pos += int64(len(r.buf)); r.pos+int64(len(r.buf)) > r.batches*int64(len(r.batch)) {
			r.pos = 0
		}
		return nil
	}
}

func (r *reader) one(offset int64) error {
	f, err := r.log.Read(offset, wal.ReadOptions{MaxBytes: 1, MinOneMessage: true})
	if err != nil {
		return err
	}
	p, err := f.Records.AppendTo(r.buf[:0])
	if err != nil {
		return err
	}
	if got := record.Batch(p).BaseOffset(); got != offset {
		return fmt.Errorf("read at %d: the batch begins at %d", offset, got)
	}
	return f.Close()
}

func (r *reader) rawOne(offset int64) error {
	_, err := r.raw.ReadAt(r.buf[:len(r.batch)], offset*int64(len(r.batch)))
	return err
}
