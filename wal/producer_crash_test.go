package wal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
)

// namedCrash is a program that appends under a name on a disk that loses power, and then appends everything again.
type namedCrash struct {
	opts    Options
	startAt uint64
	sent    uint64 // count behind what was handed to the log
	acked   uint64
}

// check opens what a crash left: the name stands between what was acknowledged and what was sent, and after the program
// has appended all of its records again each of them is there once.
func (c *namedCrash) check(fsys vfs.FS, kill bool) error {
	l, err := OpenFS(context.Background(), fsys, simDir, c.opts)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer func() { _ = l.Close() }()
	p, err := l.Producer("importer", ProducerOptions{StartAt: c.startAt})
	if err != nil {
		return err
	}
	next := p.NextSequence()
	if promised := c.opts.Sync == SyncCommit || kill; next > c.sent || promised && next < c.acked || next < c.startAt {
		return fmt.Errorf("next %d, acknowledged up to %d, sent up to %d", next, c.acked, c.sent)
	}
	if next > c.startAt {
		if _, err := p.AppendAt(c.startAt-1, counted(c.startAt-1, 1)...); !errors.Is(err, ErrCountTooLow) {
			return fmt.Errorf("a record from before the first one: %w", err)
		}
	}
	for from := c.startAt; from < c.sent; {
		n := min(5, int(c.sent-from))
		r, err := p.AppendAt(from, counted(from, n)...)
		if err != nil || uint64(r.Skipped) != min(uint64(n), max(next, from)-from) {
			return fmt.Errorf("again from %d, next was %d: %+v, %w", from, next, r, err)
		}
		from += uint64(n)
	}
	want := c.startAt
	for s, err := range l.Records(0) {
		if err != nil {
			return err
		}
		if string(s.Value) != fmt.Sprint(want) {
			return fmt.Errorf("offset %d holds %q, want %d", s.Offset, s.Value, want)
		}
		want++
	}
	if want != c.sent {
		return fmt.Errorf("records up to %d, want %d", want, c.sent)
	}
	return nil
}

func (c *namedCrash) run(seed uint64, steps int) (states int, err error) {
	r := rand.New(rand.NewPCG(seed, 9))
	mem := vfstest.NewMemWith(vfstest.MemOptions{Seed: seed})
	if err := errors.Join(mem.MkdirAll("/data", 0o755), mem.SyncDir("/")); err != nil {
		return 0, err
	}
	var failure error
	fsys := vfstest.Inject(mem, vfstest.Each(vfstest.Writes, func(op vfstest.Op, after bool) {
		if failure != nil || r.IntN(4) > 0 {
			return
		}
		states++
		o := vfstest.RandomCrash(r.Uint64())
		if err := c.check(mem.Crash(o), o.Mode == vfstest.Kill); err != nil {
			failure = fmt.Errorf("seed %d, %v, crash %+v at %v (after: %v): %w", seed, c.opts.Sync, o, op, after, err)
		}
	}))
	var l *Log
	var p *Producer
	open := func() error {
		var err error
		if l, err = OpenFS(context.Background(), fsys, simDir, c.opts); err != nil {
			return err
		}
		p, err = l.Producer("importer", ProducerOptions{StartAt: c.startAt})
		return err
	}
	err = open()
	for i := 0; i < steps && err == nil && failure == nil; i++ {
		switch n := r.IntN(20); n {
		case 0:
			err = errors.Join(l.Close(), open())
		case 1:
			err = l.Checkpoint()
		case 2:
			err = errors.Join(l.Close())
			if err == nil { // a run that does not know the name
				if l, err = OpenFS(context.Background(), fsys, simDir, c.opts); err == nil {
					err = errors.Join(l.Close(), open())
				}
			}
		default:
			k := 1 + r.IntN(6)
			from := c.sent
			c.sent += uint64(k)
			_, err = p.AppendAt(from, counted(from, k)...)
			c.acked = c.sent
		}
	}
	return states, errors.Join(err, failure, l.Close())
}

func TestProducer_PowerCuts(t *testing.T) {
	want := 1500
	if testing.Short() {
		want = 300
	}
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			for states, seed := 0, uint64(1); states < want; seed++ {
				c := &namedCrash{startAt: []uint64{1, 1000, 1<<31 - 40}[seed%3]}
				c.sent, c.acked = c.startAt, c.startAt
				c.opts = Options{Sync: mode, SegmentBytes: 900, CheckpointBytes: 700, IndexIntervalBytes: 200, manual: true}
				n, err := c.run(seed, 60)
				if err != nil {
					t.Fatal(err)
				}
				states += n
			}
		})
	}
}
