package segment

import (
	"cmp"
	"iter"
	"slices"
)

// Set is an ordered set of segments, at most one for each base offset. It is a value that never changes: With and Without
// return new sets. The zero Set is empty. A log keeps its current set behind an atomic pointer, so that readers work on
// one consistent list without a lock; a segment of an old set may be closed, which Acquire tells.
type Set struct {
	segments []*Segment // ascending by base offset; never modified
}

// NewSet returns the set of the given segments, in any order. Of several with one base offset the last one counts.
func NewSet(segments ...*Segment) Set { return Set{}.With(segments...) }

// Len returns the number of segments.
func (t Set) Len() int { return len(t.segments) }

// At returns segment i, counted from the lowest base offset, 0 <= i < Len.
func (t Set) At(i int) *Segment { return t.segments[i] }

// First returns the segment with the lowest base offset, nil if the set is empty.
func (t Set) First() *Segment {
	if len(t.segments) == 0 {
		return nil
	}
	return t.segments[0]
}

// Active returns the segment with the highest base offset, nil if the set is empty.
func (t Set) Active() *Segment {
	if len(t.segments) == 0 {
		return nil
	}
	return t.segments[len(t.segments)-1]
}

// Get returns the segment with that base offset.
func (t Set) Get(base int64) (*Segment, bool) {
	if i, ok := t.find(base); ok {
		return t.segments[i], true
	}
	return nil, false
}

// Floor returns the segment with the greatest base offset that is not above offset, the one that holds offset if any
// does.
func (t Set) Floor(offset int64) (*Segment, bool) {
	if i := t.floor(offset); i >= 0 {
		return t.segments[i], true
	}
	return nil, false
}

// Index returns the place in the set, from 0, of the segment with the greatest base offset that is not above offset, −1 if
// there is none.
func (t Set) Index(offset int64) int { return t.floor(offset) }

// Higher returns the segment with the smallest base offset above offset.
func (t Set) Higher(offset int64) (*Segment, bool) {
	if i := t.floor(offset) + 1; i < len(t.segments) {
		return t.segments[i], true
	}
	return nil, false
}

// From yields the segments that may hold offset or higher ones in ascending order: the floor of offset, if there is one,
// and all above it.
func (t Set) From(offset int64) iter.Seq[*Segment] {
	return slices.Values(t.segments[max(0, t.floor(offset)):])
}

// All yields the segments in ascending order.
func (t Set) All() iter.Seq[*Segment] { return slices.Values(t.segments) }

// With returns the set with the segments added. A segment takes the place of one with the same base offset.
func (t Set) With(segments ...*Segment) Set {
	list := make([]*Segment, 0, len(t.segments)+len(segments))
	list = append(append(list, t.segments...), segments...)
	slices.SortStableFunc(list, compare)
	n := 0
	for i, s := range list {
		if i+1 < len(list) && list[i+1].base == s.base {
			continue
		}
		list[n] = s
		n++
	}
	clear(list[n:])
	return Set{list[:n:n]}
}

// Without returns the set without the segments that have these base offsets.
func (t Set) Without(bases ...int64) Set {
	list := make([]*Segment, 0, len(t.segments))
	for _, s := range t.segments {
		if !slices.Contains(bases, s.base) {
			list = append(list, s)
		}
	}
	return Set{list}
}

// Between returns the set of those segments whose base offset is in [from, to).
func (t Set) Between(from, to int64) Set {
	i, _ := t.find(from)
	j, _ := t.find(to)
	if j < i {
		j = i
	}
	return Set{t.segments[i:j:j]}
}

func (t Set) floor(offset int64) int {
	i, ok := t.find(offset)
	if ok {
		return i
	}
	return i - 1
}

func (t Set) find(base int64) (int, bool) {
	return slices.BinarySearchFunc(t.segments, base, func(s *Segment, base int64) int { return cmp.Compare(s.base, base) })
}

func compare(a, b *Segment) int { return cmp.Compare(a.base, b.base) }
