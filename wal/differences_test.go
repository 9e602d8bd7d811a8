package wal

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oncelog/oncelog/segment"
)

// The tests here show where the log differs from Kafka 4.4 on purpose, and that Compat turns the difference off.

// kafkaParent makes a directory look like Kafka's log directory and returns the partition's path in it.
func kafkaParent(t *testing.T) (parent, dir string) {
	t.Helper()
	parent = t.TempDir()
	for name, content := range map[string]string{
		"meta.properties":                  "version=1\nnode.id=1\ncluster.id=c\n",
		"recovery-point-offset-checkpoint": "0\n0\n",
		"log-start-offset-checkpoint":      "0\n0\n",
	} {
		if err := os.WriteFile(filepath.Join(parent, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return parent, filepath.Join(parent, "t-0")
}

// leaveAsKafka removes what only this library writes, and the snapshots if asked, and marks a clean stop.
func leaveAsKafka(t *testing.T, parent, dir string, snapshots bool) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "oncelog.") || !snapshots && segment.Parse(e.Name()).Kind == segment.KindSnapshot {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(parent, ".kafka_cleanshutdown"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

func appendFive(t *testing.T, l *Log) {
	t.Helper()
	for i := range int32(6) {
		if _, err := l.AppendAsLeader(producerBatch(t, 7, 0, i, "v"), LeaderAppend{}); err != nil {
			t.Fatal(err)
		}
	}
}

// retries tells how many of the last five batches are still known.
func retries(t *testing.T, l *Log) (known int) {
	t.Helper()
	for i := int32(1); i < 6; i++ {
		info, err := l.AppendAsLeader(producerBatch(t, 7, 0, i, "v"), LeaderAppend{})
		if err != nil && !errors.Is(err, ErrOutOfOrderSequence) {
			t.Fatal(err)
		}
		if err == nil && info.Duplicate && info.FirstOffset == int64(i) {
			known++
		}
	}
	return known
}

// Kafka takes a clean start without a snapshot for an upgrade and forgets every producer.
func TestDifference_CleanStartWithoutSnapshots(t *testing.T) {
	for _, compat := range []bool{false, true} {
		parent, dir := kafkaParent(t)
		l := openTest(t, dir, Options{})
		appendFive(t, l)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		leaveAsKafka(t, parent, dir, false)
		l = openTest(t, dir, Options{Compat: compat, Now: func() time.Time { return time.UnixMilli(1_700_000_000_000) }})
		if got := len(producersOf(l)); got != 1 && !compat || got != 0 && compat {
			t.Errorf("compat %v: %d producers are known", compat, got)
		}
		if !compat {
			if known := retries(t, l); known != 5 {
				t.Errorf("%d of five batches are known", known)
			}
		}
	}
}

func producersOf(l *Log) (ids []int64) {
	for e := range l.Producers() {
		ids = append(ids, e.ProducerID)
	}
	return ids
}

// Kafka's snapshot keeps one batch of each producer.
func TestDifference_FiveBatchesAcrossRestarts(t *testing.T) {
	for _, compat := range []bool{false, true} {
		_, dir := kafkaParent(t)
		o := Options{Compat: compat, Now: func() time.Time { return time.UnixMilli(1_700_000_000_000) }}
		l := openTest(t, dir, o)
		appendFive(t, l)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		leaveMarker(t, dir)
		l = openTest(t, dir, o)
		want := 5
		if compat {
			want = 1
		}
		if known := retries(t, l); known != want {
			t.Errorf("compat %v: %d batches are known after a restart, want %d", compat, known, want)
		}
	}
}

func leaveMarker(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(filepath.Dir(dir), ".kafka_cleanshutdown"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Kafka judges the age of a producer by the clock at the start alone.
func TestDifference_ClockJumpAtARestart(t *testing.T) {
	for _, compat := range []bool{false, true} {
		_, dir := kafkaParent(t)
		now := time.UnixMilli(1_700_000_000_000)
		o := Options{Compat: compat, Now: func() time.Time { return now }}
		l := openTest(t, dir, o)
		appendFive(t, l)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		leaveMarker(t, dir)
		now = now.AddDate(10, 0, 0)
		l = openTest(t, dir, o)
		l.RemoveExpiredProducers(now)
		if got := len(producersOf(l)); (got == 0) != compat {
			t.Errorf("compat %v: %d producers are known ten years later", compat, got)
		}
	}
}

// Kafka 4.4 leaves reserved space behind when a log is closed without the steps before it.
func TestDifference_ClosedLogIsTrimmed(t *testing.T) {
	dir := t.TempDir()
	l := openTest(t, dir, Options{Preallocate: true, SegmentBytes: 1 << 20})
	appendFive(t, l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []segment.Kind{segment.KindLog, segment.KindOffsetIndex, segment.KindTimeIndex} {
		info, err := os.Stat(filepath.Join(dir, segment.FileName(kind, 0)))
		if err != nil {
			t.Fatal(err)
		}
		if want := map[segment.Kind]int64{segment.KindLog: 6 * int64(len(producerBatch(t, 7, 0, 0, "v"))), segment.KindTimeIndex: 12}[kind]; info.Size() != want {
			t.Errorf("%s has %d bytes after Close, want %d", info.Name(), info.Size(), want)
		}
	}
}
