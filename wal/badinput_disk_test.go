package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
)

// fillDisk appends to a log on a disk of the given size until it is full. It returns the simulation with the log open, and
// the error of the append that found no room, nil if all of them did.
func fillDisk(mode SyncMode, preallocate bool, capacity int64, steps int) (s *simulation, m *vfstest.Mem, full error, err error) {
	s = newSimulation(99, mode)
	s.opts.SegmentBytes, s.opts.CheckpointBytes, s.opts.Preallocate = 8<<10, 5<<10, preallocate
	m = vfstest.NewMem()
	s.fsys = m
	if err = errors.Join(m.MkdirAll("/data", 0o755), m.SyncDir("/"), s.openLog()); err != nil {
		return s, m, nil, err
	}
	m.SetCapacity(m.Used() + capacity)
	for range steps {
		sent, end, state := len(s.ledger.sent), s.log.Offsets(), producerTexts(s.log)
		if full = s.appendRandom(); full == nil {
			continue
		}
		s.ledger.sent = s.ledger.sent[:sent]
		now := s.log.Offsets()
		end.RecoveryPoint = now.RecoveryPoint // a roll that did fit may have moved it
		if now != end || fmt.Sprint(producerTexts(s.log)) != fmt.Sprint(state) {
			err = fmt.Errorf("an append found no room, and the log went from %+v to %+v", end, now)
		}
		return s, m, full, err
	}
	return s, m, nil, nil
}

// On a full disk an append is refused by an error that says so, and leaves log and producers as they were. The log can be
// read, refuses the next append in the same way, and takes it when there is room again, without being opened anew.
func TestBadInput_FullDisk(t *testing.T) {
	for i := range 2 * len(modes) {
		mode, preallocate, step := modes[i%len(modes)], i >= len(modes), int64(512)
		if preallocate {
			step = 1536
		}
		t.Run(fmt.Sprint(mode, ", preallocated ", preallocate), func(t *testing.T) {
			t.Parallel()
			hits := 0
			for capacity := int64(0); ; capacity += step {
				s, m, full, err := fillDisk(mode, preallocate, capacity, 120)
				if err != nil {
					t.Fatalf("capacity %d: %v", capacity, err)
				}
				if full == nil {
					if err := s.log.Close(); err != nil {
						t.Error(err)
					}
					break
				}
				hits++
				if err := checkFull(s, m, full); err != nil {
					t.Fatalf("capacity %d: %v", capacity, err)
				}
			}
			t.Logf("%d disks", hits)
			if hits < 20 {
				t.Errorf("%d disks were full, want at least 20", hits)
			}
		})
	}
}

func checkFull(s *simulation, m *vfstest.Mem, full error) error {
	if !errors.Is(full, vfs.ErrNoSpace) || !strings.Contains(full.Error(), simDir) {
		return fmt.Errorf("want ErrNoSpace that names the file: %w", full)
	}
	if s.log.failure() != nil {
		return fmt.Errorf("failed for good although nothing was written: %w", full)
	}
	stored, err := readAll(s.log)
	if err != nil || len(stored) != len(s.ledger.sent) {
		return fmt.Errorf("%d batches read on a full disk, %d were stored: %w", len(stored), len(s.ledger.sent), err)
	}
	sent := len(s.ledger.sent)
	if err := s.appendRandom(); err != nil {
		s.ledger.sent = s.ledger.sent[:sent]
		if !errors.Is(err, vfs.ErrNoSpace) {
			return fmt.Errorf("the next append on a full disk: %w", err)
		}
	}
	// The machine may go down now, and come up with the disk still full: what is there opens, and what was acknowledged is there.
	led := s.ledger
	for _, mode := range []vfstest.CrashMode{vfstest.Kill, vfstest.AllLost, vfstest.AllKept} {
		c := m.Crash(vfstest.CrashOptions{Mode: mode, Seed: 5})
		if err := checkFullRecovery(c, s, &led, mode == vfstest.Kill); err != nil {
			return fmt.Errorf("%v on a full disk (%w): %w", mode, full, err)
		}
	}
	m.SetCapacity(0)
	for range 5 {
		if err := s.appendRandom(); err != nil {
			return fmt.Errorf("an append with room again: %w", err)
		}
	}
	if err := s.log.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	led = s.ledger
	led.durable = led.acked
	return checkCrash(m.Crash(vfstest.CrashOptions{}), s.opts, &led, true)
}

// checkFullRecovery opens for reading, which needs no space, and for writing, which may be refused for want of it but no
// more than that, until there is room.
func checkFullRecovery(c *vfstest.Mem, s *simulation, led *ledger, kill bool) error {
	o := s.opts
	o.ReadOnly = true
	l, err := OpenFS(context.Background(), c, simDir, o)
	if err != nil && !errors.Is(err, ErrNotLog) {
		return fmt.Errorf("read-only: %w", err)
	}
	must := led.durable
	if kill {
		must = led.acked
	}
	if err == nil {
		stored, err := readAll(l)
		if err = errors.Join(err, l.Close()); err != nil || len(stored) < must {
			return fmt.Errorf("read-only: %d batches, %d were promised: %w", len(stored), must, err)
		}
		for i, p := range stored {
			if !bytes.Equal(p, led.sent[i].stored) {
				return fmt.Errorf("read-only: batch %d is another one", i)
			}
		}
	}
	l, err = OpenFS(context.Background(), c, simDir, s.opts)
	if err == nil {
		err = l.Close()
	}
	if err != nil && !errors.Is(err, vfs.ErrNoSpace) {
		return fmt.Errorf("open: %w", err)
	}
	c.SetCapacity(0)
	return checkCrash(c, s.opts, led, kill)
}
