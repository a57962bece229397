package conformance

import (
	"net/http"
	"strings"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

// Framework is a web framework with its adapter.
type Framework struct {
	// Build makes an application with the framework and the adapter, as a user of both would.
	Build func(App) http.Handler
	// Mount makes the adapter's middleware and throws it away: for rules that it has to panic on.
	Mount func(rules ...nethttpmw.Rule)
	// Fast leaves redis-server out: for another router behind an adapter that has been run on it.
	Fast bool
}

// App is a web application. In front of all that it says, Build puts a middleware that does what authentication does in the
// framework: it stores what the header UserHeader says, if anything, under the name UserKey.
type App struct {
	// Recover says where the framework's own recoverer is mounted.
	Recover Recover
	// Use has the rules of the middlewares around the whole application, the outermost middleware first.
	Use [][]nethttpmw.Rule
	// Routes are the routes.
	Routes []Route
}

// Recover says where the framework's own recoverer is mounted.
type Recover int

const (
	// NoRecover mounts none: a panic gets to whoever called the application.
	NoRecover Recover = iota
	// RecoverOutside mounts it around everything else.
	RecoverOutside
	// RecoverInside mounts it on each route, between the rules and the handler.
	RecoverInside
)

const (
	// UserHeader is the header that says who has signed in.
	UserHeader = "X-User"
	// UserKey is the name under which the framework's own store has it.
	UserKey = "uid"
)

// Route is one route of an application.
type Route struct {
	// Method and Path say what it matches. A parameter of the path is written {name}; Colons rewrites it.
	Method, Path string
	// Rules are those of one middleware on this route; none: no middleware.
	Rules []nethttpmw.Rule
	// Between, if set, is called by one more middleware, behind the rules and in front of the handler.
	Between func()
	// Handler answers.
	Handler func(Context)
}

// Context is what a framework's handlers get.
type Context interface {
	// Request is the request.
	Request() *http.Request
	// Writer is the framework's writer.
	Writer() http.ResponseWriter
	// Reply answers as handlers of the framework do; with an empty body it sends none.
	Reply(status int, body string)
	// Decision is the adapter's function of that name.
	Decision(guard string) (core.Decision, bool)
	// Take is the adapter's function of that name.
	Take(guard string) (core.Decision, bool)
}

// Colons rewrites the parameters of a path as gin and echo have them: {poll} becomes :poll.
func Colons(path string) string {
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}
