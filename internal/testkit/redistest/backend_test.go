package redistest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) { Main(m) }

func TestEachBackendTakesAndExpiresKeys(t *testing.T) {
	Each(t, func(t *testing.T, b Backend) {
		key := b.Prefix + ":{a}:n"
		if err := b.Client.Set(t.Context(), key, "1", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		if n, err := b.NewClient(t).Incr(t.Context(), key).Result(); n != 2 || err != nil {
			t.Errorf("INCR by another client = %d, %v; want 2", n, err)
		}
		if (b.Mini != nil) != (b.Name == "miniredis") {
			t.Errorf("%s: Mini = %v", b.Name, b.Mini)
		}
	})
}

func TestPrefixesAreDistinct(t *testing.T) {
	a, b := Mini(t).Prefix, Mini(t).Prefix
	if a == b || strings.HasPrefix(a, b) || strings.HasPrefix(b, a) {
		t.Errorf("prefixes %q and %q", a, b)
	}
}

func TestForEachMasterVisitsEveryMasterOnce(t *testing.T) {
	want := map[string]int{"miniredis": 1, "redis": 1, "cluster": 3}
	Each(t, func(t *testing.T, b Backend) {
		seen := make(map[string]bool) // unguarded: the calls come one after the other
		err := b.ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error {
			seen[c.Options().Addr] = true
			return c.Ping(ctx).Err()
		})
		if len(seen) != want[b.Name] || err != nil {
			t.Errorf("visited %v, %v; want %d", seen, err, want[b.Name])
		}
	})
}

func TestClusterTakesKeysOnAllMasters(t *testing.T) {
	b := Cluster(t)
	for _, tag := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		key := b.Prefix + ":{" + tag + "}"
		if err := b.Client.Set(t.Context(), key, tag, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
	}
	err := b.ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error {
		keys, _, err := c.Scan(ctx, 0, b.Prefix+"*", 1000).Result()
		if len(keys) == 0 {
			t.Errorf("master %s has no key", c.Options().Addr)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestSlotAgreesWithTheServer(t *testing.T) {
	c := Cluster(t).Client
	for _, key := range []string{"", "foo", "{foo}bar", "{}foo", "a{b", "a}b{c}d{e}", "{{a}}", "\x00\xff"} {
		want, err := c.ClusterKeySlot(t.Context(), key).Result()
		if got := Slot(key); got != int(want) || err != nil {
			t.Errorf("Slot(%q) = %d, the server says %d, %v", key, got, want, err)
		}
	}
}
