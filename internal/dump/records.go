package dump

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/oncelog/oncelog/record"
)

// DefaultMaxRecordBytes is the largest record that is decompressed.
const DefaultMaxRecordBytes = 16 << 20

// Omitted says why the records of an entry are not looked at.
const (
	OmittedBatch  = "the batch is too large to be held in memory"
	OmittedRecord = "a record is too large to be held in memory"
)

// CheckRecords reads all records of a good entry and throws them away. It returns why they cannot be read, or why they are
// left out; both are empty if there is nothing to say.
func CheckRecords(e *Entry, maxRecord int) (unreadable, omitted string) {
	if e.Large {
		return "", OmittedBatch
	}
	for r, err := range e.Batch.Records(record.Limits{MaxRecordBytes: maxRecord}) {
		if err == nil && !e.Legacy() && e.Batch.Attributes().IsControl() {
			_, err = ControlOf(r)
		}
		if isTooLarge(err, maxRecord) {
			return "", OmittedRecord
		}
		if err != nil {
			return err.Error(), ""
		}
	}
	return "", ""
}

// isTooLarge tells whether an error is about the limit alone, and not about a length that no reader accepts.
func isTooLarge(err error, limit int) bool {
	var e *record.RecordError
	return errors.As(err, &e) && e.Field == "length" && e.Want == int64(limit) && e.Got > int64(limit) && e.Got <= math.MaxInt32-8
}

// Control is what a control record says.
type Control struct {
	Type       record.ControlType
	KeyVersion int16

	IsMarker         bool // the rest is there
	Version          int16
	CoordinatorEpoch int32
}

// ControlOf reads a record of a control batch.
func ControlOf(r record.Record) (Control, error) {
	t, version, err := record.ParseControl(r)
	if err != nil {
		return Control{}, err
	}
	c := Control{Type: t, KeyVersion: version}
	if t != record.Abort && t != record.Commit {
		return c, nil
	}
	if len(r.Value) < 6 {
		return c, fmt.Errorf("dump: marker of %d bytes, at least 6 wanted", len(r.Value))
	}
	c.IsMarker = true
	c.Version = int16(binary.BigEndian.Uint16(r.Value))
	c.CoordinatorEpoch = int32(binary.BigEndian.Uint32(r.Value[2:]))
	if c.Version < 0 {
		return c, fmt.Errorf("dump: marker of version %d", c.Version)
	}
	return c, nil
}

// controlName is Kafka's name of a control record's type; it has one for all that it does not know.
func controlName(t record.ControlType) string {
	if t < record.Abort || t > record.KRaftVoters {
		return "UNKNOWN"
	}
	return t.String()
}
