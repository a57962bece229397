// Package fibermw puts guards in front of routes of fiber v3. It only translates: package [pipeline]
// describes the rules, the answers and how attempts are settled.
//
//	import ratelimit "github.com/gatehouse-go/gatehouse/adapters/fibermw"
//
//	app.Use(ratelimit.PerIP(gate, limit.PerMinute(100)))
//
// # Middlewares
//
// [PerIP] is the most common one. [Fiber] makes a middleware of one or more rules, for the application, a
// group or a route; its documentation says what becomes of errors that handlers return. [Follow] does so for
// rules that may change while requests are served, such as those of package config. Mount fiber's recover and
// cors in front of the rules, so that they also see what the rules answer. In Use, fiber does not know the
// route yet: [keyfuncs.Route] finds nothing there, and [keyfuncs.Param] only the parameters of the prefix.
// Rules that need the route stand on it:
//
//	app.Post("/polls/:poll/votes", ratelimit.Fiber(vote), handler)
//
// # Who the client is
//
// Mount the login in front of rules that need it: [keyfuncs.User] finds what the login has stored with
// c.Locals. [keyfuncs.IP] finds the client's address, not fiber.Ctx.IP, which does what the application's
// ProxyHeader says.
//
// # Handlers
//
// [Decision] tells a handler what a guard has decided. [Take] hands it the decision to settle later, and
// [Spend] corrects an estimated cost. [Page] mounts the page of deferred requests, which run through
// [Handler].
//
// # What fasthttp cannot do
//
// fasthttp sends the answer when all handlers have returned. So a claim is confirmed before the client hears
// of it, as in the other adapters. But a client that hangs up is not seen while the handler runs, and a body
// that is streamed is sent after the rules are settled. docs/guides/fiber.md has the whole table.
//
// # Module
//
// The package is a module of its own, so that fiber and fasthttp are needed by its users only.
package fibermw

import (
	"maps"
	"net/http"

	"github.com/gofiber/fiber/v3"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
	"github.com/gatehouse-go/gatehouse/pipeline/rule"
)

// Rule says which guard decides and how an attempt is made from a request. It is [rule.Rule].
type Rule = rule.Rule

// Fiber returns a middleware that guards routes with the rules, for fiber.App.Use, for a group or for one
// route. It answers a refused request, and the handler does not run. It panics on rules that cannot work.
//
// # Errors of handlers
//
// When the handler returns an error, the application's ErrorHandler answers it inside the rules, so that the
// rules see the final answer. Middlewares around the rules see the answer, and no error. Rules that do not
// depend on how a request ends, such as plain rate limits, leave errors alone.
func Fiber(rules ...Rule) fiber.Handler { return Follow(pipeline.New(rules...)) }

// Follow is [Fiber] for rules that may change while requests are served: see [pipeline.Source].
func Follow(s pipeline.Source) fiber.Handler { return follow(s, convert) }

// follow is Follow for rules that see of requests what the function makes of them.
func follow(s pipeline.Source, see func(fiber.Ctx) *http.Request) fiber.Handler {
	pipeline.MustFollow(s)
	return func(c fiber.Ctx) error {
		p := s.Pipeline()
		r := see(c)
		passage, refusal := p.Enter(&keyfuncs.Request{Request: r, Facts: facts{c}})
		if refusal != nil {
			if r.Header == nil {
				r = convert(c)
			}
			refuse(c, refusal, r)
			return nil
		}
		c.SetContext(passage.Context())
		if p.Settles() {
			settled(c, passage)
			return nil
		}
		return counted(c, passage)
	}
}

// counted runs the handler behind rules that do not depend on how the request ends.
func counted(c fiber.Ctx, passage *pipeline.Passage) error {
	defer passage.Abort() // counts when the handler panics
	a := &answer{c: c, passage: passage, header: http.Header{}}
	if !passage.Watches() {
		if a.joins() {
			a.load()
		}
		passage.SetHeaders(a.header)
		a.put()
		err := c.Next()
		passage.Leave(http.StatusOK)
		return err
	}
	a.load()
	passage.Watch(a)
	a.put()
	err := c.Next()
	a.load() // the handler may have let pages of other origins read the answer
	passage.Leave(http.StatusOK)
	a.put()
	return err
}

// settled runs the handler behind rules that depend on how the request ends. The answer cannot flush, so the
// passage holds it back and decides about it in Leave. That is right: fasthttp sends it when all handlers
// have returned, and fiber's timeout may have answered instead by then.
func settled(c fiber.Ctx, passage *pipeline.Passage) {
	a := newAnswer(c, passage)
	w := passage.Watch(a)
	a.put()
	a.sent = maps.Clone(a.header)
	defer func() { // the handler panics; after Leave, this changes nothing
		passage.Abort()
		a.put()
	}()
	if err := c.Next(); err != nil {
		if c.App().ErrorHandler(c, err) != nil {
			_ = c.SendStatus(http.StatusInternalServerError) // as fiber does; it returns no error
		}
	}
	a.load()
	passage.SetHeaders(a.header) // a proxy as the handler replaces the whole header
	a.tell(w)
	passage.Leave(http.StatusOK)
	if _, refused := passage.Refused(); refused {
		a.send()
	}
}

// refuse answers in the handler's place.
func refuse(c fiber.Ctx, refusal *answers.Refusal, r *http.Request) {
	a := newAnswer(c, nil)
	refusal.Answer(a, r)
	a.send()
}

// Page returns the fiber handler of a page, such as that of deferred.Requests, on which keyfuncs.User and the
// like find what middlewares have set.
func Page(p pipeline.Page) fiber.Handler {
	return func(c fiber.Ctx) error {
		a := newAnswer(c, nil)
		p.ServePage(a, &keyfuncs.Request{Request: convert(c), Facts: facts{c}})
		a.send()
		return nil
	}
}

// Decision returns what the named guard decided about the request: see [pipeline.Decision].
func Decision(c fiber.Ctx, guard string) (core.Decision, bool) {
	return pipeline.Decision(c.Context(), guard)
}

// Take hands the decision of the named guard to the handler, which must settle it in place of the rule. It
// takes no units: see [pipeline.Take].
func Take(c fiber.Ctx, guard string) (core.Decision, bool) { return pipeline.Take(c.Context(), guard) }

// TokenOf returns the token of a guard that the client has sent, such as the pass of a waiting room: see
// [answers.TokenOf].
func TokenOf(c fiber.Ctx, guard string) string { return answers.TokenOf(convert(c), guard) }

// Spend adds to what the request has really cost under the named rate limit: see [pipeline.Spend].
func Spend(c fiber.Ctx, guard string, n int64) error { return pipeline.Spend(c.Context(), guard, n) }
