// Package archtest keeps the shape of the module with tests: who imports whom, which foreign module is used where, how
// long a file may be, that exported names are documented. It has no code outside its tests.
//
// A change that needs another edge edits the table in table_test.go, which is the point of it.
package archtest
