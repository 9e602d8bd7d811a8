package dump

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/kafkadir"
	"github.com/oncelog/oncelog/internal/leaderepoch"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/segment"
)

// Options say how much of a directory is described.
type Options struct {
	NoRecords      bool // leave out the records, those of control batches apart
	MaxBatchBytes  int  // largest batch whose records are read; 0 means DefaultMaxBatchBytes
	MaxRecordBytes int  // largest record that is decompressed; 0 means DefaultMaxRecordBytes
}

func (o Options) withDefaults() Options {
	if o.MaxBatchBytes == 0 {
		o.MaxBatchBytes = DefaultMaxBatchBytes
	}
	if o.MaxRecordBytes == 0 {
		o.MaxRecordBytes = DefaultMaxRecordBytes
	}
	return o
}

// maxTextBytes is the most that is read of partition.metadata.
const maxTextBytes = 64 << 10

// WriteJSON writes the document of a partition directory, without a line end. damaged tells whether it says of damage other
// than zeros at the end of the last segment, which every running writer has there. After an error the document is not
// complete.
func WriteJSON(ctx context.Context, w io.Writer, fsys vfs.FS, dir string, o Options) (damaged bool, err error) {
	d, err := List(fsys, dir)
	if err != nil {
		return false, err
	}
	j := document{encoder: newEncoder(w), ctx: ctx, fsys: fsys, dir: d, o: o.withDefaults(), end: -1}
	if err := j.write(); err != nil {
		return j.problem, err
	}
	return j.problem, j.flush()
}

// document writes one directory. Steps that read return the error of reading; that of writing stays in the encoder.
type document struct {
	*encoder
	ctx     context.Context
	fsys    vfs.FS
	dir     *Dir
	o       Options
	end     int64
	damage  *Damage // the first
	problem bool    // there is damage that no running writer leaves
	last    int64   // see Dir.LastWritten
}

func (j *document) write() error {
	j.begin('{')
	var err error
	if j.last, err = j.dir.LastWritten(j.fsys); err != nil {
		return err
	}
	j.keyStr("dir", filepath.Base(j.dir.Path))
	j.key("segments")
	j.begin('[')
	for _, s := range j.dir.Segments {
		if err := j.segment(s); err != nil {
			return err
		}
	}
	j.encoder.end(']')
	j.keyInt("logEndOffset", j.end)
	j.key("snapshots")
	j.begin('[')
	for _, f := range j.dir.Snapshots {
		if err := j.snapshot(f); err != nil {
			return err
		}
	}
	j.encoder.end(']')
	if err := j.texts(); err != nil {
		return err
	}
	j.key("otherFiles")
	j.begin('[')
	for _, f := range j.dir.Other {
		j.str(f.Name)
	}
	j.encoder.end(']')
	if j.damage != nil {
		j.putDamage(j.damage)
	}
	j.encoder.end('}')
	return nil
}

// damaged writes a damage, and remembers the first of the directory.
func (j *document) damaged(d *Damage) {
	j.note(d)
	j.problem = true
	j.putDamage(d)
}

func (j *document) putDamage(d *Damage) {
	j.key("damage")
	j.begin('{')
	j.keyStr("file", d.File)
	j.keyInt("position", d.Position)
	j.keyStr("reason", d.Reason)
	j.encoder.end('}')
}

func (j *document) segment(s Files) error {
	sizes := map[segment.Kind]int64{}
	for k, f := range s.Of {
		info, err := j.fsys.Stat(j.dir.join(f))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			delete(s.Of, k) // a writer has just removed it
		case err != nil:
			return fmt.Errorf("dump: %w", err)
		default:
			sizes[k] = info.Size
		}
	}
	if len(sizes) == 0 {
		return nil
	}
	j.begin('{')
	defer j.encoder.end('}')
	j.keyInt("baseOffset", s.Base)
	j.key("files")
	j.begin('{')
	for _, k := range Kinds {
		if n, ok := sizes[k]; ok {
			j.keyInt(kindName(k), n)
		}
	}
	j.encoder.end('}')
	for _, k := range [...]segment.Kind{segment.KindLog, segment.KindOffsetIndex, segment.KindTimeIndex, segment.KindTxnIndex} {
		if f, ok := s.Of[k]; ok {
			if err := j.file(s.Base, k, f); err != nil {
				return err
			}
		}
	}
	return j.err
}

// kindName is what a document calls a file of a segment.
func kindName(k segment.Kind) string { return filepath.Ext(segment.FileName(k, 0))[1:] }

// file writes what one file of a segment holds. What is no file has nothing but its damage.
func (j *document) file(base int64, k segment.Kind, f File) error {
	path := j.dir.join(f)
	if k == segment.KindLog {
		j.end = max(j.end, base)
	}
	if f.Kind != vfs.Regular {
		if k != segment.KindLog {
			j.key(map[segment.Kind]string{segment.KindOffsetIndex: "index", segment.KindTimeIndex: "timeIndex", segment.KindTxnIndex: "txnIndex"}[k])
			j.begin('{')
			defer j.encoder.end('}')
		}
		j.damaged(notRegular(f))
		return nil
	}
	switch k {
	case segment.KindLog:
		return j.log(base, path)
	case segment.KindOffsetIndex:
		return j.table("index", path, base, false)
	case segment.KindTimeIndex:
		return j.table("timeIndex", path, base, true)
	}
	return j.txnTable(path)
}

func (j *document) table(key, path string, base int64, isTime bool) error {
	t, err := OpenTable(j.ctx, j.fsys, path, base, isTime)
	if err != nil {
		return err
	}
	defer t.Close()
	j.key(key)
	j.begin('{')
	j.keyInt("slots", t.Slots)
	j.keyInt("zeroSlotsAtEnd", t.ZeroSlots)
	j.keyInt("trailingBytes", t.TrailingBytes)
	j.key("entries")
	j.begin('[')
	for e, err := range t.Entries() {
		if err != nil {
			return err
		}
		j.begin('[')
		j.int(e[0])
		j.int(e[1])
		j.encoder.end(']')
	}
	j.encoder.end(']')
	if t.Damage != nil {
		j.damaged(t.Damage)
	}
	j.encoder.end('}')
	return j.err
}

func (j *document) txnTable(path string) error {
	t, err := OpenTxnTable(j.ctx, j.fsys, path)
	if err != nil {
		return err
	}
	defer t.Close()
	j.key("txnIndex")
	j.begin('{')
	j.key("entries")
	j.begin('[')
	for e, err := range t.Entries() {
		if err != nil {
			return err
		}
		j.begin('{')
		j.keyInt("version", int64(e.Version))
		if e.Damage != nil {
			j.damaged(e.Damage)
		} else {
			j.keyInt("producerId", e.ProducerID)
			j.keyInt("firstOffset", e.FirstOffset)
			j.keyInt("lastOffset", e.LastOffset)
			j.keyInt("lastStableOffset", e.StableOffset)
			j.keyInt("entrySize", txnEntry)
		}
		j.encoder.end('}')
	}
	j.encoder.end(']')
	j.keyInt("trailingBytes", t.TrailingBytes)
	j.encoder.end('}')
	return j.err
}

func (j *document) snapshot(f File) error {
	if f.Kind != vfs.Regular {
		j.begin('{')
		j.keyStr("file", f.Name)
		j.damaged(notRegular(f))
		j.encoder.end('}')
		return nil
	}
	s, err := OpenSnapshot(j.ctx, j.fsys, j.dir.join(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a writer keeps the newest ones and has just removed it
	}
	if err != nil {
		return err
	}
	defer s.Close()
	j.begin('{')
	defer j.encoder.end('}')
	j.keyStr("file", f.Name)
	j.keyInt("size", s.Size)
	if s.HasHead {
		j.keyInt("version", int64(s.Version))
		j.keyInt("crc", int64(s.CRC))
		j.keyInt("count", int64(s.Count))
	}
	if s.Damage != nil {
		j.damaged(s.Damage)
		return nil
	}
	j.key("entries")
	j.begin('[')
	for e, err := range s.Entries() {
		if err != nil {
			return err
		}
		j.begin('{')
		j.keyInt("producerId", e.ProducerID)
		j.keyInt("producerEpoch", int64(e.ProducerEpoch))
		j.keyInt("lastSequence", int64(e.LastSequence))
		j.keyInt("lastOffset", e.LastOffset)
		j.keyInt("offsetDelta", int64(e.OffsetDelta))
		j.keyInt("timestamp", e.Timestamp)
		j.keyInt("coordinatorEpoch", int64(e.CoordinatorEpoch))
		j.keyInt("currentTxnFirstOffset", e.TxnFirstOffset)
		j.encoder.end('}')
	}
	j.encoder.end(']')
	return j.err
}

// texts writes the two small files of a partition.
func (j *document) texts() error {
	if err := j.leaderEpochs(); err != nil {
		return err
	}
	j.key("partitionMetadata")
	if !j.dir.has(kafkadir.MetadataFile) {
		j.null()
		return nil
	}
	text, err := vfs.ReadFile(j.fsys, filepath.Join(j.dir.Path, kafkadir.MetadataFile), maxTextBytes)
	switch {
	case errors.Is(err, vfs.ErrTooLarge):
		j.null()
		j.note(&Damage{File: kafkadir.MetadataFile, Position: maxTextBytes, Reason: "too large"})
		j.problem = true
	case err != nil:
		return fmt.Errorf("dump: %w", err)
	default:
		j.str(string(text))
	}
	return nil
}

// note remembers a damage for the end of the document.
func (j *document) note(d *Damage) {
	if j.damage == nil {
		j.damage = d
	}
}

func (j *document) leaderEpochs() error {
	j.key("leaderEpochs")
	if !j.dir.has(leaderepoch.FileName) {
		j.null()
		return nil
	}
	entries, err := leaderepoch.Read(j.fsys, filepath.Join(j.dir.Path, leaderepoch.FileName))
	switch {
	case errors.Is(err, checkpoint.ErrCorrupt), errors.Is(err, checkpoint.ErrUnsupportedVersion), errors.Is(err, vfs.ErrTooLarge):
		j.note(&Damage{File: leaderepoch.FileName, Reason: err.Error()})
		j.problem = true
	case err != nil:
		return fmt.Errorf("dump: %w", err)
	}
	j.begin('[')
	for _, e := range entries {
		j.begin('{')
		j.keyInt("epoch", int64(e.Epoch))
		j.keyInt("startOffset", e.StartOffset)
		j.encoder.end('}')
	}
	j.encoder.end(']')
	return nil
}
