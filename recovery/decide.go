package recovery

import (
	"fmt"
	"strings"
)

// Writer says who changed the directory last.
type Writer uint8

// The two writers that recovery tells apart.
const (
	Us      Writer = iota // the newest state slot speaks of the directory as it is
	Another               // another program, or nobody that left a state slot
)

// SyncMode is the durability mode that the last writer of ours promised; see the package wal.
type SyncMode uint8

// The durability modes.
const (
	SyncCommit SyncMode = iota // acknowledged means on disk
	SyncInterval
	SyncNone
)

// String returns the name of the mode.
func (m SyncMode) String() string {
	switch m {
	case SyncCommit:
		return "SyncCommit"
	case SyncInterval:
		return "SyncInterval"
	case SyncNone:
		return "SyncNone"
	}
	return fmt.Sprintf("SyncMode(%d)", uint8(m))
}

// Rest says what a segment holds from a byte P on, where P is the end of the last good batch.
type Rest uint8

// What may follow the last good batch inside its segment.
const (
	RestNothing   Rest = iota // the file ends at P
	RestZeros                 // nothing but zeros up to the end of the file
	RestGarbage               // other bytes, and no plausible batch among them
	RestPlausible             // other bytes, and a plausible batch behind them
)

// Later says whether segments follow the one with P.
type Later uint8

// What may follow the segment with P.
const (
	LaterNone      Later = iota
	LaterFollows         // the next segment starts where the log stops at P, or above it where gaps are legal
	LaterMisplaced       // the next segment starts elsewhere: batches are missing, or there twice
)

// Facts is all that a verdict depends on. It describes the place P where a scan of the log stopped: the end of the
// last good batch of a segment.
type Facts struct {
	Writer   Writer
	SameBoot bool     // Us: the page cache of the last writer is still the present one
	Mode     SyncMode // Us
	Cutting  bool     // Us: a truncation was under way
	Untrue   bool     // Us: a sync had failed, or reading past the page cache gave other bytes
	Below    bool     // P lies below the durable end (Us), or below Kafka's recovery point (Another)
	Rest     Rest
	Beyond   bool // Us: a byte other than zero lies where the write that was interrupted at P cannot have put one
	Later    Later
}

// Verdict is what the facts say about the bytes from P on.
type Verdict uint8

// The verdicts.
const (
	End          Verdict = iota // the log ends here, nothing is left over
	Continue                    // the segment ends here, go on with the next one
	TrimContinue                // zeros that no roll took away: cut them, go on with the next segment
	Trim                        // zeros at the end of the log: cut them
	Cut                         // the torn end of the last write: keep a copy, cut it
	CutLater                    // data that was never synced, later segments included: keep a copy, cut it
	Damage                      // bytes were lost or changed that had been promised: do not guess
)

var verdictNames = [...]string{"end", "continue", "trim, continue", "trim", "cut", "cut with later segments", "damage"}

// String returns the verdict in words.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("Verdict(%d)", uint8(v))
}

// tri is a condition on a fact that is either of two values.
type tri uint8

const (
	any2 tri = iota
	yes
	no
)

func (t tri) holds(b bool) bool { return t == any2 || (t == yes) == b }

// set is a condition on a fact of several values: the allowed ones as bits, zero for all.
type set uint8

func (s set) holds(v uint8) bool { return s == 0 || s&(1<<v) != 0 }

func rests(rs ...Rest) (s set) {
	for _, r := range rs {
		s |= 1 << r
	}
	return s
}

func laters(ls ...Later) (s set) {
	for _, l := range ls {
		s |= 1 << l
	}
	return s
}

// row is one line of the table: the facts it asks for, the verdict, and why.
type row struct {
	name     string
	writer   set
	unsynced tri // Mode is not SyncCommit
	trusted  tri // SameBoot and not Untrue: what was written is what is read
	cutting  tri
	below    tri
	rest     set
	beyond   tri
	later    set
	verdict  Verdict
	why      string
}

func (r *row) matches(f Facts) bool {
	return r.writer.holds(uint8(f.Writer)) &&
		r.unsynced.holds(f.Mode != SyncCommit) &&
		r.trusted.holds(f.SameBoot && !f.Untrue) &&
		r.cutting.holds(f.Cutting) &&
		r.below.holds(f.Below) &&
		r.rest.holds(uint8(f.Rest)) &&
		r.beyond.holds(f.Beyond) &&
		r.later.holds(uint8(f.Later))
}

const (
	byUs      set = 1 << Us
	byAnother set = 1 << Another
)

// table is the recovery table. The first row that matches decides, so each row may rely on those above it.
//
// The order carries the argument: what needs no guess comes first, then what was promised to be there, then what each
// writer can have left behind. A kill leaves the page cache whole, so a hole can only come from a power cut; in
// SyncCommit a group begins only when the one before it is on disk, so nothing can lie further behind P than one group.
var table = []row{
	{name: "segment ends where the next one starts",
		rest: rests(RestNothing), later: laters(LaterFollows), verdict: Continue,
		why: "no byte is missing and none is left over"},
	{name: "zeros before the next segment",
		rest: rests(RestZeros), later: laters(LaterFollows), verdict: TrimContinue,
		why: "space that was reserved ahead and that a roll had no time to cut"},
	{name: "below the promised end",
		below: yes, verdict: Damage,
		why: "these bytes were reported durable, so something changed them later"},
	{name: "log ends",
		rest: rests(RestNothing), later: laters(LaterNone), verdict: End,
		why: "no byte is left over"},
	{name: "zeros at the end of the log",
		rest: rests(RestZeros), later: laters(LaterNone), verdict: Trim,
		why: "space that was reserved ahead, or bytes of an append that never reached the disk"},
	{name: "synced writer, interrupted cut",
		writer: byUs, unsynced: no, cutting: yes, verdict: CutLater,
		why: "a truncation was under way: what lies behind was to be removed"},
	{name: "synced writer, torn group",
		writer: byUs, unsynced: no, beyond: no, later: laters(LaterNone), verdict: Cut,
		why: "one group was being written; nothing can lie further behind, as the next one waits for its sync"},
	{name: "synced writer, more than one group behind",
		writer: byUs, unsynced: no, verdict: Damage,
		why: "bytes behind the first bad one were written after it had been synced"},
	{name: "unsynced writer, same boot, torn append",
		writer: byUs, unsynced: yes, trusted: yes, rest: rests(RestGarbage), beyond: no, later: laters(LaterNone), verdict: Cut,
		why: "the process ended inside an append; the page cache keeps everything before it"},
	{name: "unsynced writer, same boot, batches behind a hole",
		writer: byUs, unsynced: yes, trusted: yes, verdict: Damage,
		why: "the end of a process leaves no hole, so something changed the bytes later"},
	{name: "unsynced writer, cache lost",
		writer: byUs, unsynced: yes, verdict: CutLater,
		why: "nothing from here on had been synced, and the disk keeps such bytes in any order"},
	{name: "another writer, torn tail",
		writer: byAnother, rest: rests(RestGarbage), later: laters(LaterNone), verdict: Cut,
		why: "the last append of the other program was not finished"},
	{name: "another writer, batches behind a hole",
		writer: byAnother, verdict: Damage,
		why: "what the other program had promised is not known here, so nothing is guessed"},
}

// Decide returns the verdict for the facts and the name of the row of the table that gave it.
func Decide(f Facts) (Verdict, string) {
	r := decide(f)
	return r.verdict, r.name
}

func decide(f Facts) *row {
	for i := range table {
		if table[i].matches(f) {
			return &table[i]
		}
	}
	// A test proves that this is not reached; the strictest verdict is the only safe one if it ever were.
	return &row{name: "no row", verdict: Damage, why: "the table has no row for these facts"}
}

// Policy says what an open may do about bytes that are not a whole log.
type Policy uint8

// The policies, from the most careful to the most yielding.
const (
	// TolerateTornTail cuts what an interrupted write left behind and refuses damage. It is the default.
	TolerateTornTail Policy = iota
	// Strict refuses to open for writing whenever there is a byte to cut that is not a zero.
	Strict
	// PointInTime cuts at the first bad byte and removes every later segment, as Kafka does, but keeps a copy of all it cuts.
	PointInTime
)

// String returns the name of the policy.
func (p Policy) String() string {
	switch p {
	case TolerateTornTail:
		return "TolerateTornTail"
	case Strict:
		return "Strict"
	case PointInTime:
		return "PointInTime"
	}
	return fmt.Sprintf("Policy(%d)", uint8(p))
}

// refuses tells whether the policy keeps an open for writing from going on after the verdict.
func (p Policy) refuses(v Verdict) bool {
	switch p {
	case Strict:
		return v == Cut || v == CutLater || v == Damage
	case PointInTime:
		return false
	}
	return v == Damage
}

// String lists the facts in words, for reports and failing tests.
func (f Facts) String() string {
	var w []string
	if f.Writer == Us {
		w = append(w, "we wrote", f.Mode.String())
		w = append(w, pick(f.SameBoot, "same boot", "another boot"))
		if f.Cutting {
			w = append(w, "cutting")
		}
		if f.Untrue {
			w = append(w, "a sync had failed")
		}
	} else {
		w = append(w, "another program wrote")
	}
	w = append(w, pick(f.Below, "below the promised end", "above the promised end"))
	w = append(w, [...]string{"nothing follows", "zeros follow", "garbage follows", "a plausible batch follows"}[f.Rest])
	if f.Beyond {
		w = append(w, "beyond one write")
	}
	w = append(w, [...]string{"no later segment", "next segment fits", "next segment does not fit"}[f.Later])
	return strings.Join(w, ", ")
}

func pick(b bool, yes, no string) string {
	if b {
		return yes
	}
	return no
}
