package recovery

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/oncelog/oncelog/internal/kafkadir"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// A replacement of two segments by one, as a cleaner leaves it when it is interrupted, is finished exactly once, wherever
// the machine goes down while it is.
func TestLoad_ReplacementInterruptedAgain(t *testing.T) {
	d := build(t, dirSpec{segments: [][]int{{2, 2}, {2}, {2}}})
	merged := bytes.Join([][]byte{d.files[0], d.files[4]}, nil)
	aborted := transaction(t, 6)
	old := bytes.Join(aborted[:1], nil) // what was there before, without the marker
	d.files[6] = old
	d.write(segment.FileName(segment.KindLog, 6), old)
	entry := make([]byte, 2) // version
	for _, v := range [...]uint64{77, 6, 8, 9} {
		entry = binary.BigEndian.AppendUint64(entry, v)
	}
	for name, p := range map[string][]byte{
		"00000000000000000000.log.swap": merged, "00000000000000000000.index.swap": nil, "00000000000000000000.timeindex.swap": nil,
		"00000000000000000006.log.swap": bytes.Join(aborted, nil), "00000000000000000006.index.swap": nil,
		"00000000000000000006.timeindex.swap": nil, "00000000000000000006.txnindex.swap": entry,
	} {
		d.write(name, p)
	}
	last := testBatch(t, 9, 2, nil)
	for _, k := range [...]segment.Kind{segment.KindLog, segment.KindOffsetIndex, segment.KindTimeIndex} {
		d.write(segment.FileName(k, 9), map[bool][]byte{true: last}[k == segment.KindLog])
	}
	// Kafka had stopped in order: nothing but the end is read.
	d.write("../"+kafkadir.MarkerFile, nil)
	d.fsys.SyncAll()
	want := fmt.Sprint([]int64{0, 2, 4, 6, 8, 9})
	states := 0
	for seed := uint64(1); seed <= 12; seed++ {
		m := d.fsys.Crash(vfstest.CrashOptions{Seed: seed})
		n := seed << 20
		look := func(op vfstest.Op, after bool) {
			n++
			c := m.Crash(vfstest.RandomCrash(n))
			s, err := Load(context.Background(), c, params(c, TolerateTornTail))
			if err != nil {
				t.Fatalf("state %d, %v %v: %v", n, op, after, err)
			}
			defer s.Close()
			states++
			var got []int64
			txns := 0
			for seg := range s.Segments.All() {
				w := seg.Scan(0)
				for w.Next() {
					got = append(got, w.Batch().BaseOffset())
				}
				list, _, err := seg.AbortedTxns(0, 100)
				if err != nil {
					t.Fatal(err)
				}
				txns += len(list)
			}
			if fmt.Sprint(got) != want || txns != 1 {
				t.Fatalf("state %d, %v %v: batches at %v, want %s; %d aborted transactions\n%v", n, op, after, got, want, txns, s.Report.Findings)
			}
		}
		fsys := vfstest.Inject(m, vfstest.Each(vfstest.Writes, look))
		s, err := Load(context.Background(), fsys, params(fsys, TolerateTornTail))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d states", states)
}

// transaction is a transactional batch of two records and its ABORT marker.
func transaction(t *testing.T, base int64) [][]byte {
	t.Helper()
	p := record.Producer{ID: 77}
	w := record.NewBuilder(record.BuilderOptions{BaseOffset: base, Producer: &p, Transactional: true})
	for range 2 {
		if err := w.Append(1_700_000_000_000, record.Record{Value: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	b, err := w.Batch()
	if err != nil {
		t.Fatal(err)
	}
	m := record.Batch(record.AppendEndTxnMarker(nil, p, record.EndTxnMarker{Type: record.Abort}, 1_700_000_000_000))
	m.SetBaseOffset(base + 2)
	return [][]byte{bytes.Clone(b), m}
}
