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
	StartMs                     *int64  `json:"startMs,omitzero"` // the clock at the open; 1700000000000 if nil
	SegmentBytes                *int32  `json:"segmentBytes,omitzero"`
	SegmentIndexBytes           *int32  `json:"segmentIndexBytes,omitzero"`
	IndexIntervalBytes          *int32  `json:"indexIntervalBytes,omitzero"`
	SegmentMs                   *int64  `json:"segmentMs,omitzero"`
	RetentionMs                 *int64  `json:"retentionMs,omitzero"`
	RetentionBytes              *int64  `json:"retentionBytes,omitzero"`
	MaxMessageBytes             *int32  `json:"maxMessageBytes,omitzero"`
	MaxDecompressedMessageBytes *int32  `json:"maxDecompressedMessageBytes,omitzero"`
	TimestampType               *string `json:"timestampType,omitzero"`
	MessageTimestampBeforeMaxMs *int64  `json:"messageTimestampBeforeMaxMs,omitzero"`
	MessageTimestampAfterMaxMs  *int64  `json:"messageTimestampAfterMaxMs,omitzero"`
	CleanupPolicy               *string `json:"cleanupPolicy,omitzero"`
	CompressionType             *string `json:"compressionType,omitzero"`
	FileDeleteDelayMs           *int64  `json:"fileDeleteDelayMs,omitzero"`
	FlushMessages               *int64  `json:"flushMessages,omitzero"`
	Preallocate                 *bool   `json:"preallocate,omitzero"`
	MaxCompactionLagMs          *int64  `json:"maxCompactionLagMs,omitzero"`
	ProducerIDExpirationMs      *int64  `json:"producerIdExpirationMs,omitzero"`  // 86400000 if nil
	TransactionVerification     *bool   `json:"transactionVerification,omitzero"` // true if nil
}

// opLine is an operation as it is written. Pointers tell what is left out.
type opLine struct {
	Op string `json:"op"`
	Settings
	Batch              []byte          `json:"batch,omitzero"`
	LeaderEpoch        int32           `json:"leaderEpoch,omitzero"`
	Origin             string          `json:"origin,omitzero"`
	Guard              int64           `json:"guard,omitzero"`
	TransactionVersion *int16          `json:"transactionVersion,omitzero"`
	PID                int64           `json:"pid,omitzero"`
	Epoch              int32           `json:"epoch,omitzero"`
	Sequence           int32           `json:"sequence,omitzero"`
	SupportsEpochBump  bool            `json:"supportsEpochBump,omitzero"`
	Type               string          `json:"type,omitzero"`
	CoordinatorEpoch   int32           `json:"coordinatorEpoch,omitzero"`
	TS                 *int64          `json:"ts,omitzero"`
	Offset             int64           `json:"offset,omitzero"`
	LogStart           *int64          `json:"logStart,omitzero"`
	RecoveryPoint      *int64          `json:"recoveryPoint,omitzero"`
	MaxBytes           int             `json:"maxBytes,omitzero"`
	Isolation          string          `json:"isolation,omitzero"`
	MinOneMessage      bool            `json:"minOneMessage,omitzero"`
	Force              bool            `json:"force,omitzero"`
	Clean              bool            `json:"clean,omitzero"`
	MS                 int64           `json:"ms,omitzero"`
	File               string          `json:"file,omitzero"`
	Pos                int64           `json:"pos,omitzero"`
	XOR                *byte           `json:"xor,omitzero"`
	TruncateTo         *int64          `json:"truncateTo,omitzero"`
	Append             *string         `json:"append,omitzero"`
	Create             *string         `json:"create,omitzero"`
	Delete             bool            `json:"delete,omitzero"`
	Out                json.RawMessage `json:"out"`
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
	origin, version := opDefaults(l.Op)
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

// opDefaults are the origin and the transaction version of an operation that names none.
func opDefaults(kind string) (origin string, version int16) {
	if kind == "marker" {
		return "coordinator", 0
	}
	return "client", -1
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
