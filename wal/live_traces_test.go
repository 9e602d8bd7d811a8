package wal

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oncelog/oncelog/internal/kafkatest"
	"github.com/oncelog/oncelog/interop"
)

var liveRecord = flag.String("oncelog.record", "", "write to this directory what Kafka does with the operations of the traces")

// The outcomes in the traces that TestTrace replays are those of Kafka, and a live run tells them as the traces do.
func TestKafka_TracesAreItsOwn(t *testing.T) {
	d := interop.Start(t)
	kafkatest.EachTrace(t, func(t *testing.T, tr *kafkatest.Trace) {
		k := &kafkaLog{d: d, dir: t.TempDir() + "/t-0", now: 1_700_000_000_000}
		give(&k.now, tr.Config.StartMs)
		for i := range tr.Ops {
			op := &tr.Ops[i]
			out, err := k.do(op)
			if err != nil {
				t.Fatal(err)
			}
			if *liveRecord != "" {
				op.Out = out
				continue
			}
			want, got := kafkatest.NewOutcome(op.Kind), kafkatest.NewOutcome(op.Kind)
			op.Outcome(t, want)
			(&kafkatest.Op{Kind: op.Kind, Line: op.Line, Out: out}).Outcome(t, got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("line %d, %s: -trace +Kafka\n%s", op.Line, op.Kind, diff)
			}
		}
		if *liveRecord != "" {
			p, err := tr.Encode()
			if err == nil {
				err = os.WriteFile(*liveRecord+"/"+tr.Name+".jsonl", p, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}
