package kafkadir

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/vfs"
)

// Names of files in a log directory that are neither checkpoints nor the marker.
const (
	// LockFile is what a process that uses the log directory holds a lock on.
	LockFile = ".lock"

	// PropertiesFile is the identity of the node and the directory. It is never written or removed here.
	PropertiesFile = "meta.properties"
)

// proofs are the files that make a directory a log directory of Kafka. The lock file is not among them: everybody who
// asks for the lock makes it.
var proofs = [...]string{
	PropertiesFile,
	checkpoint.RecoveryPointFile,
	checkpoint.LogStartFile,
	checkpoint.ReplicationFile,
	checkpoint.CleanerFile,
}

// IsLogDir reports whether a directory is a log directory of Kafka: it holds meta.properties or one of the four offset
// checkpoints. A directory that does not exist is not one.
func IsLogDir(fsys vfs.FS, dir string) (bool, error) {
	for _, name := range proofs {
		_, err := fsys.Stat(filepath.Join(dir, name))
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return false, fmt.Errorf("kafkadir: is %s a log directory: %w", dir, err)
		}
	}
	return false, nil
}
