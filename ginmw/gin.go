// Package ginmw puts guards in front of gin routes. It only translates: package [pipeline] describes the
// rules, the answers and how attempts are settled.
//
//	import ratelimit "github.com/gatehouse-go/gatehouse/ginmw"
//
//	r.Use(ratelimit.PerIP(gate, limit.PerMinute(100)))
//
// # Middlewares
//
// [PerIP] is the most common one. [Gin] makes a middleware of one or more rules, for the engine, a group or a
// route. [Follow] does so for rules that may change while requests are served, such as those of package
// config. Mount gin.Recovery and CORS in front of the rules, so that they also see what the rules answer.
//
// # Who the client is
//
// Mount the login in front of rules that need it: [keyfuncs.User] finds what the login has stored with c.Set,
// such as under gin.AuthUserKey. [keyfuncs.IP] finds the client's address, not gin.Context.ClientIP, which by
// default believes any X-Forwarded-For. [keyfuncs.Param] and [keyfuncs.Route] know gin's routes.
//
// # Handlers
//
// [Decision] tells a handler what a guard has decided. [Take] hands it the decision to settle later, and
// [Spend] corrects an estimated cost. [Page] mounts the page of deferred requests.
package ginmw

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/pathvalue"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
	"github.com/gatehouse-go/gatehouse/pipeline/rule"
)

// Rule says which guard decides and how an attempt is made from a request. It is [rule.Rule].
type Rule = rule.Rule

// Gin returns a middleware that guards routes with the rules, for gin.Engine.Use, for a group or for one
// route. It answers and aborts a refused request. It panics on rules that cannot work.
//
// A handler that calls c.Abort without writing a status has answered with 200. One that leaves an error
// with c.Error and does not answer counts as 500. A status that the handler set with c.Status, but did not
// send, counts as the answer's. Mounted with Use on the engine, rules also see requests that match no
// route, on which keyfuncs.Route and keyfuncs.Param find nothing.
func Gin(rules ...Rule) gin.HandlerFunc { return Follow(pipeline.New(rules...)) }

// Follow is [Gin] for rules that may change while requests are served: see [pipeline.Source].
func Follow(s pipeline.Source) gin.HandlerFunc {
	pipeline.MustFollow(s)
	return func(c *gin.Context) {
		passed := false
		defer func() {
			if !passed { // also when a function of the rule panics: gin would go on to the handler after recovery
				c.Abort()
			}
		}()
		passage, refusal := s.Pipeline().Enter(&keyfuncs.Request{Request: c.Request, Facts: facts{c}})
		if refusal != nil {
			refusal.Answer(c.Writer, c.Request)
			return
		}
		passed = true
		c.Request = c.Request.WithContext(passage.Context())
		if passage.Watches() {
			around := c.Writer
			c.Writer = &writer{ResponseWriter: around, to: passage.Watch(atOnce{around})}
			defer func() { c.Writer = around }()
		} else {
			passage.SetHeaders(c.Writer.Header())
		}
		defer passage.Abort() // counts when the handler panics
		c.Next()
		passage.Leave(status(c))
	}
}

// status returns the status that a request ends with. Errors that a handler left with c.Error, without an
// answer, count as 500: a middleware outside answers them after this one has returned.
func status(c *gin.Context) int {
	if status := c.Writer.Status(); len(c.Errors) == 0 || c.Writer.Written() || status != http.StatusOK {
		return status
	}
	return http.StatusInternalServerError
}

// writer is gin's writer, whose answer passes through the rules. As in gin, a status waits until something
// is sent.
type writer struct {
	gin.ResponseWriter
	to     http.ResponseWriter
	status int // the status sent, 0 before
	size   int
}

func (w *writer) WriteHeaderNow() {
	if !w.Written() {
		w.status = w.Status()
		w.to.WriteHeader(w.status)
	}
}

func (w *writer) WriteHeader(code int) {
	if w.status == 0 { // a sent status may be held back, which gin does not know
		w.ResponseWriter.WriteHeader(code)
	}
}

func (w *writer) Write(b []byte) (int, error) {
	w.WriteHeaderNow()
	n, err := w.to.Write(b)
	w.size += n
	return n, err
}

func (w *writer) WriteString(s string) (int, error) {
	w.WriteHeaderNow()
	n, err := io.WriteString(w.to, s)
	w.size += n
	return n, err
}

func (w *writer) Flush() {
	w.WriteHeaderNow()
	if flusher, ok := w.to.(http.Flusher); ok {
		flusher.Flush()
	}
}

func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.to).Hijack()
}

func (w *writer) Written() bool { return w.status != 0 || w.ResponseWriter.Written() }

func (w *writer) Size() int {
	if w.status == 0 {
		return w.ResponseWriter.Size()
	}
	return max(w.size, w.ResponseWriter.Size())
}

// Unwrap serves http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.to }

// atOnce is gin's writer, but sends a status as soon as it is set, as the writers of net/http do.
type atOnce struct{ gin.ResponseWriter }

func (w atOnce) WriteHeader(code int) {
	if code < http.StatusOK && code != http.StatusSwitchingProtocols {
		return // gin would keep it as the final status
	}
	w.ResponseWriter.WriteHeader(code)
	w.WriteHeaderNow()
}

// Unwrap skips gin's writer, which has methods that the writer below may lack.
func (w atOnce) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Page returns the gin handler of a page, such as that of deferred.Requests, on which keyfuncs.User and the
// like find what middlewares have set.
func Page(p pipeline.Page) gin.HandlerFunc {
	return func(c *gin.Context) {
		p.ServePage(c.Writer, &keyfuncs.Request{Request: c.Request, Facts: facts{c}})
	}
}

// Decision returns what the named guard decided about the request: see [pipeline.Decision].
func Decision(c *gin.Context, guard string) (core.Decision, bool) {
	return pipeline.Decision(c.Request.Context(), guard)
}

// Take hands the decision of the named guard to the handler, which must settle it in place of the rule. It
// takes no units: see [pipeline.Take].
func Take(c *gin.Context, guard string) (core.Decision, bool) {
	return pipeline.Take(c.Request.Context(), guard)
}

// TokenOf returns the token of a guard that the client has sent, such as the pass of a waiting room: see
// [answers.TokenOf].
func TokenOf(c *gin.Context, guard string) string { return answers.TokenOf(c.Request, guard) }

// Spend adds to what the request has really cost under the named rate limit: see [pipeline.Spend].
func Spend(c *gin.Context, guard string, n int64) error {
	return pipeline.Spend(c.Request.Context(), guard, n)
}

// facts is what gin knows about a request.
type facts struct{ c *gin.Context }

func (f facts) Route() string { return f.c.FullPath() }

func (f facts) Param(name string) (string, bool) {
	value, ok := f.c.Params.Get(name)
	return pathvalue.Plain(f.c.Request.URL, f.c.FullPath(), name, value), ok
}

func (f facts) Value(name string) (any, bool) { return f.c.Get(name) }
