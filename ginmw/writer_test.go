package ginmw_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/ginmw"
)

// TestAnswersBeginInManyWays: a client that leaves after the answer has begun has its answer, so the vote
// counts. For a client that leaves before, it does not.
func TestAnswersBeginInManyWays(t *testing.T) {
	for name, c := range map[string]struct {
		begin func(*gin.Context)
		kept  bool
	}{
		"String":             {func(c *gin.Context) { c.String(http.StatusOK, "yes") }, true},
		"Write":              {func(c *gin.Context) { _, _ = c.Writer.Write([]byte("yes")) }, true},
		"WriteString":        {func(c *gin.Context) { _, _ = c.Writer.WriteString("yes") }, true},
		"Copy":               {func(c *gin.Context) { _, _ = io.Copy(c.Writer, strings.NewReader("yes")) }, true},
		"Flush":              {func(c *gin.Context) { c.Writer.Flush() }, true},
		"WriteHeaderNow":     {func(c *gin.Context) { c.Writer.WriteHeaderNow() }, true},
		"ResponseController": {func(c *gin.Context) { _ = http.NewResponseController(c.Writer).Flush() }, true},
		"AbortWithStatus":    {func(c *gin.Context) { c.AbortWithStatus(http.StatusOK) }, true},
		"Status":             {func(c *gin.Context) { c.Status(http.StatusOK) }, false}, // gin sends it later
		"nothing":            {func(*gin.Context) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			votes := votes.New(newGate(t), "poll", votes.Options{})
			ctx, goAway := context.WithCancel(t.Context())
			engine := gin.New()
			engine.POST("/polls/:poll/votes", ginmw.Gin(inPoll(votes)), func(g *gin.Context) {
				c.begin(g)
				goAway()
			})
			r := httptest.NewRequest(http.MethodPost, "/polls/final/votes?choice=red", nil).WithContext(ctx)
			r.Header.Set("X-User", "ann")
			engine.ServeHTTP(httptest.NewRecorder(), r)
			if c.kept {
				wantTally(t, votes, map[string]int64{"red": 1})
			} else {
				wantTally(t, votes, nil)
			}
		})
	}
}

// TestHandlersKeepTheirWriter: whatever gin's writer can do, it can still do behind rules that watch the
// answer.
func TestHandlersKeepTheirWriter(t *testing.T) {
	votes := votes.New(newGate(t), "poll", votes.Options{})
	engine := gin.New()
	engine.POST("/polls/:poll/votes", ginmw.Gin(inPoll(votes)), func(c *gin.Context) {
		if err := http.NewResponseController(c.Writer).SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Errorf("SetWriteDeadline: %v", err)
		}
		if c.Writer.Written() || c.Writer.Size() > 0 {
			t.Errorf("written: %t, %d bytes, before anything is", c.Writer.Written(), c.Writer.Size())
		}
		conn, rw, err := c.Writer.Hijack()
		if err != nil {
			t.Errorf("Hijack: %v", err)
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		_ = rw.Flush()
	})
	settled := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(settled)
		engine.ServeHTTP(w, r)
	}))
	defer srv.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/polls/final/votes?choice=red",
		nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-User", "ann")
	answer, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusAccepted {
		t.Errorf("%d", answer.StatusCode)
	}
	<-settled
	wantTally(t, votes, map[string]int64{"red": 1})
}
