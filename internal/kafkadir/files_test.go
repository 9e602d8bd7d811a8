package kafkadir_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/kafkadir"
	"github.com/oncelog/oncelog/internal/vfs"
)

// goldenMetadata is a file of a 4.4.0 broker.
const goldenMetadata = "version: 0\ntopic_id: xMDiZOIBRUmuwN4X3xcJHw"

var goldenID = kafkadir.TopicID{0xc4, 0xc0, 0xe2, 0x64, 0xe2, 0x01, 0x45, 0x49, 0xae, 0xc0, 0xde, 0x17, 0xdf, 0x17, 0x09, 0x1f}

func TestMetadata_Golden(t *testing.T) {
	m, err := kafkadir.DecodeMetadata("f", []byte(goldenMetadata))
	if err != nil || m != (kafkadir.Metadata{Version: 0, TopicID: goldenID}) {
		t.Errorf("decoded %v, %v", m, err)
	}
	if p := kafkadir.EncodeMetadata(goldenID); string(p) != goldenMetadata {
		t.Errorf("encoded %q", p)
	}
	for _, same := range []string{
		goldenMetadata + "\n", "version:\t 0\r\ntopic_id:  xMDiZOIBRUmuwN4X3xcJHw\r\n",
	} {
		if m, err := kafkadir.DecodeMetadata("f", []byte(same)); err != nil || m.TopicID != goldenID {
			t.Errorf("%q: %v, %v", same, m, err)
		}
	}
	// A newer broker's version is accepted, as Kafka does, so that going back to an older one stays possible.
	if m, err := kafkadir.DecodeMetadata("f", []byte(strings.Replace(goldenMetadata, ": 0", ": 3", 1))); err != nil || m.Version != 3 {
		t.Errorf("version 3: %v, %v", m, err)
	}
}

func TestMetadata_Refused(t *testing.T) {
	for _, c := range []struct {
		name, content string
		line          int
	}{
		{"empty", "", 1},
		{"one line", "version: 0\n", 1},
		{"a third line", goldenMetadata + "\nx: 1", 3},
		{"no blank behind the colon", "version:0\ntopic_id: xMDiZOIBRUmuwN4X3xcJHw", 1},
		{"other key", "Version: 0\ntopic_id: xMDiZOIBRUmuwN4X3xcJHw", 1},
		{"negative version", "version: -1\ntopic_id: xMDiZOIBRUmuwN4X3xcJHw", 1},
		{"version is no number", "version: x\ntopic_id: xMDiZOIBRUmuwN4X3xcJHw", 1},
		{"other second key", "version: 0\ntopic_ix: xMDiZOIBRUmuwN4X3xcJHw", 2},
		{"zero id", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", 2},
		{"id too short", "version: 0\ntopic_id: xMDiZOIBRUmuwN4X3xcJH", 2},
		{"id with other base64 digits", "version: 0\ntopic_id: xMDiZOIBRUmuwN4X3xcJ+w", 2},
		{"id with bits behind its end", "version: 0\ntopic_id: xMDiZOIBRUmuwN4X3xcJHx", 2},
		{"blank behind the id", goldenMetadata + " ", 2},
		{"zeros", strings.Repeat("\x00", len(goldenMetadata)), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := kafkadir.DecodeMetadata("some/file", []byte(c.content))
			var me *kafkadir.MetadataError
			if !errors.As(err, &me) || me.Line != c.line || me.Path != "some/file" {
				t.Errorf("got %v, want a *MetadataError in line %d", err, c.line)
			}
		})
	}
}

func TestMetadata_CutEverywhere(t *testing.T) {
	for n := range len(goldenMetadata) {
		if m, err := kafkadir.DecodeMetadata("f", []byte(goldenMetadata[:n])); err == nil {
			t.Errorf("cut to %d bytes: %v", n, m)
		}
	}
}

func TestMetadata_FlipEveryBit(t *testing.T) {
	golden, _ := kafkadir.DecodeMetadata("f", []byte(goldenMetadata))
	for i := range len(goldenMetadata) * 8 {
		p := []byte(goldenMetadata)
		p[i/8] ^= 1 << (i % 8)
		m, err := kafkadir.DecodeMetadata("f", p)
		if err != nil {
			if me := (*kafkadir.MetadataError)(nil); !errors.As(err, &me) {
				t.Errorf("bit %d: untyped error %v", i, err)
			}
		} else if m == golden {
			t.Errorf("bit %d: %q read as if nothing had happened", i, p)
		}
	}
}

func FuzzMetadata(f *testing.F) {
	for _, s := range []string{goldenMetadata, goldenMetadata + "\r\n", "", "version: 1\ntopic_id: ", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		m, err := kafkadir.DecodeMetadata("f", p)
		if err != nil {
			return
		}
		again, err := kafkadir.DecodeMetadata("f", kafkadir.EncodeMetadata(m.TopicID))
		if err != nil || again.TopicID != m.TopicID {
			t.Fatalf("%q is %v, then %v, %v", p, m, again, err)
		}
	})
}

func TestMetadata_File(t *testing.T) {
	dir := t.TempDir()
	if _, err := kafkadir.ReadMetadata(vfs.OS, dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if err := kafkadir.WriteMetadata(vfs.OS, dir, kafkadir.TopicID{}); err == nil {
		t.Error("the zero id was written")
	}
	if err := kafkadir.WriteMetadata(vfs.OS, dir, goldenID); err != nil {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(dir, kafkadir.MetadataFile)); got != goldenMetadata {
		t.Errorf("written %q", got)
	}
	if m, err := kafkadir.ReadMetadata(vfs.OS, dir); err != nil || m.TopicID != goldenID {
		t.Errorf("read %v, %v", m, err)
	}
}

func TestMarker(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, kafkadir.MarkerFile)
	if m, err := kafkadir.ReadMarker(vfs.OS, dir); err != nil || m != (kafkadir.Marker{BrokerEpoch: -1}) {
		t.Errorf("no marker: %+v, %v", m, err)
	}
	for _, c := range []struct {
		name, content string
		epoch         int64
	}{
		{"of 4.4", `{"version":0,"brokerEpoch":6}`, 6},
		{"epoch not known", `{"version":0,"brokerEpoch":-1}`, -1},
		{"before 3.8", "", -1},
		{"another version", `{"version":1,"brokerEpoch":9,"more":true}`, 9},
		{"no epoch", `{"version":0}`, -1},
		{"no version", `{"brokerEpoch":6}`, -1},
		{"no JSON", "\x00\x00\x00", -1},
		{"cut", `{"version":0,"brokerEp`, -1},
		{"epoch as text", `{"version":0,"brokerEpoch":"x"}`, -1},
		{"too long to be one", strings.Repeat(" ", 5000) + `{"version":0,"brokerEpoch":6}`, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(c.content), 0o644); err != nil {
				t.Fatal(err)
			}
			m, err := kafkadir.ReadMarker(vfs.OS, dir)
			if err != nil || m != (kafkadir.Marker{Present: true, BrokerEpoch: c.epoch}) {
				t.Errorf("%+v, %v; want epoch %d", m, err, c.epoch)
			}
		})
	}
	for epoch, want := range map[int64]string{6: `{"version":0,"brokerEpoch":6}`, -7: `{"version":0,"brokerEpoch":-1}`} {
		if err := kafkadir.WriteMarker(vfs.OS, dir, epoch); err != nil {
			t.Fatal(err)
		}
		if got := read(t, path); got != want {
			t.Errorf("written %q, want %q", got, want)
		}
	}
	if removed, err := kafkadir.RemoveMarker(vfs.OS, dir); err != nil || !removed {
		t.Errorf("removed %v, %v", removed, err)
	}
	if removed, err := kafkadir.RemoveMarker(vfs.OS, dir); err != nil || removed {
		t.Errorf("removed again %v, %v", removed, err)
	}
}

func TestMarker_AnythingOfTheNameCounts(t *testing.T) {
	// Kafka asks only whether the name exists.
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, kafkadir.MarkerFile), 0o755); err != nil {
		t.Fatal(err)
	}
	if m, err := kafkadir.ReadMarker(vfs.OS, dir); err != nil || !m.Present {
		t.Errorf("%+v, %v", m, err)
	}
}

func FuzzMarker(f *testing.F) {
	for _, s := range []string{`{"version":0,"brokerEpoch":6}`, "", "{}", `{"version":0,"brokerEpoch":1e3}`, "null", "[1]"} {
		f.Add([]byte(s))
	}
	dir := f.TempDir()
	path := filepath.Join(dir, kafkadir.MarkerFile)
	f.Fuzz(func(t *testing.T, p []byte) {
		if err := os.WriteFile(path, p, 0o644); err != nil {
			t.Fatal(err)
		}
		m, err := kafkadir.ReadMarker(vfs.OS, dir)
		if err != nil || !m.Present || m.BrokerEpoch < -1 {
			t.Fatalf("%q: %+v, %v", p, m, err)
		}
		if err := kafkadir.WriteMarker(vfs.OS, dir, m.BrokerEpoch); err != nil {
			t.Fatal(err)
		}
		if again, err := kafkadir.ReadMarker(vfs.OS, dir); err != nil || again != m {
			t.Fatalf("%q: %+v, then %+v, %v", p, m, again, err)
		}
	})
}

func TestIsLogDir(t *testing.T) {
	for _, file := range []string{
		kafkadir.PropertiesFile, checkpoint.RecoveryPointFile, checkpoint.LogStartFile, checkpoint.ReplicationFile, checkpoint.CleanerFile,
	} {
		dir := t.TempDir()
		if is, err := kafkadir.IsLogDir(vfs.OS, dir); err != nil || is {
			t.Errorf("empty directory: %v, %v", is, err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if is, err := kafkadir.IsLogDir(vfs.OS, dir); err != nil || !is {
			t.Errorf("with %s: %v, %v", file, is, err)
		}
	}
	dir := t.TempDir()
	for _, file := range []string{kafkadir.LockFile, kafkadir.MarkerFile} {
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if is, err := kafkadir.IsLogDir(vfs.OS, dir); err != nil || is {
		t.Errorf("lock and marker alone: %v, %v", is, err)
	}
	if is, err := kafkadir.IsLogDir(vfs.OS, filepath.Join(dir, "missing")); err != nil || is {
		t.Errorf("missing directory: %v, %v", is, err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(p)
}
