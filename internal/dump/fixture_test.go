package dump_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oncelog/oncelog/internal/dump"
	"github.com/oncelog/oncelog/internal/kafkatest"
	"github.com/oncelog/oncelog/internal/vfs"
)

// TestWriteJSON_Fixtures compares the document of every directory with the one that Kafka's classes gave, field by field.
func TestWriteJSON_Fixtures(t *testing.T) {
	kafkatest.EachFixture(t, func(t *testing.T, x *kafkatest.Fixture) {
		dir, wants := x.Unpack(t), rawDumps(t, x)
		for name, want := range wants {
			path := dir.Partition
			if path == "" {
				path = filepath.Join(dir.LogDir, name)
			}
			records := bytes.Contains(want, []byte(`"records"`)) && name != "__cluster_metadata-0"
			got := document(t, path, dump.Options{NoRecords: !records})
			if diff := cmp.Diff(decode(t, want), decode(t, got)); diff != "" {
				t.Errorf("%s (-Kafka +ours):\n%s", name, diff)
			}
		}
	})
}

func document(t *testing.T, path string, o dump.Options) []byte {
	t.Helper()
	var out bytes.Buffer
	damaged, err := dump.WriteJSON(context.Background(), &out, vfs.OS, path, o)
	if err != nil {
		t.Fatal(err)
	}
	if has := bytes.Contains(out.Bytes(), []byte(`"damage"`)); has != damaged && !(has && hasZeroTail(path)) {
		t.Errorf("damaged is %v", damaged)
	}
	return out.Bytes()
}

// hasZeroTail tells the fixtures whose last segment ends with zeros, which is no fault.
func hasZeroTail(path string) bool {
	return strings.Contains(path, "tail-zero") || strings.Contains(path, "preallocated")
}

// decode keeps numbers as they are written: a float would hide the last digits of an offset.
func decode(t *testing.T, p []byte) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(p))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v: %.200q", err, p)
	}
	return v
}

// rawDumps returns the dumps of a fixture as they are written, by name of the directory.
func rawDumps(t *testing.T, x *kafkatest.Fixture) map[string]json.RawMessage {
	t.Helper()
	var doc struct {
		Kind string          `json:"kind"`
		Dump json.RawMessage `json:"dump"`
	}
	if err := json.Unmarshal(readDocument(t, x.Name), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Kind == kafkatest.KindPartition {
		return map[string]json.RawMessage{"": doc.Dump}
	}
	dumps := map[string]json.RawMessage{}
	if err := json.Unmarshal(doc.Dump, &dumps); err != nil {
		t.Fatal(err)
	}
	return dumps
}

func readDocument(t *testing.T, name string) []byte {
	t.Helper()
	if dir := os.Getenv(kafkatest.FixturesEnv); dir != "" {
		p, err := os.ReadFile(filepath.Join(dir, name+".json"))
		if err == nil {
			return p
		}
	}
	f, err := os.Open(filepath.Join("..", "kafkatest", "testdata", "fixtures", name+".json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	p, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
