package kafkadir_test

import (
	"errors"
	"testing"

	"github.com/oncelog/oncelog/internal/kafkadir"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
)

// TestRemoveMarker_PowerCut requires that a marker which was removed does not come back, also not one whose removal an
// earlier process did not make durable.
func TestRemoveMarker_PowerCut(t *testing.T) {
	for _, before := range []string{"present", "removed and not synced"} {
		mem := vfstest.NewMem()
		if err := errors.Join(mem.MkdirAll("/log", 0o755), mem.SyncDir("/"), kafkadir.WriteMarker(mem, "/log", 6)); err != nil {
			t.Fatal(err)
		}
		if before != "present" {
			if err := mem.Remove("/log/" + kafkadir.MarkerFile); err != nil {
				t.Fatal(err)
			}
		}
		if m, err := kafkadir.ReadMarker(mem.Crash(vfstest.CrashOptions{Mode: vfstest.AllLost}), "/log"); err != nil || !m.Present {
			t.Errorf("%s: the power cut that this test is about does not bring the marker back: %+v, %v", before, m, err)
		}
		if _, err := kafkadir.RemoveMarker(mem, "/log"); err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(50) {
			m, err := kafkadir.ReadMarker(mem.Crash(vfstest.RandomCrash(seed)), "/log")
			if err != nil || m.Present {
				t.Errorf("%s, seed %d: %+v, %v", before, seed, m, err)
			}
		}
	}
}
