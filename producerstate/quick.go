package producerstate

import (
	"math"

	"github.com/oncelog/oncelog/record"
)

// quick is what the analysis of the commonest append leaves: one batch of a client, outside of transactions, that
// continues what is stored. It needs no working copy, and an append costs a third of the general way. It changes no
// answer: whatever is in any way unusual goes the general way, and a second batch in the call turns it into a working
// copy.
type quick struct {
	active bool
	slot   uint32
	id     int64
	m      BatchMetadata
}

// tryQuick accepts the batch if it is such a one.
func (a *AppendInfo) tryQuick(b record.Batch, id int64, at OffsetMetadata) bool {
	m := a.m
	if attrs := b.Attributes(); attrs.IsTransactional() || attrs.IsControl() || len(m.verifications.byID) > 0 {
		return false
	}
	slot, known := m.table.find(id)
	if !known {
		return false
	}
	p := m.table.at(slot)
	if p.txnFirst >= 0 || p.epoch != b.ProducerEpoch() {
		return false
	}
	base, previous := b.BaseSequence(), p.lastSequence()
	if previous < 0 || base != (previous+1)&math.MaxInt32 {
		return false
	}
	delta := b.LastOffsetDelta()
	last := record.IncrementSequence(base, delta)
	// A batch that continues the newest may still repeat one that was replicated out of order. Places that hold nothing
	// are compared as well: it is faster, and at worst sends the batch the general way.
	if s := &p.sequences; s[0] == last || s[1] == last || s[2] == last || s[3] == last || s[4] == last {
		return false
	}
	q := &a.quick
	q.active, q.slot, q.id = true, slot, id
	q.m.LastOffset, q.m.Timestamp = at.Offset+int64(delta), b.MaxTimestamp()
	q.m.LastSequence, q.m.OffsetDelta = last, delta
	return true
}

// settleQuick turns what tryQuick left into a working copy, since more batches follow.
func (a *AppendInfo) settleQuick() {
	q := a.quick
	a.quick.active = false
	w := a.workingCopy(q.id, q.slot, true)
	w.emptyBatch = false
	w.p.lastTimestamp = q.m.Timestamp
	w.p.push(q.m)
}

// publishQuick makes it visible.
func (m *Manager) publishQuick(a *AppendInfo) {
	q := &a.quick
	if !m.table.holds(q.slot, q.id) {
		a.settleQuick() // the table changed in between
		m.publish(&a.work[0], a.o.Clock)
		return
	}
	q.active = false
	p := m.table.mut(q.slot)
	p.push(q.m)
	m.touch(p, q.m.Timestamp, a.o.Clock)
}

// touch notes the times of an append.
func (m *Manager) touch(p *producer, timestamp, clock int64) {
	p.lastTimestamp = timestamp
	if timestamp > m.newestTimestamp {
		m.newestTimestamp = timestamp
	}
	if clock > p.appendClock {
		p.appendClock = clock
	}
}
