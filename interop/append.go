package interop

// UnknownTransactionVersion is the version of an append that names none. Its zero
// value is version 0, that of transactions before Kafka 4.0.
const UnknownTransactionVersion = -1

// Append is one append as a partition's leader does it. Batch holds one or more
// whole batches; Kafka assigns the offsets and writes the leader epoch.
type Append struct {
	Batch              []byte `json:"batch"`
	Origin             string `json:"origin,omitempty"` // client (as ""), coordinator, replication, raft_leader
	LeaderEpoch        int32  `json:"leaderEpoch"`
	TransactionVersion int16  `json:"transactionVersion"`
	Guard              int    `json:"guard"` // from [Session.Verify], 0 for none
}

// Marker is the batch that ends a transaction.
type Marker struct {
	Producer           int64  `json:"pid"`
	Epoch              int16  `json:"epoch"`
	Commit             bool   `json:"commit"` // else abort
	CoordinatorEpoch   int32  `json:"coordinatorEpoch"`
	LeaderEpoch        int32  `json:"leaderEpoch"`
	Timestamp          int64  `json:"timestamp,omitempty"` // 0: the session's clock
	TransactionVersion int16  `json:"transactionVersion"`
	Origin             string `json:"origin,omitempty"` // coordinator as ""
}

// Appended is what an append answers, with the log's offsets afterwards.
type Appended struct {
	Offsets
	FirstOffset     int64  `json:"firstOffset"`
	LastOffset      int64  `json:"lastOffset"`
	Duplicate       bool   `json:"duplicate"` // nothing was written, the offsets are those of the batch that came first
	LogAppendTime   int64  `json:"logAppendTime"`
	MaxTimestamp    int64  `json:"maxTimestamp"`
	ValidBytes      int64  `json:"validBytes"`
	LastLeaderEpoch int32  `json:"lastLeaderEpoch"`
	ActiveBase      int64  `json:"activeBase"` // base offset of the active segment afterwards
	Batch           []byte `json:"batch"`      // of a marker: the batch as it was built, before it got its offset
}

// Append appends as leader.
func (s *Session) Append(a Append) (Appended, error) { return s.append("append", a) }

// AppendAsFollower appends batches whose offsets and epochs a leader has set.
func (s *Session) AppendAsFollower(batch []byte, leaderEpoch int32) (Appended, error) {
	return s.append("append-follower", Append{Batch: batch, LeaderEpoch: leaderEpoch})
}

// Marker builds the end of a transaction and appends it.
func (s *Session) Marker(m Marker) (Appended, error) { return s.append("marker", m) }

func (s *Session) append(op string, in any) (Appended, error) {
	var out Appended
	err := s.call(op, in, &out)
	return out, err
}

// Verify begins the verification of a transaction. The guard goes into the next
// [Append]; 0 says that there is nothing to verify, equal numbers are equal guards.
func (s *Session) Verify(v Verification) (guard int, err error) {
	in := map[string]any{
		"pid": v.Producer, "epoch": v.Epoch, "sequence": v.LowestSequence, "supportsEpochBump": v.SupportsEpochBump,
	}
	var out struct {
		Guard int `json:"guard"`
	}
	err = s.call("verify", in, &out)
	return out.Guard, err
}
