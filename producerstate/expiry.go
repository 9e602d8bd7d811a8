package producerstate

// MinNamedProducerID is the lowest id of a named producer: 2^62. The allocator of a Kafka cluster counts up from 0 and
// does not come there.
const MinNamedProducerID int64 = 1 << 62

// expiryBound returns the time that expiry is judged at. The clock counts only as far as the log itself has come: a clock
// that jumps forward while the log rests makes nobody expire.
func (m *Manager) expiryBound(nowMs int64) int64 {
	if m.config.Compat {
		return nowMs
	}
	return min(nowMs, m.NewestTime())
}

// isExpired tells whether a producer has been silent for too long at the time bound. An open transaction keeps it. Unlike
// Kafka (ProducerStateManager.isProducerExpired), which goes by the timestamps of the batches alone, the log's clock at
// the last append counts as well: records with old timestamps do not make their producer expire at once.
func (m *Manager) isExpired(p *producer, boundMs, expirationMs int64) bool {
	if p.txnFirst >= 0 {
		return false
	}
	last := p.lastTimestamp
	if !m.config.Compat {
		if p.id >= MinNamedProducerID {
			return false
		}
		last = max(last, p.appendClock)
	}
	return elapsed(last, boundMs) >= expirationMs
}

// RemoveExpired forgets the producers, and the verifications, that have been idle for Config.ProducerIDExpiration at nowMs,
// and returns how many producers that were. It looks at every producer; where there are very many, Sweep holds the lock
// for less long at a time. (Kafka: removeExpiredProducers.)
func (m *Manager) RemoveExpired(nowMs int64) int {
	m.sweepNext = 0
	removed, _ := m.Sweep(nowMs, int(m.table.used)+1)
	return removed
}

// Sweep does a part of RemoveExpired: it goes on where the last call ended, looks at up to limit producers, and says when
// it has come round. Verifications are looked at when it has.
func (m *Manager) Sweep(nowMs int64, limit int) (removed int, done bool) {
	bound, expiration := m.expiryBound(nowMs), m.config.expirationMs()
	t := m.table
	for ; limit > 0 && m.sweepNext < t.used; limit-- {
		p := t.at(m.sweepNext)
		if p.id >= 0 && m.isExpired(p, bound, expiration) {
			t.remove(m.sweepNext)
			removed++
		}
		m.sweepNext++
	}
	if m.sweepNext < t.used {
		return removed, false
	}
	m.sweepNext = 0
	m.verifications.expire(nowMs, expiration)
	t.shrink()
	return removed, true
}

// dropExpired is what Kafka does while it loads a snapshot.
func (m *Manager) dropExpired(s *State, nowMs int64) {
	expiration := m.config.expirationMs()
	for slot := range s.table.used {
		if p := s.table.at(slot); p.id >= 0 && m.isExpired(p, nowMs, expiration) {
			s.table.remove(slot)
		}
	}
}
