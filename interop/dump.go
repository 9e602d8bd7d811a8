package interop

import "path/filepath"

// SegmentDump is one .log file, walked up to its end or its first bad batch.
type SegmentDump struct {
	Base       int64   `json:"base"`
	Size       int64   `json:"size"`
	ValidBytes int64   `json:"validBytes"` // bytes of whole, valid batches from the start
	Batches    []Batch `json:"batches"`    // the last may be the first bad one
	Failure    *Error  `json:"failure"`    // an exception that ended the walk
}

// Batch is one batch as stored. Formats before 2 have no producer, sequence or leader epoch: -1 or the zero value.
type Batch struct {
	Position      int64    `json:"position"`
	Valid         bool     `json:"valid"` // size and CRC are right
	Size          int64    `json:"size"`
	Magic         int8     `json:"magic"`
	BaseOffset    int64    `json:"baseOffset"` // -1 for a compressed wrapper of an old format
	LastOffset    int64    `json:"lastOffset"`
	CRC           uint32   `json:"crc"`
	Producer      int64    `json:"pid"`
	Epoch         int16    `json:"epoch"`
	BaseSeq       int32    `json:"baseSeq"`
	LeaderEpoch   int32    `json:"leaderEpoch"`
	Count         *int32   `json:"count"`
	MaxTimestamp  int64    `json:"maxTimestamp"`
	Transactional bool     `json:"transactional"`
	Control       bool     `json:"control"`
	DeleteHorizon int64    `json:"deleteHorizon"` // -1 without one
	TimestampType string   `json:"timestampType"`
	Compression   string   `json:"compression"`
	Records       []Record `json:"records"` // only when asked for
}

// Record is one record. A nil key or value is null.
type Record struct {
	Offset    int64    `json:"offset"`
	Timestamp int64    `json:"timestamp"`
	Sequence  int32    `json:"sequence"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []Header `json:"headers"`
}

// Header is a header of a record. A nil value is null.
type Header struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// Dump lists the batches of all segments in a directory, and their records if asked. Nothing is written.
func (d *Driver) Dump(dir string, records bool) ([]SegmentDump, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	request := struct {
		Dir     string `json:"dir"`
		Records bool   `json:"records"`
	}{abs, records}
	var out struct {
		Segments []SegmentDump `json:"segments"`
	}
	err = d.p.call("dump", 0, request, &out)
	return out.Segments, err
}
