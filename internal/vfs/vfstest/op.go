package vfstest

import "fmt"

// Kind names an operation of a file system, a file or a mapping.
type Kind uint8

// The kinds of operations. An open that may create or cut a file is OpCreate, any other is OpOpen.
const (
	OpOpen       Kind = iota // FS.OpenFile
	OpCreate                 // FS.OpenFile with O_CREATE or O_TRUNC
	OpStat                   // FS.Stat
	OpReadDir                // FS.ReadDir
	OpRemove                 // FS.Remove
	OpRename                 // FS.Rename: Path is the old name, To the new one
	OpSetModTime             // FS.SetModTime
	OpMkdirAll               // FS.MkdirAll
	OpSyncDir                // FS.SyncDir
	OpLock                   // FS.Lock: Off and N are the range
	OpUnlock                 // Close of what FS.Lock returned
	OpBootID                 // FS.BootID
	OpRead                   // File.ReadAt: N is the length of the buffer
	OpWrite                  // File.WriteAt: N is the length of the buffer
	OpClose                  // File.Close
	OpFileStat               // File.Stat
	OpTruncate               // File.Truncate: N is the size
	OpAllocate               // File.Allocate: N is the size
	OpSyncData               // File.SyncData
	OpSync                   // File.Sync
	OpDropCache              // File.DropCache: Off and N are the range
	OpMap                    // File.Map: N is the length
	OpFlush                  // Mapping.Flush: N is the length
	OpUnmap                  // Mapping.Close: N is the length

	kinds // how many there are
)

// kindInfo describes a kind. A kind writes if the operation may change what is stored, seen or locked.
type kindInfo struct {
	name   string
	method string // the method of vfs that it stands for
	writes bool
}

var kindTable = [kinds]kindInfo{
	OpOpen:       {"open", "FS.OpenFile", false},
	OpCreate:     {"create", "FS.OpenFile", true},
	OpStat:       {"stat", "FS.Stat", false},
	OpReadDir:    {"readdir", "FS.ReadDir", false},
	OpRemove:     {"remove", "FS.Remove", true},
	OpRename:     {"rename", "FS.Rename", true},
	OpSetModTime: {"chtimes", "FS.SetModTime", true},
	OpMkdirAll:   {"mkdir", "FS.MkdirAll", true},
	OpSyncDir:    {"syncdir", "FS.SyncDir", true},
	OpLock:       {"lock", "FS.Lock", true},
	OpUnlock:     {"unlock", "Closer.Close", true},
	OpBootID:     {"bootid", "FS.BootID", false},
	OpRead:       {"read", "File.ReadAt", false},
	OpWrite:      {"write", "File.WriteAt", true},
	OpClose:      {"close", "File.Close", false},
	OpFileStat:   {"fstat", "File.Stat", false},
	OpTruncate:   {"truncate", "File.Truncate", true},
	OpAllocate:   {"allocate", "File.Allocate", true},
	OpSyncData:   {"syncdata", "File.SyncData", true},
	OpSync:       {"sync", "File.Sync", true},
	OpDropCache:  {"dropcache", "File.DropCache", false},
	OpMap:        {"map", "File.Map", false},
	OpFlush:      {"flush", "Mapping.Flush", true},
	OpUnmap:      {"unmap", "Mapping.Close", false},
}

// String returns the kind's name.
func (k Kind) String() string {
	if k < kinds {
		return kindTable[k].name
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Writes says whether the operation may change what is stored, which names there are, or who holds a lock. A sync
// writes; closing a file or a mapping and dropping the cache do not.
func (k Kind) Writes() bool { return k < kinds && kindTable[k].writes }

// Op is one operation.
type Op struct {
	Kind Kind
	Path string
	To   string // new name of OpRename
	Off  int64
	N    int64
}

// String returns the operation in one line, for failure messages.
func (o Op) String() string {
	if o.Kind == OpRename {
		return fmt.Sprintf("rename %s %s", o.Path, o.To)
	}
	return fmt.Sprintf("%s %s [%d +%d]", o.Kind, o.Path, o.Off, o.N)
}

// Filter chooses operations. A nil Filter chooses all.
type Filter func(Op) bool

func (f Filter) match(o Op) bool { return f == nil || f(o) }

// Writes chooses the operations that write.
func Writes(o Op) bool { return o.Kind.Writes() }

// Reads chooses the operations that do not write.
func Reads(o Op) bool { return !o.Kind.Writes() }

// Kinds chooses the operations of the given kinds.
func Kinds(list ...Kind) Filter {
	var set [kinds]bool
	for _, k := range list {
		set[k] = true
	}
	return func(o Op) bool { return set[o.Kind] }
}
