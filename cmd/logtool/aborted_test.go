package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
	"github.com/oncelog/oncelog/wal"
)

// abortedLog makes a log of three segments, each with committed and aborted transactions, and a copy of it as it was before
// the last writer closed it.
func abortedLog(t *testing.T, sync wal.SyncMode) (closed, killed string) {
	t.Helper()
	closed, killed = filepath.Join(t.TempDir(), "t-0"), filepath.Join(t.TempDir(), "t-0")
	l, err := wal.Open(context.Background(), closed, wal.Options{Sync: sync})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 18 {
		kind := []record.ControlType{record.Commit, record.Abort}[i%2]
		p := record.Producer{ID: int64(i % 3), BaseSequence: int32(i / 3)}
		b := record.NewBuilder(record.BuilderOptions{Producer: &p, Transactional: true})
		err := b.Append(1_700_000_000_000, record.Record{Value: []byte(kind.String())})
		if err == nil {
			p, batchErr := b.Batch()
			_, err = l.AppendAsLeader(bytes.Clone(p), wal.LeaderAppend{})
			err = errors.Join(err, batchErr)
		}
		if err == nil {
			_, err = l.AppendEndTxnMarker(p, record.EndTxnMarker{Type: kind}, wal.MarkerAppend{Time: time.UnixMilli(1_700_000_000_000)})
		}
		if err == nil && i%6 == 5 && i < 17 {
			err = errors.Join(l.Roll(), l.Checkpoint())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.CopyFS(killed, os.DirFS(closed)), l.Close()); err != nil {
		t.Fatal(err)
	}
	return closed, killed
}

// A transaction index that is missing, cut or changed is seen by all commands, none of them shows a record of an aborted
// transaction, and recover makes it right.
func TestAborted_DamagedIndex(t *testing.T) {
	for _, sync := range []wal.SyncMode{wal.SyncCommit, wal.SyncInterval, wal.SyncNone} {
		closed, killed := abortedLog(t, sync)
		want := must(t, "", "cat", closed)
		if n := strings.Count(want, "\n"); n != 9 || strings.Contains(want, record.Abort.String()) {
			t.Fatalf("%d lines: %s", n, want)
		}
		for name, spoil := range map[string]func(p []byte) []byte{
			"missing":       func([]byte) []byte { return nil },
			"cut":           func(p []byte) []byte { return p[:len(p)-34] },
			"changed":       func(p []byte) []byte { p[17] ^= 1; return p },
			"bytes behind":  func(p []byte) []byte { return append(p, bytes.Repeat([]byte{7}, 100)...) },
			"a part behind": func(p []byte) []byte { return append(p, 0, 0, 1) },
			"other version": func(p []byte) []byte { p[1] = 3; return p },
		} {
			if sync != wal.SyncCommit && name != "missing" && name != "changed" {
				continue
			}
			for _, from := range []string{closed, killed} {
				dir := filepath.Join(t.TempDir(), "t-0")
				if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
					t.Fatal(err)
				}
				file := segment.FileName(segment.KindTxnIndex, 12)
				path := filepath.Join(dir, file)
				p, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if p = spoil(p); p == nil {
					err = os.Remove(path)
				} else {
					err = os.WriteFile(path, p, 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
				told := func(out string) bool { return strings.Contains(out, file) && strings.Contains(out, "rebuild") }
				what := sync.String() + ", " + name + ", " + filepath.Base(filepath.Dir(from))
				if r := logtool(t, "", "cat", dir); r.status != exitHealthy || r.stdout != want {
					t.Errorf("%s: cat: exit status %d, %s%s", what, r.status, r.stdout, r.err)
				}
				if r := logtool(t, "", "inspect", dir); r.status != exitProblems || !strings.Contains(r.stdout, file) {
					t.Errorf("%s: inspect: exit status %d, %s%s", what, r.status, r.stdout, r.err)
				}
				for _, args := range [][]string{{"recover", dir}, {"recover", "--apply", dir}} {
					if r := logtool(t, "", args...); r.status != exitHealthy || !told(r.stdout) {
						t.Errorf("%s: %q: exit status %d, %s%s", what, args, r.status, r.stdout, r.err)
					}
				}
				if r := logtool(t, "", "inspect", dir); r.status != exitHealthy {
					t.Errorf("%s: inspect after recover: exit status %d, %s%s", what, r.status, r.stdout, r.err)
				}
				if r := logtool(t, "", "cat", dir); r.status != exitHealthy || r.stdout != want {
					t.Errorf("%s: cat after recover: exit status %d, %s%s", what, r.status, r.stdout, r.err)
				}
			}
		}
	}
}

// Damage that hits the marker of a transaction, or its end, is said, and what lies behind is shown.
func TestAborted_DamagedLog(t *testing.T) {
	for _, sync := range []wal.SyncMode{wal.SyncCommit, wal.SyncInterval, wal.SyncNone} {
		closed, killed := abortedLog(t, sync)
		want := strings.Split(must(t, "", "cat", closed), "\n")
		path := filepath.Join(killed, segment.FileName(segment.KindLog, 24))
		p, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data, _, err := record.Next(p)
		if err != nil {
			t.Fatal(err)
		}
		p[len(data)+70] ^= 1 // in the marker of the transaction at 24
		if err := os.WriteFile(path, p, 0o644); err != nil {
			t.Fatal(err)
		}
		if r := logtool(t, "", "cat", killed); r.status != exitProblems || r.stdout != strings.Join(want[:6], "\n")+"\n" || !strings.Contains(r.err, "24") {
			t.Errorf("%v: cat: exit status %d, %s%s", sync, r.status, r.stdout, r.err)
		}
		if r := logtool(t, "", "cat", "--skip-damage", killed); r.status != exitProblems || r.stdout != strings.Join(append(want[:6:6], want[7:]...), "\n") {
			t.Errorf("%v: cat --skip-damage: exit status %d, %s%s", sync, r.status, r.stdout, r.err)
		}
		if r := logtool(t, "", "recover", killed); r.status != exitProblems {
			t.Errorf("%v: recover: exit status %d, %s%s", sync, r.status, r.stdout, r.err)
		}
	}
}
