package wal

import "github.com/oncelog/oncelog/record"

// VerifyTransaction begins the verification of a transaction before its first batch comes: the caller asks the
// transaction coordinator whether the partition belongs to the transaction, and then appends the batch with the guard.
// So a batch that was on its way while its transaction was ended cannot open another one, which nobody would end.
//
// The producer's epoch and base sequence are those of the batch. supportsEpochBump tells that the client speaks
// transaction version 2, where every transaction has an epoch of its own; the first call for a producer decides it. The
// result is producerstate.NoGuard if the producer's transaction is open in this log already: then nothing has to be
// verified. Calls that come again return the same guard. An epoch below the known one is ErrInvalidProducerEpoch.
//
// What an append needs is decided by Options.VerifyTransactions; the sequence is held against what is under verification
// in any case. KIP-890; Kafka: UnifiedLog.maybeStartTransactionVerification.
func (l *Log) VerifyTransaction(p record.Producer, supportsEpochBump bool) (Guard, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return 0, err
	}
	return l.producers.MaybeStartVerification(p.ID, p.BaseSequence, p.Epoch, supportsEpochBump, l.opts.Now().UnixMilli())
}
