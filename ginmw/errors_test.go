package ginmw_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/ginmw"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// TestErrorsThatAnOuterMiddlewareAnswersCount: gin's handlers hand errors to c.Error, and a middleware
// outside answers them after the rules have been settled.
//
// Promise (Endings): In gin, an error counts as the outer middleware answers it.
func TestErrorsThatAnOuterMiddlewareAnswersCount(t *testing.T) {
	votes := votes.New(newGate(t), "poll", votes.Options{})
	engine := gin.New()
	engine.Use(func(c *gin.Context) {
		c.Next()
		if len(c.Errors) > 0 && !c.Writer.Written() {
			c.JSON(http.StatusInternalServerError, "the vote could not be stored")
		}
	})
	engine.POST("/polls/:poll/votes", ginmw.Gin(inPoll(votes)),
		func(c *gin.Context) { _ = c.Error(errors.New("lost")) })
	if w := post(engine, "/polls/final/votes?choice=red", "ann"); w.Code != http.StatusInternalServerError {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	wantTally(t, votes, nil)
}

// TestPanicsInFrontOfTheHandlerKeepItFromRunning: after a recoverer that does not abort, gin continues with
// the next handler, and a request that was refused, or not even judged, must not get there.
func TestPanicsInFrontOfTheHandlerKeepItFromRunning(t *testing.T) {
	votes := votes.New(newGate(t), "poll", votes.Options{Poll: votes.Poll{Closes: time.Unix(1, 0)}})
	for name, change := range map[string]func(*ginmw.Rule){
		"Who": func(r *ginmw.Rule) { r.Who = func(*keyfuncs.Request) (string, error) { panic("lost") } },
		"Texts": func(r *ginmw.Rule) {
			r.Texts = func(*http.Request, *answers.Refusal) answers.Text { panic("lost") }
		},
		"Answer": func(r *ginmw.Rule) {
			r.Answer = func(http.ResponseWriter, *http.Request, *answers.Refusal) { panic("lost") }
		},
	} {
		rule := inPoll(votes)
		change(&rule)
		engine := gin.New()
		engine.Use(func(c *gin.Context) {
			defer func() { _ = recover() }()
			c.Next()
		})
		ran := false
		engine.POST("/polls/:poll/votes", ginmw.Gin(rule), func(*gin.Context) { ran = true })
		post(engine, "/polls/final/votes?choice=red", "ann")
		if ran {
			t.Errorf("a panic of %s let the request through", name)
		}
	}
}
