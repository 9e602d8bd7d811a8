//go:build invariants || race

package invariants

import "fmt"

// Enabled is true in builds that check invariants.
const Enabled = true

// Assert panics with the formatted text if ok is false and Enabled is true.
func Assert(ok bool, format string, args ...any) {
	if !ok {
		panic(fmt.Sprintf("invariant broken: "+format, args...))
	}
}

// filler is what an expired buffer holds: no magic, no offset and no length that could be taken for one.
const filler = 0xdb

// Mangle overwrites a buffer that was handed out and whose validity has ended, so that whoever kept it reads garbage in
// the tests instead of stale bytes in production. It does nothing if Enabled is false.
func Mangle(expired []byte) {
	for i := range expired {
		expired[i] = filler
	}
}
