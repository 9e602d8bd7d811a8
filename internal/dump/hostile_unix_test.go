//go:build unix

package dump_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/oncelog/oncelog/internal/dump"
	"github.com/oncelog/oncelog/internal/vfs"
)

func TestWriteJSON_HostileDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(dir, "00000000000000000000.log"), 0o755))
	must(os.Symlink("/etc/passwd", filepath.Join(dir, "00000000000000000000.index")))
	must(syscall.Mkfifo(filepath.Join(dir, "00000000000000000000.timeindex"), 0o644))
	must(os.Symlink("/etc/passwd", filepath.Join(dir, "partition.metadata")))
	must(syscall.Mkfifo(filepath.Join(dir, "leader-epoch-checkpoint"), 0o644))
	must(os.WriteFile(filepath.Join(dir, "\x1b]0;x\x07\n"), nil, 0o644))
	for name, size := range map[string]int64{
		"00000000000000000001.log": 1 << 40, "00000000000000000001.index": 1 << 40, "00000000000000000001.timeindex": 1 << 40,
		"00000000000000000001.snapshot": 1 << 40,
	} {
		must(os.WriteFile(filepath.Join(dir, name), nil, 0o644))
		must(os.Truncate(filepath.Join(dir, name), size))
	}
	var out bytes.Buffer
	damaged, err := dump.WriteJSON(context.Background(), &out, vfs.OS, dir, dump.Options{})
	if err != nil || !damaged {
		t.Fatalf("damaged %v, %v", damaged, err)
	}
	if strings.ContainsAny(out.String(), "\x1b\x07\n") || strings.Contains(out.String(), "root:") {
		t.Errorf("%q", out.String())
	}
	for _, want := range []string{`"not a regular file"`, `larger than any index`, `CorruptSnapshotException`, `smaller than minimum`, `\u001b]0;x\u0007\n`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in %s", want, out.String())
		}
	}
}
