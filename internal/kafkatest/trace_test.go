package kafkatest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTraces decodes every operation and every outcome of every trace; a field without a place is an error.
func TestTraces(t *testing.T) {
	EachTrace(t, func(t *testing.T, tr *Trace) {
		if tr.Name == "" || tr.Kafka == "" || tr.Note == "" && !strings.HasPrefix(tr.Name, "random") {
			t.Errorf("header %+v", tr)
		}
		for i := range tr.Ops {
			op := &tr.Ops[i]
			op.Outcome(t, NewOutcome(op.Kind))
			if f := op.Failure(); f.OK == (f.Error != "") {
				t.Errorf("line %d: %+v", op.Line, f)
			}
			if op.Line != i+2 {
				t.Errorf("operation %d is in line %d", i, op.Line)
			}
		}
	})
}

func TestTrace_WhatIsInIt(t *testing.T) {
	tr := LoadTrace(t, "txn-abort")
	if tr.Name != "txn-abort" || !tr.CompareBytes || *tr.Config.SegmentBytes != 4096 || tr.Config.RetentionMs != nil {
		t.Errorf("header %+v", tr)
	}
	if op := tr.Ops[1]; op.Kind != "append" || len(op.Batch) != 122 || op.Origin != "client" || op.TransactionVersion != -1 || op.Guard != 0 {
		t.Errorf("append %+v", op)
	}
	var a AppendOutcome
	if tr.Ops[1].Outcome(t, &a); !a.OK || a.ValidBytes != 122 || a.LogEnd != 1 || a.LastLeaderEpoch != -1 {
		t.Errorf("outcome %+v", a)
	}
	var aborted bool
	for i := range tr.Ops {
		switch op := &tr.Ops[i]; op.Kind {
		case "marker":
			if op.Origin != "coordinator" || op.Type != "abort" && op.Type != "commit" {
				t.Errorf("marker %+v", op)
			}
			var m AppendOutcome
			if op.Outcome(t, &m); len(m.Built) == 0 {
				t.Errorf("marker without its batch: %+v", m)
			}
		case "read":
			var r ReadOutcome
			op.Outcome(t, &r)
			aborted = aborted || len(r.Aborted) > 0
		}
	}
	if !aborted {
		t.Error("no read told an aborted transaction")
	}
	var s StateOutcome
	tr.Ops[len(tr.Ops)-1].Outcome(t, &s)
	if len(s.Producers) != 1 || len(s.Producers[0].Batches) != 2 || *s.Files[0].Used != 16 || s.Files[1].Used != nil {
		t.Errorf("state %+v", s)
	}

	var damaged bool
	for _, op := range LoadTrace(t, "recover-torn-tail").Ops {
		damaged = damaged || op.Damage != nil && op.Damage.TruncateTo != nil
	}
	if !damaged {
		t.Error("no file was cut")
	}
	var refused bool
	for _, op := range LoadTrace(t, "stale-epoch").Ops {
		f := op.Failure()
		refused = refused || f.Code == 47 && f.Error == "InvalidProducerEpochException"
	}
	if !refused {
		t.Error("no batch of an old epoch was refused")
	}
}

func TestDecodeTrace_Refused(t *testing.T) {
	const head = `{"trace":"x","kafka":"4.4.0","seed":1,"note":"n","compareBytes":true,"config":{}}` + "\n"
	const open = `{"op":"open","out":{"ok":true}}` + "\n"
	if _, err := decodeTrace([]byte(head + open)); err != nil {
		t.Errorf("the shortest trace: %v", err)
	}
	for name, text := range map[string]string{
		"empty":              "",
		"no operation":       head,
		"no header":          open,
		"not opened":         head + `{"op":"roll","out":{"ok":true}}` + "\n",
		"unknown operation":  head + open + `{"op":"fly","out":{"ok":true}}` + "\n",
		"unknown field":      head + open + `{"op":"roll","speed":1,"out":{"ok":true}}` + "\n",
		"no outcome":         head + open + `{"op":"roll"}` + "\n",
		"two documents":      head + open + `{"op":"roll","out":{"ok":true}} {}` + "\n",
		"damage of no kind":  head + open + `{"op":"damage","file":"f","out":{"ok":true}}` + "\n",
		"damage of two":      head + open + `{"op":"damage","file":"f","delete":true,"append":"00","out":{"ok":true}}` + "\n",
		"damage without hex": head + open + `{"op":"damage","file":"f","append":"xx","out":{"ok":true}}` + "\n",
	} {
		if _, err := decodeTrace([]byte(text)); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// What is written is what was read.
func TestTrace_Encode(t *testing.T) {
	EachTrace(t, func(t *testing.T, tr *Trace) {
		p, err := tr.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := decodeTrace(p)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tr, again); diff != "" {
			t.Errorf("-read +written and read\n%s", diff)
		}
	})
}
