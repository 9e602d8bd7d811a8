package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// compactedLog is a log on a simulated disk that is compacted whenever it can be, and its clock.
type compactedLog struct {
	*Log
	t   testing.TB
	mem *vfstest.Mem
	fs  vfs.FS
	o   Options
	now time.Time
}

func newCompactedLog(t testing.TB, set func(*Options)) *compactedLog {
	t.Helper()
	c := &compactedLog{t: t, mem: vfstest.NewMem(), now: time.UnixMilli(1_700_000_000_000)}
	c.fs = c.mem
	if err := errors.Join(c.mem.MkdirAll(filepath.Dir(simDir), 0o755), c.mem.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	c.o = Options{CleanupPolicy: CleanupCompact, MinDirtyRatio: 1e-9, IndexIntervalBytes: 200, MaxIndexBytes: 4096,
		Now: func() time.Time { return c.now }, manual: true}
	if set != nil {
		set(&c.o)
	}
	c.open()
	t.Cleanup(func() { c.Close() })
	return c
}

func (c *compactedLog) open() {
	c.t.Helper()
	l, err := OpenFS(context.Background(), c.fs, simDir, c.o)
	if err != nil {
		c.t.Fatal(err)
	}
	c.Log = l
}

func (c *compactedLog) reopen() {
	c.t.Helper()
	if err := c.Close(); err != nil {
		c.t.Fatal(err)
	}
	c.open()
}

// put appends "key=value" records, each as a batch; "key" alone is a deletion, "|" begins a segment.
func (c *compactedLog) put(records ...string) {
	c.t.Helper()
	for _, r := range records {
		var err error
		if r == "|" {
			err = c.Roll()
		} else {
			key, value, has := strings.Cut(r, "=")
			x := Record{Key: []byte(key), Value: []byte(value), Time: c.now}
			if !has {
				x.Value = nil
			}
			_, err = c.Append(x)
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *compactedLog) compact() CompactionStats {
	c.t.Helper()
	s, err := c.Compact(context.Background(), c.now)
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// show lists offset, key and value of all records.
func (c *compactedLog) show() string {
	c.t.Helper()
	var out []string
	for r, err := range c.Records(c.Offsets().LogStart) {
		if err != nil {
			c.t.Fatal(err)
		}
		s := fmt.Sprintf("%d:%s", r.Offset, r.Key)
		if r.Value != nil {
			s += "=" + string(r.Value)
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

func (c *compactedLog) wantRecords(want string) {
	c.t.Helper()
	if got := c.show(); got != want {
		c.t.Errorf("records %s\nwant    %s", got, want)
	}
}

func TestCompact_KeepsTheLatestOfEachKey(t *testing.T) {
	c := newCompactedLog(t, nil)
	c.put("a=1", "b=1", "a=2", "|", "c=1", "b=2", "|", "a=3", "a=4")
	s := c.compact()
	if s.Passes != 1 || s.FirstDirty != 0 || s.NextDirty != 5 || s.SegmentsReplaced != 2 || s.SegmentsWritten != 1 || s.Keys != 3 || s.BytesSaved <= 0 {
		t.Errorf("%+v", s)
	}
	c.wantRecords("2:a=2 3:c=1 4:b=2 5:a=3 6:a=4")
	if _, err := c.Append(Record{Value: []byte("x")}); !errors.Is(err, ErrInvalidRecord) {
		t.Errorf("append without a key: %v", err)
	}
	c.reopen()
	if s := c.compact(); s.Passes != 0 || s.FirstDirty != 5 {
		t.Errorf("after a reopen: %+v", s)
	}
	c.put("|", "d=1")
	if s := c.compact(); s.FirstDirty != 5 || s.NextDirty != 7 {
		t.Errorf("%+v", s)
	}
	c.wantRecords("3:c=1 4:b=2 6:a=4 7:d=1")
	if _, err := c.RemoveDiscarded(c.now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	list, err := c.mem.ReadDir(simDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if n := segment.Parse(e.Name); n.Suffix != "" {
			t.Errorf("%s is left", e.Name)
		}
	}
}

// A segment that others were merged into keeps its snapshot, theirs go with them; what an open begins with stays.
func TestCompact_SnapshotsOfSegmentsThatAreGone(t *testing.T) {
	c := newCompactedLog(t, nil)
	c.put("a=1", "a=2", "|", "b=1", "a=3", "|", "a=4", "|", "c=1")
	c.compact()
	if _, err := c.RemoveDiscarded(c.now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	var got []string
	for name := range filesIn(t, c.mem) {
		if k := segment.Parse(name).Kind; k == segment.KindLog || k == segment.KindSnapshot || k == segment.KindProducers {
			got = append(got, name)
		}
	}
	slices.Sort(got)
	want := []string{"00000000000000000000.log", "00000000000000000005.log", "00000000000000000005.snapshot", "00000000000000000006.snapshot",
		"oncelog.producers-00000000000000000005", "oncelog.producers-00000000000000000006"}
	if !slices.Equal(got, want) {
		t.Errorf("files %v, want %v", got, want)
	}
}

// The last batch of the log is where a broker and we find its end; a segment that holds it stays, even below an empty one.
func TestCompact_LastBatchStays(t *testing.T) {
	c := newCompactedLog(t, nil)
	c.put("a=1", "|", "a=2", "a=3", "|")
	if s := c.compact(); s.NextDirty != 1 {
		t.Errorf("%+v", s)
	}
	c.wantRecords("0:a=1 1:a=2 2:a=3")
	c.put("b=1")
	c.compact()
	c.wantRecords("2:a=3 3:b=1")
	c.reopen()
	if r := c.RecoveryReport(); r.Problems() || c.Offsets().LogEnd != 4 {
		t.Errorf("%+v", r)
	}
}

// When Compact does something: more than the ratio is dirty, or something dirty is older than the greatest lag; and nothing
// is touched that is younger than the smallest lag.
func TestCompact_RatioAndLags(t *testing.T) {
	c := newCompactedLog(t, func(o *Options) { o.MinDirtyRatio, o.MaxCompactionLag = 0, 10*time.Second })
	c.put("a=1", "a=2", "|")
	c.put("b=1")
	if s := c.compact(); s.Passes != 1 || s.NextDirty != 2 {
		t.Errorf("all is dirty: %+v", s)
	}
	c.put("b=2", "|", "c=1") // two batches dirty, one is not
	c.put("|", "d=1")
	if s := c.compact(); s.Passes != 1 {
		t.Errorf("two thirds are dirty: %+v", s)
	}
	c.put("|", "e=1")
	if s := c.compact(); s.Passes != 0 || s.CleanBytes <= s.DirtyBytes || s.DirtyBytes == 0 {
		t.Errorf("less than half is dirty: %+v", s)
	}
	c.now = c.now.Add(10 * time.Second)
	if s := c.compact(); s.Passes != 0 {
		t.Errorf("at the greatest lag: %+v", s)
	}
	c.now = c.now.Add(time.Millisecond)
	if s := c.compact(); s.Passes != 1 {
		t.Errorf("behind the greatest lag: %+v", s)
	}

	c = newCompactedLog(t, func(o *Options) { o.MinCompactionLag = time.Second })
	c.put("a=1", "a=2", "|")
	c.now = c.now.Add(time.Second)
	c.put("a=3", "a=4", "|", "b=1")
	if s := c.compact(); s.NextDirty != 2 {
		t.Errorf("%+v", s)
	}
	c.wantRecords("1:a=2 2:a=3 3:a=4 4:b=1")
}

// A deletion stays readable for the retention, and is gone after.
func TestCompact_Deletions(t *testing.T) {
	c := newCompactedLog(t, func(o *Options) { o.DeleteRetention = 5 * time.Second })
	c.put("a=1", "b=1", "a", "|", "c=1")
	c.compact()
	c.wantRecords("1:b=1 2:a 3:c=1")
	c.put("|", "c=2")
	c.now = c.now.Add(4999 * time.Millisecond)
	c.compact()
	c.wantRecords("1:b=1 2:a 3:c=1 4:c=2")
	c.put("|", "c=3")
	c.now = c.now.Add(time.Millisecond)
	c.compact()
	c.wantRecords("1:b=1 4:c=2 5:c=3")
}

// An open transaction holds compaction back.
func TestCompact_StopsAtTheLastStableOffset(t *testing.T) {
	c := newCompactedLog(t, nil)
	c.put("a=1", "a=2", "|", "a=3")
	w := record.NewBuilder(inTxn(7))
	if err := w.Append(1, record.Record{Key: []byte("t")}); err != nil {
		t.Fatal(err)
	}
	b, err := w.Batch()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.AppendAsLeader(b, LeaderAppend{TransactionVersion: NoTransactionVersion}); err != nil {
		t.Fatal(err)
	}
	c.put("a=4", "|", "a=5", "|", "a=6")
	if s := c.compact(); s.NextDirty != 2 {
		t.Errorf("%+v", s)
	}
	if got := c.Offsets(); got.LastStable != 3 {
		t.Errorf("%+v", got)
	}
}

func inTxn(id int64) record.BuilderOptions {
	return record.BuilderOptions{Producer: &record.Producer{ID: id}, Transactional: true}
}

// Where a log directory of Kafka has a checkpoint of the cleaner, that is where both look, and where a truncation lowers it.
func TestCompact_CleanerCheckpoint(t *testing.T) {
	c := newCompactedLog(t, nil)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(filepath.Dir(simDir), checkpoint.CleanerFile)
	tp, other := checkpoint.TopicPartition{Topic: "t"}, checkpoint.TopicPartition{Topic: "u", Partition: 3}
	if err := checkpoint.WriteOffsets(c.mem, path, map[checkpoint.TopicPartition]int64{other: 9}); err != nil {
		t.Fatal(err)
	}
	c.open()
	line := func(want int64) {
		t.Helper()
		lines, err := checkpoint.ReadOffsets(c.mem, path)
		if err != nil || lines[tp] != want || lines[other] != 9 {
			t.Errorf("%v, %v, want %d", lines, err, want)
		}
	}
	c.put("a=1", "a=2", "|", "a=3", "b=1", "|", "b=2")
	c.compact()
	line(4)
	c.reopen()
	if r := c.RecoveryReport(); r.Writer != 0 || r.Problems() {
		t.Errorf("our own change is taken for another program's: %+v", r)
	}
	c.put("|", "b=3")
	if s := c.compact(); s.FirstDirty != 4 {
		t.Errorf("%+v", s)
	}
	line(5)
	if _, err := c.TruncateTo(3); err != nil {
		t.Fatal(err)
	}
	line(0)
	c.put("b=7", "b=8", "|", "c=1")
	c.compact()
	c.wantRecords("2:a=3 4:b=8 5:c=1")
}

// A truncation takes the first dirty offset back also where the state file has it.
func TestCompact_AfterATruncation(t *testing.T) {
	c := newCompactedLog(t, func(o *Options) { o.SegmentBytes = 160 })
	for i := range 20 {
		c.put(fmt.Sprintf("k%d=%d", i%3, i))
	}
	c.compact()
	if _, err := c.TruncateTo(18); err != nil {
		t.Fatal(err)
	}
	if at := c.compact().FirstDirty; at > 18 {
		t.Errorf("first dirty offset %d behind the end", at)
	}
	for i := 18; i < 30; i++ {
		c.put(fmt.Sprintf("k%d=%d", i%3, 100+i))
	}
	c.put("|", "z=1")
	c.compact()
	c.reopen()
	c.wantRecords("27:k0=127 28:k1=128 29:k2=129 30:z=1")
}

// Whoever reads a segment that is replaced reads it to the end, although another one takes its name again and again.
func TestCompact_ReadersOfOldSegmentsGoOn(t *testing.T) {
	c := newCompactedLog(t, func(o *Options) { o.FileDeleteDelay = time.Minute })
	var held []*Fetch
	var want [][]byte
	for i := range 4 {
		c.put(fmt.Sprintf("a=%d", i), "a=x", "|", "b=1")
		f, err := c.Read(0, ReadOptions{MaxBytes: 1 << 20, MinOneMessage: true})
		if err != nil {
			t.Fatal(err)
		}
		p, err := f.Records.AppendTo(nil)
		if err != nil {
			t.Fatal(err)
		}
		held, want = append(held, &f), append(want, p)
		if s := c.compact(); s.SegmentsWritten == 0 {
			t.Fatalf("%+v", s)
		}
		for j, f := range held {
			if p, err := f.Records.AppendTo(nil); err != nil || !bytes.Equal(p, want[j]) {
				t.Fatalf("read %d after compaction %d: %x, %v; want %x", j, i, p, err, want[j])
			}
		}
	}
	for j, f := range held {
		if p, err := f.Records.AppendTo(nil); err != nil || !bytes.Equal(p, want[j]) {
			t.Errorf("read %d: %v", j, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The position of a named producer is stored with its last record, which therefore stays.
func TestCompact_PositionOfANamedProducerStays(t *testing.T) {
	c := newCompactedLog(t, nil)
	p, err := c.Producer("source", ProducerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, err := p.AppendWithPosition(fmt.Appendf(nil, "position %d", i), Record{Key: []byte("a"), Value: []byte{byte('0' + i)}}); err != nil {
			t.Fatal(err)
		}
	}
	c.put("a=9", "|", "b=1")
	c.compact()
	c.reopen()
	if p, err = c.Producer("source", ProducerOptions{}); err != nil {
		t.Fatal(err)
	}
	if at, found, err := p.LastPosition(); err != nil || !found || string(at) != "position 2" {
		t.Errorf("%q, %v, %v", at, found, err)
	}
	if n := p.NextSequence(); n != 3 {
		t.Errorf("next sequence %d", n)
	}
	c.wantRecords("2:a=2 3:a=9 4:b=1")
}

// With Compat, where there is no file of ours, all is as with a broker.
func TestCompact_Compat(t *testing.T) {
	c := newCompactedLog(t, nil)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	parent := filepath.Dir(simDir)
	for _, name := range []string{checkpoint.RecoveryPointFile, checkpoint.LogStartFile, checkpoint.CleanerFile} {
		if err := checkpoint.WriteOffsets(c.mem, filepath.Join(parent, name), nil); err != nil {
			t.Fatal(err)
		}
	}
	c.o.Compat = true
	c.open()
	c.put("a=1", "b=1", "|", "a=2", "|")
	if s := c.compact(); s.NextDirty != 3 {
		t.Errorf("%+v", s)
	}
	c.wantRecords("1:b=1 2:a=2")
	c.put("a=3", "|", "c=1")
	c.reopen()
	if s := c.compact(); s.FirstDirty != 3 || s.NextDirty != 4 {
		t.Errorf("%+v", s)
	}
	c.wantRecords("1:b=1 3:a=3 4:c=1")
	for name := range filesIn(t, c.mem) {
		if strings.HasPrefix(name, "oncelog.") && name != "oncelog.lock" {
			t.Errorf("%s is there", name)
		}
	}
}

// What compaction does because of a marker must not be there without the marker: in the modes that do not sync each append it
// is on disk before anything is removed.
func TestCompact_DecisionsAreOnDiskFirst(t *testing.T) {
	for _, mode := range modes {
		c := newCompactedLog(t, func(o *Options) { o.Sync = mode })
		c.put("a=1")
		w := record.NewBuilder(inTxn(7))
		if err := w.Append(1, record.Record{Key: []byte("a"), Value: []byte("2")}); err != nil {
			t.Fatal(err)
		}
		b, err := w.Batch()
		if err != nil {
			t.Fatal(err)
		}
		mustAppend(t, c.Log, b)
		c.put("|", "b=1")
		if err := c.Checkpoint(); err != nil {
			t.Fatal(err)
		}
		m := record.AppendEndTxnMarker(nil, record.Producer{ID: 7}, record.EndTxnMarker{Type: record.Commit}, 1)
		if _, err := c.AppendAsLeader(m, LeaderAppend{Origin: Coordinator}); err != nil {
			t.Fatal(err)
		}
		if s := c.compact(); s.NextDirty != 2 || s.SegmentsWritten != 1 {
			t.Fatalf("%+v", s)
		}
		left := &compactedLog{t: t, o: c.o, fs: c.mem.Crash(vfstest.CrashOptions{Mode: vfstest.AllLost})}
		left.open()
		left.wantRecords("1:a=2 2:b=1")
		if err := abandonLog(left.Log); err != nil {
			t.Fatal(err)
		}
	}
}

// In a name with transactions the position is that of the last one that was committed, whatever was aborted behind it; its
// record and its marker stay for that, also when nobody would read them any more.
func TestCompact_PositionOfATransactionalProducerStays(t *testing.T) {
	c := newCompactedLog(t, func(o *Options) { o.DeleteRetention = time.Second })
	p, err := c.Producer("source", ProducerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		x, err := p.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x.AppendWithPosition(fmt.Appendf(nil, "position %d", i), Record{Key: []byte("a"), Value: []byte{byte('0' + i)}}); err != nil {
			t.Fatal(err)
		}
		if i < 2 {
			err = x.Commit()
		} else {
			err = x.Abort()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		c.put(fmt.Sprintf("a=x%d", i), "|", "b=1")
		c.compact()
		c.now = c.now.Add(2 * time.Second)
		c.reopen()
		if p, err = c.Producer("source", ProducerOptions{}); err != nil {
			t.Fatal(err)
		}
		if at, found, err := p.LastPosition(); err != nil || !found || string(at) != "position 1" {
			t.Errorf("after compaction %d: %q, %v, %v", i, at, found, err)
		}
	}
	if got := c.show(); !strings.HasPrefix(got, "2:a=1 ") {
		t.Errorf("records %s, want the one with the position first", got)
	}
}
