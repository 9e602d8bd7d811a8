package wal

import (
	"fmt"
	"iter"
	"time"

	"github.com/oncelog/oncelog/producerstate"
)

// Producers yields what the log knows of each producer, in no meaningful order, as it is when the loop begins. Appends go
// on meanwhile. Batches that wait for their sync are in it. Kafka: ProducerStateManager.activeProducers.
func (l *Log) Producers() iter.Seq[producerstate.Entry] {
	return func(yield func(producerstate.Entry) bool) {
		l.mu.Lock()
		frozen := l.producers.Freeze()
		l.mu.Unlock()
		for e := range frozen.Entries() {
			if !yield(e) {
				return
			}
		}
	}
}

// ProducerEntry returns what the log knows of one producer. Batches that wait for their sync are in it. Kafka:
// ProducerStateManager.lastEntry.
func (l *Log) ProducerEntry(id int64) (producerstate.Entry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.producers.LastEntry(id)
}

// RemoveExpiredProducers forgets the producers that have appended nothing for Options.ProducerIDExpiration and have no
// open transaction, and the verifications that are as old, and returns how many producers that were. Nothing else makes
// the log forget one; a broker does it every ten minutes (producer.id.expiration.check.interval.ms).
//
// The clock counts as far as the log itself has come, which is the newest append: in a log at rest nobody expires, however
// often this is called, until somebody appends; a clock that is wrong forgets nobody. In Compat the clock alone counts, as in Kafka:
// UnifiedLog.removeExpiredProducers, ProducerStateManager.isProducerExpired.
func (l *Log) RemoveExpiredProducers(now time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.producers.RemoveExpired(now.UnixMilli())
}

// TakeProducerSnapshot stores the producer state at the log end, unless it is stored there already. In Compat that is a
// snapshot and nothing else, as in Kafka; otherwise it is a Checkpoint, because a snapshot must never know more than the
// log on disk. Kafka: UnifiedLog.takeProducerSnapshot.
func (l *Log) TakeProducerSnapshot() error {
	if err := l.writable(); err != nil {
		return err
	}
	if !l.opts.Compat {
		return l.Checkpoint()
	}
	l.maintenance.Lock()
	defer l.maintenance.Unlock()
	return l.takeSnapshot()
}

// takeSnapshot writes Kafka's snapshot at the log end, without a side file. The caller holds maintenance.
func (l *Log) takeSnapshot() error {
	return l.exclusively(func() error {
		if err := l.producers.TakeSnapshot(l.last); err != nil {
			return fmt.Errorf("wal: producer snapshot: %w", err)
		}
		return nil
	})
}
