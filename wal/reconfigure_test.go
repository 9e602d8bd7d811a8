package wal

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
)

func reconfigure(t testing.TB, l *Log, change func(o *Options)) {
	t.Helper()
	if err := l.Reconfigure(change); err != nil {
		t.Fatal(err)
	}
}

// Each setting that may change does, for what comes next, and what is not named stays.
func TestReconfigure(t *testing.T) {
	now := start
	l := openTest(t, t.TempDir(), Options{SegmentBytes: 1000, Now: func() time.Time { return now }, VerifyTransactions: true})
	reconfigure(t, l, func(o *Options) {
		if o.SegmentBytes != 1000 || o.MaxMessageBytes != 0 || o.Now != nil || o.Logger != nil {
			t.Errorf("given: %+v", o)
		}
		o.MaxMessageBytes = 300
	})
	if o := l.Options(); o.SegmentBytes != 1000 || o.MaxMessageBytes != 300 || o.IndexIntervalBytes != 4096 || o.Now == nil {
		t.Errorf("now: %+v", o)
	}
	if _, err := l.Append(Record{Value: make([]byte, 400)}); !errors.Is(err, ErrMessageTooLarge) {
		t.Errorf("above the new MaxMessageBytes: %v", err)
	}
	reconfigure(t, l, func(o *Options) { o.MaxMessageBytes, o.SegmentBytes = 0, 500 })
	put(t, l, Record{Value: make([]byte, 300)})
	put(t, l, Record{Value: make([]byte, 300)})
	if n := l.set.Len(); n != 2 {
		t.Errorf("%d segments, the new SegmentBytes ask for 2", n)
	}
	if _, err := l.Append(Record{Value: make([]byte, 600)}); !errors.Is(err, ErrBatchTooLarge) {
		t.Errorf("above the new SegmentBytes: %v", err)
	}

	reconfigure(t, l, func(o *Options) { o.TimestampType = record.LogAppendTime })
	if r := put(t, l, Record{Time: start.Add(-time.Hour)}); storedAt(t, l, r.First).Time.UnixMilli() != now.UnixMilli() {
		t.Errorf("stored with time %v", storedAt(t, l, r.First).Time)
	}
	reconfigure(t, l, func(o *Options) { o.TimestampType, o.TimestampBeforeMax = record.CreateTime, time.Minute })
	if _, err := l.Append(Record{Time: start.Add(-time.Hour)}); !errors.Is(err, ErrInvalidTimestamp) {
		t.Errorf("a record older than the new TimestampBeforeMax: %v", err)
	}
	reconfigure(t, l, func(o *Options) {
		o.TimestampBeforeMax, o.Compression = 0, Compression{Codec: record.Zstd, Recompress: true}
	})
	info, err := l.AppendAsLeader(producerBatch(t, 7, 0, 0, "plain"), LeaderAppend{})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := l.batchAt(info.FirstOffset); err != nil || b.Attributes().Compression() != record.Zstd {
		t.Errorf("stored with %v, %v", b.Attributes().Compression(), err)
	}

	txn := record.NewBuilder(record.BuilderOptions{Transactional: true, Producer: &record.Producer{ID: 8}})
	if err := txn.Append(start.UnixMilli(), record.Record{}); err != nil {
		t.Fatal(err)
	}
	batch, err := txn.Batch()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.AppendAsLeader(append([]byte(nil), batch...), LeaderAppend{}); !errors.Is(err, ErrInvalidTxnState) {
		t.Errorf("without a guard: %v", err)
	}
	reconfigure(t, l, func(o *Options) { o.VerifyTransactions = false })
	if _, err := l.AppendAsLeader(append([]byte(nil), batch...), LeaderAppend{}); err != nil {
		t.Errorf("without verification: %v", err)
	}
	reconfigure(t, l, func(o *Options) { o.UnknownProducers = UnknownRefused })
	if _, err := l.AppendAsLeader(producerBatch(t, 99, 0, 5, "x"), LeaderAppend{}); !errors.Is(err, ErrUnknownProducerID) {
		t.Errorf("an unknown producer with sequence 5: %v", err)
	}
	reconfigure(t, l, func(o *Options) { o.UnknownProducers, o.ProducerIDExpiration = 0, time.Minute })
	now = now.Add(time.Hour)
	put(t, l, Record{})
	if n := l.RemoveExpiredProducers(now); n != 1 { // 7; 8 has an open transaction
		t.Errorf("%d producers expired", n)
	}
}

func storedAt(t testing.TB, l *Log, offset int64) Stored {
	t.Helper()
	for s, err := range l.Records(offset) {
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	t.Fatalf("no record at %d", offset)
	return Stored{}
}

func TestReconfigure_Refused(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{GroupBytes: 2 << 20})
	for name, c := range map[string]struct {
		change func(o *Options)
		says   []string
	}{
		"Sync":                {func(o *Options) { o.Sync = SyncNone }, []string{"Sync"}},
		"DamagePolicy":        {func(o *Options) { o.DamagePolicy = Strict }, []string{"DamagePolicy"}},
		"ManualHighWatermark": {func(o *Options) { o.ManualHighWatermark = true }, []string{"ManualHighWatermark"}},
		"Compat":              {func(o *Options) { o.Compat = true }, []string{"Compat"}},
		"ReadOnly":            {func(o *Options) { o.ReadOnly = true }, []string{"ReadOnly"}},
		"Logger":              {func(o *Options) { o.Logger = slog.Default() }, []string{"Logger"}},
		"Now":                 {func(o *Options) { o.Now = time.Now }, []string{"Now"}},
		"not valid":           {func(o *Options) { o.SegmentBytes = 3 }, []string{"SegmentBytes"}},
		"two that cannot be":  {func(o *Options) { o.MaxMessageBytes = 3 << 20 }, []string{"GroupBytes", "MaxMessageBytes"}},
		"retention":           {func(o *Options) { o.RetentionBytes = -2 }, []string{"RetentionBytes", "RetainNothing"}},
	} {
		before := l.Options()
		err := l.Reconfigure(func(o *Options) {
			o.IndexIntervalBytes = 77
			c.change(o)
		})
		for _, word := range c.says {
			if !errors.Is(err, ErrInvalidOptions) || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if now := l.Options(); now.IndexIntervalBytes != before.IndexIntervalBytes {
			t.Errorf("%s: half of it was taken", name)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Reconfigure(func(*Options) {}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	r := openTest(t, l.dir, Options{ReadOnly: true})
	if err := r.Reconfigure(func(*Options) {}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("read-only: %v", err)
	}
}

// A greater batch may make a greater group, of which a recovery has to know before a crash tears it.
func TestReconfigure_AnnouncesGreaterGroups(t *testing.T) {
	l, mem := openMem(t, Options{manual: true})
	put(t, l, Record{})
	reconfigure(t, l, func(o *Options) { o.MaxMessageBytes = 4 << 20 })
	if got := l.Options().GroupBytes; got != 4<<20 || l.groupBound != 4<<20 {
		t.Errorf("GroupBytes %d, bound %d", got, l.groupBound)
	}
	if slot, ok := l.state.Newest(); !ok || slot.GroupBound != 4<<20 {
		t.Errorf("the state file says %d", slot.GroupBound)
	}
	// A torn group of more than the old bound is an interrupted write, not damage.
	put(t, l, Record{Value: make([]byte, 4<<20-1000)})
	after := mem.Crash(vfstest.CrashOptions{Mode: vfstest.Kill})
	if _, err := OpenFS(context.Background(), after, simDir, Options{manual: true}); err != nil {
		t.Error(err)
	}
}

// The goroutine that syncs by time goes by the new time at once.
func TestReconfigure_SyncEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := openMem(t, Options{Sync: SyncInterval, SyncEvery: time.Hour})
		defer l.Close()
		put(t, l, Record{})
		time.Sleep(time.Minute)
		if n := l.Stats().UnsyncedBytes; n == 0 {
			t.Error("synced before its time")
		}
		reconfigure(t, l, func(o *Options) { o.SyncEvery = 100 * time.Millisecond })
		time.Sleep(300 * time.Millisecond)
		if n := l.Stats().UnsyncedBytes; n != 0 {
			t.Errorf("%d bytes are not synced", n)
		}
	})
}

// Appends, rolls and changes at the same time: for the race detector, and nothing is lost.
func TestReconfigure_Concurrent(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{SegmentBytes: 1000, Sync: SyncNone})
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			for i := range 100 {
				if w == 0 {
					if err := l.Reconfigure(func(o *Options) {
						o.SegmentBytes = 500 + int32(i%7)*100
						o.MaxMessageBytes = 400 + int32(i%5)*50
						o.Compression.Codec = record.Compression(i % 2)
					}); err != nil {
						t.Error(err)
					}
					continue
				}
				if _, err := l.Append(Record{Key: []byte("k"), Value: make([]byte, 100)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	n := 0
	for _, err := range l.Records(0) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 200 {
		t.Errorf("%d records", n)
	}
}
