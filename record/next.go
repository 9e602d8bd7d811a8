package record

import (
	"encoding/binary"
	"io"
	"iter"
)

// Next cuts the first entry off p. It returns the entry and what follows it, both views of p, after checking nothing but
// what it needs to know where the entry ends: use Validate for the rest. On an error b is nil and rest is p. The error is
//   - io.EOF when p is empty: the clean end of a log;
//   - a *TruncatedError, matching ErrTruncated, when p ends inside the entry;
//   - a *CorruptError, matching ErrCorrupt, when the length is too small for an entry of its magic (or any);
//   - a *MagicError, matching ErrMagic, when the magic is none of 0, 1 and 2.
//
// The length is judged as soon as it is there, before anything that comes later in the entry, and no memory is allocated
// for what it claims. Kafka's walk of a buffer (ByteBufferLogInputStream.nextBatch) checks the same in the same order, but
// reports an unknown magic as corruption and a cut-off entry as the end.
func Next(p []byte) (b Batch, rest []byte, err error) {
	size, err := entrySize(p)
	if err != nil {
		return nil, p, err
	}
	return Batch(p[:size:size]), p[size:], nil
}

// entrySize returns the size of the entry that p starts with, which is at most len(p).
func entrySize(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, io.EOF
	}
	if len(p) < LogOverhead {
		return 0, &TruncatedError{Have: int64(len(p)), Need: HeaderUpToMagic}
	}
	length := int32(binary.BigEndian.Uint32(p[posLength:]))
	if length < legacyOverheadV0-LogOverhead {
		return 0, lengthError(length, legacyOverheadV0)
	}
	if len(p) < HeaderUpToMagic {
		return 0, &TruncatedError{Have: int64(len(p)), Need: HeaderUpToMagic}
	}
	smallest := int32(legacyOverheadV0)
	switch magic := int8(p[posMagic]); magic {
	case 0:
	case 1:
		smallest = legacyOverheadV1
	case Magic:
		smallest = Overhead
	default:
		return 0, &MagicError{Magic: magic}
	}
	if length < smallest-LogOverhead {
		return 0, lengthError(length, smallest)
	}
	// The sum is compared as int64: a length near 2^31 must not wrap where int has 32 bits.
	if need := int64(length) + LogOverhead; int64(len(p)) < need {
		return 0, &TruncatedError{Have: int64(len(p)), Need: need}
	}
	return LogOverhead + int(length), nil
}

func lengthError(length, smallest int32) error {
	return &CorruptError{
		Field: "length", Pos: posLength, Got: int64(length), Want: int64(smallest - LogOverhead), Rule: "at least",
	}
}

// All yields the entries that p holds, in order, as Next cuts them. A clean end ends the sequence; any other error of Next
// is yielded last, with a nil Batch.
func All(p []byte) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		for rest := p; len(rest) > 0; {
			var b Batch
			var err error
			if b, rest, err = Next(rest); err != nil {
				yield(nil, err)
				return
			}
			if !yield(b, nil) {
				return
			}
		}
	}
}
