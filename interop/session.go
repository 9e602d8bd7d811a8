package interop

import "path/filepath"

// SessionRequest says which log a session is to load, and how; always in place.
// The fields mean what they mean in [OpenRequest].
type SessionRequest struct {
	Dir           string   `json:"dir"`
	Clean         bool     `json:"clean"`
	RecoveryPoint int64    `json:"recoveryPoint"`
	LogStart      int64    `json:"logStart"`
	Clock         int64    `json:"clock,omitempty"`
	Settings      Settings `json:"settings"`

	// HoldJobs keeps background tasks (the flush after a roll, unlinking, the epoch
	// checkpoint) until [Session.RunJobs]. Otherwise they run after each request
	// as far as they are due.
	HoldJobs bool `json:"holdJobs"`
}

// Session is a log of Kafka's that stays open between requests.
type Session struct {
	d     *Driver
	id    int
	ended bool
}

// Result is what most requests of a session answer: the offsets afterwards, and
// what the request did. Fields that a request has nothing to say about are zero.
type Result struct {
	Offsets
	Base            int64    `json:"base"`            // Roll: of the new segment
	Changed         bool     `json:"changed"`         // Truncate, DeleteRecords; HasLateTransaction: there is one
	DeletedSegments int      `json:"deletedSegments"` // Retention
	Ran             []string `json:"ran"`             // RunJobs: names of the tasks
}

// OpenSession loads a log and keeps it open. A session still open at the end of the test is thrown away.
func (d *Driver) OpenSession(r SessionRequest) (*Session, Offsets, error) {
	var err error
	if r.Dir, err = filepath.Abs(r.Dir); err != nil {
		return nil, Offsets{}, err
	}
	var out struct {
		Offsets
		Session int `json:"session"`
	}
	if err := d.p.call("session-open", 0, r, &out); err != nil {
		return nil, Offsets{}, err
	}
	s := &Session{d: d, id: out.Session}
	d.t.Cleanup(func() {
		if !s.ended && d.p.alive() {
			if err := s.Crash(); err != nil {
				d.t.Errorf("end of session: %v", err)
			}
		}
	})
	return s, out.Offsets, nil
}

// Close takes the steps of a broker's clean stop and ends the session, also when one of them fails.
func (s *Session) Close() (Checkpoint, error) {
	var out Checkpoint
	s.ended = true
	err := s.call("close", nil, &out)
	return out, err
}

// Crash ends the session without another write: the files stay as they are, indexes with their preallocated rest.
func (s *Session) Crash() error {
	s.ended = true
	return s.call("crash", nil, nil)
}

// Roll starts a new segment at the log end.
func (s *Session) Roll() (Result, error) { return s.simple("roll", nil) }

// Flush syncs all segments up to the log end; with force an empty active one too.
func (s *Session) Flush(force bool) (Result, error) {
	return s.simple("flush", map[string]any{"force": force})
}

// SetHighWatermark moves the high watermark; a negative offset is the log end.
func (s *Session) SetHighWatermark(offset int64) (Result, error) {
	return s.simple("hw", map[string]any{"offset": offset})
}

// Truncate cuts the log off at an offset, as a follower does.
func (s *Session) Truncate(offset int64) (Result, error) {
	return s.simple("truncate", map[string]any{"offset": offset})
}

// TruncateFully drops all records and starts again at an offset; a negative logStart is the same as offset.
func (s *Session) TruncateFully(offset, logStart int64) (Result, error) {
	in := map[string]any{"offset": offset}
	if logStart >= 0 {
		in["logStart"] = logStart
	}
	return s.simple("truncateFully", in)
}

// DeleteRecords moves the log start as a client's request does; a negative offset is the log end.
func (s *Session) DeleteRecords(offset int64) (Result, error) {
	return s.simple("deleteRecords", map[string]any{"offset": offset})
}

// Retention deletes the segments that time, size or the log start release.
func (s *Session) Retention() (Result, error) { return s.simple("retention", nil) }

// ExpireProducers forgets producers that are idle for too long by the clock.
func (s *Session) ExpireProducers() (Result, error) { return s.simple("expire", nil) }

// TakeSnapshot writes a producer snapshot at the log end.
func (s *Session) TakeSnapshot() (Result, error) { return s.simple("snapshot", nil) }

// HasLateTransaction tells whether a transaction is open for longer than its coordinator lets it be: Result.Changed.
func (s *Session) HasLateTransaction() (Result, error) { return s.simple("late", nil) }

// SetClock moves Kafka's clock to a time in milliseconds since 1970.
func (s *Session) SetClock(ms int64) (Result, error) {
	return s.simple("clock", map[string]any{"ms": ms})
}

// Configure changes the settings that are named, as a broker does without a restart.
func (s *Session) Configure(c Settings) (Result, error) {
	return s.simple("configure", map[string]any{"settings": c})
}

// RunJobs runs the background tasks that are due, or all of them as if much time had passed.
func (s *Session) RunJobs(all bool) (Result, error) {
	return s.simple("jobs", map[string]any{"all": all})
}

// State is all that a session's log knows, and its files; with digests their contents in short.
func (s *Session) State(digests bool) (State, error) {
	var out State
	err := s.call("state", map[string]any{"digests": digests}, &out)
	return out, err
}

// State is a log and the files of its directory.
type State struct {
	Log
	Files []File `json:"files"`
}

func (s *Session) simple(op string, in any) (Result, error) {
	var out Result
	err := s.call(op, in, &out)
	return out, err
}

func (s *Session) call(op string, in, out any) error {
	return s.d.p.call(op, s.id, in, out)
}
