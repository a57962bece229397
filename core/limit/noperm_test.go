package limit

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// sentCalls counts the commands that a client sends, in pipelines or by themselves.
type sentCalls struct{ atomic.Int64 }

func (*sentCalls) DialHook(next redis.DialHook) redis.DialHook { return next }

func (n *sentCalls) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		n.Add(1)
		return next(ctx, cmd)
	}
}

func (n *sentCalls) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		n.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

// TestAKeyThatIsNotAllowedCostsOneCall: each check of a user who may not use a key was two calls, and so was
// each refund.
func TestAKeyThatIsNotAllowedCostsOneCall(t *testing.T) {
	server := redistest.StartServer(t)
	admin := server.Client(t)
	for _, words := range [][]any{
		{"acl", "setuser", "other", "on", ">secret", "~other:*", "+@all"},
		{"acl", "setuser", "counts", "on", ">secret", "~*log", "~*log|parts", "~*00", "+@all"}, // no refunds
	} {
		if err := admin.Do(t.Context(), words...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	calls := &sentCalls{}
	engine := func(user string) *core.Engine {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: user, Password: "secret",
			ContextTimeoutEnabled: true, MaxRetries: -1})
		t.Cleanup(func() { _ = rdb.Close() })
		e := core.New(rdb, core.WithObserver(guardtest.Ignore{}), core.WithDeadline(time.Minute),
			core.WithBreaker(1000, 0))
		if err := rdb.Ping(t.Context()).Err(); err != nil { // it connects
			t.Fatal(err)
		}
		rdb.AddHook(calls)
		return e
	}
	want := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("%s: %v, want a NOPERM", what, err)
		}
		if n := calls.Swap(0); n != 1 {
			t.Errorf("%s: %d calls, want 1", what, n)
		}
	}
	other, counts := engine("other"), engine("counts")
	for _, k := range append(kinds[:len(kinds):len(kinds)], byParts) {
		for name, more := range map[string][]Limit{"one": nil, "two": {PerHour(20)}} {
			guard, a := name+k.name[:3]+k.name[len(k.name)-5:], core.Attempt{Actor: "a"}
			g := k.make(other, guard, PerMinute(10), more...)
			for range 3 {
				_, err := g.Check(t.Context(), a)
				want(k.name+" "+name, err)
			}
			_, err := g.Peek(t.Context(), a)
			want(k.name+" "+name+", a Peek", err)

			g = k.make(counts, guard, PerMinute(10), more...)
			if err := counts.Preload(t.Context()); err != nil {
				t.Fatal(err)
			}
			d := guardtest.Check(t, g, a)
			calls.Store(0)
			want(k.name+" "+name+", a refund", g.Refund(t.Context(), d))
			want(k.name+" "+name+", a refund that is repeated", g.Refund(t.Context(), d))
		}
	}
}
