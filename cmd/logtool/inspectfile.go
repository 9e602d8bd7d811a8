package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/dump"
	"github.com/oncelog/oncelog/internal/kafkadir"
	"github.com/oncelog/oncelog/internal/leaderepoch"
	"github.com/oncelog/oncelog/internal/verify"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/recovery"
	"github.com/oncelog/oncelog/segment"
)

// fileResult is what was found in a single file.
type fileResult struct {
	Kind     string    `json:"kind"`
	Bytes    int64     `json:"bytes"`
	Content  string    `json:"content"` // what is in it, in words
	Findings []finding `json:"findings"`
	name     string
	found    findings
}

func (r *fileResult) problems() bool { return r.found.Problems() }

func (r *fileResult) problem(err error) {
	r.found.Add(finding{File: r.name, Problem: true, Reason: err.Error()})
}

func (r *fileResult) print(w *bufio.Writer) {
	fmt.Fprintf(w, "file %s, %s, %s\n", quote(r.name), r.Kind, count(r.Bytes, "byte"))
	verdict := "healthy"
	if r.problems() {
		verdict = "problems"
	}
	fmt.Fprintf(w, "  verdict   %s\n", verdict)
	if r.Content != "" {
		fmt.Fprintf(w, "  content   %s\n", escapeLines(r.Content))
	}
	for i := range r.Findings {
		fmt.Fprintf(w, "  %s\n", lineOf(&r.Findings[i]))
	}
}

// inspectFile verifies one file by itself; an index also against the log file beside it.
func (a *app) inspectFile(ctx context.Context, path string) (*fileResult, error) {
	dir, name := filepath.Split(path)
	info, err := a.fsys.Stat(path)
	if err != nil {
		return nil, err
	}
	r := &fileResult{Bytes: info.Size, name: name, Findings: []finding{}}
	n := segment.Parse(name)
	switch n.Kind {
	case segment.KindLog, segment.KindOffsetIndex, segment.KindTimeIndex, segment.KindTxnIndex:
		if n.Suffix != "" {
			return nil, fmt.Errorf("%s is not in use, by its name; nothing can be said about it", quote(name))
		}
		err = a.inspectSegmentFile(ctx, filepath.Clean(dir), n, r)
	case segment.KindCut:
		err = a.inspectCutFile(ctx, path, n, r)
	default:
		err = a.inspectSmallFile(ctx, path, n.Kind, r)
	}
	if err != nil {
		return nil, err
	}
	if r.found.List != nil {
		r.Findings = r.found.List
	}
	return r, nil
}

func (a *app) inspectSegmentFile(ctx context.Context, dir string, n segment.Name, r *fileResult) error {
	names := map[segment.Kind]string{segment.KindLog: "log file", segment.KindOffsetIndex: "offset index",
		segment.KindTimeIndex: "time index", segment.KindTxnIndex: "transaction index"}
	r.Kind = names[n.Kind]
	list, err := dump.List(a.fsys, dir)
	if err != nil {
		return err
	}
	if r.Bytes > dump.MaxFileBytes {
		r.problem(fmt.Errorf("has %d bytes, more than a file of a segment can have", r.Bytes))
		return nil
	}
	var all findings
	var c checked
	for _, s := range list.Segments {
		if s.Base != n.Offset {
			continue
		}
		if _, ok := s.Of[segment.KindLog]; !ok {
			r.Content = "there is no log file beside it to compare with"
			return nil
		}
		if c, err = verify.Segment(ctx, a.fsys, list, s, &all); err != nil {
			return err
		}
	}
	for _, f := range all.List {
		if f.File == r.name {
			r.found.Add(f)
		}
	}
	if n.Kind == segment.KindLog {
		r.Content = fmt.Sprintf("%s with %s", count(c.Batches, "batch"), count(c.Records, "record"))
	}
	return nil
}

// inspectCutFile verifies what a recovery cut off. Whole batches in there are good, what made them be cut is a problem.
func (a *app) inspectCutFile(ctx context.Context, path string, n segment.Name, r *fileResult) error {
	log := segment.Name{Kind: segment.KindLog, Offset: n.Offset}
	name := r.name
	r.name = log.String()
	err := a.asPartition(&target{path: path}).inspectSegmentFile(ctx, path, log, r)
	r.Kind, r.name = "cut bytes", name
	r.Content = fmt.Sprintf("%s, from byte %d of %s on", r.Content, n.Position, log)
	for i := range r.found.List {
		r.found.List[i].File = name
	}
	return err
}

// inspectSmallFile verifies a file that is not part of a segment.
func (a *app) inspectSmallFile(ctx context.Context, path string, kind segment.Kind, r *fileResult) error {
	var err error
	name := filepath.Base(path)
	switch {
	case kind == segment.KindSnapshot:
		r.Kind = "producer snapshot"
		err = a.inspectSnapshot(ctx, path, r)
	case kind == segment.KindProducers:
		r.Kind = "side file of a producer snapshot"
		var s *producerstate.State
		if s, err = producerstate.ReadSideFile(a.fsys, path); err == nil {
			r.Content = fmt.Sprintf("%s below offset %d", count(s.Len(), "producer"), s.Offset)
		}
	case kind == segment.KindLeaderEpochs:
		r.Kind = "leader epochs"
		var e []leaderepoch.Entry
		e, err = leaderepoch.Read(a.fsys, path)
		r.Content = count(len(e), "epoch")
	case kind == segment.KindPartitionMetadata:
		r.Kind = "partition metadata"
		var m kafkadir.Metadata
		if m, err = kafkadir.ReadMetadata(a.fsys, filepath.Dir(path)); err == nil {
			r.Content = "topic id " + m.TopicID.String()
		}
	case kind == segment.KindState:
		r.Kind = "state"
		err = a.inspectState(path, r)
	case isCheckpoint(name):
		r.Kind = "checkpoint"
		var m map[checkpoint.TopicPartition]int64
		m, err = checkpoint.ReadOffsets(a.fsys, path)
		r.Content = count(len(m), "partition")
	default:
		return fmt.Errorf("%s is no file of a log whose content can be verified", quote(name))
	}
	return r.judge(err)
}

func isCheckpoint(name string) bool {
	switch name {
	case checkpoint.RecoveryPointFile, checkpoint.LogStartFile, checkpoint.ReplicationFile, checkpoint.CleanerFile:
		return true
	}
	return false
}

// judge makes a finding of an error about bytes, and returns any other.
func (r *fileResult) judge(err error) error {
	var metadata *kafkadir.MetadataError
	switch {
	case err == nil:
	case errors.Is(err, producerstate.ErrSnapshotCorrupt), errors.Is(err, checkpoint.ErrCorrupt), errors.Is(err, vfs.ErrTooLarge),
		errors.Is(err, recovery.ErrUnsupportedVersion), errors.Is(err, checkpoint.ErrUnsupportedVersion), errors.As(err, &metadata):
		r.Content = ""
		r.problem(err)
	default:
		return err
	}
	return nil
}

func (a *app) inspectSnapshot(ctx context.Context, path string, r *fileResult) error {
	s, err := dump.OpenSnapshot(ctx, a.fsys, path)
	if err != nil {
		return err
	}
	defer s.Close()
	if s.Damage != nil {
		r.problem(errors.New("cannot be read as a producer snapshot: its length, version or checksum is wrong"))
		return nil
	}
	r.Content = count(int64(s.Count), "producer")
	return nil
}

func (a *app) inspectState(path string, r *fileResult) error {
	f, err := recovery.OpenStateFile(a.fsys, filepath.Dir(path), true)
	if err != nil {
		return err
	}
	defer f.Close()
	s, ok := f.Newest()
	if !ok {
		r.problem(errors.New("no slot of it is valid: the next open recovers the whole log"))
		return nil
	}
	closed := "not closed in order"
	if s.Clean {
		closed = "closed in order"
	}
	r.Content = fmt.Sprintf("log start %d, durable end %d, recovery point %d, %v, %s", s.LogStart, s.Durable.Offset, s.Recovery.Offset, s.Mode, closed)
	return nil
}
