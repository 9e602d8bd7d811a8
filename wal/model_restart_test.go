package wal

import (
	"pgregory.net/rapid"

	"github.com/oncelog/oncelog/record"
)

// restart closes or kills the log and opens it again.
func (m *machine) restart(t *rapid.T, kind string) {
	m.run(t, action{kind: kind})
	m.abortLeftOpen(t)
	m.ref.setHigh(m.ref.end)
}

// abortLeftOpen expects that an open has aborted the transaction of a name.
func (m *machine) abortLeftOpen(t *rapid.T) {
	id := NamedProducerID("a")
	producers, _, _ := m.ref.replay()
	p := producers[id]
	if m.ref.manual || p == nil || p.txn < 0 {
		return
	}
	b, err := m.l.batchAt(m.ref.end)
	if err != nil {
		t.Fatalf("the transaction of a name was left open: %v", err)
	}
	marker, err := b.EndTxnMarker()
	if err != nil || b.ProducerID() != id || b.ProducerEpoch() != p.epoch || marker.Type != record.Abort || marker.CoordinatorEpoch != max(0, p.coord) {
		t.Fatalf("the transaction of a name was left open: batch of producer %d, marker %+v, %v", b.ProducerID(), marker, err)
	}
	m.ref.store(b)
}
