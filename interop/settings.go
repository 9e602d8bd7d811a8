package interop

import "encoding/json"

// Settings are those of one log. Zero keeps Kafka's default; a real zero, and
// every setting without a field here, goes into Other by Kafka's name.
type Settings struct {
	SegmentBytes         int64  `json:"segment.bytes,omitempty"`       // may be below Kafka's public floor of 1 MiB
	SegmentIndexBytes    int64  `json:"segment.index.bytes,omitempty"` // of both indexes
	SegmentMs            int64  `json:"segment.ms,omitempty"`
	IndexIntervalBytes   int64  `json:"index.interval.bytes,omitempty"`
	RetentionBytes       int64  `json:"retention.bytes,omitempty"`
	RetentionMs          int64  `json:"retention.ms,omitempty"`
	MaxMessageBytes      int64  `json:"max.message.bytes,omitempty"`
	TimestampType        string `json:"message.timestamp.type,omitempty"` // CreateTime or LogAppendTime
	CompressionType      string `json:"compression.type,omitempty"`
	CleanupPolicy        string `json:"cleanup.policy,omitempty"` // delete, compact, or both with a comma
	Preallocate          bool   `json:"preallocate,omitempty"`
	DeleteRetentionMs    int64  `json:"delete.retention.ms,omitempty"`
	MinCompactionLagMs   int64  `json:"min.compaction.lag.ms,omitempty"`
	ProducerExpirationMs int64  `json:"producer.id.expiration.ms,omitempty"` // of the broker

	// Other settings, among them the broker's transaction.partition.verification.enable
	// and transaction.max.timeout.ms. A name that Kafka does not know is an error.
	Other map[string]string `json:"-"`
}

// MarshalJSON puts Other beside the named settings; it wins over them.
func (s Settings) MarshalJSON() ([]byte, error) {
	type plain Settings
	named, err := json.Marshal(plain(s))
	if err != nil || len(s.Other) == 0 {
		return named, err
	}
	all := map[string]any{}
	if err := json.Unmarshal(named, &all); err != nil {
		return nil, err
	}
	for name, value := range s.Other {
		all[name] = value
	}
	return json.Marshal(all)
}
