package ginmw_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/gatehouse-go/gatehouse/core/idempotency"
	"github.com/gatehouse-go/gatehouse/ginmw"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// TestAnswersAreReplayed: however a handler writes with gin. What it has streamed is not told again.
func TestAnswersAreReplayed(t *testing.T) {
	for name, c := range map[string]struct {
		handler gin.HandlerFunc
		status  int
		body    string
	}{
		"String": {func(c *gin.Context) { c.String(http.StatusCreated, "yes") }, 201, "yes"},
		"JSON": {func(c *gin.Context) { c.JSON(http.StatusOK, gin.H{"yes": true}) }, 200,
			`{"yes":true}`},
		"Write":       {func(c *gin.Context) { _, _ = c.Writer.Write([]byte("yes")) }, 200, "yes"},
		"WriteString": {func(c *gin.Context) { _, _ = c.Writer.WriteString("yes") }, 200, "yes"},
		"Copy": {func(c *gin.Context) { _, _ = io.Copy(c.Writer, strings.NewReader("yes")) }, 200,
			"yes"},
		"Status":  {func(c *gin.Context) { c.Status(http.StatusNoContent) }, 204, ""},
		"nothing": {func(*gin.Context) {}, 200, ""},
		"Flush":   {func(c *gin.Context) { c.String(http.StatusOK, "yes"); c.Writer.Flush() }, 409, ""},
		"ResponseController": {func(c *gin.Context) {
			c.String(http.StatusOK,
				"yes")
			_ = http.NewResponseController(c.Writer).Flush()
		}, 409, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ran := 0
			engine := gin.New()
			engine.POST("/", ginmw.Gin(ginmw.Rule{
				Guard: idempotency.New(newGate(t), "once", idempotency.Options{MaxBody: 100}),
				Who:   keyfuncs.Const("ann"),
				ID:    keyfuncs.IdempotencyKey(),
			}), func(g *gin.Context) {
				ran++
				if g.Writer.Written() || g.Writer.Size() > 0 {
					t.Errorf("written: %t, %d bytes, before anything is", g.Writer.Written(), g.Writer.Size())
				}
				c.handler(g)
			})
			for i := range 2 {
				r := httptest.NewRequest(http.MethodPost, "/", nil)
				r.Header.Set("Idempotency-Key", "o1")
				w := httptest.NewRecorder()
				engine.ServeHTTP(w, r)
				if replayed := w.Header().Get("Idempotent-Replayed") != ""; replayed != (i == 1 && c.status != 409) {
					t.Errorf("time %d: replayed: %t", i+1, replayed)
				}
				if i == 1 && (w.Code != c.status || w.Code != 409 && w.Body.String() != c.body) {
					t.Errorf("again: %d %q, want %d %q", w.Code, w.Body, c.status, c.body)
				}
			}
			if ran != 1 {
				t.Errorf("the handler ran %d times", ran)
			}
		})
	}
}
