package interop_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oncelog/oncelog/interop"
)

const firstLog = "00000000000000000000.log"

// partitionDir is a new directory with a name that Kafka takes for a partition.
func partitionDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "t-0")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func session(t *testing.T, d *interop.Driver, r interop.SessionRequest) *interop.Session {
	t.Helper()
	s, _, err := d.OpenSession(r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// written is a directory with the given batches, cleanly stopped.
func written(t *testing.T, d *interop.Driver, batches ...testBatch) (dir string, at interop.Checkpoint) {
	t.Helper()
	dir = partitionDir(t)
	s := session(t, d, interop.SessionRequest{Dir: dir, Clean: true})
	for _, b := range batches {
		must(s.Append(interop.Append{Batch: b.bytes(), LeaderEpoch: 3}))(t)
	}
	return dir, must(s.Close())(t)
}

func names(files []interop.File) []string {
	var out []string
	for _, f := range files {
		out = append(out, f.Name)
	}
	return out
}

func TestAvailableSaysWhyNot(t *testing.T) {
	t.Setenv("ONCELOG_INTEROP", "")
	reason, ok := interop.Available()
	if ok || !strings.Contains(reason, "ONCELOG_INTEROP=1") {
		t.Errorf("Available() = %q, %t without the variable, want a reason that names it", reason, ok)
	}
}

func TestOpenEmptyDirectory(t *testing.T) {
	d := interop.Start(t)
	dir := partitionDir(t)
	got := must(d.Open(interop.OpenRequest{Dir: dir, Stop: true}))(t)
	if !got.Loaded {
		t.Fatalf("not loaded: %v", got.Failure)
	}
	if diff := cmp.Diff([]interop.Segment{{Base: 0, Size: 0}}, got.Segments); diff != "" {
		t.Errorf("segments (-want +got):\n%s", diff)
	}
	want := []string{"00000000000000000000.index", firstLog, "00000000000000000000.timeindex", "leader-epoch-checkpoint"}
	if diff := cmp.Diff(want, names(got.Files)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if left := must(os.ReadDir(dir))(t); len(left) != 0 {
		t.Errorf("the directory itself got %d files, want none: the copy was to be opened", len(left))
	}
}

func TestOpenWhatASessionWrote(t *testing.T) {
	d := interop.Start(t)
	dir, at := written(t, d,
		testBatch{pid: 7, epoch: 1, seq: 0, keys: []string{"a", "b"}},
		testBatch{pid: 7, epoch: 1, seq: 2, keys: []string{"c"}},
		testBatch{pid: -1, epoch: -1, seq: -1, keys: []string{"d"}})
	if at.RecoveryPoint != 4 {
		t.Errorf("recovery point after the stop = %d, want 4", at.RecoveryPoint)
	}
	got := must(d.Open(interop.OpenRequest{Dir: dir, Clean: true, RecoveryPoint: at.RecoveryPoint}))(t)
	if !got.Loaded || got.LogEnd != 4 || got.LastStableOffset != 4 || got.RecoveryPoint != 4 || got.LastSnapshot != 4 {
		t.Errorf("loaded %t, offsets %+v, failure %v; want end, stable and recovery point 4", got.Loaded, got.Offsets, got.Failure)
	}
	if diff := cmp.Diff([]interop.LeaderEpoch{{Epoch: 3, Start: 0}}, got.LeaderEpochs); diff != "" {
		t.Errorf("leader epochs (-want +got):\n%s", diff)
	}
	// A snapshot keeps one batch of a producer.
	want := []interop.Producer{{
		ID: 7, Epoch: 1, LastSeq: 2, LastOffset: 2, LastTimestamp: testTime, CoordinatorEpoch: -1, CurrentTxnFirstOffset: -1,
		Batches: []interop.ProducerBatch{{FirstSeq: 2, LastSeq: 2, FirstOffset: 2, LastOffset: 2, Timestamp: testTime}},
	}}
	if diff := cmp.Diff(want, got.Producers); diff != "" {
		t.Errorf("producers (-want +got):\n%s", diff)
	}
}

func TestDump(t *testing.T) {
	d := interop.Start(t)
	b := testBatch{pid: 7, epoch: 1, seq: 5, keys: []string{"k", "l"}, value: "v"}
	first := testBatch{pid: 7, epoch: 1, seq: 0, keys: []string{"1", "2", "3", "4", "5"}}
	dir, _ := written(t, d, first, b)
	segments := must(d.Dump(dir, true))(t)
	if len(segments) != 1 || len(segments[0].Batches) != 2 {
		t.Fatalf("dump = %+v, want one segment of two batches", segments)
	}
	if s := segments[0]; s.ValidBytes != s.Size || s.Size != int64(len(first.bytes())+len(b.bytes())) {
		t.Errorf("valid %d of %d bytes, want all of %d", s.ValidBytes, s.Size, len(first.bytes())+len(b.bytes()))
	}
	got := segments[0].Batches[1]
	if !got.Valid || got.BaseOffset != 5 || got.LastOffset != 6 || got.Producer != 7 || got.BaseSeq != 5 || got.LeaderEpoch != 3 {
		t.Errorf("second batch = %+v", got)
	}
	want := []interop.Record{
		{Offset: 5, Timestamp: testTime, Sequence: 5, Key: []byte("k"), Value: []byte("v"), Headers: []interop.Header{}},
		{Offset: 6, Timestamp: testTime, Sequence: 6, Key: []byte("l"), Value: []byte("v"), Headers: []interop.Header{}},
	}
	if diff := cmp.Diff(want, got.Records); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}

	// A flipped bit in the second batch ends the walk there.
	data := must(os.ReadFile(filepath.Join(dir, firstLog)))(t)
	data[len(data)-1] ^= 1
	if err := os.WriteFile(filepath.Join(dir, firstLog), data, 0o666); err != nil {
		t.Fatal(err)
	}
	s := must(d.Dump(dir, false))(t)[0]
	if s.ValidBytes != int64(len(first.bytes())) || s.Batches[1].Valid {
		t.Errorf("after a flip: valid bytes %d, batch %+v; want %d and an invalid batch", s.ValidBytes, s.Batches[1], len(first.bytes()))
	}
}

func TestUncleanOpenCutsATornTail(t *testing.T) {
	d := interop.Start(t)
	dir, _ := written(t, d,
		testBatch{pid: -1, epoch: -1, seq: -1, keys: []string{"a"}},
		testBatch{pid: -1, epoch: -1, seq: -1, keys: []string{"b"}})
	path := filepath.Join(dir, firstLog)
	whole := must(os.ReadFile(path))(t)
	if err := os.Truncate(path, int64(len(whole)-1)); err != nil {
		t.Fatal(err)
	}

	got := must(d.Open(interop.OpenRequest{Dir: dir}))(t)
	if want := []interop.Segment{{Base: 0, Size: int64(len(whole) / 2)}}; !got.Loaded || got.LogEnd != 1 || !cmp.Equal(got.Segments, want) {
		t.Errorf("loaded %t, end %d, segments %v, failure %v; want end 1 and %v", got.Loaded, got.LogEnd, got.Segments, got.Failure, want)
	}
	if size := must(os.Stat(path))(t).Size(); size != int64(len(whole)-1) {
		t.Errorf("the file itself has %d bytes, want %d as before: the copy was to be opened", size, len(whole)-1)
	}
	must(d.Open(interop.OpenRequest{Dir: dir, InPlace: true}))(t)
	if left := must(os.ReadFile(path))(t); !bytes.Equal(left, whole[:len(whole)/2]) {
		t.Errorf("opened in place: %d bytes left, want the first %d", len(left), len(whole)/2)
	}
}

func TestOpenDeletesWhatLiesBehindDamage(t *testing.T) {
	d := interop.Start(t)
	dir := partitionDir(t)
	s := session(t, d, interop.SessionRequest{Dir: dir})
	plain := testBatch{pid: -1, epoch: -1, seq: -1, keys: []string{"a"}}
	for range 3 {
		must(s.Append(interop.Append{Batch: plain.bytes()}))(t)
		must(s.Roll())(t)
	}
	if err := s.Crash(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "00000000000000000001.log")
	if err := os.Truncate(path, 10); err != nil {
		t.Fatal(err)
	}
	got := must(d.Open(interop.OpenRequest{Dir: dir, KeepDeleted: true}))(t)
	if !got.Loaded || got.LogEnd != 1 {
		t.Fatalf("loaded %t, end %d, failure %v; want end 1", got.Loaded, got.LogEnd, got.Failure)
	}
	for _, base := range []string{"2", "3"} {
		want := "0000000000000000000" + base + ".log.deleted"
		if !strings.Contains(strings.Join(got.Deleted, " "), want) {
			t.Errorf("deleted %v, want %s among them", got.Deleted, want)
		}
	}
	got = must(d.Open(interop.OpenRequest{Dir: dir}))(t)
	for _, f := range got.Files {
		if strings.HasSuffix(f.Name, ".deleted") {
			t.Errorf("%s is left, want it unlinked", f.Name)
		}
	}
}

func TestCrashLeavesFilesAsTheyAre(t *testing.T) {
	d := interop.Start(t)
	dir, at := written(t, d, testBatch{pid: 7, epoch: 0, seq: 0, keys: []string{"a"}})
	s := session(t, d, interop.SessionRequest{Dir: dir, Clean: true, RecoveryPoint: at.RecoveryPoint})
	must(s.Append(interop.Append{Batch: testBatch{pid: 7, epoch: 0, seq: 1, keys: []string{"b"}}.bytes()}))(t)
	before := must(s.State(true))(t)
	if err := s.Crash(); err != nil {
		t.Fatal(err)
	}
	for _, f := range before.Files {
		info := must(os.Stat(filepath.Join(dir, f.Name)))(t)
		if info.Size() != f.Size {
			t.Errorf("%s has %d bytes after the crash, want %d as before", f.Name, info.Size(), f.Size)
		}
		if strings.HasSuffix(f.Name, "index") && (f.Size < 9<<20 || f.Used > 100) {
			t.Errorf("%s has %d bytes, %d used; want it preallocated", f.Name, f.Size, f.Used)
		}
	}
	if _, err := s.Roll(); err == nil || interop.AsError(err) != nil {
		t.Errorf("roll after the end of the session: %v, want an error that is not Kafka's", err)
	}
}

func TestOpenRefused(t *testing.T) {
	d := interop.Start(t)
	dir := partitionDir(t)
	if err := os.WriteFile(filepath.Join(dir, "x.log"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	got := must(d.Open(interop.OpenRequest{Dir: dir}))(t)
	if got.Loaded || got.Failure == nil || got.Failure.Class != "java.lang.NumberFormatException" {
		t.Errorf("loaded %t, failure %v; want a NumberFormatException over the name of the file", got.Loaded, got.Failure)
	}
}

func TestDuplicateIsAnsweredWithItsFirstOffset(t *testing.T) {
	d := interop.Start(t)
	s := session(t, d, interop.SessionRequest{Dir: partitionDir(t)})
	one := testBatch{pid: 7, epoch: 0, seq: 0, keys: []string{"a", "b"}}
	two := testBatch{pid: 7, epoch: 0, seq: 2, keys: []string{"c"}}
	must(s.Append(interop.Append{Batch: one.bytes()}))(t)
	must(s.Append(interop.Append{Batch: two.bytes()}))(t)
	got := must(s.Append(interop.Append{Batch: one.bytes()}))(t)
	if !got.Duplicate || got.FirstOffset != 0 || got.LastOffset != 1 || got.LogEnd != 3 {
		t.Errorf("repeat = %+v, want a duplicate at 0 to 1 and the end at 3", got)
	}

	two.seq = 9
	_, err := s.Append(interop.Append{Batch: two.bytes()})
	if e := interop.AsError(err); e == nil || e.Name() != "OutOfOrderSequenceException" || e.Code != 45 {
		t.Errorf("gap in sequences: %v, want OutOfOrderSequenceException with code 45", err)
	}
}

func TestTransaction(t *testing.T) {
	d := interop.Start(t)
	dir := partitionDir(t)
	s := session(t, d, interop.SessionRequest{Dir: dir})
	guard := must(s.Verify(interop.Verification{Producer: 9}))(t)
	if guard == 0 {
		t.Fatal("no guard for a new transaction")
	}
	b := testBatch{pid: 9, epoch: 0, seq: 0, transactional: true, keys: []string{"a"}}
	must(s.Append(interop.Append{Batch: b.bytes(), Guard: guard}))(t)
	must(s.SetHighWatermark(-1))(t)
	state := must(s.State(false))(t)
	if diff := cmp.Diff([]interop.Txn{{Producer: 9, FirstOffset: 0, LastOffset: -1}}, state.Ongoing); diff != "" {
		t.Errorf("ongoing transactions (-want +got):\n%s", diff)
	}
	if state.LastStableOffset != 0 || state.HighWatermark != 1 {
		t.Errorf("offsets = %+v, want the last stable one at 0 below a high watermark of 1", state.Offsets)
	}
	for _, minutes := range []int64{20, 21} {
		must(s.SetClock(testTime + minutes*60_000))(t)
		if got := must(s.HasLateTransaction())(t); got.Changed != (minutes > 20) {
			t.Errorf("late after %d minutes: %v", minutes, got.Changed)
		}
	}
	m := must(s.Marker(interop.Marker{Producer: 9, Epoch: 0}))(t)
	must(s.SetHighWatermark(-1))(t)
	if m.FirstOffset != 1 || len(m.Batch) == 0 {
		t.Errorf("marker = %+v, want it at 1", m)
	}
	read := must(s.Read(interop.Read{MaxBytes: 1 << 20, Isolation: "txn_committed", Bytes: true}))(t)
	if len(read.Batches) != 2 || len(read.Aborted) != 1 || read.Aborted[0].Producer != 9 || read.Aborted[0].FirstOffset != 0 {
		t.Errorf("read = %+v, want two batches and the aborted transaction of producer 9", read)
	}
	digest := sha256.Sum256(must(os.ReadFile(filepath.Join(dir, firstLog)))(t))
	state = must(s.State(true))(t)
	for _, f := range state.Files {
		if f.Name == firstLog && f.SHA256 != hex.EncodeToString(digest[:]) {
			t.Errorf("digest of %s = %s, want %x", f.Name, f.SHA256, digest)
		}
		if strings.HasSuffix(f.Name, ".txnindex") && f.Used == 0 {
			t.Errorf("%s is empty, want one aborted transaction", f.Name)
		}
	}
	if sum := sha256.Sum256(read.Bytes); read.SHA256 != hex.EncodeToString(sum[:]) || !bytes.Equal(sum[:], digest[:]) {
		t.Errorf("read %d bytes with digest %s, want those of the file", len(read.Bytes), read.SHA256)
	}
}

func TestTruncateRetentionAndLookUps(t *testing.T) {
	d := interop.Start(t)
	s := session(t, d, interop.SessionRequest{Dir: partitionDir(t)})
	plain := testBatch{pid: -1, epoch: -1, seq: -1, keys: []string{"a", "b"}}
	for epoch := range int32(4) {
		must(s.Append(interop.Append{Batch: plain.bytes(), LeaderEpoch: epoch}))(t)
		must(s.Roll())(t)
	}
	must(s.SetHighWatermark(-1))(t)
	if got := must(s.EndOfEpoch(1))(t); !got.Found || got.Epoch != 1 || got.Offset != 4 {
		t.Errorf("end of epoch 1 = %+v, want 4", got)
	}
	if got := must(s.OffsetForTime(testTime))(t); !got.Found || got.Offset != 0 {
		t.Errorf("first offset at the time of all records = %+v, want 0", got)
	}
	if got := must(s.DeleteRecords(4))(t); !got.Changed || got.LogStart != 4 {
		t.Errorf("delete below 4 = %+v", got)
	}
	if got := must(s.Retention())(t); got.DeletedSegments != 2 {
		t.Errorf("retention = %+v, want 2 segments", got)
	}
	if got := must(s.Truncate(6))(t); !got.Changed || got.LogEnd != 6 {
		t.Errorf("truncate to 6 = %+v", got)
	}
	if got := must(s.TruncateFully(100, -1))(t); got.LogStart != 100 || got.LogEnd != 100 {
		t.Errorf("start again at 100 = %+v", got)
	}
	if got := must(s.RunJobs(true))(t); len(got.Ran) == 0 {
		t.Errorf("no background task ran, want the unlinking of segments")
	}
	if at := must(s.Close())(t); at.RecoveryPoint != 100 {
		t.Errorf("checkpoint = %+v, want 100", at)
	}
}

func TestSettingsReachKafka(t *testing.T) {
	d := interop.Start(t)
	b := testBatch{pid: -1, epoch: -1, seq: -1, keys: []string{"a"}}
	small := interop.Settings{SegmentBytes: int64(len(b.bytes())), SegmentIndexBytes: 120}
	s := session(t, d, interop.SessionRequest{Dir: partitionDir(t), Settings: small})
	for range 3 {
		must(s.Append(interop.Append{Batch: b.bytes()}))(t)
	}
	if n := len(must(s.State(false))(t).Segments); n != 3 {
		t.Errorf("%d segments, want each batch in its own", n)
	}
	must(s.Configure(interop.Settings{SegmentBytes: 1 << 20}))(t)
	must(s.Append(interop.Append{Batch: b.bytes()}))(t)
	if n := len(must(s.State(false))(t).Segments); n != 3 {
		t.Errorf("%d segments after the change, want 3 as before", n)
	}
	misspelled := interop.Settings{Other: map[string]string{"segment.bites": "1"}}
	_, _, err := d.OpenSession(interop.SessionRequest{Dir: partitionDir(t), Settings: misspelled})
	if err == nil || interop.AsError(err) != nil || !strings.Contains(err.Error(), "segment.bites") {
		t.Errorf("misspelled setting of a session: %v, want an error that is not Kafka's", err)
	}
	if got, err := d.Open(interop.OpenRequest{Dir: partitionDir(t), Settings: misspelled}); err == nil {
		t.Errorf("misspelled setting of an open: %+v, want an error: Kafka was not asked", got)
	}
}

func TestCleanKeepsTheLastOfEachKey(t *testing.T) {
	d := interop.Start(t)
	dir := partitionDir(t)
	s := session(t, d, interop.SessionRequest{Dir: dir})
	for _, keys := range [][]string{{"a", "b"}, {"a", "c"}, {"a"}} {
		must(s.Append(interop.Append{Batch: testBatch{pid: -1, epoch: -1, seq: -1, keys: keys}.bytes()}))(t)
	}
	must(s.Roll())(t)
	must(s.Close())(t)
	done := must(d.Clean(interop.SessionRequest{Dir: dir, Clean: true, Settings: interop.Settings{CleanupPolicy: "compact"}}, interop.Clean{}))(t)
	if done.MessagesRead != 5 || done.MessagesWritten != 3 || done.NextDirty != 5 {
		t.Errorf("cleaned = %+v, want 3 of 5 messages and the next round from 5", done)
	}
	var kept []string
	for _, seg := range must(d.Dump(dir, true))(t) {
		for _, b := range seg.Batches {
			for _, r := range b.Records {
				kept = append(kept, fmt.Sprintf("%d=%s", r.Offset, r.Key))
			}
		}
	}
	if diff := cmp.Diff([]string{"1=b", "3=c", "4=a"}, kept); diff != "" {
		t.Errorf("kept records (-want +got):\n%s", diff)
	}
}

func TestManyOpensLeakNothing(t *testing.T) {
	d := interop.Start(t)
	dir, at := written(t, d,
		testBatch{pid: 7, epoch: 0, seq: 0, keys: []string{"a", "b"}},
		testBatch{pid: -1, epoch: -1, seq: -1, keys: []string{"c"}})
	open := func(n int, r interop.OpenRequest) {
		t.Helper()
		r.Dir = dir
		began := time.Now()
		for range n {
			if got := must(d.Open(r))(t); !got.Loaded || got.LogEnd != 3 {
				t.Fatalf("loaded %t, end %d, failure %v; want end 3", got.Loaded, got.LogEnd, got.Failure)
			}
		}
		took := time.Since(began)
		t.Logf("%d opens (clean %t, stop %t): %.0f a second", n, r.Clean, r.Stop, float64(n)/took.Seconds())
	}
	open(50, interop.OpenRequest{})
	before := must(d.Usage())(t)
	open(300, interop.OpenRequest{})
	open(100, interop.OpenRequest{Clean: true, RecoveryPoint: at.RecoveryPoint})
	open(100, interop.OpenRequest{Stop: true})
	// Other names: metrics are kept by topic. Refused: the segments loaded so far must not stay open.
	parent := filepath.Dir(dir)
	for i := range 60 {
		named := filepath.Join(parent, fmt.Sprintf("topic%d-0", i))
		if err := os.CopyFS(named, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		sess := session(t, d, interop.SessionRequest{Dir: named, Clean: true})
		must(sess.Append(interop.Append{Batch: testBatch{pid: -1, epoch: -1, seq: -1, keys: []string{"d"}}.bytes()}))(t)
		if err := sess.Crash(); err != nil {
			t.Fatal(err)
		}
		must(d.Open(interop.OpenRequest{Dir: named}))(t)
		if err := os.WriteFile(filepath.Join(named, "x.log"), nil, 0o666); err != nil {
			t.Fatal(err)
		}
		if got := must(d.Open(interop.OpenRequest{Dir: named}))(t); got.Loaded {
			t.Fatal("a file of a strange name was loaded")
		}
	}
	after := must(d.Usage())(t)
	t.Logf("before %+v, after %+v", before, after)
	if after.OpenFiles > before.OpenFiles+5 || after.Maps > before.Maps+5 || after.Metrics > before.Metrics {
		t.Errorf("held before %+v, after hundreds of opens %+v: want the same", before, after)
	}
}

func BenchmarkOpen(b *testing.B) {
	d := interop.Start(b)
	dir := filepath.Join(b.TempDir(), "t-0")
	s, _, err := d.OpenSession(interop.SessionRequest{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	must(s.Append(interop.Append{Batch: testBatch{pid: 7, keys: []string{"a", "b"}}.bytes()}))(b)
	must(s.Close())(b)
	for b.Loop() {
		must(d.Open(interop.OpenRequest{Dir: dir}))(b)
	}
}
