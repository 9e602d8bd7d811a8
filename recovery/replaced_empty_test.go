package recovery

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"

	"github.com/oncelog/oncelog/internal/kafkadir"
	"github.com/oncelog/oncelog/segment"
)

// A replacement of which no record is left takes the transaction index of what it replaces with it: the markers that it
// lists are gone, and a reader would take what their producers committed later for aborted.
func TestLoad_ReplacementWithoutRecords(t *testing.T) {
	d := build(t, dirSpec{segments: [][]int{{2, 2}, {2}}})
	d.write(segment.FileName(segment.KindLog, 0), bytes.Join(transaction(t, 0), nil))
	entry := make([]byte, 2) // version
	for _, v := range [...]uint64{77, 0, 2, 3} {
		entry = binary.BigEndian.AppendUint64(entry, v)
	}
	d.write(segment.FileName(segment.KindTxnIndex, 0), entry)
	for _, suffix := range []string{".log.swap", ".index.swap", ".timeindex.swap"} {
		d.write("00000000000000000000"+suffix, nil)
	}
	// Kafka had stopped in order: nothing but the end is read.
	d.write("../"+kafkadir.MarkerFile, nil)
	d.fsys.SyncAll()
	s, err := Load(context.Background(), d.fsys, params(d.fsys, TolerateTornTail))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	first := s.Segments.First()
	size, err := first.Size()
	if err != nil || size != 0 || first.BaseOffset() != 0 || s.Segments.Len() != 2 {
		t.Errorf("segment %d of %d bytes, %d segments, %v", first.BaseOffset(), size, s.Segments.Len(), err)
	}
	if txns, _, err := first.AbortedTxns(0, 100); err != nil || len(txns) > 0 {
		t.Errorf("aborted transactions %v, %v; want none, as no marker is there", txns, err)
	}
}
