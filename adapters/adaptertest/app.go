package adaptertest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// A Framework is a web framework with its adapter.
type Framework struct {
	// Build makes an application with the framework and the adapter, as their users would.
	Build func(App) http.Handler
	// Mount makes the adapter's middleware and discards it. It is for rules that must panic.
	Mount func(rules ...pipeline.Rule)
	// PerIP makes an application with the adapter's PerIP in front of GET /, which replies "ok". Nil: the
	// adapter has none.
	PerIP func(gate *core.Engine, at limit.Limit, trusted ...keyfuncs.IPOption) http.Handler
	// Slash is what the framework's router does with an escaped slash.
	Slash Slash
	// Redis returns a client of a Redis and a prefix for the keys of one test, which no other test has. Checks
	// that need no clock of their own run there. Nil: all run on a Redis inside the process.
	Redis func(testing.TB) (client redis.UniversalClient, prefix string)
	// Without names the rows that cannot hold in the framework, and says why. A row is the name of a check, of a
	// subtest, or a part of it between commas. Such rows are not run, and the log of the test has them.
	Without map[string]string
}

// leavesOut reports whether a row is not run, and says so in the log.
func (f Framework) leavesOut(t testing.TB, row string) bool {
	t.Helper()
	for name, why := range f.Without {
		if strings.Contains(", "+row+", ", ", "+name+", ") {
			t.Logf("without %q: %s", row, why)
			return true
		}
	}
	return false
}

// Slash is what a router does with /files%2Fname where GET /files/{name} has a rule and GET /{name} has none.
type Slash int

const (
	// SlashPasses sends it to /{name}, past the rule. A handler that reads the decoded path sees /files/name.
	SlashPasses Slash = iota
	// SlashSplits sends it to /files/{name}, whose rule guards it.
	SlashSplits
	// SlashNowhere answers 404.
	SlashNowhere
)

// An App is a web application, described independently of any framework. In front of everything else, Build
// mounts a middleware that stands for a login: it stores the value of the header UserHeader, if present,
// under the name UserKey.
type App struct {
	// Recover says where to mount the framework's own recoverer.
	Recover Recover
	// Use has the rules of each middleware around the whole application, the outermost middleware first.
	Use [][]pipeline.Rule
	// Routes are the routes.
	Routes []Route
}

// Recover says where to mount the framework's own middleware that recovers from panics.
type Recover int

const (
	// NoRecover mounts none: a panic reaches the caller of the application.
	NoRecover Recover = iota
	// RecoverOutside mounts it around everything else.
	RecoverOutside
	// RecoverInside mounts it on each route, between the rules and the handler.
	RecoverInside
)

const (
	// UserHeader is the header that names the signed-in user.
	UserHeader = "X-User"
	// UserKey is the name under which the framework's own store has the user.
	UserKey = "uid"
)

// A Route is one route of an application.
type Route struct {
	// Method and Path say what the route matches. A path parameter is written {name}; Colons rewrites it.
	Method, Path string
	// Rules are those of one middleware on this route; without rules there is no middleware.
	Rules []pipeline.Rule
	// Between, if set, is called by one more middleware between the rules and the handler.
	Between func()
	// Handler answers.
	Handler func(Context)
}

// A Context is what the handlers of an [App] get.
type Context interface {
	// Request is the request.
	Request() *http.Request
	// Writer is the framework's writer, as its handlers get it.
	Writer() http.ResponseWriter
	// Reply answers as handlers of the framework do; with an empty body it sends none.
	Reply(status int, body string)
	// Decision is the adapter's function of that name.
	Decision(guard string) (core.Decision, bool)
	// Take is the adapter's function of that name.
	Take(guard string) (core.Decision, bool)
	// Spend is the adapter's function of that name.
	Spend(guard string, n int64) error
	// Page answers by a page, with the adapter's function of that name.
	Page(p pipeline.Page)
}

// Colons rewrites the path parameters for gin and echo: {poll} becomes :poll.
func Colons(path string) string {
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}
