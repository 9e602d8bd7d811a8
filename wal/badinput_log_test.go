package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// walked is what a reader of committed records got who goes on behind damage.
type walked struct {
	values map[int64]string
	holes  [][2]int64 // first and last offset
}

func walkCommitted(l *Log) (walked, error) {
	w := walked{values: map[int64]string{}}
	for from := l.Offsets().LogStart; ; {
		var bad *UnreadableError
		last := from - 1
		for r, err := range l.Records(from) {
			if errors.As(err, &bad) {
				break
			}
			if err != nil {
				return w, err
			}
			if r.Offset <= last {
				return w, fmt.Errorf("offset %d comes behind %d", r.Offset, last)
			}
			last = r.Offset
			w.values[r.Offset] = fmt.Sprintf("%q %q", r.Key, r.Value)
		}
		if bad == nil {
			return w, nil
		}
		if !errors.Is(bad, ErrCorrupt) || bad.Path == "" || bad.First <= last || bad.Last < bad.First {
			return w, fmt.Errorf("behind offset %d: %+v", last, bad)
		}
		w.holes = append(w.holes, [2]int64{bad.First, bad.Last})
		if from = bad.Last + 1; from > l.Offsets().LogEnd {
			return w, nil
		}
	}
}

// checkWalk holds what a reader of a damaged log got against what was committed: nothing else, and all of it but for what he
// was told of. What a writer may lose at the end without anybody knowing is missing without a word.
func checkWalk(l *Log, want walked) error {
	got, err := walkCommitted(l)
	if err != nil {
		return err
	}
	for at, v := range got.values {
		if v != want.values[at] {
			return fmt.Errorf("offset %d: %s, committed was %q", at, v, want.values[at])
		}
	}
	report := l.RecoveryReport()
	for at := range want.values {
		_, there := got.values[at]
		end := l.Offsets().LogEnd
		told := at >= end && !report.Refused()
		for _, h := range got.holes {
			// How far a log had been written whose end is gone is known up to the durable end only.
			told = told || h[0] <= at && (at <= h[1] || at >= end && h[1] >= end-1)
		}
		if !there && !told {
			return fmt.Errorf("offset %d is missing, and only %v was said to be; %+v, open %v, report %+v",
				at, got.holes, l.Offsets(), l.OpenTransactions(), report)
		}
	}
	return nil
}

// damages are ways to damage a batch in a log file.
var damages = []struct {
	name string
	do   func(p []byte, pos, size int64) []byte
}{
	{"a bit of its records", func(p []byte, pos, size int64) []byte { p[pos+size-1] ^= 4; return p }},
	{"its offset", func(p []byte, pos, _ int64) []byte { p[pos+6] ^= 1; return p }},
	{"zeros", func(p []byte, pos, size int64) []byte { clear(p[pos : pos+size]); return p }},
	{"the file ends in it", func(p []byte, pos, size int64) []byte { return p[:pos+size/2] }},
}

// without are files that are missing as well.
var without = []struct {
	name string
	kind segment.Kind
}{{"nothing else", segment.KindUnknown}, {"no transaction indexes", segment.KindTxnIndex}, {"no snapshots", segment.KindSnapshot}}

// Wherever a log file is damaged, a reader gets no record that was not committed, and is told of each one that he does not
// get; a writer too, if the log opens for him.
func TestBadInput_LogFiles(t *testing.T) {
	for _, mode := range modes {
		for _, closed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v closed %t", mode, closed), func(t *testing.T) {
				t.Parallel()
				s := auxiliary(t, mode, closed)
				base := s.fsys.(*vfstest.Mem)
				l, err := OpenFS(context.Background(), base.Crash(vfstest.CrashOptions{}), simDir, s.opts)
				if err != nil {
					t.Fatal(err)
				}
				want, err := walkCommitted(l)
				if err = errors.Join(err, l.Close()); err != nil {
					t.Fatal(err)
				}
				cases, refused := 0, 0
				err = walkFiles(base, simDir, func(name string, p []byte) error {
					if segment.Parse(filepath.Base(name)).Kind != segment.KindLog {
						return nil
					}
					for pos := int64(0); pos+record.Overhead < int64(len(p)); {
						b, _, err := record.Next(p[pos:])
						if err != nil {
							break // reserved space
						}
						for _, d := range damages {
							for _, w := range without {
								if w.kind != segment.KindUnknown && d.name == "zeros" {
									continue // as a bit
								}
								cases++
								no, err := damagedCase(base, s.opts, name, d.do(bytes.Clone(p), pos, int64(b.Size())), w.kind, want)
								if err != nil {
									t.Errorf("%s, batch at byte %d, offset %d, %s, %s: %v", filepath.Base(name), pos, b.BaseOffset(), d.name, w.name, err)
								}
								if no {
									refused++
								}
							}
						}
						pos += int64(b.Size())
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%d cases, %d refused", cases, refused)
			})
		}
	}
}

func damagedCase(base *vfstest.Mem, o Options, name string, p []byte, missing segment.Kind, want walked) (refused bool, err error) {
	m := base.Crash(vfstest.CrashOptions{})
	var gone []string
	err = walkFiles(m, simDir, func(other string, _ []byte) error {
		if missing != segment.KindUnknown && segment.Parse(filepath.Base(other)).Kind == missing && !strings.HasSuffix(other, "lock") {
			gone = append(gone, other)
		}
		return nil
	})
	for _, g := range gone {
		err = errors.Join(err, m.Remove(g))
	}
	if err = errors.Join(err, replaceFile(m, name, p)); err != nil {
		return false, err
	}
	for _, readOnly := range []bool{true, false} {
		o.ReadOnly = readOnly
		l, err := openOther(m, o)
		if err != nil {
			if readOnly || !errors.Is(err, ErrRefused) {
				return false, fmt.Errorf("read-only %t: %w", readOnly, err)
			}
			return true, nil
		}
		if err := errors.Join(checkWalk(l, want), l.Close()); err != nil {
			return false, fmt.Errorf("read-only %t: %w", readOnly, err)
		}
	}
	return false, nil
}

func openOther(m vfs.FS, o Options) (*Log, error) {
	return OpenFS(context.Background(), m, simDir, o)
}
