package wal

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oncelog/oncelog/internal/kafkatest"
	"github.com/oncelog/oncelog/interop"
)

var liveOperations = flag.Int("oncelog.operations", 20_000, "operations beside a live Kafka")

// Takes Kafka's own log class and ours through the same random operations, and compares all there is to see after each.
// A difference is shrunk, and left as a trace that TestTrace replays when it lies among the others.
func TestKafka_SameAnswers(t *testing.T) {
	d := interop.Start(t)
	const length = 400
	total, runs, differences := 0, 0, 0
	kinds, met := map[string]int{}, map[string]int{}
	for seed := uint64(1); total < *liveOperations && differences < 3; seed++ {
		if *crashSeed != 0 {
			seed = *crashSeed
		}
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := randomRun(t, d, seed, length)
			total += len(r.trace.Ops)
			runs++
			for i := range r.trace.Ops {
				kinds[r.trace.Ops[i].Kind]++
			}
			for reason, n := range r.met {
				met[reason] += n
			}
			if r.diff != nil {
				differences++
				report(t, d, r, seed)
			}
		})
		if *crashSeed != 0 {
			break
		}
	}
	t.Logf("%d operations in %d runs: %v", total, runs, kinds)
	for _, reason := range slices.Sorted(maps.Keys(met)) {
		t.Logf("%d times: %s", met[reason], reason)
	}
}

// randomRun does operations that a seed chooses.
func randomRun(t testing.TB, d *interop.Driver, seed uint64, length int) *liveRun {
	rnd := rand.New(rand.NewPCG(seed, 0))
	r := newLiveRun(t, d, (&liveMaker{Rand: rnd}).settings())
	defer r.close()
	// Each run does without some kinds of operations: what one kind undoes, such as a reopen the memory of five batches, has
	// the time to build up in the runs without it.
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(makers)), func(name string) bool {
		return name != "append" && name != "reopen" && rnd.IntN(4) == 0
	})
	for len(r.trace.Ops) < length && !r.ended {
		r.do(liveOp{kind: choose(rnd, names, r.kafka.s == nil), seed: rnd.Uint64()})
	}
	return r
}

// report shrinks a run that ended in a difference, prints it, and leaves it in a file.
func report(t *testing.T, d *interop.Driver, r *liveRun, seed uint64) {
	t.Helper()
	length := len(r.trace.Ops)
	t.Logf("seed %d: %s of the last of %d operations, %s: -Kafka +ours\n%s", seed, r.diff.where, length, r.diff.op.Kind, r.diff.text)
	r, runs := shrink(t, d, r, 2*time.Minute)
	r.trace.Name, r.trace.Seed = fmt.Sprint("live-", seed), int64(seed)
	ops := r.trace.Ops
	if r.diff.where != "outcome" && r.kafka.state != nil {
		state := kafkatest.Op{Kind: "state", Out: r.stateLine()}
		r.trace.Ops = append(r.trace.Ops, state)
	}
	p, err := r.trace.Encode()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(os.TempDir(), fmt.Sprintf("live-%d.jsonl", seed))
	if err := os.WriteFile(name, p, 0o644); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for line := range strings.Lines(string(p)) {
		if len(ops) > 40 {
			break
		}
		if line = strings.TrimSpace(line); len(line) > 300 {
			line = line[:300] + "…"
		}
		fmt.Fprintln(&text, line)
	}
	t.Errorf("seed %d: %s of the last of %d operations (%d before shrinking, %d runs), %s: -Kafka +ours\n%s\n%s\nThe trace is in %s.",
		seed, r.diff.where, len(ops), length, runs, r.diff.op.Kind, r.diff.text, text.String(), name)
}
