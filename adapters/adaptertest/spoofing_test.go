package adaptertest

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
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/spoofing"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

func TestSpoofedAddressesOnTheWire(t *testing.T) { onMini(t, spoofedAddressesOnTheWire) }

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
	conn, err := net.Dial("tcp", addr)
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

func TestForwardingHeadersOfStrangersChangeNothing(t *testing.T) {
	onRedis(t, rotatingHeadersChangeNothing)
}

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
