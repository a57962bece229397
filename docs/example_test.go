// Package docs_test has code that the documents show, so that it compiles, and tests that keep the two
// equal.
package docs_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"log"
	"net/http"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/lock"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/quota"
	"github.com/gatehouse-go/gatehouse/core/redpacket"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/echomw"
	ratelimit "github.com/gatehouse-go/gatehouse/ginmw"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

func Example_gin() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true})
	gate := core.New(rdb)

	perIP := ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "site", limit.PerMinute(100)),
		Who:   keyfuncs.IP(),
	}
	vote := ratelimit.Rule{
		Guard: votes.New(gate, "poll", votes.Options{Find: findPoll}),
		Who:   keyfuncs.User("uid"),
		What:  keyfuncs.Param("poll"),
		Which: keyfuncs.Form("choice"),
	}
	buy := ratelimit.Rule{
		Guard: seckill.New(gate, "sale", seckill.Options{}),
		Who:   keyfuncs.User("uid"),
		What:  keyfuncs.Param("sku"),
		ID:    keyfuncs.IdempotencyKey(),
	}

	r := gin.New()
	r.Use(ratelimit.Gin(perIP))
	r.POST("/polls/:poll/votes", login, ratelimit.Gin(vote), castVote)
	r.POST("/sales/:sku/orders", login, ratelimit.Gin(buy), placeOrder)
}

func Example_echo() {
	gate, perIP, buy := rules()

	e := echo.New()
	e.Use(echomw.Echo(perIP))
	e.POST("/sales/:sku/orders", order, echomw.Echo(buy))

	_ = gate
}

func Example_nethttp() {
	gate, perIP, buy := rules()

	mux := http.NewServeMux()
	mux.Handle("POST /sales/{sku}/orders", nethttpmw.HTTP(buy)(http.HandlerFunc(orderHandler)))
	handler := nethttpmw.HTTP(perIP)(mux)

	_, _ = gate, handler
}

func Example_limits() {
	gate, perIP, _ := rules()

	api := ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "api", limit.PerSecond(10), limit.PerMinute(100), limit.PerDay(1000)),
		Who:   keyfuncs.User("client"), // whose the API key is: authenticate has checked it
		What:  keyfuncs.Route(),
	}
	r := gin.New()
	r.GET("/api/items", ratelimit.Gin(perIP), authenticate, ratelimit.Gin(api), listItems)
}

func Example_quota() {
	gate := core.New(client(), core.WithDeadline(30*time.Second))

	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		log.Fatal(err)
	}
	points := ratelimit.Rule{
		Guard: quota.New(gate, "points", quota.Options{Items: 10, Period: period.Daily(berlin)}),
		Who:   keyfuncs.User("uid"),
		Which: keyfuncs.Param("article"),
	}

	_ = points
}

func Example_semaphore() {
	gate := core.New(client(), core.WithDeadline(30*time.Second))

	exports := ratelimit.Rule{
		Guard: semaphore.New(gate, "exports", semaphore.Options{Max: 5}),
		Who:   keyfuncs.User("uid"),
	}

	_ = exports
}

func Example_lock() {
	gate := core.New(client(), core.WithDeadline(30*time.Second))

	account := ratelimit.Rule{
		Guard: lock.New(gate, "account", lock.Options{}),
		Who:   keyfuncs.User("uid"),
		What:  keyfuncs.Param("account"),
	}

	_ = account
}

// transfer is part of a handler behind a lock.
func transfer(ctx context.Context, db *sql.DB, balance int64, id string) error {
	fence, _ := lock.Fence(ctx) // 0 without the lock
	done, err := db.ExecContext(ctx,
		"UPDATE accounts SET balance = $1, fence = $2 WHERE id = $3 AND fence < $2", balance, fence, id)

	if err != nil {
		return err
	}
	if n, err := done.RowsAffected(); err != nil || n == 0 {
		return cmp.Or(err, lock.ErrLost)
	}
	return nil
}

var _ = transfer

func Example_redPacket() {
	gate, ctx := core.New(client(), core.WithDeadline(30*time.Second)), context.Background()

	packets := redpacket.New(gate, "packet", redpacket.Options{})
	created, err := packets.Create(ctx, "party", redpacket.Packet{
		Total: 10_000, Shares: 20, Expires: time.Now().Add(24 * time.Hour),
	})
	d, err2 := packets.Check(ctx, core.Attempt{Actor: "ann", Resource: "party"})

	fmt.Println(created, err, err2)
	fmt.Println(d.Allowed, redpacket.Amount(d) > 0, d.Remaining)
	// Output:
	// true <nil> <nil>
	// true true 19
}

func Example_bansAndLists() {
	gate := core.New(client(), core.WithDeadline(30*time.Second))

	deny := keyfuncs.NewList(keyfuncs.IP(), "198.51.100.0/24")
	perIP := ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "site", limit.PerMinute(100)),
		Who:   keyfuncs.IP(),
		Deny:  deny,
		Allow: keyfuncs.NewList(keyfuncs.IP(), "192.0.2.0/24", "2001:db8:1:2::5"),
		Bans: bans.New(gate, "bans", bans.Options{
			Refusals: 50, First: time.Minute, Longest: 24 * time.Hour, Decay: time.Hour,
		}),
	}

	_ = perIP
}

func Example_failedLogins() {
	gate := core.New(client(), core.WithDeadline(30*time.Second))

	logins := ratelimit.Rule{
		Guard:   limit.NewSlidingWindow(gate, "failed-logins", limit.PerHour(5)),
		Who:     keyfuncs.IP(),
		Counted: []int{http.StatusUnauthorized}, // all others give back
	}

	_ = logins
}

func Example_spend() {
	gate := core.New(client(), core.WithDeadline(30*time.Second))

	tokens := ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "tokens", limit.PerMinute(100_000).WithResolution(60)),
		Who:   keyfuncs.User("uid"),
		Cost:  func(*keyfuncs.Request) (int64, error) { return 4000, nil }, // what an answer has at most
	}

	gin.New().POST("/chat", ratelimit.Gin(tokens), chat)
}

func chat(c *gin.Context) {
	for part, used := range answer(c) {
		_, _ = c.Writer.WriteString(part)
		if err := ratelimit.Spend(c, "tokens", used); err != nil {
			log.Print(err)
		}
	}
}

// answer streams an answer, and how many tokens each part of it has cost.
func answer(*gin.Context) iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) { yield("Hello!", 3) }
}

// findPoll knows the polls: in memory, because it is asked at each attempt.
func findPoll(_ context.Context, name string) (votes.Poll, error) {
	if name != "final" {
		return votes.Poll{}, votes.ErrNoPoll
	}
	return votes.Poll{
		Choices: []string{"red", "blue"},
		Closes:  time.Date(2030, time.June, 1, 20, 0, 0, 0, time.UTC),
	}, nil
}

func Example_tally() {
	gate := core.New(client(), core.WithDeadline(30*time.Second))
	ballots := votes.New(gate, "poll", votes.Options{Find: findPoll})

	tally, err := ballots.Tally(context.Background(), "final")
	if err != nil {
		log.Print(err)
	}

	fmt.Println(tally)
	// Output: map[blue:0 red:0]
}

func Example_seckill() {
	ctx := context.Background()
	gate := core.New(client(), core.WithDeadline(30*time.Second))

	sale := seckill.New(gate, "sale", seckill.Options{})
	opened, err := sale.Open(ctx, "tv-55", seckill.Sale{
		Stock:    100,
		PerBuyer: 1,
		Opens:    time.Now(),
		Closes:   time.Now().Add(2 * time.Hour),
		Hold:     5 * time.Minute,
	})
	if err != nil {
		log.Fatal(err)
	}

	status, err := sale.Status(ctx, "tv-55")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("opened now: %v, %d of %d left\n", opened, status.Left, status.Stock)
	// Output: opened now: true, 100 of 100 left
}

func payLater(c *gin.Context) {
	reservation, ok := ratelimit.Take(c, "sale") // held, and now the handler's to settle
	if !ok {
		c.Status(http.StatusServiceUnavailable)
		return
	}
	saveOrder(reservation.Attempt.Resource, reservation.Attempt.ID, reservation.Attempt.Actor)
	c.Status(http.StatusAccepted)
}

func paid(ctx context.Context, sale *seckill.Guard, sku, buyer, id string) error {
	d, err := sale.Confirm(ctx, core.Attempt{Actor: buyer, Resource: sku, ID: id})
	if err != nil {
		return err // not known: call again, it counts once
	}
	if !d.Allowed {
		return refund(sku, id) // ReasonGone: paid too late, and all units are taken
	}
	return nil
}

func Example_withoutHTTP() {
	ctx := context.Background()
	gate := core.New(client(), core.WithDeadline(30*time.Second))
	emails := limit.NewSlidingWindow(gate, "emails", limit.PerHour(3))

	for range 4 {
		err := core.Do(ctx, emails, core.Attempt{Actor: "ann@example.org"}, func(ctx context.Context) error {
			return send(ctx, "ann@example.org")
		})
		var refused *core.Refused
		if errors.As(err, &refused) {
			fmt.Println(refused.Reason, "again in", refused.RetryAfter.Round(time.Hour))
		} else if err != nil {
			fmt.Println("not sent:", err)
		}
	}
	// Output:
	// sent to ann@example.org
	// sent to ann@example.org
	// sent to ann@example.org
	// limited again in 1h0m0s
}

func send(_ context.Context, to string) error {
	fmt.Println("sent to", to)
	return nil
}

func Example_ownScript() {
	ctx := context.Background()
	gate := core.New(client(), core.WithDeadline(30*time.Second))

	once := script.New("once", `
		if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
		return 0`, script.AtMostOnce)

	key := gate.Key("welcome-mail", "ann@example.org")
	for range 2 {
		reply, err := gate.Run(ctx, once, []string{key}, "sent", time.Hour.Milliseconds())
		fmt.Println(reply, err)
	}
	// Output:
	// 1 <nil>
	// 0 <nil>
}

// client returns a client of a Redis inside the process, for the examples.
func client() *redis.Client {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	if err := m.Start(); err != nil {
		log.Fatal(err)
	}
	return redis.NewClient(&redis.Options{Addr: m.Addr()})
}

func rules() (gate *core.Engine, perIP, buy nethttpmw.Rule) {
	gate = core.New(client(), core.WithDeadline(30*time.Second))
	perIP = nethttpmw.Rule{Guard: limit.NewSlidingWindow(gate, "site", limit.PerMinute(100)), Who: keyfuncs.IP()}
	buy = nethttpmw.Rule{
		Guard: seckill.New(gate, "sale", seckill.Options{}),
		Who:   keyfuncs.User("uid"),
		What:  keyfuncs.Param("sku"),
	}
	return gate, perIP, buy
}

var (
	login, castVote, placeOrder = func(*gin.Context) {}, func(*gin.Context) {}, payLater
	authenticate, listItems     = func(*gin.Context) {}, func(*gin.Context) {}
	order                       = func(echo.Context) error { return nil }
	orderHandler                = func(http.ResponseWriter, *http.Request) {}
	saveOrder                   = func(sku, id, buyer string) {}
	refund                      = func(sku, id string) error { return nil }
	_                           = paid
)
