package kafkatest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// The kinds of a fixture.
const (
	// KindPartition is one partition directory.
	KindPartition = "partition"

	// KindLogDir is a whole log directory.
	KindLogDir = "logdir"
)

// Fixture is a directory that a Kafka broker wrote, and what is known about it. It is shared and must not be changed.
type Fixture struct {
	Name         string
	KafkaVersion string            // of the broker, such as "4.4.0"
	Mode         string            // "KRaft" or "ZooKeeper"; empty means KRaft
	Kind         string            // KindPartition or KindLogDir
	How          string            // what it is, in words
	Config       map[string]string // topic settings
	BrokerConfig map[string]string // broker settings that matter
	Script       []string          // commands to the program that produced

	// WrittenFirstBy is the version of an older broker that wrote the directory before KafkaVersion went on with it.
	WrittenFirstBy string

	// Checkpoints are the partition's entries in the files of its log directory. Only for KindPartition: a log directory
	// brings its own files.
	Checkpoints *Checkpoints

	// CleanShutdown tells whether the clean shutdown marker was there.
	CleanShutdown bool

	Files []File

	// Dumps tells what Kafka's classes read in each partition directory, by the directory's name.
	Dumps map[string]*Dump

	Answers []Answer // what the broker answered to the commands

	// Offsets and OffsetsBefore are what the running broker told before it was stopped; OffsetsBefore, where there is
	// damage, before that was done.
	Offsets, OffsetsBefore []Offsets

	// DamageDone is exactly what was changed by hand after the broker had gone.
	DamageDone []DamageDone

	// AfterKafkaStart is what a broker of KafkaVersion made of the directory, nil if none was started on it.
	AfterKafkaStart *Start

	// OpenedBy44 is what a 4.4.0 broker made of the partition of an older broker, nil if none was started on it.
	OpenedBy44 *Start

	// AnswersAfterRestart are the answers to ScriptAfterRestart, sent to the restarted broker.
	ScriptAfterRestart  []string
	AnswersAfterRestart []Answer

	// Consumer is what a 4.4.0 consumer read from a partition that KafkaVersion took over from an older broker.
	Consumer *Consumer

	Runs []Run // where the broker was started several times

	entries []Entry // what the archive holds
	top     string  // the directory at its top
}

// Checkpoints are the entries of one partition in the text files of its log directory. A nil one has no line.
type Checkpoints struct {
	CleanShutdownMarker bool   `json:"cleanShutdownMarker"`
	RecoveryPoint       *int64 `json:"recoveryPoint"`
	LogStartOffset      *int64 `json:"logStartOffset"`
	HighWatermark       *int64 `json:"highWatermark"`
	CleanerOffset       *int64 `json:"cleanerOffset"`
}

// File is one file of a directory.
type File struct {
	Path   string `json:"path"` // with slashes, from the directory at the top of the archive
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // hexadecimal
}

// Offsets are what a broker tells about a partition.
type Offsets struct {
	Topic            string `json:"topic"`
	Partition        int32  `json:"partition"`
	LogStartOffset   int64  `json:"logStartOffset"`
	LogEndOffset     int64  `json:"logEndOffset"`
	LastStableOffset int64  `json:"lastStableOffset"`
}

// FixtureNames lists the fixtures that EachFixture walks over.
func FixtureNames(t testing.TB) []string {
	t.Helper()
	names, err := fixtureSource.names(".tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// EachFixture runs f as a subtest for each fixture of the directory that ONCELOG_FIXTURES names, or else for each of
// those that the package carries.
func EachFixture(t *testing.T, f func(t *testing.T, x *Fixture)) {
	t.Helper()
	for _, name := range FixtureNames(t) {
		t.Run(name, func(t *testing.T) { f(t, LoadFixture(t, name)) })
	}
}

// fixtures holds what was loaded in this process, a func() (*Fixture, error) by name.
var fixtures sync.Map

// LoadFixture returns one fixture. If the package does not carry it and the environment names no directory of fixtures,
// the test is skipped. Fixtures are read once in a process.
func LoadFixture(t testing.TB, name string) *Fixture {
	t.Helper()
	load, _ := fixtures.LoadOrStore(name, sync.OnceValues(func() (*Fixture, error) { return readFixture(name) }))
	x, err := load.(func() (*Fixture, error))()
	if err != nil {
		fixtureSource.unavailable(t, err)
	}
	return x
}

func readFixture(name string) (*Fixture, error) {
	doc, err := fixtureSource.read(name, ".json", ".json.gz")
	if err != nil {
		return nil, err
	}
	x, err := decodeFixture(doc)
	if err != nil {
		return nil, fmt.Errorf("fixture %s: %w", name, err)
	}
	archive, err := fixtureSource.read(name, ".tar.gz")
	if err != nil {
		return nil, err
	}
	if x.top, x.entries, err = readArchive(archive); err != nil {
		return nil, fmt.Errorf("fixture %s: %w", name, err)
	}
	return x, nil
}

// document is the JSON of a fixture as it is written.
type document struct {
	Name                string            `json:"name"`
	KafkaVersion        string            `json:"kafkaVersion"`
	Mode                string            `json:"mode"`
	Kind                string            `json:"kind"`
	How                 string            `json:"how"`
	Config              map[string]string `json:"config"`
	BrokerConfig        map[string]string `json:"brokerConfig"`
	Script              []string          `json:"script"`
	WrittenFirstBy      string            `json:"writtenFirstBy"`
	Checkpoints         *Checkpoints      `json:"checkpoints"`
	CleanShutdownMarker bool              `json:"cleanShutdownMarker"`
	Files               []File            `json:"files"`
	Dump                json.RawMessage   `json:"dump"`
	Answers             []Answer          `json:"answers"`
	Offsets             []Offsets         `json:"offsets"`
	OffsetsBefore       []Offsets         `json:"offsetsBefore"`
	DamageDone          oneOrMany         `json:"damageDone"`
	AfterKafkaStart     *startDocument    `json:"afterKafkaStart"`
	OpenedBy44          *startDocument    `json:"openedBy44"`
	ScriptAfterRestart  []string          `json:"scriptAfterRestart"`
	AnswersAfterRestart []Answer          `json:"answersAfterRestart"`
	Consumer            *Consumer         `json:"consumer"`
	Loader              json.RawMessage   `json:"loader"` // of a start whose outcome is the fixture itself
	Runs                []Run             `json:"runs"`
}

func decodeFixture(p []byte) (*Fixture, error) {
	var d document
	if err := strict(p, &d); err != nil {
		return nil, err
	}
	x := &Fixture{
		Name: d.Name, KafkaVersion: d.KafkaVersion, Mode: d.Mode, Kind: d.Kind, How: d.How,
		Config: d.Config, BrokerConfig: d.BrokerConfig, Script: d.Script, WrittenFirstBy: d.WrittenFirstBy,
		Checkpoints: d.Checkpoints, CleanShutdown: d.CleanShutdownMarker, Files: d.Files,
		Answers: d.Answers, Offsets: d.Offsets, OffsetsBefore: d.OffsetsBefore, DamageDone: d.DamageDone,
		ScriptAfterRestart: d.ScriptAfterRestart, AnswersAfterRestart: d.AnswersAfterRestart,
		Consumer: d.Consumer, Runs: d.Runs,
	}
	switch {
	case x.Kind != KindPartition && x.Kind != KindLogDir:
		return nil, fmt.Errorf("kind %q", x.Kind)
	case x.Kind == KindPartition && x.Checkpoints == nil:
		return nil, fmt.Errorf("no checkpoints")
	case x.Kind == KindPartition:
		x.CleanShutdown = x.Checkpoints.CleanShutdownMarker
	}
	var err error
	if x.Dumps, err = decodeDumps(x.Kind, d.Dump); err != nil {
		return nil, err
	}
	if x.AfterKafkaStart, err = d.AfterKafkaStart.decode(x.Kind); err != nil {
		return nil, err
	}
	x.OpenedBy44, err = d.OpenedBy44.decode(x.Kind)
	return x, err
}

// Partition is the dump of the only partition directory of a fixture of KindPartition.
func (x *Fixture) Partition() *Dump { return x.Dumps[x.top] }

// LastTimestamp is the greatest time that anything in the directory carries, in milliseconds since 1970: a time at which
// no producer in it has expired. It is 0 for a directory without records.
func (x *Fixture) LastTimestamp() int64 {
	var last int64
	for _, d := range x.Dumps {
		for _, s := range d.Segments {
			for _, b := range s.Batches {
				last = max(last, b.MaxTimestamp)
			}
		}
		for _, s := range d.Snapshots {
			for _, e := range s.Entries {
				last = max(last, e.Timestamp)
			}
		}
	}
	return last
}

// older reports whether the broker's version is below major.minor.
func (x *Fixture) older(major, minor int) bool {
	var a, b int
	if _, err := fmt.Sscanf(x.KafkaVersion, "%d.%d.", &a, &b); err != nil {
		panic(fmt.Sprintf("fixture %s: version %q", x.Name, x.KafkaVersion))
	}
	return a < major || a == major && b < minor
}

// strict decodes JSON and refuses fields that v does not have, so that nothing a fixture tells is overlooked.
func strict(p []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(p))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if rest := strings.TrimSpace(string(p[dec.InputOffset():])); rest != "" {
		return fmt.Errorf("text behind the document: %.20q", rest)
	}
	return nil
}
