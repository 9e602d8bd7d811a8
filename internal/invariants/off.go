//go:build !invariants && !race

package invariants

// Enabled is true in builds that check invariants.
const Enabled = false

// Assert panics with the formatted text if ok is false and Enabled is true.
func Assert(bool, string, ...any) {}

// Mangle overwrites a buffer that was handed out and whose validity has ended, so that whoever kept it reads garbage in
// the tests instead of stale bytes in production. It does nothing if Enabled is false.
func Mangle([]byte) {}
