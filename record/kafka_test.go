package record

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// fixturesVar names a directory of archived partition directories and, beside each, the JSON of what Kafka reads from it.
const fixturesVar = "ONCELOG_FIXTURES"

// dumpBatch is a batch as Kafka's classes read it. Pointers are null where the format has no such field.
type dumpBatch struct {
	Position, Size         int
	Magic                  int8
	BaseOffset, LastOffset int64
	Count                  *int32
	BaseSequence           *int32
	LastSequence           *int32
	ProducerID             *int64
	ProducerEpoch          *int16
	PartitionLeaderEpoch   *int32
	TimestampType          *string
	BaseTimestamp          *int64
	MaxTimestamp           *int64
	Codec                  string
	CRC                    uint32
	Valid                  bool
	IsTransactional        *bool
	IsControl              *bool
	DeleteHorizonMs        *int64
	Records                []dumpRecord
	Inner                  [][]any
	TrailingBytes          int
}

type dumpRecord struct {
	Offset    int64
	Timestamp *int64
	Sequence  *int32
	Key       *dumpBytes
	Value     *dumpBytes
	Headers   [][2]*string
}

// dumpBytes is a byte string, of a long one only the size and the hash.
type dumpBytes struct {
	data   []byte
	Size   int
	SHA256 string
}

func (d *dumpBytes) UnmarshalJSON(p []byte) error {
	if p[0] == '"' {
		return json.Unmarshal(p, &d.data)
	}
	type plain dumpBytes
	return json.Unmarshal(p, (*plain)(d))
}

func (d *dumpBytes) equal(p []byte) bool {
	switch {
	case d == nil || p == nil:
		return d == nil && p == nil
	case d.SHA256 != "":
		sum := sha256.Sum256(p)
		return len(p) == d.Size && hex.EncodeToString(sum[:]) == d.SHA256
	}
	return bytes.Equal(d.data, p)
}

// TestKafkaLogs reads segments written by brokers and compares every header field, record and inner entry.
func TestKafkaLogs(t *testing.T) {
	names, err := filepath.Glob(filepath.Join("testdata", "kafka-*.log"))
	if err != nil || len(names) < 5 {
		t.Fatalf("%d logs, %v", len(names), err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".log"), func(t *testing.T) {
			log, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var want []dumpBatch
			readJSON(t, strings.TrimSuffix(name, ".log")+".json", &want)
			end := compareLog(t, log, want)
			if end != len(log) {
				t.Errorf("%d bytes of %d compared", end, len(log))
			}
		})
	}
}

// TestKafkaFixtures does the same with a whole collection of partition directories, and of log directories.
func TestKafkaFixtures(t *testing.T) {
	dir := os.Getenv(fixturesVar)
	if dir == "" {
		t.Skipf("%s is not set: the segments in testdata are compared by TestKafkaLogs", fixturesVar)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.tar.gz"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no archives in %s: %v", dir, err)
	}
	total := 0
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".tar.gz"), func(t *testing.T) {
			logs := unpackLogs(t, name)
			for partition, segments := range dumpsIn(t, strings.TrimSuffix(name, ".tar.gz")+".json") {
				for _, s := range segments {
					file := fmt.Sprintf("%020d.log", s.BaseOffset)
					if log, ok := logs[path.Join(partition, file)]; ok {
						compareLog(t, log, s.Batches)
						total += len(s.Batches)
					}
				}
			}
		})
	}
	t.Logf("%d batches in %d archives", total, len(names))
	if total < len(names) {
		t.Errorf("only %d batches in %d archives", total, len(names))
	}
}

type dumpSegment struct {
	BaseOffset int64
	Batches    []dumpBatch
}

// dumpsIn returns the segments of the directories that a fixture's JSON describes, by the directory's name. That of the
// only directory of a partition fixture is "".
func dumpsIn(t *testing.T, name string) map[string][]dumpSegment {
	t.Helper()
	var doc struct{ Dump json.RawMessage }
	readJSON(t, name, &doc)
	type partition struct{ Segments []dumpSegment }
	var one partition
	if json.Unmarshal(doc.Dump, &one) == nil && one.Segments != nil {
		return map[string][]dumpSegment{"": one.Segments}
	}
	var many map[string]partition
	if err := json.Unmarshal(doc.Dump, &many); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	out := make(map[string][]dumpSegment)
	for dir, p := range many {
		out[dir] = p.Segments
	}
	return out
}

// unpackLogs returns the log files of an archive by their names without the directory at the top.
func unpackLogs(t *testing.T, name string) map[string][]byte {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	logs := make(map[string][]byte)
	for tr := tar.NewReader(z); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return logs
		}
		if err != nil {
			t.Fatal(err)
		}
		_, file, _ := strings.Cut(h.Name, "/")
		if strings.HasSuffix(file, ".log") {
			if logs[file], err = io.ReadAll(tr); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func readJSON(t *testing.T, name string, v any) {
	t.Helper()
	p, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(p, v)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// compareLog compares the batches of log that Kafka could read with what Kafka read, and returns where they end.
func compareLog(t *testing.T, log []byte, want []dumpBatch) (end int) {
	t.Helper()
	for i := range want {
		w := &want[i]
		end = w.Position + w.Size
		b, _, err := Next(log[w.Position:])
		if err != nil {
			t.Fatalf("batch at %d: %v", w.Position, err)
		}
		if err := b.Validate(); (err == nil) != w.Valid {
			t.Errorf("batch at %d: Validate: %v, Kafka says valid: %v", w.Position, err, w.Valid)
		}
		compareHeader(t, b, w)
		if w.Records != nil {
			compareRecords(t, b, w)
		}
		if w.Inner != nil {
			compareInner(t, b, w)
		}
	}
	return end
}

func compareHeader(t *testing.T, b Batch, w *dumpBatch) {
	t.Helper()
	check := func(field string, got, want any) {
		t.Helper()
		if got != want {
			t.Errorf("batch at %d: %s is %v, Kafka says %v", w.Position, field, got, want)
		}
	}
	check("size", b.Size(), w.Size)
	check("magic", b.Magic(), w.Magic)
	check("base offset", b.BaseOffset(), w.BaseOffset)
	check("last offset", b.LastOffset(), w.LastOffset)
	check("codec", b.Attributes().Compression().String(), w.Codec)
	check("crc", b.CRC(), w.CRC)
	check("max timestamp", b.MaxTimestamp(), orElse(w.MaxTimestamp, NoTimestamp))
	check("timestamp type", b.TimestampType().String(), orElse(w.TimestampType, NoTimestampType.String()))
	check("base timestamp", b.BaseTimestamp(), orElse(w.BaseTimestamp, NoTimestamp))
	check("producer id", b.ProducerID(), orElse(w.ProducerID, NoProducerID))
	check("producer epoch", b.ProducerEpoch(), orElse(w.ProducerEpoch, NoProducerEpoch))
	check("base sequence", b.BaseSequence(), orElse(w.BaseSequence, NoSequence))
	check("last sequence", b.LastSequence(), orElse(w.LastSequence, NoSequence))
	check("leader epoch", b.PartitionLeaderEpoch(), orElse(w.PartitionLeaderEpoch, NoPartitionLeaderEpoch))
	check("transactional", b.Attributes().IsTransactional(), orElse(w.IsTransactional, false))
	check("control", b.Attributes().IsControl(), orElse(w.IsControl, false))
	horizon, _ := b.DeleteHorizon()
	check("delete horizon", horizon, orElse(w.DeleteHorizonMs, NoTimestamp))
	if w.Count != nil {
		check("count", b.Count(), *w.Count)
	}
}

func orElse[T any](p *T, none T) T {
	if p == nil {
		return none
	}
	return *p
}

func compareRecords(t *testing.T, b Batch, w *dumpBatch) {
	t.Helper()
	n := 0
	for r, err := range b.Records(Limits{}) {
		if err != nil {
			t.Fatalf("batch at %d, record %d: %v", w.Position, n, err)
		}
		if n >= len(w.Records) {
			t.Fatalf("batch at %d: more than %d records", w.Position, len(w.Records))
		}
		k := w.Records[n]
		if r.Offset != k.Offset || r.Timestamp != orElse(k.Timestamp, NoTimestamp) || r.Sequence != orElse(k.Sequence, NoSequence) {
			t.Errorf("batch at %d, record %d: offset %d, timestamp %d, sequence %d; Kafka says %d, %v, %v", w.Position, n,
				r.Offset, r.Timestamp, r.Sequence, k.Offset, orElse(k.Timestamp, NoTimestamp), orElse(k.Sequence, NoSequence))
		}
		if got := b.BaseOffset() + int64(r.OffsetDelta); got != r.Offset {
			t.Errorf("batch at %d, record %d: base offset plus delta is %d, offset %d", w.Position, n, got, r.Offset)
		}
		if !k.Key.equal(r.Key) || !k.Value.equal(r.Value) {
			t.Errorf("batch at %d, record %d: key %q, value %q", w.Position, n, r.Key, r.Value)
		}
		compareHeaders(t, r.Headers, k.Headers)
		n++
	}
	if n != len(w.Records) {
		t.Errorf("batch at %d: %d records, Kafka says %d", w.Position, n, len(w.Records))
	}
}

func compareHeaders(t *testing.T, got []Header, want [][2]*string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d headers, Kafka says %d", len(got), len(want))
		return
	}
	for i, h := range got {
		var value *string
		if h.Value != nil {
			s := base64.StdEncoding.EncodeToString(h.Value)
			value = &s
		}
		key, wantValue := orElse(want[i][0], "(null)"), want[i][1]
		if h.Key != key || (value == nil) != (wantValue == nil) || value != nil && *value != *wantValue {
			t.Errorf("header %d is %q: %q, Kafka says %q: %v", i, h.Key, h.Value, key, wantValue)
		}
	}
}

func compareInner(t *testing.T, b Batch, w *dumpBatch) {
	t.Helper()
	var got [][]any
	for e, err := range b.LegacyEntries(Limits{}) {
		if err != nil {
			t.Fatalf("batch at %d: %v", w.Position, err)
		}
		row := []any{float64(e.Offset), float64(e.Size), float64(e.Magic), float64(e.Attributes), nil, float64(e.CRC), e.CRCValid}
		if e.Magic > 0 {
			row[4] = float64(e.Timestamp)
		}
		got = append(got, row)
	}
	if g, k := fmt.Sprint(got), fmt.Sprint(w.Inner); g != k {
		t.Errorf("batch at %d: inner entries\n%s\nKafka says\n%s", w.Position, g, k)
	}
}

// TestKafkaLogs_CutAndFlipped damages each batch of the logs in every place and reads it. A cut or a flipped bit that the
// checksum covers must be found; in the rest, reading must end without a panic.
func TestKafkaLogs_CutAndFlipped(t *testing.T) {
	names, _ := filepath.Glob(filepath.Join("testdata", "kafka-*.log"))
	for _, name := range names {
		log, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		seen := make(map[string]bool)
		for b, err := range All(log) {
			if err != nil {
				t.Fatal(err)
			}
			kind := fmt.Sprint(b.Magic(), b.Attributes())
			if seen[kind] || len(b) > 1500 {
				continue // One of each kind will do.
			}
			seen[kind] = true
			for n := range len(b) {
				if _, _, err := Next(b[:n]); n > 0 && !errors.Is(err, ErrTruncated) || n == 0 && err != io.EOF {
					t.Fatalf("%s: %d bytes of %d: %v", name, n, len(b), err)
				}
			}
			flipEveryBit(t, b)
		}
	}
}

// flipEveryBit flips each bit of b, requires that Validate sees those that the checksum covers, and reads the records.
func flipEveryBit(t *testing.T, b Batch) {
	t.Helper()
	covered := posCRC
	if b.isLegacy() {
		covered = posLegacyCRC
	}
	for i := range 8 * len(b) {
		damaged := bytes.Clone(b)
		damaged[i/8] ^= 1 << (i % 8)
		d, _, err := Next(damaged)
		if err != nil {
			continue
		}
		if i/8 >= covered && d.Magic() == b.Magic() && d.Validate() == nil {
			t.Fatalf("magic %d: bit %d of byte %d flipped, and the batch is valid", b.Magic(), i%8, i/8)
		}
		_ = d.BaseOffset()
		for range d.Records(Limits{MaxRecordBytes: 1 << 20}) {
		}
		for range d.LegacyEntries(Limits{MaxRecordBytes: 1 << 20}) {
		}
	}
}
