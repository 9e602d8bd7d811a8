package record

import (
	"encoding/binary"
	"fmt"
	"strconv"
)

// ControlType says what a control record is for. It is stored in the record's key.
type ControlType int16

// The control records that are known. Any other number is possible: readers skip what they do not know.
const (
	// Abort ends a transaction whose records readers of committed data must not see.
	Abort ControlType = 0
	// Commit ends a transaction whose records count.
	Commit ControlType = 1
	// LeaderChange and the types after it occur in the metadata log of KRaft only.
	LeaderChange   ControlType = 2
	SnapshotHeader ControlType = 3
	SnapshotFooter ControlType = 4
	KRaftVersion   ControlType = 5
	KRaftVoters    ControlType = 6
)

// String returns Kafka's name of the type, or its number in parentheses.
func (t ControlType) String() string {
	switch t {
	case Abort:
		return "ABORT"
	case Commit:
		return "COMMIT"
	case LeaderChange:
		return "LEADER_CHANGE"
	case SnapshotHeader:
		return "SNAPSHOT_HEADER"
	case SnapshotFooter:
		return "SNAPSHOT_FOOTER"
	case KRaftVersion:
		return "KRAFT_VERSION"
	case KRaftVoters:
		return "KRAFT_VOTERS"
	}
	return "UNKNOWN(" + strconv.Itoa(int(t)) + ")"
}

const (
	controlKeyBytes = 4 // int16 version, int16 type
	markerBytes     = 6 // int16 version, int32 coordinator epoch
	markerBatchSize = 78
)

// ParseControl decodes the key of a control record. An unknown type or a newer version is not an error: a version above 0
// is read as version 0, further bytes are ignored. A key that is null or shorter than 4 bytes, or a negative version, is a
// *RecordError. Kafka: ControlRecordType.parseTypeId.
func ParseControl(r Record) (t ControlType, version int16, err error) {
	if len(r.Key) < controlKeyBytes {
		return 0, 0, controlError("control key", reasonShort, controlKeyBytes, int64(len(r.Key)))
	}
	version = int16(binary.BigEndian.Uint16(r.Key))
	if version < 0 {
		return 0, 0, controlError("control key version", reasonNegative, int64(version), 0)
	}
	return ControlType(binary.BigEndian.Uint16(r.Key[2:])), version, nil
}

func controlError(field, reason string, got, want int64) error {
	return &RecordError{Field: field, Reason: reason, Got: got, Want: want}
}

// EndTxnMarker is the record with which a transaction coordinator ends a producer's transaction in a partition.
type EndTxnMarker struct {
	// Type is Abort or Commit.
	Type ControlType
	// CoordinatorEpoch is the epoch of the coordinator that wrote the marker. It fences older coordinators.
	CoordinatorEpoch int32
}

// EndTxnMarker decodes the marker in a control batch. ErrNoMarker says that there is none to decode, which is no damage:
// the batch is not a control batch, compaction removed its record, or the record is of another, perhaps unknown type. A
// marker whose value is shorter than 6 bytes or has a negative version is a *RecordError; a version above 0 is read as
// version 0 (Kafka: EndTransactionMarker.deserialize). Only the first record of the batch is looked at.
func (b Batch) EndTxnMarker() (EndTxnMarker, error) {
	if !b.Attributes().IsControl() {
		return EndTxnMarker{}, fmt.Errorf("%w: not a control batch", ErrNoMarker)
	}
	for r, err := range b.Records(Limits{}) {
		if err != nil {
			return EndTxnMarker{}, err
		}
		return parseMarker(r)
	}
	return EndTxnMarker{}, fmt.Errorf("%w: the control batch is empty", ErrNoMarker)
}

func parseMarker(r Record) (EndTxnMarker, error) {
	t, _, err := ParseControl(r)
	if err != nil {
		return EndTxnMarker{}, err
	}
	if t != Abort && t != Commit {
		return EndTxnMarker{}, fmt.Errorf("%w: control record of type %v", ErrNoMarker, t)
	}
	if len(r.Value) < markerBytes {
		return EndTxnMarker{}, controlError("marker", reasonShort, markerBytes, int64(len(r.Value)))
	}
	if version := int16(binary.BigEndian.Uint16(r.Value)); version < 0 {
		return EndTxnMarker{}, controlError("marker version", reasonNegative, int64(version), 0)
	}
	return EndTxnMarker{Type: t, CoordinatorEpoch: int32(binary.BigEndian.Uint32(r.Value[2:]))}, nil
}

// AppendEndTxnMarker appends the batch of 78 bytes that ends a transaction of p at time ts in milliseconds: transactional,
// control, uncompressed, at base offset 0 and without a leader epoch; the log that stores it sets both, as Kafka's does
// with the result of MemoryRecords.withEndTransactionMarker. The sequence of p is not used, markers have none. It panics
// if the marker's type is neither Abort nor Commit, the producer's id or epoch is negative, or ts is below NoTimestamp.
func AppendEndTxnMarker(dst []byte, p Producer, m EndTxnMarker, ts int64) []byte {
	if m.Type != Abort && m.Type != Commit {
		panic("record: AppendEndTxnMarker: a marker cannot be of type " + m.Type.String())
	}
	if p.ID < 0 || p.Epoch < 0 || ts < NoTimestamp {
		panic(fmt.Sprintf("record: AppendEndTxnMarker: producer id %d, epoch %d, time %d: out of range", p.ID, p.Epoch, ts))
	}
	var key [controlKeyBytes]byte
	binary.BigEndian.PutUint16(key[2:], uint16(m.Type))
	var value [markerBytes]byte
	binary.BigEndian.PutUint32(value[2:], uint32(m.CoordinatorEpoch))
	r := Record{Key: key[:], Value: value[:]}

	start := len(dst)
	var head [Overhead]byte
	dst = append(dst, head[:]...)
	dst = appendRecord(dst, int32(bodySize(0, 0, r)), 0, 0, r)
	h := batchHeader{
		leaderEpoch: NoPartitionLeaderEpoch, attributes: attrTransactional | attrControl, count: 1,
		baseTimestamp: ts, maxTimestamp: ts,
		producer: Producer{ID: p.ID, Epoch: p.Epoch, BaseSequence: NoSequence},
	}
	h.put(dst[start:])
	return dst
}
