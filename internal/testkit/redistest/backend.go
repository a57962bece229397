package redistest

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Backend is what a test runs on: a miniredis, a redis-server or a cluster. Copies
// are equal; all methods may be called concurrently.
type Backend struct {
	// Name is "miniredis", "redis" or "cluster".
	Name string

	// Client is shared by the tests of the package. They must not close it.
	Client redis.UniversalClient

	// Prefix is unique to the test; it has letters and digits only. Every key
	// of the test begins with it.
	Prefix string

	// Mini is the test's own miniredis, with ClockTTL(true); nil on real servers.
	Mini *miniredis.Miniredis

	addrs []string
}

// Each runs f in the subtest "redis", on one server. Where [All] is wanted, f also runs in "miniredis"
// before and in "cluster" behind it, one after the other unless f calls t.Parallel. (That all keys of a
// script have one hash tag is proved in lua, and each script runs on a cluster in internal/everyscript.)
// Under the race detector f runs on the cluster alone: what runs in parallel there is all that runs in
// parallel with one server, and more.
func Each(t *testing.T, f func(t *testing.T, b Backend)) {
	t.Helper()
	if AlsoMini() && !raced {
		t.Run("miniredis", func(t *testing.T) { f(t, Mini(t)) })
	}
	EachReal(t, f)
}

// EachReal is [Each] without miniredis.
func EachReal(t *testing.T, f func(t *testing.T, b Backend)) {
	t.Helper()
	cluster := raced || All()
	if cluster {
		warmCluster()
	}
	if !raced || Soak() {
		t.Run("redis", func(t *testing.T) { f(t, Single(t)) })
	}
	if cluster {
		t.Run("cluster", func(t *testing.T) { f(t, Cluster(t)) })
	}
}

// EachInCI is [Each], but under the race detector f runs on redis only where [All] is not wanted. It is for
// long tests in which a cluster shows what one server does.
func EachInCI(t *testing.T, f func(t *testing.T, b Backend)) {
	t.Helper()
	if AlsoMini() {
		Each(t, f)
		return
	}
	t.Run("redis", func(t *testing.T) { f(t, Single(t)) })
}

// Mini starts a miniredis for this test. When the test ends, it fails if keys
// without a TTL or outside the prefix are left.
func Mini(t testing.TB) Backend {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	t.Cleanup(func() {
		var text strings.Builder
		if report(&text, "miniredis", miniLeftovers(m)); text.Len() > 0 {
			t.Error(text.String())
		}
	})
	b := Backend{Name: "miniredis", Prefix: prefixes.next(t.Name()), Mini: m, addrs: []string{m.Addr()}}
	b.Client = b.NewClient(t)
	return b
}

func miniLeftovers(m *miniredis.Miniredis) []string {
	var bad []string
	for _, key := range m.Keys() {
		expires := m.TTL(key) != 0
		if !expires && !m.Exists(key) { // has expired since the keys were listed
			continue
		}
		if why := fault(key, expires, prefixes.testOf); why != "" {
			bad = append(bad, why)
		}
	}
	return bad
}

// Single returns the package's redis-server, which the first call starts.
func Single(t testing.TB) Backend {
	t.Helper()
	Need(t, Program())
	return sharedBackend(t, "redis", sharedSingle)
}

// Client returns the client of [Single] and a prefix for the test's keys, for adaptertest.Framework. Where
// redis-server is not installed, the client is one of a miniredis, unless [RequireEnv] is set.
func Client(t testing.TB) (client redis.UniversalClient, prefix string) {
	t.Helper()
	start := Single
	if !has(Program()) && os.Getenv(RequireEnv) == "" {
		start = Mini
	}
	b := start(t)
	return b.Client, b.Prefix
}

// Cluster returns the package's cluster of three masters with a replica each,
// which the first call starts.
func Cluster(t testing.TB) Backend {
	t.Helper()
	Need(t, Program())
	return sharedBackend(t, "cluster", sharedCluster)
}

func sharedBackend(t testing.TB, name string, start func() (*sharedServers, error)) Backend {
	t.Helper()
	s, err := start()
	if err != nil {
		t.Fatal(err)
	}
	return Backend{Name: name, Client: s.client, Prefix: prefixes.next(t.Name()), addrs: s.addrs}
}

// Options returns new options for a client of the backend's server or servers: go-redis's defaults, without
// some commands on new connections. It is for tests that need other options; redis.NewUniversalClient makes
// the client.
func (b Backend) Options() *redis.UniversalOptions {
	opt := options(b.addrs...)
	opt.IsClusterMode = b.Name == "cluster"
	return opt
}

// NewClient returns one more client with a pool of its own, as another process would have it. It waits for a
// server for a minute, and is closed when the test ends.
func (b Backend) NewClient(t testing.TB) redis.UniversalClient {
	t.Helper()
	return closing(t, redis.NewUniversalClient(patient(b.Options())))
}

// NewClientWith is [Backend.NewClient], but every connection goes through f, and the options may be changed.
func (b Backend) NewClientWith(
	t testing.TB, f *Faults, change ...func(*redis.UniversalOptions),
) redis.UniversalClient {
	t.Helper()
	opt := b.Options()
	opt.Dialer = f.Dial
	for _, c := range change {
		c(opt)
	}
	return closing(t, redis.NewUniversalClient(opt))
}

// ForEachMaster calls f with a client of each master, one after the other: on
// a cluster three times, else once. It returns the first error.
func (b Backend) ForEachMaster(
	ctx context.Context, f func(ctx context.Context, c *redis.Client) error,
) error {
	switch c := b.Client.(type) {
	case *redis.ClusterClient:
		var mu sync.Mutex // go-redis calls concurrently
		return c.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			return f(ctx, c)
		})
	default:
		return f(ctx, c.(*redis.Client))
	}
}
