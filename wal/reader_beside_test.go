package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/recovery"
)

// A log is opened for reading while a writer goes on: between any two operations of the reader the writer may append, roll,
// change the leader epoch, take a checkpoint, close, or be killed and recover. The reader finds a log without damage, as
// it was at some moment of the open.
func TestOpen_ReadOnlyBesideAWriter(t *testing.T) {
	seeds := uint64(8)
	switch {
	case testing.Short():
		seeds = 2
	case os.Getenv("ONCELOG_LONG") != "":
		seeds = 200
	}
	for _, mode := range modes {
		opens := 0
		for seed := uint64(1); seed <= seeds; seed++ {
			n, err := readBeside(seed, mode)
			opens += n
			if err != nil {
				t.Fatalf("seed %d, %v: %v", seed, mode, err)
			}
		}
		t.Logf("%v: %d opens", mode, opens)
	}
}

func readBeside(seed uint64, mode SyncMode) (opens int, err error) {
	c, err := newChain(seed, chainKind{follower: seed%2 == 0}, mode)
	if err != nil {
		return 0, err
	}
	c.fsys = c.mem
	if err := c.open(); err != nil {
		return 0, err
	}
	defer func() { _ = abandonLog(c.log) }()
	r := rand.New(rand.NewPCG(seed, 31))
	for range 12 {
		for range r.IntN(8) {
			if err := c.step(); err != nil {
				return opens, err
			}
		}
		var writerErr error
		often := 3 + r.IntN(100)
		fsys := vfstest.Inject(c.mem, vfstest.Hook{BeforeOp: func(vfstest.Op) vfstest.Fault {
			if writerErr == nil && r.IntN(often) == 0 {
				if writerErr = c.step(); writerErr == nil && r.IntN(40) == 0 {
					writerErr = errors.Join(abandonLog(c.log), c.open())
				}
			}
			return vfstest.Fault{}
		}})
		from := len(c.led.sent)
		o := c.opts
		o.ReadOnly = true
		l, err := OpenFS(context.Background(), fsys, simDir, o)
		if writerErr != nil {
			return opens, writerErr
		}
		if err != nil {
			return opens, fmt.Errorf("open %d: %w\nsteps %q", opens, err, tail(c.steps, 12))
		}
		opens++
		err = besideAWriter(c, l, from)
		if err = errors.Join(err, l.Close()); err != nil {
			return opens, fmt.Errorf("open %d: %w\nreport %+v\nsteps %q", opens, err, l.RecoveryReport(), tail(c.steps, 12))
		}
	}
	return opens, nil
}

func besideAWriter(c *chain, l *Log, from int) error {
	report := l.RecoveryReport()
	if report.Problems() || report.Refused() || len(report.Holes) > 0 || report.Writer != recovery.Us {
		return errors.New("a writer at work is taken for something else")
	}
	stored, err := readLevel(l, LogEnd)
	if err != nil {
		return err
	}
	if len(stored) < from || len(stored) > len(c.led.sent) {
		return fmt.Errorf("%d batches, %d were there before and %d are now", len(stored), from, len(c.led.sent))
	}
	for i, b := range stored {
		if !bytes.Equal(b, c.led.sent[i].stored) {
			return fmt.Errorf("batch %d is not the one sent there", i)
		}
	}
	return nil
}
