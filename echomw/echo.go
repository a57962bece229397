// Package echomw puts guards in front of routes of echo v4; package echov5mw is for v5. It only translates:
// package [pipeline] describes the rules, the answers and how attempts are settled.
//
//	import ratelimit "github.com/gatehouse-go/gatehouse/echomw"
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
// [keyfuncs.IP] finds the client's address, not echo.Context.RealIP, which by default believes any
// X-Forwarded-For.
//
// # Handlers
//
// [Decision] tells a handler what a guard has decided. [Take] hands it the decision to settle later, and
// [Spend] corrects an estimated cost. [Page] mounts the page of deferred requests.
package echomw

import (
	"net/http"

	"github.com/labstack/echo/v4"

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
// see the final answer. Echo then returns the error, as echo's middleware.Logger does, for the middleware
// around it to see. That middleware cannot map the error to another answer, because the request is already
// answered: map errors inside the rules or in the HTTPErrorHandler, and check Committed first, as echo's
// documentation asks. Rules that do not depend on how a request ends, such as plain rate limits, leave
// errors alone. Where the answer is held back (see [pipeline.Passage.Watch]), Echo does not return the
// error, because middleware.Timeout would drop the answer.
func Echo(rules ...Rule) echo.MiddlewareFunc { return Follow(pipeline.New(rules...)) }

// Follow is [Echo] for rules that may change while requests are served: see [pipeline.Source].
func Follow(s pipeline.Source) echo.MiddlewareFunc {
	pipeline.MustFollow(s)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			p := s.Pipeline()
			passage, refusal := p.Enter(&keyfuncs.Request{Request: c.Request(), Facts: facts{c}})
			if refusal != nil {
				refusal.Answer(c.Response(), c.Request())
				return nil
			}
			c.SetRequest(c.Request().WithContext(passage.Context()))
			if passage.Watches() {
				defer watch(c.Response(), passage)()
			} else {
				passage.SetHeaders(c.Response().Header())
			}
			defer passage.Abort() // counts when the handler panics
			err := next(c)
			if !p.Settles() {
				passage.Leave(http.StatusOK)
				return err
			}
			response := c.Response()
			status := http.StatusOK
			if err != nil && !response.Committed {
				c.Error(err)
				if !response.Committed {
					status = errorStatus(err) // a middleware around this one answers it
				}
			}
			if passage.Held() {
				err = nil
			}
			passage.Leave(status)
			if status, refused := passage.Refused(); refused {
				response.Status, response.Committed = status, true
			}
			return err
		}
	}
}

// watch passes what is written through the rules, below echo.Response, so that they also see what is written
// past it. restore undoes that.
func watch(response *echo.Response, passage *pipeline.Passage) (restore func()) {
	around := response.Writer
	watched := passage.Watch(around)
	response.Writer = watched
	return func() {
		if response.Writer == watched {
			response.Writer = around
		}
	}
}

// errorStatus returns the status with which echo.DefaultHTTPErrorHandler answers an error. Like that
// handler, it looks at the error itself and at one inside an HTTPError.
func errorStatus(err error) int {
	httpErr, ok := err.(*echo.HTTPError) //nolint:errorlint // echo does not unwrap either
	if !ok {
		return http.StatusInternalServerError
	}
	if inner, ok := httpErr.Internal.(*echo.HTTPError); ok { //nolint:errorlint // likewise
		return inner.Code
	}
	return httpErr.Code
}

// Page returns the echo handler of a page, such as that of deferred.Requests, on which keyfuncs.User and the
// like find what middlewares have set.
func Page(p pipeline.Page) echo.HandlerFunc {
	return func(c echo.Context) error {
		p.ServePage(c.Response(), &keyfuncs.Request{Request: c.Request(), Facts: facts{c}})
		return nil
	}
}

// Decision returns what the named guard decided about the request: see [pipeline.Decision].
func Decision(c echo.Context, guard string) (core.Decision, bool) {
	return pipeline.Decision(c.Request().Context(), guard)
}

// Take hands the decision of the named guard to the handler, which must settle it in place of the rule. It
// takes no units: see [pipeline.Take].
func Take(c echo.Context, guard string) (core.Decision, bool) {
	return pipeline.Take(c.Request().Context(), guard)
}

// TokenOf returns the token of a guard that the client has sent, such as the pass of a waiting room: see
// [answers.TokenOf].
func TokenOf(c echo.Context, guard string) string { return answers.TokenOf(c.Request(), guard) }

// Spend adds to what the request has really cost under the named rate limit: see [pipeline.Spend].
func Spend(c echo.Context, guard string, n int64) error {
	return pipeline.Spend(c.Request().Context(), guard, n)
}

// facts is what echo knows about a request.
type facts struct{ c echo.Context }

func (f facts) Route() string { return f.c.Path() }

// Unrouted reports whether the router would find a route that the context does not have: it has not run yet.
// The context itself is the same before the router as behind it when nothing matched.
func (f facts) Unrouted() bool {
	e, r := f.c.Echo(), f.c.Request()
	router, ok := e.Routers()[r.Host]
	if !ok {
		router = e.Router()
	}
	probe := e.NewContext(r, nil)
	router.Find(r.Method, echo.GetPath(r), probe)
	return f.c.Path() == "" && probe.Path() != ""
}

func (f facts) Param(name string) (string, bool) {
	for i, n := range f.c.ParamNames() {
		if n == name {
			return pathvalue.Plain(f.c.Request().URL, f.c.Path(), name, f.c.ParamValues()[i]), true
		}
	}
	return "", false
}

func (f facts) Value(name string) (any, bool) {
	v := f.c.Get(name)
	return v, v != nil
}
