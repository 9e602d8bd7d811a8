package invariants_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/oncelog/oncelog/internal/invariants"
)

func TestAssert(t *testing.T) {
	invariants.Assert(true, "never shown")
	defer func() {
		r := recover()
		if !invariants.Enabled {
			if r != nil {
				t.Errorf("panicked with %v in a build without invariants", r)
			}
			return
		}
		if text, ok := r.(string); !ok || !strings.Contains(text, "end 3 below start 5") {
			t.Errorf("panicked with %v", r)
		}
	}()
	invariants.Assert(false, "end %d below start %d", 3, 5)
}

func TestMangle(t *testing.T) {
	p := []byte("some bytes that expired")
	want := bytes.Clone(p)
	if invariants.Enabled {
		want = bytes.Repeat([]byte{0xdb}, len(p))
	}
	invariants.Mangle(p)
	if !bytes.Equal(p, want) {
		t.Errorf("%x, want %x", p, want)
	}
	invariants.Mangle(nil)
}

func TestCallsCostNothingWhenDisabled(t *testing.T) {
	if invariants.Enabled {
		return
	}
	p := make([]byte, 16)
	if n := testing.AllocsPerRun(100, func() { invariants.Mangle(p); invariants.Assert(true, "x") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
