package fibermw_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/gatehouse-go/gatehouse/adapters/fibermw"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/idempotency"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// serve runs an application on fasthttp's server, and returns a connection to it.
func serve(t *testing.T, app *fiber.App) net.Conn {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() {
		_ = app.Shutdown() // the listener says how it ended
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	return conn
}

// ask sends a request for a vote of the user.
func ask(t *testing.T, to net.Conn, user string) {
	t.Helper()
	if _, err := fmt.Fprintf(to, "POST /polls/final/votes?choice=red HTTP/1.1\r\nHost: test\r\nX-User: %s\r\n"+
		"Content-Length: 0\r\n\r\n", user); err != nil {
		t.Fatal(err)
	}
}

// hear reads the answer.
func hear(t *testing.T, from *bufio.Reader) (status int, body string) {
	t.Helper()
	answer, err := http.ReadResponse(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close() // read to its end
	return answer.StatusCode, string(text)
}

// gone is a sale none of whose reservations can be confirmed.
type gone struct{ *seckill.Guard }

func (g gone) Settle(ctx context.Context, d core.Decision, end core.Ending) error {
	if end.Commits() {
		return core.ErrGone
	}
	return g.Guard.Settle(ctx, d, end)
}

// sold is a sale of the poll, and its rule.
func sold(t *testing.T) (*seckill.Guard, fibermw.Rule) {
	t.Helper()
	sale := seckill.New(newGate(t), "sale", seckill.Options{})
	if _, err := sale.Open(t.Context(), "final", seckill.Sale{Stock: 1}); err != nil {
		t.Fatal(err)
	}
	return sale, fibermw.Rule{Guard: sale, Who: keyfuncs.Header("X-User"), What: keyfuncs.Param("poll")}
}

// Promise: On fiber a claim is confirmed before any of the answer is sent. If that fails, nothing of the answer
// is: no body, no stream, no field, and no connection is hijacked.
func TestNothingUnconfirmedIsSent(t *testing.T) {
	for name, handler := range map[string]fiber.Handler{
		"a body": func(c fiber.Ctx) error { return c.Status(201).SendString("sold") },
		"a stream": func(c fiber.Ctx) error {
			return c.SendStreamWriter(func(w *bufio.Writer) { _, _ = w.WriteString("sold") }) // it is not read
		},
		"a reader": func(c fiber.Ctx) error { return c.SendStream(strings.NewReader("sold")) },
		"hijacked": func(c fiber.Ctx) error {
			c.RequestCtx().HijackSetNoResponse(true)
			c.RequestCtx().Hijack(func(conn net.Conn) { _, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\nsold") })
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			sale, rule := sold(t)
			rule.Guard = gone{sale}
			app := fiber.New()
			app.Post("/polls/:poll/votes", fibermw.Fiber(rule), func(c fiber.Ctx) error {
				c.Set("Set-Cookie", "session=secret")
				c.Set("Location", "/orders/1")
				return handler(c)
			})
			conn := serve(t, app)
			ask(t, conn, "ann")
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			body := make([]byte, max(0, answer.ContentLength))
			if _, err := io.ReadFull(answer.Body, body); err != nil {
				t.Fatal(err)
			}
			if answer.StatusCode != http.StatusConflict || !strings.Contains(string(body), `"reason":"gone"`) ||
				answer.Header.Get("Set-Cookie") != "" || answer.Header.Get("Location") != "" {
				t.Errorf("%d %v %s", answer.StatusCode, answer.Header, body)
			}
		})
	}
}

// TestStreamsAreDecidedByTheirStatus before they are sent. An answer that is streamed is kept as done only.
func TestStreamsAreDecidedByTheirStatus(t *testing.T) {
	gate := newGate(t)
	votes := votes.New(gate, "poll", votes.Options{})
	once := fibermw.Rule{Guard: idempotency.New(gate, "once", idempotency.Options{MaxBody: 100}),
		Who: keyfuncs.Header("X-User"), ID: keyfuncs.Header("X-User")}
	ran := 0
	app := fiber.New()
	app.Post("/polls/:poll/votes", fibermw.Fiber(once, inPoll(votes)), func(c fiber.Ctx) error {
		ran++
		return c.SendStreamWriter(func(w *bufio.Writer) { _, _ = w.WriteString("streamed") }) // to a buffer
	})
	conn := serve(t, app)
	from := bufio.NewReader(conn)
	ask(t, conn, "ann")
	if status, body := hear(t, from); status != 200 || body != "streamed" {
		t.Errorf("%d %s", status, body)
	}
	wantTally(t, votes, map[string]int64{"red": 1})
	ask(t, conn, "ann")
	if status, body := hear(t, from); status != 409 || !strings.Contains(body, `"done"`) || ran != 1 {
		t.Errorf("again: %d %s, and the handler ran %d times", status, body, ran)
	}
}

// TestAClientThatLeavesIsNotSeen while the handler runs: what it took is settled by the answer.
func TestAClientThatLeavesIsNotSeen(t *testing.T) {
	votes := votes.New(newGate(t), "poll", votes.Options{})
	running, left := make(chan struct{}), make(chan struct{})
	app := fiber.New()
	app.Post("/polls/:poll/votes", fibermw.Fiber(inPoll(votes)), func(c fiber.Ctx) error {
		close(running)
		<-left
		return c.Context().Err()
	})
	conn := serve(t, app)
	ask(t, conn, "ann")
	<-running
	_ = conn.Close() // as the client
	close(left)
	redistest.Eventually(t, time.Minute, func() bool {
		tally, err := votes.Tally(t.Context(), "final")
		return err == nil && tally["red"] == 1
	}, "the vote counts")
}

// TestLateAnswersSellNothing: a middleware of the application ends the context, and answers nothing itself.
func TestLateAnswersSellNothing(t *testing.T) {
	sale, rule := sold(t)
	app := fiber.New()
	app.Use(func(c fiber.Ctx) error {
		ctx, cancel := context.WithTimeout(c.Context(), time.Millisecond)
		defer cancel()
		c.SetContext(ctx)
		return c.Next()
	})
	app.Post("/polls/:poll/votes", fibermw.Fiber(rule), func(c fiber.Ctx) error {
		<-c.Context().Done()
		return c.Status(201).SendString("sold")
	})
	if w := post(app, "/polls/final/votes", "ann"); w.Code != 503 || strings.Contains(w.Body.String(), "sold") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if status, err := sale.Status(t.Context(), "final"); err != nil || status.Left != 1 {
		t.Errorf("%+v, %v", status, err)
	}
}

// TestKeysOutliveTheRequest: fasthttp's texts change with the next request on a connection. One that a login
// stores with c.Locals is such a text.
func TestKeysOutliveTheRequest(t *testing.T) {
	for name, who := range map[string]keyfuncs.Func{
		"Header": keyfuncs.Header("X-User"), "User": keyfuncs.User("uid"), "Param": keyfuncs.Param("name"),
	} {
		var actors []string
		app := fiber.New()
		app.Use(func(c fiber.Ctx) error { c.Locals("uid", c.Get("X-User")); return c.Next() })
		rule := fibermw.Rule{Guard: limit.NewFixedWindow(core.NewMemory(), "site", limit.PerHour(9)), Who: who}
		app.Get("/users/:name", fibermw.Fiber(rule), func(c fiber.Ctx) error {
			d, _ := fibermw.Decision(c, "site")
			actors = append(actors, d.Attempt.Actor)
			return nil
		})
		conn := serve(t, app)
		from := bufio.NewReader(conn)
		for _, user := range []string{"ann", "bob"} {
			_, _ = fmt.Fprintf(conn, "GET /users/%s HTTP/1.1\r\nHost: test\r\nX-User: %s\r\n\r\n", user, user)
			hear(t, from)
		}
		if !slices.Equal(actors, []string{"ann", "bob"}) {
			t.Errorf("%s: %q", name, actors)
		}
	}
}

// TestThePeerIsTheClient, whatever fiber has been told to believe.
func TestThePeerIsTheClient(t *testing.T) {
	app := fiber.New(fiber.Config{ProxyHeader: fiber.HeaderXForwardedFor, TrustProxy: true,
		TrustProxyConfig: fiber.TrustProxyConfig{Proxies: []string{"0.0.0.0/0"}}})
	app.Get("/", fibermw.PerIP(core.NewMemory(), limit.PerHour(1)), func(c fiber.Ctx) error { return nil })
	for i, want := range []int{200, 429} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-Forwarded-For", fmt.Sprint("203.0.113.", i))
		w := httptest.NewRecorder()
		if fibermw.Handler(app).ServeHTTP(w, r); w.Code != want {
			t.Errorf("%d, want %d", w.Code, want)
		}
	}
}

// TestRepeatedFieldsArrive: fasthttp's own conversion keeps the last line only, so that a client could hide what
// a proxy has written.
func TestRepeatedFieldsArrive(t *testing.T) {
	var got []string
	app := fiber.New()
	rule := fibermw.Rule{Guard: limit.NewFixedWindow(core.NewMemory(), "site", limit.PerHour(9)),
		Who: func(r *keyfuncs.Request) (string, error) {
			got = append(r.Header.Values("X-Forwarded-For"), r.Host, r.Method, r.URL.Path, r.URL.RawQuery)
			return "x", nil
		}}
	app.Get("/*", fibermw.Fiber(rule), func(c fiber.Ctx) error { return nil })
	conn := serve(t, app)
	_, _ = io.WriteString(conn, "GET /%zz?a=b HTTP/1.1\r\nHost: test\r\nX-Forwarded-For: 203.0.113.1\r\n"+
		"X-Forwarded-For: 203.0.113.2\r\n\r\n")
	hear(t, bufio.NewReader(conn))
	if want := []string{"203.0.113.1", "203.0.113.2", "test", "GET", "/%zz", "a=b"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestPreflightsPass: a CORS preflight of a browser is not counted, and is told nothing of other requests.
func TestPreflightsPass(t *testing.T) {
	gate := core.NewMemory()
	app := fiber.New()
	app.Use(fibermw.PerIP(gate, limit.PerHour(1)))
	app.All("/", func(c fiber.Ctx) error {
		c.Set("Access-Control-Allow-Origin", "https://app.example")
		return nil
	})
	conn := serve(t, app)
	from := bufio.NewReader(conn)
	const preflight = "OPTIONS / HTTP/1.1\r\nAccess-Control-Request-Method: GET\r\n"
	const get = "GET / HTTP/1.1\r\n"
	for _, c := range []struct {
		begins string
		status int
	}{{preflight, 200}, {preflight, 200}, {get, 200}, {get, 429}, {preflight, 200}} {
		_, _ = io.WriteString(conn, c.begins+"Host: test\r\nOrigin: https://app.example\r\n\r\n")
		answer, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		exposed := answer.Header.Get("Access-Control-Expose-Headers")
		if answer.StatusCode != c.status || c.begins == get && c.status == http.StatusOK &&
			!strings.Contains(exposed, "RateLimit") {
			t.Errorf("%s: %d %v, want %d", c.begins, answer.StatusCode, answer.Header, c.status)
		}
	}
}

// TestBodiesAreReadTwice: by a key function and by the handler, also where the application streams them.
func TestBodiesAreReadTwice(t *testing.T) {
	for _, streams := range []bool{false, true} {
		app := fiber.New(fiber.Config{StreamRequestBody: streams, BodyLimit: 100})
		rule := fibermw.Rule{Guard: limit.NewFixedWindow(core.NewMemory(), "site", limit.PerHour(9)),
			Who: keyfuncs.JSON(1000, "user")}
		app.Post("/", fibermw.Fiber(rule), func(c fiber.Ctx) error {
			d, _ := fibermw.Decision(c, "site")
			return c.SendString(d.Attempt.Actor + " " + string(c.Body()))
		})
		conn := serve(t, app)
		_, _ = fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"+
			"Content-Length: 14\r\n\r\n"+`{"user":"ann"}`)
		if status, got := hear(t, bufio.NewReader(conn)); got != `ann {"user":"ann"}` {
			t.Errorf("streams %t: %d %s", streams, status, got)
		}
	}
}

// TestAnUnreadBodyIsNoRequest: what nobody has read of a refused body is not taken for the next request of the
// connection. fasthttp does so, and behind a proxy that request would be another client's.
func TestAnUnreadBodyIsNoRequest(t *testing.T) {
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: test\r\n\r\n"
	long := strings.Repeat("x", 100) + smuggled
	for name, body := range map[string]string{
		"a length":   fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(long), long),
		"far beyond": fmt.Sprintf("Content-Length: %d\r\n\r\n%s", 1<<20, long),
		"chunks":     fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(long), long),
	} {
		t.Run(name, func(t *testing.T) {
			app := fiber.New(fiber.Config{StreamRequestBody: true, BodyLimit: 100})
			rule := fibermw.Rule{Guard: limit.NewFixedWindow(core.NewMemory(), "site", limit.PerHour(9)),
				Who: keyfuncs.JSON(1000, "user")}
			app.Post("/", fibermw.Fiber(rule), func(fiber.Ctx) error { return nil })
			app.Get("/smuggled", func(c fiber.Ctx) error { return c.SendString("smuggled") })
			app.Get("/next", func(c fiber.Ctx) error { return c.SendString("next") })
			conn := serve(t, app)
			_, _ = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n%s"+
				"GET /next HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n", body) // it may be closed already
			heard, _ := io.ReadAll(conn) // as far as it goes
			got := string(heard)
			if strings.Contains(got, "smuggled") || !strings.HasPrefix(got, "HTTP/1.1 413 ") && got != "" {
				t.Errorf("heard %q", got)
			}
			if keeps := strings.HasSuffix(got, "next"); keeps != (name == "a length") {
				t.Errorf("the connection is kept: %t", keeps)
			}
		})
	}
}

// TestFieldsOutlastAProxy: a handler that is a proxy replaces the whole response.
func TestFieldsOutlastAProxy(t *testing.T) {
	votes := votes.New(newGate(t), "poll", votes.Options{})
	app := fiber.New()
	site := fibermw.Rule{Who: keyfuncs.IP(),
		Guard: limit.NewFixedWindow(core.NewMemory(), "site", limit.PerHour(9))}
	app.Post("/polls/:poll/votes", fibermw.Fiber(site, inPoll(votes)), func(c fiber.Ctx) error {
		var upstream fasthttp.Response
		upstream.SetBodyString("of the upstream")
		upstream.CopyTo(c.Response())
		return nil
	})
	w := post(app, "/polls/final/votes?choice=red", "ann")
	if limits := w.Header().Values("RateLimit"); !slices.Equal(limits, []string{`"site";r=8;t=3600`}) ||
		w.Body.String() != "of the upstream" {
		t.Errorf("%q %s", limits, w.Body)
	}
}
