package ginmw_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/ginmw"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// newGate makes an engine whose deadline suits a busy machine.
func newGate(t *testing.T) *core.Engine {
	t.Helper()
	b := redistest.Mini(t)
	return core.New(b.Client, core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute))
}

// inPoll is a vote of the user in the poll of the path.
func inPoll(votes *votes.Guard) ginmw.Rule {
	return ginmw.Rule{Guard: votes, Who: keyfuncs.Header("X-User"), What: keyfuncs.Param("poll"),
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

// TestAbortedHandlersCount: the status with which a gin handler aborts settles the vote.
func TestAbortedHandlersCount(t *testing.T) {
	lost := errors.New("lost")
	for name, c := range map[string]struct {
		handler gin.HandlerFunc
		status  int
		kept    bool
	}{
		"AbortWithStatus": {func(c *gin.Context) { c.AbortWithStatus(http.StatusForbidden) }, 403, false},
		"AbortWithStatusJSON": {func(c *gin.Context) { c.AbortWithStatusJSON(http.StatusBadRequest, "no") }, 400,
			false},
		"AbortWithError": {func(c *gin.Context) { _ = c.AbortWithError(http.StatusBadGateway, lost) }, 502, false},
		"Abort":          {func(c *gin.Context) { c.Abort() }, 200, true},
		"JSON":           {func(c *gin.Context) { c.JSON(http.StatusCreated, "yes") }, 201, true},
		"Redirect":       {func(c *gin.Context) { c.Redirect(http.StatusSeeOther, "/") }, 303, true},
		"BindJSON":       {func(c *gin.Context) { _ = c.BindJSON(&struct{}{}) }, 400, false},
		"Status after the body": {func(c *gin.Context) {
			c.String(http.StatusOK, "yes")
			c.Status(http.StatusInternalServerError) // gin does not send it any more
		}, 200, true},
	} {
		t.Run(name, func(t *testing.T) {
			votes := votes.New(newGate(t), "poll", votes.Options{})
			engine := gin.New()
			engine.POST("/polls/:poll/votes", ginmw.Gin(inPoll(votes)), c.handler)
			if w := post(engine, "/polls/final/votes?choice=red", "ann"); w.Code != c.status {
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

// TestLaterMiddlewaresCount: a middleware behind the rules that aborts decides how the request ends.
func TestLaterMiddlewaresCount(t *testing.T) {
	votes := votes.New(newGate(t), "poll", votes.Options{})
	engine := gin.New()
	polls := engine.Group("/polls/:poll", ginmw.Gin(inPoll(votes)), func(c *gin.Context) {
		if c.Query("captcha") == "" {
			c.AbortWithStatus(http.StatusForbidden)
		}
	})
	polls.POST("/votes", func(c *gin.Context) { c.String(http.StatusOK, "yes") })
	if w := post(engine, "/polls/final/votes?choice=red", "ann"); w.Code != http.StatusForbidden {
		t.Errorf("%d", w.Code)
	}
	wantTally(t, votes, nil)
	if w := post(engine, "/polls/final/votes?choice=red&captcha=1", "ann"); w.Code != http.StatusOK {
		t.Errorf("%d", w.Code)
	}
	wantTally(t, votes, map[string]int64{"red": 1})
}

// TestRulesWithUseSeeUnmatchedRequests: these have no route and no parameters, so rules that need one
// refuse them.
func TestRulesWithUseSeeUnmatchedRequests(t *testing.T) {
	gate := newGate(t)
	engine := gin.New()
	engine.Use(ginmw.Gin(ginmw.Rule{
		Guard: limit.NewSlidingWindow(gate, "site", limit.PerHour(2)),
		Who:   keyfuncs.Header("X-User"),
		What:  keyfuncs.FirstOf(keyfuncs.Route(), keyfuncs.Const("none")),
	}))
	engine.POST("/here", func(c *gin.Context) { c.Status(http.StatusOK) })
	for i, want := range []int{404, 404, 429} {
		if w := post(engine, "/nowhere", "ann"); w.Code != want {
			t.Errorf("request %d: %d, want %d", i+1, w.Code, want)
		}
	}
	if w := post(engine, "/here", "ann"); w.Code != http.StatusOK {
		t.Errorf("the route that exists has a budget of its own: %d", w.Code)
	}
}

// TestCopiesOfTheContextHaveTheDecisions: a handler hands a copy to goroutines.
func TestCopiesOfTheContextHaveTheDecisions(t *testing.T) {
	sale := seckill.New(newGate(t), "sale", seckill.Options{})
	if _, err := sale.Open(t.Context(), "ticket", seckill.Sale{Stock: 1}); err != nil {
		t.Fatal(err)
	}
	buy := ginmw.Rule{Guard: sale, Who: keyfuncs.Header("X-User"), What: keyfuncs.Param("sku")}
	engine := gin.New()
	engine.POST("/sales/:sku/orders", ginmw.Gin(buy), func(c *gin.Context) {
		found := make(chan bool)
		go func(c *gin.Context) {
			_, decided := ginmw.Decision(c, "sale")
			_, taken := ginmw.Take(c, "sale")
			found <- decided && taken
		}(c.Copy())
		if !<-found {
			t.Error("nothing found")
		}
		c.Status(http.StatusAccepted)
	})
	if w := post(engine, "/sales/ticket/orders", "ann"); w.Code != http.StatusAccepted {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if status, err := sale.Status(context.Background(), "ticket"); err != nil || status.Held != 1 {
		t.Errorf("%+v, %v, want one unit held", status, err)
	}
}

// TestTheTokenIsAtHandWithoutARule: a handler that no rule of the room is in front of finds the visitor's pass.
func TestTheTokenIsAtHandWithoutARule(t *testing.T) {
	engine := gin.New()
	engine.POST("/paid", func(c *gin.Context) { c.String(http.StatusOK, ginmw.TokenOf(c, "shop")) })
	r := httptest.NewRequest(http.MethodPost, "/paid", http.NoBody)
	r.Header.Set("Gatehouse-Token", "shop=the%20pass")
	w := httptest.NewRecorder()
	if engine.ServeHTTP(w, r); w.Body.String() != "the pass" {
		t.Errorf("the token is %q", w.Body)
	}
}
