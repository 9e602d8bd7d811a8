package wal

// publishEnd shows readers a new visible end. The caller holds mu.
func (l *Log) publishEnd(end place) {
	l.ends.end = end
	if !l.opts.ManualHighWatermark {
		l.ends.high = end
		l.producers.AdvanceHighWatermark(end.offset)
		l.setUnstable()
	} else if l.ends.high.offset >= end.offset {
		l.setHigh(end)
	}
	l.publish()
}

// movePublishedEnd follows a roll: the visible end keeps its offset and moves into the new segment. The caller holds mu
// and nothing is pending.
func (l *Log) movePublishedEnd() { l.publishEnd(l.end) }

// publish shows readers what changed and wakes those that wait. The caller holds mu.
func (l *Log) publish() {
	l.ends.gaps = l.gaps
	l.visible.store(&l.ends)
	l.waiters.wake()
}

// setHigh sets the high watermark. The caller holds mu and publishes.
func (l *Log) setHigh(p place) {
	l.ends.high = p
	l.producers.AdvanceHighWatermark(p.offset)
	l.setUnstable()
}

// updateUnstable follows a change of the open transactions. The caller holds mu; readers see it with the next publish.
func (l *Log) updateUnstable() { l.setUnstable() }

// setUnstable is Kafka's UnifiedLog.maybeIncrementFirstUnstableOffset.
func (l *Log) setUnstable() {
	m, ok := l.producers.FirstUnstableOffset()
	if !ok {
		l.ends.unstable = offsetOnly(noOffset)
		return
	}
	p := place{offset: m.Offset, segment: m.SegmentBase, position: m.Position}
	if !p.resolved() || p.offset < l.ends.logStart {
		p = l.tryResolve(max(p.offset, l.ends.logStart))
	}
	l.ends.unstable = p
}

// tryResolve is resolve for a place that nobody reads up to yet: one whose byte cannot be found now stays without, and is
// looked for again by the first read that needs it, which reports why. The caller holds mu.
func (l *Log) tryResolve(offset int64) place {
	p, err := l.resolve(offset)
	if err != nil {
		l.warn("position of an offset", err)
	}
	return p
}

// resolve finds the byte of an offset. An offset above the visible end stays without one, and so does one of which an
// error says that it was not found. The caller holds mu.
//
// In Compat an offset inside a batch becomes that batch's base offset, and one inside a gap the next batch's, as in
// Kafka (UnifiedLog.maybeConvertToOffsetMetadata); else the offset stays as it was given.
func (l *Log) resolve(offset int64) (place, error) {
	end := l.ends.end
	switch {
	case offset == end.offset:
		return end, nil
	case offset > end.offset:
		return offsetOnly(offset), nil
	}
	if _, stored := l.set.Floor(offset); !stored && l.opts.Compat {
		return offsetOnly(offset), nil
	}
	p, found, err := l.locate(&l.set, offset, end)
	if err != nil {
		return offsetOnly(offset), err
	}
	if !found {
		p = end // no batch lies between
	}
	if !l.opts.Compat {
		p.into = max(0, offset-p.offset)
		p.offset = offset
	}
	return p, nil
}

// UpdateHighWatermark sets the high watermark, which readers at HighWatermark and TxnCommitted stop at, and returns
// what it became: not below the log start and not above the end of what is acknowledged. It may move back. It is for
// logs with Options.ManualHighWatermark; elsewhere it follows the end by itself and the call only returns it. Kafka:
// UnifiedLog.updateHighWatermark.
func (l *Log) UpdateHighWatermark(offset int64) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return 0, err
	}
	if !l.opts.ManualHighWatermark {
		return l.ends.high.offset, nil
	}
	p := offsetOnly(offset)
	switch {
	case offset < l.ends.logStart:
		p = offsetOnly(l.ends.logStart)
	case offset >= l.ends.end.offset:
		p = l.ends.end
	}
	l.setHigh(p)
	l.publish()
	return l.ends.high.offset, nil
}

// limit is where a reader at an isolation level stops, with its byte. It takes mu only where the byte is not known yet.
func (l *Log) limit(e *ends, i Isolation) (place, error) {
	p := e.limit(i)
	// Kafka finds the byte of the high watermark in each read but those at the log end, and with it may change the offset.
	if p.resolved() && (i == LogEnd || !l.opts.Compat || e.high.resolved()) {
		return p, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return p, ErrClosed
	}
	return l.resolveLimit(i)
}

func (e *ends) limit(i Isolation) place {
	switch i {
	case LogEnd:
		return e.end
	case HighWatermark:
		return e.high
	}
	return e.lastStable()
}

// resolveLimit finds the bytes of the high watermark and the last stable offset and keeps them. Kafka:
// UnifiedLog.fetchHighWatermarkMetadata and fetchLastStableOffsetMetadata. The caller holds mu.
func (l *Log) resolveLimit(i Isolation) (place, error) {
	if !l.ends.high.resolved() {
		p, err := l.resolve(l.ends.high.offset)
		if err != nil {
			return p, err
		}
		l.setHigh(p)
	}
	if u := l.ends.unstable; i == TxnCommitted && u.offset >= 0 && u.offset < l.ends.high.offset && !u.resolved() {
		p, err := l.resolve(u.offset)
		if err != nil {
			return p, err
		}
		l.ends.unstable = p
	}
	l.publish()
	return l.ends.limit(i), nil
}
