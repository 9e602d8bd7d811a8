//go:build unix

package vfs

import (
	"math"

	"golang.org/x/sys/unix"
)

// DescriptorLimit is how many descriptors the process may have open at a time, as it is now; math.MaxInt32 if there is no
// bound, or none that is known.
func DescriptorLimit() int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return math.MaxInt32
	}
	return int(min(uint64(r.Cur), math.MaxInt32))
}
