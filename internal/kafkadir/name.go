package kafkadir

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/oncelog/oncelog/internal/checkpoint"
)

// State says for what a partition directory is there, as its name tells.
type State uint8

// The states of a partition directory.
const (
	// Live is the partition itself.
	Live State = iota

	// Delete waits for its removal.
	Delete

	// Future is a replica that is being moved here from another log directory.
	Future

	// Stray was set aside because the cluster's metadata does not know it.
	Stray
)

// suffixes of the names, by State.
var suffixes = [...]string{Live: "", Delete: "-delete", Future: "-future", Stray: "-stray"}

// String is "live", "delete", "future" or "stray".
func (s State) String() string {
	if s == Live {
		return "live"
	}
	return strings.TrimPrefix(suffixes[s], "-")
}

// ClusterMetadataTopic is the topic of a KRaft node's own metadata log, whose directory stands among the partitions but
// is not one that a log manager loads.
const ClusterMetadataTopic = "__cluster_metadata"

// maxName is the longest file name of the usual file systems, in bytes; Kafka cuts topics to keep within it.
const maxName = 255

// Name is the name of a partition directory. The zero Name is not one.
type Name struct {
	checkpoint.TopicPartition

	// UniqueID is what stands between the partition and the suffix; empty if and only if State is Live.
	UniqueID string

	State State
}

// NameError says why a name is not one of a partition directory. A broker that finds such a directory in its log
// directory does not start.
type NameError struct {
	Name   string
	Reason string
}

// Error names the directory and the reason.
func (e *NameError) Error() string {
	return fmt.Sprintf("kafkadir: directory %q is not <topic>-<partition> or <topic>-<partition>.<id>-delete, -future or -stray: %s",
		e.Name, e.Reason)
}

// ParseName takes the name of a partition directory apart, a name without slashes. It accepts what Kafka accepts
// (LocalLog.parseTopicPartitionName), which includes a topic that Kafka would not create and a partition with leading
// zeros, except an empty unique id and digits other than ASCII. For a name that String returned it is the reverse,
// unless the topic was cut. Errors are *NameError.
func ParseName(name string) (Name, error) {
	bad := func(format string, args ...any) (Name, error) {
		return Name{}, &NameError{name, fmt.Sprintf(format, args...)}
	}
	n := Name{}
	rest := name
	for s := Delete; s <= Stray; s++ {
		front, found := strings.CutSuffix(name, suffixes[s])
		if !found {
			continue
		}
		dot := strings.LastIndexByte(front, '.')
		if dot < 0 || dot == len(front)-1 || strings.ContainsAny(name, " \t\n\v\f\r") {
			return bad("no unique id before %q", suffixes[s])
		}
		n.State, n.UniqueID, rest = s, front[dot+1:], front[:dot]
	}
	dash := strings.LastIndexByte(rest, '-')
	switch {
	case dash < 0:
		return bad("no dash")
	case dash == 0:
		return bad("no topic")
	case dash == len(rest)-1:
		return bad("no partition")
	}
	partition, err := strconv.ParseInt(rest[dash+1:], 10, 32)
	if err != nil {
		return bad("partition %.40q", rest[dash+1:])
	}
	n.Topic, n.Partition = rest[:dash], int32(partition)
	return n, nil
}

// String is the name of the directory. In the states Delete and Stray the topic is cut so that the whole is not longer
// than 255 bytes, as UnifiedLog.logDeleteDirName and logStrayDirName do.
func (n Name) String() string {
	if n.State == Live {
		return n.TopicPartition.String()
	}
	end := "-" + strconv.FormatInt(int64(n.Partition), 10) + "." + n.UniqueID + suffixes[n.State]
	topic := n.Topic
	if n.State != Future {
		topic = topic[:max(0, min(len(topic), maxName-len(end)))]
	}
	return topic + end
}

// CheckTopic says why Kafka would not create a topic with this name, or nil (Topic.validate): 1 to 249 letters, digits,
// dots, underscores and dashes, neither "." nor "..".
func CheckTopic(topic string) error {
	const most = 249
	switch {
	case topic == "" || topic == "." || topic == "..":
		return fmt.Errorf("kafkadir: topic name %q is not allowed", topic)
	case len(topic) > most:
		return fmt.Errorf("kafkadir: topic name of %d bytes, %d are allowed", len(topic), most)
	}
	for i := range len(topic) {
		if !checkpoint.IsTopicByte(topic[i]) {
			return fmt.Errorf("kafkadir: topic name %q: byte 0x%02x is not a letter, digit, dot, underscore or dash", topic, topic[i])
		}
	}
	return nil
}
