package wal

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/kafkadir"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/interop"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/recovery"
)

// kafkaCrash crashes a simulated log inside a Kafka log directory and lets Kafka's own log class load what is left.
type kafkaCrash struct {
	*simulation
	t      *testing.T
	d      *interop.Driver
	mem    *vfstest.Mem
	script string
	every  uint64 // of the moments, one is looked at; of those that change names or sizes, one in a third of it
	seen   map[[sha256.Size]byte]bool
	n      uint64 // moments, those of a name or a size counted three times
	err    error
	counts kafkaCounts
}

type kafkaCounts struct {
	kills, cuts, asked, marked int
	deleted                    int // files that Kafka set aside
	keptMore                   int // we keep more than Kafka
	holes                      int // Kafka keeps batches behind lost ones that had not been synced
	garbage                    int // Kafka does not load
}

func (c *kafkaCounts) add(o kafkaCounts) {
	c.kills += o.kills
	c.cuts += o.cuts
	c.asked += o.asked
	c.marked += o.marked
	c.deleted += o.deleted
	c.keptMore += o.keptMore
	c.holes += o.holes
	c.garbage += o.garbage
}

// The things whose steps are crossed with each other. Each is done once, or twice with appends in between, so that every
// pair of steps of two of them is crossed by the crash inside the second.
var crashActions = []string{"roll", "checkpoint", "flush", "state", "reopen"}

func (s *simulation) action(name string) error {
	switch name {
	case "roll":
		return s.note("roll", s.log.Roll())
	case "checkpoint":
		return s.flushed("checkpoint", s.log.Checkpoint())
	case "flush":
		return s.flushed("flush", s.log.Flush())
	case "state":
		s.log.refreshState()
		return s.note("state", nil)
	}
	if err := s.flushed("close", s.log.Close()); err != nil {
		return err
	}
	return s.note("open", s.openLog())
}

func (s *simulation) appends(n int) error {
	for range n {
		if err := s.appendRandom(); err != nil {
			return err
		}
		if s.rand.IntN(3) == 0 {
			if err := s.endTxn(); err != nil {
				return err
			}
		}
	}
	return nil
}

// newKafkaCrash begins a log. With handedOver it was begun as a broker would: its parent has a recovery point, and the
// mark of a clean stop.
func newKafkaCrash(t *testing.T, d *interop.Driver, seed uint64, mode SyncMode, handedOver bool) *kafkaCrash {
	t.Helper()
	k := &kafkaCrash{simulation: newSimulation(seed, mode), t: t, d: d, seen: map[[sha256.Size]byte]bool{}}
	k.mem = vfstest.NewMemWith(vfstest.MemOptions{Seed: seed})
	parent := filepath.Dir(simDir)
	err := k.mem.MkdirAll(parent, 0o755)
	for _, name := range []string{checkpoint.RecoveryPointFile, checkpoint.LogStartFile} {
		err = errors.Join(err, checkpoint.WriteOffsets(k.mem, filepath.Join(parent, name), nil))
	}
	if err != nil {
		t.Fatal(err)
	}
	k.mem.SyncAll()
	k.fsys = k.mem
	if handedOver {
		k.opts.Compat = true
		err = errors.Join(k.openLog(), k.appends(5), k.log.Roll(), k.appends(3), k.log.Close(), kafkadir.WriteMarker(k.mem, parent, 3))
		if err != nil {
			t.Fatal(err)
		}
		k.mem.SyncAll()
		k.opts.Compat = false
		k.ledger.durable = k.ledger.acked
	}
	k.fsys = vfstest.Inject(k.mem, vfstest.Each(vfstest.Writes, k.moment))
	return k
}

// moment is called before and after each operation that changes something.
func (k *kafkaCrash) moment(op vfstest.Op, after bool) {
	before := k.n
	k.n++
	switch op.Kind {
	case vfstest.OpCreate, vfstest.OpRename, vfstest.OpRemove, vfstest.OpTruncate, vfstest.OpSyncDir:
		k.n += 2
	}
	if k.err != nil || before/k.every == k.n/k.every {
		return
	}
	options := []vfstest.CrashOptions{{Mode: vfstest.Kill}, {Mode: vfstest.AllLost}, {Mode: vfstest.AllKept},
		{Mode: vfstest.PowerCut, Torn: k.n%2 == 0, Garbage: k.n%4 == 0}, {Mode: vfstest.PowerCut, Torn: true}}
	for i, o := range options {
		o.Seed = k.seed<<24 + k.n<<3 + uint64(i)
		led := k.ledger
		c := k.mem.Crash(o)
		digest := treeDigest(k.t, c, fmt.Sprint(o.Mode == vfstest.Kill, led.acked, led.durable))
		if k.seen[digest] {
			continue
		}
		k.seen[digest] = true
		if o.Mode == vfstest.Kill {
			k.counts.kills++
		} else {
			k.counts.cuts++
		}
		must := promise{batches: led.durable, holes: k.mode != SyncCommit, garbage: o.Garbage}
		if o.Mode == vfstest.Kill {
			must = promise{batches: led.acked}
		}
		if err := k.check(c, &led, must); err != nil {
			k.err = fmt.Errorf("seed %d, %v, %s: %v\n%w\nsteps %v", k.seed, k.mode, k.script, crashPoint{op, after, o}, err, tail(k.steps, 8))
			return
		}
	}
}

// treeDigest names the content of a simulated file system.
func treeDigest(t testing.TB, m vfs.FS, extra string) (sum [sha256.Size]byte) {
	t.Helper()
	h := sha256.New()
	fmt.Fprintln(h, extra)
	err := walkFiles(m, filepath.Dir(simDir), func(name string, p []byte) error {
		fmt.Fprintf(h, "%s %d\n", name, len(p))
		h.Write(p)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	h.Sum(sum[:0])
	return sum
}

// walkFiles calls f with each directory (p nil) and regular file below dir.
func walkFiles(m vfs.FS, dir string, f func(name string, p []byte) error) error {
	entries, err := m.ReadDir(dir)
	if err != nil {
		return err
	}
	if err := f(dir, nil); err != nil {
		return err
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name)
		if e.Kind == vfs.Directory {
			err = walkFiles(m, name, f)
		} else {
			var p []byte
			if p, err = vfs.ReadFile(m, name, 1<<30); err == nil {
				err = f(name, append([]byte{}, p...))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// export writes the files below the parent of simDir into a directory, and returns the partition directory.
func export(m vfs.FS, to string) (partition string, err error) {
	from := filepath.Dir(simDir)
	return filepath.Join(to, filepath.Base(simDir)), walkFiles(m, from, func(name string, p []byte) error {
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		if p == nil {
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		return os.WriteFile(filepath.Join(to, rel), p, 0o644)
	})
}

// check lets Kafka load what a crash left, and holds it against the ledger and against our own recovery.
func (k *kafkaCrash) check(c *vfstest.Mem, led *ledger, must promise) error {
	parent := filepath.Dir(simDir)
	if _, err := c.Stat(simDir); errors.Is(err, fs.ErrNotExist) && must.batches == 0 {
		return nil // a power cut before there was a directory
	}
	points := map[int64]bool{0: true}
	lines, err := checkpoint.ReadOffsets(c, filepath.Join(parent, checkpoint.RecoveryPointFile))
	if err != nil {
		return err
	}
	points[lines[checkpoint.TopicPartition{Topic: "t"}]] = true
	_, err = c.Stat(filepath.Join(parent, kafkadir.MarkerFile))
	marker := err == nil
	if marker {
		k.counts.marked++
	}
	ends := map[int64]bool{}
	for point := range points {
		end, err := k.ask(c, point, marker, led, must)
		if err != nil {
			return fmt.Errorf("Kafka, recovery point %d, marker %t: %w", point, marker, err)
		}
		ends[end] = true
	}
	l, err := OpenFS(context.Background(), c, simDir, k.opts)
	if err != nil {
		return fmt.Errorf("our own recovery: %w", err)
	}
	defer l.Close()
	for end := range ends {
		if err := k.compareEnds(l, end, led, must); err != nil {
			return err
		}
	}
	return nil
}

// ask is one load by Kafka. It returns the log end, and how many batches are left.
func (k *kafkaCrash) ask(c *vfstest.Mem, point int64, clean bool, led *ledger, must promise) (end int64, err error) {
	parent := filepath.Join(k.t.TempDir(), "data")
	defer os.RemoveAll(parent)
	dir, err := export(c, parent)
	if err != nil {
		return 0, err
	}
	k.counts.asked++
	r := interop.OpenRequest{Dir: dir, InPlace: true, RecoveryPoint: point, Clean: clean, Clock: k.now.UnixMilli(),
		Settings: interop.Settings{SegmentBytes: int64(k.opts.SegmentBytes), SegmentIndexBytes: int64(k.opts.MaxIndexBytes),
			IndexIntervalBytes: int64(k.opts.IndexIntervalBytes)}}
	got, err := k.d.Open(r)
	if err == nil && !got.Loaded && must.garbage && strings.Contains(got.Failure.Message, "Unexpected aborted transaction version") {
		// Stale bytes of the device in a transaction index that was never synced keep Kafka from loading logs of its own too.
		k.counts.garbage++
		for _, name := range globDir(dir, "*.txnindex") {
			err = errors.Join(err, os.Remove(name))
		}
		if err == nil {
			got, err = k.d.Open(r)
		}
	}
	if err != nil {
		return 0, err
	}
	if !got.Loaded {
		return 0, fmt.Errorf("does not load: %w", got.Failure)
	}
	k.counts.deleted += len(got.Deleted)
	stored, err := storedBatches(dir)
	if err != nil {
		return 0, err
	}
	hole, err := sameBatches(stored, led, must)
	if err != nil {
		return 0, fmt.Errorf("%w; deleted %v", err, got.Deleted)
	}
	if hole {
		k.counts.holes++
	} else if n := len(stored); n > 0 && !must.holes && got.LogEnd != led.sent[n-1].last+1 {
		return 0, fmt.Errorf("I3: log end %d, the batches end at %d", got.LogEnd, led.sent[n-1].last+1)
	}
	return got.LogEnd, sameProducers(got.Producers, stored)
}

// promise is what must be left after a crash.
type promise struct {
	batches int  // of those sent
	holes   bool // what is above them may be lost in part
	garbage bool // what was not synced may hold anything
}

// sameBatches holds the batches in the files against the ledger. hole tells that some are missing below others, which
// Kafka, unlike us, does not notice at the border of two segments.
func sameBatches(stored [][]byte, led *ledger, must promise) (hole bool, err error) {
	if len(stored) < must.batches || len(stored) > len(led.sent) {
		return false, fmt.Errorf("I1: %d batches are left, %d were promised, %d sent", len(stored), must.batches, len(led.sent))
	}
	at := 0
	for i, b := range stored {
		for at < len(led.sent) && led.sent[at].first < record.Batch(b).BaseOffset() {
			at++
		}
		if at == len(led.sent) || !bytes.Equal(b, led.sent[at].stored) {
			return false, fmt.Errorf("I7: batch %d, of offset %d, is not the one sent there", i, record.Batch(b).BaseOffset())
		}
		if hole = hole || at != i; hole && (i < must.batches || !must.holes) {
			return false, fmt.Errorf("I4: batch %d is missing, %d were promised", i, must.batches)
		}
		at++
	}
	return hole, nil
}

func globDir(dir, pattern string) []string {
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		panic(err) // the pattern is a constant
	}
	slices.Sort(names)
	return names
}

// storedBatches reads the log files of a directory, which hold nothing but batches.
func storedBatches(dir string) (list [][]byte, err error) {
	for _, name := range globDir(dir, "*.log") {
		p, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for b, err := range record.All(p) {
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			list = append(list, bytes.Clone(b))
		}
	}
	return list, nil
}

// sameProducers wants of each producer what a replay says: its last batch, and its open transaction.
func sameProducers(got []interop.Producer, stored [][]byte) error {
	want, _ := replayNaively(stored)
	if len(got) != len(want) {
		return fmt.Errorf("I9: %d producers, a replay says %d", len(got), len(want))
	}
	for _, p := range got {
		w := want[p.ID]
		if w == nil {
			return fmt.Errorf("I9: producer %d has no batch", p.ID)
		}
		sequence, offset := int32(-1), int64(-1)
		if n := len(w.batches); n > 0 {
			sequence, offset = w.batches[n-1].LastSequence, w.batches[n-1].LastOffset
		}
		if p.LastSeq != sequence || p.LastOffset != offset || p.CurrentTxnFirstOffset != w.txn {
			return fmt.Errorf("I9: producer %d ends with sequence %d at offset %d, transaction from %d; a replay says %d, %d, %d",
				p.ID, p.LastSeq, p.LastOffset, p.CurrentTxnFirstOffset, sequence, offset, w.txn)
		}
	}
	return nil
}

// compareEnds holds our recovery against Kafka's. The ends are the same, except above what had been synced in a mode that
// acknowledges earlier: there we keep more where zeros follow the last batch of a segment that is not the last one, behind
// which Kafka deletes everything, and less where batches are missing between two segments, which Kafka does not notice.
func (k *kafkaCrash) compareEnds(l *Log, end int64, led *ledger, must promise) error {
	r := l.RecoveryReport()
	promised := int64(0)
	if must.batches > 0 {
		promised = led.sent[must.batches-1].last + 1
	}
	switch ours := l.Offsets().LogEnd; {
	case r.Problems() || len(r.Holes) > 0:
		return fmt.Errorf("our own recovery calls it a problem: %v", r.Findings)
	case ours < promised:
		return fmt.Errorf("I1: our log ends at %d, %d had been promised; %v", ours, promised, r.Findings)
	case ours == end || must.holes && ours < end:
		return nil
	case must.holes && slices.ContainsFunc(r.Findings, func(f recovery.Finding) bool { return f.Rule == "zeros before the next segment" }):
		k.counts.keptMore++
		return nil
	default:
		return fmt.Errorf("our log ends at %d, Kafka's at %d; %v", ours, end, r.Findings)
	}
}

// crossed runs one script: the first action, appends, the second action, appends. Crashes begin with the first.
func (k *kafkaCrash) crossed(first, second string) error {
	k.script = first + " then " + second
	for _, step := range []func() error{
		k.openLog,
		func() error { return k.appends(3) },
		func() error { return k.action(first) },
		func() error { return k.appends(3) },
		func() error { return k.action(second) },
		func() error { return k.appends(2) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("seed %d, %v, %s, steps %v: %w", k.seed, k.mode, k.script, k.steps, err)
		}
		if k.err != nil {
			return k.err
		}
	}
	return nil
}

// Kafka opens what our crashes leave, and loses nothing that had been promised.
func TestKafka_OpensWhatCrashesLeave(t *testing.T) {
	d := interop.Start(t)
	every := uint64(37)
	if os.Getenv("ONCELOG_LONG") == "1" {
		every = 3
	}
	var total kafkaCounts
	scripts := 0
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			for i, first := range crashActions {
				for j, second := range crashActions {
					seed := uint64(1 + 10*i + j)
					k := newKafkaCrash(t, d, seed, mode, (i+j)%2 == 1)
					k.every, k.n = every, seed
					scripts++
					if err := k.crossed(first, second); err != nil {
						t.Fatal(err)
					}
					total.add(k.counts)
				}
			}
		})
	}
	t.Logf("%d scripts; %d states after a kill, %d after a power cut, %d of them with the mark of a clean stop; Kafka was asked %d times and "+
		"set %d files aside; of what had not been synced it kept less than we do %d times, and %d times batches behind lost ones; "+
		"%d times it did not load before a transaction index with stale bytes was gone",
		scripts, total.kills, total.cuts, total.marked, total.asked, total.deleted, total.keptMore, total.holes, total.garbage)
	if total.kills+total.cuts < 300 && !t.Failed() {
		t.Errorf("%d crash states, want at least 300", total.kills+total.cuts)
	}
}
