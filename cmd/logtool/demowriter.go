package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/oncelog/oncelog/wal"
)

// Sizes of the demo.
const (
	demoWriterName   = "demo-writer"
	demoProducers    = 4
	demoSegmentBytes = 32 << 20
	demoSmallest     = 100  // records in a batch
	demoLargest      = 500  // records in a batch
	demoWindow       = 8    // batches of a producer under way at once
	demoRepeat       = 20   // one batch in so many is sent again
	demoOverlap      = 2000 // most acknowledged records that are sent again after the kill
)

func demoLogOptions(o demoOptions) wal.Options {
	return wal.Options{SegmentBytes: demoSegmentBytes, Sync: syncModes[o.sync]}
}

// demoWriterCommand is the process that demo kills.
func (a *app) demoWriterCommand() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:    demoWriterName + " DIR",
		Short:  "Append the records of the demo, and write the ledger to standard output",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(cmd *cobra.Command, args []string) error { return a.demoWriter(cmd.Context(), args[0], o) },
	}
	cmd.Flags().Int64Var(&o.records, "records", 0, "")
	cmd.Flags().Uint64Var(&o.seed, "seed", 0, "")
	cmd.Flags().StringVar(&o.sync, "sync", "commit", "")
	return cmd
}

func (a *app) demoWriter(ctx context.Context, dir string, o demoOptions) error {
	l, err := wal.OpenFS(ctx, a.fsys, absolute(dir), demoLogOptions(o))
	if err != nil {
		return err
	}
	var mu sync.Mutex
	enter := func(kind byte, producer int, n int64) error {
		mu.Lock()
		defer mu.Unlock()
		_, err := fmt.Fprintf(a.out, "%c %d %d\n", kind, producer, n) // one write, so that it is in the pipe whole or not at all
		return err
	}
	errs := make([]error, demoProducers)
	var group sync.WaitGroup
	for i := range demoProducers {
		w := newDemoSender(l, i, o, 0, enter)
		group.Go(func() { errs[i] = w.run(ctx) })
	}
	group.Wait()
	return errors.Join(errors.Join(errs...), l.Close())
}

// Kinds of entries of the ledger. An entry is a line "kind producer number".
const (
	entrySent         = 'S' // number is the count behind the last record that is about to be sent
	entryAcknowledged = 'A' // number is the count behind the last record that was acknowledged
	entryDuplicate    = 'D' // number is how many records the log recognised
)

// ledger is what the senders wrote down: the truth against which the log is held.
type ledger struct {
	sent, acknowledged [demoProducers]int64
	duplicates         int64
	total              int64 // acknowledged, of all producers
}

// read takes entries up to the end of the pipe, and calls each after every one. An incomplete last line does not count.
func (g *ledger) read(r io.Reader, each func() error) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var kind byte
		var producer int
		var n int64
		if _, err := fmt.Sscanf(strings.TrimSpace(line), "%c %d %d", &kind, &producer, &n); err != nil || producer < 0 || producer >= demoProducers {
			return fmt.Errorf("the ledger has a line %q", line)
		}
		switch kind {
		case entrySent:
			g.sent[producer] = max(g.sent[producer], n)
		case entryAcknowledged:
			g.total += n - g.acknowledged[producer]
			g.acknowledged[producer] = n
		case entryDuplicate:
			g.duplicates += n
		}
		if err := each(); err != nil {
			return err
		}
	}
}

// share is how many records a producer has.
func share(records int64, producer int) int64 {
	n := records / demoProducers
	if int64(producer) < records%demoProducers {
		n++
	}
	return n
}

func demoName(producer int) string { return fmt.Sprintf("demo-%d", producer) }

// demoSender appends the records of one producer from a count on.
type demoSender struct {
	l        *wal.Log
	producer int
	from, to int64
	random   *rand.Rand
	enter    func(kind byte, producer int, n int64) error // into the ledger
	again    func(skipped int)                            // counts what was recognised; may be nil

	handle  *wal.Producer
	window  []demoBatch // under way
	history []demoBatch // acknowledged, the newest last
}

type demoBatch struct {
	from, to int64
	pending  *wal.Pending
}

func newDemoSender(l *wal.Log, producer int, o demoOptions, from int64, enter func(byte, int, int64) error) *demoSender {
	return &demoSender{l: l, producer: producer, from: from, to: share(o.records, producer), enter: enter,
		random: rand.New(rand.NewPCG(o.seed, uint64(producer)+2))}
}

func (w *demoSender) run(ctx context.Context) error {
	var err error
	if w.handle, err = w.l.Producer(demoName(w.producer), wal.ProducerOptions{}); err != nil {
		return err
	}
	for next := w.from; next < w.to; {
		if err := ctx.Err(); err != nil {
			return err
		}
		b := demoBatch{from: next, to: min(w.to, next+demoSmallest+w.random.Int64N(demoLargest-demoSmallest+1))}
		if err := w.enter(entrySent, w.producer, b.to); err != nil {
			return err
		}
		b.pending = w.handle.AppendAtAsync(uint64(b.from), demoRecords(w.producer, b.from, b.to)...)
		w.window = append(w.window, b)
		next = b.to
		if err := w.settle(demoWindow); err != nil {
			return err
		}
		if w.random.IntN(demoRepeat) == 0 && len(w.history) > 0 {
			if err := w.repeat(w.history[w.random.IntN(len(w.history))]); err != nil {
				return err
			}
		}
	}
	return w.settle(0)
}

// settle waits until at most n batches are under way. An acknowledgement is in the ledger before anything else follows
// from it.
func (w *demoSender) settle(n int) error {
	for len(w.window) > n {
		b := w.window[0]
		r, err := b.pending.Wait(context.Background())
		if err != nil {
			return err
		}
		if err := w.enter(entryAcknowledged, w.producer, b.to); err != nil {
			return err
		}
		if r.Skipped > 0 && w.again != nil {
			w.again(r.Skipped)
		}
		w.window = w.window[1:]
		w.history = append(w.history, b)
		if len(w.history) > demoWindow {
			w.history = w.history[1:]
		}
	}
	return nil
}

// repeat sends a batch again whose answer is said to be lost.
func (w *demoSender) repeat(b demoBatch) error {
	r, err := w.handle.AppendAt(uint64(b.from), demoRecords(w.producer, b.from, b.to)...)
	if err != nil {
		return err
	}
	if int64(r.Skipped) != b.to-b.from {
		return fmt.Errorf("producer %d: of records %d to %d, sent again, %d were stored again", w.producer, b.from, b.to-1, b.to-b.from-int64(r.Skipped))
	}
	if w.again != nil {
		w.again(r.Skipped)
	}
	return w.enter(entryDuplicate, w.producer, int64(r.Skipped))
}
