package echov5mw_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/gatehouse-go/gatehouse/adapters/echov5mw"
	"github.com/gatehouse-go/gatehouse/core/votes"
)

// TestAnswersBeginInManyWays: a client that leaves after the answer has begun has its answer, so the vote
// counts as the answer says. For a client that leaves before, it does not. Some handlers write past
// echo.Response, which does not notice.
func TestAnswersBeginInManyWays(t *testing.T) {
	for name, c := range map[string]struct {
		begin func(*echo.Context) error
		kept  bool
	}{
		"String":    {func(c *echo.Context) error { return c.String(http.StatusOK, "yes") }, true},
		"NoContent": {func(c *echo.Context) error { return c.NoContent(http.StatusNoContent) }, true},
		"Flush":     {func(c *echo.Context) error { c.Response().(http.Flusher).Flush(); return nil }, true},
		"ResponseController": {func(c *echo.Context) error {
			return http.NewResponseController(c.Response()).Flush()
		}, true},
		"Write past echo": {func(c *echo.Context) error {
			_, err := below(c).Write([]byte("yes"))
			return err
		}, true},
		"Error past echo": {func(c *echo.Context) error {
			http.Error(below(c), "no", http.StatusInternalServerError)
			return nil
		}, false},
		"WrapHandler": {echo.WrapHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
		})), true},
		"WrapHandler that refuses": {echo.WrapHandler(http.NotFoundHandler()), false},
		"nothing":                  {func(*echo.Context) error { return nil }, false},
		"an error":                 {func(*echo.Context) error { return echo.ErrNotFound }, false},
	} {
		t.Run(name, func(t *testing.T) {
			votes := votes.New(newGate(t), "poll", votes.Options{})
			ctx, goAway := context.WithCancel(t.Context())
			e := newEcho()
			e.POST("/polls/:poll/votes", func(ec *echo.Context) error {
				err := c.begin(ec)
				goAway()
				return err
			}, echov5mw.Echo(inPoll(votes)))
			r := httptest.NewRequest(http.MethodPost, "/polls/final/votes?choice=red", nil).WithContext(ctx)
			r.Header.Set("X-User", "ann")
			e.ServeHTTP(httptest.NewRecorder(), r)
			if c.kept {
				wantTally(t, votes, map[string]int64{"red": 1})
			} else {
				wantTally(t, votes, nil)
			}
		})
	}
}

// below returns the writer that echo writes to.
func below(c *echo.Context) http.ResponseWriter {
	response, err := echo.UnwrapResponse(c.Response())
	if err != nil {
		panic(err)
	}
	return response.ResponseWriter
}

// TestAnswersToHEADAreSeen: where GET routes also answer HEAD, echo holds the answer until the rules are
// settled.
func TestAnswersToHEADAreSeen(t *testing.T) {
	for status, kept := range map[int]bool{http.StatusNoContent: true, http.StatusNotFound: false} {
		votes := votes.New(newGate(t), "poll", votes.Options{})
		e := echo.NewWithConfig(echo.Config{Router: echo.NewRouter(echo.RouterConfig{AutoHandleHEAD: true})})
		e.GET("/polls/:poll/votes", func(c *echo.Context) error { return c.NoContent(status) },
			echov5mw.Echo(inPoll(votes)))
		r := httptest.NewRequest(http.MethodHead, "/polls/final/votes?choice=red", nil)
		r.Header.Set("X-User", "ann")
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		if w.Code != status {
			t.Errorf("%d, want %d", w.Code, status)
		}
		if kept {
			wantTally(t, votes, map[string]int64{"red": 1})
		} else {
			wantTally(t, votes, nil)
		}
	}
}
