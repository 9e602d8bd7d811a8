package producerstate

import (
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
)

// Kafka 4.4 writes snapshots of more than a million producers and then calls them corrupt. Here they are read back.
func TestSnapshot_MoreThanAMillionProducers(t *testing.T) {
	const n = 1_000_001
	dir := t.TempDir()
	m, err := Open(vfs.OS, dir, Config{})
	if err != nil {
		t.Fatal(err)
	}
	for id := range int64(n) {
		p := unknown(id)
		p.epoch = 1
		m.table.add(p)
	}
	m.UpdateMapEndOffset(n)
	if err := WritePair(vfs.OS, dir, m.Freeze(), record.Identity{}); err != nil {
		t.Fatal(err)
	}
	s, err := ReadPair(vfs.OS, dir, n)
	if err != nil || s.Len() != n {
		t.Fatalf("%v", err)
	}
	if e, ok := s.Entry(n - 1); !ok || e.ProducerEpoch != 1 {
		t.Errorf("the last producer is %+v (%v)", e, ok)
	}
}
