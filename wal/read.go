package wal

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/segment"
)

// Isolation says how far a reader sees.
type Isolation uint8

// The isolation levels. Kafka: FetchIsolation.
const (
	LogEnd        Isolation = iota // everything that was acknowledged
	HighWatermark                  // what is replicated
	TxnCommitted                   // what is replicated and belongs to no open transaction; the aborted ones are listed
)

// AbortedTxn is an aborted transaction: batches of the producer from FirstOffset on, up to its ABORT marker, do not count.
type AbortedTxn = index.AbortedTxn

// ReadOptions say how much of the log to read.
type ReadOptions struct {
	MaxBytes      int // most bytes; the last batch may be cut
	Isolation     Isolation
	MinOneMessage bool // return one whole batch even if it is larger than MaxBytes
}

// Fetch is the answer to a Read. Close it: until then the segment's file stays open.
type Fetch struct {
	// Offset is where the bytes begin: the base offset of the first batch in Compat, else the offset asked for. Segment
	// and Position are the byte, −1 where no batch is there.
	Offset, Segment, Position int64

	// Records is the range of bytes. It begins with the batch that holds the start offset, which may begin below it,
	// and may end inside a batch.
	Records              segment.Records
	FirstEntryIncomplete bool // MaxBytes is smaller than the first batch, and not 0

	// Aborted lists, at TxnCommitted, every aborted transaction that may have batches in the range, in the order of
	// their markers. It is nil at the other levels, and never nil at this one.
	Aborted []AbortedTxn

	Offsets Offsets // of the log when it was read
}

// Close lets go of the segment.
func (f *Fetch) Close() error { return f.Records.Close() }

// Read returns a range of bytes of the log that begins with the batch holding start. A start beyond what the isolation
// level shows, but within the log, is an empty Fetch; a start below the log start or above the log end is an
// *OffsetError. The bytes are not verified: an iterator of Batches does that. Kafka: UnifiedLog.read.
//
// Damage on the way is read around. Where it has taken start itself, the error is an *UnreadableError.
func (l *Log) Read(start int64, o ReadOptions) (Fetch, error) { return l.read(start, o, knownPlace{}) }

// knownPlace is the byte at which the batch begins that holds the offset to read, where damage in front of it would mislead
// a look-up. The zero value is none.
type knownPlace struct {
	segment, position int64
	truncations       int64 // up to then it is good
}

func (l *Log) read(start int64, o ReadOptions, known knownPlace) (Fetch, error) {
	if o.MaxBytes < 0 {
		return Fetch{}, fmt.Errorf("%w: MaxBytes %d is negative", ErrInvalidArgument, o.MaxBytes)
	}
	for {
		if l.isClosed.Load() {
			return Fetch{}, ErrClosed
		}
		e := l.visible.load()
		if e.truncations != known.truncations {
			known = knownPlace{}
		}
		f, err := l.readOnce(start, o, &e, known)
		if err != nil && l.visible.load().truncations != e.truncations {
			continue // the log was cut while it was read
		}
		if errors.Is(err, segment.ErrClosed) {
			if l.isClosed.Load() {
				return Fetch{}, ErrClosed
			}
			continue // the segment was deleted; the set without it is there already
		}
		return f, err
	}
}

func (l *Log) readOnce(start int64, o ReadOptions, e *ends, known knownPlace) (Fetch, error) {
	outside := func(e *ends) error { return &OffsetError{Offset: start, LogStart: e.logStart, LogEnd: e.end.offset} }
	if start < e.logStart {
		return Fetch{}, outside(e)
	}
	limit, err := l.limit(e, o.Isolation) // which Kafka looks for before it knows that the offset is too high
	if err != nil {
		return Fetch{}, err
	}
	set := l.segments.Load()
	if start > e.end.offset {
		return Fetch{}, outside(e)
	}
	if _, stored := set.Floor(start); !stored {
		// Either the segment has been deleted, and before that the log start has moved, or the log begins below its first one.
		if now := l.visible.load(); l.opts.Compat || start < now.logStart {
			return Fetch{}, outside(&now)
		}
	}
	f := Fetch{Offsets: offsetsOf(e)}
	if o.Isolation == TxnCommitted {
		f.Aborted = []AbortedTxn{}
	}
	if start == limit.offset {
		f.setPlace(limit)
		return f, l.lost(start)
	}
	if start > limit.offset {
		p, found, err := l.locate(set, start, e.end)
		if err != nil || !found {
			p = e.end
		}
		f.setPlace(p)
		return f, err
	}
	return l.readBelow(f, set, start, o, e, limit, known)
}

// readBelow reads from the first segment that has a batch at or behind start, below the limit.
func (l *Log) readBelow(f Fetch, set *segment.Set, start int64, o ReadOptions, e *ends, limit place, known knownPlace) (Fetch, error) {
	if gone := l.goneBelow.Load(); start < gone {
		path := filepath.Join(l.dir, segment.FileName(segment.KindLog, start))
		return f, &UnreadableError{First: start, Last: gone - 1, Path: path, Err: &segment.MissingError{First: start, Last: gone - 1}}
	}
	s, ok := floorOrFirst(set, start)
	for ; ok; s, ok = set.Higher(s.BaseOffset()) {
		end := endIn(s, e.end)
		ro := segment.ReadOptions{StartOffset: start, MaxBytes: o.MaxBytes, MaxPosition: end, MinOneMessage: o.MinOneMessage}
		if w := l.stretch(set, s, e); !w.gaps && !l.opts.Compat {
			ro.Next = w.last + 1
		}
		if known.position > 0 && known.segment == s.BaseOffset() {
			ro.Begin = known.position
		}
		r, err := s.Read(ro)
		if damage, bad := errors.AsType[*segment.CorruptError](err); bad {
			var found bool
			if ro.Begin, found, err = l.around(set, s, damage, start, e); err == nil && !found {
				continue
			}
			if err == nil {
				r, err = s.Read(ro)
			}
		}
		if err != nil {
			return f, err
		}
		if !r.Found {
			continue
		}
		stop := limitIn(s, limit)
		if stop < r.Position {
			r.Size = 0
		}
		r.Size = int(min(int64(r.Size), max(0, stop-r.Position)))
		if o.Isolation == TxnCommitted && r.Size > 0 {
			size, err := l.certain(s, r.Position, int64(r.Size), start, stop)
			if err != nil {
				return f, errors.Join(err, r.Close())
			}
			r.Size = int(size)
		}
		f.Records, f.FirstEntryIncomplete = r, r.FirstEntryIncomplete && (o.MaxBytes > 0 || o.MinOneMessage)
		f.Offset, f.Segment, f.Position = start, s.BaseOffset(), r.Position
		if l.opts.Compat {
			f.Offset = r.First.BaseOffset
		}
		if o.Isolation == TxnCommitted {
			if f.Aborted, err = aborted(set, s, &r, start, end, e.end.offset); err != nil {
				return f, errors.Join(err, r.Close())
			}
		}
		return f, nil
	}
	f.setPlace(e.end)
	return f, l.lost(start)
}

func (f *Fetch) setPlace(p place) { f.Offset, f.Segment, f.Position = p.offset, p.segment, p.position }

// floorOrFirst is the segment in which a look-up of an offset begins: the one that it lies in, or the first where the log
// begins below that, as after TruncateFullyAndStartAt.
func floorOrFirst(set *segment.Set, offset int64) (*segment.Segment, bool) {
	if s, ok := set.Floor(offset); ok {
		return s, true
	}
	s := set.First()
	return s, s != nil
}

// endIn is the byte where the visible log ends in a segment.
func endIn(s *segment.Segment, end place) int64 {
	switch {
	case s.BaseOffset() < end.segment:
		return segment.ToEnd
	case s.BaseOffset() == end.segment:
		return end.position
	}
	return 0
}

// limitIn is the byte where the isolation level's limit lies in a segment.
func limitIn(s *segment.Segment, limit place) int64 {
	if !limit.resolved() {
		return 0
	}
	return endIn(s, limit)
}

// locate finds the first batch at or behind an offset, below end.
func (l *Log) locate(set *segment.Set, offset int64, end place) (p place, found bool, err error) {
	s, ok := floorOrFirst(set, offset)
	for ; ok; s, ok = set.Higher(s.BaseOffset()) {
		position, h, found, err := s.Locate(offset, endIn(s, end))
		if err != nil {
			return p, false, err
		}
		if found {
			return place{offset: h.BaseOffset, segment: s.BaseOffset(), position: position}, true, nil
		}
	}
	return p, false, nil
}

// aborted collects the aborted transactions that a range may contain. Its upper end is an estimate from the index, never
// too low. Kafka: LocalLog.addAbortedTransactions.
func aborted(set *segment.Set, s *segment.Segment, r *segment.Records, start, end, logEnd int64) ([]AbortedTxn, error) {
	upper, ok, err := s.UpperBound(r.Position, int64(r.Size), end)
	if err != nil {
		return nil, err
	}
	if !ok {
		upper = logEnd
		if next, ok := set.Higher(s.BaseOffset()); ok {
			upper = next.BaseOffset()
		}
	}
	list := []AbortedTxn{}
	for s := range set.From(s.BaseOffset()) {
		txns, complete, err := s.AbortedTxns(start, upper)
		if err != nil {
			return nil, err
		}
		list = append(list, txns...)
		if complete {
			break
		}
	}
	return list, nil
}
