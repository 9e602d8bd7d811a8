package producerstate

import "math"

// Guard names one verification of a transaction's start. An append carries it so that a batch which arrives after the
// transaction it belonged to was ended cannot open a new one that nobody would ever end (KIP-890; Kafka:
// VerificationGuard).
type Guard int64

// NoGuard is the guard of an append that was not verified, and what MaybeStartVerification returns when there is nothing
// to verify. It never passes the check.
const NoGuard Guard = 0

// Verification is the state of one verification that has not been used yet.
type Verification struct {
	// ProducerID is the producer under verification.
	ProducerID int64
	// Guard is the number an append must carry.
	Guard Guard
	// Since is when it was started, in milliseconds.
	Since int64
	// LowestSequence is the lowest first sequence that was asked about: batches above it have to wait for it.
	LowestSequence int32
	// Epoch is the producer's epoch.
	Epoch int16
	// SupportsEpochBump tells that the client speaks transaction version 2, where each transaction has its own epoch.
	SupportsEpochBump bool
}

// verifications holds the verifications by producer. There are few: each lasts for one round trip to a coordinator.
type verifications struct {
	byID      map[int64]Verification
	lastGuard Guard
}

// lookup returns what the sequence check needs to know.
func (v *verifications) lookup(id int64) (running bool, lowest int32, epochBump bool) {
	if len(v.byID) == 0 {
		return false, 0, false
	}
	s, ok := v.byID[id]
	return ok, s.LowestSequence, s.SupportsEpochBump
}

// appended ends the verification of the producer whose transactional batch passed. A marker does not end one that already
// belongs to the next transaction: with version 2 that has the epoch the marker has just set.
func (v *verifications) appended(h *header) {
	if len(v.byID) == 0 {
		return
	}
	if s, ok := v.byID[h.id]; ok && s.SupportsEpochBump && h.control && s.Epoch == h.epoch {
		return
	}
	delete(v.byID, h.id)
}

// checkVerified decides whether a transactional batch may open a transaction, if none is open in its epoch (Kafka:
// UnifiedLog.analyzeAndValidateProducerState and batchMissingRequiredVerification).
func (a *AppendInfo) checkVerified(h *header, slot uint32, known bool) error {
	if known {
		p := a.m.table.at(slot)
		if p.txnFirst >= 0 && p.epoch == h.epoch {
			return nil
		}
		if h.epoch < p.epoch {
			return &EpochError{
				ProducerID: h.id, Epoch: h.epoch, CurrentEpoch: p.epoch, Offset: h.offset, Marker: h.control,
			}
		}
	}
	if h.control || a.m.config.SkipVerification {
		return nil
	}
	if s, ok := a.m.verifications.byID[h.id]; ok && a.o.Guard != NoGuard && s.Guard == a.o.Guard {
		return nil
	}
	return &TxnStateError{ProducerID: h.id, ProducerEpoch: h.epoch, FirstOffset: NoOffset, Offset: h.offset}
}

// MaybeStartVerification asks for a guard before the first batch of a transaction: the caller then asks the coordinator
// whether the partition belongs to the transaction, and appends with the guard once that is confirmed. NoGuard means that
// the transaction is already open in this log and there is nothing to verify; an epoch below the known one is an
// *EpochError. sequence is the batch's first sequence number; supportsEpochBump tells that the client speaks transaction
// version 2, which is fixed by the first call; nowMs is the log's clock. Repeated calls return the same guard, lower the
// sequence and raise the epoch. (Kafka: UnifiedLog.maybeStartTransactionVerification, VerificationStateEntry.)
func (m *Manager) MaybeStartVerification(id int64, sequence int32, epoch int16, supportsEpochBump bool, nowMs int64) (Guard, error) {
	if slot, ok := m.table.find(id); ok {
		p := m.table.at(slot)
		if epoch < p.epoch {
			return NoGuard, &EpochError{ProducerID: id, Epoch: epoch, CurrentEpoch: p.epoch, Offset: NoOffset}
		}
		if p.txnFirst >= 0 && p.epoch == epoch {
			return NoGuard, nil
		}
	}
	v := &m.verifications
	s, ok := v.byID[id]
	switch {
	case !ok:
		if v.byID == nil {
			v.byID = make(map[int64]Verification)
		}
		v.lastGuard++
		s = Verification{
			ProducerID: id, Guard: v.lastGuard, Since: nowMs, LowestSequence: sequence, Epoch: epoch,
			SupportsEpochBump: supportsEpochBump,
		}
	case epoch > s.Epoch:
		s.Epoch, s.LowestSequence = epoch, sequence
	case epoch == s.Epoch && sequence < s.LowestSequence:
		s.LowestSequence = sequence
	}
	v.byID[id] = s
	return s.Guard, nil
}

// Verification returns the verification of a producer that has not been used yet.
func (m *Manager) Verification(id int64) (Verification, bool) {
	s, ok := m.verifications.byID[id]
	return s, ok
}

// Verifications yields all verifications that have not been used yet, in no order.
func (m *Manager) Verifications() func(yield func(Verification) bool) {
	return func(yield func(Verification) bool) {
		for _, s := range m.verifications.byID {
			if !yield(s) {
				return
			}
		}
	}
}

// expire drops verifications started too long ago.
func (v *verifications) expire(nowMs, expirationMs int64) {
	for id, s := range v.byID {
		if elapsed(s.Since, nowMs) >= expirationMs {
			delete(v.byID, id)
		}
	}
}

// elapsed returns to - from, or the greatest number where that overflows: times come from files and clients.
func elapsed(from, to int64) int64 {
	d := to - from
	if (to >= from) != (d >= 0) {
		if to >= from {
			return math.MaxInt64
		}
		return math.MinInt64
	}
	return d
}
