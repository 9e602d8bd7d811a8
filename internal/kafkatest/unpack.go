package kafkatest

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/kafkadir"
	"github.com/oncelog/oncelog/internal/vfs"
)

// Entry is a file or a directory of a fixture.
type Entry struct {
	Path  string // with slashes; the first element is the directory at the top
	IsDir bool
	Size  int64
	Data  []byte // without the zeros at the end of the file; must not be changed
}

// Entries are what the archive of the fixture holds, directories before what is in them.
func (x *Fixture) Entries() []Entry { return slices.Clip(x.entries) }

// readArchive reads an uncompressed tar into memory. It takes nothing but files and directories below one directory.
func readArchive(p []byte) (top string, entries []Entry, err error) {
	var total int64
	for r := tar.NewReader(bytes.NewReader(p)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", nil, err
		}
		path := strings.TrimSuffix(h.Name, "/")
		first, _, _ := strings.Cut(path, "/")
		if top == "" {
			top = first
		}
		if first != top || !filepath.IsLocal(path) || strings.Contains(path, `\`) || path != filepath.ToSlash(filepath.Clean(path)) {
			return "", nil, fmt.Errorf("archive: path %q does not stay below %q", h.Name, top)
		}
		switch {
		case h.Typeflag == tar.TypeDir:
			entries = append(entries, Entry{Path: path, IsDir: true})
		case h.Typeflag == tar.TypeReg:
			if total += h.Size; total > maxUnpacked {
				return "", nil, fmt.Errorf("archive: more than %d bytes", maxUnpacked)
			}
			data, err := io.ReadAll(r)
			if err != nil {
				return "", nil, err
			}
			data = bytes.Clone(bytes.TrimRight(data, "\x00"))
			entries = append(entries, Entry{Path: path, Size: h.Size, Data: data})
		default:
			return "", nil, fmt.Errorf("archive: %q is neither a file nor a directory", h.Name)
		}
	}
	if top == "" {
		return "", nil, errors.New("archive: empty")
	}
	return top, entries, nil
}

// Dir is where a fixture was unpacked.
type Dir struct {
	// LogDir is Kafka's log directory: it holds the partitions, the checkpoints, meta.properties, and the clean shutdown
	// marker if there was one.
	LogDir string

	// Partition is the path of the partition directory; empty for a fixture of KindLogDir.
	Partition string
}

// Unpack writes the fixture into a new temporary directory of the test.
func (x *Fixture) Unpack(t testing.TB) Dir {
	t.Helper()
	dir, err := x.UnpackTo(vfs.OS, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// UnpackTo writes the fixture into the directory parent of a file system; the names that it makes must not be there yet.
// A partition gets the files around it that the broker had in its log directory, in parent itself. Nothing is synced.
func (x *Fixture) UnpackTo(fsys vfs.FS, parent string) (Dir, error) {
	for _, e := range x.entries {
		path := filepath.Join(parent, filepath.FromSlash(e.Path))
		var err error
		if e.IsDir {
			err = fsys.MkdirAll(path, 0o755)
		} else {
			err = writeFile(fsys, path, e.Data, e.Size)
		}
		if err != nil {
			return Dir{}, fmt.Errorf("fixture %s: %w", x.Name, err)
		}
	}
	path := filepath.Join(parent, x.top)
	if x.Kind == KindLogDir {
		return Dir{LogDir: path}, nil
	}
	around, err := x.around()
	if err != nil {
		return Dir{}, fmt.Errorf("fixture %s: %w", x.Name, err)
	}
	for name, content := range around {
		if err := writeFile(fsys, filepath.Join(parent, name), content, int64(len(content))); err != nil {
			return Dir{}, fmt.Errorf("fixture %s: %w", x.Name, err)
		}
	}
	return Dir{LogDir: parent, Partition: path}, nil
}

// writeFile makes a file of size bytes that begins with data.
func writeFile(fsys vfs.FS, path string, data []byte, size int64) error {
	f, err := fsys.OpenFile(path, vfs.O_RDWR|vfs.O_CREATE|vfs.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil && size > int64(len(data)) {
		err = f.Truncate(size)
	}
	return errors.Join(err, f.Close())
}

// brokerEpoch is what the marker of a broker that knows its epoch names; any number will do.
const brokerEpoch = 6

// around returns the files of the log directory of a partition fixture by name, as the version of the broker writes
// them.
func (x *Fixture) around() (map[string][]byte, error) {
	name, err := kafkadir.ParseName(x.top)
	if err != nil {
		return nil, err
	}
	c := x.Checkpoints
	files := map[string][]byte{kafkadir.PropertiesFile: []byte(x.properties())}
	for file, offset := range map[string]*int64{
		checkpoint.RecoveryPointFile: c.RecoveryPoint,
		checkpoint.LogStartFile:      c.LogStartOffset,
		checkpoint.ReplicationFile:   c.HighWatermark,
		checkpoint.CleanerFile:       c.CleanerOffset,
	} {
		// A checkpoint is an empty file until its first entry.
		files[file] = nil
		if offset != nil {
			files[file] = checkpoint.EncodeOffsets([]checkpoint.PartitionOffset{{TopicPartition: name.TopicPartition, Offset: *offset}})
		}
	}
	if c.CleanShutdownMarker {
		files[kafkadir.MarkerFile] = nil
		if !x.older(3, 8) {
			files[kafkadir.MarkerFile] = kafkadir.EncodeMarker(brokerEpoch)
		}
	}
	// From 3.8 on a clean stop removes the lock file; a killed broker of any version leaves it.
	if !c.CleanShutdownMarker || x.older(3, 8) {
		files[kafkadir.LockFile] = nil
	}
	return files, nil
}

// properties is a meta.properties of the broker's version and mode.
func (x *Fixture) properties() string {
	const head, cluster = "#\n", "cluster.id=b25jZWxvZy1pbnRlcm9wMQ\n"
	switch {
	case x.older(3, 0) || x.older(3, 7) && x.Mode == "ZooKeeper":
		return head + "broker.id=1\nversion=0\n" + cluster
	case x.older(3, 7):
		return head + "node.id=1\nversion=1\n" + cluster
	case x.Mode == "ZooKeeper":
		return head + "broker.id=1\ndirectory.id=QWqFSJzlAAIVG7WmUoCpxg\nversion=0\n" + cluster
	}
	return head + "node.id=1\ndirectory.id=QWqFSJzlAAIVG7WmUoCpxg\nversion=1\n" + cluster
}
