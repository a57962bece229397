package gatehousetest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/echomw"
	"github.com/gatehouse-go/gatehouse/gatehousetest"
	"github.com/gatehouse-go/gatehouse/ginmw"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

func get() *http.Request { return httptest.NewRequest(http.MethodGet, "/", nil) }

// apps are the same limit in each framework.
func apps(gate *core.Engine) map[string]http.Handler {
	perIP := pipeline.Rule{Guard: limit.NewSlidingWindow(gate, "site", limit.PerMinute(3)), Who: keyfuncs.IP()}
	g := gin.New()
	g.Use(ginmw.Gin(perIP))
	g.GET("/", func(c *gin.Context) { c.Status(http.StatusOK) })
	e := echo.New()
	e.Use(echomw.Echo(perIP))
	e.GET("/", func(c echo.Context) error { return c.NoContent(http.StatusOK) })
	return map[string]http.Handler{
		"gin": g, "echo": e,
		"net/http": nethttpmw.HTTP(perIP)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})),
	}
}

// TestTheClockMovesAllThatRemembers: with the clock of miniredis alone, a refusal that the process remembers stayed
// for a second of real time.
func TestTheClockMovesAllThatRemembers(t *testing.T) {
	gate := gatehousetest.New(t)
	for name, app := range apps(gate.Engine) {
		t.Run(name, func(*testing.T) {
			gate.Allows(app, 3, get)
			for range 3 { // the second and third from memory
				gate.Refuses(app, http.StatusTooManyRequests, time.Minute, get)
			}
			gate.Advance(time.Minute - time.Millisecond)
			gate.Refuses(app, http.StatusTooManyRequests, time.Millisecond, get)
			gate.Advance(time.Millisecond)
			gate.Allows(app, 3, get)
			gate.Advance(time.Hour)
		})
	}
	if keys := gate.Redis.Keys(); len(keys) > 0 {
		t.Errorf("%q are left", keys)
	}
}

func TestHoldsAndPollsEndByTheClock(t *testing.T) {
	gate := gatehousetest.New(t)
	sale := seckill.New(gate.Engine, "sale", seckill.Options{})
	if _, err := sale.Open(t.Context(), "tv", seckill.Sale{Stock: 1, Hold: time.Minute}); err != nil {
		t.Fatal(err)
	}
	for _, buyer := range []string{"ann", "bob"} {
		d, err := sale.Check(t.Context(), core.Attempt{Actor: buyer, Resource: "tv"})
		if err != nil || d.Reason != core.ReasonOK {
			t.Errorf("%s: %+v, %v", buyer, d, err)
		}
		gate.Advance(time.Minute)
	}
	poll := votes.New(gate.Engine, "poll", votes.Options{Poll: votes.Poll{Closes: gate.Now().Add(time.Hour)}})
	for _, want := range []core.Reason{core.ReasonOK, core.ReasonClosed} {
		d, err := poll.Check(t.Context(), core.Attempt{Actor: fmt.Sprint(want), Resource: "final", Item: "red"})
		if err != nil || d.Reason != want {
			t.Errorf("%+v, %v: want %s", d, err, want)
		}
		gate.Advance(time.Hour)
	}
}

// TestAnOutageIsAClosedRedis: limits go on in the process, and the Redis comes back.
func TestAnOutageIsAClosedRedis(t *testing.T) {
	gate := gatehousetest.New(t)
	app := apps(gate.Engine)["net/http"]
	gate.Allows(app, 1, get)
	gate.Redis.Close()
	gate.Allows(app, 2, get)
	gate.Refuses(app, http.StatusTooManyRequests, time.Minute, get)
	if err := gate.Redis.Restart(); err != nil {
		t.Fatal(err)
	}
}

// failing is a test that is expected to fail.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	panic(f)
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	for want, wrong := range map[string]func(gate *gatehousetest.Gate, app http.Handler){
		"request 4 of 5 gets 429, and is to be allowed": func(gate *gatehousetest.Gate, app http.Handler) {
			gate.Allows(app, 5, get)
		},
		`gets 200 with Retry-After "", want 429 with "60"`: func(gate *gatehousetest.Gate, app http.Handler) {
			gate.Refuses(app, http.StatusTooManyRequests, time.Minute, get)
		},
		`gets 429 with Retry-After "60", want 429 with "61"`: func(gate *gatehousetest.Gate, app http.Handler) {
			gate.Allows(app, 3, get)
			gate.Refuses(app, http.StatusTooManyRequests, 60_001*time.Millisecond, get)
		},
	} {
		f := &failing{TB: t}
		func() {
			defer func() { _ = recover() }()
			gate := gatehousetest.New(f)
			wrong(gate, apps(gate.Engine)["net/http"])
		}()
		if !strings.Contains(f.said, want) {
			t.Errorf("it says %q, want %q", f.said, want)
		}
	}
}
