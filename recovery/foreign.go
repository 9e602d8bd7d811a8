package recovery

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/cespare/xxhash/v2"

	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/kafkadir"
	"github.com/oncelog/oncelog/internal/vfs"
)

// LeaderEpochFileName is where a partition keeps its leader epochs.
const LeaderEpochFileName = "leader-epoch-checkpoint"

// foreignLimit bounds what is read of a file that another program may have made.
const foreignLimit = 16 << 20

// OffsetFile is one of the checkpoints of the log directory whose lines about this partition a broker rewrites.
type OffsetFile int

// The checkpoints of the log directory.
const (
	RecoveryPoint OffsetFile = iota
	LogStart
	Replication
	Cleaner
	offsetFileCount
)

// Name returns the name of the file in the log directory.
func (o OffsetFile) Name() string {
	return [...]string{checkpoint.RecoveryPointFile, checkpoint.LogStartFile, checkpoint.ReplicationFile, checkpoint.CleanerFile}[o]
}

// Foreign is what every other program that writes a partition would change: a broker elects itself, and so writes the
// leader epochs anew, as soon as it opens a directory, and writes its checkpoints when it leaves. From one equal to the
// one in a state slot follows that no other program has been here since.
type Foreign struct {
	LeaderEpochs []byte                 // content of leader-epoch-checkpoint; nil if there is no such file
	Metadata     []byte                 // content of partition.metadata; nil if there is no such file
	Offsets      [offsetFileCount]int64 // this partition's lines in the checkpoints of the log directory, −1 if there is none

	// What follows is not part of the fingerprint.

	HasFile   [offsetFileCount]bool     // the checkpoint is there and can be read
	Marker    bool                      // the log directory carries the mark of a clean stop
	KafkaDir  bool                      // the parent is a log directory of Kafka
	Partition checkpoint.TopicPartition // from the name of the directory; without a topic if it is no such name
}

// RecoveryPoint returns Kafka's recovery point of the partition, 0 if none was written.
func (f *Foreign) RecoveryPoint() int64 { return max(0, f.Offsets[RecoveryPoint]) }

// LogStart returns Kafka's log start offset of the partition, 0 if none was written.
func (f *Foreign) LogStart() int64 { return max(0, f.Offsets[LogStart]) }

// ReadForeign reads what is there. A checkpoint of the log directory that cannot be parsed counts as one without lines,
// as for Kafka.
func ReadForeign(fsys vfs.FS, dir string) (Foreign, error) {
	f := Foreign{Offsets: [offsetFileCount]int64{-1, -1, -1, -1}}
	var err error
	if f.LeaderEpochs, err = readIfThere(fsys, filepath.Join(dir, LeaderEpochFileName)); err != nil {
		return f, err
	}
	if f.Metadata, err = readIfThere(fsys, filepath.Join(dir, kafkadir.MetadataFile)); err != nil {
		return f, err
	}
	parent := filepath.Dir(dir)
	if f.KafkaDir, err = kafkadir.IsLogDir(fsys, parent); err != nil {
		return f, fmt.Errorf("recovery: %w", err)
	}
	if _, err = fsys.Stat(filepath.Join(parent, kafkadir.MarkerFile)); err == nil {
		f.Marker = true
	} else if !errors.Is(err, fs.ErrNotExist) {
		return f, fmt.Errorf("recovery: %w", err)
	}
	name, err := kafkadir.ParseName(filepath.Base(dir))
	if err != nil {
		return f, nil
	}
	f.Partition = name.TopicPartition
	for i := range offsetFileCount {
		offsets, err := checkpoint.ReadOffsets(fsys, filepath.Join(parent, i.Name()))
		if isUseless(err) {
			continue
		}
		if err != nil {
			// It may hold what we wrote there: not being able to read it is no sign of another program.
			return f, fmt.Errorf("recovery: %w", err)
		}
		f.HasFile[i] = true
		if o, ok := offsets[f.Partition]; ok {
			f.Offsets[i] = o
		}
	}
	return f, nil
}

// isUseless tells whether an error says of a file that it holds no checkpoint, and not that it cannot be read.
func isUseless(err error) bool {
	for _, e := range [...]error{fs.ErrNotExist, checkpoint.ErrCorrupt, checkpoint.ErrUnsupportedVersion, vfs.ErrTooLarge, vfs.ErrNotRegular} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Fingerprint is a number that differs when anything of f but the marker differs. It is never 0.
func (f *Foreign) Fingerprint() uint64 {
	h := xxhash.New()
	var b [8]byte
	for _, part := range [...][]byte{f.LeaderEpochs, f.Metadata} {
		n := int64(len(part))
		if part == nil {
			n = -1
		}
		binary.BigEndian.PutUint64(b[:], uint64(n))
		h.Write(b[:])
		h.Write(part)
	}
	for _, o := range f.Offsets {
		binary.BigEndian.PutUint64(b[:], uint64(o))
		h.Write(b[:])
	}
	return max(1, h.Sum64())
}

// Writers returns what a slot says of who wrote: the fingerprints of two states that the files may be in, and those of the
// same without the leader epochs.
func Writers(a, b *Foreign) (who, bare [2]uint64) {
	for i, f := range [...]*Foreign{a, b} {
		who[i], bare[i] = f.Fingerprint(), f.bare()
	}
	return who, bare
}

// bare is the fingerprint without the leader epochs.
func (f *Foreign) bare() uint64 {
	g := *f
	g.LeaderEpochs = nil
	return g.Fingerprint()
}

// wroteLast tells whether the writer of the slot was the last one to change the directory. The marker of a clean stop
// speaks against it unless the slot itself says that the log was closed, since we remove it before we write. That the leader
// epochs are missing does not speak for another program: each that opens the directory writes them anew.
func (f *Foreign) wroteLast(s *Slot) bool {
	if f.Marker && !s.Clean {
		return false
	}
	p := f.Fingerprint()
	return p == s.Who[0] || p == s.Who[1] || f.LeaderEpochs == nil && (p == s.Bare[0] || p == s.Bare[1])
}

// readIfThere reads a file; a missing one is nil, an empty one is not.
func readIfThere(fsys vfs.FS, name string) ([]byte, error) {
	p, err := vfs.ReadFile(fsys, name, foreignLimit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("recovery: %w", err)
	}
	if p == nil {
		p = []byte{}
	}
	return p, nil
}
