package wal

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/kafkadir"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/record"
)

// txnRecord builds a batch of a transaction, with one record.
func txnRecord(t testing.TB, p record.Producer) []byte {
	t.Helper()
	b := record.NewBuilder(record.BuilderOptions{Producer: &p, Transactional: true})
	if err := b.Append(1_700_000_000_000, record.Record{Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	out, err := b.Batch()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte(nil), out...)
}

func TestTransaction_VerifyAppendEnd(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	o := Options{VerifyTransactions: true, Now: func() time.Time { return now }}
	dir := t.TempDir()
	l := openTest(t, dir, o)
	p := record.Producer{ID: 7}
	if _, err := l.AppendAsLeader(txnRecord(t, p), LeaderAppend{}); !errors.Is(err, ErrInvalidTxnState) {
		t.Fatalf("without a guard: %v", err)
	}
	stale, err := l.VerifyTransaction(p, false)
	if err != nil || stale == producerstate.NoGuard {
		t.Fatal(stale, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	// A guard of an earlier run of the log is worth nothing, whatever was handed out since.
	l = openTest(t, dir, o)
	guard, err := l.VerifyTransaction(p, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.AppendAsLeader(txnRecord(t, p), LeaderAppend{Guard: stale}); !errors.Is(err, ErrInvalidTxnState) {
		t.Fatalf("with a guard of the run before: %v", err)
	}
	if _, err := l.AppendAsLeader(txnRecord(t, p), LeaderAppend{Guard: guard}); err != nil {
		t.Fatal(err)
	}
	if again, err := l.VerifyTransaction(p, false); err != nil || again != producerstate.NoGuard {
		t.Errorf("guard %d for an open transaction, %v", again, err)
	}
	if txns := l.OpenTransactions(); len(txns) != 1 || txns[0].ProducerID != 7 || txns[0].FirstOffset != 0 {
		t.Errorf("open: %+v", txns)
	}
	if l.HasLateTransaction(now) || !l.HasLateTransaction(now.Add(21*time.Minute)) {
		t.Error("late transaction")
	}
	if n := l.RemoveExpiredProducers(now.Add(1000 * time.Hour)); n != 0 {
		t.Errorf("%d producers with an open transaction expired", n)
	}
	if o := l.Offsets(); o.LastStable != 0 || o.LogEnd != 1 {
		t.Errorf("%+v", o)
	}

	abort := record.EndTxnMarker{Type: record.Abort, CoordinatorEpoch: 3}
	info, err := l.AppendEndTxnMarker(p, abort, MarkerAppend{LeaderEpoch: 2})
	if err != nil || info.FirstOffset != 1 || info.MaxTimestamp != now.UnixMilli() {
		t.Fatalf("%+v %v", info, err)
	}
	if o := l.Offsets(); o.LastStable != 2 || len(l.OpenTransactions()) != 0 {
		t.Errorf("%+v", o)
	}
	f, err := l.Read(0, ReadOptions{MaxBytes: 1 << 20, Isolation: TxnCommitted})
	if err != nil || len(f.Aborted) != 1 || f.Aborted[0].ProducerID != 7 {
		t.Errorf("aborted %+v, %v", f.Aborted, err)
	}
	f.Close()
	e, ok := l.ProducerEntry(7)
	if !ok || e.CoordinatorEpoch != 3 || e.CurrentTxnFirstOffset != producerstate.NoOffset {
		t.Errorf("%+v", e)
	}
	n := 0
	for e := range l.Producers() {
		n++
		// The loop may ask the log.
		if _, ok := l.ProducerEntry(e.ProducerID); !ok {
			t.Error("gone")
		}
	}
	if n != 1 || l.Stats().Producers.Producers != 1 {
		t.Errorf("%d producers", n)
	}

	for _, tt := range []struct {
		p    record.Producer
		m    record.EndTxnMarker
		o    MarkerAppend
		want error
	}{
		{record.Producer{ID: -1}, abort, MarkerAppend{}, ErrInvalidArgument},
		{record.Producer{ID: 7, Epoch: -1}, abort, MarkerAppend{}, ErrInvalidArgument},
		{p, record.EndTxnMarker{Type: record.LeaderChange}, MarkerAppend{}, ErrInvalidArgument},
		{p, abort, MarkerAppend{Time: time.UnixMilli(-2)}, ErrInvalidArgument},
		{p, record.EndTxnMarker{Type: record.Commit, CoordinatorEpoch: 2}, MarkerAppend{}, ErrCoordinatorFenced},
		{p, abort, MarkerAppend{TransactionVersion: 3}, producerstate.ErrTransactionVersion},
	} {
		if _, err := l.AppendEndTxnMarker(tt.p, tt.m, tt.o); !errors.Is(err, tt.want) {
			t.Errorf("%+v: %v, want %v", tt, err, tt.want)
		}
	}
	if n := l.RemoveExpiredProducers(now.Add(1000 * time.Hour)); n > 1 {
		t.Errorf("%d producers expired", n)
	}
}

// A raft leader gives its batches offsets and its epoch itself.
func TestAppendAsLeader_Raft(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{})
	batch := func(base int64, epoch int32) []byte {
		b := record.Batch(timedBatch(t, record.None, 1, 2))
		b.SetBaseOffset(base)
		b.SetPartitionLeaderEpoch(epoch)
		return b
	}
	two := append(batch(0, 3), batch(2, 3)...)
	info, err := l.AppendAsLeader(two, LeaderAppend{Origin: Raft, LeaderEpoch: 3})
	if err != nil || info.FirstOffset != 0 || info.LastOffset != 3 {
		t.Fatalf("%+v %v", info, err)
	}
	for _, tt := range []struct {
		p    []byte
		want error
	}{
		{batch(4, 2), ErrInvalidRecord},
		{batch(0, 3), ErrUnexpectedOffset},
		{append(batch(6, 3), batch(4, 3)...), ErrOffsetsOutOfOrder},
	} {
		if _, err := l.AppendAsLeader(tt.p, LeaderAppend{Origin: Raft, LeaderEpoch: 3}); !errors.Is(err, tt.want) {
			t.Errorf("%v, want %v", err, tt.want)
		}
	}
	if o := l.Offsets(); o.LogEnd != 4 {
		t.Errorf("%+v", o)
	}
}

// compatDir returns a partition directory in a log directory of Kafka's, stopped in order.
func compatDir(t testing.TB) string {
	t.Helper()
	parent := t.TempDir()
	for _, err := range []error{
		os.WriteFile(filepath.Join(parent, kafkadir.PropertiesFile), nil, 0o644),
		checkpoint.WriteOffsets(vfs.OS, filepath.Join(parent, checkpoint.RecoveryPointFile), nil),
		checkpoint.WriteOffsets(vfs.OS, filepath.Join(parent, checkpoint.LogStartFile), nil),
		kafkadir.WriteMarker(vfs.OS, parent, kafkadir.UnknownBrokerEpoch),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(parent, "t-0")
}

// With Compat nothing but the lock is ours in the directory, whatever was called.
func TestCompat_NoFilesOfOurs(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			dir := compatDir(t)
			now := time.UnixMilli(1_700_000_000_000) // of the batches, by which producers expire
			o := Options{Compat: true, Sync: mode, SegmentBytes: 400, CheckpointBytes: 1, Now: func() time.Time { return now }}
			l := openTest(t, dir, o)
			for i := range 12 {
				if _, err := l.AppendAsLeader(producerBatch(t, 7, 0, int32(i), "some value"), LeaderAppend{}); err != nil {
					t.Fatal(err)
				}
				for _, f := range []func() error{l.Checkpoint, l.Flush, l.Roll, l.Roll, l.TakeProducerSnapshot}[i%3:] {
					if err := f(); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if strings.HasPrefix(e.Name(), "oncelog.") && e.Name() != lockFile {
					t.Errorf("%s", e.Name())
				}
			}
			offsets, err := checkpoint.ReadOffsets(vfs.OS, filepath.Join(filepath.Dir(dir), checkpoint.RecoveryPointFile))
			if err != nil || offsets[partition] != 12 {
				t.Errorf("recovery point %v, %v", offsets, err)
			}
			if err := kafkadir.WriteMarker(vfs.OS, filepath.Dir(dir), kafkadir.UnknownBrokerEpoch); err != nil {
				t.Fatal(err)
			}
			l = openTest(t, dir, o)
			if r := l.RecoveryReport(); !r.Clean || r.LogEnd != 12 || r.Problems() {
				t.Errorf("%+v", r)
			}
			// Kafka remembers one batch across a restart, and so does this.
			retry := func(seq int32) (AppendInfo, error) {
				return l.AppendAsLeader(producerBatch(t, 7, 0, seq, "some value"), LeaderAppend{})
			}
			if info, err := retry(11); err != nil || !info.Duplicate || info.FirstOffset != 11 {
				t.Errorf("%+v %v", info, err)
			}
			if _, err := retry(10); !errors.Is(err, ErrOutOfOrderSequence) {
				t.Errorf("retry of the second last batch: %v", err)
			}
		})
	}
}

// Entries of the old formats become one batch of the present one. The bytes are those of a Kafka client.
func TestAppendAsLeader_OldFormats(t *testing.T) {
	const (
		magic0 = "AAAAAAAAAAAAAAAzBJXIfgAAAAAAA2s0NgAAACKtM23dUkrDWKiP4gSGz13OM2RlZmdhYmNkZWZnYWJjZGVmAAAAAAAAAAEAAAA07KsRlQAAAAAABGs3NzIAAAAire/b3HHUY4CAH3LMXtpFgN9kZWZnYWJjZGVmZ2FiY2RlZgAAAAAAAAACAAAANOHfP5kAAAAAAARrNDk5AAAAIlOliQEmGfI6K6IuRLfl/gV/ZGVmZ2FiY2RlZmdhYmNkZWY="
		magic1 = "AAAAAAAAAAAAAAA7foeG7wEAAAABi8/laAAAAAAEazUzMQAAACE5TdR0hs2jktkJQWR+tRZXY2RlZmdhYmNkZWZnYWJjZGUAAAAAAAAAAQAAADsHpdTqAQAAAAGLz+VoAQAAAARrNDAzAAAAIdyMd9aJGyulXVmeGU71gyhjZGVmZ2FiY2RlZmdhYmNkZQAAAAAAAAACAAAAO1SHtY8BAAAAAYvP5WgCAAAABGsxMTkAAAAhSZboTtiPSjszrpgEQkj/MWNkZWZnYWJjZGVmZ2FiY2Rl"
		gzip1  = "AAAAAAAAAAEAAACiSrgXSwEBAAABi8/laAH/////AAAAjB+LCAAAAAAAAP9jYICD8HeHnm5kBDIYu88/zQCJsGSbGJkDadubT1xFDJNCvke17Zbc+YvD9hnbrzUTTOb//aeq12RgkJySmpaemISLghoPMjk8KXoGN9wKRrAVxsYGICsu+qlzr/pl9kr0QvvDftVz0ZuDt+aayv3U2vuczfKHJAErAFcxrZbGAAAA"
		mixed  = "AAAAAAAAAAAAAABLVEACLwEAAAABi8/laAAAAAAEazkwNwAAADEyyOoxeWZG8+5ONdIYRgwmsO56hqv8kv1kZWZnYWJjZGVmZ2FiY2RlZmdhYmNkZWZnAAAAAAAAAAAAAABk/////wLNq7l/AAAAAAAAAAABi8/laAAAAAGLz+VoAP//////////////////AAAAAWQAAAAIazE4MlBHlb9WTu+KtdzeHtE3VIQvaUFK0mdhYmNkZWZnYWJjZGVmZ2FiY2RlAA=="
	)
	l := openTest(t, t.TempDir(), Options{})
	next := int64(0)
	for i, tt := range []struct {
		batch     string
		records   int64
		timestamp int64
	}{{magic0, 3, record.NoTimestamp}, {magic1, 3, 1_700_000_000_002}, {gzip1, 2, 1_700_000_000_001}} {
		p, err := base64.StdEncoding.DecodeString(tt.batch)
		if err != nil {
			t.Fatal(err)
		}
		info, err := l.AppendAsLeader(p, LeaderAppend{})
		if err != nil || info.FirstOffset != next || info.LastOffset != next+tt.records-1 || info.MaxTimestamp != tt.timestamp {
			t.Fatalf("%d: %+v %v", i, info, err)
		}
		f, err := l.Read(next, ReadOptions{MaxBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for b, err := range f.Records.Batches() {
			if err != nil {
				t.Fatal(err)
			}
			if n++; b.Magic() != record.Magic || int64(b.Count()) != tt.records || b.BaseOffset() != next {
				t.Errorf("%d: batch of format %d, %d records from %d", i, b.Magic(), b.Count(), b.BaseOffset())
			}
		}
		if n != 1 {
			t.Errorf("%d: %d batches", i, n)
		}
		f.Close()
		next += tt.records
	}
	p, err := base64.StdEncoding.DecodeString(mixed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.AppendAsLeader(p, LeaderAppend{}); !errors.Is(err, ErrInvalidRecord) {
		t.Errorf("two formats in one append: %v", err)
	}
}

// What recoveries cut stays, and the numbers say so.
func TestStats_CutFiles(t *testing.T) {
	dir := t.TempDir()
	l := openTest(t, dir, Options{})
	for round := range 2 {
		if _, err := l.AppendAsLeader(producerBatch(t, 7, 0, int32(round), "v"), LeaderAppend{}); err != nil {
			t.Fatal(err)
		}
		end := l.Stats().ActiveBytes
		abandon(t, l)
		f, err := os.OpenFile(filepath.Join(dir, "00000000000000000000.log"), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(producerBatch(t, 7, 0, 9, "torn")[:70], end); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		l = openTest(t, dir, Options{})
		if s := l.Stats(); s.CutFiles != round+1 || s.Offsets.LogEnd != int64(round+1) || s.Failed != nil {
			t.Errorf("%+v", s)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l = openTest(t, dir, Options{}); l.Stats().CutFiles != 2 {
		t.Errorf("%+v", l.Stats())
	}
}

// A high watermark inside a batch stays as it was given, and with Compat a read lowers it to where the batch begins.
func TestUpdateHighWatermark_InsideABatch(t *testing.T) {
	for _, compat := range []bool{false, true} {
		l := openTest(t, compatDir(t), Options{Compat: compat, ManualHighWatermark: true})
		for range 2 {
			if _, err := l.AppendAsLeader(timedBatch(t, record.None, 1, 2, 3, 4), LeaderAppend{}); err != nil {
				t.Fatal(err)
			}
		}
		if high, err := l.UpdateHighWatermark(6); err != nil || high != 6 {
			t.Errorf("Compat %v: %d %v", compat, high, err)
		}
		f, err := l.Read(0, ReadOptions{MaxBytes: 1 << 20, Isolation: HighWatermark})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for b, err := range f.Records.Batches() {
			if err != nil || b.NextOffset() > 4 {
				t.Errorf("Compat %v: batch at %d, %v", compat, b.BaseOffset(), err)
			}
			n++
		}
		f.Close()
		want := int64(6)
		if compat {
			want = 4
		}
		if o := l.Offsets(); n != 1 || o.HighWatermark != want {
			t.Errorf("Compat %v: %d batches, %+v, want high watermark %d", compat, n, o, want)
		}
	}
}

// A batch that fits exactly does not begin a segment, one byte less of room does.
func TestRoll_ExactFit(t *testing.T) {
	size := len(timedBatch(t, record.None, 1))
	for _, spare := range []int{0, -1} {
		l := openTest(t, t.TempDir(), Options{SegmentBytes: int32(3*size + spare)})
		for range 3 {
			if _, err := l.AppendAsLeader(timedBatch(t, record.None, 1), LeaderAppend{}); err != nil {
				t.Fatal(err)
			}
		}
		if s := l.Stats(); s.Segments != 1-spare {
			t.Errorf("%d bytes to spare: %d segments", spare, s.Segments)
		}
	}
}
