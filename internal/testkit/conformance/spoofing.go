package conformance

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/spoofing"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// spoofedAddresses runs the table of what clients and proxies say about the client. The handlers reply with
// the client that was counted.
func spoofedAddresses(s *scene) {
	apps := s.whoApps()
	for _, c := range spoofing.Cases() {
		status, body := wantWho(c)
		if w := send(apps[c.IP], signedIn(c.Request())); w.Code != status || w.Body.String() != body {
			s.Errorf("%s: %d %s, want %d %s", c.Name, w.Code, cutLong(w.Body.String()), status, body)
		}
	}
}

// spoofedAddressesOnTheWire sends the same table as bytes: what net/http and the framework make of header
// lines is part of it.
func spoofedAddressesOnTheWire(s *scene) {
	apps := s.whoApps()
	var current atomic.Pointer[spoofing.Case]
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := current.Load()
		r.RemoteAddr = c.Peer // it is always loopback, else
		apps[c.IP].ServeHTTP(w, r)
	}))
	srv.Config.MaxHeaderBytes = 4 << 20 // by default long cases would not get as far as the rules
	if lines := reflect.ValueOf(srv.Config).Elem().FieldByName("MaxHeaderValueCount"); lines.IsValid() {
		lines.SetInt(4 << 10) // Go 1.27 has it; by default it is 500
	}
	srv.Start()
	s.Cleanup(srv.Close)
	for _, c := range spoofing.Cases() {
		current.Store(&c)
		status, body := wantWho(c)
		lines := strings.Join(c.Lines, "\r\n")
		if strings.ContainsAny(strings.Join(c.Lines, ""), "\x00\r\n") {
			status, body = http.StatusBadRequest, "" // by net/http itself: no value of a header, or no name
		}
		got, text, err := exchangeBytes(srv.Listener.Addr().String(), lines)
		if err != nil || got != status || body != "" && text != body {
			s.Errorf("%s: %d %s, %v, want %d %s", c.Name, got, cutLong(text), err, status, body)
		}
	}
}

// exchangeBytes sends a request with these header lines over a new connection.
func exchangeBytes(addr, lines string) (status int, body string, err error) {
	conn, err := net.Dial("tcp", addr) //nolint:noctx // loopback, with a deadline
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return 0, "", err
	}
	if lines != "" {
		lines += "\r\n"
	}
	head := "POST /things/t1 HTTP/1.1\r\nHost: shop.example\r\n" + UserHeader +
		": ann\r\nContent-Length: 0\r\nConnection: close\r\n"
	if _, err := io.WriteString(conn, head+lines+"\r\n"); err != nil {
		return 0, "", err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), errors.Join(err, answer.Body.Close())
}

// whoApps makes an application for each way to find the client's address.
func (s *scene) whoApps() map[string]http.Handler {
	apps := map[string]http.Handler{}
	for name, who := range spoofing.Functions() {
		apps[name] = s.framework.Build(onThings(func(c Context) {
			d, _ := c.Decision("own")
			c.Reply(http.StatusOK, d.Attempt.Actor)
		}, pipeline.Rule{Guard: &stub{name: "own"}, Who: who}))
	}
	return apps
}

// wantWho is the expected answer of such an application.
func wantWho(c spoofing.Case) (status int, body string) {
	switch {
	case errors.Is(c.Err, keyfuncs.ErrMissing):
		return http.StatusBadRequest, noKey
	case c.Err != nil:
		return http.StatusBadRequest, malformed
	}
	return http.StatusOK, c.Want
}

func signedIn(r *http.Request) *http.Request {
	r.Header.Set(UserHeader, "ann")
	return r
}

func cutLong(s string) string { return s[:min(len(s), 200)] }

// rotatingHeadersChangeNothing plays a stranger who sends fifty forged addresses in each known header, and
// in all of them at once. With the default set-up the stranger gets in as often as one client may.
func rotatingHeadersChangeNothing(s *scene) {
	const tries, most = 50, 3
	formats := map[string]string{
		"X-Forwarded-For":     "203.0.113.%d",
		"Forwarded":           "for=203.0.113.%d",
		"X-Real-IP":           "203.0.113.%d",
		"CF-Connecting-IP":    "203.0.113.%d",
		"True-Client-IP":      "203.0.113.%d",
		"X-Client-IP":         "203.0.113.%d",
		"Fly-Client-IP":       "203.0.113.%d",
		"Fastly-Client-IP":    "203.0.113.%d",
		"X-Azure-ClientIP":    "203.0.113.%d",
		"X-Appengine-User-IP": "203.0.113.%d",
		"X-Cluster-Client-IP": "203.0.113.%d",
		"Client-IP":           "203.0.113.%d",
		"Via":                 "1.1 203.0.113.%d",
	}
	tests := map[string]map[string]string{"all of them": formats}
	for name, format := range formats {
		tests[name] = map[string]string{name: format}
	}
	rule := pipeline.Rule{Guard: limit.NewSlidingWindow(s.gate, "ip", limit.PerHour(most)), Who: keyfuncs.IP()}
	apps := map[string]http.Handler{
		"around the application": s.framework.Build(App{Use: [][]pipeline.Rule{{rule}},
			Routes: onThings(ok).Routes}),
		"on the route": s.framework.Build(onThings(ok, rule)),
	}
	client := 0
	for where, app := range apps {
		for test, headers := range tests {
			client++ // one of its own for each
			for _, peer := range []string{"[2001:db8:%x::1]:%d", "198.18.0.%d:%d"} {
				let := 0
				for i := range tries {
					r := request(http.MethodPost, thing)
					r.RemoteAddr = fmt.Sprintf(peer, client, 1024+i)
					for name, format := range headers {
						r.Header.Set(name, fmt.Sprintf(format, i))
					}
					switch w := send(app, r); w.Code {
					case http.StatusOK:
						let++
					case http.StatusTooManyRequests:
					default:
						s.Fatalf("%d %s", w.Code, w.Body)
					}
				}
				if let != most {
					s.Errorf("%s, %s: %d of %d requests got in, want %d", where, test, let, tries, most)
				}
			}
		}
	}
}
