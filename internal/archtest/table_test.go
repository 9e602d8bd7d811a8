package archtest

// anything allows a package every import.
const anything = "*"

// edges says which packages of ours the files of a package may import, tests aside. Nothing imports upward or sideways.
// A package that is not here has no place in the module yet; one that is here need not exist. internal/invariants may
// be imported by all but record, which imports nothing of ours.
var edges = map[string][]string{
	"record":        {},
	"index":         {"internal/vfs"},
	"segment":       {"record", "index", "internal/vfs"},
	"producerstate": {"record", "internal/vfs"},
	"recovery": {
		"segment", "producerstate", "record", "index",
		"internal/vfs", "internal/checkpoint", "internal/leaderepoch", "internal/kafkadir",
	},
	"wal": {
		"recovery", "segment", "producerstate", "record", "index",
		"internal/vfs", "internal/checkpoint", "internal/leaderepoch", "internal/kafkadir", "internal/cleaner",
		"internal/dump", "internal/verify",
	},
	"logdir": {
		"wal", "recovery", "segment", "producerstate", "record", "index",
		"internal/vfs", "internal/checkpoint", "internal/leaderepoch", "internal/kafkadir", "internal/cleaner",
	},

	"internal/vfs":         {},
	"internal/vfs/vfstest": {"internal/vfs"},
	"internal/checkpoint":  {"internal/vfs"},
	"internal/leaderepoch": {"internal/checkpoint", "internal/vfs"},
	"internal/kafkadir":    {"internal/checkpoint", "internal/vfs"},
	"internal/cleaner":     {"segment", "record", "index", "internal/vfs"},
	"internal/dump": {
		"segment", "record", "internal/vfs", "internal/checkpoint", "internal/leaderepoch", "internal/kafkadir",
	},
	"internal/verify": {
		"recovery", "segment", "producerstate", "record",
		"internal/vfs", "internal/checkpoint", "internal/leaderepoch", "internal/dump",
	},
	"internal/invariants": {},
	"internal/archtest":   {},
	"internal/script":     {},
	"internal/kafkatest":  {"internal/checkpoint", "internal/kafkadir", "internal/vfs"},

	"cmd/logtool": {anything},
	"bench":       {anything},
	"interop":     {anything},
}

// testSupport are packages that only tests may import, and packages of this list.
var testSupport = []string{"internal/vfs/vfstest", "internal/kafkatest", "internal/script", "interop"}

// library tells the packages that a user's program links from tools and test support. Only they are held to the short
// list of modules, to having no file system and no clock but those that they are given.
func library(pkg string) bool {
	switch pkg {
	case "cmd/logtool", "bench", "interop", "internal/vfs/vfstest", "internal/kafkatest", "internal/archtest", "internal/script":
		return false
	}
	return true
}

// public tells the packages whose exported names users see.
func public(pkg string) bool {
	switch pkg {
	case "record", "index", "segment", "producerstate", "recovery", "wal", "logdir", "interop":
		return true
	}
	return false
}

// modules says which packages may import from a foreign module, tests aside. The library packages import from no other.
var modules = map[string][]string{
	"golang.org/x/sys":              {"internal/vfs", "cmd/logtool", "interop"},
	"github.com/edsrzf/mmap-go":     {"internal/vfs"},
	"github.com/klauspost/compress": {"record"},
	"github.com/pierrec/lz4/v4":     {"record"},
	"github.com/cespare/xxhash/v2": {
		"producerstate", "recovery", "wal", "logdir", "cmd/logtool",
	},
	"github.com/spf13/cobra":       {"cmd/logtool"},
	"github.com/vbauerster/mpb/v8": {"cmd/logtool"},
	"golang.org/x/term":            {"cmd/logtool"},
}

// testModules are modules that only tests and test support may import, anywhere.
var testModules = []string{
	"pgregory.net/rapid", "github.com/google/go-cmp", "go.uber.org/goleak", "github.com/anishathalye/porcupine",
}

// banned are packages of the standard library that nothing imports, with the reason.
var banned = map[string]string{
	"math/rand": "use math/rand/v2 with a printed seed",
	"io/ioutil": "it is deprecated",
	"C":         "the module builds without cgo",
}

// osUsers are the library packages that may use package os. The others see files through internal/vfs, where tests
// can take the power away; the O_ flags of OpenFile are all that they may name of it.
var osUsers = []string{"internal/vfs"}

// Limits of the length of a file, in lines.
const (
	maxSourceLines = 600
	maxTestLines   = 900
)
