package kafkatest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Dump is what Kafka's classes read in one partition directory.
type Dump struct {
	Dir          string    `json:"dir"`
	LogEndOffset int64     `json:"logEndOffset"` // the offset after the last good batch of any segment
	Segments     []Segment `json:"segments"`

	// SegmentsUnchanged are base offsets of segments that are left out because nothing about them changed.
	SegmentsUnchanged []int64 `json:"segmentsUnchanged"`

	Snapshots         []Snapshot   `json:"snapshots"`
	LeaderEpochs      []EpochEntry `json:"leaderEpochs"`      // nil if there is no file
	PartitionMetadata *string      `json:"partitionMetadata"` // the text of the file, nil if there is none
	OtherFiles        []string     `json:"otherFiles"`

	// Damage is the first thing that was unreadable or invalid, nil if all is well.
	Damage *Damage `json:"damage"`
}

// Damage is where a file cannot be read on.
type Damage struct {
	File     string `json:"file"`
	Position int64  `json:"position"`
	Reason   string `json:"reason"`
}

// EpochEntry is a line of the leader epoch checkpoint.
type EpochEntry struct {
	Epoch       int32 `json:"epoch"`
	StartOffset int64 `json:"startOffset"`
}

// Segment is one segment of a partition. What has no file is nil.
type Segment struct {
	BaseOffset int64            `json:"baseOffset"`
	Files      map[string]int64 `json:"files"` // size by kind: log, index, timeindex, txnindex

	// LogUnchanged means that the batches are left out because the .log file is as it was before.
	LogUnchanged bool `json:"logUnchanged"`

	Batches      []Batch `json:"batches"`
	InvalidBatch *Batch  `json:"invalidBatch"` // the header of the batch where the walk stopped
	ValidBytes   int64   `json:"validBytes"`   // bytes covered by good batches
	Damage       *Damage `json:"damage"`

	Index     *Index    `json:"index"`     // entries are absolute offset, position
	TimeIndex *Index    `json:"timeIndex"` // entries are timestamp, absolute offset
	TxnIndex  *TxnIndex `json:"txnIndex"`
}

// Index is the content of an offset or a time index.
type Index struct {
	Slots          int        `json:"slots"`          // whole entries in the file
	ZeroSlotsAtEnd int        `json:"zeroSlotsAtEnd"` // of these, zeros at the end, which are not in Entries
	TrailingBytes  int        `json:"trailingBytes"`
	Entries        [][2]int64 `json:"entries"`
}

// TxnIndex is the content of a transaction index.
type TxnIndex struct {
	TrailingBytes int          `json:"trailingBytes"`
	Entries       []AbortedTxn `json:"entries"`
}

// AbortedTxn is an entry of a transaction index; one that cannot be read has Damage and its version only.
type AbortedTxn struct {
	Version          int16   `json:"version"`
	ProducerID       int64   `json:"producerId"`
	FirstOffset      int64   `json:"firstOffset"`
	LastOffset       int64   `json:"lastOffset"`
	LastStableOffset int64   `json:"lastStableOffset"`
	EntrySize        int     `json:"entrySize"`
	Damage           *Damage `json:"damage"`
}

// Snapshot is the content of a producer snapshot; one that cannot be read has Damage and no entries.
type Snapshot struct {
	File    string          `json:"file"`
	Size    int64           `json:"size"`
	Version int16           `json:"version"`
	CRC     uint32          `json:"crc"`
	Count   int32           `json:"count"`
	Entries []SnapshotEntry `json:"entries"`
	Damage  *Damage         `json:"damage"`
}

// SnapshotEntry is a producer in a snapshot, with the fields as they are in the file.
type SnapshotEntry struct {
	ProducerID            int64 `json:"producerId"`
	ProducerEpoch         int16 `json:"producerEpoch"`
	LastSequence          int32 `json:"lastSequence"`
	LastOffset            int64 `json:"lastOffset"`
	OffsetDelta           int32 `json:"offsetDelta"`
	Timestamp             int64 `json:"timestamp"`
	CoordinatorEpoch      int32 `json:"coordinatorEpoch"`
	CurrentTxnFirstOffset int64 `json:"currentTxnFirstOffset"`
}

// Batch is a batch, or, of message format 0 and 1, a message or the wrapper of a compressed set. What its format has not
// got, or what cannot be known without decompression, is -1, and false for the two flags.
type Batch struct {
	Position             int64  `json:"position"`
	Size                 int64  `json:"size"`
	Magic                int8   `json:"magic"`
	BaseOffset           int64  `json:"baseOffset"` // of a wrapper: of its first record
	LastOffset           int64  `json:"lastOffset"` // below magic 2: the stored offset
	Count                int32  `json:"count"`
	BaseSequence         int32  `json:"baseSequence"`
	LastSequence         int32  `json:"lastSequence"`
	ProducerID           int64  `json:"producerId"`
	ProducerEpoch        int16  `json:"producerEpoch"`
	PartitionLeaderEpoch int32  `json:"partitionLeaderEpoch"`
	TimestampType        string `json:"timestampType"` // CreateTime or LogAppendTime; empty with magic 0
	BaseTimestamp        int64  `json:"baseTimestamp"` // the field as stored: with a delete horizon, that
	MaxTimestamp         int64  `json:"maxTimestamp"`
	Codec                string `json:"codec"` // none, gzip, snappy, lz4, zstd
	CRC                  uint32 `json:"crc"`
	Valid                bool   `json:"valid"`
	IsTransactional      bool   `json:"isTransactional"`
	IsControl            bool   `json:"isControl"`
	DeleteHorizonMs      int64  `json:"deleteHorizonMs"`
	Attributes           int64  `json:"attributes"` // only below magic 2

	Records []Record `json:"records"` // nil in a dump without records

	// Inner are the entries inside a wrapper as they are stored.
	Inner         []InnerEntry `json:"inner"`
	TrailingBytes int64        `json:"trailingBytes"` // behind the last of them
}

// UnmarshalJSON reads a batch.
func (b *Batch) UnmarshalJSON(p []byte) error {
	type plain Batch
	v := plain{
		BaseOffset: -1, LastOffset: -1, Count: -1, BaseSequence: -1, LastSequence: -1, ProducerID: -1, ProducerEpoch: -1,
		PartitionLeaderEpoch: -1, BaseTimestamp: -1, MaxTimestamp: -1, DeleteHorizonMs: -1, Attributes: -1,
	}
	if err := strict(p, &v); err != nil {
		return err
	}
	*b = Batch(v)
	return nil
}

// Record is one record. Below magic 2 its sequence is -1, with magic 0 its timestamp too.
type Record struct {
	Offset    int64    `json:"offset"`
	Timestamp int64    `json:"timestamp"`
	Sequence  int32    `json:"sequence"`
	Key       Blob     `json:"key"`
	Value     Blob     `json:"value"`
	Headers   []Header `json:"headers"`
	Control   *Control `json:"control"` // of a control record
}

// UnmarshalJSON reads a record.
func (r *Record) UnmarshalJSON(p []byte) error {
	type plain Record
	v := plain{Timestamp: -1, Sequence: -1}
	if err := strict(p, &v); err != nil {
		return err
	}
	*r = Record(v)
	return nil
}

// Control is what a control record says.
type Control struct {
	Type             string `json:"type"` // such as COMMIT or ABORT
	KeyVersion       int16  `json:"keyVersion"`
	Version          int16  `json:"version"`
	CoordinatorEpoch int32  `json:"coordinatorEpoch"`
}

// Blob is a key or a value. One that is too long for the document is known by its size and digest.
type Blob struct {
	Data   []byte // nil is null, unless SHA256 is set
	Size   int64  // -1 for null
	SHA256 string // hexadecimal; empty if Data holds the bytes
}

// UnmarshalJSON reads base64, null, or size and digest.
func (b *Blob) UnmarshalJSON(p []byte) error {
	if string(p) == "null" {
		*b = Blob{Size: -1}
		return nil
	}
	if len(p) > 0 && p[0] == '{' {
		var long struct {
			Size   int64  `json:"size"`
			SHA256 string `json:"sha256"`
		}
		err := strict(p, &long)
		*b = Blob{Size: long.Size, SHA256: long.SHA256}
		return err
	}
	err := json.Unmarshal(p, &b.Data)
	b.Size, b.SHA256 = int64(len(b.Data)), ""
	return err
}

// Equal reports whether p are the bytes of b; nil is null and not the same as empty.
func (b Blob) Equal(p []byte) bool {
	if b.SHA256 != "" {
		sum := sha256.Sum256(p)
		return int64(len(p)) == b.Size && hex.EncodeToString(sum[:]) == b.SHA256
	}
	return (p == nil) == (b.Data == nil) && string(p) == string(b.Data)
}

// Header is a header of a record; a nil Value is null.
type Header struct {
	Key   string
	Value []byte
}

// UnmarshalJSON reads a pair of key and base64 or null.
func (h *Header) UnmarshalJSON(p []byte) error {
	var pair [2]*string
	if err := json.Unmarshal(p, &pair); err != nil {
		return err
	}
	if pair[0] == nil {
		return fmt.Errorf("header without a key: %s", p)
	}
	*h = Header{Key: *pair[0]}
	if pair[1] == nil {
		return nil
	}
	value, err := base64.StdEncoding.DecodeString(*pair[1])
	h.Value = append([]byte{}, value...)
	return err
}

// InnerEntry is an entry inside the wrapper of a compressed set of message format 0 or 1.
type InnerEntry struct {
	StoredOffset int64 // absolute with magic 0, relative with magic 1
	Size         int64 // with the 12 bytes in front
	Magic        int8
	Attributes   int8
	Timestamp    int64 // -1 with magic 0
	CRC          uint32
	CRCRight     bool
}

// UnmarshalJSON reads the list that an entry is written as.
func (e *InnerEntry) UnmarshalJSON(p []byte) error {
	*e = InnerEntry{Timestamp: -1}
	fields := []any{&e.StoredOffset, &e.Size, &e.Magic, &e.Attributes, &e.Timestamp, &e.CRC, &e.CRCRight}
	want := len(fields)
	if err := json.Unmarshal(p, &fields); err != nil {
		return err
	}
	if len(fields) != want {
		return fmt.Errorf("%d fields instead of %d in %s", len(fields), want, p)
	}
	return nil
}
