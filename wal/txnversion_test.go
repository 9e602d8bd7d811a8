package wal

import (
	"errors"
	"testing"
	"time"

	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/record"
)

// A life of a transactional producer under each transaction version, with a restart between any two steps: what is checked
// must not depend on what was only in memory.
func TestTransactionVersions(t *testing.T) {
	for version := int8(0); version <= 2; version++ {
		bumps := version == 2
		now := start
		o := Options{VerifyTransactions: true, Now: func() time.Time { return now }}
		l := openTest(t, t.TempDir(), o)
		restart := func() { l = reopenTest(t, l, o) }
		data := func(epoch int16, seq int32, g Guard) error {
			_, err := l.AppendAsLeader(txnRecord(t, record.Producer{ID: 7, Epoch: epoch, BaseSequence: seq}), LeaderAppend{Guard: g})
			return err
		}
		verify := func(epoch int16, seq int32) Guard {
			t.Helper()
			g, err := l.VerifyTransaction(record.Producer{ID: 7, Epoch: epoch, BaseSequence: seq}, bumps)
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		marker := func(epoch int16, coordinator int32, kind record.ControlType) error {
			_, err := l.AppendEndTxnMarker(record.Producer{ID: 7, Epoch: epoch},
				record.EndTxnMarker{Type: kind, CoordinatorEpoch: coordinator}, MarkerAppend{TransactionVersion: version})
			return err
		}
		is := func(what string, err, want error) {
			t.Helper()
			if !errors.Is(err, want) {
				t.Errorf("version %d, %s: %v, want %v", version, what, err, want)
			}
		}
		is("without a guard", data(0, 0, 0), ErrInvalidTxnState)
		g := verify(0, 0)
		is("first batch", data(0, 0, g), nil)
		restart()
		if g := verify(0, 1); g != producerstate.NoGuard {
			t.Errorf("version %d: guard %d while the transaction is open", version, g)
		}
		is("second batch, after a restart", data(0, 1, 0), nil)
		// With version 2 a marker of the transaction's own epoch comes late, from the one before.
		next := int16(0)
		if bumps {
			is("marker of the same epoch", marker(0, 4, record.Commit), ErrInvalidProducerEpoch)
			next = 1
		}
		restart()
		is("commit", marker(next, 4, record.Commit), nil)
		is("the same marker again", marker(next, 4, record.Commit), nil)
		is("marker of an older coordinator", marker(next, 3, record.Commit), ErrCoordinatorFenced)
		restart()
		is("marker of an older coordinator, after a restart", marker(next, 3, record.Commit), ErrCoordinatorFenced)
		if _, held := l.HeldBack(); held || len(l.OpenTransactions()) != 0 {
			t.Errorf("version %d: still open: %+v", version, l.OpenTransactions())
		}

		// The next transaction.
		is("with the guard of the transaction before", data(next, 2, g), ErrInvalidTxnState)
		if bumps {
			_, err := l.VerifyTransaction(record.Producer{ID: 7, Epoch: 0, BaseSequence: 2}, true)
			is("verification of the epoch before", err, ErrInvalidProducerEpoch)
			is("a batch of the epoch before", data(0, 2, 0), ErrInvalidProducerEpoch)
			is("a new epoch that does not begin at 0", data(1, 2, verify(1, 2)), ErrOutOfOrderSequence)
			restart()
			is("a new epoch", data(1, 0, verify(1, 0)), nil)
			next = 2
		} else {
			is("the same epoch goes on", data(0, 2, verify(0, 2)), nil)
		}
		restart()
		is("abort", marker(next, 4, record.Abort), nil)
		if n := len(committed(t, l)); n != 2 {
			t.Errorf("version %d: %d records are committed, want 2", version, n)
		}
		// A marker of a bumped epoch fences whoever still has the one before, in every version.
		is("fencing marker", marker(next+5, 4, record.Abort), nil)
		restart()
		is("the fenced one", data(next, 3, 0), ErrInvalidProducerEpoch)
		is("the new one, not at 0", data(next+5, 3, verify(next+5, 0)), ErrOutOfOrderSequence)
		is("the new one", data(next+5, 0, verify(next+5, 0)), nil)
	}
	l := openTest(t, t.TempDir(), Options{})
	_, err := l.AppendEndTxnMarker(record.Producer{ID: 7}, record.EndTxnMarker{}, MarkerAppend{TransactionVersion: 3})
	if code, _ := ErrorCode(err); !errors.Is(err, ErrTransactionVersion) || code != -1 || l.Offsets().LogEnd != 0 {
		t.Errorf("transaction version 3: %v, code %d", err, code)
	}
}

// A verification that nobody used is forgotten with time, and one that is older than the transaction it came before binds
// nobody.
func TestVerifyTransaction_Expires(t *testing.T) {
	now := start
	l := openTest(t, t.TempDir(), Options{VerifyTransactions: true, ProducerIDExpiration: time.Minute, Now: func() time.Time { return now }})
	g, err := l.VerifyTransaction(record.Producer{ID: 7}, false)
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(30 * time.Second)
	l.RemoveExpiredProducers(now)
	if again, err := l.VerifyTransaction(record.Producer{ID: 7}, false); err != nil || again != g {
		t.Errorf("guard %d, was %d, %v", again, g, err)
	}
	now = now.Add(30 * time.Second)
	l.RemoveExpiredProducers(now)
	if _, err := l.AppendAsLeader(txnRecord(t, record.Producer{ID: 7}), LeaderAppend{Guard: g}); !errors.Is(err, ErrInvalidTxnState) {
		t.Errorf("with a guard that has expired: %v", err)
	}
}
