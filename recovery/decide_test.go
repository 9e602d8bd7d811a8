package recovery

import (
	"fmt"
	"testing"
)

// allFacts yields every combination of facts.
func allFacts(yield func(Facts)) {
	bools := []bool{false, true}
	for _, w := range []Writer{Us, Another} {
		for _, m := range []SyncMode{SyncCommit, SyncInterval, SyncNone} {
			for _, rest := range []Rest{RestNothing, RestZeros, RestGarbage, RestPlausible} {
				for _, later := range []Later{LaterNone, LaterFollows, LaterMisplaced} {
					for bits := range 1 << 5 {
						yield(Facts{Writer: w, Mode: m, Rest: rest, Later: later,
							SameBoot: bools[bits&1], Cutting: bools[bits>>1&1], Untrue: bools[bits>>2&1],
							Below: bools[bits>>3&1], Beyond: bools[bits>>4&1]})
					}
				}
			}
		}
	}
}

// want states the verdicts once more, as the questions a person would ask, in another shape than the table.
func want(f Facts) Verdict {
	clean := f.Rest == RestNothing || f.Rest == RestZeros
	switch {
	case clean && f.Later == LaterFollows && f.Rest == RestZeros:
		return TrimContinue
	case clean && f.Later == LaterFollows:
		return Continue
	case f.Below:
		return Damage
	case clean && f.Later == LaterNone && f.Rest == RestZeros:
		return Trim
	case clean && f.Later == LaterNone:
		return End
	}
	if f.Writer == Another {
		if f.Rest == RestGarbage && f.Later == LaterNone {
			return Cut
		}
		return Damage
	}
	if f.Mode == SyncCommit {
		if f.Cutting {
			return CutLater
		}
		if !f.Beyond && f.Later == LaterNone {
			return Cut
		}
		return Damage
	}
	if !f.SameBoot || f.Untrue {
		return CutLater
	}
	if f.Rest == RestGarbage && f.Later == LaterNone && !f.Beyond {
		return Cut
	}
	return Damage
}

func TestDecide_EveryCombination(t *testing.T) {
	used := map[string]int{}
	n := 0
	allFacts(func(f Facts) {
		n++
		got, name := Decide(f)
		if name == "no row" {
			t.Errorf("no row for: %v", f)
		}
		if w := want(f); got != w {
			t.Errorf("%v: row %q says %v, want %v", f, name, got, w)
		}
		used[name]++
	})
	for _, r := range table {
		if used[r.name] == 0 {
			t.Errorf("row %q is never reached", r.name)
		}
	}
	if n != 2*3*4*3*32 {
		t.Errorf("enumerated %d combinations", n)
	}
}

func TestDecide_RowsAreNamedAndExplained(t *testing.T) {
	seen := map[string]bool{}
	for i, r := range table {
		if r.name == "" || r.why == "" || seen[r.name] {
			t.Errorf("row %d: name %q must be there once, with a reason", i, r.name)
		}
		seen[r.name] = true
	}
}

// A stricter policy never goes on where a more yielding one refuses.
func TestPolicy_Order(t *testing.T) {
	for v := End; v <= Damage; v++ {
		strict, tolerant, kafka := Strict.refuses(v), TolerateTornTail.refuses(v), PointInTime.refuses(v)
		if kafka && !tolerant || tolerant && !strict {
			t.Errorf("%v: Strict refuses %v, TolerateTornTail %v, PointInTime %v", v, strict, tolerant, kafka)
		}
	}
	if !TolerateTornTail.refuses(Damage) || TolerateTornTail.refuses(Cut) || !Strict.refuses(Cut) || Strict.refuses(Trim) {
		t.Error("the policies no longer mean what their comments say")
	}
}

// In doubt the stricter verdict counts: a fact that speaks against trust must never turn damage into something milder,
// with the two exceptions that the table argues for.
func TestDecide_DistrustNeverHelps(t *testing.T) {
	allFacts(func(f Facts) {
		if f.Below {
			return
		}
		g := f
		g.Below = true
		a, _ := Decide(f)
		b, _ := Decide(g)
		if a == Damage && b != Damage {
			t.Errorf("%v: %v above the promised end, %v below it", f, a, b)
		}
		g = f
		g.Beyond = true
		c, _ := Decide(g)
		if a == Damage && c != Damage {
			t.Errorf("%v: %v, but %v with bytes beyond the group", f, a, c)
		}
	})
}

func ExampleDecide() {
	verdict, row := Decide(Facts{Writer: Us, Mode: SyncCommit, Rest: RestGarbage, Later: LaterNone})
	fmt.Println(verdict, "—", row)
	verdict, row = Decide(Facts{Writer: Us, Mode: SyncCommit, Rest: RestGarbage, Later: LaterNone, Below: true})
	fmt.Println(verdict, "—", row)
	// Output:
	// cut — synced writer, torn group
	// damage — below the promised end
}
