package fibermw_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"

	"github.com/gatehouse-go/gatehouse/adapters/fibermw"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// changing is a source whose pipeline a test changes.
type changing struct {
	atomic.Pointer[pipeline.Pipeline]
}

func (c *changing) Pipeline() *pipeline.Pipeline { return c.Load() }

// TestFollowedRulesChange: a route that was mounted once passes the rules of the moment.
func TestFollowedRulesChange(t *testing.T) {
	gate := core.NewMemory()
	var rules changing
	change := func(name string, most int64) {
		guard := limit.NewFixedWindow(gate, name, limit.PerHour(most))
		rules.Store(pipeline.New(pipeline.Rule{Guard: guard, Who: keyfuncs.IP()}))
	}
	change("first", 1)
	app := fiber.New()
	app.Get("/", fibermw.Follow(&rules), func(c fiber.Ctx) error { return c.SendString("hello") })
	want := func(statuses ...int) {
		t.Helper()
		for _, status := range statuses { // by fiber's own means
			answer, err := app.Test(httptest.NewRequest(http.MethodGet, "/", nil),
				fiber.TestConfig{Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			if _ = answer.Body.Close(); answer.StatusCode != status {
				t.Errorf("got %d, want %d", answer.StatusCode, status)
			}
		}
	}
	want(200, 429)
	change("second", 2)
	want(200, 200, 429)
}
