package wal

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
)

var (
	crashSeed   = flag.Uint64("oncelog.seed", 0, "run the crash simulation, or the operations beside a live Kafka, with this seed only")
	crashStates = flag.Int("oncelog.states", 0, "crash states a mode; 0 for the number that suits the run")
)

// runCrashes runs a workload and lets the machine go down before and after each storage operation that changes something,
// several times in different ways. bug wraps the file system of the log with a fault that the invariants must find.
func runCrashes(seed uint64, mode SyncMode, steps, perOp int, bug func(vfs.FS) vfs.FS) (states int, err error) {
	return crashes(newSimulation(seed, mode), steps, perOp, bug)
}

func crashes(s *simulation, steps, perOp int, bug func(vfs.FS) vfs.FS) (states int, err error) {
	seed, mode := s.seed, s.mode
	mem := vfstest.NewMemWith(vfstest.MemOptions{Seed: seed})
	if err := mem.MkdirAll("/data", 0o755); err != nil {
		return 0, err
	}
	if err := mem.SyncDir("/"); err != nil {
		return 0, err
	}
	var failure error
	n := uint64(0)
	crash := func(op vfstest.Op, after bool) {
		for i := 0; i < perOp && failure == nil; i++ {
			n++
			o := vfstest.RandomCrash(seed<<20 + n)
			if i == 0 && n%3 == 0 {
				o = vfstest.CrashOptions{Mode: vfstest.Kill, Seed: n}
			}
			c := mem.Crash(o)
			ledger := s.ledger
			states++
			err := checkPairs(c)
			if err == nil {
				err = checkCrash(wrap(c, bug), s.opts, &ledger, o.Mode == vfstest.Kill)
			}
			if err == nil && n%8 == 0 {
				err = checkInterruptedRecovery(mem.Crash(o), s.opts, &ledger, o.Mode == vfstest.Kill, n)
				states++
			}
			if err != nil {
				failure = fmt.Errorf("seed %d, %v, state %d: %v\n%w\nsteps %v", seed, mode, n, crashPoint{op, after, o}, err, tail(s.steps, 12))
			}
		}
	}
	s.fsys = wrap(vfstest.Inject(mem, vfstest.Each(vfstest.Writes, crash)), bug)
	if err := s.openLog(); err != nil {
		return states, fmt.Errorf("seed %d, %v: %w", seed, mode, err)
	}
	for range steps {
		if err := s.step(); err != nil {
			return states, fmt.Errorf("seed %d, %v, steps %v: %w", seed, mode, tail(s.steps, 12), err)
		}
		if failure != nil {
			return states, failure
		}
	}
	return states, nil
}

func wrap(fsys vfs.FS, bug func(vfs.FS) vfs.FS) vfs.FS {
	if bug == nil {
		return fsys
	}
	return bug(fsys)
}

func tail(s []string, n int) []string { return s[max(0, len(s)-n):] }

func TestCrash_AtEveryOperation(t *testing.T) {
	eachCrash(t, 3000, func(seed uint64, mode SyncMode) (int, error) { return runCrashes(seed, mode, 60, 2, nil) })
}

// The same of a compacted log, which goes down at each step of putting the new segments in the place of the old ones too.
func TestCrash_CompactedLog(t *testing.T) {
	var replaced atomic.Int64
	eachCrash(t, 1000, func(seed uint64, mode SyncMode) (int, error) {
		s := newSimulation(seed, mode)
		s.compactLog()
		n, err := crashes(s, 50, 1, nil)
		replaced.Add(int64(s.replaced))
		return n, err
	})
	t.Cleanup(func() {
		if t.Logf("%d segments replaced", replaced.Load()); replaced.Load() == 0 {
			t.Error("no segment was replaced")
		}
	})
}

// eachCrash runs seeds until there were enough states, in each mode.
func eachCrash(t *testing.T, want int, run func(seed uint64, mode SyncMode) (states int, err error)) {
	switch {
	case testing.Short():
		want /= 6
	case os.Getenv("ONCELOG_LONG") != "":
		want = 20_000
	}
	if *crashStates > 0 {
		want = *crashStates
	}
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			total := 0
			for seed := uint64(1); total < want; seed++ {
				if *crashSeed != 0 {
					seed = *crashSeed
				}
				n, err := run(seed, mode)
				total += n
				if err != nil {
					t.Fatal(err)
				}
				if *crashSeed != 0 {
					break
				}
			}
			t.Logf("%d crash states", total)
		})
	}
}

// checkInterruptedRecovery lets the machine go down again inside the recovery, at an operation that the seed chooses,
// and recovers once more: I10. Where only the process ends the second recovery must come to the very same log.
func checkInterruptedRecovery(m *vfstest.Mem, o Options, led *ledger, kill bool, seed uint64) error {
	moments := 0
	count := vfstest.Each(vfstest.Writes, func(vfstest.Op, bool) { moments++ })
	undisturbed, err := endAfterRecovery(vfstest.Inject(m.Crash(vfstest.CrashOptions{Seed: seed}), count), o)
	if err != nil || moments == 0 {
		return err
	}
	at, n := 1+int(seed>>3)%moments, 0
	again := vfstest.RandomCrash(seed)
	var interrupted *vfstest.Mem
	_, err = endAfterRecovery(vfstest.Inject(m, vfstest.Each(vfstest.Writes, func(vfstest.Op, bool) {
		if n++; n == at {
			interrupted = m.Crash(again)
		}
	})), o)
	if err != nil || interrupted == nil {
		return err
	}
	where := fmt.Sprintf("after a recovery that was interrupted at moment %d of %d by %+v", at, moments, again)
	if again.Mode == vfstest.Kill {
		end, err := endAfterRecovery(interrupted.Crash(vfstest.CrashOptions{Seed: seed}), o)
		if err != nil || end != undisturbed {
			return fmt.Errorf("I10: %s the log ends at %d (%v), undisturbed at %d", where, end, err, undisturbed)
		}
	}
	if err := checkCrash(interrupted, o, led, kill && again.Mode == vfstest.Kill); err != nil {
		return fmt.Errorf("I10: %s: %w", where, err)
	}
	return nil
}

func endAfterRecovery(fsys vfs.FS, o Options) (int64, error) {
	l, err := OpenFS(context.Background(), fsys, simDir, o)
	if err != nil {
		return 0, fmt.Errorf("open after the crash: %w", err)
	}
	end := l.Offsets().LogEnd
	return end, abandonLog(l)
}
