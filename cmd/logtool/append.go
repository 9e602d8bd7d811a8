package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncelog/oncelog/internal/verify"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/wal"
)

// appendSchema is the version of the lines that append writes.
const appendSchema = "oncelog.append/1"

type appendOptions struct {
	format, codec, sync, producer, separator string
	seqFrom                                  int64
	batch                                    int
	segmentBytes                             int32
	json                                     bool
}

var codecs = map[string]record.Compression{
	"none": record.None, "gzip": record.Gzip, "snappy": record.Snappy, "lz4": record.LZ4, "zstd": record.Zstd,
}

var syncModes = map[string]wal.SyncMode{"commit": wal.SyncCommit, "interval": wal.SyncInterval, "none": wal.SyncNone}

func (a *app) appendCommand() *cobra.Command {
	var o appendOptions
	cmd := &cobra.Command{
		Use:   "append DIR",
		Short: "Append records from standard input",
		Long: `Append records from standard input, a line each, and say for each batch which offsets it got. The directory is made if
it is missing. With --format lines a line is the value, with --key-separator the key comes first; with json it is an
object such as "cat --json" writes.

With --producer the records are stored under a name that counts them. To append the same input again with the same
--seq-from, the count of its first record, stores nothing twice, whatever became of the attempt before. Without
--seq-from the records get the next counts.

A batch is stored when --batch records are there, or 512 KiB, or when no more input comes for a moment. What was answered
with offsets is stored; with --sync commit it is on disk.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("seq-from") && o.seqFrom < 0 {
				return errors.New("--seq-from cannot be negative")
			}
			return a.append(cmd.Context(), args[0], o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.format, "format", "lines", "lines or json")
	f.StringVar(&o.producer, "producer", "", "name under which the records are counted")
	f.Int64Var(&o.seqFrom, "seq-from", -1, "count of the first record of the input")
	f.StringVar(&o.codec, "codec", "none", "none, gzip, snappy, lz4 or zstd")
	f.IntVar(&o.batch, "batch", 100, "most records in a batch")
	f.StringVar(&o.sync, "sync", "commit", "commit, interval or none: what an answer promises")
	f.StringVar(&o.separator, "key-separator", "", "what ends the key in a line; without it, and in lines without it, the key is null")
	f.Int32Var(&o.segmentBytes, "segment-bytes", 1<<30, "size at which a new segment is begun")
	f.BoolVar(&o.json, "json", false, "write JSON lines")
	return cmd
}

func (o *appendOptions) validate() error {
	_, codecOK := codecs[o.codec]
	_, syncOK := syncModes[o.sync]
	switch {
	case o.format != "lines" && o.format != "json":
		return fmt.Errorf("--format %s is neither lines nor json", quote(o.format))
	case !codecOK:
		return fmt.Errorf("--codec %s is none of none, gzip, snappy, lz4 and zstd", quote(o.codec))
	case !syncOK:
		return fmt.Errorf("--sync %s is none of commit, interval and none", quote(o.sync))
	case o.batch < 1 || o.batch > 1<<20:
		return fmt.Errorf("--batch %d is not between 1 and %d", o.batch, 1<<20)
	case o.seqFrom >= 0 && o.producer == "":
		return errors.New("--seq-from needs a --producer")
	case o.separator != "" && o.format != "lines":
		return errors.New("--key-separator is for --format lines")
	}
	return nil
}

func (a *app) append(ctx context.Context, dir string, o appendOptions) (err error) {
	if err := o.validate(); err != nil {
		return err
	}
	if dir == "" {
		return errors.New("the path is empty")
	}
	if err := a.openable(absolute(dir)); err != nil {
		return err
	}
	// The context is not for the open log: what was read is stored also when the rest is given up.
	l, err := wal.OpenFS(ctx, a.fsys, absolute(dir), wal.Options{
		Sync: syncModes[o.sync], Compression: wal.Compression{Codec: codecs[o.codec]}, SegmentBytes: o.segmentBytes, Now: a.now,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	a.sayRecovered(l)
	s := appender{a: a, l: l, o: o, w: bufio.NewWriter(a.out)}
	if o.producer != "" {
		if s.producer, err = l.Producer(o.producer, wal.ProducerOptions{StartAt: uint64(max(0, o.seqFrom))}); err != nil {
			return err
		}
		s.count = s.producer.NextSequence()
		if o.seqFrom >= 0 {
			s.count = uint64(o.seqFrom)
		}
	}
	return s.run(ctx)
}

// sayRecovered tells of an open that had something to put right.
func (a *app) sayRecovered(l *wal.Log) {
	r := l.RecoveryReport()
	for _, f := range r.Findings {
		g := verify.OfRecovery(l.Dir(), f)
		fmt.Fprintf(a.err, "logtool: recovered: %s\n", lineOf(&g))
	}
}

// appender makes batches of the input and appends them, several at a time.
type appender struct {
	a        *app
	l        *wal.Log
	o        appendOptions
	w        *bufio.Writer
	producer *wal.Producer
	count    uint64 // of the next record of the input

	batch   []wal.Record
	bytes   int
	flights []flight

	appended, skipped int64
}

// flight is a batch whose answer is still to come.
type flight struct {
	pending *wal.Pending
	count   uint64
	records int
}

const (
	batchBytes = 512 << 10 // a batch is not made larger, a single record apart
	mostFlight = 32        // batches that are under way at once
	linger     = 200 * time.Millisecond
)

func (s *appender) run(ctx context.Context) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	in := readRecords(reading, s.a.in, &s.o)
	timer := time.NewTimer(math.MaxInt64)
	defer timer.Stop()
	for {
		select {
		case r, more := <-in.records:
			if !more {
				return s.finish(in.err())
			}
			if len(s.batch) > 0 && s.bytes+r.size > batchBytes {
				if err := s.store(); err != nil {
					return s.give(err)
				}
			}
			s.batch, s.bytes = append(s.batch, r.record), s.bytes+r.size
			if len(s.batch) < s.o.batch {
				timer.Reset(linger)
				continue
			}
		case <-timer.C:
		case <-ctx.Done():
			return s.finish(ctx.Err())
		}
		if err := s.store(); err != nil {
			return s.give(err)
		}
		if len(in.records) == 0 {
			if err := s.land(0); err != nil {
				return s.give(err)
			}
		}
	}
}

// store appends the batch without waiting for the answer.
func (s *appender) store() error {
	if len(s.batch) == 0 {
		return nil
	}
	f := flight{count: s.count, records: len(s.batch)}
	switch {
	case s.producer == nil:
		f.pending = s.l.AppendAsync(s.batch...)
	case s.o.seqFrom >= 0:
		f.pending = s.producer.AppendAtAsync(s.count, s.batch...)
	default:
		f.pending = s.producer.AppendAsync(s.batch...)
	}
	s.count += uint64(len(s.batch))
	s.flights = append(s.flights, f)
	s.batch, s.bytes = s.batch[:0], 0
	return s.land(mostFlight)
}

// land waits until at most n batches are under way, and tells of each that arrives.
func (s *appender) land(n int) error {
	for len(s.flights) > n {
		f := s.flights[0]
		r, err := f.pending.Wait(context.Background())
		if err != nil {
			return err
		}
		s.flights = s.flights[1:]
		if err := s.tell(f, r); err != nil {
			return err
		}
	}
	return s.w.Flush()
}

// finish appends what is left of the input after it has ended, with or without an error.
func (s *appender) finish(inputErr error) error {
	err := s.store()
	if err == nil {
		err = s.land(0)
	}
	if err == nil && inputErr == nil {
		err = s.summary()
	}
	return errors.Join(inputErr, err, s.w.Flush())
}

// give up after an error, and tell of the batches that were stored nevertheless.
func (s *appender) give(err error) error {
	for _, f := range s.flights {
		if r, flightErr := f.pending.Wait(context.Background()); flightErr == nil {
			err = errors.Join(err, s.tell(f, r))
		}
	}
	return errors.Join(err, s.w.Flush())
}

// answerJSON is the answer to one batch.
type answerJSON struct {
	Records int     `json:"records"`
	Skipped int     `json:"skipped"` // of these, were stored before
	First   *int64  `json:"first"`   // offsets of the others; of all if all were stored before, null where not remembered
	Last    *int64  `json:"last"`
	Count   *uint64 `json:"count,omitempty"` // of the first record
}

func (s *appender) tell(f flight, r wal.Result) error {
	s.appended += int64(f.records - r.Skipped)
	s.skipped += int64(r.Skipped)
	if s.o.json {
		j := answerJSON{Records: f.records, Skipped: r.Skipped, First: knownIf(r.First), Last: knownIf(r.Last)}
		if s.producer != nil {
			j.Count = &f.count
		}
		return writeJSONLine(s.w, j)
	}
	offsets := "offsets not remembered"
	if r.First >= 0 && r.Last >= 0 {
		offsets = fmt.Sprintf("offsets %d to %d", r.First, r.Last)
	}
	var err error
	switch {
	case r.Skipped == f.records:
		_, err = fmt.Fprintf(s.w, "duplicate %s, %s\n", count(f.records, "record"), offsets)
	case r.Skipped > 0:
		_, err = fmt.Fprintf(s.w, "duplicate %s, appended %s, %s\n", count(r.Skipped, "record"), count(f.records-r.Skipped, "record"), offsets)
	default:
		_, err = fmt.Fprintf(s.w, "appended %s, %s\n", count(f.records, "record"), offsets)
	}
	return err
}

// summaryJSON is the last line of append.
type summaryJSON struct {
	Schema    string  `json:"schema"`
	Appended  int64   `json:"appended"`
	Skipped   int64   `json:"skipped"`
	NextCount *uint64 `json:"nextCount,omitempty"`
}

func (s *appender) summary() error {
	if s.o.json {
		j := summaryJSON{Schema: appendSchema, Appended: s.appended, Skipped: s.skipped}
		if s.producer != nil {
			j.NextCount = &s.count
		}
		return writeJSONLine(s.w, j)
	}
	text := fmt.Sprintf("%s appended, %d stored before", count(s.appended, "record"), s.skipped)
	if s.producer != nil {
		text += fmt.Sprintf(", the next count is %d", s.count)
	}
	_, err := fmt.Fprintln(s.w, text)
	return err
}
