package segment

// LastIndexed returns the position of a batch near byte end, from which a walk finds the last batch below it, and the base
// offset of that batch (of a legacy entry the stored offset): the one that the last usable index entry names, else the first
// one, for which the offset is the segment's base offset.
func (s *Segment) LastIndexed(end int64) (pos, offset int64, err error) {
	if end, err = s.limit(end); err != nil {
		return 0, s.base, err
	}
	c, err := s.hint(maxOffset(s.base), end, false)
	if err != nil {
		return 0, s.base, err
	}
	h := c.header
	c.w.release()
	if h.Size == 0 {
		return 0, s.base, nil
	}
	return h.Position, h.BaseOffset, nil
}

// RewindIndexes removes what the indexes know of offset and later ones, so that Note can enter the batches from byte pos on
// again. Pos is where the batch that holds offset begins. The log file is left alone, and so is its logical size until the
// first Note. Indexes that make no sense are emptied. It is for a recovery that trusts the log below pos.
func (s *Segment) RewindIndexes(pos, offset int64) error {
	if pos == 0 {
		return s.ResetIndexes()
	}
	if s.cfg.ReadOnly {
		return s.notWritable()
	}
	if err := s.alone(func() error { return s.cutIndexes(offset) }); err != nil {
		return err
	}
	newest, err := s.newestBelow(pos)
	if err != nil {
		return err
	}
	s.since = 0
	s.noted.Lock()
	s.noted.next = -1
	s.noted.newest, s.noted.newestKnown = newest, true
	s.noted.Unlock()
	s.writable.Store(true)
	return nil
}
