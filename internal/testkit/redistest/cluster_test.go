package redistest

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestSlotMovesWhileItIsUsed(t *testing.T) {
	LeftToCI(t)
	t.Parallel()
	cs := StartCluster(t)
	c := cs.Client(t)
	const keys, tag = 10, "{moving}"
	key := func(i int) string { return fmt.Sprint(tag, i) }
	for i := range keys {
		if err := c.Set(t.Context(), key(i), i, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
	}
	from := cs.MasterOf(tag)
	to := cs.MasterOf("{elsewhere}")
	if from == to {
		t.Fatal("choose other tags")
	}

	m := cs.BeginMigration(t, Slot(tag), from, to)
	if n := m.MoveKeys(keys / 2); n != keys/2 {
		t.Errorf("moved %d keys, want %d", n, keys/2)
	}
	readAll := func() {
		t.Helper()
		for i := range keys {
			if got, err := c.Get(t.Context(), key(i)).Int(); got != i || err != nil {
				t.Errorf("%s = %d, %v", key(i), got, err)
			}
		}
	}
	readAll() // half of them by ASK
	noRetries := cs.Options().Cluster()
	noRetries.MaxRedirects = -1
	parted := closing(t, redis.NewClusterClient(noRetries))
	if err := parted.MGet(t.Context(), key(0), key(1), key(2), key(3), key(4), key(5), key(6), key(7), key(8),
		key(9)).Err(); err == nil {
		t.Error("a command on keys of both sides went through in the middle of the migration")
	}
	m.Finish()
	readAll() // by MOVED, the first time
	if got := cs.MasterOf(tag); got != to {
		t.Errorf("the slot is at %s, want %s", got.Addr(), to.Addr())
	}

	cs.MigrateSlot(t, Slot(tag), to, from)
	readAll()
	if got := cs.MasterOf(tag); got != from {
		t.Errorf("the slot is at %s, want back at %s", got.Addr(), from.Addr())
	}
}

func TestFailover(t *testing.T) {
	LeftToCI(t)
	t.Parallel()
	cs := StartCluster(t)
	c := cs.Client(t)
	const key = "{k}"
	if err := c.Set(t.Context(), key, "v", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	if err := cs.MasterOf(key).Client(t).Wait(t.Context(), 1, 5*time.Second).Err(); err != nil {
		t.Fatal(err)
	}
	old := cs.KillMasterOfSlot(Slot(key))
	now := cs.AwaitFailover(Slot(key), old)
	if now == old || !now.Running() || old.Running() {
		t.Fatalf("master went from %s to %s", old.Addr(), now.Addr())
	}
	c.ReloadState(t.Context())
	Eventually(t, 15*time.Second, func() bool { return c.Get(t.Context(), key).Val() == "v" },
		"the client to find the new master")

	old.Start() // and it comes back as a replica
	Eventually(t, 15*time.Second,
		func() bool { return old.p.replication("role:slave", "master_link_status:up") },
		"the old master to follow the new one")
}
