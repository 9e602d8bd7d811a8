// Package invariants holds assertions about our own code, never about data: bytes from a disk or a caller that are
// wrong are an error in every build.
//
// The assertions exist under the build tag "invariants" and in builds with the race detector, which is what the tests
// use. In all other builds Enabled is the constant false and everything here compiles to nothing, if calls that compute
// their arguments stand inside
//
//	if invariants.Enabled { … }
package invariants
