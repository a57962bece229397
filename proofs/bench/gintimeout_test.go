package bench

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-contrib/timeout"
	"github.com/gin-gonic/gin"

	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/ginmw"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// TestWhatHoldsWithGinContribsTimeout: that middleware answers 408 without ending the request's context. Rules
// around it see the 408 and give back, whenever it comes. Rules within it give back what a handler answers
// after the 408. A handler that answers at the same moment can be confirmed while its client gets 408, since
// nothing says that the time is over: there, use http.TimeoutHandler. The test is here, since the root module
// does without that dependency.
func TestWhatHoldsWithGinContribsTimeout(t *testing.T) {
	gin.SetMode(gin.TestMode)
	for _, c := range []struct {
		name         string
		within, late bool // the rules are within the middleware; the handler is late
		status       int
		sold         int64
	}{
		{"rules around it, in time", false, false, http.StatusCreated, 1},
		{"rules around it, too late", false, true, http.StatusRequestTimeout, 0},
		{"rules within it, in time", true, false, http.StatusCreated, 1},
		{"rules within it, too late", true, true, http.StatusRequestTimeout, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			sale := seckill.New(guardtest.NewEngine(redistest.Mini(t)), "sale", seckill.Options{})
			if _, err := sale.Open(t.Context(), "tv", seckill.Sale{Stock: 1}); err != nil {
				t.Fatal(err)
			}
			rules := ginmw.Gin(pipeline.Rule{Guard: sale, Who: keyfuncs.Query("who"), What: keyfuncs.Const("tv")})
			limit, answered, ended := time.Minute, make(chan struct{}), make(chan struct{})
			if c.late {
				limit = 20 * time.Millisecond
			}
			buy := func(g *gin.Context) {
				defer close(ended)
				if c.late {
					<-answered
				}
				g.String(http.StatusCreated, "sold")
			}
			app := gin.New()
			if c.within {
				around := timeout.New(timeout.WithTimeout(limit), timeout.WithHandler(func(g *gin.Context) { g.Next() }))
				app.POST("/", around, rules, buy)
			} else {
				app.POST("/", rules, timeout.New(timeout.WithTimeout(limit), timeout.WithHandler(buy)))
			}
			w := httptest.NewRecorder()
			app.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/?who=ann", nil))
			close(answered)
			<-ended
			if w.Code != c.status {
				t.Errorf("got %d, want %d", w.Code, c.status)
			}
			redistest.Eventually(t, 10*time.Second, func() bool {
				s, err := sale.Status(t.Context(), "tv")
				return err == nil && s.Held == 0 && s.Sold == c.sold
			}, "the sale is as stated")
		})
	}
}
