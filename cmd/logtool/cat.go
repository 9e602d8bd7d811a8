package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
	"github.com/oncelog/oncelog/wal"
)

type catOptions struct {
	from, max               int64
	json, uncommitted, skip bool
	follow                  bool
}

func (a *app) catCommand() *cobra.Command {
	var o catOptions
	cmd := &cobra.Command{
		Use:   "cat DIR|CUTFILE",
		Short: "Write the records of a partition",
		Long: `Write the committed records of a partition to its end.

As text a line holds offset, key and value with tabs in between. A backslash, a tab, a line end and whatever is not
printable is escaped as in Go (\\, \t, \n, \x1b); null is \N. With --json a line is an object with offset, timestamp, key,
value and headers, which "append --format json" reads: bytes are a string where they are UTF-8, else {"base64": "…"}.

Damage ends the output with exit status 1, unless --skip-damage goes on behind it.

With --follow it waits for what a writer appends, across rolls, deletions, truncations and restarts of the writer, until it
is interrupted or has written --max records. From a writer that syncs each commit it shows what is on disk.

A file oncelog.cut-… with bytes that a recovery cut off may be named as well: the records of the whole batches in it. Whether
a transaction was committed is said by its marker, which may be elsewhere: use --uncommitted.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.cat(cmd.Context(), args[0], o) },
	}
	f := cmd.Flags()
	f.Int64Var(&o.from, "from", -1, "first offset; −1 is the log start")
	f.Int64Var(&o.max, "max", -1, "most records to write; −1 is no limit")
	f.BoolVar(&o.json, "json", false, "write JSON lines")
	f.BoolVar(&o.uncommitted, "uncommitted", false, "also write records of aborted and of open transactions")
	f.BoolVarP(&o.follow, "follow", "f", false, "wait for more; not with --uncommitted")
	f.BoolVar(&o.skip, "skip-damage", false, "go on behind damage; the exit status is still 1")
	return cmd
}

func (a *app) cat(ctx context.Context, arg string, o catOptions) error {
	if o.from < -1 || o.max < -1 {
		return errors.New("--from and --max cannot be negative")
	}
	if o.follow && o.uncommitted {
		return errors.New("--follow shows committed records only, it cannot go with --uncommitted")
	}
	t, err := a.find(arg)
	if err != nil {
		return err
	}
	if t.cutFile() {
		a = a.asPartition(t)
	} else if t, err = a.findPartition(arg); err != nil {
		return err
	}
	if err := a.openable(t.path); err != nil {
		return err
	}
	var l *wal.Log
	err = a.settle(ctx, t.path, func() (again bool, err error) {
		l, err = wal.OpenFS(ctx, readOnlyFS{a.fsys}, t.path, wal.Options{ReadOnly: true, Now: a.now})
		return err != nil, err
	}, nil)
	if err != nil {
		return err
	}
	defer l.Close() // nothing was written
	c := catter{a: a, l: l, o: o, w: bufio.NewWriterSize(a.out, 64<<10)}
	if o.from < 0 {
		c.o.from = l.Offsets().LogStart
	}
	err = c.run(ctx)
	if flushErr := c.w.Flush(); err == nil {
		err = flushErr
	}
	if err == nil && t.cutFile() {
		err = a.reportRest(l)
	}
	return err
}

// catter writes the records of a log.
type catter struct {
	a       *app
	l       *wal.Log
	o       catOptions
	w       *bufio.Writer
	written int64
	damaged bool
}

func (c *catter) run(ctx context.Context) error {
	for _, h := range c.l.RecoveryReport().Holes {
		if start := c.l.Offsets().LogStart; h.End >= 0 && h.End <= start && c.o.from <= start {
			fmt.Fprintf(c.a.err, "logtool: offsets %d to %d are gone, although the log began at %[1]d\n", h.Offset, h.End-1)
			c.damaged = true
		}
	}
	for from := c.o.from; ; {
		next, err := c.until(ctx, from)
		var unreadable *wal.UnreadableError
		if !errors.As(err, &unreadable) {
			switch {
			case err == nil && c.damaged:
				err = errProblems
			case isDamage(err):
				err = problem{err}
			}
			return err
		}
		if !c.o.skip && next > c.l.Offsets().LogEnd {
			return problem{err}
		}
		if !c.o.skip {
			return problem{fmt.Errorf("%w; go on with --from %d, or use --skip-damage", err, next)}
		}
		if err := c.w.Flush(); err != nil {
			return err
		}
		fmt.Fprintf(c.a.err, "logtool: %s\n", escapeLines(err.Error()))
		c.damaged = true
		if from = next; from > c.l.Offsets().LogEnd && !c.o.follow {
			return errProblems
		}
	}
}

// isDamage tells whether an error is about the bytes of the log.
func isDamage(err error) bool {
	return errors.Is(err, wal.ErrCorrupt) || errors.Is(err, record.ErrTruncated) || errors.Is(err, wal.ErrUnsupportedVersion)
}

// until writes records up to the end, the wanted number, or an error. Behind damage next is where to go on.
func (c *catter) until(ctx context.Context, from int64) (next int64, err error) {
	if c.o.max >= 0 && c.written >= c.o.max {
		return from, nil
	}
	seq := c.l.Records(from)
	switch {
	case c.o.uncommitted:
		seq = uncommitted(c.l, from)
	case c.o.follow:
		seq = c.l.Tail(ctx, from)
	}
	for s, err := range seq {
		var unreadable *wal.UnreadableError
		if errors.As(err, &unreadable) {
			return unreadable.Last + 1, err
		}
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = c.write(&s)
		}
		if err == nil && c.o.follow && s.Offset+1 >= c.l.Offsets().LastStable {
			err = c.w.Flush() // there is nothing more for now
		}
		if err != nil {
			return 0, err
		}
		if c.written++; c.o.max >= 0 && c.written >= c.o.max {
			return 0, nil
		}
	}
	return 0, nil
}

func (c *catter) write(s *wal.Stored) error {
	if c.o.json {
		return writeJSONLine(c.w, jsonOf(s.Offset, &s.Record))
	}
	_, err := fmt.Fprintf(c.w, "%d\t%s\t%s\n", s.Offset, field(s.Key), field(s.Value))
	return err
}

// field is a key or value on one line.
func field(p []byte) string {
	if p == nil {
		return `\N`
	}
	s := string(p)
	if !strings.ContainsRune(s, '\\') && isPlain(s) {
		return s
	}
	q := strconv.Quote(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

// fetchBytes is how much of the log is read at once.
const fetchBytes = 1 << 20

// uncommitted yields all records up to the log end but those of control batches.
func uncommitted(l *wal.Log, from int64) iter.Seq2[wal.Stored, error] {
	return func(yield func(wal.Stored, error) bool) {
		var buf []byte
		for end := l.Offsets().LogEnd; from < end; {
			f, err := l.Read(from, wal.ReadOptions{MaxBytes: fetchBytes, Isolation: wal.LogEnd, MinOneMessage: true})
			if err == nil {
				buf, err = f.Records.AppendTo(buf[:0])
				err = errors.Join(err, f.Close())
			}
			if err != nil {
				yield(wal.Stored{}, err)
				return
			}
			next, ok := yieldBatches(filepath.Join(l.Dir(), segment.FileName(segment.KindLog, f.Segment)), f.Position, buf, from, yield)
			if !ok {
				return
			}
			if next == from {
				return // nothing more is there
			}
			from = next
		}
		// The end of a damaged log may be gone.
		if f, err := l.Read(l.Offsets().LogEnd, wal.ReadOptions{Isolation: wal.LogEnd}); err != nil {
			yield(wal.Stored{}, err)
		} else {
			_ = f.Close()
		}
	}
}

// yieldBatches yields the records of the whole batches in p, and returns the offset behind them. ok is false when the walk
// is over.
func yieldBatches(path string, position int64, p []byte, from int64, yield func(wal.Stored, error) bool) (next int64, ok bool) {
	next = from
	for len(p) > 0 {
		b, rest, err := record.Next(p)
		if errors.Is(err, record.ErrTruncated) && next > from {
			return next, true // the read ended inside it
		}
		if err == nil {
			err = b.Validate()
		}
		if err != nil {
			yield(wal.Stored{}, &wal.UnreadableError{First: next, Last: claimedEnd(p, next), Path: path, Position: position, Err: err})
			return next, false
		}
		for r, err := range b.Records(record.Limits{}) {
			if err != nil {
				yield(wal.Stored{}, fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), err))
				return next, false
			}
			if r.Offset < from || b.Magic() == record.Magic && b.Attributes().IsControl() {
				continue
			}
			s := wal.Stored{Offset: r.Offset, Record: wal.Record{Key: r.Key, Value: r.Value, Headers: r.Headers}}
			if r.Timestamp != record.NoTimestamp {
				s.Time = time.UnixMilli(r.Timestamp).UTC()
			}
			if !yield(s, nil) {
				return next, false
			}
		}
		next, position, p = b.NextOffset(), position+int64(b.Size()), rest
	}
	return next, true
}

// claimedEnd is the last offset of a bad batch, if its head may be believed, else the offset that comes next.
func claimedEnd(p []byte, next int64) int64 {
	b := record.Batch(p)
	if len(p) < record.Overhead || b.Magic() != record.Magic || b.BaseOffset() < next || b.LastOffsetDelta() < 0 {
		return next
	}
	return max(next, b.LastOffset())
}
