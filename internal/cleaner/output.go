package cleaner

import (
	"errors"
	"fmt"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

type abortedEntry = index.AbortedTxn

// output is the segment that takes the place of a group. Of a group of one segment nothing is written as long as nothing
// has changed; then what came before is copied.
type output struct {
	c       *Cleaner
	group   []*segment.Segment
	segment *segment.Segment // nil while all is as it was
	buf     []byte           // whole batches that wait to be written
	aborted []index.AbortedTxn
}

// writeBytes is how much is gathered for one write.
const writeBytes = 1 << 20

// begin makes the segment and copies what lies before a byte of the only segment of the group.
func (o *output) begin(unchanged int64) error {
	if o.segment != nil {
		return nil
	}
	c := o.c
	base := o.group[0].BaseOffset()
	// What an earlier attempt left behind is in the way.
	if err := segment.Open(c.o.FS, c.o.Dir, base, c.o.Segment).Remove(); err != nil {
		return err
	}
	s, err := segment.Create(c.o.FS, c.o.Dir, base, c.o.Segment)
	if err != nil {
		return err
	}
	o.segment = s
	if unchanged == 0 {
		return nil
	}
	return c.walk(o.group[0], 0, unchanged, func(b segment.BatchAt) (bool, error) { return true, o.write(b.Batch) })
}

// keep takes over a batch as it is.
func (o *output) keep(b segment.BatchAt) error {
	if o.segment == nil {
		return nil
	}
	return o.write(b.Batch)
}

// replace puts another batch in the place of one, or none.
func (o *output) replace(b segment.BatchAt, by record.Batch) error {
	if err := o.begin(b.Position); err != nil || by == nil {
		return err
	}
	return o.write(by)
}

func (o *output) write(b record.Batch) error {
	o.buf = append(o.buf, b...)
	if len(o.buf) < writeBytes {
		return nil
	}
	return o.flush()
}

func (o *output) flush() error {
	if len(o.buf) == 0 {
		return nil
	}
	if err := o.segment.Append(o.buf); err != nil {
		return err
	}
	o.c.stats.BytesWritten += int64(len(o.buf))
	o.buf = o.buf[:0]
	return nil
}

// finish completes the segment and syncs it. It keeps the time of change of the last segment that it replaces.
func (o *output) finish() (*segment.Segment, error) {
	s := o.segment
	if s == nil {
		return nil, nil
	}
	if err := o.flush(); err != nil {
		return nil, err
	}
	for _, t := range o.aborted {
		if err := s.AppendAborted(t); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(s.Seal(), s.FlushIndexes()); err != nil {
		return nil, err
	}
	changed, err := o.group[len(o.group)-1].ModTime()
	if err == nil {
		err = s.SetModTime(changed)
	}
	return s, err
}

// abandon removes what was written, after an error.
func (o *output) abandon(err error) error {
	if o.segment == nil {
		return err
	}
	return errors.Join(err, o.segment.Remove())
}

// BatchError says which batch could not be read or written again, although its checksum is right.
type BatchError struct {
	Path       string
	Position   int64 // byte at which the batch begins
	BaseOffset int64
	Err        error
}

// Error gives the path, the position, the offset and the cause.
func (e *BatchError) Error() string {
	return fmt.Sprintf("cleaner: %s: the batch at byte %d, offset %d, cannot be compacted: %v", e.Path, e.Position, e.BaseOffset, e.Err)
}

// Unwrap returns the cause.
func (e *BatchError) Unwrap() error { return e.Err }

// batchError says where an error about the records of a batch came from. Other errors say enough themselves.
func batchError(s *segment.Segment, b segment.BatchAt, err error) error {
	if unlisted, ok := errors.AsType[*UnlistedAbortError](err); ok {
		unlisted.Path = s.Path()
		return unlisted
	}
	for _, known := range [...]error{record.ErrCorrupt, record.ErrInvalidRecord, record.ErrInvalidTimestamp, record.ErrInvalidOptions,
		record.ErrBatchTooLarge, record.ErrUnsupportedCompression} {
		if errors.Is(err, known) {
			return &BatchError{Path: s.Path(), Position: b.Position, BaseOffset: b.BaseOffset(), Err: err}
		}
	}
	return err
}
