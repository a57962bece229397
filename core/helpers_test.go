package core_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/redpacket"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/lua"
)

// rateLimit has the methods of every rate limit.
type rateLimit interface {
	core.Guard
	Peek(ctx context.Context, a core.Attempt) (core.Decision, error)
	Reset(ctx context.Context, a core.Attempt) error
	Refund(ctx context.Context, d core.Decision) error
}

// limitKinds lists the kinds of rate limits.
var limitKinds = map[string]struct {
	make func(e *core.Engine, name string, l limit.Limit, more ...limit.Limit) rateLimit
	by   func(e *core.Engine, name string, limits limit.Func) rateLimit
}{
	"SlidingWindow": {
		func(e *core.Engine, name string, l limit.Limit, more ...limit.Limit) rateLimit {
			return limit.NewSlidingWindow(e, name, l, more...)
		},
		func(e *core.Engine, name string, by limit.Func) rateLimit {
			return limit.NewSlidingWindowBy(e, name, by)
		},
	},
	"FixedWindow": {
		func(e *core.Engine, name string, l limit.Limit, more ...limit.Limit) rateLimit {
			return limit.NewFixedWindow(e, name, l, more...)
		},
		func(e *core.Engine, name string, by limit.Func) rateLimit { return limit.NewFixedWindowBy(e, name, by) },
	},
	"TokenBucket": {
		func(e *core.Engine, name string, l limit.Limit, more ...limit.Limit) rateLimit {
			return limit.NewTokenBucket(e, name, l, more...)
		},
		func(e *core.Engine, name string, by limit.Func) rateLimit { return limit.NewTokenBucketBy(e, name, by) },
	},
}

// Scripts that tests recognize by the hash of their source when they are sent.
var (
	voteScript     = script.New("vote", lua.Source("votes/vote"), script.Idempotent)
	voteUndoScript = script.New("vote_undo", lua.Source("votes/undo"), script.Idempotent)

	joinedScript  = script.New("joined", lua.Source("limit/sliding_window"), script.AtMostOnce)
	reserveScript = script.New("reserve", lua.Source("seckill/reserve"), script.AtMostOnce)
)

func openSale(t testing.TB, g *seckill.Guard, item string, sale seckill.Sale) {
	t.Helper()
	if opened, err := g.Open(t.Context(), item, sale); err != nil || !opened {
		t.Fatalf("Open: %v, %v", opened, err)
	}
}

func tally(t testing.TB, g *votes.Guard, poll string) map[string]int64 {
	t.Helper()
	sums, err := g.Tally(t.Context(), poll)
	if err != nil {
		t.Fatal(err)
	}
	return sums
}

func createPacket(t testing.TB, g *redpacket.Guard, id string, p redpacket.Packet) {
	t.Helper()
	if created, err := g.Create(t.Context(), id, p); err != nil || !created {
		t.Fatalf("Create(%q, %+v): %v, %v", id, p, created, err)
	}
}

// strikeOut strikes an actor until they are banned: at a guard with one Refusal the second strike bans.
func strikeOut(t *testing.T, g *bans.Guard, a core.Attempt) {
	t.Helper()
	for range 2 {
		if _, err := g.Strike(t.Context(), a); err != nil {
			t.Fatalf("Strike(%+v): %v", a, err)
		}
	}
}

func ban(t *testing.T, g *bans.Guard, a core.Attempt, length time.Duration) {
	t.Helper()
	if err := g.Ban(t.Context(), a, length); err != nil {
		t.Fatalf("Ban(%+v, %v): %v", a, length, err)
	}
}

func banStatus(t *testing.T, g *bans.Guard, a core.Attempt) bans.Status {
	t.Helper()
	s, err := g.Status(t.Context(), a)
	if err != nil {
		t.Fatalf("Status(%+v): %v", a, err)
	}
	return s
}

func unban(t *testing.T, g *bans.Guard, a core.Attempt) {
	t.Helper()
	if err := g.Unban(t.Context(), a); err != nil {
		t.Fatalf("Unban(%+v): %v", a, err)
	}
}

func peek(t *testing.T, g rateLimit, a core.Attempt) core.Decision {
	t.Helper()
	d, err := g.Peek(t.Context(), a)
	if err != nil {
		t.Fatalf("Peek(%+v): %v", a, err)
	}
	return d
}

func refund(t *testing.T, g rateLimit, d core.Decision) {
	t.Helper()
	if err := g.Refund(t.Context(), d); err != nil {
		t.Fatalf("Refund(%+v): %v", d, err)
	}
}

type observerFunc func(context.Context, core.Event)

func (f observerFunc) Observe(ctx context.Context, e core.Event) { f(ctx, e) }

// quiet keeps what is logged during the test to itself.
func quiet(t *testing.T) *guardtest.Output {
	var log guardtest.Output
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return &log
}
