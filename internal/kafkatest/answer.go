package kafkatest

import "encoding/json"

// Answer is what a broker, or the client library, answered to a command. Numbers that the answer lacks are -1.
type Answer struct {
	Cmd   string `json:"cmd"`
	Label string `json:"label"`

	// FirstOffset and LastOffset are those of a batch that a client sent, BaseOffset that of a hand-made request.
	FirstOffset int64 `json:"firstOffset"`
	LastOffset  int64 `json:"lastOffset"`
	BaseOffset  int64 `json:"baseOffset"`

	// Sent is what a hand-made request carried.
	Sent *Sent `json:"sent"`

	// ErrorCode and ErrorName are the protocol's, 0 and NONE for success; only of a hand-made request, else -1 and "".
	ErrorCode    int16   `json:"errorCode"`
	ErrorName    string  `json:"errorName"`
	ErrorMessage *string `json:"errorMessage"`

	LogAppendTimeMs int64 `json:"logAppendTimeMs"`

	Topic            string `json:"topic"`
	Partition        int32  `json:"partition"`
	LogStartOffset   int64  `json:"logStartOffset"`
	LogEndOffset     int64  `json:"logEndOffset"`
	LastStableOffset int64  `json:"lastStableOffset"`
	LowWatermark     int64  `json:"lowWatermark"`

	ProducerID    int64 `json:"producerId"`
	ProducerEpoch int16 `json:"producerEpoch"`
	Records       int64 `json:"records"`

	Error   string `json:"error"` // class name of the client's exception
	Message string `json:"message"`
}

// Sent is what identifies the batch of a hand-made request.
type Sent struct {
	ProducerID    int64  `json:"producerId"`
	ProducerEpoch int16  `json:"producerEpoch"`
	BaseSequence  int32  `json:"baseSequence"`
	Count         int32  `json:"count"`
	Codec         string `json:"codec"`
}

// UnmarshalJSON reads an answer.
func (a *Answer) UnmarshalJSON(p []byte) error {
	type plain Answer
	v := plain{
		FirstOffset: -1, LastOffset: -1, BaseOffset: -1, ErrorCode: -1, LogAppendTimeMs: -1, Partition: -1, LogStartOffset: -1,
		LogEndOffset: -1, LastStableOffset: -1, LowWatermark: -1, ProducerID: -1, ProducerEpoch: -1, Records: -1,
	}
	if err := strict(p, &v); err != nil {
		return err
	}
	*a = Answer(v)
	return nil
}

// Run is one of several runs of a broker.
type Run struct {
	Run                 int      `json:"run"`
	Stop                string   `json:"stop"` // "clean" or "kill"
	Script              []string `json:"script"`
	Answers             []Answer `json:"answers"`
	InterBrokerProtocol string   `json:"inter.broker.protocol.version"`
	LogMessageFormat    string   `json:"log.message.format.version"`
}

// DamageDone is one change that was made by hand. What it lacks is -1 or empty.
type DamageDone struct {
	What  string   `json:"what"`
	File  string   `json:"file"`  // name in the partition directory
	Files []string `json:"files"` // where several are concerned
	Field string   `json:"field"` // of the batch

	Position         int64 `json:"position"`      // in the file
	BatchPosition    int64 `json:"batchPosition"` // in the file
	BatchSize        int64 `json:"batchSize"`
	Bit              int64 `json:"bit"`
	Byte             int64 `json:"byte"`
	BaseOffset       int64 `json:"baseOffset"`
	BaseOffsetBefore int64 `json:"baseOffsetBefore"`
	BaseOffsetAfter  int64 `json:"baseOffsetAfter"`
	BytesAdded       int64 `json:"bytesAdded"`
	NewFileSize      int64 `json:"newFileSize"`
	BytesOfBatchLeft int64 `json:"bytesOfBatchLeft"`
	Batches          int64 `json:"batches"`
	BatchesBefore    int64 `json:"batchesBefore"`
	BatchesAfter     int64 `json:"batchesAfter"`
	LogStartOffset   int64 `json:"logStartOffset"`
	LogEndOffset     int64 `json:"logEndOffset"`
}

// UnmarshalJSON reads one change.
func (d *DamageDone) UnmarshalJSON(p []byte) error {
	type plain DamageDone
	v := plain{
		Position: -1, BatchPosition: -1, BatchSize: -1, Bit: -1, Byte: -1, BaseOffset: -1, BaseOffsetBefore: -1, BaseOffsetAfter: -1,
		BytesAdded: -1, NewFileSize: -1, BytesOfBatchLeft: -1, Batches: -1, BatchesBefore: -1, BatchesAfter: -1,
		LogStartOffset: -1, LogEndOffset: -1,
	}
	if err := strict(p, &v); err != nil {
		return err
	}
	*d = DamageDone(v)
	return nil
}

// oneOrMany is a list that is written as its only element where it has one.
type oneOrMany []DamageDone

// UnmarshalJSON reads a list or an element; null leaves the list empty.
func (l *oneOrMany) UnmarshalJSON(p []byte) error {
	if string(p) == "null" {
		return nil
	}
	if len(p) > 0 && p[0] == '[' {
		return json.Unmarshal(p, (*[]DamageDone)(l))
	}
	var one DamageDone
	if err := json.Unmarshal(p, &one); err != nil {
		return err
	}
	*l = oneOrMany{one}
	return nil
}
