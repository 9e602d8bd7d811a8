package wal

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// Records yields the records from offset from on, up to the end that the log has when Records is called. Only committed
// records count: those of aborted transactions and the log's own control records are left out, and so there are gaps in
// the offsets; the first record of an open transaction is an end. In SyncCommit nothing is yielded that is not on disk.
//
// What is yielded belongs to the caller, for as long as he likes. It lies in blocks of up to a mebibyte that stay in
// memory as long as any record of theirs is kept: keep clones (bytes.Clone) of a few records out of many.
//
// An error is the last element. Where bytes are damaged it is an *UnreadableError, which tells the offsets that cannot
// be read; everything before has been yielded, and another Records from its Last + 1 goes on behind the damage. An
// offset below the log start or above the log end is an *OffsetError; the log start may move up during the loop, where
// retention removes records. Every checksum is verified. The loop may use the log in any way, truncate and close it
// too. The sequence may be walked again.
func (l *Log) Records(from int64) iter.Seq2[Stored, error] {
	until, untilErr := l.stableEnd(context.Background())
	return func(yield func(Stored, error) bool) {
		c := cursor{l: l, at: from, yield: yield}
		err := c.begin()
		if err == nil {
			err = untilErr
		}
		if err != nil {
			yield(Stored{}, err)
			return
		}
		if c.run(until.readable()) {
			if err := l.lost(c.at); err != nil {
				yield(Stored{}, err)
			}
		}
	}
}

// Tail yields what Records yields and then waits for more. It ends with an error only, which is yielded: ctx.Err() when
// the context ends, ErrClosed when the log is closed, ErrFailed when it failed, and those of Records. So after a Tail
// that was walked to its end the reason is always known.
//
// A log that was opened read-only follows a writer in another process, through rolls, deletions, truncations and restarts
// of that process. While Tail waits it looks for something new a millisecond later, then two, and so on up to 100; a look
// reads 1.5 KiB and asks for one or two files, and what is new is read once more for its checksums. Where the writer
// truncates, Tail goes on at its place as soon as the log reaches that again; what was written below it meanwhile is not
// yielded. In SyncCommit it stops at what the writer has on disk, in the other modes at the last whole batch, which a power
// cut may take back.
func (l *Log) Tail(ctx context.Context, from int64) iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		c := cursor{l: l, at: from, yield: yield, ctx: ctx}
		err := c.begin()
		for err == nil {
			if err = ctx.Err(); err != nil {
				break
			}
			var until place
			if until, err = l.stableEnd(ctx); err != nil {
				break
			}
			if !c.run(until.readable()) {
				return
			}
			if err = l.lost(c.at); err != nil {
				break
			}
			err = l.Wait(ctx, c.at, TxnCommitted)
		}
		yield(Stored{}, err)
	}
}

// stableEnd is where readers of committed records stop.
func (l *Log) stableEnd(ctx context.Context) (place, error) {
	for {
		e := l.visible.load()
		p, err := l.limit(&e, TxnCommitted)
		if err == nil || !l.opts.ReadOnly || errors.Is(err, ErrClosed) {
			return p, err
		}
		same, lookErr := l.stillThere(ctx, e.truncations, err)
		if same || lookErr != nil {
			return p, errors.Join(err, lookErr)
		}
	}
}

// Sizes of what a cursor reads at once.
const (
	firstRead = 16 << 10
	mostRead  = 1 << 20
)

// cursor walks over committed records. It holds nothing of the log while the caller's code runs.
type cursor struct {
	l     *Log
	ctx   context.Context // of a Tail; nil for Records
	at    int64           // the next offset
	size  int             // bytes to read next
	known knownPlace      // of the next offset, behind damage
	yield func(Stored, error) bool
	keep  arena
}

// begin looks whether the cursor may start where it is.
func (c *cursor) begin() error {
	c.size = firstRead
	if c.l.isClosed.Load() {
		return ErrClosed
	}
	e := c.l.visible.load()
	if c.at < e.logStart || c.at > e.end.offset {
		return &OffsetError{Offset: c.at, LogStart: e.logStart, LogEnd: e.end.offset}
	}
	return nil
}

// run yields the records below until. It returns false when the loop is over, by the caller's will or with an error.
func (c *cursor) run(until int64) bool {
	for c.at < until {
		if c.ctx != nil && c.ctx.Err() != nil {
			return true // Tail says so
		}
		p, err := c.next()
		if err == nil && len(p.bytes) == 0 {
			var gap int64
			if gap, err = c.gap(); err == nil {
				if gap == 0 {
					return true // the end has moved back meanwhile
				}
				c.at = min(c.at+gap, until)
				continue
			}
		}
		if err != nil {
			c.yield(Stored{}, err)
			return false
		}
		if !c.deliver(&p, until) {
			return false
		}
	}
	return true
}

// gap is how many offsets from the next one on no batch has. The log end has none either.
func (c *cursor) gap() (n int64, err error) {
	err = c.l.observe(func(e *ends, set *segment.Set) error {
		p, found, err := c.l.locate(set, c.at, e.end)
		if !found {
			p = e.end
		}
		n = max(0, p.offset-c.at)
		return err
	})
	return n, err
}

// piece is a run of stored bytes that begins with a batch.
type piece struct {
	bytes    []byte
	segment  *segment.Segment
	position int64 // of bytes in the segment
	aborted  []AbortedTxn
	next     int64 // offset that the first batch must have at least; below it nothing is left to read
	logEnd   int64
	gaps     bool // offsets may jump
}

// next reads the bytes from the batch on that holds the next offset. In a log that was opened read-only it makes sure that
// they are not half of a log that a writer has replaced meanwhile.
func (c *cursor) next() (p piece, err error) {
	ctx := c.ctx
	if ctx == nil {
		ctx = context.Background()
	}
	for {
		before := c.l.visible.load().truncations
		p, err = c.fetch()
		if !c.l.opts.ReadOnly || errors.Is(err, ErrClosed) {
			return p, err
		}
		same, lookErr := c.l.stillThere(ctx, before, err)
		if same || lookErr != nil {
			return p, errors.Join(err, lookErr)
		}
	}
}

func (c *cursor) fetch() (p piece, err error) {
	for {
		f, err := c.l.read(c.at, ReadOptions{MaxBytes: c.size, Isolation: TxnCommitted, MinOneMessage: true}, c.known)
		if err != nil {
			return p, err
		}
		p = piece{position: f.Position, aborted: f.Aborted, next: c.at, logEnd: f.Offsets.LogEnd, gaps: c.l.visible.load().gaps}
		if f.Records.Size == 0 {
			return p, f.Close()
		}
		set := c.l.segments.Load()
		s, ok := set.Get(f.Segment)
		if first := set.First(); first != nil && ok {
			p.next = max(p.next, first.BaseOffset()) // below it there is nothing, see floorOrFirst
		}
		p.segment = s
		p.bytes, err = f.Records.AppendTo(make([]byte, 0, f.Records.Size))
		err = errors.Join(err, f.Close())
		if errors.Is(err, segment.ErrCut) || errors.Is(err, segment.ErrClosed) || !ok {
			continue // the log was cut meanwhile, or the segment removed
		}
		c.size = min(2*c.size, mostRead)
		return p, err
	}
}

// pass goes on behind bytes that are no batch, if none of the offsets from the next one on is missing. Else the loop is over,
// with an error that tells those that are.
func (c *cursor) pass(p *piece, position int64, cause error) bool {
	if order := (*segment.OrderError)(nil); position > p.position && errors.As(cause, &order) {
		return true // batches are missing, or have wrong offsets: the look-up of the next one tells
	}
	damage := &segment.CorruptError{Path: p.segment.Path(), Position: position, LastOffset: c.at - 1, Err: cause}
	err := c.l.observe(func(e *ends, set *segment.Set) error {
		if s, ok := set.Get(p.segment.BaseOffset()); !ok || s != p.segment {
			return nil // removed: the next read tells
		}
		at, found, err := c.l.around(set, p.segment, damage, c.at, e)
		if c.known = (knownPlace{}); found {
			c.known = knownPlace{segment: p.segment.BaseOffset(), position: at, truncations: e.truncations}
		}
		return err
	})
	if err != nil {
		c.yield(Stored{}, err)
	}
	return err == nil
}

// deliver yields the committed records of the whole batches. It returns false when the loop is over.
func (c *cursor) deliver(p *piece, until int64) bool {
	c.known = knownPlace{}
	filter := newFilter(p.aborted)
	next := p.next
	rest := p.bytes
	for len(rest) > 0 {
		b, tail, err := record.Next(rest)
		position := p.position + int64(len(p.bytes)-len(rest))
		if errors.Is(err, record.ErrTruncated) && position > p.position {
			return true // cut off by the read: it comes first in the next one
		}
		if err == nil {
			err = b.Validate()
		}
		if err == nil {
			err = p.inPlace(b, next, position > p.position)
		}
		if err != nil {
			return c.pass(p, position, err)
		}
		if b.BaseOffset() >= until {
			c.at = until
			return true
		}
		if filter.passes(b) && !c.records(b, p, position, until) {
			return false
		}
		next = b.NextOffset()
		c.at = max(c.at, min(next, until))
		rest = tail
	}
	return true
}

// inPlace tells whether the offsets of a batch, which no checksum covers, can be right: behind those of the batch before,
// and in a log without gaps right behind.
func (p *piece) inPlace(b record.Batch, next int64, follows bool) error {
	base, last := b.BaseOffset(), b.LastOffset()
	wrong := last < next || last < base || last >= p.logEnd || follows && base < next
	if base > next && !p.gaps {
		wrong = true
	}
	if wrong {
		return &segment.OrderError{BaseOffset: base, LastOffset: last, Want: next}
	}
	return nil
}

// records yields the records of one batch.
func (c *cursor) records(b record.Batch, p *piece, position, until int64) bool {
	shared := b.Attributes().Compression() != record.None // the bytes lie in a buffer that is used again
	for r, err := range b.Records(c.l.limits()) {
		if err != nil {
			e := &UnreadableError{First: c.at, Last: b.LastOffset(), Path: p.segment.Path(), Position: position, Err: err}
			c.yield(Stored{}, e)
			return false
		}
		if r.Offset < c.at || r.Offset >= until {
			continue
		}
		s := Stored{Offset: r.Offset, Record: Record{Key: r.Key, Value: r.Value, Headers: c.keep.headers(r.Headers)}}
		if r.Timestamp != record.NoTimestamp {
			s.Time = time.UnixMilli(r.Timestamp).UTC()
		}
		if shared {
			c.keep.own(&s.Record)
		}
		if !c.yield(s, nil) {
			return false
		}
		c.at = r.Offset + 1
	}
	return true
}

// filter leaves out what readers of committed records do not get. Kafka: CompletedFetch.
type filter struct {
	ahead   []AbortedTxn // whose first batch is still to come, ascending by it
	aborted []int64      // producers that are, where the walk is, inside a transaction that will be aborted
}

func newFilter(aborted []AbortedTxn) filter {
	slices.SortFunc(aborted, func(a, b AbortedTxn) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
	return filter{ahead: aborted}
}

// passes tells whether the records of the batch count. The batches come in the order of the log.
func (f *filter) passes(b record.Batch) bool {
	isControl := b.Attributes().IsControl()
	if !b.HasProducerID() {
		return !isControl
	}
	for last := b.LastOffset(); len(f.ahead) > 0 && f.ahead[0].FirstOffset <= last; f.ahead = f.ahead[1:] {
		f.aborted = append(f.aborted, f.ahead[0].ProducerID)
	}
	at := slices.Index(f.aborted, b.ProducerID())
	if isControl {
		if at >= 0 && isAbort(b) {
			f.aborted = slices.Delete(f.aborted, at, at+1)
		}
		return false
	}
	return at < 0 || !b.Attributes().IsTransactional()
}

func isAbort(b record.Batch) bool {
	m, err := b.EndTxnMarker()
	return err == nil && m.Type == record.Abort
}

// arena hands out memory that belongs to the caller, in blocks, so that a record costs no allocation of its own.
type arena struct {
	free []byte
	list []record.Header
}

const (
	arenaBytes   = 32 << 10
	arenaHeaders = 64
)

func (a *arena) clone(p []byte) []byte {
	if len(p) == 0 || len(p) > arenaBytes/2 {
		return bytes.Clone(p)
	}
	if cap(a.free)-len(a.free) < len(p) {
		a.free = make([]byte, 0, arenaBytes)
	}
	n := len(a.free)
	a.free = append(a.free, p...)
	return a.free[n:len(a.free):len(a.free)]
}

func (a *arena) headers(h []record.Header) []record.Header {
	if len(h) == 0 {
		return nil
	}
	if len(h) > arenaHeaders/2 {
		return append([]record.Header(nil), h...)
	}
	if cap(a.list)-len(a.list) < len(h) {
		a.list = make([]record.Header, 0, arenaHeaders)
	}
	n := len(a.list)
	a.list = append(a.list, h...)
	return a.list[n:len(a.list):len(a.list)]
}

// own copies what a record points to. Its list of headers is the arena's already.
func (a *arena) own(r *Record) {
	r.Key, r.Value = a.clone(r.Key), a.clone(r.Value)
	for i := range r.Headers {
		r.Headers[i].Value = a.clone(r.Headers[i].Value)
	}
}
