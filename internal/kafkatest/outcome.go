package kafkatest

// NewOutcome returns a pointer to a value that the outcome of an operation of a kind fits into.
func NewOutcome(kind string) any {
	switch kind {
	case "append", "appendFollower", "marker":
		return new(AppendOutcome)
	case "open", "reopen", "hw", "deleteRecords", "retention", "truncate", "truncateFully", "checkpoint", "close", "flush":
		return new(EndsOutcome)
	case "read":
		return new(ReadOutcome)
	case "offsetForTimestamp":
		return new(TimestampOutcome)
	case "endOffsetForEpoch":
		return new(EpochOutcome)
	case "state":
		return new(StateOutcome)
	}
	return new(SmallOutcome)
}

// AppendOutcome is the outcome of append, appendFollower and marker. For a duplicate the offsets are those of the earlier
// batch; -1 if nothing was appended.
type AppendOutcome struct {
	Failure
	FirstOffset     int64 `json:"firstOffset"`
	LastOffset      int64 `json:"lastOffset"`
	Duplicate       bool  `json:"duplicate"`
	LogAppendTime   int64 `json:"logAppendTime"`
	MaxTimestamp    int64 `json:"maxTimestamp"`
	ValidBytes      int   `json:"validBytes"` // of the input
	LogStart        int64 `json:"logStart"`
	LastLeaderEpoch int32 `json:"lastLeaderEpoch"`
	LogEnd          int64 `json:"logEnd"`
	ActiveBase      int64 `json:"activeBase"` // base of the active segment afterwards

	// Built is the batch of a marker before it got its offset.
	Built []byte `json:"built,omitzero"`
}

// EndsOutcome is the outcome of open, reopen, hw, deleteRecords, retention, truncate, truncateFully, checkpoint, close and
// flush; each has only some of the fields.
type EndsOutcome struct {
	Failure
	LogStart      int64 `json:"logStart,omitzero"`
	LogEnd        int64 `json:"logEnd,omitzero"`
	HighWatermark int64 `json:"highWatermark,omitzero"`
	LSO           int64 `json:"lso,omitzero"`
	RecoveryPoint int64 `json:"recoveryPoint,omitzero"`
	Moved         bool  `json:"moved,omitzero"`     // deleteRecords: the log start moved
	Deleted       int   `json:"deleted,omitzero"`   // retention: segments
	Truncated     bool  `json:"truncated,omitzero"` // truncate: something was cut
}

// ReadOutcome is the outcome of a read.
type ReadOutcome struct {
	Failure

	// Position is where the first batch lies. Segment and Pos are -1 if only the offset is known.
	Position struct {
		Offset  int64 `json:"offset"`
		Segment int64 `json:"segment"`
		Pos     int64 `json:"pos"`
	} `json:"position"`

	Bytes                int        `json:"bytes"`   // may end inside a batch
	Batches              [][3]int64 `json:"batches"` // base offset, last offset and size of the complete ones
	SHA256               string     `json:"sha256"`  // of all bytes, hexadecimal
	FirstEntryIncomplete bool       `json:"firstEntryIncomplete"`
	Aborted              [][2]int64 `json:"aborted"` // producer id and first offset; nil if not asked for
}

// TimestampOutcome is the outcome of offsetForTimestamp; a nil Offset means that there is none.
type TimestampOutcome struct {
	Failure
	Timestamp   int64  `json:"timestamp"`
	Offset      *int64 `json:"offset"`
	LeaderEpoch *int32 `json:"leaderEpoch"`
}

// EpochOutcome is the outcome of endOffsetForEpoch.
type EpochOutcome struct {
	Failure
	Epoch  int32 `json:"epoch"`
	Offset int64 `json:"offset"`
}

// SmallOutcome is the outcome of verify, roll, expire, snapshot, lateTransaction, damage, crash, clock and setConfig; each
// has one of the fields or none.
type SmallOutcome struct {
	Failure

	// Guard is 0 for "nothing to verify"; two that are equal name the same guard, other meaning the number has none.
	Guard int64 `json:"guard,omitzero"`

	BaseOffset int64 `json:"baseOffset,omitzero"` // roll: base of the new segment
	Producers  int   `json:"producers,omitzero"`  // expire: how many are left
	Latest     int64 `json:"latest,omitzero"`     // snapshot: offset of the newest
	Late       bool  `json:"late,omitzero"`       // lateTransaction
	Size       int64 `json:"size,omitzero"`       // damage: of the file afterwards
	Existed    bool  `json:"existed,omitzero"`    // damage: the deleted file was there
}

// StateOutcome is the outcome of state: all there is to see.
type StateOutcome struct {
	Failure
	LogStart      int64      `json:"logStart"`
	LogEnd        int64      `json:"logEnd"`
	HighWatermark int64      `json:"highWatermark"`
	LSO           int64      `json:"lso"`
	FirstUnstable int64      `json:"firstUnstable"` // -1 = none
	RecoveryPoint int64      `json:"recoveryPoint"`
	Segments      [][2]int64 `json:"segments"`     // base offset and size
	LeaderEpochs  [][2]int64 `json:"leaderEpochs"` // epoch and start offset

	// MapEnd and LastSnapshot are the producer state manager's own offsets.
	MapEnd       int64 `json:"mapEnd"`
	LastSnapshot int64 `json:"lastSnapshot"`

	Producers        []ProducerState `json:"producers"`        // by producer id
	OngoingTxns      [][2]int64      `json:"ongoingTxns"`      // producer id and first offset
	UnreplicatedTxns [][3]int64      `json:"unreplicatedTxns"` // producer id, first and last offset
	Verifications    []Verification  `json:"verifications"`
	Files            []StateFile     `json:"files"` // by name
}

// ProducerState is what a log remembers of one producer.
type ProducerState struct {
	ProducerID            int64 `json:"pid"`
	Epoch                 int16 `json:"epoch"`
	LastSequence          int32 `json:"lastSeq"`
	LastOffset            int64 `json:"lastOffset"`
	OffsetDelta           int32 `json:"offsetDelta"`
	LastTimestamp         int64 `json:"lastTimestamp"`
	CoordinatorEpoch      int32 `json:"coordinatorEpoch"`
	CurrentTxnFirstOffset int64 `json:"currentTxnFirstOffset"`

	// Batches are first sequence, last sequence, first offset, last offset and timestamp of each remembered batch, the
	// oldest first. Not in a snapshot.
	Batches [][5]int64 `json:"batches,omitzero"`
}

// StateFile is a file of the partition. Of an index only the first Used bytes count, and SHA256 is theirs; of a snapshot
// only its entries, since their order in the file has no meaning.
type StateFile struct {
	Name    string          `json:"name"`
	Size    int64           `json:"size"`
	SHA256  string          `json:"sha256,omitzero"` // hexadecimal; empty for a snapshot
	Used    *int64          `json:"used,omitzero"`
	Entries []ProducerState `json:"entries,omitzero"` // by producer id
	Corrupt any             `json:"corrupt,omitzero"` // of a snapshot that cannot be read; nil if it can
}

// Verification is a transactional append that was announced and has not come yet.
type Verification struct {
	ProducerID        int64 `json:"pid"`
	Epoch             int16 `json:"epoch"`
	LowestSequence    int32 `json:"lowestSequence"`
	SupportsEpochBump bool  `json:"supportsEpochBump"`
}
