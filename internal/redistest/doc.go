// Package redistest gives tests the Redis servers they run on: miniredis, one
// real redis-server, and a real cluster of three masters with a replica each.
//
// Most tests want [Each]: it runs one function on all three, so that a promise
// is written once and holds everywhere.
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
//	func TestCounts(t *testing.T) {
//		redistest.Each(t, func(t *testing.T, b redistest.Backend) {
//			err := b.Client.Set(t.Context(), b.Prefix+":n", 1, time.Minute).Err()
//			...
//		})
//	}
//
// The real servers are started on first use, shared by the tests of a package
// and stopped by [Main], which then also reports every key that was left
// without a TTL or outside the prefixes of the tests. Because they are shared, a
// test keeps to keys below its [Backend.Prefix] and neither flushes, nor
// configures, nor stops them.
//
// A test that wants to hurt something takes what is its own: a server
// ([StartServer]) to kill, pause or restart, a cluster ([StartCluster]) to fail
// over or reshard, or its own connections to any server, through [Faults],
// which swallows, delays and cuts replies.
//
// Servers listen on 127.0.0.1 only, on free ports, in a temporary directory.
// They are stopped by the process ID they were started with; on Linux the kernel
// stops them too when the test binary dies.
//
// Where redis-server is not installed, the tests that need it are skipped with a
// banner on standard error; with GATEHOUSE_REQUIRE_REDIS set to anything they
// fail instead.
//
// Inside a testing/synctest bubble none of this works, because real sockets
// stop the fake clock: there, use miniredis.NewMiniRedis and its Dial method.
package redistest
