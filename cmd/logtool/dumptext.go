package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/oncelog/oncelog/internal/dump"
	"github.com/oncelog/oncelog/internal/kafkadir"
	"github.com/oncelog/oncelog/internal/leaderepoch"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// textDump writes what a partition directory holds for people.
type textDump struct {
	ctx     context.Context
	fsys    vfs.FS
	w       *bufio.Writer
	o       dumpOptions
	dir     string
	damaged bool
}

// printf writes a line. The error of a full disk or a closed pipe stays in the buffered writer, where it is met at the end.
func (d *textDump) printf(format string, args ...any) { fmt.Fprintf(d.w, format+"\n", args...) }

// full tells whether the writer has failed: there is no sense in reading on.
func (d *textDump) full() error {
	_, err := d.w.Write(nil)
	return err
}

func (d *textDump) partition(dir string) error {
	list, err := dump.List(d.fsys, dir)
	if err != nil {
		return err
	}
	d.dir = dir
	d.printf("partition %s", quote(dir))
	last, err := list.LastWritten(d.fsys)
	if err != nil {
		return err
	}
	for _, s := range list.Segments {
		if err := d.segment(s, s.Base >= last); err != nil {
			return err
		}
	}
	for _, f := range list.Snapshots {
		if err := d.snapshot(f); err != nil {
			return err
		}
	}
	for _, f := range list.Other {
		if err := d.other(f); err != nil {
			return err
		}
	}
	return d.full()
}

func (d *textDump) damage(x *dump.Damage) {
	d.damaged = true
	d.printf("  DAMAGE in %s at byte %d: %s", quote(x.File), x.Position, escape(x.Reason))
}

// segment writes the files of a segment. In the last one, zeros at the end are no fault.
func (d *textDump) segment(s dump.Files, last bool) error {
	d.printf("segment %d", s.Base)
	for _, k := range [...]segment.Kind{segment.KindLog, segment.KindOffsetIndex, segment.KindTimeIndex, segment.KindTxnIndex} {
		f, ok := s.Of[k]
		if !ok {
			continue
		}
		path := filepath.Join(d.dir, f.Name)
		info, err := d.fsys.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a writer has just removed it
		}
		if err != nil {
			return err
		}
		d.printf(" %s, %s", f.Name, count(info.Size, "byte"))
		if f.Kind != vfs.Regular {
			d.damage(&dump.Damage{File: f.Name, Reason: "not a regular file"})
			continue
		}
		switch k {
		case segment.KindLog:
			err = d.log(path, last)
		case segment.KindTxnIndex:
			err = d.txnTable(path)
		default:
			err = d.table(path, s.Base, k == segment.KindTimeIndex)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *textDump) log(path string, last bool) error {
	r, err := dump.OpenLog(d.ctx, d.fsys, path, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	for r.Next() {
		e := r.Entry()
		unreadable, omitted := dump.CheckRecords(e, dump.DefaultMaxRecordBytes)
		if unreadable != "" {
			r.Reject("records unreadable: " + unreadable)
			break
		}
		d.printf("  %s", batchLine(e))
		d.records(e, omitted)
		if err := d.full(); err != nil {
			return err
		}
	}
	if r.Err() != nil {
		return r.Err()
	}
	x := r.Damage()
	if x == nil {
		return nil
	}
	zeros, err := r.ZeroTail()
	switch {
	case err != nil:
		return err
	case zeros && last:
		d.printf("  %s at the end, reserved and not yet written", count(r.Size()-x.Position, "zero byte"))
	default:
		d.damage(x)
	}
	return nil
}

// batchLine describes the header of an entry.
func batchLine(e *dump.Entry) string {
	b := e.Batch
	var s strings.Builder
	fmt.Fprintf(&s, "batch at %d, %s, ", e.Position, count(e.Size, "byte"))
	if e.Legacy() {
		fmt.Fprintf(&s, "format %d, offset %d", b.Magic(), b.LastOffset())
	} else {
		fmt.Fprintf(&s, "offsets %d to %d, %s", b.BaseOffset(), b.LastOffset(), count(int64(b.Count()), "record"))
	}
	if b.MaxTimestamp() != record.NoTimestamp {
		fmt.Fprintf(&s, ", %v %s", b.TimestampType(), timeText(b.MaxTimestamp()))
	}
	if c := b.Attributes().Compression(); c != record.None {
		fmt.Fprintf(&s, ", %v", c)
	}
	if b.HasProducerID() {
		fmt.Fprintf(&s, ", producer %d epoch %d", b.ProducerID(), b.ProducerEpoch())
		if b.BaseSequence() != record.NoSequence {
			fmt.Fprintf(&s, " sequences %d to %d", b.BaseSequence(), b.LastSequence())
		}
	}
	if !e.Legacy() {
		if b.Attributes().IsTransactional() {
			s.WriteString(", transactional")
		}
		if b.Attributes().IsControl() {
			s.WriteString(", control")
		}
		if ms, ok := b.DeleteHorizon(); ok {
			fmt.Fprintf(&s, ", delete horizon %s", timeText(ms))
		}
		fmt.Fprintf(&s, ", leader epoch %d", b.PartitionLeaderEpoch())
	}
	fmt.Fprintf(&s, ", crc %08x", b.CRC())
	return s.String()
}

func timeText(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

func (d *textDump) records(e *dump.Entry, omitted string) {
	control := !e.Legacy() && e.Batch.Attributes().IsControl()
	if omitted != "" && (!d.o.noRecords || control) {
		d.printf("    records left out: %s", omitted)
	}
	if omitted != "" || d.o.noRecords && !control {
		return
	}
	for r, err := range e.Batch.Records(record.Limits{MaxRecordBytes: dump.DefaultMaxRecordBytes}) {
		if err != nil {
			return // it was read before without an error
		}
		if control {
			c, _ := dump.ControlOf(r)
			d.printf("    %d %v, coordinator epoch %d", r.Offset, c.Type, c.CoordinatorEpoch)
			continue
		}
		d.printf("    %d key %s value %s%s", r.Offset, shortBytes(r.Key), shortBytes(r.Value), headersText(r.Headers))
	}
}

// shownBytes is how much of a key or value is shown.
const shownBytes = 64

// shortBytes shows the beginning of a key or value.
func shortBytes(p []byte) string {
	switch {
	case p == nil:
		return "null"
	case len(p) > shownBytes:
		return fmt.Sprintf("%s… (%s)", strconv.Quote(string(p[:shownBytes])), count(len(p), "byte"))
	}
	return strconv.Quote(string(p))
}

func headersText(headers []record.Header) string {
	var s strings.Builder
	for _, h := range headers {
		fmt.Fprintf(&s, " header %s %s", shortBytes([]byte(h.Key)), shortBytes(h.Value))
	}
	return s.String()
}

func (d *textDump) table(path string, base int64, isTime bool) error {
	t, err := dump.OpenTable(d.ctx, d.fsys, path, base, isTime)
	if err != nil {
		return err
	}
	defer t.Close()
	for e, err := range t.Entries() {
		switch {
		case err != nil:
			return err
		case isTime:
			d.printf("  time %s offset %d", timeText(e[0]), e[1])
		default:
			d.printf("  offset %d position %d", e[0], e[1])
		}
	}
	if t.ZeroSlots > 0 {
		d.printf("  %s of zeros at the end", count(t.ZeroSlots, "slot"))
	}
	d.trailing(t.TrailingBytes)
	if t.Damage != nil {
		d.damage(t.Damage)
	}
	return d.full()
}

func (d *textDump) trailing(n int64) {
	if n > 0 {
		d.printf("  %s of a partial entry at the end", count(n, "byte"))
	}
}

func (d *textDump) txnTable(path string) error {
	t, err := dump.OpenTxnTable(d.ctx, d.fsys, path)
	if err != nil {
		return err
	}
	defer t.Close()
	for e, err := range t.Entries() {
		switch {
		case err != nil:
			return err
		case e.Damage != nil:
			d.damage(e.Damage)
		default:
			d.printf("  aborted producer %d offsets %d to %d, last stable offset %d", e.ProducerID, e.FirstOffset, e.LastOffset, e.StableOffset)
		}
	}
	d.trailing(t.TrailingBytes)
	return d.full()
}

func (d *textDump) snapshot(f dump.File) error {
	if f.Kind != vfs.Regular {
		d.printf("%s", f.Name)
		d.damage(&dump.Damage{File: f.Name, Reason: "not a regular file"})
		return nil
	}
	s, err := dump.OpenSnapshot(d.ctx, d.fsys, filepath.Join(d.dir, f.Name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a writer has just removed it
	}
	if err != nil {
		return err
	}
	defer s.Close()
	d.printf("%s", f.Name)
	if s.Damage != nil {
		d.damage(s.Damage)
	}
	for e, err := range s.Entries() {
		if err != nil {
			return err
		}
		line := fmt.Sprintf("  producer %d epoch %d", e.ProducerID, e.ProducerEpoch)
		if e.LastOffset >= 0 {
			line += fmt.Sprintf(" last sequence %d, last batch at offsets %d to %d", e.LastSequence, e.LastOffset-int64(e.OffsetDelta), e.LastOffset)
		}
		if e.TxnFirstOffset >= 0 {
			line += fmt.Sprintf(", open transaction from offset %d", e.TxnFirstOffset)
		}
		d.printf("%s", line)
	}
	return d.full()
}

// maxTextFile is the most that is shown of a small text file.
const maxTextFile = 64 << 10

func (d *textDump) other(f dump.File) error {
	kind := map[vfs.Kind]string{vfs.Directory: ", a directory", vfs.Symlink: ", a link, not followed", vfs.Other: ", a special file, not opened"}[f.Kind]
	path := filepath.Join(d.dir, f.Name)
	size := ""
	if f.Kind == vfs.Regular {
		info, err := d.fsys.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a writer has just removed or renamed it
		}
		if err != nil {
			return err
		}
		size = ", " + count(info.Size, "byte")
	}
	d.printf("%s%s%s", quote(f.Name), size, kind)
	if f.Kind != vfs.Regular || f.Name != leaderepoch.FileName && f.Name != kafkadir.MetadataFile {
		return nil
	}
	text, err := vfs.ReadFile(d.fsys, path, maxTextFile)
	if errors.Is(err, vfs.ErrTooLarge) {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		d.printf("  %s", escape(strings.TrimRight(line, "\n")))
	}
	if _, err := leaderepoch.Decode(f.Name, text); err != nil && f.Name == leaderepoch.FileName {
		d.damage(&dump.Damage{File: f.Name, Reason: err.Error()})
	}
	return nil
}
