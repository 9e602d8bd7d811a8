package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/segment"
)

// auxiliary is a log with every kind of file beside its log files, in a log directory of Kafka.
func auxiliary(t *testing.T, mode SyncMode, closed bool) *simulation {
	t.Helper()
	s := newSimulation(77, mode)
	s.opts.SegmentBytes, s.opts.CheckpointBytes = 64<<10, 1<<20
	m := vfstest.NewMem()
	s.fsys = m
	parent := filepath.Dir(simDir)
	err := m.MkdirAll(parent, 0o755)
	for _, name := range []string{checkpoint.RecoveryPointFile, checkpoint.LogStartFile, checkpoint.ReplicationFile, checkpoint.CleanerFile} {
		lines := map[checkpoint.TopicPartition]int64{{Topic: "other", Partition: 3}: 17}
		err = errors.Join(err, checkpoint.WriteOffsets(m, filepath.Join(parent, name), lines))
	}
	err = errors.Join(err, s.openLog())
	for i := range 4 {
		err = errors.Join(err, s.appends(6), s.action([]string{"roll", "checkpoint", "roll", "checkpoint"}[i]))
	}
	err = errors.Join(err, s.appends(2))
	for len(s.open) > 0 && err == nil {
		err = s.endTxn()
	}
	err = errors.Join(err, s.appends(3))
	if closed {
		err = errors.Join(err, s.log.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	m.SyncAll()
	return s
}

// spoil is a way to damage a file.
type spoil struct {
	name string
	do   func(p []byte, r *rand.Rand) []byte // nil removes the file
}

var spoils = []spoil{
	{"missing", func([]byte, *rand.Rand) []byte { return nil }},
	{"empty", func([]byte, *rand.Rand) []byte { return []byte{} }},
	{"zeros", func(p []byte, _ *rand.Rand) []byte { return make([]byte, len(p)) }},
	{"ones", func(p []byte, _ *rand.Rand) []byte { return bytes.Repeat([]byte{0xff}, len(p)) }},
	{"random", func(p []byte, r *rand.Rand) []byte { return randomBytes(r, len(p)) }},
	{"random and long", func(p []byte, r *rand.Rand) []byte { return randomBytes(r, 3*len(p)+100) }},
	{"cut in half", func(p []byte, _ *rand.Rand) []byte { return append([]byte{}, p[:len(p)/2]...) }},
	{"cut by a byte", func(p []byte, _ *rand.Rand) []byte { return append([]byte{}, p[:max(0, len(p)-1)]...) }},
	{"bytes behind it", func(p []byte, r *rand.Rand) []byte { return append(bytes.Clone(p), randomBytes(r, 100)...) }},
	{"zeros behind it", func(p []byte, _ *rand.Rand) []byte { return append(bytes.Clone(p), make([]byte, 100)...) }},
	{"a bit", flipBit}, {"a bit", flipBit}, {"a bit", flipBit}, {"a bit", flipBit}, {"a bit", flipBit}, {"a bit", flipBit},
	{"a sector of zeros", func(p []byte, r *rand.Rand) []byte { return sector(p, r, make([]byte, 512)) }},
	{"a sector of random bytes", func(p []byte, r *rand.Rand) []byte { return sector(p, r, randomBytes(r, 512)) }},
}

func randomBytes(r *rand.Rand, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(r.IntN(256))
	}
	return p
}

func flipBit(p []byte, r *rand.Rand) []byte {
	p = bytes.Clone(p)
	if len(p) > 0 {
		p[r.IntN(len(p))] ^= 1 << r.IntN(8)
	}
	return append([]byte{}, p...)
}

func sector(p []byte, r *rand.Rand, with []byte) []byte {
	p = append([]byte{}, p...)
	at := r.IntN(len(p)/512+1) * 512
	copy(p[at:], with)
	return p
}

// replaceFile writes a file anew, or removes it if p is nil.
func replaceFile(m vfs.FS, name string, p []byte) error {
	if p == nil {
		return m.Remove(name)
	}
	f, err := m.OpenFile(name, vfs.O_RDWR|vfs.O_CREATE|os.O_TRUNC, 0o644)
	if err == nil {
		_, err = f.WriteAt(p, 0)
		err = errors.Join(err, f.Close())
	}
	return err
}

// answers is all that readers and producers are told of a log, as text.
func answers(l *Log) (string, error) {
	var w strings.Builder
	o := l.Offsets()
	point := o.RecoveryPoint
	o.RecoveryPoint = 0 // on the last line, as a reader makes nothing durable
	fmt.Fprintf(&w, "%+v epochs %v open %v\n", o, l.epochs.Entries(), l.OpenTransactions())
	var producers []string
	for e := range l.Producers() {
		producers = append(producers, fmt.Sprint(e.ProducerID, e.ProducerEpoch, e.CoordinatorEpoch, e.LastTimestamp, e.CurrentTxnFirstOffset, slices.Collect(e.Batches())))
	}
	slices.Sort(producers)
	fmt.Fprintln(&w, strings.Join(producers, "\n"))
	for at := o.LogStart; at < o.LogEnd; at++ {
		f, err := l.Read(at, ReadOptions{MaxBytes: 1, Isolation: TxnCommitted, MinOneMessage: true})
		if err != nil {
			return "", fmt.Errorf("read at %d: %w", at, err)
		}
		fmt.Fprintf(&w, "%d: segment %d byte %d size %d aborted", at, f.Segment, f.Position, f.Records.Size)
		for _, x := range f.Aborted {
			// Which of those that end in front of the bytes or begin behind them are listed depends on the index entries.
			if x.LastOffset >= at && x.FirstOffset <= at {
				fmt.Fprintf(&w, " %d from %d to %d", x.ProducerID, x.FirstOffset, x.LastOffset)
			}
		}
		if err := f.Close(); err != nil {
			return "", err
		}
		ts := int64(1_700_000_000_000) + at*311
		hit, found, err := l.OffsetForTimestamp(ts)
		fmt.Fprintln(&w, "; by time", hit, found, err)
	}
	if !l.opts.ReadOnly {
		fmt.Fprintln(&w, "recovery point", point)
	}
	return w.String(), nil
}

// firstDifference returns the first line in which two texts differ.
func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d: %s\nundamaged: %s", i, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines, undamaged %d", len(g), len(w))
}

// checkSpoiled opens a log with a damaged file: either everything is answered as if nothing had happened, or the open is
// refused and has changed nothing.
func checkSpoiled(m *vfstest.Mem, s *simulation, want string) (refused error, err error) {
	before, err := digestOf(m)
	if err != nil {
		return nil, err
	}
	l, err := OpenFS(context.Background(), m, simDir, s.opts)
	if err != nil {
		after, derr := digestOf(m)
		switch {
		case derr != nil:
			return nil, derr
		case after != before:
			return nil, fmt.Errorf("refused (%w), and something changed", err)
		case !errors.Is(err, ErrUnsupportedVersion) && !errors.Is(err, ErrRefused):
			return nil, fmt.Errorf("refused, with the wrong error: %w", err)
		}
		return err, nil
	}
	defer l.Close()
	got, err := answers(l)
	if err != nil {
		return nil, err
	}
	if got != want {
		return nil, fmt.Errorf("answers differ: %s", firstDifference(got, want))
	}
	stored, err := readAll(l)
	if err == nil {
		err = errors.Join(checkProducers(l, stored), checkRetries(l, &s.ledger, stored))
	}
	return nil, err
}

// checkSpoiledReader opens a log with a damaged file for reading: everything is answered as if nothing had happened, or the
// open ends with a clear error, and nothing is changed.
func checkSpoiledReader(m *vfstest.Mem, s *simulation, want string) error {
	before, err := digestOf(m)
	if err != nil {
		return err
	}
	o := s.opts
	o.ReadOnly = true
	l, err := OpenFS(context.Background(), m, simDir, o)
	if err != nil {
		if !errors.Is(err, ErrUnsupportedVersion) && !errors.Is(err, ErrRefused) {
			return fmt.Errorf("for reading: the wrong error: %w", err)
		}
		return nil
	}
	got, err := answers(l)
	if err = errors.Join(err, l.Close()); err != nil {
		return fmt.Errorf("for reading: %w", err)
	}
	if !strings.HasPrefix(want, got) {
		return fmt.Errorf("for reading: answers differ: %s", firstDifference(got, want))
	}
	after, err := digestOf(m)
	if err == nil && before != after {
		err = errors.New("for reading: something changed")
	}
	return err
}

// digestOf names the content of the log directory but for the lock files.
func digestOf(m vfs.FS) (string, error) {
	var w strings.Builder
	err := walkFiles(m, filepath.Dir(simDir), func(name string, p []byte) error {
		if !strings.HasSuffix(name, "lock") {
			fmt.Fprintf(&w, "%s %q\n", name, p)
		}
		return nil
	})
	return w.String(), err
}

// undamaged is what a log answers.
func undamaged(t *testing.T, base *vfstest.Mem, o Options) string {
	t.Helper()
	l, err := OpenFS(context.Background(), base.Crash(vfstest.CrashOptions{}), simDir, o)
	if err != nil {
		t.Fatal(err)
	}
	want, err := answers(l)
	if err = errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	return want
}

// Whatever stands in a file beside the log files, the log answers as before, or does not open: I16, I17.
func TestBadInput_AuxiliaryFiles(t *testing.T) {
	const seed = 3
	for _, mode := range modes {
		for _, closed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v closed %t", mode, closed), func(t *testing.T) {
				t.Parallel()
				r := rand.New(rand.NewPCG(seed, uint64(mode)))
				s := auxiliary(t, mode, closed)
				base := s.fsys.(*vfstest.Mem)
				want := undamaged(t, base, s.opts)
				if err := checkSpoiledReader(base.Crash(vfstest.CrashOptions{}), s, want); err != nil {
					t.Fatalf("undamaged: %v", err)
				}
				kinds, cases, refused := map[segment.Kind]int{}, 0, 0
				err := walkFiles(base, filepath.Dir(simDir), func(name string, p []byte) error {
					kind := segment.Parse(filepath.Base(name)).Kind
					if p == nil || kind == segment.KindLog || kind == segment.KindLock || strings.HasSuffix(name, "lock") {
						return nil
					}
					kinds[kind]++
					for _, how := range spoils {
						m := base.Crash(vfstest.CrashOptions{})
						spoiled := how.do(p, r)
						if err := replaceFile(m, name, spoiled); err != nil {
							return err
						}
						cases++
						if err := checkSpoiledReader(m, s, want); err != nil {
							t.Errorf("seed %d: %s, %s: %v", seed, name, how.name, err)
						}
						no, err := checkSpoiled(m, s, want)
						switch {
						case no != nil:
							refused++
							if !strings.Contains(no.Error(), filepath.Base(name)) {
								t.Errorf("%s, %s: the refusal does not name the file: %v", name, how.name, no)
							}
						case err != nil:
							t.Errorf("seed %d: %s, %s: %v", seed, name, how.name, err)
						}
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%d cases in files of %d kinds, %d refused", cases, len(kinds), refused)
			})
		}
	}
}
