package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/oncelog/oncelog/internal/kafkatest"
	"github.com/oncelog/oncelog/record"
)

// A message of an old format whose length is damaged reaches beyond the end, like one that was being written. Whole messages
// behind it tell that it was not.
func TestInspect_DamageInOldFormats(t *testing.T) {
	names := slices.DeleteFunc(kafkatest.FixtureNames(t), func(n string) bool {
		return !strings.Contains(n, "-magic0") && !strings.Contains(n, "-magic1") && !strings.Contains(n, "upgraded")
	})
	tried := 0
	for _, name := range names {
		x := kafkatest.LoadFixture(t, name)
		if len(x.DamageDone) > 0 {
			continue
		}
		dir := x.Unpack(t)
		for partition := range x.Dumps {
			logs, err := filepath.Glob(filepath.Join(dir.LogDir, partition, "*.log"))
			if err != nil {
				t.Fatal(err)
			}
			if len(logs) == 0 {
				continue
			}
			path := logs[len(logs)-1]
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var at []int
			for pos := 0; pos < len(whole); {
				b, _, err := record.Next(whole[pos:])
				if err != nil {
					break // what a killed broker left
				}
				at = append(at, pos)
				pos += b.Size()
			}
			if len(at) < 4 || whole[16] == record.Magic {
				continue
			}
			tried++
			bad, next := at[len(at)/2], at[len(at)/2+1]
			spoilt := bytes.Clone(whole)
			binary.BigEndian.PutUint32(spoilt[bad+8:], 1<<30)
			if err := os.WriteFile(path, spoilt, 0o644); err != nil {
				t.Fatal(err)
			}
			r := logtool(t, "", "inspect", "--json", filepath.Join(dir.LogDir, partition))
			var answer struct {
				Partitions []struct {
					Verdict  string
					Findings []struct {
						File, Decision string
						Position, End  *int64
						Problem        bool
					}
				}
			}
			if err := json.Unmarshal([]byte(r.stdout), &answer); err != nil {
				t.Fatal(err)
			}
			found := false
			for _, f := range answer.Partitions[0].Findings {
				found = found || f.File == filepath.Base(path) && f.Problem && f.Position != nil && *f.Position == int64(bad) && f.End != nil && *f.End == int64(next)
				if f.Decision == "cut tail" {
					t.Errorf("%s: it is taken for a torn tail", name)
				}
			}
			if r.status != exitProblems || !found {
				t.Errorf("%s/%s: damage from byte %d to %d: exit status %d\n%s%s", name, partition, bad, next, r.status, r.stdout, r.err)
			}
			if err := os.WriteFile(path, whole, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if tried == 0 {
		t.Error("no fixture has an old format")
	}
}
