// Package echov5mw puts guards in front of routes of echo v5; package echomw is for v4. It only translates:
// package [pipeline] describes the rules, the answers and how attempts are settled.
//
//	import ratelimit "github.com/gatehouse-go/gatehouse/adapters/echov5mw"
//
//	e.Use(ratelimit.PerIP(gate, limit.PerMinute(100)))
//
// # Middlewares
//
// [PerIP] is the most common one. [Echo] makes a middleware of one or more rules, for the application, a
// group or a route; its documentation says what becomes of errors that handlers return. [Follow] does so for
// rules that may change while requests are served, such as those of package config. Mount middleware.Recover
// and CORS in front of the rules, so that they also see what the rules answer. In Pre, before the router,
// [keyfuncs.Route] and [keyfuncs.Param] find nothing.
//
// # Who the client is
//
// Mount the login in front of rules that need it: [keyfuncs.User] finds what the login has stored with c.Set.
// [keyfuncs.IP] finds the client's address, not echo.Context.RealIP, which does what the application's
// IPExtractor does.
//
// # Handlers
//
// [Decision] tells a handler what a guard has decided. [Take] hands it the decision to settle later, and
// [Spend] corrects an estimated cost. [Page] mounts the page of deferred requests.
//
// # Module
//
// The package is a module of its own, because echo v5 needs much newer versions of other modules than the
// rest of Gatehouse.
package echov5mw

import (
	"cmp"
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/pathvalue"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
	"github.com/gatehouse-go/gatehouse/pipeline/rule"
)

// Rule says which guard decides and how an attempt is made from a request. It is [rule.Rule].
type Rule = rule.Rule

// Echo returns a middleware that guards routes with the rules, for echo.Echo.Use, for a group or for one
// route. It answers a refused request, and the handler does not run. It panics on rules that cannot work.
//
// # Errors of handlers
//
// When the handler returns an error, echo's HTTPErrorHandler answers it inside the rules, so that the rules
// see the final answer. Echo then returns the error for the middleware around it to see. That middleware
// cannot map the error to another answer, because the request is already answered: map errors inside the
// rules or in the HTTPErrorHandler, and check Committed first, as echo's documentation asks. Rules that do
// not depend on how a request ends, such as plain rate limits, leave errors alone. Where the answer is held
// back (see [pipeline.Passage.Watch]), Echo does not return the error, because middleware.Timeout would
// drop the answer.
func Echo(rules ...Rule) echo.MiddlewareFunc { return Follow(pipeline.New(rules...)) }

// Follow is [Echo] for rules that may change while requests are served: see [pipeline.Source].
func Follow(s pipeline.Source) echo.MiddlewareFunc {
	pipeline.MustFollow(s)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			p := s.Pipeline()
			passage, refusal := p.Enter(&keyfuncs.Request{Request: c.Request(), Facts: facts{c}})
			if refusal != nil {
				refusal.Answer(c.Response(), c.Request())
				return nil
			}
			c.SetRequest(c.Request().WithContext(passage.Context()))
			if passage.Watches() {
				defer watch(c, passage)()
			} else {
				passage.SetHeaders(c.Response().Header())
			}
			defer passage.Abort() // counts when the handler panics
			err := next(c)
			if !p.Settles() {
				passage.Leave(http.StatusOK)
				return err
			}
			status := http.StatusOK
			if err != nil && !committed(c) {
				c.Echo().HTTPErrorHandler(c, err)
				if !committed(c) {
					status = errorStatus(err) // a middleware around this one answers it
				}
			}
			if passage.Held() {
				err = nil
			}
			passage.Leave(status)
			if status, refused := passage.Refused(); refused {
				if response, err := echo.UnwrapResponse(c.Response()); err == nil {
					response.Status, response.Committed = status, true
				}
			}
			return err
		}
	}
}

// watch passes what is written through the rules. It watches below echo.Response, so that the rules also
// see what is written past it, unless another writer stands in front of that, such as one that keeps the
// answer to a HEAD request until the end. restore undoes that.
func watch(c *echo.Context, passage *pipeline.Passage) (restore func()) {
	if response, ok := c.Response().(*echo.Response); ok {
		around := response.ResponseWriter
		watched := passage.Watch(around)
		response.ResponseWriter = watched
		return func() {
			if response.ResponseWriter == watched {
				response.ResponseWriter = around
			}
		}
	}
	around := c.Response()
	watched := passage.Watch(around)
	c.SetResponse(watched)
	return func() {
		if c.Response() == watched {
			c.SetResponse(around)
		}
	}
}

// committed reports whether the request counts as answered for echo's error handler.
func committed(c *echo.Context) bool {
	response, err := echo.UnwrapResponse(c.Response())
	return err == nil && response.Committed
}

// errorStatus returns the status with which echo.DefaultHTTPErrorHandler answers an error.
func errorStatus(err error) int {
	return cmp.Or(echo.StatusCode(err), http.StatusInternalServerError)
}

// Page returns the echo handler of a page, such as that of deferred.Requests, on which keyfuncs.User and the
// like find what middlewares have set.
func Page(p pipeline.Page) echo.HandlerFunc {
	return func(c *echo.Context) error {
		p.ServePage(c.Response(), &keyfuncs.Request{Request: c.Request(), Facts: facts{c}})
		return nil
	}
}

// Decision returns what the named guard decided about the request: see [pipeline.Decision].
func Decision(c *echo.Context, guard string) (core.Decision, bool) {
	return pipeline.Decision(c.Request().Context(), guard)
}

// Take hands the decision of the named guard to the handler, which must settle it in place of the rule. It
// takes no units: see [pipeline.Take].
func Take(c *echo.Context, guard string) (core.Decision, bool) {
	return pipeline.Take(c.Request().Context(), guard)
}

// TokenOf returns the token of a guard that the client has sent, such as the pass of a waiting room: see
// [answers.TokenOf].
func TokenOf(c *echo.Context, guard string) string { return answers.TokenOf(c.Request(), guard) }

// Spend adds to what the request has really cost under the named rate limit: see [pipeline.Spend].
func Spend(c *echo.Context, guard string, n int64) error {
	return pipeline.Spend(c.Request().Context(), guard, n)
}

// facts is what echo knows about a request.
type facts struct{ c *echo.Context }

func (f facts) Route() string { return f.c.Path() }

// Unrouted reports whether the router has not run yet. Behind it the route has a name even if nothing
// matched.
func (f facts) Unrouted() bool { return f.c.Path() == "" && f.c.RouteInfo().Name == "" }

func (f facts) Param(name string) (string, bool) {
	for _, parameter := range f.c.PathValues() {
		if parameter.Name == name {
			return pathvalue.Plain(f.c.Request().URL, f.c.Path(), name, parameter.Value), true
		}
	}
	return "", false
}

func (f facts) Value(name string) (any, bool) {
	v := f.c.Get(name)
	return v, v != nil
}
