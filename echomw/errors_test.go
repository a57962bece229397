package echomw_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/echomw"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// TestErrorsCountAsEchoAnswersThem: echo's own error handler takes an HTTPError only as it is, and prefers one inside of it.
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
