package kafkadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"

	"github.com/oncelog/oncelog/internal/vfs"
)

// MarkerFile is the name of the clean shutdown marker in a log directory.
const MarkerFile = ".kafka_cleanshutdown"

// maxMarker bounds what is read of a marker; a real one has about 35 bytes.
const maxMarker = 4096

// UnknownBrokerEpoch stands for the epoch of a broker that did not know it, or of a marker that does not tell.
const UnknownBrokerEpoch int64 = -1

// Marker says what a clean shutdown marker tells. The zero Marker is not a marker that was found.
type Marker struct {
	// Present is whether the file is there. Nothing else decides whether the last stop was clean.
	Present bool

	// BrokerEpoch is the epoch of the broker that stopped, or UnknownBrokerEpoch.
	BrokerEpoch int64
}

// ReadMarker looks for the clean shutdown marker of a log directory. A marker whose content cannot be understood is
// still one, with an unknown epoch, as in CleanShutdownFileHandler.read; the empty one of brokers before 3.8 is among
// these. The error tells only that looking was not possible.
func ReadMarker(fsys vfs.FS, logDir string) (Marker, error) {
	path := filepath.Join(logDir, MarkerFile)
	if _, err := fsys.Stat(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return Marker{BrokerEpoch: UnknownBrokerEpoch}, nil
		}
		return Marker{}, fmt.Errorf("kafkadir: clean shutdown marker: %w", err)
	}
	m := Marker{Present: true, BrokerEpoch: UnknownBrokerEpoch}
	p, err := vfs.ReadFile(fsys, path, maxMarker)
	if err != nil {
		return m, nil
	}
	m.BrokerEpoch = decodeMarker(p)
	return m, nil
}

func decodeMarker(p []byte) int64 {
	var content struct {
		Version     *int32 `json:"version"`
		BrokerEpoch *int64 `json:"brokerEpoch"`
	}
	if json.Unmarshal(p, &content) != nil || content.Version == nil || content.BrokerEpoch == nil || *content.BrokerEpoch < 0 {
		return UnknownBrokerEpoch
	}
	return *content.BrokerEpoch
}

// EncodeMarker returns the content of a marker as brokers from 3.8 on write it.
func EncodeMarker(brokerEpoch int64) []byte {
	return []byte(`{"version":0,"brokerEpoch":` + strconv.FormatInt(max(brokerEpoch, UnknownBrokerEpoch), 10) + "}")
}

// WriteMarker writes the marker of a log directory atomically and makes it durable. It says that every log of the
// directory is complete and flushed; a broker that finds it does not look at their content.
func WriteMarker(fsys vfs.FS, logDir string, brokerEpoch int64) error {
	path := filepath.Join(logDir, MarkerFile)
	if err := vfs.WriteFileAtomic(fsys, path, 0o644, EncodeMarker(brokerEpoch)); err != nil {
		return fmt.Errorf("kafkadir: write the clean shutdown marker: %w", err)
	}
	return nil
}

// RemoveMarker removes the marker and makes that durable, before anything in the log directory is written: a marker that
// outlives a crash keeps a broker from recovering what the crash left. It reports whether there was one. The directory is
// synced even if there was none, because an earlier removal may not have been.
func RemoveMarker(fsys vfs.FS, logDir string) (removed bool, err error) {
	path := filepath.Join(logDir, MarkerFile)
	switch err := fsys.Remove(path); {
	case err == nil:
		removed = true
	case !errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("kafkadir: remove the clean shutdown marker: %w", err)
	}
	if err := fsys.SyncDir(logDir); err != nil {
		return removed, fmt.Errorf("kafkadir: removal of the clean shutdown marker: %w", err)
	}
	return removed, nil
}
