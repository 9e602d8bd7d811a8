package segment

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
)

// startTime is the timestamp of offset 0 in test batches; each offset adds a millisecond.
const startTime = 1700000000000

// spec describes a test batch.
type spec struct {
	base     int64
	records  int
	value    int     // bytes of each value
	times    []int64 // of the records; startTime plus the offset if missing
	producer *record.Producer
	codec    record.Compression
	epoch    int32
}

func (c spec) batch(t testing.TB) record.Batch {
	t.Helper()
	b := record.NewBuilder(record.BuilderOptions{
		BaseOffset: c.base, Producer: c.producer, Compression: c.codec, PartitionLeaderEpoch: c.epoch,
	})
	for i := range c.records {
		ts := int64(startTime) + c.base + int64(i)
		if i < len(c.times) {
			ts = c.times[i]
		}
		value := bytes.Repeat([]byte{byte('a' + i%26)}, c.value)
		if err := b.Append(ts, record.Record{Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	batch, err := b.Batch()
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(batch)
}

// some is a valid batch of n records.
func some(t testing.TB, base int64, n int) record.Batch {
	return spec{base: base, records: n, value: 20}.batch(t)
}

// join concatenates batches.
func join(batches ...record.Batch) []byte {
	var p []byte
	for _, b := range batches {
		p = append(p, b...)
	}
	return p
}

// row is n batches of one record each, offsets from base on.
func row(t testing.TB, base int64, n, value int) []record.Batch {
	list := make([]record.Batch, n)
	for i := range list {
		list[i] = spec{base: base + int64(i), records: 1, value: value}.batch(t)
	}
	return list
}

// storage is a file system and a directory in it.
type storage struct {
	vfs.FS
	dir string
}

// storages runs a test on the operating system's files and in memory.
func storages(t *testing.T, f func(t *testing.T, st storage)) {
	t.Run("os", func(t *testing.T) { f(t, storage{vfs.OS, t.TempDir()}) })
	t.Run("mem", func(t *testing.T) { f(t, memory(t)) })
}

func memory(t testing.TB) storage {
	t.Helper()
	m := vfstest.NewMem()
	if err := m.MkdirAll("log", 0o755); err != nil {
		t.Fatal(err)
	}
	return storage{m, "log"}
}

func (st storage) path(kind Kind, base int64) string {
	return filepath.Join(st.dir, FileName(kind, base))
}

// write makes a file with that content.
func (st storage) write(t testing.TB, kind Kind, base int64, p []byte) {
	t.Helper()
	f, err := st.OpenFile(st.path(kind, base), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(p, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func (st storage) read(t testing.TB, kind Kind, base int64) []byte {
	t.Helper()
	p, err := vfs.ReadFile(st.FS, st.path(kind, base), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (st storage) exists(t testing.TB, name string) bool {
	t.Helper()
	_, err := st.Stat(filepath.Join(st.dir, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// log writes a log file and opens the segment.
func (st storage) log(t testing.TB, base int64, c Config, p []byte) *Segment {
	t.Helper()
	st.write(t, KindLog, base, p)
	s := Open(st.FS, st.dir, base, c)
	t.Cleanup(func() { s.Close() })
	return s
}

// create makes a segment with these batches in it.
func (st storage) create(t testing.TB, base int64, c Config, batches ...record.Batch) *Segment {
	t.Helper()
	s, err := Create(st.FS, st.dir, base, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	for _, b := range batches {
		if err := s.Append(b); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// entries returns what the offset and time index hold.
func entries(t testing.TB, s *Segment) (offsets []index.OffsetPosition, times []index.TimestampOffset) {
	t.Helper()
	err := s.WithIndexes(func(o *index.Offset, x *index.Time, _ *index.Txn) error {
		for e, err := range o.All() {
			if err != nil {
				return err
			}
			offsets = append(offsets, e)
		}
		for e, err := range x.All() {
			if err != nil {
				return err
			}
			times = append(times, e)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return offsets, times
}

// scan returns the base offsets of the good batches and the tail.
func scan(t testing.TB, c *Scanner) (bases []int64, tail Tail) {
	t.Helper()
	for c.Next() {
		bases = append(bases, c.Batch().BaseOffset())
	}
	return bases, c.Tail()
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func size(t testing.TB, s *Segment) int64 {
	t.Helper()
	n, err := s.Size()
	ok(t, err)
	return n
}
