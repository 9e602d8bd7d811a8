package checkpoint_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
)

// TestSetOffset_PowerCut takes the power away before and after every operation of a change, many times with different
// luck. What is found then is the old file or the new one, whole; once the change has returned, the new one.
func TestSetOffset_PowerCut(t *testing.T) {
	const path = "/log/recovery-point-offset-checkpoint"
	// Longer than a sector, so that a file can be half there.
	before := map[checkpoint.TopicPartition]int64{}
	for i := range 100 {
		before[partition("a-topic-of-some-length", int32(i))] = int64(i) * 1000
	}
	after := maps.Clone(before)
	after[partition("a-topic-of-some-length", 50)] = 7

	mem := vfstest.NewMem()
	if err := errors.Join(mem.MkdirAll("/log", 0o755), mem.SyncDir("/"), checkpoint.WriteOffsets(mem, path, before)); err != nil {
		t.Fatal(err)
	}
	crashes, old := 0, 0
	look := func(when string, returned bool) {
		for seed := range uint64(40) {
			o := vfstest.RandomCrash(seed)
			got, err := checkpoint.ReadOffsets(mem.Crash(o), path)
			crashes++
			switch {
			case err != nil:
				t.Errorf("%s, %v, seed %d: %v", when, o.Mode, seed, err)
			case maps.Equal(got, before) && !returned:
				old++
			case !maps.Equal(got, after):
				t.Errorf("%s, %v, seed %d: neither the old nor the new content", when, o.Mode, seed)
			}
		}
	}
	fsys := vfstest.Inject(mem, vfstest.Hook{
		BeforeOp: func(o vfstest.Op) vfstest.Fault { look(fmt.Sprintf("before %v", o), false); return vfstest.Fault{} },
		AfterOp:  func(o vfstest.Op, _ error) { look(fmt.Sprintf("after %v", o), false) },
	})
	if _, err := checkpoint.SetOffset(fsys, path, partition("a-topic-of-some-length", 50), 7); err != nil {
		t.Fatal(err)
	}
	look("after the change", true)
	if old == 0 || old == crashes || crashes < 400 {
		t.Errorf("%d crashes, %d of them found the old content", crashes, old)
	}
}

// TestWriteOffsets_WithoutSync shows that the test above can fail: renamed without a sync, the new name leads to a file
// of zeros, and reading says so.
func TestWriteOffsets_WithoutSync(t *testing.T) {
	mem := vfstest.NewMem()
	content := checkpoint.EncodeOffsets(goldenEntries)
	f, err := mem.OpenFile("/f.tmp", vfs.O_RDWR|vfs.O_CREATE|vfs.O_EXCL, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(content, 0)
	if err := errors.Join(err, f.Close(), mem.Rename("/f.tmp", "/f"), mem.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	var zeros, whole int
	for seed := range uint64(200) {
		found := mem.Crash(vfstest.RandomCrash(seed))
		p, err := vfs.ReadFile(found, "/f", 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		_, err = checkpoint.DecodeOffsets("/f", p)
		switch {
		case bytes.Equal(p, content):
			whole++
		case len(p) == 0 || string(p) == "0\n":
			// As an untouched file looks; nothing can tell.
		case errors.Is(err, checkpoint.ErrCorrupt):
			if len(bytes.TrimRight(p, "\x00")) == 0 {
				zeros++
			}
		default:
			t.Errorf("seed %d: %q: %v", seed, p, err)
		}
	}
	if zeros == 0 || whole == 0 {
		t.Errorf("%d files of zeros, %d whole ones", zeros, whole)
	}
}

// TestSetOffset_Errors lets each operation of a change fail. The change then reports it, and the file holds the old or
// the new content.
func TestSetOffset_Errors(t *testing.T) {
	broken := errors.New("broken")
	for n := 0; ; n++ {
		mem := vfstest.NewMem()
		if err := checkpoint.WriteOffsets(mem, "/f", map[checkpoint.TopicPartition]int64{partition("t", 1): 1}); err != nil {
			t.Fatal(err)
		}
		count := 0
		fsys := vfstest.Inject(mem, vfstest.Hook{BeforeOp: func(vfstest.Op) vfstest.Fault {
			if count++; count-1 == n {
				return vfstest.Fault{Err: broken}
			}
			return vfstest.Fault{}
		}})
		_, err := checkpoint.SetOffset(fsys, "/f", partition("t", 1), 2)
		got, readErr := checkpoint.ReadOffsets(mem, "/f")
		if readErr != nil || got[partition("t", 1)] != 1 && got[partition("t", 1)] != 2 {
			t.Errorf("operation %d failed: %v, %v", n, got, readErr)
		}
		if count <= n {
			if err != nil || got[partition("t", 1)] != 2 {
				t.Errorf("nothing failed: %v, %v", got, err)
			}
			if n < 6 {
				t.Errorf("only %d operations", n)
			}
			return
		}
		if !errors.Is(err, broken) {
			t.Errorf("operation %d failed: %v", n, err)
		}
	}
}
