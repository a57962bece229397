package idempotency

import (
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestTheActorIsInAKeyOnce: rules join the ID with the actor, so the actor was in the key of an operation
// twice. IDs that only look like that are other IDs.
func TestTheActorIsInAKeyOnce(t *testing.T) {
	g := New(guardtest.NewEngine(redistest.Mini(t)), "i", Options{})
	seen := map[string]core.Attempt{}
	for _, actor := range []string{"ann", "ann|x", `ann\`} {
		for _, id := range []string{"x", "|x", "ann|x", "ann||x", "ann|ann|x", "ann|", `ann\|x`, `ann\\|x`} {
			a := core.Attempt{Actor: actor, ID: id}
			key := g.operationKeys(a)[0]
			if other, known := seen[key]; known {
				t.Errorf("%+v and %+v have the same key", a, other)
			}
			seen[key] = a
		}
	}
	key := g.operationKeys(core.Attempt{Actor: "ann", ID: "ann|5f0c"})[0]
	if !strings.HasSuffix(key, "}:ann|||5f0c") {
		t.Errorf("the key is %s", key)
	}
}

// TestAnOperationTakesWhatTheDocumentsSay, for an actor of 12 bytes and a UUID.
func TestAnOperationTakesWhatTheDocumentsSay(t *testing.T) {
	b := redistest.Single(t)
	b.Prefix = "gatehouse" // as the documents have it; the server is shared, and the guard's name is this test's
	g := New(guardtest.NewEngine(b), "pay", Options{})
	ask := core.Attempt{Actor: "account-1234", ID: "account-1234|5f0c1c9a-6a0e-4f0e-9d3e-0a9d6f1f7a11"}
	size := func() int64 { return b.Client.MemoryUsage(t.Context(), g.operationKeys(ask)[0], 0).Val() }
	d := guardtest.Check(t, g, ask)
	running := size()
	finish(t, g, d, &core.Outcome{Status: 201})
	done := size()
	if err := g.Reset(t.Context(), ask); err != nil {
		t.Fatal(err)
	}
	finish(t, g, guardtest.Check(t, g, ask), &core.Outcome{Status: 201, Header: map[string]string{
		"Content-Type": "application/json", "Location": "/orders/1234567890",
	}})
	t.Logf("%d bytes while it runs, %d done, %d with two fields", running, done, size())
	if running > 184 || done > 200 || size() > 296 {
		t.Errorf("%d, %d and %d bytes, want at most 184, 200 and 296", running, done, size())
	}
	for _, key := range g.operationKeys(ask) {
		if key != g.operationKeys(ask)[0] {
			t.Logf("%s takes %d bytes", key, b.Client.MemoryUsage(t.Context(), key, 0).Val())
		}
		if err := b.Client.Del(t.Context(), key).Err(); err != nil {
			t.Fatal(err)
		}
	}
}
