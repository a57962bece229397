package ginmw_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/ginmw"
)

// TestErrorsThatAnOuterMiddlewareAnswersCount: gin's handlers hand errors to c.Error, and a middleware outside answers them
// after the rules have been settled.
func TestErrorsThatAnOuterMiddlewareAnswersCount(t *testing.T) {
	votes := newGate(t).Votes("poll", core.VoteOptions{})
	engine := gin.New()
	engine.Use(func(c *gin.Context) {
		c.Next()
		if len(c.Errors) > 0 && !c.Writer.Written() {
			c.JSON(http.StatusInternalServerError, "the vote could not be stored")
		}
	})
	engine.POST("/polls/:poll/votes", ginmw.Gin(inPoll(votes)), func(c *gin.Context) { _ = c.Error(errors.New("lost")) })
	if w := post(engine, "/polls/final/votes?choice=red", "ann"); w.Code != http.StatusInternalServerError {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	wantTally(t, votes, nil)
}
