package interop

// Clean is one round of the log cleaner.
type Clean struct {
	FirstDirty *int64 `json:"firstDirty"`         // the cleaner's checkpoint, nil for none
	MapBytes   int32  `json:"mapBytes,omitempty"` // of the map of keys (24 a key), 0 for 1 MiB
}

// Cleaned is what a round did.
type Cleaned struct {
	Offsets
	FirstDirty       int64 `json:"firstDirty"`
	FirstUncleanable int64 `json:"firstUncleanable"`
	NextDirty        int64 `json:"nextDirty"` // the checkpoint to go on from
	CleanBytes       int64 `json:"cleanBytes"`
	CleanableBytes   int64 `json:"cleanableBytes"`
	MessagesRead     int64 `json:"messagesRead"`
	MessagesWritten  int64 `json:"messagesWritten"`
}

// Clean compacts the closed segments below the last stable offset, so move the high watermark first.
// The replaced segments stay as *.deleted until [Session.RunJobs] or the next load.
func (s *Session) Clean(c Clean) (Cleaned, error) {
	var out Cleaned
	err := s.call("clean", c, &out)
	return out, err
}

// Clean loads a directory in place, runs one round over it with everything
// counted as replicated, removes the replaced segments, and stops cleanly.
func (d *Driver) Clean(r SessionRequest, c Clean) (Cleaned, error) {
	s, _, err := d.OpenSession(r)
	if err != nil {
		return Cleaned{}, err
	}
	if _, err := s.SetHighWatermark(-1); err != nil {
		return Cleaned{}, err
	}
	done, err := s.Clean(c)
	if err != nil {
		return Cleaned{}, err
	}
	if _, err := s.RunJobs(true); err != nil {
		return Cleaned{}, err
	}
	_, err = s.Close()
	return done, err
}
