package wal

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/oncelog/oncelog/internal/kafkatest"
	"github.com/oncelog/oncelog/record"
)

func TestListOffsets_Isolation(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{ManualHighWatermark: true})
	lead := func(p []byte, epoch int32) {
		t.Helper()
		if _, err := l.AppendAsLeader(p, LeaderAppend{LeaderEpoch: epoch}); err != nil {
			t.Fatal(err)
		}
	}
	lead(timedBatch(t, record.None, 100, 300), 0)           // 0, 1
	lead(txnRecord(t, record.Producer{ID: 7, Epoch: 0}), 0) // 2
	lead(timedBatch(t, record.None, 200, 400), 0)           // 3, 4
	if _, err := l.UpdateHighWatermark(4); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		offset int64 // −1: not found, −2: ErrOffsetNotAvailable
		epoch  int32
	}
	none, later := answer{-1, -1}, answer{-2, 0}
	check := func(ms int64, i Isolation, want answer) {
		t.Helper()
		hit, found, err := l.ListOffsets(ms, i)
		got := answer{hit.Offset, hit.LeaderEpoch}
		if errors.Is(err, ErrOffsetNotAvailable) {
			got = later
			if code, _ := ErrorCode(err); code != 78 {
				t.Errorf("code %d", code)
			}
		} else if err != nil || found == (want == none) && ms >= 0 {
			t.Errorf("%d at level %d: %v, %v", ms, i, found, err)
		}
		if got != want {
			t.Errorf("%d at level %d: %+v, want %+v", ms, i, got, want)
		}
	}
	for i, stable := range map[Isolation]int64{LogEnd: 5, HighWatermark: 4, TxnCommitted: 2} {
		check(LatestTimestamp, i, answer{stable, 0})
		check(EarliestTimestamp, i, answer{0, 0})
		check(EarliestLocalTimestamp, i, answer{0, 0})
		check(LatestTieredTimestamp, i, none)
		check(EarliestPendingUploadTimestamp, i, none)
		check(100, i, answer{0, 0})
	}
	check(301, LogEnd, answer{2, 0}) // the record of the transaction has a time of today
	check(301, HighWatermark, answer{2, 0})
	check(301, TxnCommitted, none)
	check(MaxTimestamp, LogEnd, answer{2, 0})
	check(MaxTimestamp, TxnCommitted, none)
	check(math.MaxInt64, LogEnd, none)

	// A new leader: what it has above the high watermark it does not know yet.
	lead(timedBatch(t, record.None, 500), 3) // 5
	check(LatestTimestamp, LogEnd, answer{6, 3})
	check(LatestTimestamp, HighWatermark, later)
	check(LatestTimestamp, TxnCommitted, later)
	check(301, TxnCommitted, later)
	check(100, HighWatermark, answer{0, 0})
	check(EarliestTimestamp, HighWatermark, answer{0, 0})
	if _, err := l.UpdateHighWatermark(5); err != nil {
		t.Fatal(err)
	}
	check(LatestTimestamp, HighWatermark, answer{5, 3})
	if _, _, err := l.ListOffsets(-9, HighWatermark); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("no time at all: %v", err)
	}
}

// Look-ups by time in directories that brokers wrote, of every format, equal a walk over all records. Format 0 has no times.
func TestFixtures_LookUpByTime(t *testing.T) {
	compared := 0
	kafkatest.EachFixture(t, func(t *testing.T, x *kafkatest.Fixture) {
		partitions(t, x, func(t *testing.T, dir string, _ *kafkatest.Dump) {
			o := fixtureOptions(x)
			o.ReadOnly = true
			l, err := Open(context.Background(), dir, o)
			if errors.Is(err, ErrUnsupportedVersion) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if len(l.RecoveryReport().Holes) > 0 {
				return // what a look-up meets there is its own subject
			}
			all, err := walk(l)
			if errors.Is(err, ErrCorrupt) {
				return // damage that an open need not meet
			}
			if err != nil {
				t.Fatal(err)
			}
			compared++
			asked := map[int64]bool{0: true, math.MaxInt64: true}
			for _, r := range all {
				if r.Timestamp >= 0 && len(asked) < 60 {
					asked[r.Timestamp], asked[r.Timestamp+1] = true, true
				}
			}
			for ms := range asked {
				want, isThere := noTimestampOffset, false
				for _, r := range all {
					if isThere = r.Timestamp >= ms; isThere {
						want = r
						break
					}
				}
				got, found, err := l.OffsetForTimestamp(ms)
				if err != nil || found != isThere || got != want {
					t.Fatalf("first at %d or later: %+v, %v, %v, want %+v", ms, got, found, err, want)
				}
			}
			newest := noTimestampOffset
			for _, r := range all {
				if r.Timestamp > newest.Timestamp {
					newest = r
				}
			}
			if got, _, err := l.OffsetForTimestamp(MaxTimestamp); err != nil || got != newest {
				t.Fatalf("greatest timestamp: %+v, %v, want %+v", got, err, newest)
			}
			start, _, err := l.OffsetForTimestamp(EarliestTimestamp)
			end, _, errEnd := l.OffsetForTimestamp(LatestTimestamp)
			if p := l.Offsets(); err != nil || errEnd != nil || start.Offset != p.LogStart || end.Offset != p.LogEnd {
				t.Errorf("earliest %+v, %v, latest %+v, %v, want %+v", start, err, end, errEnd, p)
			}
		})
	})
	t.Logf("%d directories compared", compared)
	if compared < 10 && !t.Failed() {
		t.Error("nearly nothing was compared")
	}
}

// walk reads every record, control records too, as answers of look-ups.
func walk(l *Log) (list []TimestampOffset, err error) {
	batches, err := readAll(l)
	if err != nil {
		return nil, err
	}
	start := l.Offsets().LogStart
	for _, p := range batches {
		b := record.Batch(p)
		for r, err := range b.Records(record.Limits{}) {
			if err != nil {
				return nil, err
			}
			if r.Offset >= start {
				list = append(list, TimestampOffset{r.Timestamp, r.Offset, b.PartitionLeaderEpoch()})
			}
		}
	}
	return list, nil
}
