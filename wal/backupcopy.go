package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// copyAll brings the segments of the directory to those of the moment. The manifest goes along: what it names is complete,
// whenever the backup is interrupted.
func (b *backup) copyAll(ctx context.Context, m *moment) error {
	known := b.manifest
	compare := known.changes != m.slot.Changes
	if compare {
		b.manifest.segments, b.manifest.changes = nil, m.slot.Changes
		if err := b.noted(); err != nil {
			return err
		}
	}
	if err := b.clean(m); err != nil {
		return err
	}
	for i, s := range m.segments {
		end, err := s.Size()
		if s.BaseOffset() == m.end.segment {
			end = m.end.position
		}
		if err != nil {
			return fmt.Errorf("wal: backup: %w", err)
		}
		have, found := known.find(s.BaseOffset())
		if found {
			if found, err = b.isAsNoted(ctx, s, &have, end, compare); err != nil {
				return err
			}
		}
		if !found {
			have = backedUp{base: s.BaseOffset(), size: -1}
		}
		if err := b.segment(ctx, s, m.aborted[i], have, end); err != nil {
			return err
		}
	}
	return nil
}

func (b *backup) noted() error {
	if err := b.manifest.write(b.l.fsys, b.to.dir); err != nil {
		return fmt.Errorf("wal: backup: %w", err)
	}
	return nil
}

// clean removes what is not part of the moment.
func (b *backup) clean(m *moment) error {
	entries, err := b.l.fsys.ReadDir(b.to.dir)
	if err != nil {
		return fmt.Errorf("wal: backup: %w", err)
	}
	b.manifest.segments = slices.DeleteFunc(slices.Clone(b.manifest.segments), func(s backedUp) bool { return !m.has(s.base) })
	if err := b.noted(); err != nil {
		return err
	}
	for _, e := range entries {
		n := segment.Parse(e.Name)
		gone := n.Suffix != ""
		switch n.Kind {
		case segment.KindLog, segment.KindOffsetIndex, segment.KindTimeIndex, segment.KindTxnIndex:
			gone = gone || !m.has(n.Offset)
		case segment.KindSnapshot, segment.KindProducers:
			gone = true // one pair is written at the end
		case segment.KindUnknown, segment.KindIrregular, segment.KindCut:
			gone = false
		}
		if gone {
			if err := b.l.fsys.Remove(filepath.Join(b.to.dir, e.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("wal: backup: %w", err)
			}
		}
	}
	if err := b.l.fsys.SyncDir(b.to.dir); err != nil {
		return fmt.Errorf("wal: backup: %w", err)
	}
	return nil
}

func (m *moment) has(base int64) bool {
	return slices.ContainsFunc(m.segments, func(s *segment.Segment) bool { return s.BaseOffset() == base })
}

// isAsNoted tells whether the directory has the first have.size bytes of a segment. As long as the log was not cut, the size
// of the file and the last batch say so.
func (b *backup) isAsNoted(ctx context.Context, s *segment.Segment, have *backedUp, end int64, compare bool) (bool, error) {
	d := b.segmentThere(s.BaseOffset())
	defer d.Close()
	size, err := d.FileSize()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("wal: backup: %w", err)
	}
	if size != have.size || size > end {
		return false, nil
	}
	if compare {
		return b.isEqual(ctx, s, d, size)
	}
	if have.last.Size == 0 {
		return size == 0, nil
	}
	for _, of := range [...]*segment.Segment{s, d} {
		h, err := of.HeaderAt(have.last.Position, size)
		if errors.Is(err, record.ErrCorrupt) || errors.Is(err, record.ErrTruncated) {
			return false, nil
		}
		if err != nil || h.Identity(s.BaseOffset()) != have.last {
			return false, err
		}
	}
	return true, nil
}

// isEqual compares the first size bytes.
func (b *backup) isEqual(ctx context.Context, s, d *segment.Segment, size int64) (bool, error) {
	const step = 1 << 20
	p, q := make([]byte, step), make([]byte, step)
	for at := int64(0); at < size; at += step {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		n := min(step, size-at)
		if err := errors.Join(s.ReadBytes(p[:n], at), d.ReadBytes(q[:n], at)); err != nil {
			return false, fmt.Errorf("wal: backup: %w", err)
		}
		b.report.Compared += n
		if !bytes.Equal(p[:n], q[:n]) {
			return false, nil
		}
	}
	return true, nil
}

// segmentThere is the segment of the backup with that base offset.
func (b *backup) segmentThere(base int64) *segment.Segment {
	c := b.l.segmentConfig()
	c.ReadOnly, c.Preallocate, c.KafkaIndexes, c.Pool = false, 0, false, nil
	return segment.Open(b.l.fsys, b.to.dir, base, c)
}

// segment copies what have lacks of a segment. The size of have is −1 where nothing of it can be used.
func (b *backup) segment(ctx context.Context, s *segment.Segment, aborted []AbortedTxn, have backedUp, end int64) (err error) {
	if have.size == end {
		b.manifest.put(have)
		return b.noted()
	}
	d := b.segmentThere(s.BaseOffset())
	defer func() { err = errors.Join(err, d.Close()) }()
	next := s.BaseOffset()
	if have.size > 0 {
		b.report.Extended++
		if next, err = d.NextOffset(); err == nil {
			err = d.RewindIndexes(have.size, next)
		}
	} else {
		have.size = 0
		b.report.Copied++
		d, err = b.create(d)
	}
	if err != nil {
		return fmt.Errorf("wal: backup: %w", err)
	}
	if have.last, err = b.batches(ctx, s, d, have, end); err != nil {
		return err
	}
	for _, t := range aborted {
		if t.LastOffset >= next && t.LastOffset <= have.last.BaseOffset+segment.MaxRelativeOffset {
			if err := d.AppendAborted(t); err != nil {
				return fmt.Errorf("wal: backup: %w", err)
			}
		}
	}
	if err := errors.Join(d.Seal(), d.FlushIndexes(), b.l.fsys.SyncDir(b.to.dir)); err != nil {
		return fmt.Errorf("wal: backup: %w", err)
	}
	have.size = end
	b.manifest.put(have)
	return b.noted()
}

// create begins a segment anew.
func (b *backup) create(d *segment.Segment) (*segment.Segment, error) {
	if err := d.Remove(); err != nil {
		return d, err
	}
	c := b.l.segmentConfig()
	c.ReadOnly, c.Preallocate, c.KafkaIndexes, c.Pool = false, 0, false, nil
	created, err := segment.Create(b.l.fsys, b.to.dir, d.BaseOffset(), c)
	if err != nil {
		return d, err
	}
	return created, nil
}

// batches copies the batches from have.size to end, verified, and returns the last one.
func (b *backup) batches(ctx context.Context, s, d *segment.Segment, have backedUp, end int64) (last record.Identity, err error) {
	last = have.last
	var buf []byte
	at := have.size // of buf
	flush := func() error {
		if err := d.WriteAt(buf, at); err != nil {
			return fmt.Errorf("wal: backup: %w", err)
		}
		pos := at
		for p := range record.All(buf) {
			if err := d.Note(p, pos); err != nil {
				return fmt.Errorf("wal: backup: %w", err)
			}
			pos += int64(p.Size())
		}
		b.report.BytesCopied += int64(len(buf))
		at, buf = pos, buf[:0]
		return nil
	}
	c := s.ScanWith(have.size, end, segment.ScanOptions{})
	for c.Next() {
		if err := ctx.Err(); err != nil {
			return last, err
		}
		p := c.Batch()
		if len(buf) > 0 && len(buf)+p.Size() > mostRead {
			if err := flush(); err != nil {
				return last, err
			}
		}
		buf = append(buf, p.Batch...)
		last = p.Identity(s.BaseOffset(), p.Position)
	}
	if err := flush(); err != nil {
		return last, err
	}
	if err := c.Err(); err != nil {
		return last, fmt.Errorf("wal: backup: %w", err)
	}
	if t := c.Tail(); t.Position != end {
		cause := t.Reason
		if cause == nil {
			cause = record.ErrCorrupt
		}
		first := max(s.BaseOffset(), t.LastOffset+1)
		return last, &UnreadableError{First: first, Last: first, Path: s.Path(), Position: t.Position, Err: cause}
	}
	return last, nil
}

// put enters a segment, in place of what was known of it.
func (m *manifest) put(s backedUp) {
	i, found := slices.BinarySearchFunc(m.segments, s.base, func(a backedUp, base int64) int {
		switch {
		case a.base < base:
			return -1
		case a.base > base:
			return 1
		}
		return 0
	})
	if found {
		m.segments = slices.Clone(m.segments)
		m.segments[i] = s
		return
	}
	m.segments = slices.Insert(slices.Clone(m.segments), i, s)
}
