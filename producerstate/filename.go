package producerstate

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/oncelog/oncelog/internal/vfs"
)

// The names of the files; the offset is written with 20 digits. The formats are fixed by Kafka and by earlier versions of
// this package.
const (
	snapshotSuffix = ".snapshot"
	deletedSuffix  = ".deleted"
	sidePrefix     = "oncelog.producers-"
	nextSuffix     = ".next"
	offsetDigits   = 20
)

// SnapshotName returns the name of the snapshot file for an offset, without a directory.
func SnapshotName(offset int64) string {
	return fmt.Sprintf("%0*d%s", offsetDigits, offset, snapshotSuffix)
}

// SideFileName returns the name of the side file for an offset, without a directory.
func SideFileName(offset int64) string {
	return fmt.Sprintf("%s%0*d", sidePrefix, offsetDigits, offset)
}

// ParseSnapshotName returns the offset in the name of a snapshot file.
func ParseSnapshotName(name string) (int64, bool) {
	digits, ok := strings.CutSuffix(name, snapshotSuffix)
	if !ok {
		return 0, false
	}
	return parseOffset(digits)
}

// ParseSideFileName returns the offset in the name of a side file.
func ParseSideFileName(name string) (int64, bool) {
	digits, ok := strings.CutPrefix(name, sidePrefix)
	if !ok {
		return 0, false
	}
	return parseOffset(digits)
}

// parseOffset accepts exactly what the names are written with, so that two names never mean one offset.
func parseOffset(digits string) (int64, bool) {
	if len(digits) != offsetDigits || digits[0] == '+' || digits[0] == '-' {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, err == nil
}

// isLeftover tells whether a name is what an interrupted write of one of our files leaves.
func isLeftover(name string) bool {
	base, ok := strings.CutSuffix(name, vfs.TempSuffix)
	if !ok {
		return false
	}
	if _, ok := ParseSnapshotName(base); ok {
		return true
	}
	_, ok = ParseSideFileName(strings.TrimSuffix(base, nextSuffix))
	return ok
}

func snapshotPath(dir string, offset int64) string { return filepath.Join(dir, SnapshotName(offset)) }
func sidePath(dir string, offset int64) string     { return filepath.Join(dir, SideFileName(offset)) }
func nextPath(dir string, offset int64) string     { return sidePath(dir, offset) + nextSuffix }
