package fibermw_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"

	"github.com/gatehouse-go/gatehouse/adapters/fibermw"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/warntest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// newGate makes an engine with a deadline that suits a busy machine.
func newGate(t *testing.T) *core.Engine {
	t.Helper()
	b := redistest.Mini(t)
	return core.New(b.Client, core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute))
}

// inPoll is a vote of the user in the poll of the path.
func inPoll(votes *votes.Guard) fibermw.Rule {
	return fibermw.Rule{Guard: votes, Who: keyfuncs.Header("X-User"), What: keyfuncs.Param("poll"),
		Which: keyfuncs.Query("choice")}
}

func post(app *fiber.App, path, user string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, nil)
	r.Header.Set("X-User", user)
	w := httptest.NewRecorder()
	fibermw.Handler(app).ServeHTTP(w, r)
	return w
}

func wantTally(t *testing.T, votes *votes.Guard, want map[string]int64) {
	t.Helper()
	if tally, err := votes.Tally(t.Context(), "final"); err != nil || !maps.Equal(tally, want) {
		t.Errorf("the tally is %v, %v, want %v", tally, err, want)
	}
}

// TestReturnedErrorsCount: fiber answers a handler's error after all middlewares, when the rules are settled.
func TestReturnedErrorsCount(t *testing.T) {
	for name, c := range map[string]struct {
		handler fiber.Handler
		status  int
	}{
		"fiber.Error 404": {func(fiber.Ctx) error { return fiber.NewError(404, "no such poll") }, 404},
		"ErrForbidden":    {func(fiber.Ctx) error { return fiber.ErrForbidden }, 403},
		"plain error":     {func(fiber.Ctx) error { return errors.New("lost") }, 500},
		"wrapped error":   {func(fiber.Ctx) error { return fmt.Errorf("vote: %w", io.EOF) }, 500},
		"JSON":            {func(c fiber.Ctx) error { return c.Status(201).JSON("yes") }, 201},
		"Redirect":        {func(c fiber.Ctx) error { return c.Redirect().Status(303).To("/") }, 303},
		"SendStatus 404":  {func(c fiber.Ctx) error { return c.SendStatus(404) }, 404},
		"nothing":         {func(fiber.Ctx) error { return nil }, 200},
		"an error that comes after the answer": {func(c fiber.Ctx) error {
			return errors.Join(c.SendString("yes"), errors.New("lost")) // fiber answers the error
		}, 500},
	} {
		t.Run(name, func(t *testing.T) {
			votes := votes.New(newGate(t), "poll", votes.Options{})
			app := fiber.New()
			app.Post("/polls/:poll/votes", fibermw.Fiber(inPoll(votes)), c.handler)
			if w := post(app, "/polls/final/votes?choice=red", "ann"); w.Code != c.status {
				t.Errorf("%d %s, want %d", w.Code, w.Body, c.status)
			}
			if c.status < 400 {
				wantTally(t, votes, map[string]int64{"red": 1})
			} else {
				wantTally(t, votes, nil)
			}
		})
	}
}

// TestErrorsGetToTheErrorHandler once, unchanged, and inside the rules, so that its answer counts. Limits leave
// them alone.
func TestErrorsGetToTheErrorHandler(t *testing.T) {
	lost := errors.New("lost")
	for name, failing := range map[string]error{"it answers": nil, "it fails too": io.EOF} {
		t.Run(name, func(t *testing.T) {
			var handled, outside []error
			app := fiber.New(fiber.Config{ErrorHandler: func(c fiber.Ctx, err error) error {
				handled = append(handled, err)
				c.Status(http.StatusTeapot)
				return failing
			}})
			app.Use(func(c fiber.Ctx) error {
				err := c.Next()
				outside = append(outside, err)
				return err
			})
			gate := newGate(t)
			votes := votes.New(gate, "poll", votes.Options{})
			app.Post("/polls/:poll/votes", fibermw.Fiber(inPoll(votes)), func(fiber.Ctx) error { return lost })
			app.Post("/plain", fibermw.PerIP(gate, limit.PerHour(9)), func(fiber.Ctx) error { return lost })
			want := http.StatusTeapot
			if failing != nil {
				want = http.StatusInternalServerError
			}
			for _, path := range []string{"/polls/final/votes?choice=red", "/plain"} {
				if w := post(app, path, "ann"); w.Code != want {
					t.Errorf("%s: %d, want %d", path, w.Code, want)
				}
			}
			if !slices.Equal(handled, []error{lost, lost}) || !slices.Equal(outside, []error{nil, lost}) {
				t.Errorf("the error handler got %v, the middleware outside %v", handled, outside)
			}
			wantTally(t, votes, nil)
		})
	}
}

// TestRefusalsAreNoErrors: a refused request is answered, so fiber's error handler is not called, and a logger
// outside sees the status.
func TestRefusalsAreNoErrors(t *testing.T) {
	var logged []int
	app := fiber.New(fiber.Config{ErrorHandler: func(_ fiber.Ctx, err error) error {
		t.Errorf("the error handler got %v", err)
		return nil
	}})
	app.Use(func(c fiber.Ctx) error {
		err := c.Next()
		logged = append(logged, c.Response().StatusCode())
		return err
	})
	votes := votes.New(newGate(t), "poll", votes.Options{})
	app.Post("/polls/:poll/votes", fibermw.Fiber(inPoll(votes)), func(c fiber.Ctx) error { return nil })
	post(app, "/polls/final/votes?choice=red", "ann")
	post(app, "/polls/final/votes?choice=red", "ann")
	if !slices.Equal(logged, []int{http.StatusOK, http.StatusConflict}) {
		t.Errorf("logged: %v", logged)
	}
}

// TestUseIsTooEarlyForRoutes: a middleware of the application knows neither the route nor its parameters, so a
// rule that needs them refuses, and warns of the former.
func TestUseIsTooEarlyForRoutes(t *testing.T) {
	log := warntest.Record(t)
	gate := newGate(t)
	byRoute := fibermw.Rule{Guard: limit.NewSlidingWindow(gate, "site", limit.PerHour(1000)),
		Who: keyfuncs.Header("X-User"), What: keyfuncs.Route()}
	for _, rule := range []fibermw.Rule{inPoll(votes.New(gate, "poll", votes.Options{})), byRoute} {
		app := fiber.New()
		app.Use(fibermw.Fiber(rule))
		app.Post("/polls/:poll/votes", func(c fiber.Ctx) error { return nil })
		if w := post(app, "/polls/final/votes?choice=red", "ann"); w.Code != http.StatusBadRequest {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	log.Want(t, "GH005")
	app := fiber.New()
	app.Post("/polls/:poll", fibermw.Fiber(byRoute), func(c fiber.Ctx) error {
		d, _ := fibermw.Decision(c, "site")
		return c.SendString(d.Attempt.Resource)
	})
	if w := post(app, "/polls/final", "ann"); w.Body.String() != "/polls/:poll" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestParametersAreUnescapedOnce: what looks like an escape after that is part of the name.
func TestParametersAreUnescapedOnce(t *testing.T) {
	for path, want := range map[string]string{
		"/polls/final":        "final",
		"/polls/%66inal":      "final",
		"/polls/a%2Fb":        "a/b",
		"/polls/100%25":       "100%",
		"/polls/%31%30%30%25": "100%",
		"/polls/%2566inal":    "%66inal",
		"/polls/%252566%6c":   "%2566l",
		"/polls/gr%C3%BCn":    "grün",
		"/polls/Final":        "Final",
	} {
		for _, unescapes := range []bool{false, true} {
			if unescapes && want == "a/b" {
				continue // then the route does not match
			}
			app, got := fiber.New(fiber.Config{UnescapePath: unescapes}), ""
			rule := fibermw.Rule{
				Guard: limit.NewSlidingWindow(core.NewMemory(), "site", limit.PerHour(9)), Who: keyfuncs.Param("poll"),
			}
			app.Post("/polls/:poll", fibermw.Fiber(rule), func(c fiber.Ctx) error {
				d, _ := fibermw.Decision(c, "site")
				got = d.Attempt.Actor
				return nil
			})
			if w := post(app, path, "ann"); got != want {
				t.Errorf("%s: %q, want %q (%d, UnescapePath %t)", path, got, want, w.Code, unescapes)
			}
		}
	}
}

// TestGroupsShareAMiddleware: rules on a group see the parameters of its prefix.
func TestGroupsShareAMiddleware(t *testing.T) {
	sale := seckill.New(newGate(t), "sale", seckill.Options{})
	if _, err := sale.Open(t.Context(), "ticket", seckill.Sale{Stock: 1}); err != nil {
		t.Fatal(err)
	}
	app := fiber.New()
	sales := app.Group("/sales/:sku", fibermw.Fiber(fibermw.Rule{
		Guard: sale, Who: keyfuncs.Header("X-User"), What: keyfuncs.Param("sku"),
	}))
	sales.Post("/orders", func(c fiber.Ctx) error {
		if d, taken := fibermw.Take(c, "sale"); !taken || d.Attempt.Resource != "ticket" {
			t.Errorf("Take: %+v, %t", d, taken)
		}
		return c.SendStatus(http.StatusAccepted)
	})
	if w := post(app, "/sales/ticket/orders", "ann"); w.Code != http.StatusAccepted {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if status, err := sale.Status(t.Context(), "ticket"); err != nil || status.Held != 1 {
		t.Errorf("%+v, %v, want one unit held", status, err)
	}
}

// TestTheTokenIsAtHandWithoutARule: a handler that no rule of the room is in front of finds the visitor's pass.
func TestTheTokenIsAtHandWithoutARule(t *testing.T) {
	app := fiber.New()
	app.Post("/paid", func(c fiber.Ctx) error { return c.SendString(fibermw.TokenOf(c, "shop")) })
	r := httptest.NewRequest(http.MethodPost, "/paid", http.NoBody)
	r.Header.Set("Gatehouse-Token", "shop=the%20pass")
	w := httptest.NewRecorder()
	if fibermw.Handler(app).ServeHTTP(w, r); w.Body.String() != "the pass" {
		t.Errorf("the token is %q", w.Body)
	}
}
