package wal

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
)

// What one log answers must be what a list would answer that takes one call at a time, each at some moment between its
// begin and its end.
type linearCall struct {
	kind linearKind
	id   string // of a record to append
	from int64  // of a read
}

type linearKind int

const (
	linearAppend linearKind = iota
	linearOnce              // an idempotent append, which another client sends too
	linearRead              // everything from an offset on
	linearEnd
)

type linearAnswer struct {
	offset    int64
	duplicate bool
	records   string
}

var linearModel = porcupine.Model{
	Init:  func() any { return []string(nil) },
	Equal: func(a, b any) bool { return slices.Equal(a.([]string), b.([]string)) },
	Step: func(state, input, output any) (bool, any) {
		list, in, out := state.([]string), input.(linearCall), output.(linearAnswer)
		end := int64(len(list))
		switch in.kind {
		case linearOnce:
			if at := slices.Index(list, in.id); at >= 0 {
				return out.duplicate && out.offset == int64(at), list
			}
			fallthrough
		case linearAppend:
			return !out.duplicate && out.offset == end, append(slices.Clip(list), in.id)
		case linearRead:
			return out.records == strings.Join(list[min(in.from, end):], " "), list
		}
		return out.offset == end, list
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
}

// linearClient makes calls and notes them. The clock orders the begins and ends of all clients.
type linearClient struct {
	t     *testing.T
	l     *Log
	id    int
	rand  *rand.Rand
	clock *atomic.Int64
	ops   []porcupine.Operation
}

func (c *linearClient) call(in linearCall, f func() linearAnswer) {
	begin := c.clock.Add(1)
	out := f()
	c.ops = append(c.ops, porcupine.Operation{ClientId: c.id, Input: in, Call: begin, Output: out, Return: c.clock.Add(1)})
}

func (c *linearClient) run(n int) {
	seq := int32(0)
	for i := range n {
		switch k := c.rand.IntN(10); {
		case k < 3:
			in := linearCall{kind: linearAppend, id: fmt.Sprint(c.id, "-", i)}
			c.call(in, func() linearAnswer {
				r, err := c.l.Append(values(in.id)...)
				if err != nil {
					c.t.Error(err)
				}
				return linearAnswer{offset: r.First}
			})
		case k < 6 && seq < 5: // as many as are remembered
			in := linearCall{kind: linearOnce, id: fmt.Sprint("once-", seq)}
			p := producerBatch(c.t, 7, 0, seq, in.id)
			c.call(in, func() linearAnswer {
				info, err := c.l.AppendAsLeader(p, LeaderAppend{TransactionVersion: NoTransactionVersion})
				if err != nil {
					c.t.Error(err)
				}
				return linearAnswer{offset: info.FirstOffset, duplicate: info.Duplicate}
			})
			seq++
		case k < 9:
			in := linearCall{kind: linearRead, from: c.rand.Int64N(c.l.Offsets().LogEnd + 1)}
			c.call(in, func() linearAnswer { return linearAnswer{records: c.readFrom(in.from)} })
		default:
			c.call(linearCall{kind: linearEnd}, func() linearAnswer { return linearAnswer{offset: c.l.Offsets().LogEnd} })
		}
	}
}

func (c *linearClient) readFrom(at int64) string {
	f, err := c.l.Read(at, ReadOptions{MaxBytes: 1 << 20, Isolation: Isolation(c.rand.IntN(3))})
	if err != nil {
		c.t.Error(err)
		return ""
	}
	defer f.Close()
	var list []string
	for b, err := range f.Records.Batches() {
		if err != nil {
			c.t.Error(err)
			break
		}
		for r := range b.Records(record.Limits{}) {
			list = append(list, string(r.Value))
		}
	}
	return strings.Join(list, " ")
}

func TestLog_Linearizable(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			for round := range uint64(25) {
				seed := rand.Uint64()
				mem := vfstest.NewMem()
				if err := mem.MkdirAll("/data", 0o755); err != nil {
					t.Fatal(err)
				}
				fsys := vfstest.Inject(mem, vfstest.Each(vfstest.Kinds(vfstest.OpSyncData, vfstest.OpWrite), func(vfstest.Op, bool) {
					time.Sleep(time.Duration(rand.IntN(30)) * time.Microsecond)
				}))
				l := openFS(t, fsys, Options{Sync: mode, TimestampAfterMax: Never})
				clock := &atomic.Int64{}
				clients := make([]*linearClient, 5)
				var all sync.WaitGroup
				for i := range clients {
					c := &linearClient{t: t, l: l, id: i, rand: rand.New(rand.NewPCG(seed, uint64(i))), clock: clock}
					clients[i] = c
					all.Go(func() { c.run(12) })
				}
				all.Wait()
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				var ops []porcupine.Operation
				for _, c := range clients {
					ops = append(ops, c.ops...)
				}
				if r := porcupine.CheckOperationsTimeout(linearModel, ops, 20*time.Second); r != porcupine.Ok {
					t.Fatalf("seed %d, round %d: %s: %+v", seed, round, r, ops)
				}
				if round == 0 {
					checkLinearModel(t, ops)
				}
			}
		})
	}
}

// checkLinearModel makes sure that the check can fail: an end that is seen one record too late or too early is found.
func checkLinearModel(t *testing.T, ops []porcupine.Operation) {
	t.Helper()
	last := ops[0].Return
	for _, o := range ops {
		last = max(last, o.Return)
	}
	end := int64(0)
	for _, o := range ops {
		if in := o.Input.(linearCall); in.kind <= linearOnce && !o.Output.(linearAnswer).duplicate {
			end++
		}
	}
	for _, d := range []int64{-1, 0, 1} {
		more := append(slices.Clone(ops), porcupine.Operation{
			Input: linearCall{kind: linearEnd}, Call: last + 1, Output: linearAnswer{offset: end + d}, Return: last + 2})
		if ok := porcupine.CheckOperations(linearModel, more); ok != (d == 0) {
			t.Errorf("an end that is off by %d passes: %v", d, ok)
		}
	}
}
