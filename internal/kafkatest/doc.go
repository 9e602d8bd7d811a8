// Package kafkatest gives tests what Apache Kafka wrote and did: directories of real brokers with a description of what
// is in them and what a broker made of them (Fixture), and lives of Kafka's own partition log, operation by operation,
// with every outcome (Trace). Only tests import it.
//
// # Where they come from
//
// A small choice of both is part of the package (testdata/README.md tells how they were made). The environment variables
// ONCELOG_FIXTURES and ONCELOG_TRACES, each an absolute path of a directory, bring in more: EachFixture and EachTrace
// then walk over everything that is there. A variable that leads nowhere fails the test.
//
// # Time
//
// The producers in a fixture were alive when it was made. A reader that expires producers by age must be given a clock
// of that day; Fixture.LastTimestamp is one. The traces bring their own clock.
package kafkatest
