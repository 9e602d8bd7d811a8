package wal

import (
	"time"
)

// background is the one goroutine of a log that is open for writing: it syncs by time and by amount in SyncInterval,
// and in every mode the state file once a second while there is something new to say.
type background struct {
	kick    chan struct{} // capacity 1
	changed chan struct{} // capacity 1
	stop    chan struct{}
	done    chan struct{}
}

// stateEvery is how old the newest synced state may be while appends go on. What it bounds is how far back an open after
// a power cut begins to tell torn groups from damage.
const stateEvery = time.Second

func (l *Log) startBackground() {
	if l.opts.ReadOnly || l.opts.manual {
		return
	}
	b := &l.background
	b.kick, b.changed = make(chan struct{}, 1), make(chan struct{}, 1)
	b.stop, b.done = make(chan struct{}), make(chan struct{})
	go l.runBackground()
}

func (l *Log) stopBackground() {
	if b := &l.background; b.stop != nil {
		close(b.stop)
		<-b.done
	}
}

func (l *Log) runBackground() {
	b := &l.background
	defer close(b.done)
	every := l.backgroundEvery()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	// A tick may come a little early after one that came late: half a period too soon is soon enough.
	due := func(last *time.Time, now time.Time, period time.Duration) bool {
		if now.Sub(*last) < period-every/2 {
			return false
		}
		*last = now
		return true
	}
	var lastSync, lastState time.Time
	for {
		select {
		case <-b.stop:
			return
		case <-b.kick:
			l.syncInterval()
		case <-b.changed:
			every = l.backgroundEvery()
			ticker.Reset(every)
		case now := <-ticker.C:
			if lastSync.IsZero() {
				lastSync = now.Add(-every) // nothing is older than the goroutine
			}
			if l.opts.Sync == SyncInterval && due(&lastSync, now, l.settings().SyncEvery) {
				l.syncInterval()
			}
			if due(&lastState, now, stateEvery) {
				l.refreshState()
			}
		}
	}
}

// backgroundEvery is how often the goroutine looks.
func (l *Log) backgroundEvery() time.Duration {
	if l.opts.Sync == SyncInterval {
		return min(stateEvery, l.settings().SyncEvery)
	}
	return stateEvery
}

// reconfigureBackground tells the goroutine, if there is one, that settings have changed.
func (l *Log) reconfigureBackground() {
	select {
	case l.background.changed <- struct{}{}:
	default: // it will look anyway, or there is none
	}
}

// syncInterval makes what was appended durable, if there is anything.
func (l *Log) syncInterval() {
	l.maintenance.Lock()
	defer l.maintenance.Unlock()
	var m mark
	err := l.capture(func() {
		if l.durable.Offset < l.end.offset {
			m = l.mark()
		}
	})
	if err != nil || m.active == nil {
		return
	}
	// An error has failed the log, which is where it is seen.
	_ = l.syncUpTo(&m)
}

// refreshState syncs the state file if the durable end has moved since it last was.
func (l *Log) refreshState() {
	if l.state == nil {
		return
	}
	// Else an older slot could be written behind a newer one.
	l.maintenance.Lock()
	defer l.maintenance.Unlock()
	l.mu.Lock()
	slot := l.slot()
	moved := l.durable.Offset != l.stateSynced && l.failure() == nil && !l.closed
	l.stateSynced = l.durable.Offset
	l.mu.Unlock()
	if !moved {
		return
	}
	if err := l.syncState(slot); err != nil {
		l.warn("state file", err)
	}
}

// kickBackground asks for a sync now, for an append that left too many bytes unsynced.
func (l *Log) kickBackground() {
	select {
	case l.background.kick <- struct{}{}:
	default:
	}
}
