package interop

// Offsets are those of one log. All are offsets of records, -1 where there is none.
type Offsets struct {
	LogStart         int64 `json:"logStart"`
	LogEnd           int64 `json:"logEnd"` // the next offset
	HighWatermark    int64 `json:"highWatermark"`
	LastStableOffset int64 `json:"lso"`
	FirstUnstable    int64 `json:"firstUnstable"`
	RecoveryPoint    int64 `json:"recoveryPoint"`
}

// Log is everything a loaded log knows.
type Log struct {
	Offsets
	Segments      []Segment      `json:"segments"`
	LeaderEpochs  []LeaderEpoch  `json:"leaderEpochs"`
	ProducersEnd  int64          `json:"producersEnd"`   // the producer state covers all below
	Snapshot      int64          `json:"newestSnapshot"` // offset of the newest producer snapshot, -1 without one
	LastSnapshot  int64          `json:"lastSnapshot"`   // no snapshot is taken at or below this offset
	Producers     []Producer     `json:"producers"`      // by producer id
	Ongoing       []Txn          `json:"ongoingTxns"`    // by first offset
	Unreplicated  []Txn          `json:"unreplicatedTxns"`
	Verifications []Verification `json:"verifications"`
}

// Segment is one segment of a loaded log.
type Segment struct {
	Base int64 `json:"base"`
	Size int64 `json:"size"` // bytes of batches, without a preallocated rest
}

// LeaderEpoch is one line of the leader epoch cache.
type LeaderEpoch struct {
	Epoch int32 `json:"epoch"`
	Start int64 `json:"start"`
}

// Producer is what is known about one producer. The Last… fields are those of its
// newest batch, and -1 (LastSeq, LastOffset) where none is remembered.
type Producer struct {
	ID                    int64           `json:"pid"`
	Epoch                 int16           `json:"epoch"`
	LastSeq               int32           `json:"lastSeq"`
	LastOffset            int64           `json:"lastOffset"`
	OffsetDelta           int32           `json:"offsetDelta"`
	LastTimestamp         int64           `json:"lastTimestamp"`
	CoordinatorEpoch      int32           `json:"coordinatorEpoch"`
	CurrentTxnFirstOffset int64           `json:"currentTxnFirstOffset"` // -1 outside a transaction
	Batches               []ProducerBatch `json:"batches"`               // oldest first
}

// ProducerBatch is a remembered batch, against which repeats are recognised.
type ProducerBatch struct {
	FirstSeq    int32 `json:"firstSeq"`
	LastSeq     int32 `json:"lastSeq"`
	FirstOffset int64 `json:"firstOffset"`
	LastOffset  int64 `json:"lastOffset"`
	Timestamp   int64 `json:"timestamp"`
}

// Txn is an open transaction, or one that is complete but not yet below the high watermark.
type Txn struct {
	Producer    int64 `json:"pid"`
	FirstOffset int64 `json:"firstOffset"`
	LastOffset  int64 `json:"lastOffset"` // -1 while it is open
}

// Verification is a transaction of a producer that waits to be confirmed by its coordinator.
type Verification struct {
	Producer          int64 `json:"pid"`
	Epoch             int16 `json:"epoch"`
	LowestSequence    int32 `json:"lowestSequence"`
	SupportsEpochBump bool  `json:"supportsEpochBump"`
}

// File is one file of a partition directory. What follows Size is there only when digests were asked for.
type File struct {
	Name string `json:"name"`
	Size int64  `json:"size"` // on disk, with what is preallocated

	// Used are the bytes that count: of an index its entries, of another file all. SHA256 (hex) is the digest of those.
	Used   int64  `json:"used"`
	SHA256 string `json:"sha256"`

	// Producers are a snapshot's entries, by producer id; a snapshot has no
	// digest, since the order in the file is accidental. Corrupt says why it could not be read.
	Producers []Producer `json:"producers"`
	Corrupt   string     `json:"corrupt"`
}

// Checkpoint is what a log manager remembers of a partition between two runs. LogStart is 0 where no line is written.
type Checkpoint struct {
	RecoveryPoint int64 `json:"recoveryPoint"`
	LogStart      int64 `json:"logStart"`
}
