package kafkatest

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Op is one operation on a log. Which fields have a meaning depends on Kind; fields that the trace leaves out have the
// default of the operation.
//
//	open                 Settings
//	setConfig            Settings: those not named stay
//	append               Batch, LeaderEpoch, Origin, Guard, TransactionVersion
//	appendFollower       Batch (with its offsets), LeaderEpoch
//	marker               ProducerID, Epoch, Type, CoordinatorEpoch, TransactionVersion, LeaderEpoch, Origin, Timestamp
//	verify               ProducerID, Sequence, Epoch, SupportsEpochBump
//	roll, retention, expire, snapshot, lateTransaction, checkpoint, close, crash, state
//	flush                Force
//	hw                   Offset, -1 = log end
//	deleteRecords        Offset
//	truncate             Offset
//	truncateFully        Offset, LogStart (nil = Offset)
//	read                 Offset, MaxBytes, Isolation, MinOneMessage
//	offsetForTimestamp   Time
//	endOffsetForEpoch    Epoch
//	clock                Time
//	damage               Damage
//	reopen               Clean, RecoveryPoint, LogStart (nil = as checkpointed), Settings
type Op struct {
	Kind string
	Line int             // in the file, from 1
	Out  json.RawMessage // what Kafka did

	Settings Settings

	Batch              []byte
	LeaderEpoch        int32
	Origin             string // client, coordinator, replication or raft
	Guard              int64  // 0 = none, or "transaction already running"
	TransactionVersion int16  // -1 = not given

	ProducerID        int64
	Epoch             int32 // of a producer, or in endOffsetForEpoch of a leader
	Sequence          int32
	SupportsEpochBump bool
	Type              string // commit or abort
	CoordinatorEpoch  int32
	Timestamp         *int64 // nil = the clock

	Offset        int64
	LogStart      *int64
	RecoveryPoint *int64
	MaxBytes      int
	Isolation     string // log_end, high_watermark or txn_committed
	MinOneMessage bool
	Force         bool
	Clean         bool
	Time          int64 // milliseconds

	Damage *FileDamage
}

// FileDamage changes a file of the partition between close or crash and reopen: exactly one of XOR, TruncateTo, Append,
// Create and Delete.
type FileDamage struct {
	File string

	// XOR is applied to the byte at Position; a negative Position counts from the end of the file.
	XOR      *byte
	Position int64

	TruncateTo *int64
	Append     []byte // nil = not this
	Create     []byte // the content of the new file; nil = not this
	Delete     bool
}

// Settings are those of an open log; nil means Kafka's default, or in setConfig no change.
type Settings struct {
	StartMs                     *int64  `json:"startMs"` // the clock at the open; 1700000000000 if nil
	SegmentBytes                *int32  `json:"segmentBytes"`
	SegmentIndexBytes           *int32  `json:"segmentIndexBytes"`
	IndexIntervalBytes          *int32  `json:"indexIntervalBytes"`
	SegmentMs                   *int64  `json:"segmentMs"`
	RetentionMs                 *int64  `json:"retentionMs"`
	RetentionBytes              *int64  `json:"retentionBytes"`
	MaxMessageBytes             *int32  `json:"maxMessageBytes"`
	MaxDecompressedMessageBytes *int32  `json:"maxDecompressedMessageBytes"`
	TimestampType               *string `json:"timestampType"`
	MessageTimestampBeforeMaxMs *int64  `json:"messageTimestampBeforeMaxMs"`
	MessageTimestampAfterMaxMs  *int64  `json:"messageTimestampAfterMaxMs"`
	CleanupPolicy               *string `json:"cleanupPolicy"`
	CompressionType             *string `json:"compressionType"`
	FileDeleteDelayMs           *int64  `json:"fileDeleteDelayMs"`
	FlushMessages               *int64  `json:"flushMessages"`
	Preallocate                 *bool   `json:"preallocate"`
	MaxCompactionLagMs          *int64  `json:"maxCompactionLagMs"`
	ProducerIDExpirationMs      *int64  `json:"producerIdExpirationMs"`  // 86400000 if nil
	TransactionVerification     *bool   `json:"transactionVerification"` // true if nil
}

// opLine is an operation as it is written. Pointers tell what is left out.
type opLine struct {
	Settings
	Op                 string          `json:"op"`
	Out                json.RawMessage `json:"out"`
	Batch              []byte          `json:"batch"`
	LeaderEpoch        int32           `json:"leaderEpoch"`
	Origin             string          `json:"origin"`
	Guard              int64           `json:"guard"`
	TransactionVersion *int16          `json:"transactionVersion"`
	PID                int64           `json:"pid"`
	Epoch              int32           `json:"epoch"`
	Sequence           int32           `json:"sequence"`
	SupportsEpochBump  bool            `json:"supportsEpochBump"`
	Type               string          `json:"type"`
	CoordinatorEpoch   int32           `json:"coordinatorEpoch"`
	TS                 *int64          `json:"ts"`
	Offset             int64           `json:"offset"`
	LogStart           *int64          `json:"logStart"`
	RecoveryPoint      *int64          `json:"recoveryPoint"`
	MaxBytes           int             `json:"maxBytes"`
	Isolation          string          `json:"isolation"`
	MinOneMessage      bool            `json:"minOneMessage"`
	Force              bool            `json:"force"`
	Clean              bool            `json:"clean"`
	MS                 int64           `json:"ms"`
	File               string          `json:"file"`
	Pos                int64           `json:"pos"`
	XOR                *byte           `json:"xor"`
	TruncateTo         *int64          `json:"truncateTo"`
	Append             *string         `json:"append"`
	Create             *string         `json:"create"`
	Delete             bool            `json:"delete"`
}

// kinds are the operations that there are.
var kinds = map[string]bool{
	"open": true, "setConfig": true, "append": true, "appendFollower": true, "marker": true, "verify": true, "roll": true,
	"flush": true, "hw": true, "deleteRecords": true, "retention": true, "truncate": true, "truncateFully": true, "expire": true,
	"snapshot": true, "read": true, "offsetForTimestamp": true, "endOffsetForEpoch": true, "lateTransaction": true, "clock": true,
	"checkpoint": true, "close": true, "crash": true, "damage": true, "reopen": true, "state": true,
}

func decodeOp(line []byte) (Op, error) {
	var l opLine
	if err := strict(line, &l); err != nil {
		return Op{}, err
	}
	if !kinds[l.Op] {
		return Op{}, fmt.Errorf("operation %q", l.Op)
	}
	var failure struct {
		OK *bool `json:"ok"`
	}
	if err := json.Unmarshal(l.Out, &failure); err != nil || failure.OK == nil {
		return Op{}, fmt.Errorf("operation %q without an outcome", l.Op)
	}
	op := Op{
		Kind: l.Op, Out: l.Out, Settings: l.Settings,
		Batch: l.Batch, LeaderEpoch: l.LeaderEpoch, Origin: l.Origin, Guard: l.Guard,
		ProducerID: l.PID, Epoch: l.Epoch, Sequence: l.Sequence, SupportsEpochBump: l.SupportsEpochBump,
		Type: l.Type, CoordinatorEpoch: l.CoordinatorEpoch, Timestamp: l.TS,
		Offset: l.Offset, LogStart: l.LogStart, RecoveryPoint: l.RecoveryPoint, MaxBytes: l.MaxBytes,
		Isolation: l.Isolation, MinOneMessage: l.MinOneMessage, Force: l.Force, Clean: l.Clean, Time: l.MS,
	}
	origin, version := "client", int16(-1)
	if l.Op == "marker" {
		origin, version = "coordinator", 0
	}
	if op.Origin == "" {
		op.Origin = origin
	}
	if l.TransactionVersion != nil {
		version = *l.TransactionVersion
	}
	op.TransactionVersion = version
	if l.Op == "offsetForTimestamp" && l.TS != nil {
		op.Time, op.Timestamp = *l.TS, nil
	}
	var err error
	if l.Op == "damage" {
		op.Damage, err = l.damage()
	}
	return op, err
}

func (l *opLine) damage() (*FileDamage, error) {
	d := &FileDamage{File: l.File, XOR: l.XOR, Position: l.Pos, TruncateTo: l.TruncateTo, Delete: l.Delete}
	for _, f := range []struct {
		from *string
		to   *[]byte
	}{{l.Append, &d.Append}, {l.Create, &d.Create}} {
		if f.from == nil {
			continue
		}
		p, err := hex.DecodeString(*f.from)
		if err != nil {
			return nil, err
		}
		*f.to = append([]byte{}, p...)
	}
	given := 0
	for _, is := range []bool{d.XOR != nil, d.TruncateTo != nil, d.Append != nil, d.Create != nil, d.Delete} {
		if is {
			given++
		}
	}
	if given != 1 {
		return nil, fmt.Errorf("damage to %q of %d kinds", l.File, given)
	}
	return d, nil
}
