package wal

import (
	"context"
	"errors"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
)

// A log that somebody writes, and one that was closed or killed, has no problem; a byte that changed is one.
func TestCheck(t *testing.T) {
	for _, mode := range modes {
		mem := memSim(t)
		w, err := newBesideWriter(mem, 90, mode)
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			for range 15 {
				if err := w.step(); err != nil {
					t.Fatal(err)
				}
			}
			r, err := CheckFS(t.Context(), mem, simDir)
			if err != nil || !r.Healthy || r.Refused || r.Changing {
				t.Fatalf("%v: %+v, %v after %q", mode, r, err, tail(w.steps, 5))
			}
		}
		appendN(t, w.log, 0, 3)
		if err := w.log.Close(); err != nil {
			t.Fatal(err)
		}
		r, err := CheckFS(t.Context(), mem, simDir)
		if err != nil || !r.Healthy || r.Batches < 3 || r.Records < r.Batches || r.IndexEntries == 0 || r.Snapshots == 0 {
			t.Errorf("%v: closed: %+v, %v", mode, r, err)
		}
		// Below the last checkpoint, where no open looks.
		path := w.log.set.First().Path()
		f, err := mem.OpenFile(path, vfs.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		var b [1]byte
		if _, err := f.ReadAt(b[:], 70); err == nil {
			b[0] ^= 1
			_, err = f.WriteAt(b[:], 70)
			if err != nil {
				t.Fatal(err)
			}
			r, err = CheckFS(t.Context(), mem, simDir)
			if err != nil || r.Healthy || len(r.Findings) == 0 {
				t.Errorf("%v: a byte changed: %+v, %v", mode, r, err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCheck_Errors(t *testing.T) {
	mem := memSim(t)
	if _, err := CheckFS(t.Context(), mem, simDir); !errors.Is(err, ErrNotLog) {
		t.Errorf("an empty directory: %v", err)
	}
	l := openFS(t, mem, Options{})
	appendN(t, l, 0, 3)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := CheckFS(ended, mem, simDir); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Check(t.Context(), t.TempDir()+"/missing"); err == nil {
		t.Error("a missing directory passes")
	}
}
