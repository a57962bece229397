package echomw_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/echomw"
)

// TestAnswersBeginInManyWays: a client that leaves after the answer has begun has its answer, so the vote
// counts as the answer says. For a client that leaves before, it does not. Some handlers write past
// echo.Response, which does not notice.
func TestAnswersBeginInManyWays(t *testing.T) {
	for name, c := range map[string]struct {
		begin func(echo.Context) error
		kept  bool
	}{
		"String":    {func(c echo.Context) error { return c.String(http.StatusOK, "yes") }, true},
		"NoContent": {func(c echo.Context) error { return c.NoContent(http.StatusNoContent) }, true},
		"Flush":     {func(c echo.Context) error { c.Response().Flush(); return nil }, true},
		"ResponseController": {func(c echo.Context) error {
			return http.NewResponseController(c.Response()).Flush()
		}, true},
		"Write past echo": {func(c echo.Context) error {
			_, err := c.Response().Writer.Write([]byte("yes"))
			return err
		}, true},
		"Error past echo": {func(c echo.Context) error {
			http.Error(c.Response().Writer, "no", http.StatusInternalServerError)
			return nil
		}, false},
		"WrapHandler": {echo.WrapHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
		})), true},
		"WrapHandler that refuses": {echo.WrapHandler(http.NotFoundHandler()), false},
		"nothing":                  {func(echo.Context) error { return nil }, false},
		"an error":                 {func(echo.Context) error { return echo.ErrNotFound }, false},
	} {
		t.Run(name, func(t *testing.T) {
			votes := votes.New(newGate(t), "poll", votes.Options{})
			ctx, goAway := context.WithCancel(t.Context())
			e := newEcho()
			e.POST("/polls/:poll/votes", func(ec echo.Context) error {
				err := c.begin(ec)
				goAway()
				return err
			}, echomw.Echo(inPoll(votes)))
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
