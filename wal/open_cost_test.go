package wal

import (
	"fmt"
	"strings"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs/vfstest"
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
