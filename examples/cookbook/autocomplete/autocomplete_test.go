package autocomplete_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/examples/cookbook/autocomplete"
	"github.com/gatehouse-go/gatehouse/examples/cookbook/internal/recipetest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func join(t *testing.T, rooms *autocomplete.Rooms, room string, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := rooms.Join(t.Context(), room, name); err != nil {
			t.Fatalf("%.20q joins %q: %v", name, room, err)
		}
	}
}

func between(t *testing.T, rooms *autocomplete.Rooms, room, from, to string) []string {
	t.Helper()
	names, more, err := rooms.Between(t.Context(), room, from, to, autocomplete.MaxAnswer)
	if err != nil || more {
		t.Fatalf("between %q and %q: %v, more: %v", from, to, err, more)
	}
	return names
}

func TestMembersJoinAndLeave(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		rooms := autocomplete.New(guardtest.NewEngine(b), 3, time.Hour)
		join(t, rooms, "go", "bob", "anna", "ann", "ann")
		if err := rooms.Join(t.Context(), "go", "cid"); !errors.Is(err, autocomplete.ErrFull) {
			t.Errorf("a fourth name of three: %v", err)
		}
		join(t, rooms, "go", "bob")
		join(t, rooms, "{go}", "cid")
		if names := between(t, rooms, "go", "an", "an"); !slices.Equal(names, []string{"ann", "anna"}) {
			t.Errorf("an: %q", names)
		}
		for range 2 {
			if err := rooms.Leave(t.Context(), "go", "ann"); err != nil {
				t.Error(err)
			}
		}
		if names := between(t, rooms, "go", "", ""); !slices.Equal(names, []string{"anna", "bob"}) {
			t.Errorf("all: %q", names)
		}
	})
}

// TestReadingLeavesNothingBehind: sentinels used to stay in the set when a call failed half-way.
func TestReadingLeavesNothingBehind(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		rooms := autocomplete.New(guardtest.NewEngine(b), 10, time.Hour)
		join(t, rooms, "go", "ann", "bob")

		faults := redistest.NewFaults(t)
		lossy := autocomplete.New(guardtest.NewEngineOver(b, b.NewClientWith(t, faults)), 10, time.Hour)
		for range 5 {
			faults.SwallowReplies("zrangebylex", 2)
			if names, _, err := lossy.Complete(t.Context(), "go", "a", 10); err != nil ||
				!slices.Equal(names, []string{"ann"}) {
				t.Errorf("%q, %v", names, err)
			}
		}
		if _, _, err := lossy.Complete(t.Context(), "none", "a", 10); err != nil {
			t.Error(err)
		}
		if names := between(t, rooms, "go", "", ""); !slices.Equal(names, []string{"ann", "bob"}) {
			t.Errorf("%q after reads", names)
		}
		if keys := recipetest.Keys(t, b); len(keys) != 1 || faults.Swallowed() == 0 {
			t.Errorf("%q are left after %d lost replies: want one key", keys, faults.Swallowed())
		}
	})
}

// TestAnyBytesAgainstADefinition compares random names and prefixes of few bytes with a definition in Go.
func TestAnyBytesAgainstADefinition(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		random := rand.New(rand.NewPCG(seed, 0))
		text := func(least, most int) string {
			some := make([]byte, least+random.IntN(most-least+1))
			for i := range some {
				some[i] = "\x00a{\xfe\xff"[random.IntN(5)]
			}
			return string(some)
		}
		rooms := autocomplete.New(guardtest.NewEngine(b), 1000, time.Hour)
		var all []string
		for range 60 {
			all = append(all, text(1, 3))
		}
		join(t, rooms, "r", all...)
		slices.Sort(all)
		all = slices.Compact(all)
		for range 100 {
			from, to := text(0, 3), text(0, 3)
			var want []string
			for _, name := range all {
				if name >= from && (name < to || strings.HasPrefix(name, to)) {
					want = append(want, name)
				}
			}
			if got := between(t, rooms, "r", from, to); !slices.Equal(got, want) {
				t.Fatalf("between %q and %q: %q, want %q", from, to, got, want)
			}
		}
	})
}

func TestAnswersAreBounded(t *testing.T) {
	b := redistest.Mini(t)
	rooms := autocomplete.New(guardtest.NewEngine(b), 1000, time.Hour)
	for i := range autocomplete.MaxAnswer + 1 {
		join(t, rooms, "r", fmt.Sprintf("%03d", i))
	}
	for _, n := range []int{-1, 0, 1, autocomplete.MaxAnswer, 1 << 40} {
		names, more, err := rooms.Complete(t.Context(), "r", "", n)
		if want := min(max(n, 1), autocomplete.MaxAnswer); err != nil || len(names) != want || !more {
			t.Errorf("n %d: %d names, more: %v, %v: want %d", n, len(names), more, err, want)
		}
	}
	if names, more, err := rooms.Complete(t.Context(), "r", "09", 10); err != nil || len(names) != 10 || more {
		t.Errorf("09: %q, more: %v, %v", names, more, err)
	}
}

func TestScriptsDeclareTheirKeys(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		gate, declared := recipetest.NewDeclared(b)
		join(t, autocomplete.New(gate, 9, time.Hour), "r", "ann")
		declared.WantAll(t, b)
	})
}

func TestAServerThatForgetsItsScripts(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		rooms := autocomplete.New(recipetest.Forgetful(t, b), 9, time.Hour)
		join(t, rooms, "r", "ann", "bob")
		if err := rooms.Leave(t.Context(), "r", "ann"); err != nil {
			t.Error(err)
		}
		if names := between(t, rooms, "r", "", ""); !slices.Equal(names, []string{"bob"}) {
			t.Errorf("%q", names)
		}
	})
}

func TestLostRepliesJoinOnce(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		gate, faults := recipetest.Lossy(t, b, 0.5)
		rooms := autocomplete.New(gate, 10, time.Hour)
		for i := range 20 { // ten names, which the room has places for
			name := fmt.Sprint(i % 10)
			recipetest.Retry(t, func() error { return rooms.Join(t.Context(), "r", name) })
			if i < 10 && i%2 == 0 {
				recipetest.Retry(t, func() error { return rooms.Leave(t.Context(), "r", name) })
			}
		}
		if names := between(t, rooms, "r", "", ""); len(names) != 10 || faults.Swallowed() == 0 {
			t.Errorf("%q after %d lost replies", names, faults.Swallowed())
		}
	})
}

func TestRequests(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		h := autocomplete.Handler(autocomplete.New(guardtest.NewEngine(b), 3, time.Hour), keyfuncs.Header("X-User"))
		me, list := "/rooms/go/members/me", "/rooms/go/members"
		braces := "/rooms/" + url.PathEscape("{a}/\x00%7B") + "/members"
		recipetest.Send(t, h, []recipetest.Request{
			{Method: "PUT", Path: me, Status: 401},
			{Method: "PUT", Path: me, User: "ann", Status: 204},
			{Method: "PUT", Path: me, User: "ann", Status: 204},
			{Method: "PUT", Path: me, User: "a{é}", Status: 204},
			{Method: "PUT", Path: me, User: "日本", Status: 204},
			{Method: "PUT", Path: me, User: "bob", Status: 409},
			{Method: "PUT", Path: me, User: "a\xff", Status: 400},
			{Method: "PUT", Path: me, User: strings.Repeat("x", autocomplete.MaxName+1), Status: 400},
			{Method: "GET", Path: list + "?prefix=a", Status: 200, Want: `{"more":false,"names":["ann","a{é}"]}`},
			{Method: "GET", Path: list + "?prefix=" + url.QueryEscape("日"), Status: 200, Want: `["日本"]`},
			{Method: "GET", Path: list + "?from=ao&to=z", Status: 200, Want: `["a{é}"]`},
			{Method: "GET", Path: list + "?from=z&to=a", Status: 200, Want: `[]`},
			{Method: "GET", Path: list + "?prefix=%00", Status: 200, Want: `[]`},
			{Method: "GET", Path: list + "?prefix=%ff", Status: 400},
			{Method: "GET", Path: list + "?prefix=" + strings.Repeat("x", autocomplete.MaxName+1), Status: 400},
			{Method: "GET", Path: list, Status: 200, Want: `["ann","a{é}","日本"]`},
			{Method: "GET", Path: "/rooms/%67o/members", Status: 200, Want: `"ann"`},
			{Method: "GET", Path: "/rooms/%ff/members", Status: 400},
			{Method: "GET", Path: "/rooms//members", Status: 400},
			{Method: "PUT", Path: braces + "/me", User: "eve", Status: 204},
			{Method: "GET", Path: braces, Status: 200, Want: `["eve"]`},
			{Method: "DELETE", Path: me, User: "ann", Status: 204},
			{Method: "DELETE", Path: me, User: "ann", Status: 204},
			{Method: "GET", Path: list + "?prefix=an", Status: 200, Want: `[]`},
		})
	})
}

func TestClientsDoNotSeeWhatIsWrongWithRedis(t *testing.T) {
	h := autocomplete.Handler(autocomplete.New(recipetest.Broken(t), 3, time.Hour), keyfuncs.Header("X-User"))
	recipetest.Send(t, h, []recipetest.Request{
		{Method: "PUT", Path: "/rooms/go/members/me", User: "ann", Status: 503},
		{Method: "DELETE", Path: "/rooms/go/members/me", User: "ann", Status: 503},
	})
}

func TestSetUpMistakesPanic(t *testing.T) {
	gate := guardtest.NewEngine(redistest.Mini(t))
	guardtest.WantPanic(t, "give 1 or more", func() { autocomplete.New(gate, 0, time.Hour) })
	guardtest.WantPanic(t, "give 1 or more", func() { autocomplete.New(gate, 1, time.Millisecond) })
	guardtest.WantPanic(t, "needs Redis", func() { autocomplete.New(core.NewMemory(), 1, time.Hour) })
}
