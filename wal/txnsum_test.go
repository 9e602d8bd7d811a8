package wal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/recovery"
	"github.com/oncelog/oncelog/segment"
)

// decided appends n pairs of transactions of keyed records, four offsets each. Of every third pair one is committed. The values
// of the aborted ones tell so.
func decided(t *testing.T, l *Log, n int) {
	t.Helper()
	for range n {
		at := l.Offsets().LogEnd
		id, sequence := at/4%5*2, int32(at/4/5) // of few producers, as compaction keeps the last batch of each
		for i, p := range []record.Producer{{ID: id, BaseSequence: sequence}, {ID: id + 1, BaseSequence: sequence}} {
			value := "aborted"
			if i == 0 && at%3 == 0 {
				value = "committed"
			}
			b := record.NewBuilder(record.BuilderOptions{Producer: &p, Transactional: true})
			if err := b.Append(1_700_000_000_000+at, record.Record{Key: fmt.Append(nil, at%7), Value: []byte(value)}); err != nil {
				t.Fatal(err)
			}
			batch, err := b.Batch()
			if err == nil {
				_, err = l.AppendAsLeader(batch, LeaderAppend{})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for i, id := range []int64{id, id + 1} {
			kind := record.Abort
			if i == 0 && at%3 == 0 {
				kind = record.Commit
			}
			if _, err := l.AppendEndTxnMarker(record.Producer{ID: id}, record.EndTxnMarker{Type: kind}, MarkerAppend{Time: time.UnixMilli(1_700_000_000_000)}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// checkSums holds the account in the state file against the transaction indexes of a directory.
func checkSums(t *testing.T, what, dir string) (entries uint64) {
	t.Helper()
	slot, found, err := recovery.ReadSlot(vfs.OS, dir)
	if err != nil || !found || !slot.TxnsKnown {
		t.Fatalf("%s: slot %+v, %t, %v", what, slot, found, err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.txnindex"))
	if err != nil {
		t.Fatal(err)
	}
	var sum recovery.TxnSum
	for _, name := range names {
		s := segment.Open(vfs.OS, dir, segment.Parse(filepath.Base(name)).Offset, segment.Config{ReadOnly: true, Pool: segment.NewPool(0)})
		err := s.AbortedEnding(slot.LogStart, slot.Recovery.Offset, func(x index.AbortedTxn) { sum.Add(x) })
		if err = errors.Join(err, s.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if sum != slot.Txns {
		t.Errorf("%s: the state file has %+v, the indexes %+v", what, slot.Txns, sum)
	}
	return sum.Count
}

// committedOnly wants no record of an aborted transaction, and some of others.
func committedOnly(t *testing.T, what string, l *Log) {
	t.Helper()
	n := 0
	for r, err := range l.Records(l.Offsets().LogStart) {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if n++; string(r.Value) != "committed" {
			t.Errorf("%s: offset %d is %q", what, r.Offset, r.Value)
		}
	}
	if n == 0 {
		t.Errorf("%s: no records", what)
	}
}

// The account of the transaction indexes follows whatever adds to them, cuts them, deletes or replaces segments, and an open
// that finds it right reads no batch. An index that is lost then is noticed.
func TestTxnSum_FollowsEverything(t *testing.T) {
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "t-0")
	o := Options{Sync: SyncNone, SegmentBytes: 900, CleanupPolicy: CleanupCompact | CleanupDelete, MinDirtyRatio: 1e-9}
	var l *Log
	reopen := func(what string) {
		t.Helper()
		if l != nil {
			if err := l.Close(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			checkSums(t, what, dir)
		}
		var err error
		if l, err = Open(ctx, dir, o); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if r := l.RecoveryReport(); r.Problems() || r.BytesReplayed > 0 {
			t.Errorf("%s: %v", what, r.Findings)
		}
		committedOnly(t, what, l)
		checkSums(t, what, dir)
	}
	var err error
	if l, err = Open(ctx, dir, o); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"append", func() error { return nil }},
		{"checkpoint", func() error { return l.Checkpoint() }},
		{"log start", func() error { _, err := l.IncrementLogStartOffset(37); return err }},
		{"deletion", func() error { _, err := l.DeleteOldSegments(time.Now()); return err }},
		{"truncation", func() error { _, err := l.TruncateTo(l.Offsets().LogEnd - 24); return err }},
		{"compaction", func() error {
			s, err := l.Compact(ctx, time.Now())
			if err == nil && s.SegmentsReplaced == 0 {
				err = fmt.Errorf("nothing compacted: %+v", s)
			}
			return err
		}},
		{"compaction and log start", func() error {
			_, err := l.Compact(ctx, time.Now())
			_, err2 := l.IncrementLogStartOffset(l.Offsets().LogEnd - 60)
			return errors.Join(err, err2)
		}},
	} {
		decided(t, l, 12)
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		checkSums(t, step.name+", open", dir)
		reopen(step.name)
	}
	decided(t, l, 12)
	reopen("append")
	copied := filepath.Join(t.TempDir(), "t-0")
	if _, err := l.Backup(ctx, copied); err != nil {
		t.Fatal(err)
	}
	if n := checkSums(t, "backup", copied); n == 0 {
		t.Error("no aborted transactions")
	}
	decided(t, l, 3)
	if _, err := l.Backup(ctx, copied); err != nil {
		t.Fatal(err)
	}
	checkSums(t, "second backup", copied)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{dir, copied} {
		names, err := filepath.Glob(filepath.Join(dir, "*.txnindex"))
		if err != nil || len(names) < 3 {
			t.Fatal(names, err)
		}
		if err := os.Remove(names[len(names)-2]); err != nil {
			t.Fatal(err)
		}
		for _, readOnly := range []bool{true, false} {
			o.ReadOnly = readOnly
			l, err := Open(ctx, dir, o)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(l.RecoveryReport().Findings, func(f recovery.Finding) bool { return f.Path == names[len(names)-2] }) {
				t.Errorf("read-only %t: %s is not in %v", readOnly, names[len(names)-2], l.RecoveryReport().Findings)
			}
			committedOnly(t, fmt.Sprintf("read-only %t, without an index", readOnly), l)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		checkSums(t, "made anew", dir)
	}
}

// A reader beside a writer that found a transaction index wrong does not believe it later either, when the writer has finished
// the segment, and knows what the writer aborts in it.
func TestFollow_WrongTransactionIndex(t *testing.T) {
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "t-0")
	o := Options{Sync: SyncNone}
	l, err := Open(ctx, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	decided(t, l, 10)
	if err := l.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, segment.FileName(segment.KindTxnIndex, 0))
	p, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(p) / 34 { // in the file that the writer has open
		p[34*i+5]++ // another producer
	}
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(p, 0); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	o.ReadOnly = true
	r, err := Open(ctx, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if !strings.Contains(fmt.Sprint(r.RecoveryReport().Findings), filepath.Base(name)) {
		t.Errorf("findings %v", r.RecoveryReport().Findings)
	}
	committedOnly(t, "opened", r)
	decided(t, l, 10)
	if err := errors.Join(l.Roll(), l.Checkpoint()); err != nil {
		t.Fatal(err)
	}
	decided(t, l, 4)
	if err := errors.Join(l.Checkpoint(), r.Refresh(ctx)); err != nil {
		t.Fatal(err)
	}
	if r.Offsets().LogEnd != l.Offsets().LogEnd {
		t.Errorf("the reader is at %d, the writer at %d", r.Offsets().LogEnd, l.Offsets().LogEnd)
	}
	committedOnly(t, "followed", r)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// A transaction that is aborted while a backup is made, behind its end, is open in the backup: what comes there in the copy is
// not aborted.
func TestBackup_AbortedMeanwhile(t *testing.T) {
	ctx := context.Background()
	mem := vfstest.NewMem()
	var l *Log
	p := record.Producer{ID: 100}
	armed := false
	fsys := vfstest.Inject(mem, vfstest.Each(vfstest.Kinds(vfstest.OpRead), func(o vfstest.Op, after bool) {
		if !armed || segment.Parse(filepath.Base(o.Path)).Kind != segment.KindTxnIndex {
			return
		}
		armed = false
		if _, err := l.AppendEndTxnMarker(p, record.EndTxnMarker{Type: record.Abort}, MarkerAppend{Time: l.opts.Now()}); err != nil {
			t.Error(err)
		}
	}))
	o := Options{Sync: SyncNone, Now: func() time.Time { return time.UnixMilli(1_700_000_000_000) }} // nothing rolls
	l = openFS(t, fsys, o)
	decided(t, l, 3)
	if _, err := l.AppendAsLeader(txnRecord(t, p), LeaderAppend{}); err != nil {
		t.Fatal(err)
	}
	end := l.Offsets().LogEnd
	armed = true
	r, err := l.Backup(ctx, filepath.Join(filepath.Dir(l.dir), "copy-0"))
	if err != nil || armed || l.Offsets().LogEnd != end+1 || r.LogEnd != end {
		t.Fatalf("%+v, %v; the log ends at %d, was %d", r, err, l.Offsets().LogEnd, end)
	}
	copied, err := OpenFS(ctx, fsys, filepath.Join(filepath.Dir(l.dir), "copy-0"), o)
	if err != nil {
		t.Fatal(err)
	}
	report := copied.RecoveryReport()
	if open := copied.OpenTransactions(); report.Problems() || len(open) != 1 {
		t.Errorf("%v, open %v", report.Findings, open)
	}
	if _, err := copied.AppendEndTxnMarker(p, record.EndTxnMarker{Type: record.Commit}, MarkerAppend{Time: l.opts.Now()}); err != nil {
		t.Fatal(err)
	}
	if s, err := copied.Get(end - 1); err != nil {
		t.Errorf("%+v, %v", s, err)
	}
	if err := errors.Join(copied.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
}
