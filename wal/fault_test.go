package wal

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs/vfstest"
)

// runFaults runs a workload in which the k-th operation that changes something fails, and then crashes: what had been
// acknowledged is there, nothing is there twice, and a log that failed says so and takes nothing more (I2, I11, I12).
func runFaults(seed uint64, mode SyncMode, steps int, nth *vfstest.Nth) (hit bool, err error) {
	s := newSimulation(seed, mode)
	mem := vfstest.NewMemWith(vfstest.MemOptions{Seed: seed})
	if err := errors.Join(mem.MkdirAll("/data", 0o755), mem.SyncDir("/")); err != nil {
		return false, err
	}
	s.fsys = vfstest.Inject(mem, nth)
	failed := false
	stepErr := s.openLog()
	for i := 0; i < steps && stepErr == nil && !failed; i++ {
		before := len(s.ledger.sent)
		stepErr = s.step()
		switch {
		case stepErr == nil:
		case s.log == nil || errors.Is(stepErr, ErrFailed) || errors.Is(stepErr, ErrClosed):
			failed = true
		case len(s.ledger.sent) > before && s.log.failure() == nil:
			// Refused before a byte was written: it must not be there.
			s.ledger.sent = s.ledger.sent[:before]
			stepErr = nil
		default:
			failed = true
		}
	}
	op, hit := nth.Failed()
	where := fmt.Sprintf("seed %d, %v, %v fails, steps %v, step error %v", seed, mode, op, tail(s.steps, 5), stepErr)
	if s.log != nil && s.log.failure() != nil {
		if err := checkPoisoned(s); err != nil {
			return hit, fmt.Errorf("%s: %w", where, err)
		}
	}
	if s.log != nil && !s.log.closed {
		_ = abandonLog(s.log) // giving up the lock may be what fails
	}
	for i, o := range []vfstest.CrashOptions{{}, {Mode: vfstest.AllLost}, {Mode: vfstest.AllKept}, vfstest.RandomCrash(seed)} {
		o.Seed = seed + uint64(i)
		led := s.ledger
		// What a failed sync took back is lost to a kill too: recovery reads past the page cache.
		kill := o.Mode == vfstest.Kill && (s.log == nil || s.log.failure() == nil)
		if err := checkCrash(mem.Crash(o), s.opts, &led, kill); err != nil {
			return hit, fmt.Errorf("%s, then %v: %w", where, o.Mode, err)
		}
	}
	return hit, nil
}

// checkPoisoned is I12.
func checkPoisoned(s *simulation) error {
	sent := len(s.ledger.sent)
	err := s.appendRandom()
	s.ledger.sent = s.ledger.sent[:sent]
	if !errors.Is(err, ErrFailed) && !errors.Is(err, ErrClosed) {
		return fmt.Errorf("I12: an append to a failed log returned %v", err)
	}
	return nil
}

func TestFaults_KthOperation(t *testing.T) {
	faults := []vfstest.Fault{
		{Err: syscall.EIO}, {Err: syscall.EIO, How: vfstest.Half}, {Err: syscall.EIO, How: vfstest.Done}, {Err: vfstest.ErrNoSpace},
	}
	stride := 7
	if testing.Short() {
		stride = 61
	}
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			runs := 0
			for seed := uint64(1); seed <= 4; seed++ {
				for i, fault := range faults {
					for k := 1 + int(seed)*i%stride; ; k += stride {
						nth := vfstest.FailNth(vfstest.Writes, k, fault, (k/stride)%3 == 0)
						hit, err := runFaults(seed, mode, 40, nth)
						if err != nil {
							t.Fatalf("operation %d: %v", k, err)
						}
						runs++
						if !hit {
							break
						}
					}
				}
			}
			t.Logf("%d runs", runs)
		})
	}
}
