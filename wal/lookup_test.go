package wal

import (
	"errors"
	"testing"

	"github.com/oncelog/oncelog/record"
)

// timedBatch builds a batch with one record for each timestamp.
func timedBatch(t testing.TB, c record.Compression, timestamps ...int64) []byte {
	t.Helper()
	b := record.NewBuilder(record.BuilderOptions{Compression: c})
	for _, ts := range timestamps {
		if err := b.Append(ts, record.Record{Key: []byte("k"), Value: []byte("some value")}); err != nil {
			t.Fatal(err)
		}
	}
	p, err := b.Batch()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte(nil), p...)
}

func TestOffsetForTimestamp(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{SegmentBytes: 400, IndexIntervalBytes: 1})
	type hit struct {
		offset, timestamp int64
		epoch             int32
		found             bool
	}
	ask := func(ms int64) hit {
		t.Helper()
		h, found, err := l.OffsetForTimestamp(ms)
		if err != nil {
			t.Fatal(err)
		}
		return hit{h.Offset, h.Timestamp, h.LeaderEpoch, found}
	}
	none := hit{-1, -1, -1, false}
	for _, ms := range []int64{0, 1000, MaxTimestamp} {
		if got := ask(ms); got != none {
			t.Errorf("empty log, %d: %+v", ms, got)
		}
	}
	// Times go up and down, in batches and over segments: offsets 0..2, 3, 4..5, 6..7, 8.
	for i, times := range [][]int64{{100, 300, 200}, {150}, {500, 400}, {450, 500}, {50}} {
		if _, err := l.AppendAsLeader(timedBatch(t, record.Compression(i%5), times...), LeaderAppend{LeaderEpoch: int32(i / 2)}); err != nil {
			t.Fatal(err)
		}
	}
	if l.Stats().Segments < 2 {
		t.Fatal("one segment")
	}
	tests := []struct {
		ms   int64
		want hit
	}{
		{0, hit{0, 100, 0, true}},
		{100, hit{0, 100, 0, true}},
		{101, hit{1, 300, 0, true}},
		{301, hit{4, 500, 1, true}},
		{500, hit{4, 500, 1, true}},
		{501, none},
		{LatestTimestamp, hit{9, -1, 2, true}},
		{EarliestTimestamp, hit{0, -1, 0, true}},
		{EarliestLocalTimestamp, hit{0, -1, 0, true}},
		{MaxTimestamp, hit{4, 500, 1, true}},
		{LatestTieredTimestamp, hit{-1, -1, -1, true}},
		{EarliestPendingUploadTimestamp, hit{-1, -1, -1, true}},
	}
	for _, tt := range tests {
		if got := ask(tt.ms); got != tt.want {
			t.Errorf("%d: %+v, want %+v", tt.ms, got, tt.want)
		}
	}
	if _, _, err := l.OffsetForTimestamp(-7); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("-7: %v", err)
	}

	// Nothing below the log start is an answer, not even out of the batch that holds it.
	for _, tt := range []struct{ start, any, newest int64 }{{1, 1, 4}, {2, 2, 4}, {5, 5, 7}, {7, 7, 7}, {8, 8, 8}} {
		l.mu.Lock()
		l.ends.logStart = tt.start
		l.publish()
		l.mu.Unlock()
		if got := ask(0); got.offset != tt.any {
			t.Errorf("log start %d: first record %+v, want %d", tt.start, got, tt.any)
		}
		if got := ask(MaxTimestamp); got.offset != tt.newest {
			t.Errorf("log start %d: newest record %+v, want %d", tt.start, got, tt.newest)
		}
		if got := ask(EarliestTimestamp); got.offset != tt.start {
			t.Errorf("log start %d: earliest %+v", tt.start, got)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.OffsetForTimestamp(0); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

func TestOffsetForLeaderEpoch(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{})
	if _, _, found := l.OffsetForLeaderEpoch(0); found {
		t.Error("an empty log knows an epoch")
	}
	for _, epoch := range []int32{2, 2, 5, 7} {
		if _, err := l.AppendAsLeader(timedBatch(t, record.None, 1, 2), LeaderAppend{LeaderEpoch: epoch}); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		ask, epoch int32
		end        int64
		found      bool
	}{
		{-1, -1, -1, false}, {0, 0, 0, true}, {2, 2, 4, true}, {3, 2, 4, true}, {5, 5, 6, true}, {7, 7, 8, true}, {8, -1, -1, false},
	}
	for _, tt := range tests {
		if epoch, end, found := l.OffsetForLeaderEpoch(tt.ask); epoch != tt.epoch || end != tt.end || found != tt.found {
			t.Errorf("epoch %d: %d %d %v, want %+v", tt.ask, epoch, end, found, tt)
		}
	}
}
