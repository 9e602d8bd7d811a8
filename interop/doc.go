// Package interop lets tests ask Kafka itself. It drives the storage classes of
// Apache Kafka 4.4.0 (the log, its loader, its readers, its cleaner) through a
// small Java program that lies beside this package, and is imported by tests only.
//
// # Model
//
// [Start] hands out a [Driver]. Behind all of them stands one Java process for
// the whole test binary, which answers one JSON line for each JSON line it is
// given, and ends with the test binary. It can
//
//   - load a directory with Kafka's own recovery and tell what came of it ([Driver.Open]),
//   - list the batches of a directory as Kafka's readers see them ([Driver.Dump]),
//   - hold a log open and take it through appends, rolls, truncations, retention,
//     reads and crashes ([Driver.OpenSession]),
//   - run one round of Kafka's log cleaner ([Session.Clean], [Driver.Clean]).
//
// Kafka sees a clock that only requests move, and a scheduler without threads,
// so equal requests give equal answers and equal files.
//
// # When it runs
//
// Only where the environment says ONCELOG_INTEROP=1, and where Java 17 and Maven
// are found: the first build fetches about 25 MB from Maven Central. Elsewhere
// [Start] skips the test and says why. The built program is kept in the user's
// cache directory under a digest of its sources, one build for all packages.
//
// ONCELOG_INTEROP_LOG=info (or any other level) sends Kafka's own log lines, and
// the stack trace behind each failure, to standard error.
//
// # Concurrency
//
// A Driver may be used by several goroutines; their requests are answered one
// after the other.
//
// # Errors
//
// What Kafka throws is an [*Error]. Everything else (a request that makes no
// sense, a process that died or did not answer in time) is another error, so that
// a test which expects a refusal cannot take the one for the other.
package interop
