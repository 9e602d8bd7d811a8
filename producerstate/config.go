package producerstate

import (
	"time"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
)

// Origin says on whose behalf a batch is appended, which decides what is checked (Kafka: AppendOrigin). The zero value is
// the strictest.
type Origin uint8

const (
	// Client is a producer: everything is checked.
	Client Origin = iota
	// Coordinator is a group or transaction coordinator: epochs and the transaction state are checked, sequences are
	// not, since it writes without them.
	Coordinator
	// Replication is a follower's append or a replay: the leader has judged already, so a batch is taken as it is,
	// unless it contradicts the transaction state.
	Replication
	// RaftLeader is the leader of a metadata log: as Coordinator, without verification.
	RaftLeader
)

// String returns the name of the origin.
func (o Origin) String() string {
	switch o {
	case Client:
		return "client"
	case Coordinator:
		return "coordinator"
	case Replication:
		return "replication"
	case RaftLeader:
		return "raft leader"
	}
	return "unknown origin"
}

// UnknownRule says what a first batch with a sequence other than 0 means, if its producer is not known. Kafka has
// answered differently over time.
type UnknownRule uint8

const (
	// UnknownKafka44 accepts any sequence (KIP-360), unless the producer is under verification as a client of
	// transaction version 2: such a producer starts at 0 (KIP-890). It is the rule of Kafka 4.1 to 4.4.
	UnknownKafka44 UnknownRule = iota
	// UnknownKafka25 accepts any sequence without exception, as Kafka 2.5 to 4.0 do.
	UnknownKafka25
	// UnknownRefused refuses with ErrUnknownProducerID, also where only a marker is left of the producer, as Kafka did
	// before 2.5.
	UnknownRefused
	// UnknownAtLogStart is UnknownKafka44 and refuses a sequence other than 0 as the very first record of a log, at
	// offset 0: there is nothing that retention could have removed. Later versions of Kafka plan it.
	UnknownAtLogStart
)

// Defaults of Config.
const (
	// DefaultProducerIDExpiration is Kafka's default of producer.id.expiration.ms.
	DefaultProducerIDExpiration = 24 * time.Hour
	// DefaultMaxTransactionTimeout is Kafka's default of transaction.max.timeout.ms.
	DefaultMaxTransactionTimeout = 15 * time.Minute
)

// lateTxnBuffer is what a transaction may overrun the longest timeout by before it counts as late (Kafka:
// ProducerStateManager.LATE_TRANSACTION_BUFFER_MS).
const lateTxnBuffer = 5 * time.Minute

// Config holds the settings of a Manager. The zero value has Kafka's defaults and this package's safer rules.
type Config struct {
	// ProducerIDExpiration is how long a producer without an open transaction is remembered after its last append.
	// 0 means DefaultProducerIDExpiration. Kafka: producer.id.expiration.ms.
	ProducerIDExpiration time.Duration
	// MaxTransactionTimeout is the longest timeout a transaction may ask for; HasLateTransaction needs it. 0 means
	// DefaultMaxTransactionTimeout. Kafka: transaction.max.timeout.ms.
	MaxTransactionTimeout time.Duration
	// SkipVerification turns off the check that a transaction was verified before its first batch. Sequences are still
	// held against a verification that was started. Kafka: transaction.partition.verification.enable, negated.
	SkipVerification bool
	// GuardsAbove makes every Guard greater than this one. A log that is opened again in the same process passes another
	// number each time, since a guard from before must not pass.
	GuardsAbove Guard
	// UnknownProducers chooses the rule for a first sequence other than 0.
	UnknownProducers UnknownRule
	// Compat makes the manager do exactly as Kafka 4.4: replayed batches of an older epoch set the epoch back, expiry
	// counts from batch timestamps and trusts the clock, expired producers are not loaded, named producers expire
	// like others, and no side files are written or read.
	Compat bool
	// AllowBareSnapshots lets a snapshot without a usable side file be loaded, with the one batch a producer it holds.
	// It is for directories that Kafka wrote last. Otherwise such a snapshot is passed over, because replaying more of
	// the log brings all five batches back. Compat implies it.
	AllowBareSnapshots bool
	// Files, if not nil, is what Open takes the directory to hold, for one who has just listed it.
	Files []vfs.DirEntry
	// ReadOnly makes every method that would change the directory leave it alone.
	ReadOnly bool
	// Accept, if set, is asked before a pair is loaded whether the log agrees with it, usually whether the batch that
	// the side file names is there; a Size of 0 says that it names none. A pair that is not accepted is passed over,
	// and left where it is.
	Accept func(offset int64, last record.Identity) bool
	// Report, if set, is called for what was accepted although it is not as it should be. The call must not come back
	// to the manager.
	Report func(Finding)
}

func (c *Config) expirationMs() int64 {
	if c.ProducerIDExpiration == 0 {
		return DefaultProducerIDExpiration.Milliseconds()
	}
	return c.ProducerIDExpiration.Milliseconds()
}

func (c *Config) lateTxnMs() int64 {
	timeout := c.MaxTransactionTimeout
	if timeout == 0 {
		timeout = DefaultMaxTransactionTimeout
	}
	return (timeout + lateTxnBuffer).Milliseconds()
}

// FindingKind says what a Finding is about.
type FindingKind uint8

const (
	// OldEpoch is a replicated or replayed batch, or marker, of an epoch below the producer's.
	OldEpoch FindingKind = iota + 1
	// OldCoordinatorEpoch is a replicated or replayed marker of a coordinator epoch below the producer's.
	OldCoordinatorEpoch
	// OldSequence is a batch that was not checked and whose sequences lie behind those already stored. It is in the
	// log; the state keeps the later sequences.
	OldSequence
	// UnknownControl is a control record of a type without meaning for producers. It was skipped.
	UnknownControl
	// SnapshotRejected is a snapshot or side file that was not used, Err says why.
	SnapshotRejected
)

// String returns the kind in words.
func (k FindingKind) String() string {
	switch k {
	case OldEpoch:
		return "older producer epoch"
	case OldCoordinatorEpoch:
		return "older coordinator epoch"
	case OldSequence:
		return "older sequence"
	case UnknownControl:
		return "unknown control record"
	case SnapshotRejected:
		return "snapshot rejected"
	}
	return "unknown finding"
}

// Finding is something that was accepted although it is not as it should be.
type Finding struct {
	// Kind says what it is.
	Kind FindingKind
	// ProducerID is the producer concerned, or record.NoProducerID.
	ProducerID int64
	// Offset is the base offset of the batch, or the offset of the snapshot.
	Offset int64
	// Got is the epoch, sequence or control type found.
	Got int64
	// Current is the epoch or sequence held against it.
	Current int64
	// Err is set for SnapshotRejected.
	Err error
}
