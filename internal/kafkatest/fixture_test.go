package kafkatest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/kafkadir"
	"github.com/oncelog/oncelog/internal/vfs"
)

// TestFixtures unpacks every fixture and holds the directory against its document.
func TestFixtures(t *testing.T) {
	EachFixture(t, func(t *testing.T, x *Fixture) {
		dir := x.Unpack(t)
		var got []File
		top := dir.Partition
		if x.Kind == KindLogDir {
			top = dir.LogDir
		}
		for path, p := range walk(t, top) {
			sum := sha256.Sum256(p)
			got = append(got, File{filepath.Base(top) + "/" + path, int64(len(p)), hex.EncodeToString(sum[:])})
		}
		byPath := func(a, b File) int { return strings.Compare(a.Path, b.Path) }
		slices.SortFunc(got, byPath)
		want := slices.SortedFunc(slices.Values(x.Files), byPath)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("files (-document +directory):\n%s", diff)
		}
		if is, err := kafkadir.IsLogDir(vfs.OS, dir.LogDir); err != nil || !is {
			t.Errorf("the parent is not a log directory: %v, %v", is, err)
		}
		if m, err := kafkadir.ReadMarker(vfs.OS, dir.LogDir); err != nil || m.Present != x.CleanShutdown {
			t.Errorf("marker %+v, %v; want %v", m, err, x.CleanShutdown)
		}
		if x.Kind == KindPartition {
			checkPartition(t, x, dir)
		}
		checkDumps(t, x)
	})
}

// walk returns the content of all files below a directory by path with slashes.
func walk(t *testing.T, root string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		p, err := os.ReadFile(path)
		rel, _ := filepath.Rel(root, path)
		files[filepath.ToSlash(rel)] = p
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func checkPartition(t *testing.T, x *Fixture, dir Dir) {
	t.Helper()
	name, err := kafkadir.ParseName(filepath.Base(dir.Partition))
	if err != nil || filepath.Dir(dir.Partition) != dir.LogDir {
		t.Fatalf("%s in %s: %v", dir.Partition, dir.LogDir, err)
	}
	if x.Partition() == nil {
		t.Fatal("no dump")
	}
	for file, want := range map[string]*int64{
		checkpoint.RecoveryPointFile: x.Checkpoints.RecoveryPoint,
		checkpoint.LogStartFile:      x.Checkpoints.LogStartOffset,
		checkpoint.ReplicationFile:   x.Checkpoints.HighWatermark,
		checkpoint.CleanerFile:       x.Checkpoints.CleanerOffset,
	} {
		offsets, err := checkpoint.ReadOffsets(vfs.OS, filepath.Join(dir.LogDir, file))
		got, has := offsets[name.TopicPartition]
		if err != nil || has != (want != nil) || has && got != *want {
			t.Errorf("%s: %v, %v", file, offsets, err)
		}
	}
	marker, err := os.ReadFile(filepath.Join(dir.LogDir, kafkadir.MarkerFile))
	switch {
	case !x.CleanShutdown:
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("marker: %q, %v", marker, err)
		}
	case x.older(3, 8) != (len(marker) == 0):
		t.Errorf("marker of %s: %q", x.KafkaVersion, marker)
	}
	meta, err := kafkadir.ReadMetadata(vfs.OS, dir.Partition)
	switch text := x.Partition().PartitionMetadata; {
	case text == nil:
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("partition.metadata: %v, %v", meta, err)
		}
	case err != nil || string(kafkadir.EncodeMetadata(meta.TopicID)) != *text:
		t.Errorf("partition.metadata: %v, %v; want %q", meta, err, *text)
	}
}

// checkDumps requires that the documents were read into the fields that they belong to.
func checkDumps(t *testing.T, x *Fixture) {
	t.Helper()
	if len(x.Dumps) == 0 {
		t.Error("no dumps")
	}
	for dir, d := range x.Dumps {
		if d.Dir != dir {
			t.Errorf("dump of %q says %q", dir, d.Dir)
		}
		for _, s := range d.Segments {
			var sum int64
			for _, b := range s.Batches {
				if b.Position != sum || b.Size <= 0 || !b.Valid || b.Codec == "" {
					t.Errorf("%s: segment %d: batch %+v, want it at %d", dir, s.BaseOffset, b, sum)
				}
				sum += b.Size
				if b.Magic == 2 && (b.Count < 0 || b.BaseTimestamp < -1 || b.BaseOffset < 0) {
					t.Errorf("%s: segment %d: batch %+v", dir, s.BaseOffset, b)
				}
			}
			if sum != s.ValidBytes {
				t.Errorf("%s: segment %d: %d bytes in batches, %d valid", dir, s.BaseOffset, sum, s.ValidBytes)
			}
		}
	}
	for _, s := range []*Start{x.AfterKafkaStart, x.OpenedBy44} {
		if s != nil && (len(s.Dumps) == 0 || !s.Failed && len(s.Loader) == 0) {
			t.Errorf("%s: %d dumps, loader %v", s.How, len(s.Dumps), s.Loader)
		}
	}
}

func TestFixture_WhatIsInIt(t *testing.T) {
	x := LoadFixture(t, "plain-one-batch")
	d := x.Partition()
	if d.LogEndOffset == 0 || len(d.Segments) != 1 || len(d.Segments[0].Batches) != 1 {
		t.Fatalf("dump %+v", d)
	}
	b := d.Segments[0].Batches[0]
	if b.ProducerID != -1 || b.BaseSequence != -1 || int(b.Count) != len(b.Records) || b.DeleteHorizonMs != -1 || b.Attributes != -1 {
		t.Errorf("batch %+v", b)
	}
	if r := b.Records[0]; r.Key.Data == nil || r.Value.Size != int64(len(r.Value.Data)) || !r.Value.Equal(r.Value.Data) {
		t.Errorf("record %+v", r)
	}
	if x.LastTimestamp() != b.MaxTimestamp {
		t.Errorf("last timestamp %d, want %d", x.LastTimestamp(), b.MaxTimestamp)
	}

	x = LoadFixture(t, "torn-payload")
	if len(x.DamageDone) != 1 || x.DamageDone[0].BytesOfBatchLeft != 387 || x.DamageDone[0].Bit != -1 {
		t.Errorf("damage %+v", x.DamageDone)
	}
	if after := x.AfterKafkaStart; after == nil || after.Failed || after.Offsets[0].LogEndOffset != 479 ||
		!slices.Equal(after.Loader["torn-payload-0"]["segmentsRecovered"].Offsets, []int64{0, 199, 393}) {
		t.Errorf("after a start %+v", after)
	}

	x = LoadFixture(t, "flip-baseoffset-down")
	if after := x.AfterKafkaStart; after == nil || !after.Failed || len(after.ErrorLines) == 0 {
		t.Errorf("after a start %+v", after)
	}

	x = LoadFixture(t, "dup-kill9-one")
	if len(x.AnswersAfterRestart) == 0 || x.AnswersAfterRestart[0].Sent == nil || x.AnswersAfterRestart[0].ErrorName != "NONE" {
		t.Errorf("answers %+v", x.AnswersAfterRestart)
	}
	if len(x.ScriptAfterRestart) == 0 {
		t.Error("no script")
	}

	x = LoadFixture(t, "v2.8-magic1-native")
	var wrapper *Batch
	for _, b := range x.Partition().Segments[0].Batches {
		if b.Magic != 1 || b.ProducerID != -1 || b.Count != -1 {
			t.Errorf("entry %+v", b)
		}
		if len(b.Inner) > 0 && wrapper == nil {
			wrapper = &b
		}
	}
	if wrapper == nil || !wrapper.Inner[0].CRCRight || wrapper.Inner[0].Size < 14 || wrapper.Attributes < 0 {
		t.Errorf("wrapper %+v", wrapper)
	}
	if x.OpenedBy44 == nil || x.OpenedBy44.Consumer == nil || !x.OpenedBy44.Consumer.ReachedEnd {
		t.Errorf("opened by 4.4: %+v", x.OpenedBy44)
	}

	x = LoadFixture(t, "record-shapes")
	var null, empty, nullHeader bool
	for _, b := range x.Partition().Segments[0].Batches {
		for _, r := range b.Records {
			null = null || r.Value.Data == nil
			empty = empty || r.Value.Data != nil && len(r.Value.Data) == 0
			for _, h := range r.Headers {
				nullHeader = nullHeader || h.Value == nil
			}
		}
	}
	if !null || !empty || !nullHeader {
		t.Errorf("null %v, empty %v, null header %v", null, empty, nullHeader)
	}
}

func TestBlob_Equal(t *testing.T) {
	var long Blob
	sum := sha256.Sum256([]byte("abc"))
	if err := long.UnmarshalJSON([]byte(`{"size":3,"sha256":"` + hex.EncodeToString(sum[:]) + `"}`)); err != nil {
		t.Fatal(err)
	}
	null, empty := Blob{Size: -1}, Blob{Data: []byte{}}
	for _, c := range []struct {
		name string
		b    Blob
		p    []byte
		want bool
	}{
		{"digest", long, []byte("abc"), true}, {"other digest", long, []byte("abd"), false}, {"digest and null", long, nil, false},
		{"null", null, nil, true}, {"null and empty", null, []byte{}, false},
		{"empty", empty, []byte{}, true}, {"empty and null", empty, nil, false}, {"bytes", Blob{Data: []byte("x")}, []byte("y"), false},
	} {
		if got := c.b.Equal(c.p); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestFixture_Unknown(t *testing.T) {
	if os.Getenv(FixturesEnv) != "" {
		return // the directory there decides
	}
	ran := t.Run("skips", func(t *testing.T) {
		defer func() {
			if !t.Skipped() {
				t.Error("not skipped")
			}
		}()
		LoadFixture(t, "no-such-fixture")
	})
	if !ran {
		t.Error("failed")
	}
}

func TestSource_Environment(t *testing.T) {
	t.Setenv(FixturesEnv, t.TempDir())
	if names, err := fixtureSource.names(".tar.gz"); err == nil {
		t.Errorf("an empty directory gave %v", names)
	}
	// What the directory lacks may still be among what the package carries.
	if _, err := readFixture("txn-abort"); err != nil {
		t.Error(err)
	}
	if _, err := readFixture("no-such-fixture"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("unknown name: %v", err)
	}
	for _, bad := range []string{"relative/path", filepath.Join(t.TempDir(), "missing")} {
		t.Setenv(FixturesEnv, bad)
		if _, err := fixtureSource.names(".tar.gz"); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}
