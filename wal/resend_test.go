package wal

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
)

// A sender keeps one buffer and sends it until it is acknowledged: after a refusal and after an answer that was lost. It is
// the same batch each time, also where the log stamps its own time.
func TestAppendAsLeader_SameBytesAgain(t *testing.T) {
	for _, mode := range modes {
		for _, stamp := range []record.TimestampType{record.CreateTime, record.LogAppendTime} {
			t.Run(mode.String()+"/"+stamp.String(), func(t *testing.T) {
				mem := vfstest.NewMem()
				l := openFS(t, mem, Options{Sync: mode, TimestampType: stamp, SegmentBytes: 3000})
				for i := range int32(10) {
					batch := producerBatch(t, 7, 0, i, string(bytes.Repeat([]byte("v"), 1000)))
					sent := bytes.Clone(batch)
					mem.SetCapacity(1)
					if _, err := l.AppendAsLeader(batch, LeaderAppend{LeaderEpoch: 3}); err == nil {
						t.Logf("batch %d had room in what was reserved", i)
					} else if !errors.Is(err, vfs.ErrNoSpace) {
						t.Fatal(err)
					}
					mem.SetCapacity(0)
					for range 3 {
						if !bytes.Equal(batch, sent) {
							t.Fatalf("batch %d was changed", i)
						}
						info, err := l.AppendAsLeader(batch, LeaderAppend{LeaderEpoch: 3})
						if err != nil || info.FirstOffset != int64(i) {
							t.Fatalf("batch %d, sent again: %+v, %v", i, info, err)
						}
					}
				}
				want := int64(0)
				f, err := l.Read(0, ReadOptions{MaxBytes: 1 << 20})
				for err == nil && f.Records.Size > 0 {
					for b, batchErr := range f.Records.Batches() {
						if batchErr != nil || b.BaseOffset() != want || b.PartitionLeaderEpoch() != 3 || b.TimestampType() != stamp {
							t.Fatalf("stored: offset %d, epoch %d, %v, %v", b.BaseOffset(), b.PartitionLeaderEpoch(), b.TimestampType(), batchErr)
						}
						want++
					}
					_ = f.Close()
					f, err = l.Read(want, ReadOptions{MaxBytes: 1 << 20})
				}
				if err != nil || want != 10 {
					t.Fatalf("%d batches read, %v", want, err)
				}
			})
		}
	}
}

// Kafka goes by the clock alone. Here it counts only as far as the log has come: a log at rest forgets nobody.
func TestDifference_ExpiryOfALogAtRest(t *testing.T) {
	for _, compat := range []bool{false, true} {
		_, dir := kafkaParent(t)
		now := time.UnixMilli(1_700_000_000_000)
		l := openTest(t, dir, Options{Compat: compat, ProducerIDExpiration: time.Hour, Now: func() time.Time { return now }})
		appendFive(t, l)
		expire := func(when string, want int) {
			t.Helper()
			if n := l.RemoveExpiredProducers(now); n != want {
				t.Errorf("compat %v: %s: %d producers expired, want %d", compat, when, n, want)
			}
		}
		expire("at once", 0)
		now = now.Add(time.Hour)
		if compat {
			expire("an hour later", 1)
			continue
		}
		expire("an hour later, without an append", 0)
		if _, err := l.Append(Record{Value: []byte("v")}); err != nil {
			t.Fatal(err)
		}
		expire("an hour later, behind an append", 1)
	}
}
