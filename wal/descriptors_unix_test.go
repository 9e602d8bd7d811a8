//go:build unix

package wal

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
)

const descriptorsVar = "ONCELOG_DESCRIPTORS_CHILD"

// A log of many segments needs few descriptors with the default options: a process that may have few of them appends, reads in
// order and at random, and opens it again, for writing and for reading.
func TestOpenSegments_FewDescriptors(t *testing.T) {
	segments, all := 120, os.Getenv("ONCELOG_LONG") != ""
	if all {
		segments = 3000
	}
	for _, limit := range []int{64, 256} {
		for _, mode := range modes {
			if !all && mode != SyncNone {
				continue
			}
			t.Run(fmt.Sprint(limit, mode), func(t *testing.T) {
				t.Parallel()
				cmd := exec.Command("sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, limit),
					os.Args[0], "-test.run=^TestOpenSegments_Child$", "-test.timeout=5m")
				cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %s", descriptorsVar, segments, mode, t.TempDir()))
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("with %d descriptors: %v\n%s", limit, err, out)
				}
			})
		}
	}
}

func TestOpenSegments_Child(t *testing.T) {
	var segments int
	var mode SyncMode
	var dir string
	if n, _ := fmt.Sscan(os.Getenv(descriptorsVar), &segments, &mode, &dir); n != 3 {
		t.Skip("it is run by TestOpenSegments_FewDescriptors, in a process of its own")
	}
	o := Options{Sync: mode, SegmentBytes: 100}
	l := openTest(t, dir, o)
	fillSegments(t, l, segments, 0)
	end := l.Offsets().LogEnd
	read := func() {
		t.Helper()
		next := int64(0)
		for r, err := range l.Records(0) {
			if err != nil || r.Offset != next || string(r.Value) != strconv.FormatInt(next, 10) {
				t.Fatalf("%d: %+v, %v", next, r, err)
			}
			next++
		}
		if next != end {
			t.Fatalf("%d records, want %d", next, end)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for range segments {
			at := rng.Int64N(end)
			if r, err := l.Get(at); err != nil || string(r.Value) != strconv.FormatInt(at, 10) {
				t.Fatalf("%d: %+v, %v", at, r, err)
			}
		}
	}
	read()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, o.CheckSegments = range []bool{false, true} {
		l = openTest(t, dir, o)
		read()
		put(t, l, Record{Value: []byte(strconv.FormatInt(end, 10))})
		end++
		beside := o
		beside.ReadOnly = true
		writer := l
		l = openTest(t, dir, beside)
		read()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := writer.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
