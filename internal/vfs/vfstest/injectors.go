package vfstest

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Hook is an injector made of functions. A nil function does nothing. It is the place to take crash clones: the Mem
// below an Inject is in a state between two operations when the functions are called.
type Hook struct {
	BeforeOp func(Op) Fault
	AfterOp  func(Op, error)
}

// Before implements Injector.
func (h Hook) Before(o Op) Fault {
	if h.BeforeOp == nil {
		return Fault{}
	}
	return h.BeforeOp(o)
}

// After implements Injector.
func (h Hook) After(o Op, err error) {
	if h.AfterOp != nil {
		h.AfterOp(o, err)
	}
}

// Each is an injector that calls f before and after every operation that filter chooses.
func Each(filter Filter, f func(o Op, after bool)) Injector {
	return Hook{
		BeforeOp: func(o Op) Fault {
			if filter.match(o) {
				f(o, false)
			}
			return Fault{}
		},
		AfterOp: func(o Op, _ error) {
			if filter.match(o) {
				f(o, true)
			}
		},
	}
}

// Chain asks several injectors in order. The first fault counts; those behind it do not see the operation begin. All of
// them see it end.
func Chain(list ...Injector) Injector {
	return Hook{
		BeforeOp: func(o Op) Fault {
			for _, i := range list {
				if f := i.Before(o); f.Err != nil {
					return f
				}
			}
			return Fault{}
		},
		AfterOp: func(o Op, err error) {
			for _, i := range list {
				i.After(o, err)
			}
		},
	}
}

// Nth is the injector that FailNth returns.
type Nth struct {
	filter  Filter
	n       int64
	fault   Fault
	forever bool
	seen    atomic.Int64
	failed  atomic.Int64
	last    atomic.Pointer[Op]
}

// FailNth returns an injector that answers fault to the n-th operation, from 1, that filter chooses, and if forever is
// set to all later ones as well. It may be used from several goroutines.
func FailNth(filter Filter, n int, fault Fault, forever bool) *Nth {
	return &Nth{filter: filter, n: int64(n), fault: fault, forever: forever}
}

// Before implements Injector.
func (i *Nth) Before(o Op) Fault {
	if !i.filter.match(o) {
		return Fault{}
	}
	if k := i.seen.Add(1); k < i.n || k > i.n && !i.forever {
		return Fault{}
	}
	if i.failed.Add(1) == 1 {
		i.last.Store(&o)
	}
	return i.fault
}

// After implements Injector.
func (i *Nth) After(Op, error) {}

// Failed returns the first operation that got the fault. It is false where there were fewer than n: a test that goes
// through every n ends there.
func (i *Nth) Failed() (Op, bool) {
	if o := i.last.Load(); o != nil {
		return *o, true
	}
	return Op{}, false
}

// Count is an injector that counts operations by kind. The zero value is ready; it may be used from several goroutines.
type Count struct {
	n [kinds]atomic.Int64
}

// Before implements Injector.
func (c *Count) Before(o Op) Fault {
	c.n[o.Kind].Add(1)
	return Fault{}
}

// After implements Injector.
func (c *Count) After(Op, error) {}

// Of returns how many operations of the kinds there were; of all if none is given.
func (c *Count) Of(list ...Kind) int {
	var sum int64
	for k := range kinds {
		if len(list) == 0 || slices.Contains(list, k) {
			sum += c.n[k].Load()
		}
	}
	return int(sum)
}

// Record is an injector that keeps the operations that its Filter chooses. The zero value keeps all; it may be used from
// several goroutines.
type Record struct {
	Filter Filter

	mu  sync.Mutex
	ops []Op // guarded by mu
}

// Before implements Injector.
func (r *Record) Before(o Op) Fault {
	if r.Filter.match(o) {
		r.mu.Lock()
		r.ops = append(r.ops, o)
		r.mu.Unlock()
	}
	return Fault{}
}

// After implements Injector.
func (r *Record) After(Op, error) {}

// Ops returns the operations so far, in the order in which they began.
func (r *Record) Ops() []Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ops)
}
