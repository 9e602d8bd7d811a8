package kafkatest

import (
	"encoding/json"
	"fmt"
)

// Start is what came of a broker's start on a copy of a fixture, and of its clean stop after that: the files are those
// after both.
type Start struct {
	How    string
	Note   string
	Failed bool // the broker did not start, or did not load the partition

	ErrorLines []string // what it said when it did not start

	// DirectoryRenamedTo is where the broker set the directory aside and started an empty one; empty if it did not.
	DirectoryRenamedTo string

	Offsets []Offsets // what the broker told between start and stop

	Files        []File // nil if only the differences are known
	RemovedFiles []string
	NewFiles     []string
	ChangedFiles []ChangedFile

	// Loader tells what the loader did, by the name of the partition directory and then by the kind of message.
	Loader map[string]map[string]LoaderLines

	Checkpoints *Checkpoints

	Dumps map[string]*Dump // by the name of the partition directory

	Consumer *Consumer // what a consumer read, read uncommitted
}

// ChangedFile is a file that is there before and after.
type ChangedFile struct {
	Path       string `json:"path"`
	SizeBefore int64  `json:"sizeBefore"`
	SizeAfter  int64  `json:"sizeAfter"`
}

// LoaderLines are the messages of one kind: how many, and the offsets in them.
type LoaderLines struct {
	Lines   int     `json:"lines"`
	Offsets []int64 `json:"offsets"`
}

// Consumer is what a consumer read from a partition.
type Consumer struct {
	ReachedEnd     bool           `json:"reachedEnd"`
	Records        int64          `json:"records"`
	FirstOffset    int64          `json:"firstOffset"`
	LastOffset     int64          `json:"lastOffset"`
	TimestampTypes map[string]int `json:"timestampTypes"` // number of records by type; "none" has no timestamp
}

// startDocument is the JSON of a Start as it is written.
type startDocument struct {
	How                string          `json:"how"`
	Note               string          `json:"note"`
	BrokerStarted      *bool           `json:"brokerStarted"`
	Loaded             *bool           `json:"loaded"`
	ErrorLines         []string        `json:"errorLines"`
	DirectoryRenamedTo string          `json:"directoryRenamedTo"`
	Offsets            []Offsets       `json:"offsets"`
	Files              []File          `json:"files"`
	RemovedFiles       []string        `json:"removedFiles"`
	NewFiles           []string        `json:"newFiles"`
	ChangedFiles       []ChangedFile   `json:"changedFiles"`
	Loader             json.RawMessage `json:"loader"`
	Checkpoints        *Checkpoints    `json:"checkpoints"`
	Dump               json.RawMessage `json:"dump"`
	Consumer           *Consumer       `json:"consumer"`
}

func (d *startDocument) decode(kind string) (*Start, error) {
	if d == nil {
		return nil, nil
	}
	s := &Start{
		How: d.How, Note: d.Note, ErrorLines: d.ErrorLines, DirectoryRenamedTo: d.DirectoryRenamedTo, Offsets: d.Offsets,
		Failed: d.BrokerStarted != nil && !*d.BrokerStarted || d.Loaded != nil && !*d.Loaded,
		Files:  d.Files, RemovedFiles: d.RemovedFiles, NewFiles: d.NewFiles, ChangedFiles: d.ChangedFiles,
		Checkpoints: d.Checkpoints, Consumer: d.Consumer,
	}
	var err error
	if s.Dumps, err = decodeDumps(kind, d.Dump); err != nil {
		return nil, err
	}
	if kind == KindLogDir {
		return s, strict(d.Loader, &s.Loader)
	}
	var lines map[string]LoaderLines
	if err := strict(d.Loader, &lines); err != nil {
		return nil, fmt.Errorf("loader: %w", err)
	}
	for dir := range s.Dumps {
		s.Loader = map[string]map[string]LoaderLines{dir: lines}
	}
	return s, nil
}

// decodeDumps reads the dump of a partition, or the dumps of a log directory by the names of its directories.
func decodeDumps(kind string, p []byte) (map[string]*Dump, error) {
	dumps := map[string]*Dump{}
	if kind == KindLogDir {
		return dumps, strict(p, &dumps)
	}
	var d Dump
	if err := strict(p, &d); err != nil {
		return nil, fmt.Errorf("dump: %w", err)
	}
	dumps[d.Dir] = &d
	return dumps, nil
}
