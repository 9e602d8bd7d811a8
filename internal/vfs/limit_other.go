//go:build !unix

package vfs

import "math"

// DescriptorLimit is how many descriptors the process may have open at a time; math.MaxInt32, since no such bound is known
// here.
func DescriptorLimit() int { return math.MaxInt32 }
