package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/oncelog/oncelog/internal/vfs"
)

// Names of the offset checkpoints in a Kafka log directory, the parent of the partitions.
const (
	// RecoveryPointFile holds, for each partition, the offset below which everything is on disk.
	RecoveryPointFile = "recovery-point-offset-checkpoint"

	// LogStartFile holds the log start offsets of those partitions where it lies above the base offset of the first
	// segment.
	LogStartFile = "log-start-offset-checkpoint"

	// ReplicationFile holds the high watermarks.
	ReplicationFile = "replication-offset-checkpoint"

	// CleanerFile holds the first offset of each partition that compaction has not cleaned.
	CleanerFile = "cleaner-offset-checkpoint"
)

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String is the topic, a dash and the partition, which is also the name of the partition's directory.
func (tp TopicPartition) String() string {
	return tp.Topic + "-" + strconv.FormatInt(int64(tp.Partition), 10)
}

// Compare orders by topic, then by partition number.
func (tp TopicPartition) Compare(other TopicPartition) int {
	if c := strings.Compare(tp.Topic, other.Topic); c != 0 {
		return c
	}
	return int(min(1, max(-1, int64(tp.Partition)-int64(other.Partition))))
}

// valid says what keeps tp out of a checkpoint line, or nil.
func (tp TopicPartition) valid() error {
	// Kafka's limit is 249 (Topic.validate); brokers before 0.10.2 allowed 255.
	if n := len(tp.Topic); n == 0 || n > 255 {
		return fmt.Errorf("topic name of %d bytes", n)
	}
	for i := range len(tp.Topic) {
		if !IsTopicByte(tp.Topic[i]) {
			return fmt.Errorf("byte 0x%02x in the topic name %q", tp.Topic[i], clip([]byte(tp.Topic)))
		}
	}
	if tp.Partition < 0 {
		return fmt.Errorf("partition number %d", tp.Partition)
	}
	return nil
}

// IsTopicByte reports whether c may stand in the name of a topic: a letter, a digit, a dot, an underscore or a dash.
func IsTopicByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}

// PartitionOffset is one line of an offset checkpoint.
type PartitionOffset struct {
	TopicPartition
	Offset int64
}

var offsetFormat = Format[PartitionOffset]{
	Version: 0,
	Fields:  3,
	Parse:   parseOffset,
	Append: func(dst []byte, e PartitionOffset) []byte {
		dst = append(dst, e.Topic...)
		dst = append(dst, ' ')
		dst = strconv.AppendInt(dst, int64(e.Partition), 10)
		dst = append(dst, ' ')
		return strconv.AppendInt(dst, e.Offset, 10)
	},
}

func parseOffset(fields []string) (PartitionOffset, error) {
	partition, err := strconv.ParseInt(fields[1], 10, 32)
	if err != nil {
		return PartitionOffset{}, fmt.Errorf("partition number %q", clip([]byte(fields[1])))
	}
	offset, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil || offset < 0 {
		return PartitionOffset{}, fmt.Errorf("offset %q", clip([]byte(fields[2])))
	}
	e := PartitionOffset{TopicPartition{fields[0], int32(partition)}, offset}
	return e, e.valid()
}

// DecodeOffsets reads the content of an offset checkpoint in the order of its lines; path serves the error text only.
// A partition that is named twice makes the file corrupt.
func DecodeOffsets(path string, p []byte) ([]PartitionOffset, error) {
	entries, err := offsetFormat.Decode(path, p)
	if err != nil {
		return nil, err
	}
	seen := make(map[TopicPartition]int, len(entries))
	for i, e := range entries {
		line := i + 3 // after the version and the count
		if first, twice := seen[e.TopicPartition]; twice {
			return nil, &CorruptError{Path: path, Line: line, Reason: fmt.Sprintf("%v stands in line %d too", e.TopicPartition, first)}
		}
		seen[e.TopicPartition] = line
	}
	return entries, nil
}

// EncodeOffsets returns the content of an offset checkpoint with the lines in the given order. The entries must be
// ones that DecodeOffsets accepts.
func EncodeOffsets(entries []PartitionOffset) []byte { return offsetFormat.Encode(entries) }

// ReadOffsets reads an offset checkpoint. A partition that is not in the result has no line, which Kafka takes for 0.
// The errors are those of the package comment; on a corrupt recovery point or log start file Kafka takes every offset
// for 0 (LogManager.loadLogs), that is, it recovers everything.
func ReadOffsets(fsys vfs.FS, path string) (map[TopicPartition]int64, error) {
	entries, err := readOffsets(fsys, path)
	if err != nil {
		return nil, err
	}
	m := make(map[TopicPartition]int64, len(entries))
	for _, e := range entries {
		m[e.TopicPartition] = e.Offset
	}
	return m, nil
}

func readOffsets(fsys vfs.FS, path string) ([]PartitionOffset, error) {
	p, err := vfs.ReadFile(fsys, path, MaxSize)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: read: %w", err)
	}
	return DecodeOffsets(path, p)
}

// WriteOffsets replaces an offset checkpoint atomically, sorted by topic and partition, and makes it durable. It
// refuses a name, a partition or an offset that could not be read back, and leaves the file as it was.
func WriteOffsets(fsys vfs.FS, path string, offsets map[TopicPartition]int64) error {
	entries := make([]PartitionOffset, 0, len(offsets))
	for tp, offset := range offsets {
		entries = append(entries, PartitionOffset{tp, offset})
	}
	slices.SortFunc(entries, func(a, b PartitionOffset) int { return a.Compare(b.TopicPartition) })
	for _, e := range entries {
		if err := writable(e.TopicPartition, e.Offset); err != nil {
			return err
		}
	}
	return offsetFormat.Write(fsys, path, entries)
}

// SetOffset gives one partition its line in an offset checkpoint and keeps all other lines, and their order, as they
// are. A missing file is created. It reports whether the file had to be replaced; if the line was already there, nothing
// is written. A file that cannot be read is left alone and its error returned: it holds other partitions' offsets.
//
// The file belongs to all partitions of the directory. While a broker runs it must not be called at all, and programs
// that share the directory must exclude one another around the call with a lock of their own choosing.
func SetOffset(fsys vfs.FS, path string, tp TopicPartition, offset int64) (changed bool, err error) {
	if err := writable(tp, offset); err != nil {
		return false, err
	}
	entries, err := readOffsets(fsys, path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	i := indexOf(entries, tp)
	switch {
	case i < 0:
		entries = append(entries, PartitionOffset{tp, offset})
	case entries[i].Offset == offset:
		return false, nil
	default:
		entries[i].Offset = offset
	}
	return true, offsetFormat.Write(fsys, path, entries)
}

// RemoveOffset takes one partition's line out of an offset checkpoint, under the rules of SetOffset. It reports whether
// there was one; a missing file has none.
func RemoveOffset(fsys vfs.FS, path string, tp TopicPartition) (changed bool, err error) {
	entries, err := readOffsets(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	i := indexOf(entries, tp)
	if i < 0 {
		return false, nil
	}
	return true, offsetFormat.Write(fsys, path, slices.Delete(entries, i, i+1))
}

func indexOf(entries []PartitionOffset, tp TopicPartition) int {
	return slices.IndexFunc(entries, func(e PartitionOffset) bool { return e.TopicPartition == tp })
}

func writable(tp TopicPartition, offset int64) error {
	if err := tp.valid(); err != nil {
		return fmt.Errorf("checkpoint: partition cannot be written: %w", err)
	}
	if offset < 0 {
		return fmt.Errorf("checkpoint: partition %v: offset %d below 0 cannot be written", tp, offset)
	}
	return nil
}
