package interop

import (
	"strings"
	"testing"
)

func TestStartAfterTheProcessDied(t *testing.T) {
	d := Start(t)
	d.p.cmd.Process.Kill()
	_, err := d.Usage()
	if err == nil || AsError(err) != nil || !strings.Contains(err.Error(), "answers no longer") {
		t.Fatalf("request to a dead process: %v, want an error that says so", err)
	}
	if _, again := d.Usage(); again == nil {
		t.Error("second request to a dead process has no error")
	}
	if d = Start(t); d.p.dead != nil {
		t.Fatal("Start handed out the dead process")
	}
	if _, err := d.Usage(); err != nil {
		t.Errorf("request to the new process: %v", err)
	}
}

func TestBadRequestIsNoAnswerOfKafka(t *testing.T) {
	d := Start(t)
	for _, op := range []string{"open", "no-such-request"} {
		if err := d.p.call(op, 0, nil, nil); err == nil || AsError(err) != nil {
			t.Errorf("%s without fields: %v, want an error that is not Kafka's", op, err)
		}
	}
}
