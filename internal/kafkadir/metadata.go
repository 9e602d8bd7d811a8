package kafkadir

import (
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/oncelog/oncelog/internal/vfs"
)

// MetadataFile is the name of the file with the topic id in a partition directory.
const MetadataFile = "partition.metadata"

// maxMetadata bounds what is read of a partition.metadata; a real one has 43 bytes.
const maxMetadata = 4096

// TopicID tells apart topics of one name that were created one after the other. The zero TopicID is none.
type TopicID [16]byte

var idText = base64.RawURLEncoding.Strict()

// ParseTopicID reads the text form: 22 characters, and not zero.
func ParseTopicID(s string) (TopicID, error) {
	var id TopicID
	if want := idText.EncodedLen(len(id)); len(s) != want {
		return TopicID{}, fmt.Errorf("kafkadir: topic id %.40q has %d characters, want %d", s, len(s), want)
	}
	// A line end inside is skipped by the decoder, so that the length of the result tells.
	n, err := idText.Decode(id[:], []byte(s))
	if err != nil || n != len(id) {
		return TopicID{}, fmt.Errorf("kafkadir: topic id %q is not 16 bytes in URL-safe base64", s)
	}
	if id == (TopicID{}) {
		return TopicID{}, fmt.Errorf("kafkadir: topic id %q is zero, which means none", s)
	}
	return id, nil
}

// String is the text form.
func (id TopicID) String() string { return idText.EncodeToString(id[:]) }

// Metadata is the content of a partition.metadata.
type Metadata struct {
	// Version is 0 in all files so far. Kafka reads any version from 0 on, so that a newer broker's file stays usable.
	Version int32
	TopicID TopicID
}

// MetadataError says why a partition.metadata cannot be used.
type MetadataError struct {
	Path   string // the file as it was opened
	Line   int    // counted from 1
	Reason string
}

// Error names the file, the line and the reason.
func (e *MetadataError) Error() string {
	return fmt.Sprintf("kafkadir: %s: line %d: %s; a broker needs the topic's id here", e.Path, e.Line, e.Reason)
}

// separator stands between a key and its value (PartitionMetadataFile.PartitionMetadataReadBuffer).
var separator = regexp.MustCompile(`:[ \t\v\f]+`)

// DecodeMetadata reads the content p of a partition.metadata; path serves the error text only. Like Kafka it takes any
// version from 0 on and any white space behind a colon; unlike Kafka it looks at the keys and refuses text behind the
// second line, both of which tell damage. Errors are *MetadataError.
func DecodeMetadata(path string, p []byte) (Metadata, error) {
	bad := func(line int, format string, args ...any) (Metadata, error) {
		return Metadata{}, &MetadataError{path, line, fmt.Sprintf(format, args...)}
	}
	lines := strings.Split(strings.TrimSuffix(string(p), "\n"), "\n")
	if len(lines) != 2 {
		return bad(len(lines), "%d lines instead of 2", len(lines))
	}
	value := func(line int, key string) (string, error) {
		parts := separator.Split(strings.TrimSuffix(lines[line-1], "\r"), -1)
		if len(parts) != 2 || parts[0] != key {
			return "", &MetadataError{path, line, fmt.Sprintf("%.60q instead of %q and a value", lines[line-1], key)}
		}
		return parts[1], nil
	}
	text, err := value(1, "version")
	if err != nil {
		return Metadata{}, err
	}
	version, err := strconv.ParseInt(text, 10, 32)
	if err != nil || version < 0 {
		return bad(1, "version %.40q", text)
	}
	text, err = value(2, "topic_id")
	if err != nil {
		return Metadata{}, err
	}
	id, err := ParseTopicID(text)
	if err != nil {
		return bad(2, "%s", strings.TrimPrefix(err.Error(), "kafkadir: "))
	}
	return Metadata{int32(version), id}, nil
}

// EncodeMetadata returns the content of a partition.metadata with version 0.
func EncodeMetadata(id TopicID) []byte {
	return []byte("version: 0\ntopic_id: " + id.String())
}

// ReadMetadata reads the partition.metadata of a partition directory. A missing one is fs.ErrNotExist, which is normal
// for a directory of a broker before 2.8 and for one of ours that never was inside a Kafka log directory.
func ReadMetadata(fsys vfs.FS, dir string) (Metadata, error) {
	path := filepath.Join(dir, MetadataFile)
	p, err := vfs.ReadFile(fsys, path, maxMetadata)
	if err != nil {
		return Metadata{}, fmt.Errorf("kafkadir: read: %w", err)
	}
	return DecodeMetadata(path, p)
}

// WriteMetadata writes the partition.metadata of a partition directory atomically and makes it durable.
func WriteMetadata(fsys vfs.FS, dir string, id TopicID) error {
	if id == (TopicID{}) {
		return errors.New("kafkadir: the zero topic id means none and is not written")
	}
	path := filepath.Join(dir, MetadataFile)
	if err := vfs.WriteFileAtomic(fsys, path, 0o644, EncodeMetadata(id)); err != nil {
		return fmt.Errorf("kafkadir: replace: %w", err)
	}
	return nil
}
