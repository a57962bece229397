package echomw_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/echomw"
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

func newEcho() *echo.Echo {
	e := echo.New()
	e.Logger.SetOutput(io.Discard)
	return e
}

// inPoll is a vote of the user in the poll of the path.
func inPoll(votes *votes.Guard) echomw.Rule {
	return echomw.Rule{Guard: votes, Who: keyfuncs.Header("X-User"), What: keyfuncs.Param("poll"),
		Which: keyfuncs.Query("choice")}
}

func post(h http.Handler, path, user string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, nil)
	r.Header.Set("X-User", user)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func wantTally(t *testing.T, votes *votes.Guard, want map[string]int64) {
	t.Helper()
	if tally, err := votes.Tally(t.Context(), "final"); err != nil || !maps.Equal(tally, want) {
		t.Errorf("the tally is %v, %v, want %v", tally, err, want)
	}
}

// TestReturnedErrorsCount: echo answers a handler's error after the rules are settled, and the expected
// answer settles them.
func TestReturnedErrorsCount(t *testing.T) {
	for name, c := range map[string]struct {
		handler echo.HandlerFunc
		status  int
		kept    bool
	}{
		"HTTPError 404": {func(echo.Context) error { return echo.NewHTTPError(http.StatusNotFound) }, 404, false},
		"ErrForbidden":  {func(echo.Context) error { return echo.ErrForbidden }, 403, false},
		"plain error":   {func(echo.Context) error { return errors.New("lost") }, 500, false},
		"wrapped error": {func(echo.Context) error { return fmt.Errorf("vote: %w", io.EOF) }, 500, false},
		"Context.Error": {func(c echo.Context) error { c.Error(echo.ErrTeapot); return nil }, 418, false},
		"JSON":          {func(c echo.Context) error { return c.JSON(http.StatusCreated, "yes") }, 201, true},
		"Redirect":      {func(c echo.Context) error { return c.Redirect(http.StatusSeeOther, "/") }, 303, true},
		"NoContent 404": {func(c echo.Context) error { return c.NoContent(http.StatusNotFound) }, 404, false},
		"an error that comes after the answer": {func(c echo.Context) error {
			if err := c.String(http.StatusOK, "yes"); err != nil {
				return err
			}
			return errors.New("too late for the client to hear")
		}, 200, true},
	} {
		t.Run(name, func(t *testing.T) {
			votes := votes.New(newGate(t), "poll", votes.Options{})
			e := newEcho()
			e.POST("/polls/:poll/votes", c.handler, echomw.Echo(inPoll(votes)))
			if w := post(e, "/polls/final/votes?choice=red", "ann"); w.Code != c.status {
				t.Errorf("%d %s, want %d", w.Code, w.Body, c.status)
			}
			if c.kept {
				wantTally(t, votes, map[string]int64{"red": 1})
			} else {
				wantTally(t, votes, nil)
			}
		})
	}
}

// TestErrorsGetToTheErrorHandler: unchanged, and inside the rules, so that its answer counts. Echo calls it
// once more outside, where it finds the request answered.
func TestErrorsGetToTheErrorHandler(t *testing.T) {
	lost := errors.New("lost")
	var handled []error
	e := newEcho()
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		if c.Response().Committed {
			return
		}
		handled = append(handled, err)
		_ = c.NoContent(http.StatusTeapot)
	}
	votes := votes.New(newGate(t), "poll", votes.Options{})
	e.POST("/polls/:poll/votes", func(echo.Context) error { return lost }, echomw.Echo(inPoll(votes)))
	if w := post(e, "/polls/final/votes?choice=red", "ann"); w.Code != http.StatusTeapot {
		t.Errorf("%d", w.Code)
	}
	if !slices.Equal(handled, []error{lost}) {
		t.Errorf("the error handler got %v", handled)
	}
	wantTally(t, votes, nil)
}

// TestRefusalsAreNoErrors: a refused request is answered, so echo's error handler is not called, and a
// logger outside sees the status.
func TestRefusalsAreNoErrors(t *testing.T) {
	var logged []int
	e := newEcho()
	e.HTTPErrorHandler = func(err error, _ echo.Context) { t.Errorf("the error handler got %v", err) }
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			err := next(c)
			logged = append(logged, c.Response().Status)
			return err
		}
	})
	votes := votes.New(newGate(t), "poll", votes.Options{})
	e.POST("/polls/:poll/votes", func(c echo.Context) error { return c.NoContent(http.StatusOK) },
		echomw.Echo(inPoll(votes)))
	post(e, "/polls/final/votes?choice=red", "ann")
	post(e, "/polls/final/votes?choice=red", "ann")
	if !slices.Equal(logged, []int{http.StatusOK, http.StatusConflict}) {
		t.Errorf("logged: %v", logged)
	}
}

// TestRulesBeforeTheRouterHaveNoParameters: with Pre nothing is routed yet, so a rule that needs a parameter
// refuses.
func TestRulesBeforeTheRouterHaveNoParameters(t *testing.T) {
	e := newEcho()
	e.Pre(echomw.Echo(inPoll(votes.New(newGate(t), "poll", votes.Options{}))))
	e.POST("/polls/:poll/votes", func(c echo.Context) error { return c.NoContent(http.StatusOK) })
	if w := post(e, "/polls/final/votes?choice=red", "ann"); w.Code != http.StatusBadRequest {
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
	} {
		e, got := newEcho(), ""
		rule := echomw.Rule{
			Guard: limit.NewSlidingWindow(newGate(t), "site", limit.PerHour(9)), Who: keyfuncs.Param("poll"),
		}
		e.POST("/polls/:poll", func(c echo.Context) error {
			d, _ := echomw.Decision(c, "site")
			got = d.Attempt.Actor
			return nil
		}, echomw.Echo(rule))
		if w := post(e, path, "ann"); got != want {
			t.Errorf("%s: %q, want %q (%d)", path, got, want, w.Code)
		}
	}
}

// TestGroupsShareAMiddleware: rules on a group see the routes behind it.
func TestGroupsShareAMiddleware(t *testing.T) {
	sale := seckill.New(newGate(t), "sale", seckill.Options{})
	if _, err := sale.Open(t.Context(), "ticket", seckill.Sale{Stock: 1}); err != nil {
		t.Fatal(err)
	}
	e := newEcho()
	sales := e.Group("/sales/:sku", echomw.Echo(echomw.Rule{
		Guard: sale, Who: keyfuncs.Header("X-User"), What: keyfuncs.Param("sku"),
	}))
	sales.POST("/orders", func(c echo.Context) error {
		if d, taken := echomw.Take(c, "sale"); !taken || d.Attempt.Resource != "ticket" {
			t.Errorf("Take: %+v, %t", d, taken)
		}
		return c.NoContent(http.StatusAccepted)
	})
	if w := post(e, "/sales/ticket/orders", "ann"); w.Code != http.StatusAccepted {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if status, err := sale.Status(context.Background(), "ticket"); err != nil || status.Held != 1 {
		t.Errorf("%+v, %v, want one unit held", status, err)
	}
}

// TestPreIsTooEarlyForRoutes: middleware that echo runs before its router knows no route. The warning came at
// the 100th request.
func TestPreIsTooEarlyForRoutes(t *testing.T) {
	log := warntest.Record(t)
	rule := echomw.Rule{
		Guard: limit.NewSlidingWindow(newGate(t), "site", limit.PerHour(1000)), Who: keyfuncs.Header("X-User"),
		What: keyfuncs.Route(),
	}
	e := newEcho()
	e.Pre(echomw.Echo(rule))
	e.POST("/polls/:poll", func(c echo.Context) error { return c.NoContent(http.StatusOK) })
	if w := post(e, "/nowhere", "ann"); w.Code != http.StatusBadRequest { // which shows nothing
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	log.Want(t)
	for range 2 {
		if w := post(e, "/polls/final", "ann"); w.Code != http.StatusBadRequest {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	log.Want(t, "GH005")
}

// TestTheTokenIsAtHandWithoutARule: a handler that no rule of the room is in front of finds the visitor's pass.
func TestTheTokenIsAtHandWithoutARule(t *testing.T) {
	e := newEcho()
	e.POST("/paid", func(c echo.Context) error { return c.String(http.StatusOK, echomw.TokenOf(c, "shop")) })
	r := httptest.NewRequest(http.MethodPost, "/paid", http.NoBody)
	r.Header.Set("Gatehouse-Token", "shop=the%20pass")
	w := httptest.NewRecorder()
	if e.ServeHTTP(w, r); w.Body.String() != "the pass" {
		t.Errorf("the token is %q", w.Body)
	}
}
