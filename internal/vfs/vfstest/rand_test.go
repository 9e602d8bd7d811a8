package vfstest

import (
	"math/rand/v2"
	"testing"
)

// newRand returns a source of random numbers whose seed a failing test prints.
func newRand(t testing.TB, seed uint64) *rand.Rand {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}
