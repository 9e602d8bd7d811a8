package producerstate

import (
	"fmt"
	"slices"
)

// Named is a producer that goes by a name: its id is derived from the name, and the name is kept beside it so that two
// names with one id are noticed.
type Named struct {
	// ID is the producer id, at least MinNamedProducerID.
	ID int64
	// FirstCount is the count of the first record that the name ever stored: counts below it are not this log's.
	FirstCount int64
	// Name is the name, of at most 65535 bytes. It is empty where only the batches are known: a replay finds the first
	// one of an id, and does not learn the name before the program opens it again.
	Name string
}

// MaxNameBytes is the longest name of a named producer that a side file can hold.
const MaxNameBytes = 65535

// names is a list that frozen views share: elements are appended, and changed only in a copy.
type names struct {
	list   []Named
	places map[int64]int
	shared bool
}

func (n *names) reindex() {
	n.places = make(map[int64]int, len(n.list))
	for i := range n.list {
		n.places[n.list[i].ID] = i
	}
}

func (n *names) own() {
	if n.shared {
		n.list = slices.Clone(n.list)
		n.shared = false
	}
}

// SetNamed enters a named producer, or changes one that is there: its first count, and its name if that was not known.
// Another name with the same id is ErrNamedConflict. Named producers are part of the state: snapshots keep them, in their side files.
func (m *Manager) SetNamed(n Named) error {
	if n.ID < MinNamedProducerID || n.FirstCount < 0 || len(n.Name) > MaxNameBytes {
		return fmt.Errorf("producerstate: named producer: id %d, first count %d, name of %d bytes: out of range",
			n.ID, n.FirstCount, len(n.Name))
	}
	if i, ok := m.named.places[n.ID]; ok {
		if old := m.named.list[i].Name; old != n.Name && old != "" {
			return fmt.Errorf("%w: %d is %q, not %q", ErrNamedConflict, n.ID, old, n.Name)
		}
		m.named.own()
		m.named.list[i] = n
		return nil
	}
	if m.named.places == nil {
		m.named.places = make(map[int64]int)
	}
	m.named.places[n.ID] = len(m.named.list)
	m.named.list = append(m.named.list, n)
	return nil
}

// NamedProducer returns the named producer with an id.
func (m *Manager) NamedProducer(id int64) (Named, bool) {
	i, ok := m.named.places[id]
	if !ok {
		return Named{}, false
	}
	return m.named.list[i], true
}

// NamedProducers returns all named producers, in no order. The slice belongs to the caller.
func (m *Manager) NamedProducers() []Named { return slices.Clone(m.named.list) }

// ForgetNamed removes a name. The producer's state is not touched, and goes on not to expire.
func (m *Manager) ForgetNamed(id int64) {
	i, ok := m.named.places[id]
	if !ok {
		return
	}
	m.named.own()
	last := len(m.named.list) - 1
	m.named.list[i] = m.named.list[last]
	m.named.places[m.named.list[i].ID] = i
	m.named.list = m.named.list[:last:last] // a later append must not write where a frozen view reads
	delete(m.named.places, id)
}
