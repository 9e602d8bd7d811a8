package interop

import "path/filepath"

// OpenRequest says how Kafka is to load a directory.
type OpenRequest struct {
	// Dir is the partition directory. Kafka takes topic and partition from its
	// name (topic-0); a copy of a directory named otherwise is called t-0.
	Dir string `json:"dir"`

	// InPlace works on Dir itself. Otherwise on a copy, and Dir stays as it is.
	InPlace bool `json:"inPlace"`

	// Clean is what Kafka makes of its marker file: the last stop was a clean one, nothing needs recovery.
	Clean bool `json:"clean"`

	// RecoveryPoint and LogStart are this partition's lines in the checkpoint files of the log directory; 0 is no line.
	RecoveryPoint int64 `json:"recoveryPoint"`
	LogStart      int64 `json:"logStart"`

	// Stop ends with the steps of a clean stop (final index entries, flush,
	// snapshot). Otherwise the log is thrown away as by a crash.
	Stop bool `json:"stop"`

	// KeepDeleted leaves renamed segments (*.deleted) in place, as they are found
	// within a minute of a load. Otherwise they are unlinked, as afterwards.
	KeepDeleted bool `json:"keepDeleted"`

	// Digests asks for the contents of files in short, see [File].
	Digests bool `json:"digests"`

	// Clock is Kafka's time in milliseconds since 1970; 0 is a fixed day in November 2023.
	Clock int64 `json:"clock,omitempty"`

	Settings Settings `json:"settings"`
}

// Opened is what came of loading a directory.
type Opened struct {
	// Loaded is false when Kafka refused the directory, or failed in a later step; Failure says how.
	Loaded  bool   `json:"loaded"`
	Failure *Error `json:"failure"`

	// Log is the log after loading. Its high watermark is that of a fresh load
	// (the log start); the last stable offset is what it would be with all records replicated.
	Log

	// Stopped is what the clean stop would have written to the checkpoint files, nil without one.
	Stopped *Checkpoint `json:"stopped"`

	// Deleted are the files that loading renamed to be unlinked later, sorted.
	Deleted []string `json:"deleted"`

	// Files are those left at the very end, sorted by name.
	Files []File `json:"files"`
}

// Open loads a directory with Kafka's loader and tells what came of it. A
// directory that Kafka refuses is an answer with Loaded false, not an error.
func (d *Driver) Open(r OpenRequest) (*Opened, error) {
	var err error
	if r.Dir, err = filepath.Abs(r.Dir); err != nil {
		return nil, err
	}
	var out Opened
	if err := d.p.call("open", 0, r, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// Usage is what the Java process holds. All numbers stay level over any number of requests.
type Usage struct {
	OpenFiles int64 `json:"openFiles"` // -1 where the platform does not tell
	Maps      int64 `json:"maps"`      // mapped index files
	Metrics   int64 `json:"metrics"`   // registered gauges and meters
}

// Usage asks for the present numbers.
func (d *Driver) Usage() (Usage, error) {
	var out Usage
	err := d.p.call("handles", 0, nil, &out)
	return out, err
}
