// Package echomw puts guards in front of echo routes. It only translates: rules, answers and settling are those of package
// nethttpmw, and are described there.
//
//	import ratelimit "github.com/gatehouse-go/gatehouse/echomw"
//
//	perIP := ratelimit.Rule{Guard: gate.SlidingWindow("site", core.PerMinute(100)), Who: keyfuncs.IP()}
//	e.Use(ratelimit.Echo(perIP))
//
// The client's address is found by keyfuncs.IP and not by echo.Context.RealIP, which by default believes any
// X-Forwarded-For.
package echomw

import (
	"net/http"

	"github.com/labstack/echo/v4"

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
// then it is passed on, as middleware.Logger of echo does, for the middlewares around to see. They find that the request has been
// answered, so they cannot map it to another answer any more: map errors inside of the rules, or in the HTTPErrorHandler, and
// begin that with the look at Committed that echo's documentation asks for. Rules that do not depend on how a request ends, such as
// plain rate limits, leave errors alone. Where the answer is held back (see nethttpmw.Passage.Watch), the error is not passed on:
// middleware.Timeout would drop the answer.
func Echo(rules ...Rule) echo.MiddlewareFunc {
	p := nethttpmw.NewPipeline(rules...)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
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
			// Below echo.Response, so that what is written past it is seen as well.
			response := c.Response()
			around := response.Writer
			watched := passage.Watch(around)
			response.Writer = watched
			defer func() {
				if response.Writer == watched {
					response.Writer = around
				}
			}()
			defer passage.Abort() // counts when the handler panics
			err := next(c)
			status := http.StatusOK
			if err != nil && !response.Committed {
				c.Error(err)
				if !response.Committed {
					status = errorStatus(err) // whoever is around answers it
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

// errorStatus returns the status that echo.DefaultHTTPErrorHandler answers an error with: it looks at the error itself, and at
// one inside of an HTTPError.
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

// Decision returns what the guard of this name has decided about the request; see nethttpmw.Decision.
func Decision(c echo.Context, guard string) (core.Decision, bool) {
	return nethttpmw.Decision(c.Request().Context(), guard)
}

// Take returns the decision of the guard of this name for the handler to settle; see nethttpmw.Take.
func Take(c echo.Context, guard string) (core.Decision, bool) {
	return nethttpmw.Take(c.Request().Context(), guard)
}

// facts is what echo knows of a request.
type facts struct{ c echo.Context }

func (f facts) Route() string { return f.c.Path() }

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
