package wal

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/oncelog/oncelog/record"
)

func TestZZ(t *testing.T) {
	for _, missing := range []bool{false, true} {
	parent, dir := kafkaParent(t)
	os.MkdirAll(dir, 0o755)
	a, b := record.Batch(producerBatch(t, 7, 0, 0, "a")), record.Batch(producerBatch(t, 7, 0, 1, "b"))
	b.SetBaseOffset(1<<31 + 5)
	os.WriteFile(filepath.Join(dir, "00000000000000000000.log"), append(append([]byte{}, a...), b...), 0o644)
	if missing {
	os.WriteFile(filepath.Join(dir, "00000000000000000000.index"), nil, 0o644)
	os.WriteFile(filepath.Join(dir, "00000000000000000000.timeindex"), nil, 0o644)
	}
	os.WriteFile(filepath.Join(parent, ".kafka_cleanshutdown"), nil, 0o644)
	r, err := Open(context.Background(), dir, Options{ReadOnly: true})
	t.Log(err)
	if err == nil {
		t.Logf("%+v", r.RecoveryReport())
		for s, err := range r.Records(0) {
			t.Log(s.Offset, err)
		}
		r.Close()
	}
	for _, p := range []Options{{}, {DamagePolicy: PointInTime}, {Compat: true}} {
	l, err := Open(context.Background(), dir, p)
	t.Logf("%T %v", err, err)
	if err == nil {
		t.Logf("%+v", l.RecoveryReport())
		l.Close()
	}
	}
	}
}
