package index

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"unsafe"
)

// Touching a page of a map whose file was cut, or whose device fails, raises SIGBUS, and Go ends the process unless the
// goroutine asked for a panic instead (debug.SetPanicOnFault). Every access to mapped memory therefore stands between
// enter and a deferred leave, or in store, at a cost of about ten nanoseconds.

// enter takes mu for reading and makes sure that the entries are in memory. When it returns nil, the caller must
// defer x.leave(debug.SetPanicOnFault(true), &err) at once, and may read x.buf up to the x.n entries it then finds.
func (x *mapped) enter() error {
	for {
		x.mu.RLock()
		if x.closed {
			x.mu.RUnlock()
			return fmt.Errorf("%w: %s", ErrClosed, x.path)
		}
		if x.buf != nil || x.n.Load() == 0 {
			return nil
		}
		x.mu.RUnlock()
		if err := x.load(); err != nil {
			return err
		}
	}
}

// leave ends what enter began. It must be deferred itself, not called by a deferred function.
func (x *mapped) leave(old bool, err *error) {
	r := recover()
	debug.SetPanicOnFault(old)
	if r != nil {
		fault := x.fault(r)
		x.mu.RUnlock()
		if fault == nil {
			panic(r)
		}
		*err = fault
		return
	}
	x.mu.RUnlock()
}

// store puts entry i into the mapped memory. The caller holds wmu and has reserved the space.
func (x *mapped) store(i int, e []byte) (err error) {
	defer func(old bool) {
		r := recover()
		debug.SetPanicOnFault(old)
		if r != nil {
			if err = x.fault(r); err == nil {
				panic(r)
			}
		}
	}(debug.SetPanicOnFault(true))
	copy(x.buf[i*x.size:(i+1)*x.size], e)
	return nil
}

// fault turns the value of a panic into a *FaultError if it is a fault inside the mapped memory, else returns nil.
// The caller holds wmu or mu.
func (x *mapped) fault(r any) error {
	e, ok := r.(interface {
		runtime.Error
		Addr() uintptr
	})
	if !ok || len(x.buf) == 0 {
		return nil
	}
	start := uintptr(unsafe.Pointer(unsafe.SliceData(x.buf)))
	if at := e.Addr() - start; at < uintptr(len(x.buf)) {
		return &FaultError{Path: x.path, Entry: int(at) / x.size}
	}
	return nil
}
