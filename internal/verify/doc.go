// Package verify reads everything that a partition directory holds and tells what is wrong with it: the checksum of every batch,
// the order of the offsets, each index entry against the log, leader epochs, transactions, snapshots.
//
// It takes no more memory than a batch, a buffer, and the producers with an open transaction. It changes nothing. Beside a
// writer it may see what is not finished; the caller looks again.
package verify
