package segment

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
)

// Kind says what a file in a partition directory is.
type Kind uint8

// The kinds of files in a partition directory.
const (
	KindUnknown           Kind = iota // a name that is none of the others
	KindLog                           // record batches
	KindOffsetIndex                   // offset to position
	KindTimeIndex                     // timestamp to offset
	KindTxnIndex                      // aborted transactions
	KindSnapshot                      // state of the producers up to, but excluding, the offset
	KindMetadataSnapshot              // snapshot of a KRaft metadata log
	KindLeaderEpochs                  // leader-epoch-checkpoint
	KindPartitionMetadata             // partition.metadata
	KindState                         // oncelog: what is durable, and who wrote
	KindLock                          // oncelog: locked by the writer
	KindNext                          // oncelog: prepared next segment
	KindReserve                       // oncelog: space to give up when the disk is full
	KindCursors                       // oncelog: positions of named readers
	KindProducers                     // oncelog: what a snapshot has no room for
	KindCut                           // oncelog: bytes that recovery cut off
	KindBackup                        // oncelog: what a directory is a backup of
	KindUnfinished                    // oncelog: the directory is a backup that was interrupted
	KindIrregular                     // ends like a file of a segment, but does not begin with twenty digits
)

// Suffixes that are added to names. They stack at the end, the last one added last.
const (
	SuffixDeleted = ".deleted" // scheduled for deletion; removed at the next load
	SuffixCleaned = ".cleaned" // output of compaction or of a split, not yet valid
	SuffixSwap    = ".swap"    // complete replacement that waits for its final rename
	SuffixTemp    = ".tmp"     // being written
	SuffixPart    = ".part"    // metadata snapshot being written
)

var suffixes = [...]string{SuffixDeleted, SuffixCleaned, SuffixSwap, SuffixTemp, SuffixPart}

// pattern is one row of the table of names: what stands before, between and after the numbers of a name.
type pattern struct {
	kind   Kind
	prefix string
	widths []int // digits of each number; 0: as many as it takes; numbers are separated by '-'
	ext    string
}

// offsetDigits is how many digits Kafka pads offsets in names to (LogFileUtils.filenamePrefixFromOffset).
const offsetDigits = 20

// patterns is the table of all names, used in both directions.
var patterns = [...]pattern{
	{KindLog, "", []int{offsetDigits}, ".log"},
	{KindOffsetIndex, "", []int{offsetDigits}, ".index"},
	{KindTimeIndex, "", []int{offsetDigits}, ".timeindex"},
	{KindTxnIndex, "", []int{offsetDigits}, ".txnindex"},
	{KindSnapshot, "", []int{offsetDigits}, ".snapshot"},
	{KindMetadataSnapshot, "", []int{offsetDigits, 10}, ".checkpoint"},
	{KindLeaderEpochs, "leader-epoch-checkpoint", nil, ""},
	{KindPartitionMetadata, "partition.metadata", nil, ""},
	{KindState, "oncelog.state", nil, ""},
	{KindLock, "oncelog.lock", nil, ""},
	{KindNext, "oncelog.next", nil, ""},
	{KindReserve, "oncelog.reserve", nil, ""},
	{KindCursors, "oncelog.cursors", nil, ""},
	{KindBackup, "oncelog.backup", nil, ""},
	{KindUnfinished, "oncelog.unfinished", nil, ".log"},
	{KindProducers, "oncelog.producers-", []int{offsetDigits}, ""},
	{KindCut, "oncelog.cut-", []int{offsetDigits, offsetDigits, 0}, ""},
}

// Name is the parsed name of a file in a partition directory. Names are comparable.
type Name struct {
	Kind     Kind
	Offset   int64  // base offset, or the offset of a snapshot; 0 for kinds without one
	Position int64  // KindCut: byte of the log file that the bytes were cut from
	Number   int64  // KindCut: which cut at that place; KindMetadataSnapshot: leader epoch
	Suffix   string // all suffixes in order, for instance ".swap.deleted"; empty for a plain name
}

// HasSuffix tells whether suffix is one of the name's suffixes.
func (n Name) HasSuffix(suffix string) bool {
	for _, s := range n.Suffixes() {
		if s == suffix {
			return true
		}
	}
	return false
}

// Suffixes lists the suffixes in order, nil for a plain name.
func (n Name) Suffixes() []string {
	var list []string
	for rest := n.Suffix; rest != ""; {
		i := strings.IndexByte(rest[1:], '.') + 1
		if i == 0 {
			i = len(rest)
		}
		list = append(list, rest[:i])
		rest = rest[i:]
	}
	return list
}

// String returns the name of the file. It is the inverse of Parse for every name whose numbers are not negative;
// KindUnknown and KindIrregular have no name.
func (n Name) String() string {
	numbers := [...]int64{n.Offset, n.Position, n.Number}
	if n.Kind == KindMetadataSnapshot {
		numbers[1] = n.Number
	}
	for _, p := range &patterns {
		if p.kind != n.Kind {
			continue
		}
		s := p.prefix
		for i, width := range p.widths {
			if i > 0 {
				s += "-"
			}
			s += fmt.Sprintf("%0*d", width, numbers[i])
		}
		return s + p.ext + n.Suffix
	}
	return ""
}

// Path joins the directory and the name.
func (n Name) Path(dir string) string { return filepath.Join(dir, n.String()) }

// FileName returns the plain name of the file of a kind that has an offset and nothing else.
func FileName(kind Kind, offset int64) string { return Name{Kind: kind, Offset: offset}.String() }

// Parse tells what the name, without a directory, stands for. Numbers are ASCII digits padded to their full width; a
// name that a program with another idea of digits or padding wrote is KindIrregular where it ends like a file of a
// segment, and KindUnknown otherwise.
func Parse(name string) Name {
	for i := range patterns {
		if n, ok := patterns[i].parse(name); ok {
			return n
		}
	}
	stem, suffix := cutSuffixes(name)
	for i := range patterns {
		if p := &patterns[i]; p.ext != "" && p.kind != KindMetadataSnapshot && strings.HasSuffix(stem, p.ext) {
			return Name{Kind: KindIrregular, Suffix: suffix}
		}
	}
	return Name{}
}

func (p *pattern) parse(name string) (n Name, ok bool) {
	rest, ok := strings.CutPrefix(name, p.prefix)
	if !ok {
		return Name{}, false
	}
	var numbers [3]int64
	for i, width := range p.widths {
		if i > 0 {
			if rest, ok = strings.CutPrefix(rest, "-"); !ok {
				return Name{}, false
			}
		}
		if numbers[i], rest, ok = number(rest, width); !ok {
			return Name{}, false
		}
	}
	if rest, ok = strings.CutPrefix(rest, p.ext); !ok {
		return Name{}, false
	}
	if stem, _ := cutSuffixes(rest); stem != "" {
		return Name{}, false
	}
	n = Name{Kind: p.kind, Offset: numbers[0], Position: numbers[1], Number: numbers[2], Suffix: rest}
	if p.kind == KindMetadataSnapshot {
		n.Position, n.Number = 0, numbers[1]
	}
	return n, true
}

// number takes a number off the front of s: exactly width digits, or for width 0 all digits, without leading zeros.
func number(s string, width int) (v int64, rest string, ok bool) {
	digits := 0
	for digits < len(s) && s[digits] >= '0' && s[digits] <= '9' {
		digits++
	}
	if digits == 0 || width == 0 && s[0] == '0' && digits > 1 || width > 0 && digits != width {
		return 0, "", false
	}
	u, err := strconv.ParseUint(s[:digits], 10, 64)
	if err != nil || u > math.MaxInt64 {
		return 0, "", false
	}
	return int64(u), s[digits:], true
}

// cutSuffixes splits the known suffixes off the end of a name.
func cutSuffixes(name string) (stem, suffix string) {
	stem = name
again:
	for _, s := range &suffixes {
		if strings.HasSuffix(stem, s) {
			stem = stem[:len(stem)-len(s)]
			goto again
		}
	}
	return stem, name[len(stem):]
}

// KafkaOffset returns the offset that Kafka takes a name for: what stands before the first dot, as a signed number of any
// width (LogFileUtils.offsetFromFileName). Its clean-up of interrupted replacements deletes by this number. It returns
// false where Kafka ignores the name or fails to load.
func KafkaOffset(name string) (int64, bool) {
	digits, _, ok := strings.Cut(name, ".")
	if !ok {
		return 0, false
	}
	v, err := strconv.ParseInt(digits, 10, 64)
	return v, err == nil
}
