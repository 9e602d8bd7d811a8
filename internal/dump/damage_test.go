package dump_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/oncelog/oncelog/internal/dump"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
)

// batch returns a batch of n records at an offset.
func batch(t testing.TB, base int64, n int, c record.Compression) record.Batch {
	t.Helper()
	b := record.NewBuilder(record.BuilderOptions{BaseOffset: base, Compression: c, Producer: &record.Producer{ID: 7, BaseSequence: int32(base)}})
	for i := range n {
		if err := b.Append(1000+base, record.Record{Key: []byte("k"), Value: fmt.Appendf(nil, "value %d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	p, err := b.Batch()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const logName = "00000000000000000000.log"

// files makes a directory in memory.
func files(t testing.TB, content map[string][]byte) vfs.FS {
	t.Helper()
	fsys := vfstest.NewMem()
	if err := fsys.MkdirAll("/d", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, p := range content {
		if err := vfs.WriteFileAtomic(fsys, "/d/"+name, 0o644, p); err != nil {
			t.Fatal(err)
		}
	}
	return fsys
}

type doc struct {
	LogEndOffset int64 `json:"logEndOffset"`
	Segments     []struct {
		Batches []struct {
			RecordsOmitted string            `json:"recordsOmitted"`
			Records        []json.RawMessage `json:"records"`
		} `json:"batches"`
		InvalidBatch json.RawMessage `json:"invalidBatch"`
		ValidBytes   int64           `json:"validBytes"`
		Damage       *dump.Damage    `json:"damage"`
		Index        *struct {
			Slots, ZeroSlotsAtEnd, TrailingBytes int64
			Entries                              [][2]int64
		} `json:"index"`
		TxnIndex *struct {
			TrailingBytes int64
			Entries       []struct{ LastOffset int64 }
		} `json:"txnIndex"`
	} `json:"segments"`
	Snapshots []struct {
		Damage  *dump.Damage      `json:"damage"`
		Entries []json.RawMessage `json:"entries"`
	} `json:"snapshots"`
	OtherFiles []string     `json:"otherFiles"`
	Damage     *dump.Damage `json:"damage"`
}

func read(t testing.TB, fsys vfs.FS, o dump.Options) doc {
	t.Helper()
	var out bytes.Buffer
	if _, err := dump.WriteJSON(context.Background(), &out, fsys, "/d", o); err != nil {
		t.Fatal(err)
	}
	var d doc
	if err := json.Unmarshal(out.Bytes(), &d); err != nil {
		t.Fatalf("%v: %q", err, out.Bytes())
	}
	return d
}

func TestLog_CutAtEveryLength(t *testing.T) {
	first, second := batch(t, 0, 3, record.None), batch(t, 3, 2, record.Gzip)
	whole := append(bytes.Clone(first), second...)
	for n := range len(whole) + 1 {
		d := read(t, files(t, map[string][]byte{logName: whole[:n]}), dump.Options{})
		s, batches, valid := d.Segments[0], 0, 0
		switch {
		case n == len(whole):
			batches, valid = 2, n
		case n >= len(first):
			batches, valid = 1, len(first)
		}
		if len(s.Batches) != batches || s.ValidBytes != int64(valid) || (s.Damage == nil) != (n == valid) {
			t.Errorf("cut at %d: %d batches, %d valid bytes, damage %v", n, len(s.Batches), s.ValidBytes, s.Damage)
		}
		if s.Damage != nil && s.Damage.Reason != fmt.Sprintf("incomplete batch at the end: %d bytes", n-valid) {
			t.Errorf("cut at %d: %v", n, s.Damage)
		}
	}
}

func TestLog_FlipEveryBit(t *testing.T) {
	first, second := batch(t, 0, 3, record.None), batch(t, 3, 2, record.LZ4)
	whole := append(bytes.Clone(first), second...)
	for bit := range 8 * len(whole) {
		p := bytes.Clone(whole)
		p[bit/8] ^= 1 << (bit % 8)
		d := read(t, files(t, map[string][]byte{logName: p}), dump.Options{})
		at := bit / 8
		if at >= len(first) {
			at -= len(first)
		}
		// Base offset and leader epoch are outside the checksum; everything else must be noticed.
		free := at < 8 || at >= 12 && at < 16
		if damaged := d.Damage != nil; damaged == free {
			t.Errorf("bit %d: damage %v", bit, d.Damage)
		}
	}
}

func TestLog_LargeBatchIsVerifiedInPieces(t *testing.T) {
	whole := append(bytes.Clone(batch(t, 0, 100, record.None)), batch(t, 100, 1, record.None)...)
	d := read(t, files(t, map[string][]byte{logName: whole}), dump.Options{MaxBatchBytes: 200})
	if s := d.Segments[0]; len(s.Batches) != 2 || s.Batches[0].RecordsOmitted != dump.OmittedBatch || len(s.Batches[1].Records) != 1 || d.LogEndOffset != 101 {
		t.Errorf("%+v", d)
	}
	whole[500] ^= 1
	d = read(t, files(t, map[string][]byte{logName: whole}), dump.Options{MaxBatchBytes: 200})
	if s := d.Segments[0]; len(s.Batches) != 0 || s.InvalidBatch == nil || s.Damage == nil {
		t.Errorf("%+v", d)
	}
}

func TestLog_LargeRecordIsLeftOut(t *testing.T) {
	b := record.NewBuilder(record.BuilderOptions{Compression: record.Zstd})
	if err := b.Append(1, record.Record{Value: make([]byte, 1<<20)}); err != nil {
		t.Fatal(err)
	}
	p, err := b.Batch()
	if err != nil {
		t.Fatal(err)
	}
	fsys := files(t, map[string][]byte{logName: p})
	if d := read(t, fsys, dump.Options{MaxRecordBytes: 1000}); d.Segments[0].Batches[0].RecordsOmitted != dump.OmittedRecord || d.Damage != nil {
		t.Errorf("%+v", d)
	}
	if d := read(t, fsys, dump.Options{}); len(d.Segments[0].Batches[0].Records) != 1 {
		t.Errorf("%+v", d)
	}
}

func TestTables_CutAtEveryLength(t *testing.T) {
	offsets := binary.BigEndian.AppendUint32(nil, 5)
	offsets = binary.BigEndian.AppendUint32(offsets, 100)
	offsets = append(offsets, make([]byte, 24)...)
	txn := binary.BigEndian.AppendUint16(nil, 0)
	for _, v := range []uint64{7, 1, 5, 6} {
		txn = binary.BigEndian.AppendUint64(txn, v)
	}
	for n := range len(offsets) + 1 {
		d := read(t, files(t, map[string][]byte{"00000000000000001000.index": offsets[:n]}), dump.Options{})
		x := d.Segments[0].Index
		if x.Slots != int64(n/8) || x.TrailingBytes != int64(n%8) || int64(len(x.Entries)) != min(1, x.Slots) || x.ZeroSlotsAtEnd != x.Slots-int64(len(x.Entries)) {
			t.Errorf("cut at %d: %+v", n, x)
		}
		if len(x.Entries) > 0 && x.Entries[0] != [2]int64{1005, 100} {
			t.Errorf("cut at %d: %v", n, x.Entries)
		}
	}
	for n := range len(txn) + 1 {
		d := read(t, files(t, map[string][]byte{"00000000000000000000.txnindex": txn[:n]}), dump.Options{})
		x := d.Segments[0].TxnIndex
		if len(x.Entries) != n/34 || x.TrailingBytes != int64(n%34) || n == 34 && x.Entries[0].LastOffset != 5 {
			t.Errorf("cut at %d: %+v", n, x)
		}
	}
}

func TestSnapshot_CutAndFlipped(t *testing.T) {
	const name = "00000000000000000009.snapshot"
	whole := make([]byte, 10+46)
	binary.BigEndian.PutUint16(whole, 1)
	binary.BigEndian.PutUint32(whole[6:], 1)
	binary.BigEndian.PutUint32(whole[2:], record.Checksum(whole[6:]))
	if d := read(t, files(t, map[string][]byte{name: whole}), dump.Options{}); d.Damage != nil || len(d.Snapshots[0].Entries) != 1 {
		t.Errorf("%+v", d)
	}
	for n := range len(whole) {
		if d := read(t, files(t, map[string][]byte{name: whole[:n]}), dump.Options{}); d.Snapshots[0].Damage == nil {
			t.Errorf("cut at %d: no damage", n)
		}
	}
	for bit := range 8 * len(whole) {
		p := bytes.Clone(whole)
		p[bit/8] ^= 1 << (bit % 8)
		if d := read(t, files(t, map[string][]byte{name: p}), dump.Options{}); d.Snapshots[0].Damage == nil {
			t.Errorf("bit %d: no damage", bit)
		}
	}
}

func TestWriteJSON_Errors(t *testing.T) {
	fsys := files(t, map[string][]byte{logName: batch(t, 0, 100, record.None)})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := dump.WriteJSON(ctx, &bytes.Buffer{}, fsys, "/d", dump.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := dump.WriteJSON(context.Background(), &bytes.Buffer{}, fsys, "/missing", dump.Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if _, err := dump.WriteJSON(context.Background(), fullWriter{}, fsys, "/d", dump.Options{}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("full: %v", err)
	}
}

type fullWriter struct{}

func (fullWriter) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// FuzzWriteJSON gives it any bytes as any of the files: the document is always JSON, and its memory bounded.
func FuzzWriteJSON(f *testing.F) {
	f.Add([]byte(batch(f, 0, 3, record.Snappy)), []byte{0, 0, 0, 1, 0, 0, 0, 9}, make([]byte, 34), make([]byte, 56))
	f.Fuzz(func(t *testing.T, log, offsets, txns, snapshot []byte) {
		read(t, files(t, map[string][]byte{
			logName: log, "00000000000000000000.index": offsets, "00000000000000000000.timeindex": offsets,
			"00000000000000000000.txnindex": txns, "00000000000000000000.snapshot": snapshot,
			"leader-epoch-checkpoint": txns, "partition.metadata": offsets,
		}), dump.Options{})
	})
}

func TestAppendString(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain é 日本", `"plain é 日本"`}, {"a\"b\\", `"a\"b\\"`}, {"\n\t\x00\x1b\x7f", `"\n\t\u0000\u001b\u007f"`},
		{"\u009b", `"\u009b"`}, {"\u202e", `"\u202e"`}, {"\U000e0001", `"\udb40\udc01"`}, {"\xff", "\"\ufffd\""},
	} {
		got := string(dump.AppendString(nil, c.in))
		if got != c.want {
			t.Errorf("%q: %s, want %s", c.in, got, c.want)
		}
		var back string
		if err := json.Unmarshal([]byte(got), &back); err != nil || c.in != "\xff" && back != c.in {
			t.Errorf("%q: %q, %v", c.in, back, err)
		}
	}
}

// TestReaders_FileBecomesShorter takes away reserved space between the open and the walk, as a writer does that rolls.
func TestReaders_FileBecomesShorter(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	log, offsets := dir+"/"+logName, dir+"/00000000000000000000.index"
	b := batch(t, 0, 3, record.None)
	entry := []byte{0, 0, 0, 9, 0, 0, 1, 0}
	for path, p := range map[string][]byte{log: b, offsets: entry} {
		if err := errors.Join(os.WriteFile(path, p, 0o644), os.Truncate(path, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := dump.OpenLog(ctx, vfs.OS, log, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	x, err := dump.OpenTable(ctx, vfs.OS, offsets, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if err := errors.Join(os.Truncate(log, int64(len(b))), os.Truncate(offsets, 8)); err != nil {
		t.Fatal(err)
	}
	if !r.Next() || r.Next() || r.Err() != nil || r.Damage() != nil || r.Size() != int64(len(b)) {
		t.Errorf("log: %v, %v, size %d", r.Err(), r.Damage(), r.Size())
	}
	n := 0
	for e, err := range x.Entries() {
		if n++; err != nil || e != (dump.TableEntry{9, 256}) {
			t.Errorf("index: %v, %v", e, err)
		}
	}
	if n != 1 {
		t.Errorf("%d entries", n)
	}
}

// TestLog_SeventeenBytes is the border between what Kafka's reader calls incomplete and what it looks at.
func TestLog_SeventeenBytes(t *testing.T) {
	for n, want := range map[int]string{17: "incomplete batch at the end: 17 bytes", 18: "CorruptRecordException: Found record size 0 smaller than minimum record overhead (14) in file " + logName + "."} {
		d := read(t, files(t, map[string][]byte{logName: make([]byte, n)}), dump.Options{})
		if d.Damage == nil || d.Damage.Reason != want {
			t.Errorf("%d bytes: %+v", n, d.Damage)
		}
	}
}

// A batch that a writer has only begun when the reader comes to it, and finishes while he looks, is no damage; one that
// nobody finishes is.
func TestLogReader_WaitsForAWriter(t *testing.T) {
	first, second := batch(t, 0, 1, record.None), batch(t, 1, 3, record.None)
	for _, finished := range []bool{true, false} {
		begun := append(bytes.Clone(first), second...)
		clear(begun[len(begun)-20:])
		mem := files(t, map[string][]byte{logName: begun})
		looks := 0
		fsys := vfstest.Inject(mem, vfstest.Each(vfstest.Kinds(vfstest.OpFileStat), func(_ vfstest.Op, after bool) {
			if after {
				return
			}
			if looks++; looks != 2 || !finished { // the first is that of the open
				return
			}
			f, err := mem.OpenFile("/d/"+logName, vfs.O_RDWR, 0)
			if err == nil {
				_, err = f.WriteAt(second, int64(len(first)))
			}
			if err != nil || f.Close() != nil {
				t.Error(err)
			}
		}))
		r, err := dump.OpenLog(context.Background(), fsys, "/d/"+logName, 0)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for r.Next() {
			n++
		}
		if want := map[bool]int{true: 2, false: 1}[finished]; n != want || (r.Damage() == nil) != finished || r.Err() != nil {
			t.Errorf("finished %v: %d batches, damage %+v, %v", finished, n, r.Damage(), r.Err())
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
