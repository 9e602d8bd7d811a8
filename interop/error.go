package interop

import (
	"errors"
	"fmt"
	"strings"
)

// Error is an exception of Kafka's.
type Error struct {
	// Class is the full Java name of the exception, see also [Error.Name].
	Class string `json:"class"`

	// Message is the exception's text, meant for people.
	Message string `json:"message"`

	// Code is the protocol's error code for it, as a client would have got it.
	// -1 stands for an internal fault: nothing that is meant for clients.
	Code int16 `json:"code"`

	// Records are the positions, in their batch, of the records that were refused one by one.
	Records []int `json:"records"`

	// Causes are the exceptions behind it, the nearest first, each with class and message.
	Causes []string `json:"causes"`
}

// Error names the class, the message and the code.
func (e *Error) Error() string {
	s := fmt.Sprintf("kafka: %s: %s (code %d)", e.Name(), e.Message, e.Code)
	for _, c := range e.Causes {
		s += "; caused by " + c
	}
	return s
}

// Name is the class without its package, such as OutOfOrderSequenceException.
func (e *Error) Name() string {
	return e.Class[strings.LastIndexByte(e.Class, '.')+1:]
}

// AsError finds Kafka's exception in err. It is nil when err is nil or something else went wrong.
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return nil
}

// failure is an Error on the wire, with the mark of one that is not Kafka's.
type failure struct {
	Error
	BadRequest bool `json:"badRequest"`
}

func (f *failure) error(op string) error {
	switch {
	case f == nil:
		return fmt.Errorf("interop: %s: refused without a reason", op)
	case f.BadRequest:
		return fmt.Errorf("interop: %s: bad request: %s", op, f.Message)
	default:
		return &f.Error
	}
}
