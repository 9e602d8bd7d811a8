package wal

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oncelog/oncelog/internal/kafkatest"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/recovery"
	"github.com/oncelog/oncelog/segment"
)

// fixtureOptions are settings under which a directory of the fixtures is opened: its own index settings, and the clock of
// the day it was written, since producers expire by it.
func fixtureOptions(x *kafkatest.Fixture) Options {
	now := time.UnixMilli(max(1, x.LastTimestamp()))
	return Options{Now: func() time.Time { return now }, IndexIntervalBytes: 512, MaxIndexBytes: 1 << 20, SegmentBytes: 1 << 20, manual: true}
}

// logFiles reads the .log files of a directory, by base offset.
func logFiles(t testing.TB, dir string) map[int64][]byte {
	t.Helper()
	files := map[int64][]byte{}
	for name, p := range readDir(t, dir) {
		if n := segment.Parse(name); n.Kind == segment.KindLog && n.Suffix == "" {
			files[n.Offset] = p
		}
	}
	return files
}

func readDir(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// partitions calls f for each partition directory of a fixture.
func partitions(t *testing.T, x *kafkatest.Fixture, f func(t *testing.T, dir string, d *kafkatest.Dump)) {
	at := x.Unpack(t)
	if x.Kind == kafkatest.KindPartition {
		f(t, at.Partition, x.Partition())
		return
	}
	for name, d := range x.Dumps {
		if d != nil && !strings.HasSuffix(name, "-delete") && !strings.HasPrefix(name, "__cluster_metadata") {
			t.Run(name, func(t *testing.T) { f(t, filepath.Join(at.LogDir, name), d) })
		}
	}
}

// What this library makes of every directory that a broker wrote, under the default policy: it opens, and whatever it cut
// is kept, or it refuses, and nothing has changed.
func TestFixtures_DefaultPolicyLosesNoByte(t *testing.T) {
	opened, refused := 0, 0
	kafkatest.EachFixture(t, func(t *testing.T, x *kafkatest.Fixture) {
		partitions(t, x, func(t *testing.T, dir string, d *kafkatest.Dump) {
			before := readDir(t, dir)
			l, err := Open(context.Background(), dir, fixtureOptions(x))
			if err != nil {
				refused++
				checkRefusal(t, x, dir, before, err)
				return
			}
			opened++
			r := l.RecoveryReport()
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			checkBytesKept(t, dir, before)
			if len(x.DamageDone) == 0 && d.Damage == nil && r.LogEnd != d.LogEndOffset && r.LogStart != r.LogEnd {
				t.Errorf("log end %d, Kafka's classes read %d; %v", r.LogEnd, d.LogEndOffset, r.Findings)
			}
			again, err := Open(context.Background(), dir, fixtureOptions(x))
			if err != nil {
				t.Fatalf("open after our own close: %v", err)
			}
			defer again.Close()
			if r2 := again.RecoveryReport(); !r2.Clean || r2.LogEnd != r.LogEnd || r2.LogStart != r.LogStart || r2.BytesScanned != 0 {
				t.Errorf("second open: %+v, first ended at %d", r2, r.LogEnd)
			}
		})
	})
	t.Logf("%d partitions opened, %d refused", opened, refused)
}

// checkRefusal accepts a refusal only where the damage was done by hand, and only if it left everything as it was.
func checkRefusal(t *testing.T, x *kafkatest.Fixture, dir string, before map[string][]byte, err error) {
	t.Helper()
	var r *recovery.RefusedError
	if !errors.As(err, &r) && !errors.Is(err, ErrUnsupportedVersion) {
		t.Errorf("open: %v", err)
		return
	}
	if len(x.DamageDone) == 0 {
		t.Errorf("refused what no hand has damaged: %v", err)
	}
	after := readDir(t, dir)
	for name, p := range before {
		if !bytes.Equal(after[name], p) {
			t.Errorf("refused, and %s changed", name)
		}
	}
	for name := range after {
		if _, ok := before[name]; !ok {
			t.Errorf("refused, and %s appeared", name)
		}
	}
	t.Logf("refused: %v", err)
}

// checkBytesKept wants every byte of every log file, but for zeros at its end, in the log or in a file of cut bytes.
func checkBytesKept(t *testing.T, dir string, before map[string][]byte) {
	t.Helper()
	after := readDir(t, dir)
	cuts := map[int64]map[int64][]byte{}
	for name, p := range after {
		if n := segment.Parse(name); n.Kind == segment.KindCut {
			if cuts[n.Offset] == nil {
				cuts[n.Offset] = map[int64][]byte{}
			}
			cuts[n.Offset][n.Position] = p
		}
	}
	for name, p := range before {
		n := segment.Parse(name)
		if n.Kind != segment.KindLog || n.HasSuffix(segment.SuffixDeleted) || n.HasSuffix(segment.SuffixCleaned) {
			continue
		}
		n.Suffix = "" // a replacement has been completed
		now := after[n.String()]
		if !bytes.HasPrefix(p, now) && n.String() == name {
			if replaced(before, n) {
				continue
			}
			t.Errorf("%s holds other bytes than before", name)
			continue
		}
		rest := bytes.TrimRight(p[min(len(p), len(now)):], "\x00")
		kept := cuts[n.Offset][int64(len(now))]
		if !bytes.Equal(rest, kept) && !bytes.Equal(rest, bytes.TrimRight(kept, "\x00")) {
			t.Errorf("%s: %d bytes from byte %d on are neither in the log nor kept (%d are)", name, len(rest), len(now), len(kept))
		}
	}
}

func replaced(before map[string][]byte, n segment.Name) bool {
	n.Suffix = segment.SuffixSwap
	_, ok := before[n.String()]
	return ok
}

// pointInTime names the directories of which the policy PointInTime keeps something else than Kafka, and what.
var pointInTime = map[string]string{
	"batch-repeated-at-end-clean":   "the batch that is there twice is cut; Kafka does not look",
	"batch-repeated-at-end-unclean": "what lies before the batch that is there twice; Kafka empties the segment",
	"flip-baseoffset-up-unclean":    "what lies before the batch whose offsets are wrong; Kafka empties the segment",
	"log-start-beyond-end-clean":    "the log, with its start moved to its end; Kafka drops it",
	"log-start-beyond-end-unclean":  "the log, with its start moved to its end; Kafka drops it",
}

// With Compat the log that survives is the one that Kafka kept, and with the policy PointInTime too, or every byte is.
func TestFixtures_KeepWhatKafkaKept(t *testing.T) {
	compared := 0
	kafkatest.EachFixture(t, func(t *testing.T, x *kafkatest.Fixture) {
		after := x.AfterKafkaStart
		if x.Kind != kafkatest.KindPartition || after == nil || after.DirectoryRenamedTo != "" {
			return
		}
		for _, compat := range []bool{false, true} {
			name := "PointInTime"
			if compat {
				name = "Compat"
			}
			t.Run(name, func(t *testing.T) {
				dir := x.Unpack(t).Partition
				before := readDir(t, dir)
				o := fixtureOptions(x)
				o.Compat, o.DamagePolicy = compat, PointInTime
				l, err := Open(context.Background(), dir, o)
				if after.Failed {
					if err == nil {
						defer l.Close()
						t.Logf("Kafka does not start with it; opened with %v", l.RecoveryReport().Findings)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				got := l.Offsets()
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				compared++
				if what := pointInTime[x.Name]; what != "" && !compat {
					checkBytesKept(t, dir, before)
					return
				}
				compareWithKafka(t, x, after, dir, got)
			})
		}
	})
	t.Logf("%d directories compared", compared)
}

func compareWithKafka(t *testing.T, x *kafkatest.Fixture, after *kafkatest.Start, dir string, got Offsets) {
	t.Helper()
	if len(x.ScriptAfterRestart) == 0 && len(after.Offsets) == 1 {
		if want := after.Offsets[0]; got.LogEnd != want.LogEndOffset {
			t.Errorf("log end %d, Kafka's is %d", got.LogEnd, want.LogEndOffset)
		}
	}
	logs := logFiles(t, dir)
	for _, f := range after.Files {
		n := segment.Parse(filepath.Base(f.Path))
		if n.Kind != segment.KindLog || n.Suffix != "" {
			continue
		}
		p, ok := logs[n.Offset]
		delete(logs, n.Offset)
		if !ok && f.Size == 0 {
			continue
		}
		sum := sha256.Sum256(p)
		switch {
		case !ok:
			t.Errorf("segment %d is gone, Kafka kept it", n.Offset)
		case len(x.ScriptAfterRestart) > 0 && int64(len(p)) < f.Size:
		case hex.EncodeToString(sum[:]) != f.SHA256:
			t.Errorf("segment %d: %d bytes, Kafka's has %d, or other ones", n.Offset, len(p), f.Size)
		}
	}
	for base, p := range logs {
		if base >= got.LogStart && len(p) > 0 {
			t.Errorf("segment %d with %d bytes is there, Kafka dropped it", base, len(p))
		}
	}
}

// Files of whole log directories of brokers from 2.8 on are read to the end, record by record.
func TestFixtures_EveryRecordIsRead(t *testing.T) {
	kafkatest.EachFixture(t, func(t *testing.T, x *kafkatest.Fixture) {
		partitions(t, x, func(t *testing.T, dir string, d *kafkatest.Dump) {
			if d.Damage != nil {
				return
			}
			o := fixtureOptions(x)
			o.ReadOnly = true
			before := readDir(t, dir)
			l, err := Open(context.Background(), dir, o)
			if errors.Is(err, ErrUnsupportedVersion) || errors.Is(err, ErrNotLog) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if len(l.RecoveryReport().Holes) == 0 {
				if err := compareBatches(l, d, x); err != nil {
					t.Error(err)
				}
			}
			if after := readDir(t, dir); fmt.Sprint(sums(before)) != fmt.Sprint(sums(after)) {
				t.Error("a read-only open changed the directory")
			}
		})
	})
}

func sums(files map[string][]byte) map[string][32]byte {
	m := map[string][32]byte{}
	for name, p := range files {
		m[name] = sha256.Sum256(p)
	}
	return m
}

// inOrder is how many batches have offsets above those before them.
func inOrder(list []kafkatest.Batch) int {
	for i := 1; i < len(list); i++ {
		if list[i].BaseOffset <= list[i-1].LastOffset {
			return i
		}
	}
	return len(list)
}

// compareBatches reads the log from its start and compares it with what Kafka's classes read.
func compareBatches(l *Log, d *kafkatest.Dump, x *kafkatest.Fixture) error {
	var want []kafkatest.Batch
	for _, s := range d.Segments {
		want = append(want, s.Batches...)
	}
	start := l.Offsets().LogStart
	for len(want) > 0 && want[0].LastOffset < start {
		want = want[1:]
	}
	stored, err := readAll(l)
	if n := inOrder(want); errors.Is(err, ErrCorrupt) && n < len(want) {
		want = want[:n] // an offset that was changed, which Kafka's classes do not look at
	} else if err != nil {
		return err
	}
	for _, name := range d.OtherFiles {
		if strings.HasSuffix(name, segment.SuffixSwap) {
			return nil // a replacement that counts, which the dump does not look at
		}
	}
	if len(x.DamageDone) > 0 && len(stored) < len(want) {
		want = want[:len(stored)] // batches added by hand that do not continue the log
	}
	if len(stored) != len(want) {
		return fmt.Errorf("%d batches, Kafka's classes read %d", len(stored), len(want))
	}
	for i, p := range stored {
		b := record.Batch(p)
		if b.LastOffset() != want[i].LastOffset || b.CRC() != want[i].CRC || int64(b.Size()) != want[i].Size {
			return fmt.Errorf("batch %d ends at %d with checksum %08x, Kafka's classes read %d and %08x", i, b.LastOffset(), b.CRC(), want[i].LastOffset, want[i].CRC)
		}
	}
	return nil
}
