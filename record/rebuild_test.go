package record

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// rebuilt writes b again with the records that keep accepts.
func rebuilt(t testing.TB, b Batch, keep func(Record) bool) Batch {
	t.Helper()
	w := NewBuilder(b.RebuildOptions())
	for r, err := range b.Records(Limits{}) {
		if err != nil {
			t.Fatal(err)
		}
		if !keep(r) {
			continue
		}
		if err := w.Append(r.Timestamp, r); err != nil {
			t.Fatal(err)
		}
	}
	got, err := w.Batch()
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(got)
}

func TestRebuild_AllRecords(t *testing.T) {
	for _, name := range []string{"plain", "idempotent", "commit"} {
		b := readHex(t, name)
		if got := rebuilt(t, b, func(Record) bool { return true }); !bytes.Equal(got, b) {
			t.Errorf("%s\n got % x\nwant % x", name, got, b)
		}
	}
}

// The builder writes what Kafka's producer wrote.
func TestRebuild_KafkaLog(t *testing.T) {
	log, err := os.ReadFile(filepath.Join("testdata", "kafka-4.4.0-codecs.log"))
	if err != nil {
		t.Fatal(err)
	}
	same := 0
	for b, err := range All(log) {
		if err != nil {
			t.Fatal(err)
		}
		if err := b.CheckHeader(); err != nil {
			t.Error(err)
		}
		if b.Attributes().Compression() != None {
			continue
		}
		if got := rebuilt(t, b, func(Record) bool { return true }); !bytes.Equal(got, b) {
			t.Errorf("the batch at offset %d\n got % x\nwant % x", b.BaseOffset(), got, b)
		}
		same++
	}
	if same == 0 {
		t.Error("no uncompressed batch")
	}
}

func TestRebuild_OneRecord(t *testing.T) {
	b := readHex(t, "idempotent")
	got := rebuilt(t, b, func(r Record) bool { return r.OffsetDelta == 2 })
	want := goldenHeaders["idempotent"]
	want.Size, want.CRC, want.Count = len(got), got.CRC(), 1
	want.BaseTimestamp, want.MaxTimestamp = exampleTime+7, exampleTime+7
	if diff := cmp.Diff(want, headerOf(got)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if got.Validate() != nil || got.CheckHeader() != nil {
		t.Errorf("%v, %v", got.Validate(), got.CheckHeader())
	}
	records, err := collect(t, got, Limits{})
	kept := goldenRecords["idempotent"][2]
	kept.TimestampDelta = 0
	if diff := cmp.Diff([]Record{kept}, records); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestRebuild_KeepsHorizonAndAppendTime(t *testing.T) {
	o := BuilderOptions{
		TimestampType: LogAppendTime, AppendTime: 77, Compression: Zstd,
		Rebuild: &Rebuild{LastOffsetDelta: 4, HasDeleteHorizon: true, DeleteHorizon: 5000, Control: true},
	}
	if diff := cmp.Diff(o, build(t, o, Record{OffsetDelta: 3}).RebuildOptions()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestAppendEmptied(t *testing.T) {
	got := AppendEmptied([]byte("before"), readHex(t, "idempotent"))
	if want := append([]byte("before"), readHex(t, "emptied")...); !bytes.Equal(got, want) {
		t.Errorf("\n got % x\nwant % x", got, want)
	}
	// The codec and the horizon go, the other flags stay.
	o := BuilderOptions{
		Producer: &Producer{ID: 7}, Transactional: true, Compression: Gzip, TimestampType: LogAppendTime, AppendTime: 5,
		Rebuild: &Rebuild{Control: true, HasDeleteHorizon: true},
	}
	b := Batch(AppendEmptied(nil, build(t, o, Record{})))
	want := attrLogAppendTime | attrTransactional | attrControl
	if b.Attributes() != want || b.MaxTimestamp() != 5 || b.Validate() != nil || b.CheckHeader() != nil {
		t.Errorf("%+v", headerOf(b))
	}
	// Emptying an emptied batch changes nothing.
	if again := AppendEmptied(nil, b); !bytes.Equal(again, b) {
		t.Errorf("\n got % x\nwant % x", again, b)
	}
	for _, name := range []string{"magic0", "magic1"} {
		mustPanic(t, "AppendEmptied of "+name, func() { AppendEmptied(nil, readHex(t, name)) })
		mustPanic(t, "RebuildOptions of "+name, func() { readHex(t, name).RebuildOptions() })
	}
}
