package index

import (
	"errors"
	"os"
	"runtime/debug"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
)

// Another handle cuts the file under a mapped index. Without the guard the process would die of SIGBUS.
func TestFault_FileCutUnderTheMap(t *testing.T) {
	path := osPath(t)
	x := openOffset(t, vfs.OS, path, 0, Config{})
	for i := int64(1); i <= 2000; i++ {
		ok(t, x.Append(i, int32(i)))
	}
	ok(t, x.Trim())
	r := openOffset(t, vfs.OS, path, 0, Config{ReadOnly: true})
	for _, x := range []*Offset{x, r} {
		if e, err := x.Lookup(1900); err != nil || e.Offset != 1900 {
			t.Fatalf("Lookup = %v, %v", e, err)
		}
	}
	ok(t, os.Truncate(path, 4096))

	want := func(err error, from, to int) {
		t.Helper()
		var f *FaultError
		if !errors.As(err, &f) || f.Path != path || f.Entry < from || f.Entry >= to {
			t.Fatalf("got %v, want a fault in entry %d to %d", err, from, to)
		}
		wantIs(t, err, ErrFault)
	}
	for _, x := range []*Offset{x, r} {
		for range 3 {
			_, err := x.Lookup(1900)
			want(err, 512, 2000)
		}
		_, _, err := x.UpperBound(OffsetPosition{}, 1900)
		want(err, 512, 2000)
		if _, err := x.Entry(511); err != nil {
			t.Error(err)
		}
		_, err = x.Entry(600)
		want(err, 600, 601)
		n := 0
		for _, err = range x.All() {
			n++
		}
		want(err, 512, 2000)
		want(x.CheckEntries(5000), 512, 2000)

		// Mapped anew, the map is as long as the file, and what is missing is said at once.
		ok(t, x.Unmap())
		_, err = x.Lookup(1)
		want(err, 512, 513)
	}
	ok(t, x.SetEntries(512))
	if e, err := x.Lookup(1900); err != nil || e.Offset != 512 {
		t.Errorf("Lookup = %v, %v", e, err)
	}
	ok(t, x.Append(1900, 1900))
}

// A store that faults although its space had been promised is written through the file instead.
func TestFault_Store(t *testing.T) {
	path := osPath(t)
	h := &hooked{FS: vfs.OS}
	x := openOffset(t, h, path, 0, Config{})
	ok(t, x.Append(1, 1))
	ok(t, os.Truncate(path, 0))
	h.fail(func(op string, n int64) error {
		if op == "write" {
			return vfs.ErrNoSpace
		}
		return nil
	})
	err := x.Append(2, 2)
	wantIs(t, err, vfs.ErrNoSpace)
	wantIs(t, err, ErrFault)
	if x.Entries() != 1 {
		t.Errorf("%d entries", x.Entries())
	}
	h.fail(nil)
	ok(t, x.Append(2, 2))
	if e, err := x.Lookup(2); err != nil || e != (OffsetPosition{2, 2}) {
		t.Errorf("Lookup = %v, %v", e, err)
	}
}

// A panic that is no fault of the map goes on, and leaves the locks free.
func TestFault_OtherPanics(t *testing.T) {
	x := openOffset(t, vfs.OS, osPath(t), 0, Config{})
	ok(t, x.Append(1, 1))
	for name, cause := range map[string]func(){
		"own":       func() { panic("own") },
		"index":     func() { _ = x.buf[len(x.buf)+x.Entries()-1] },
		"nil":       func() { var p *int; *p = 1 },
		"elsewhere": func() { faultElsewhere(t) },
	} {
		t.Run(name, func(t *testing.T) {
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the panic was swallowed")
					}
				}()
				func() (err error) {
					ok(t, x.enter())
					defer x.leave(debugFault(), &err)
					cause()
					return nil
				}()
			}()
			ok(t, x.Append(x.LastOffset()+1, 2))
			ok(t, x.Unmap())
			if old := debugFault(); old {
				t.Error("faults still panic")
			}
			debug.SetPanicOnFault(false)
		})
	}
}

// faultElsewhere reads a page of another map whose file was cut.
func faultElsewhere(t *testing.T) {
	path := osPath(t)
	ok(t, os.WriteFile(path, make([]byte, 4096), 0o644))
	f, err := vfs.OS.OpenFile(path, os.O_RDWR, 0)
	ok(t, err)
	defer f.Close()
	m, err := f.Map(4096, false)
	ok(t, err)
	defer m.Close()
	ok(t, os.Truncate(path, 0))
	t.Log(m.Bytes()[100])
}
