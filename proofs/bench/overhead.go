package bench

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/httprate"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/redis/go-redis/v9"
	"github.com/ulule/limiter/v3"
	ululegin "github.com/ulule/limiter/v3/drivers/middleware/gin"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/limit/lease"
	"github.com/gatehouse-go/gatehouse/echomw"
	"github.com/gatehouse-go/gatehouse/ginmw"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// site is a web application with one page that says hello, with or without a limit in front.
type site struct {
	framework string // the sites of a framework are compared with its first one, which has no limit
	limit     string
	refused   bool // the limit refuses all requests but the first
	handler   http.Handler

	connections int // of wrk; 0: 16
}

// The limits of the sites. Allowed requests come from many clients in turn, so that no run uses up their
// limits; refused ones come from one client.
const (
	siteClients = 1000
	siteAllowed = 10_000
	siteWindow  = time.Hour
)

const hello = "hello\n"

// What a limit tells its clients. A page with them, and nothing else, is the least that a limit can cost.
var (
	policyField = []string{`"limit-1";q=10000;w=3600`}
	limitField  = []string{`"limit-1";r=9999;t=3600`}
)

// sites returns all sites, those of one framework together.
func sites(ctx context.Context, rdb *redis.Client) []site {
	onRedis := core.New(rdb, core.WithDeadline(30*time.Second), core.WithPrefix("sites"))
	inMemory := core.NewMemory()
	guards := 0
	rule := func(gate *core.Engine, refused bool) pipeline.Rule {
		guards++
		client := clients(refused)
		return pipeline.Rule{
			Guard: limit.NewSlidingWindow(gate, fmt.Sprintf("limit-%d", guards),
				limit.Per(int64(maxOf(refused)), siteWindow)),
			Who: func(*keyfuncs.Request) (string, error) { return client(), nil },
		}
	}
	leased := func(refused bool) pipeline.Rule { // one tenant has the requests of all clients
		r := rule(onRedis, refused)
		if !refused {
			r.Guard = lease.New(onRedis, "leased-"+r.Guard.Name(), limit.Per(siteAllowed*siteClients, siteWindow))
			r.Who = func(*keyfuncs.Request) (string, error) { return hotKey, nil }
		}
		return r
	}
	var all []site
	add := func(framework, limit string, handler func(refused bool) http.Handler) {
		if limit == "" {
			all = append(all, site{framework: framework, limit: "no limit", handler: handler(false)})
			return
		}
		all = append(all, site{framework: framework, limit: limit, handler: handler(false)},
			site{framework: framework, limit: limit, refused: true, handler: handler(true)})
	}

	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(hello)) })
	add("net/http", "", func(bool) http.Handler { return page })
	all = append(all, site{framework: "net/http", limit: "no limit, but the fields of one",
		handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Ratelimit-Policy"], w.Header()["Ratelimit"] = policyField, limitField
			page(w, r)
		})},
		site{framework: "net/http", limit: "no limit, but a call of `return 1`", handler: calling(ctx, rdb, page)})
	add("net/http", "Gatehouse, Redis",
		func(refused bool) http.Handler { return nethttpmw.HTTP(rule(onRedis, refused))(page) })
	add("net/http", "Gatehouse, Redis, leased",
		func(refused bool) http.Handler { return nethttpmw.HTTP(leased(refused))(page) })
	add("net/http", "Gatehouse, memory",
		func(refused bool) http.Handler { return nethttpmw.HTTP(rule(inMemory, refused))(page) })
	add("net/http", "httprate, memory", func(refused bool) http.Handler {
		client := clients(refused)
		key := func(*http.Request) (string, error) { return client(), nil }
		return httprate.LimitBy(maxOf(refused), siteWindow, key)(page)
	})

	gin.SetMode(gin.ReleaseMode)
	onGin := func(handlers ...gin.HandlerFunc) http.Handler {
		r := gin.New()
		r.GET("/", append(handlers, func(c *gin.Context) { c.String(http.StatusOK, hello) })...)
		return r
	}
	onUlule := func(store limiter.Store, refused bool) http.Handler {
		client := clients(refused)
		l := limiter.New(store, limiter.Rate{Limit: int64(maxOf(refused)), Period: siteWindow})
		return onGin(ululegin.NewMiddleware(l,
			ululegin.WithKeyGetter(func(*gin.Context) string { return client() })))
	}
	add("gin", "", func(bool) http.Handler { return onGin() })
	add("gin", "Gatehouse, Redis",
		func(refused bool) http.Handler { return onGin(ginmw.Gin(rule(onRedis, refused))) })
	add("gin", "Gatehouse, Redis, leased",
		func(refused bool) http.Handler { return onGin(ginmw.Gin(leased(refused))) })
	add("gin", "ulule/limiter, Redis",
		func(refused bool) http.Handler { return onUlule(must(ululeredis.NewStore(rdb)), refused) })
	add("gin", "Gatehouse, memory",
		func(refused bool) http.Handler { return onGin(ginmw.Gin(rule(inMemory, refused))) })
	add("gin", "ulule/limiter, memory",
		func(refused bool) http.Handler { return onUlule(ululememory.NewStore(), refused) })

	onEcho := func(before ...echo.MiddlewareFunc) http.Handler {
		e := echo.New()
		e.GET("/", func(c echo.Context) error { return c.String(http.StatusOK, hello) }, before...)
		return e
	}
	add("echo", "", func(bool) http.Handler { return onEcho() })
	add("echo", "Gatehouse, Redis",
		func(refused bool) http.Handler { return onEcho(echomw.Echo(rule(onRedis, refused))) })
	add("echo", "Gatehouse, memory",
		func(refused bool) http.Handler { return onEcho(echomw.Echo(rule(inMemory, refused))) })
	add("echo", "echo's own, memory", func(refused bool) http.Handler {
		client := clients(refused)
		store := middleware.RateLimiterMemoryStoreConfig{Rate: 1.0 / 3600, Burst: maxOf(refused),
			ExpiresIn: siteWindow}
		return onEcho(middleware.RateLimiterWithConfig(middleware.RateLimiterConfig{
			IdentifierExtractor: func(echo.Context) (string, error) { return client(), nil },
			Store:               middleware.NewRateLimiterMemoryStoreWithConfig(store),
		}))
	})
	static, guarded := line(ctx, rdb)
	all = append(all, site{framework: lineSite, limit: "no limit", handler: static},
		site{framework: lineSite, limit: "who waits", handler: guarded})
	for _, s := range slices.Clone(all) {
		if s.framework == "gin" && (s.limit == "no limit" || strings.HasSuffix(s.limit, "Redis")) && !s.refused {
			s.framework, s.connections = "gin, 64 connections", 64
			all = append(all, s)
		}
	}
	return all
}

// calling returns a page that asks Redis once, by the script that does the least, and heeds no answer.
func calling(ctx context.Context, rdb *redis.Client, page http.Handler) http.Handler {
	ask := floorOn(ctx, rdb).allow
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := ask(r.Context(), hotKey); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		page.ServeHTTP(w, r)
	})
}

func maxOf(refused bool) int {
	if refused {
		return 1
	}
	return siteAllowed
}

// clients returns a function that says which client makes the next request.
func clients(refused bool) func() string {
	if refused {
		return func() string { return hotKey }
	}
	var names [siteClients]string
	for i := range names {
		names[i] = "client-" + strconv.Itoa(i)
	}
	var last atomic.Uint64
	return func() string { return names[last.Add(1)%siteClients] }
}

// pace is what wrk saw of a site in a turn.
type pace struct {
	rate float64 // requests per second
	cpu  float64 // microseconds of the server's process per request
}

// paces holds the measurements of one site, and those of its framework's page without a limit right before, a
// value per round each.
type paces struct{ own, floor []pace }

// rates and cpus return the values of all rounds.
func rates(paces []pace) (values []float64) {
	for _, p := range paces {
		values = append(values, p.rate)
	}
	return values
}

func cpus(paces []pace) (values []float64) {
	for _, p := range paces {
		values = append(values, p.cpu)
	}
	return values
}

// overhead lets wrk request each site for a turn per round, in random order, and right before it the page
// without a limit, so that whatever slows the machine down for a while slows down both. A warm-up round
// before the first does not count.
func overhead(ctx context.Context, all []site, rounds int, turn time.Duration, seed uint64) ([]paces, error) {
	measured := make([]paces, len(all))
	servers, floors := make([]*httptest.Server, len(all)), make([]int, len(all))
	for i, s := range all {
		servers[i] = httptest.NewServer(s.handler)
		defer servers[i].Close()
		if floors[i] = i; i > 0 && all[i-1].framework == s.framework {
			floors[i] = floors[i-1]
		}
	}
	order := rand.New(rand.NewPCG(seed, 1))
	for round := range rounds + 1 {
		for _, i := range order.Perm(len(all)) {
			if floors[i] == i {
				continue
			}
			floor, err := wrk(ctx, all[floors[i]], servers[floors[i]].URL, turn)
			if err != nil {
				return nil, fmt.Errorf("%s, no limit: %w", all[i].framework, err)
			}
			own, err := wrk(ctx, all[i], servers[i].URL, turn)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", all[i].framework, all[i].limit, err)
			}
			if round > 0 {
				measured[i].own, measured[i].floor = append(measured[i].own, own), append(measured[i].floor, floor)
				of := &measured[floors[i]]
				of.own, of.floor = append(of.own, floor), append(of.floor, floor)
			}
		}
	}
	return measured, nil
}

// wrk requests the page of a site.
func wrk(ctx context.Context, of site, url string, turn time.Duration) (pace, error) {
	before, err := costs(ctx, nil)
	if err != nil {
		return pace{}, err
	}
	seconds := strconv.Itoa(max(int(turn/time.Second), 1)) + "s"
	out, err := exec.CommandContext(ctx, "wrk", "-t", "1", "-c", strconv.Itoa(cmp.Or(of.connections, 16)), "-d",
		seconds, url).CombinedOutput()
	if err != nil {
		return pace{}, fmt.Errorf("wrk: %w: %s", err, out)
	}
	after, err := costs(ctx, nil)
	if err != nil {
		return pace{}, err
	}
	rate, answers, err := readWrk(string(out), of.refused)
	return pace{rate: rate, cpu: (after.own - before.own) / answers}, err
}

var (
	wrkRate   = regexp.MustCompile(`(?m)^Requests/sec:\s+([0-9.]+)$`)
	wrkAll    = regexp.MustCompile(`(?m)^\s+(\d+) requests in `)
	wrkOthers = regexp.MustCompile(`(?m)^\s+Non-2xx or 3xx responses: (\d+)$`)
	wrkErrors = regexp.MustCompile(`(?m)^\s+Socket errors: .*$`)
)

// readWrk reads the output of wrk. It returns an error when not all answers are as intended; where they are
// to be refused, a few at the beginning may be allowed.
func readWrk(out string, refused bool) (rate, answers float64, err error) {
	number := func(pattern *regexp.Regexp) float64 {
		found := pattern.FindStringSubmatch(out)
		if found == nil {
			return 0
		}
		n, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			return 0
		}
		return n
	}
	others := number(wrkOthers)
	rate, answers = number(wrkRate), number(wrkAll)
	switch {
	case rate == 0 || wrkErrors.MatchString(out):
		return 0, 0, fmt.Errorf("wrk could not ask: %s", out)
	case !refused && others > 0, refused && others < answers-16:
		return 0, 0, fmt.Errorf("%v of %v answers are refusals: %s", others, answers, out)
	}
	return rate, answers, nil
}
