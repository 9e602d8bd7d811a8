package kafkatest

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
)

// header is the first line of a trace.
type header struct {
	Trace        string   `json:"trace"`
	Kafka        string   `json:"kafka"`
	Seed         int64    `json:"seed"`
	Note         string   `json:"note"`
	CompareBytes *bool    `json:"compareBytes"`
	Config       Settings `json:"config"`
}

// Encode writes the trace as it is read: a header and a line for each operation.
func (tr *Trace) Encode() ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	if err := e.Encode(header{tr.Name, tr.Kafka, tr.Seed, tr.Note, &tr.CompareBytes, tr.Config}); err != nil {
		return nil, err
	}
	for i := range tr.Ops {
		if err := e.Encode(tr.Ops[i].line()); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// line is the operation as it is written, without what it has by default.
func (op *Op) line() opLine {
	l := opLine{
		Op: op.Kind, Out: op.Out, Settings: op.Settings,
		Batch: op.Batch, LeaderEpoch: op.LeaderEpoch, Origin: op.Origin, Guard: op.Guard,
		PID: op.ProducerID, Epoch: op.Epoch, Sequence: op.Sequence, SupportsEpochBump: op.SupportsEpochBump,
		Type: op.Type, CoordinatorEpoch: op.CoordinatorEpoch, TS: op.Timestamp,
		Offset: op.Offset, LogStart: op.LogStart, RecoveryPoint: op.RecoveryPoint, MaxBytes: op.MaxBytes,
		Isolation: op.Isolation, MinOneMessage: op.MinOneMessage, Force: op.Force, Clean: op.Clean, MS: op.Time,
	}
	origin, version := opDefaults(op.Kind)
	if op.Origin == origin {
		l.Origin = ""
	}
	if op.TransactionVersion != version && (op.Kind == "append" || op.Kind == "marker") {
		l.TransactionVersion = &op.TransactionVersion
	}
	if op.Kind == "offsetForTimestamp" {
		l.TS, l.MS = &op.Time, 0
	}
	if d := op.Damage; d != nil {
		l.File, l.XOR, l.Pos, l.TruncateTo, l.Delete = d.File, d.XOR, d.Position, d.TruncateTo, d.Delete
		l.Append, l.Create = hexOrNil(d.Append), hexOrNil(d.Create)
	}
	return l
}

func hexOrNil(p []byte) *string {
	if p == nil {
		return nil
	}
	s := hex.EncodeToString(p)
	return &s
}
