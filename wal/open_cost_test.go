package wal

import (
	"fmt"
	"strings"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/producerstate"
)

// Timestamps that do not rise add no entry to a time index, so that its last one may be as old as the segment. An open must
// not read all that lies behind it.
func TestOpen_ReadsLittleWhereTimestampsDoNotRise(t *testing.T) {
	mem := vfstest.NewMem()
	var read, end int64
	fsys := vfstest.Inject(mem, vfstest.Each(vfstest.Kinds(vfstest.OpRead), func(o vfstest.Op, after bool) {
		if !after && strings.HasSuffix(o.Path, ".log") {
			read += max(0, min(o.N, end-o.Off)) // not the reserved space behind the batches
		}
	}))
	o := Options{Sync: SyncNone}
	l := openFS(t, fsys, o)
	seq := int32(0)
	fill := func(bytes int) {
		t.Helper()
		value := strings.Repeat("v", 1000)
		for range bytes / len(value) {
			if _, err := l.AppendAsLeader(producerBatch(t, 7, 0, seq, fmt.Sprint(seq, value)), LeaderAppend{}); err != nil {
				t.Fatal(err)
			}
			seq++
		}
	}
	check := func(how string, limit int64) {
		t.Helper()
		read, end = 0, l.end.position
		l = openFS(t, fsys, o)
		if read > limit {
			t.Errorf("%s: %d bytes read, want at most %d", how, read, limit)
		}
		s := l.active
		if newest := s.Newest(); newest.Timestamp != 1_700_000_000_000 || newest.Offset != 0 {
			t.Errorf("%s: the newest timestamp is %+v, want that of offset 0", how, newest)
		}
	}
	const behind = 100_000
	fill(4_000_000)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	check("clean", 64<<10)
	fill(1_000_000)
	if err := l.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	fill(behind)
	abandon(t, l)
	check("kill", 6*behind+64<<10)
}

// A directory of many segments takes long to list: a clean open does so once, and a roll never.
func TestOpenAndRoll_Listings(t *testing.T) {
	for _, mode := range modes {
		listings := 0
		fsys := vfstest.Inject(vfstest.NewMem(), vfstest.Each(vfstest.Kinds(vfstest.OpReadDir), func(o vfstest.Op, after bool) {
			if !after && o.Path == simDir {
				listings++
			}
		}))
		o := Options{Sync: mode, SegmentBytes: 300, CheckpointBytes: 200, manual: true}
		l := openFS(t, fsys, o)
		listings = 0
		for i := range int32(60) {
			if _, err := l.AppendAsLeader(producerBatch(t, 7, 0, i, "value"), LeaderAppend{}); err != nil {
				t.Fatal(err)
			}
		}
		if n := l.segments.Load().Len(); listings != 0 || n < 10 {
			t.Errorf("%v: %d listings for %d segments, want none", mode, listings, n)
		}
		// Two snapshots inside a segment at most: those of checkpoints go.
		if strays := len(l.producers.Snapshots()) - l.segments.Load().Len(); strays > 2 {
			t.Errorf("%v: %d snapshots are left of checkpoints", mode, strays)
		}
		pairs, err := producerstate.ListPairs(fsys, simDir)
		if err != nil || len(pairs) != len(l.producers.Snapshots()) {
			t.Errorf("%v: %d snapshots in the directory, %d known, %v", mode, len(pairs), len(l.producers.Snapshots()), err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		listings = 0
		l = openFS(t, fsys, o)
		if listings != 1 || !l.RecoveryReport().Clean {
			t.Errorf("%v: %d listings at a clean open, want 1", mode, listings)
		}
		if known := len(producersOf(l)); known != 1 {
			t.Errorf("%v: %d producers", mode, known)
		}
	}
}
