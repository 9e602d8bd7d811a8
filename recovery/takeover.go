package recovery

// observeWriter reads the state file, and what tells whether it speaks of the directory as it is.
func (l *loader) observeWriter() (slot Slot, us bool, err error) {
	if l.file, err = OpenStateFile(l.fsys, l.p.Dir, l.p.ReadOnly || l.p.Compat); err != nil {
		return slot, false, err
	}
	if l.foreign, err = ReadForeign(l.fsys, l.p.Dir); err != nil {
		return slot, false, err
	}
	slot, found := l.file.Newest()
	us = found && l.foreign.wroteLast(&slot)
	l.takingOver, l.rebuildFrom = found && slot.Who == [2]uint64{}, unlimited
	if (us || l.takingOver) && slot.RebuildFrom > 0 {
		l.rebuildFrom = slot.RebuildFrom - 1
	}
	return slot, us, nil
}

// takeOver writes down that another program's log is being made ours. What the state file says of the directory does not
// count any more, also if the leader epochs become again what they were then; and what is found behind the recovery point
// from now on may be what an interrupted recovery left.
func (l *loader) takeOver() error {
	if l.us || l.p.ReadOnly || l.p.Compat {
		return nil
	}
	slot, found := l.file.Newest()
	if !found {
		slot.SnapshotOffset = -1
	}
	slot.Who, slot.Bare, slot.RebuildFrom = [2]uint64{}, [2]uint64{}, l.rebuildMark()
	return l.file.Sync(slot)
}

func (l *loader) rebuildMark() int64 {
	if l.rebuildFrom == unlimited {
		return 0
	}
	return l.rebuildFrom + 1
}

// noteRebuild writes down that indexes of the segments from base on are made anew although they lie below the recovery
// point. What asks for it, a file that is missing or damaged, is gone as soon as the work has begun, and should that be
// interrupted the next load has to do it all. The first slot of the log that is opened then forgets it.
func (l *loader) noteRebuild(base int64) error {
	if l.p.ReadOnly || l.p.Compat || base >= l.rebuildFrom {
		return nil
	}
	l.rebuildFrom = base
	slot, found := l.file.Newest()
	if !l.us || !found {
		return l.takeOver()
	}
	slot.RebuildFrom = l.rebuildMark()
	return l.file.Sync(slot)
}
