package script_test

import (
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
)

// TestACallAllocatesLittleMoreThanItsCommand: a call made 18 objects, with the command and its reply. Of the
// 11 that are left, four are the deadline's.
func TestACallAllocatesLittleMoreThanItsCommand(t *testing.T) {
	const most = 11
	e := core.New(&scripted{server: allows}, core.WithObserver(guardtest.Ignore{}))
	e.SetObeysDeadline(true)
	script := script.New("one", "return 1", script.AtMostOnce)
	keys := []string{e.Key("kind", "tag")}
	n := testing.AllocsPerRun(500, func() {
		if _, err := e.Run(t.Context(), script, keys, 1, 2); err != nil {
			t.Fatal(err)
		}
	})
	if n > most {
		t.Errorf("%v allocations, want %d at most", n, most)
	}
}
