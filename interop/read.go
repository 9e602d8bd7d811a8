package interop

// Read is one fetch.
type Read struct {
	Offset        int64  `json:"offset"`
	MaxBytes      int32  `json:"maxBytes"`
	Isolation     string `json:"isolation,omitempty"` // log_end (as ""), high_watermark, txn_committed
	MinOneMessage bool   `json:"minOneMessage"`       // the first batch whole, even above MaxBytes
	Bytes         bool   `json:"bytes"`               // return the bytes too
}

// ReadResult is what a fetch found.
type ReadResult struct {
	Offsets
	StartOffset          int64       `json:"startOffset"`
	Segment              int64       `json:"segment"`  // base offset of the segment, -1 when nothing was looked up
	Position             int64       `json:"position"` // byte in that segment, -1 likewise
	FirstEntryIncomplete bool        `json:"firstEntryIncomplete"`
	Size                 int64       `json:"size"` // bytes, may end inside a batch
	SHA256               string      `json:"sha256"`
	Bytes                []byte      `json:"bytes"`
	Batches              []ReadBatch `json:"batches"` // the whole ones
	AbortedKnown         bool        `json:"abortedKnown"`
	Aborted              []Txn       `json:"aborted"` // LastOffset is not told
}

// ReadBatch is one whole batch of a fetch.
type ReadBatch struct {
	BaseOffset int64 `json:"baseOffset"`
	LastOffset int64 `json:"lastOffset"`
	Size       int64 `json:"size"`
}

// Read fetches.
func (s *Session) Read(r Read) (ReadResult, error) {
	var out ReadResult
	err := s.call("read", r, &out)
	return out, err
}

// Found is the answer to a look-up by time or by leader epoch.
type Found struct {
	Found       bool  `json:"found"`
	Offset      int64 `json:"offset"`
	Timestamp   int64 `json:"timestamp"`   // by time
	LeaderEpoch int32 `json:"leaderEpoch"` // by time; -1 if not known
	Epoch       int32 `json:"epoch"`       // by epoch: the greatest one not above the one asked for
}

// OffsetForTime finds the first record at or after a time; -1 to -6 are the protocol's special values.
func (s *Session) OffsetForTime(ms int64) (Found, error) {
	var out Found
	err := s.call("offset-for-time", map[string]any{"timestamp": ms}, &out)
	return out, err
}

// EndOfEpoch finds where a leader epoch ends.
func (s *Session) EndOfEpoch(epoch int32) (Found, error) {
	var out Found
	err := s.call("end-of-epoch", map[string]any{"epoch": epoch}, &out)
	return out, err
}
