package echov5mw_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/gatehouse-go/gatehouse/adapters/echov5mw"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// TestErrorsCountAsEchoAnswersThem: echo's own error handler looks for the outermost error that has a status.
func TestErrorsCountAsEchoAnswersThem(t *testing.T) {
	for name, err := range map[string]error{
		"wrapped":  fmt.Errorf("login: %w", echo.ErrUnauthorized),
		"internal": echo.NewHTTPError(http.StatusUnauthorized, "who?").Wrap(echo.ErrInternalServerError),
	} {
		var heard []int
		rule := echov5mw.Rule{
			Guard: limit.NewSlidingWindow(newGate(t), "guesses", limit.PerHour(1)), Who: keyfuncs.Header("X-User"),
			Failed: func(status int) bool { heard = append(heard, status); return status != http.StatusUnauthorized },
		}
		e := newEcho()
		e.POST("/login", func(*echo.Context) error { return err }, echov5mw.Echo(rule))
		w := post(e, "/login", "ann")
		if !slices.Equal(heard, []int{w.Code}) {
			t.Errorf("%s: the client hears %d, the rule %v", name, w.Code, heard)
		}
	}
}
