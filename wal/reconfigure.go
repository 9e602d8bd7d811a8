package wal

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oncelog/oncelog/record"
)

// fixedOptions are the options that a log keeps from Open to Close.
type fixedOptions struct {
	Sync                SyncMode
	DamagePolicy        Policy
	ManualHighWatermark bool
	Compat              bool
	ReadOnly            bool
	Logger              *slog.Logger
	Now                 func() time.Time
	manual              bool
}

func (o *Options) fixed() fixedOptions {
	return fixedOptions{o.Sync, o.DamagePolicy, o.ManualHighWatermark, o.Compat, o.ReadOnly, o.Logger, o.Now, o.manual}
}

// configured are the options of a log as they are now.
type configured struct {
	mu      sync.Mutex              // held while somebody changes them, before every other lock
	given   Options                 // as Open and Reconfigure got them; guarded by mu
	current atomic.Pointer[Options] // the same with the defaults filled in; replaced as a whole
}

// configure takes over the options of an open.
func (l *Log) configure(given Options) {
	o := given.withDefaults()
	l.opts = o.fixed()
	l.configured.given = given
	l.configured.current.Store(&o)
}

// settings are the options that apply now. What needs several of them to agree calls it once.
func (l *Log) settings() *Options { return l.configured.current.Load() }

// limits bound what reading records may take.
func (l *Log) limits() record.Limits { return l.settings().limits() }

func (o *Options) limits() record.Limits {
	return record.Limits{MaxRecordBytes: o.MaxDecompressedBytes}
}

// Options returns the options that apply now, defaults filled in.
func (l *Log) Options() Options { return *l.settings() }

// Reconfigure changes options of the open log. change gets them as Open and earlier calls got them, zero where a default
// applies, and sets those that are to change; what it leaves alone stays. The call returns when they apply: every later
// append, roll and deletion goes by all of them, one that is under way by the old or the new ones, never by a mixture.
//
// What concerns the making of a segment (MaxIndexBytes, IndexIntervalBytes, Preallocate, SegmentJitter) applies from the next
// segment on, and a GroupBytes below the present one from the next Open on. Sync, DamagePolicy, ManualHighWatermark, Compat,
// ReadOnly, CheckSegments and OpenSegments cannot change while the log is open, nor can Logger and Now, which are nil in what change gets.
//
// Any number of goroutines may call it; change runs alone and must not call Reconfigure. Errors: ErrInvalidOptions, which names
// each setting that is wrong, ErrClosed, ErrReadOnly, ErrFailed, and one of the state file where a greater group has to be
// announced; then nothing has changed. Kafka: UnifiedLog.updateConfig, and dynamic broker settings.
func (l *Log) Reconfigure(change func(o *Options)) error {
	if err := l.writable(); err != nil {
		return err
	}
	c := &l.configured
	c.mu.Lock()
	defer c.mu.Unlock()
	given := c.given
	given.Logger, given.Now = nil, nil
	change(&given)
	if given.Logger != nil || given.Now != nil {
		return fmt.Errorf("%w: Logger and Now cannot be changed while the log is open", ErrInvalidOptions)
	}
	given.Logger, given.Now = c.given.Logger, c.given.Now
	if err := c.given.mayBecome(&given); err != nil {
		return err
	}
	if err := given.Validate(); err != nil {
		return err
	}
	o := given.withDefaults()
	if err := l.apply(&o); err != nil {
		return err
	}
	c.given = given
	l.reconfigureBackground()
	return nil
}

// mayBecome names the options that differ and may not.
func (o *Options) mayBecome(n *Options) error {
	for _, f := range []struct {
		name    string
		differs bool
		was     any
	}{
		{"Sync", o.Sync != n.Sync, o.Sync},
		{"DamagePolicy", o.DamagePolicy != n.DamagePolicy, o.DamagePolicy},
		{"ManualHighWatermark", o.ManualHighWatermark != n.ManualHighWatermark, o.ManualHighWatermark},
		{"Compat", o.Compat != n.Compat, o.Compat},
		{"ReadOnly", o.ReadOnly != n.ReadOnly, o.ReadOnly},
		{"CheckSegments", o.CheckSegments != n.CheckSegments, o.CheckSegments},
		{"OpenSegments", o.OpenSegments != n.OpenSegments, o.OpenSegments},
	} {
		if f.differs {
			return fmt.Errorf("%w: %s is %v and cannot change while the log is open", ErrInvalidOptions, f.name, f.was)
		}
	}
	return nil
}

// apply makes options the present ones. A greater commit group is announced in the state file before there can be one.
func (l *Log) apply(o *Options) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if bound := int64(o.GroupBytes); bound > l.groupBound {
		old := l.groupBound
		l.groupBound = bound
		if err := l.syncState(l.slot()); err != nil {
			l.groupBound = old
			return fmt.Errorf("wal: announce groups of %d bytes (GroupBytes): %w", bound, err)
		}
	}
	l.configured.current.Store(o)
	l.producers.Configure(l.producerConfig())
	return nil
}
