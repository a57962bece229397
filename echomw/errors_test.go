package echomw_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/gatehouse-go/gatehouse/core/idempotency"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/echomw"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// TestErrorsCountAsEchoAnswersThem: echo's own error handler recognizes an HTTPError only unwrapped, and
// prefers one inside it.
//
// Promise (Endings): In echo, the answer of the HTTPErrorHandler counts.
func TestErrorsCountAsEchoAnswersThem(t *testing.T) {
	for name, err := range map[string]error{
		"wrapped":  fmt.Errorf("login: %w", echo.ErrUnauthorized),
		"internal": echo.ErrUnauthorized.WithInternal(echo.ErrInternalServerError),
	} {
		var heard []int
		rule := echomw.Rule{
			Guard: limit.NewSlidingWindow(newGate(t), "guesses", limit.PerHour(1)), Who: keyfuncs.Header("X-User"),
			Failed: func(status int) bool { heard = append(heard, status); return status != http.StatusUnauthorized },
		}
		e := newEcho()
		e.POST("/login", func(echo.Context) error { return err }, echomw.Echo(rule))
		w := post(e, "/login", "ann")
		if !slices.Equal(heard, []int{w.Code}) {
			t.Errorf("%s: the client hears %d, the rule %v", name, w.Code, heard)
		}
	}
}

// TestTheErrorHandlersAnswerCounts: an HTTPErrorHandler that redirects has answered with 303, and an
// Idempotency rule replays that with its body.
func TestTheErrorHandlersAnswerCounts(t *testing.T) {
	gate := newGate(t)
	votes := votes.New(gate, "poll", votes.Options{})
	once := echomw.Rule{Guard: idempotency.New(gate, "once", idempotency.Options{MaxBody: 100}),
		Who: keyfuncs.Const("ann"),
		ID:  keyfuncs.Const("o1")}
	e := newEcho()
	e.HTTPErrorHandler = func(_ error, c echo.Context) {
		if !c.Response().Committed {
			c.Response().Header().Set("Location", "/login")
			_ = c.String(http.StatusSeeOther, "elsewhere")
		}
	}
	e.POST("/polls/:poll/votes", func(echo.Context) error { return echo.ErrUnauthorized },
		echomw.Echo(once, inPoll(votes)))
	for i := range 2 {
		w := post(e, "/polls/final/votes?choice=red", "ann")
		if w.Code != http.StatusSeeOther || w.Body.String() != "elsewhere" ||
			w.Header().Get("Location") != "/login" ||
			(w.Header().Get("Idempotent-Replayed") != "") != (i == 1) {
			t.Errorf("time %d: %d %v %s", i+1, w.Code, w.Header(), w.Body)
		}
	}
	wantTally(t, votes, map[string]int64{"red": 1})
}

// TestErrorsGetOutOfATimeoutHandler: echo's middleware.Timeout drops what was written when an error is
// returned, so the error is answered inside, and not returned.
func TestErrorsGetOutOfATimeoutHandler(t *testing.T) {
	votes := votes.New(newGate(t), "poll", votes.Options{})
	e := newEcho()
	e.Use(timeoutHandler)
	e.POST("/polls/:poll/votes", func(echo.Context) error { return echo.ErrNotFound },
		echomw.Echo(inPoll(votes)))
	if w := post(e, "/polls/final/votes?choice=red", "ann"); w.Code != http.StatusNotFound {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	wantTally(t, votes, nil)
}

// timeoutHandler does what middleware.Timeout of echo does with an error in time; its package wants one more
// module.
func timeoutHandler(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		around := c.Response().Writer
		ignore := &ignorable{ResponseWriter: around}
		http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c.SetRequest(r)
			c.Response().Writer = w
			err = next(c)
			ignore.on = err != nil
			c.Response().Writer = around
		}), time.Hour, "").ServeHTTP(ignore, c.Request())
		return err
	}
}

type ignorable struct {
	http.ResponseWriter
	on bool
}

func (w *ignorable) WriteHeader(code int) {
	if !w.on {
		w.ResponseWriter.WriteHeader(code)
	}
}

func (w *ignorable) Write(b []byte) (int, error) {
	if w.on {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}
