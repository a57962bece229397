// Package redistest starts the Redis servers that tests run on: miniredis, one real redis-server, and a
// real cluster of three masters with a replica each.
//
// Most tests use [Each]: it runs one function on a real server, and on the cluster and miniredis too where
// [All] is wanted, so that a promise is written once and tested everywhere.
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
// The real servers start on first use, and the tests of a package share them. [Main] stops them, and
// reports every key that was left without a TTL or outside the prefixes of the tests. Because the servers
// are shared, a test uses only keys below its [Backend.Prefix], and does not flush, configure or stop them.
//
// A test that breaks something uses its own: a server ([StartServer]) to kill, pause or restart, a cluster
// ([StartCluster]) to fail over or reshard, a primary that sentinels watch ([StartSentinels]), or its own
// connections to any server, through [Faults], which swallows, delays and cuts replies.
//
// Servers listen on 127.0.0.1 only, on free ports, in a temporary directory. They are stopped by their
// process ID; on Linux the kernel also stops them when the test binary dies.
//
// Where redis-server is not installed, the tests that need it are skipped with a banner on standard error.
// With GATEHOUSE_REQUIRE_REDIS set to anything they fail instead.
//
// Nothing of this works inside a testing/synctest bubble, because real sockets stop the fake clock. There,
// use miniredis.NewMiniRedis and its Dial method.
package redistest
