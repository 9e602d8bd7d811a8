package wal

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
)

// noFiles are what may stand in the place of a file.
var noFiles = []struct {
	name string
	make func(path string) error
}{
	{"a directory", func(path string) error { return os.Mkdir(path, 0o755) }},
	{"a directory with a file", func(path string) error {
		return errors.Join(os.Mkdir(path, 0o755), os.WriteFile(filepath.Join(path, "x"), nil, 0o644))
	}},
	{"a pipe", func(path string) error { return syscall.Mkfifo(path, 0o644) }},
	{"a link to nothing", func(path string) error { return os.Symlink("nothing", path) }},
}

// Whatever stands in the place of a file, an open ends, and soon: with an error that says which file is not one, or with a
// log that answers as if the file were missing.
func TestBadInput_NoRegularFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "t-0")
	o := Options{manual: true, TimestampAfterMax: Never}
	l := openTest(t, dir, o)
	p := record.Producer{ID: 9}
	for i := range 6 {
		if _, err := l.AppendAsLeader(txnRecord(t, record.Producer{ID: 9, BaseSequence: int32(i)}), LeaderAppend{}); err != nil {
			t.Fatal(err)
		}
		_, err := l.AppendEndTxnMarker(p, record.EndTxnMarker{Type: []record.ControlType{record.Abort, record.Commit}[i%2]}, MarkerAppend{})
		if i == 3 {
			err = errors.Join(err, l.Roll())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	want, err := walkCommitted(l)
	if err = errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		for _, kind := range noFiles {
			for _, readOnly := range []bool{true, false} {
				copied := filepath.Join(t.TempDir(), "t-0")
				path := filepath.Join(copied, e.Name())
				if err := errors.Join(os.CopyFS(copied, os.DirFS(dir)), os.Remove(path), kind.make(path)); err != nil {
					t.Fatal(err)
				}
				before := treeOf(t, copied)
				o.ReadOnly = readOnly
				done := make(chan error, 1)
				go func() {
					l, err := Open(context.Background(), copied, o)
					if err == nil {
						err = errors.Join(checkWalk(l, want), l.Close())
						if err == nil {
							done <- nil
							return
						}
						err = errors.Join(errors.New("opened"), err)
					}
					done <- err
				}()
				select {
				case err = <-done:
				case <-time.After(20 * time.Second):
					t.Fatalf("%s is %s, read-only %t: the open hangs", e.Name(), kind.name, readOnly)
				}
				if err == nil {
					continue
				}
				if !errors.Is(err, vfs.ErrNotRegular) && !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), e.Name()) {
					t.Errorf("%s is %s, read-only %t: %v", e.Name(), kind.name, readOnly, err)
				}
				if d := before.difference(treeOf(t, copied)); d != "" {
					t.Errorf("%s is %s, read-only %t: %v, and %s", e.Name(), kind.name, readOnly, err, d)
				}
			}
		}
	}
}
