// Package echov5mw puts guards in front of routes of echo v5; package echomw is for v4. It only translates: rules, answers and settling
// are those of package nethttpmw, and are described there.
//
//	import ratelimit "github.com/gatehouse-go/gatehouse/echov5mw"
//
//	perIP := ratelimit.Rule{Guard: gate.SlidingWindow("site", core.PerMinute(100)), Who: keyfuncs.IP()}
//	e.Use(ratelimit.Echo(perIP))
//
// The client's address is found by keyfuncs.IP and not by echo.Context.RealIP, which does what the application's IPExtractor does.
//
// It is a module of its own, because echo v5 needs much newer versions of other modules than the rest of Gatehouse does.
package echov5mw

import (
	"cmp"
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/pathvalue"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

// Rule is a guard and how an attempt is made out of a request; the same as nethttpmw.Rule.
type Rule = nethttpmw.Rule

// Echo returns a middleware that guards routes with the rules, for echo.Echo.Use, for a group or for one route. A refused
// request is answered and its handler does not run. It panics on rules that cannot work.
//
// An error that the handler returns is answered inside of the rules, by echo's HTTPErrorHandler, so that what it writes is what counts;
// then it is passed on, for the middlewares around to see. They find that the request has been
// answered, so they cannot map it to another answer any more: map errors inside of the rules, or in the HTTPErrorHandler, and
// begin that with the look at Committed that echo's documentation asks for. Rules that do not depend on how a request ends, such as
// plain rate limits, leave errors alone. Where the answer is held back (see nethttpmw.Passage.Watch), the error is not passed on:
// middleware.Timeout would drop the answer.
func Echo(rules ...Rule) echo.MiddlewareFunc {
	p := nethttpmw.NewPipeline(rules...)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			passage, refusal := p.Enter(&keyfuncs.Request{Request: c.Request(), Facts: facts{c}})
			if refusal != nil {
				refusal.Answer(c.Response(), c.Request())
				return nil
			}
			c.SetRequest(c.Request().WithContext(passage.Context()))
			if !p.Settles() {
				passage.SetHeaders(c.Response().Header())
				defer passage.Abort() // counts when the handler panics
				err := next(c)
				passage.Leave(http.StatusOK)
				return err
			}
			defer watch(c, passage)()
			defer passage.Abort() // counts when the handler panics
			err := next(c)
			status := http.StatusOK
			if err != nil && !committed(c) {
				c.Echo().HTTPErrorHandler(c, err)
				if !committed(c) {
					status = errorStatus(err) // whoever is around answers it
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

// watch lets what is written go through the rules: below echo.Response, so that what is written past it is seen as well, unless something
// else is in front of that, such as what keeps the answer to a HEAD request until the end. restore takes that back.
func watch(c *echo.Context, passage *nethttpmw.Passage) (restore func()) {
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

// committed reports whether echo's error handler finds that the request has been answered.
func committed(c *echo.Context) bool {
	response, err := echo.UnwrapResponse(c.Response())
	return err == nil && response.Committed
}

// errorStatus returns the status that echo.DefaultHTTPErrorHandler answers an error with.
func errorStatus(err error) int {
	return cmp.Or(echo.StatusCode(err), http.StatusInternalServerError)
}

// Decision returns what the guard of this name has decided about the request; see nethttpmw.Decision.
func Decision(c *echo.Context, guard string) (core.Decision, bool) {
	return nethttpmw.Decision(c.Request().Context(), guard)
}

// Take returns the decision of the guard of this name for the handler to settle; see nethttpmw.Take.
func Take(c *echo.Context, guard string) (core.Decision, bool) {
	return nethttpmw.Take(c.Request().Context(), guard)
}

// facts is what echo knows of a request.
type facts struct{ c *echo.Context }

func (f facts) Route() string { return f.c.Path() }

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
