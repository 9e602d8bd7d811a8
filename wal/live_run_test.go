package wal

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/oncelog/oncelog/internal/kafkatest"
	"github.com/oncelog/oncelog/interop"
)

// A live run takes Kafka's log and ours through the same operations at the same time. What Kafka answers becomes the
// outcome of a trace, and ours is compared with it as TestTrace compares with a recorded one, so that a run is a trace.

// liveOp is one operation of a run: a given one, or one that is made from a seed when it is its turn, so that it suits the
// log as it is then.
type liveOp struct {
	kind string // of makers
	seed uint64
	op   *kafkatest.Op // nil if it is to be made
}

// liveRun is one run.
type liveRun struct {
	t      testing.TB
	root   string
	kafka  *kafkaLog
	ours   *replayer
	trace  *kafkatest.Trace
	done   []liveOp                // of each operation of the trace behind the first where it comes from
	guards map[int64]int64         // the last guard of each producer in this session
	met    map[string]int          // known differences by their reasons
	diff   *liveDifference         // nil while all is equal
	ended  bool                    // nothing can be compared from here on
	before *kafkatest.StateOutcome // Kafka's state before the present operation
}

// liveDifference is where ours is not as Kafka's.
type liveDifference struct {
	op    *kafkatest.Op
	where string // outcome, state or panic
	text  string
}

var diffField = regexp.MustCompile(`(?m)^[-+]\s+\t*(\w+):`)

// kind is what stays the same while a run is shrunk.
func (d *liveDifference) kind() string {
	field := d.text
	if m := diffField.FindStringSubmatch(strings.ReplaceAll(d.text, "\u00a0", " ")); m != nil {
		field = m[1]
	} else if d.where == "outcome" {
		field = ""
	}
	return d.where + " " + d.op.Kind + " " + field
}

// liveTB turns what would end the test into a difference.
type liveTB struct{ testing.TB }

type liveFatal string

func (t liveTB) Fatal(args ...any)            { panic(liveFatal(fmt.Sprintln(args...))) }
func (t liveTB) Fatalf(f string, args ...any) { panic(liveFatal(fmt.Sprintf(f, args...))) }
func (t liveTB) Error(args ...any)            { t.Fatal(args...) }
func (t liveTB) Errorf(f string, args ...any) { t.Fatalf(f, args...) }

// newLiveRun opens an empty log here and there.
func newLiveRun(t testing.TB, d *interop.Driver, config kafkatest.Settings) *liveRun {
	t.Helper()
	// In memory, where the system has a place for that: what a sync is worth is not seen here.
	root, err := os.MkdirTemp("/dev/shm", "oncelog-live-")
	if err != nil {
		root, err = os.MkdirTemp("", "oncelog-live-")
	}
	if err != nil {
		t.Fatal(err)
	}
	tr := &kafkatest.Trace{Kafka: "4.4.0", CompareBytes: sameBytes(&config), Config: config}
	r := &liveRun{t: t, root: root, trace: tr, guards: map[int64]int64{}, met: map[string]int{}}
	r.kafka = &kafkaLog{d: d, dir: filepath.Join(root, "kafka", "t-0"), now: 1_700_000_000_000}
	give(&r.kafka.now, config.StartMs)
	r.ours = newReplayerIn(liveTB{t}, tr, filepath.Join(root, "ours"))
	r.do(liveOp{op: &kafkatest.Op{Kind: "open", Settings: config}})
	return r
}

// sameBytes tells whether bytes do not depend on a compressor.
func sameBytes(s *kafkatest.Settings) bool {
	return s.CompressionType == nil || *s.CompressionType == "producer" || *s.CompressionType == "uncompressed"
}

// close lets go of both logs.
func (r *liveRun) close() {
	if r.kafka.s != nil {
		if err := r.kafka.s.Crash(); err != nil {
			r.t.Error(err)
		}
	}
	if r.diff == nil || r.diff.where != "panic" { // which may have left locks behind
		r.ours.close()
	}
	if err := os.RemoveAll(r.root); err != nil {
		r.t.Error(err)
	}
}

// do runs one operation, unless it does not suit the log as it is.
func (r *liveRun) do(o liveOp) {
	op := o.op
	if op == nil && r.suits(o.kind) {
		op = makers[o.kind].make(&liveMaker{r: r, Rand: rand.New(rand.NewPCG(o.seed, 0))})
	}
	if op == nil || !r.suits(op.Kind) || op.Kind == "damage" && !r.possible(op.Damage) {
		return
	}
	switch op.Kind { // what a trace says of operations that have neither
	case "append", "marker":
	default:
		op.Origin, op.TransactionVersion = "client", -1
	}
	op.Clean = op.Clean && r.stoppedInOrder()
	op.Line = len(r.trace.Ops) + 2
	r.before = r.kafka.state
	out, err := r.kafka.do(op)
	if err != nil {
		r.t.Fatalf("operation %d, %s: %v\n%+v", len(r.trace.Ops), op.Kind, err, *op)
	}
	op.Out = out
	r.trace.Ops = append(r.trace.Ops, *op)
	if op.Kind != "open" {
		r.done = append(r.done, o)
	}
	r.note(op)
	if r.compare(op, "outcome"); r.ended || r.kafka.s == nil {
		return
	}
	r.compare(&kafkatest.Op{Kind: "state", Line: op.Line, Out: r.stateLine()}, "state")
}

// suits tells whether an operation, or what a maker makes, can be done on the log as it is: an open one, or one that is not.
func (r *liveRun) suits(kind string) bool {
	switch kind {
	case "damage", "reopen", "open":
		return r.kafka.s == nil
	}
	return r.kafka.s != nil
}

// possible tells whether a file is there to be damaged so; an earlier damage may have been there.
func (r *liveRun) possible(d *kafkatest.FileDamage) bool {
	if d.Delete || d.Create != nil {
		return true
	}
	info, err := os.Stat(filepath.Join(r.kafka.dir, d.File))
	return err == nil && (d.XOR == nil || d.Position < info.Size())
}

// stoppedInOrder tells whether the last stop was a clean one, and what was written before is there.
func (r *liveRun) stoppedInOrder() bool {
	ops := r.trace.Ops
	for i := len(ops) - 1; ; i-- {
		switch op := &ops[i]; op.Kind {
		case "close":
			return true
		case "crash":
			return false
		case "damage":
			if filepath.Ext(op.Damage.File) == ".log" {
				return false
			}
		}
	}
}

// note keeps what later operations need.
func (r *liveRun) note(op *kafkatest.Op) {
	switch op.Kind {
	case "verify":
		var o kafkatest.SmallOutcome
		if op.Outcome(r.t, &o); o.Guard != 0 {
			r.guards[op.ProducerID] = o.Guard
		}
	case "close", "crash":
		clear(r.guards)
	case "reopen":
		r.ended = !op.Failure().OK
	}
}

// compare does to ours what was done to Kafka's.
func (r *liveRun) compare(op *kafkatest.Op, where string) {
	text, panicked := r.ourDo(op)
	if text == "" {
		return
	}
	if panicked {
		where = "panic"
	}
	last := &r.trace.Ops[len(r.trace.Ops)-1]
	if rule := knownDifference(r, last, where, text); rule != nil {
		r.met[rule.reason]++
		r.ended = r.ended || rule.ends
		return
	}
	r.diff = &liveDifference{op: last, where: where, text: text}
	r.ended = true
}

func (r *liveRun) ourDo(op *kafkatest.Op) (diff string, panicked bool) {
	defer func() {
		if e := recover(); e != nil {
			panicked = true
			if fatal, ok := e.(liveFatal); ok {
				diff = "fatal: " + string(fatal)
				return
			}
			diff = fmt.Sprintf("panic: %v\n%s", e, debug.Stack())
		}
	}()
	return r.ours.do(op), false
}

// stateLine is Kafka's state after the last operation, as a trace has it.
func (r *liveRun) stateLine() json.RawMessage {
	p, err := json.Marshal(r.kafka.state)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}
