package examples_test

import (
	"context"
	"iter"
	"log"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/quota"
	"github.com/gatehouse-go/gatehouse/echomw"
	"github.com/gatehouse-go/gatehouse/ginmw"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

var (
	_ = []any{slidingWindow, banning, articles, streamed, spendLater, operate}
	_ = []any{failedLogins, bannedLogins, liftBan}
)

func slidingWindow(gate *core.Engine, app http.Handler, r *gin.Engine, e *echo.Echo) http.Handler {
	perIP := ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "site", limit.PerSecond(10), limit.PerMinute(100)),
		Who:   keyfuncs.IP(),
	}

	r.Use(ginmw.Gin(perIP))               // gin
	e.Use(echomw.Echo(perIP))             // echo
	handler := ratelimit.HTTP(perIP)(app) // net/http, chi

	return handler
}

func failedLogins(gate *core.Engine) ratelimit.Rule {
	logins := ratelimit.Rule{
		Guard:   limit.NewSlidingWindow(gate, "failed-logins", limit.PerHour(5)),
		Who:     keyfuncs.IP(),
		Counted: []int{http.StatusUnauthorized}, // all others give back
	}

	return logins
}

func bannedLogins(gate *core.Engine) ratelimit.Rule {
	logins := ratelimit.Rule{
		Guard:   limit.NewSlidingWindow(gate, "failed-logins", limit.PerHour(5)),
		Who:     keyfuncs.IP(),
		Counted: []int{http.StatusUnauthorized},
		Bans: bans.New(gate, "login-bans", bans.Options{
			Refusals: 10, Period: time.Hour, First: time.Hour, Longest: 7 * 24 * time.Hour,
		}),
	}
	return logins
}

func streamed(gate *core.Engine) ratelimit.Rule {
	tokens := ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "tokens", limit.PerMinute(100_000).WithResolution(60)),
		Who:   keyfuncs.User("uid"),
		Cost:  func(*keyfuncs.Request) (int64, error) { return 4000, nil }, // what an answer has at most
	}

	return tokens
}

func spendLater(answer func(*http.Request) iter.Seq2[string, int64]) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for part, used := range answer(r) {
			_, _ = w.Write([]byte(part))
			if err := ratelimit.Spend(r.Context(), "tokens", used); err != nil {
				log.Print(err)
			}
		}
	}
}

func operate(ctx context.Context, site *limit.SlidingWindow) error {
	ann := core.Attempt{Actor: "203.0.113.7"} // as the rule's key functions make it
	d, err := site.Peek(ctx, ann)             // takes nothing: d.Remaining, d.ResetAfter
	if err == nil && d.Remaining == 0 {
		err = site.Reset(ctx, ann) // nothing counts as used
	}

	return err
}

func banning(gate *core.Engine) ratelimit.Rule {
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

	return perIP
}

func liftBan(ctx context.Context, shut *bans.Guard) error {
	client := core.Attempt{Actor: "203.0.113.7"}
	state, err := shut.Status(ctx, client) // state.Left, state.Level, state.Strikes
	if err == nil && state.Left > 0 {
		err = shut.Unban(ctx, client)
	}

	return err
}

func articles(ctx context.Context, gate *core.Engine, berlin *time.Location) (ratelimit.Rule, error) {
	points := quota.New(gate, "points", quota.Options{Items: 10, Period: period.Daily(berlin)})
	read := ratelimit.Rule{
		Guard: points,
		Who:   keyfuncs.User("uid"),
		Which: keyfuncs.Param("article"),
	}

	items, left, err := points.Used(ctx, core.Attempt{Actor: "ann"})

	_, _ = items, left
	return read, err
}
