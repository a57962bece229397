package bench

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// rulesOfOneRoute is the group of requests that pass limits of one middleware: one, three that are asked
// together, and three that are asked in turn. All are allowed. The limits of a request have different actors,
// as those of a client, a tenant and a region have.
func rulesOfOneRoute(ctx context.Context, rdb *redis.Client, part, name string, client *redis.Client) group {
	return group{part: part, name: name, redis: rdb, loads: allowedLoads, subjects: func(
		int, time.Duration,
	) []subject {
		engine := func(prefix string, options ...core.Option) *core.Engine {
			return core.New(client, append(options, core.WithDeadline(30*time.Second), core.WithRefusalMemory(0),
				core.WithPrefix(part+"-"+prefix))...)
		}
		return []subject{
			floorOn(ctx, client),
			onRoute(engine("one"), "1 rule", 1),
			onRoute(engine("together"), "3 rules, together", 3),
			onRoute(engine("turn", core.WithoutSharedCalls()), "3 rules, in turn", 3),
		}
	}}
}

// distant returns a client of the same server to which each reply takes a millisecond at least.
func distant(rdb *redis.Client) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:                  rdb.Options().Addr,
		ContextTimeoutEnabled: true,
		PoolSize:              rdb.Options().PoolSize,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &slowConn{Conn: conn}, err
		},
	})
}

// slowConn is a connection on which a reply arrives a millisecond after its request at the earliest.
type slowConn struct {
	net.Conn
	sent time.Time
}

func (c *slowConn) Write(b []byte) (int, error) {
	c.sent = time.Now()
	return c.Conn.Write(b)
}

func (c *slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	<-time.After(time.Until(c.sent.Add(time.Millisecond)))
	return n, err
}

// onRoute sends requests through a middleware with a number of limits, for 1,000 clients at random, and for
// others before their units are used up.
func onRoute(gate *core.Engine, name string, rules int) subject {
	const most, clients = 10_000, 1000
	all := make([]pipeline.Rule, rules)
	for i := range all {
		suffix := "|" + strconv.Itoa(i)
		all[i] = pipeline.Rule{
			Guard: limit.NewSlidingWindow(gate, "limit-"+strconv.Itoa(i), limit.Per(most, time.Minute)),
			Who:   func(r *keyfuncs.Request) (string, error) { return r.Host + suffix, nil },
		}
	}
	app := nethttpmw.HTTP(all...)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	var calls atomic.Int64
	return subject{name: name, allow: func(ctx context.Context, _ string) (bool, error) {
		turn := calls.Add(1) / (clients * most / 2)
		r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/"}, Header: http.Header{},
			Host: strconv.FormatInt(turn*clients+rand.Int64N(clients), 10)}
		w := &status{header: http.Header{}, code: http.StatusOK}
		app.ServeHTTP(w, r.WithContext(ctx))
		if w.code == http.StatusServiceUnavailable {
			return false, errors.New("a limit could not be asked")
		}
		return w.code == http.StatusOK, nil
	}}
}

// status is a response of which only the status matters.
type status struct {
	header http.Header
	code   int
}

func (s *status) Header() http.Header         { return s.header }
func (s *status) Write(b []byte) (int, error) { return len(b), nil }
func (s *status) WriteHeader(code int)        { s.code = code }
