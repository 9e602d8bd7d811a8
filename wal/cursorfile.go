package wal

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/cespare/xxhash/v2"
)

const cursorsFile = "oncelog.cursors"

// Format of oncelog.cursors, big-endian:
//
//	offset  size  field
//	     0     8  magic "onccursr"
//	     8     2  version, 1
//	    10     2  not used, 0
//	    12     4  number of cursors
//	      each    offset (8), offset before the log was cut below it or −1 (8), time of the commit in milliseconds (8),
//	              flags (2): 1 holds back retention; bytes of the name (2), the name; ascending by name
//	  last     8  XXH64 of everything before
const (
	cursorsVersion = 1
	cursorsHead    = 16
	cursorEntry    = 28
	maxCursors     = 1 << 16
	maxCursorName  = 1 << 10
	maxCursorsSize = cursorsHead + maxCursors*(cursorEntry+maxCursorName) + 8

	cursorPins = 1
)

var cursorsMagic = [8]byte{'o', 'n', 'c', 'c', 'u', 'r', 's', 'r'}

// cursorState is what is kept of a cursor.
type cursorState struct {
	name    string
	offset  int64
	cutFrom int64 // −1 if the log was not cut below it since it was committed
	at      int64 // milliseconds
	pins    bool
}

func appendCursors(dst []byte, list []cursorState) []byte {
	start := len(dst)
	dst = append(dst, cursorsMagic[:]...)
	dst = binary.BigEndian.AppendUint16(dst, cursorsVersion)
	dst = binary.BigEndian.AppendUint16(dst, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(list)))
	for _, c := range list {
		flags := uint16(0)
		if c.pins {
			flags |= cursorPins
		}
		for _, v := range [...]int64{c.offset, c.cutFrom, c.at} {
			dst = binary.BigEndian.AppendUint64(dst, uint64(v))
		}
		dst = binary.BigEndian.AppendUint16(dst, flags)
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(c.name)))
		dst = append(dst, c.name...)
	}
	return binary.BigEndian.AppendUint64(dst, xxhash.Sum64(dst[start:]))
}

// parseCursors decodes a file of cursors. What is damaged matches ErrCorrupt, what a later version wrote
// ErrUnsupportedVersion.
func parseCursors(p []byte) (list []cursorState, err error) {
	bad := func(what string) ([]cursorState, error) { return nil, fmt.Errorf("%w: %s", ErrCorrupt, what) }
	if len(p) < cursorsHead+8 || [8]byte(p[:8]) != cursorsMagic {
		return bad("it does not begin as a file of cursors")
	}
	sum := len(p) - 8
	if binary.BigEndian.Uint64(p[sum:]) != xxhash.Sum64(p[:sum]) {
		return bad("the checksum is wrong")
	}
	if v := binary.BigEndian.Uint16(p[8:]); v != cursorsVersion {
		return nil, fmt.Errorf("%w: version %d, this program knows version %d", ErrUnsupportedVersion, v, cursorsVersion)
	}
	n := int(binary.BigEndian.Uint32(p[12:]))
	rest := p[cursorsHead:sum]
	if n > maxCursors || n > len(rest)/cursorEntry {
		return bad(fmt.Sprintf("%d bytes do not hold %d cursors", len(p), n))
	}
	for i := range n {
		if len(rest) < cursorEntry {
			return bad(fmt.Sprintf("cursor %d is cut off", i))
		}
		c := cursorState{offset: int64(binary.BigEndian.Uint64(rest)), cutFrom: int64(binary.BigEndian.Uint64(rest[8:])),
			at: int64(binary.BigEndian.Uint64(rest[16:])), pins: binary.BigEndian.Uint16(rest[24:])&cursorPins != 0}
		size := int(binary.BigEndian.Uint16(rest[26:]))
		rest = rest[cursorEntry:]
		if size > len(rest) || size > maxCursorName || size == 0 {
			return bad(fmt.Sprintf("cursor %d has a name of %d bytes", i, size))
		}
		c.name, rest = string(rest[:size]), rest[size:]
		if c.offset < 0 || c.cutFrom < -1 || c.cutFrom == math.MaxInt64 || i > 0 && c.name <= list[i-1].name {
			return bad(fmt.Sprintf("cursor %d cannot be", i))
		}
		list = append(list, c)
	}
	if len(rest) > 0 {
		return bad(fmt.Sprintf("%d bytes follow the last cursor", len(rest)))
	}
	return list, nil
}
