package examples_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/core/idempotency"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/lock"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/quota"
	"github.com/gatehouse-go/gatehouse/core/redpacket"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/core/waitingroom"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline/deferred"
)

// guardsApp is what the curl commands of docs/guards talk to: each guard on a route, with limits that a few
// requests use up.
func guardsApp(ctx context.Context, gate *core.Engine) (http.Handler, error) {
	mux := http.NewServeMux()
	guard := func(pattern string, rules ...ratelimit.Rule) {
		mux.Handle(pattern, ratelimit.HTTP(rules...)(http.HandlerFunc(ok)))
	}
	site := keyfuncs.Const("site") // in place of an address, which all commands share
	guard("GET /site", ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "site", limit.PerMinute(2)),
		Who:   site,
	})
	guard("GET /banned", ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "login", limit.PerMinute(1)),
		Who:   site,
		Bans:  bans.New(gate, "bans", bans.Options{Refusals: 1, First: time.Minute}),
	})

	user := keyfuncs.User("uid")
	guard("POST /polls/{poll}/votes", ratelimit.Rule{
		Guard: votes.New(gate, "poll", votes.Options{Find: findPoll}),
		Who:   user, What: keyfuncs.Param("poll"), Which: keyfuncs.Query("choice"),
	})
	guard("POST /articles/{article}", ratelimit.Rule{
		Guard: quota.New(gate, "points", quota.Options{Items: 2, Period: period.Daily(time.UTC)}),
		Who:   user, Which: keyfuncs.Param("article"),
	})
	if err := sales(ctx, gate, guard); err != nil {
		return nil, err
	}
	if err := packets(ctx, gate, guard); err != nil {
		return nil, err
	}
	mux.Handle("POST /orders", ratelimit.HTTP(ratelimit.Rule{
		Guard: idempotency.New(gate, "orders", idempotency.Options{}), Who: user, ID: keyfuncs.IdempotencyKey(),
	})(http.HandlerFunc(order)))

	// One export runs, and somebody else works on account a7.
	exports := semaphore.New(gate, "exports", semaphore.Options{Max: 1})
	if _, err := exports.Check(ctx, core.Attempt{Actor: "bob"}); err != nil {
		return nil, err
	}
	guard("POST /exports", ratelimit.Rule{Guard: exports, Who: user})
	room := waitingroom.New(gate, "shop", waitingroom.Options{Capacity: 1, Secrets: [][]byte{make([]byte, 32)}})
	if _, err := room.Check(ctx, core.Attempt{Actor: "bob"}); err != nil {
		return nil, err
	}
	accounts := lock.New(gate, "account", lock.Options{})
	if _, err := accounts.Check(ctx, core.Attempt{Actor: "bob", Resource: "a7"}); err != nil {
		return nil, err
	}
	guard("POST /accounts/{account}", ratelimit.Rule{
		Guard: accounts, Who: user, What: keyfuncs.Param("account"),
	})

	later := deferred.New(delay.New(gate, "deferred", delay.Options{}), deferred.Options{
		Who: user, Limit: limit.NewSlidingWindow(gate, "stored", limit.PerHour(20)),
		Secrets: [][]byte{make([]byte, 32)},
	})
	guard("POST /reports", ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "reports", limit.PerMinute(1)), Who: user, Defer: later,
	})
	mux.Handle("GET /deferred/{id}", later)
	return login(mux), nil
}

func sales(ctx context.Context, gate *core.Engine, guard func(string, ...ratelimit.Rule)) error {
	sale := seckill.New(gate, "sale", seckill.Options{})
	for sku, terms := range map[string]seckill.Sale{
		"tv-55": {Stock: 2},
		"radio": {Stock: 1, Opens: time.Now().Add(time.Hour)},
	} {
		if _, err := sale.Open(ctx, sku, terms); err != nil {
			return err
		}
	}
	guard("POST /sales/{sku}/orders", ratelimit.Rule{
		Guard: sale, Who: keyfuncs.User("uid"), What: keyfuncs.Param("sku"), ID: keyfuncs.IdempotencyKey(),
	})
	return nil
}

func packets(ctx context.Context, gate *core.Engine, guard func(string, ...ratelimit.Rule)) error {
	packets := redpacket.New(gate, "packet", redpacket.Options{})
	_, err := packets.Create(ctx, "party", redpacket.Packet{
		Total: 2000, Shares: 1, Expires: time.Now().Add(time.Hour),
	})
	guard("POST /packets/{packet}", ratelimit.Rule{
		Guard: packets, Who: keyfuncs.User("uid"), What: keyfuncs.Param("packet"),
	})
	return err
}

// login believes any name that a request gives, for the examples.
func login(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, _, found := r.BasicAuth(); found {
			r = r.WithContext(keyfuncs.WithValue(r.Context(), "uid", user))
		}
		next.ServeHTTP(w, r)
	})
}

func ok(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }

func order(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Location", "/orders/7")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintln(w, "order 7")
}
