package producerstate

import (
	"github.com/oncelog/oncelog/record"
)

// NoTransactionVersion says that an append carries no transaction version. Only batches that are no markers, and
// replicated ones, can do without.
const NoTransactionVersion int8 = -1

// AppendOptions describe one append call.
type AppendOptions struct {
	// Origin decides what is checked. The zero value is Client.
	Origin Origin
	// TransactionVersion is the version of the transaction that a coordinator's marker ends, 0, 1 or 2. It decides how
	// the marker's epoch is compared. Replication ignores it, since it does not travel with the log.
	TransactionVersion int8
	// Guard is what MaybeStartVerification returned for this transaction, or NoGuard.
	Guard Guard
	// Clock is the log's clock in milliseconds, kept with each producer that appends so that idle ones can be told
	// from those whose clocks are wrong. record.NoTimestamp leaves what is there: a replay that does not know when
	// the batches were appended passes it.
	Clock int64
}

// AppendInfo analyses the batches of one append call against the table without changing it: a working copy of each
// producer concerned takes the effects, and Manager.Publish makes them visible once the bytes are in the log. Dropping
// the AppendInfo instead leaves the table as it was, with one exception that Kafka has too: a transactional batch that
// passed ends its producer's verification at once.
//
// The zero value is ready for Manager.Prepare. One AppendInfo is meant to be used for append after append: then an append
// of few producers allocates nothing.
type AppendInfo struct {
	m         *Manager
	o         AppendOptions
	quick     quick
	work      []working
	places    map[int64]int // place in work by producer id, once there are many
	started   []startedTxn
	completed []CompletedTxn
}

type startedTxn struct {
	pid   int64
	first OffsetMetadata
}

// working is the working copy of one producer (Kafka: ProducerAppendInfo). Its batches are only those of this append.
type working struct {
	p          producer
	slot       uint32
	inTable    bool
	verifying  bool // a verification was running when the producer's first batch was analysed
	lowest     int32
	epochBump  bool
	wasEpoch   int16 // the stored state, as far as the sequence check needs it
	wasCount   uint8
	wasLast    int32
	wasOffset  int64
	emptyBatch bool // nothing but emptied control batches so far
}

// fewWorking is up to how many working copies are searched one by one.
const fewWorking = 8

// header is a batch's header, decoded once.
type header struct {
	id            int64
	offset        int64
	lastOffset    int64
	maxTimestamp  int64
	baseSequence  int32
	lastSequence  int32
	offsetDelta   int32
	epoch         int16
	transactional bool
	control       bool
}

// Prepare readies a for the batches of one append call, dropping what it held.
func (m *Manager) Prepare(a *AppendInfo, o AppendOptions) {
	if a.m != m {
		a.m = m // most calls are for the same manager, and storing a pointer is not free
	}
	a.o = o
	a.quick.active = false
	if len(a.work) == 0 {
		return // the call before left nothing else
	}
	a.work = a.work[:0]
	a.started = a.started[:0]
	a.completed = a.completed[:0]
	if len(a.places) > 0 {
		clear(a.places)
	}
}

// Append analyses the next batch of the call. at tells where it will be stored: its Offset is the base offset that the
// batch gets, whatever offset it carries.
//
// If the batch repeats one of the producer's remembered batches, the result is that batch and true; nothing must be
// stored, and the call ends with it, as in Kafka, where the first duplicate decides a whole append. An error says that
// the batch must not be stored, and so none of the call: *SequenceError, *EpochError, *TxnStateError, *CoordinatorError,
// ErrTransactionVersion, or what reading a marker returned. After either the AppendInfo is good for Prepare only.
//
// A batch without a producer id, and a legacy one, passes without being looked at. (Kafka: UnifiedLog
// .analyzeAndValidateProducerState and ProducerAppendInfo.append.)
func (a *AppendInfo) Append(b record.Batch, at OffsetMetadata) (dup BatchMetadata, isDup bool, err error) {
	id := b.ProducerID()
	if id < 0 {
		return BatchMetadata{}, false, a.checkNoProducer(id)
	}
	if a.quick.active {
		a.settleQuick()
	} else if a.o.Origin == Client && len(a.work) == 0 && a.tryQuick(b, id, at) {
		return BatchMetadata{}, false, nil
	}
	return a.general(b, id, at)
}

// general is Append for whatever is not the commonest case.
func (a *AppendInfo) general(b record.Batch, id int64, at OffsetMetadata) (dup BatchMetadata, isDup bool, err error) {
	h := decode(b, id, at)
	if a.o.Origin == Client {
		if h.control || h.baseSequence < 0 {
			return BatchMetadata{}, false, clientError(&h)
		}
	}
	slot, known := a.m.table.find(id)
	if known && a.o.Origin == Client {
		if dup, ok := a.m.table.at(slot).duplicate(&h); ok {
			return dup, true, nil
		}
	}
	if h.transactional && (a.o.Origin == Client || a.o.Origin == Coordinator) {
		if err := a.checkVerified(&h, slot, known); err != nil {
			return BatchMetadata{}, false, err
		}
	}
	w := a.workingCopy(id, slot, known)
	if h.control {
		err = a.appendControl(w, b, &h)
	} else {
		err = a.appendData(w, &h, at)
	}
	if err != nil {
		return BatchMetadata{}, false, err
	}
	if h.transactional {
		a.m.verifications.appended(&h)
	}
	return BatchMetadata{}, false, nil
}

func decode(b record.Batch, id int64, at OffsetMetadata) header {
	attrs := b.Attributes()
	delta := b.LastOffsetDelta()
	return header{
		id: id, offset: at.Offset, lastOffset: at.Offset + int64(delta), maxTimestamp: b.MaxTimestamp(),
		baseSequence: b.BaseSequence(), lastSequence: b.LastSequence(), offsetDelta: delta, epoch: b.ProducerEpoch(),
		transactional: attrs.IsTransactional(), control: attrs.IsControl(),
	}
}

// Completed returns the transactions that the markers analysed so far end, in order. The slice is valid until the next
// Prepare. A marker without an open transaction ends none.
func (a *AppendInfo) Completed() []CompletedTxn { return a.completed }

// workingCopy returns the producer's working copy, making it at the producer's first batch.
func (a *AppendInfo) workingCopy(id int64, slot uint32, known bool) *working {
	if i, ok := a.place(id); ok {
		return &a.work[i]
	}
	if n := len(a.work); n < cap(a.work) {
		a.work = a.work[:n+1] // what an earlier append left in it is overwritten field by field
	} else {
		a.work = append(a.work, working{})
	}
	i := len(a.work) - 1
	if len(a.work) > fewWorking {
		a.remember(id, i)
	}
	w := &a.work[i]
	w.slot, w.inTable = slot, known
	w.p.id, w.p.count, w.p.head = id, 0, 0
	w.emptyBatch = true
	if known {
		s := a.m.table.at(slot)
		w.p.epoch, w.p.coordinatorEpoch = s.epoch, s.coordinatorEpoch
		w.p.lastTimestamp, w.p.appendClock, w.p.txnFirst = s.lastTimestamp, s.appendClock, s.txnFirst
		w.wasEpoch, w.wasCount, w.wasLast, w.wasOffset = s.epoch, s.count, record.NoSequence, NoOffset
		if last, ok := s.last(); ok {
			w.wasLast, w.wasOffset = last.LastSequence, last.LastOffset
		}
	} else {
		w.p = unknown(id)
		w.wasEpoch, w.wasCount, w.wasLast, w.wasOffset = record.NoProducerEpoch, 0, record.NoSequence, NoOffset
	}
	w.verifying, w.lowest, w.epochBump = a.m.verifications.lookup(id)
	return w
}

// place finds the producer's working copy.
func (a *AppendInfo) place(id int64) (int, bool) {
	if len(a.work) > fewWorking {
		i, ok := a.places[id]
		return i, ok
	}
	for i := range a.work {
		if a.work[i].p.id == id {
			return i, true
		}
	}
	return 0, false
}

// remember enters a working copy into the map, and all earlier ones when it is the first to go there.
func (a *AppendInfo) remember(id int64, i int) {
	if a.places == nil {
		a.places = make(map[int64]int)
	}
	if len(a.places) == 0 {
		for k := range a.work[:i] {
			a.places[a.work[k].p.id] = k
		}
	}
	a.places[id] = i
}

// Publish makes the effects of an analysed append visible. The transactions it ended stay open until CompleteTxn, so that
// the last stable offset of each can be asked for first. Call it once, after the bytes of every batch are in the log;
// UpdateMapEndOffset is separate, because appends without producers move that too. (Kafka: ProducerStateManager.update.)
func (m *Manager) Publish(a *AppendInfo) {
	if a.o.Clock > m.newestClock {
		m.newestClock = a.o.Clock
	}
	if a.quick.active {
		m.publishQuick(a)
		return
	}
	for i := range a.work {
		m.publish(&a.work[i], a.o.Clock)
	}
	for _, s := range a.started {
		m.open.put(s.pid, s.first)
	}
}

func (m *Manager) publish(w *working, clock int64) {
	if w.emptyBatch && !m.config.Compat {
		return
	}
	slot := w.slot
	// The producer may have expired since the analysis, if the caller let go of its lock in between.
	if !w.inTable || !m.table.holds(slot, w.p.id) {
		var ok bool
		if slot, ok = m.table.find(w.p.id); !ok {
			slot = m.table.add(unknown(w.p.id))
		}
	}
	p := m.table.mut(slot)
	p.setEpoch(w.p.epoch)
	for i := range w.p.count {
		p.push(w.p.batch(i))
	}
	p.coordinatorEpoch, p.txnFirst = w.p.coordinatorEpoch, w.p.txnFirst
	m.touch(p, w.p.lastTimestamp, clock)
}
