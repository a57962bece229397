package keyfuncs_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/gatehouse-go/gatehouse/internal/testkit/spoofing"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// TestSpoofing: the claims about the sender in each request, and the client that counts. The adapters run
// the same table.
func TestSpoofing(t *testing.T) {
	functions := spoofing.Functions()
	cases := spoofing.Cases()
	if len(cases) < 60 {
		t.Fatalf("only %d cases", len(cases))
	}
	seen := map[string]bool{}
	for _, c := range cases {
		if seen[c.Name] {
			t.Errorf("two cases are called %q", c.Name)
		}
		seen[c.Name] = true
		t.Run(c.Name, func(t *testing.T) {
			got, err := functions[c.IP](&keyfuncs.Request{Request: c.Request()})
			check(t, got, err, c.Want, c.Err)
		})
	}
}

// TestSpoofedHeadersNeverMakeAnotherClient: whatever headers of the table a stranger sends, they count as if
// they sent none.
//
// Promise: A stranger's forwarding headers change nothing.
func TestSpoofedHeadersNeverMakeAnotherClient(t *testing.T) {
	for name, fn := range spoofing.Functions() {
		for _, c := range spoofing.Cases() {
			r := c.Request()
			r.RemoteAddr = "198.18.0.1:50000" // trusted by none
			if got, err := fn(&keyfuncs.Request{Request: r}); err != nil || got != "198.18.0.1" &&
				got != "198.18.0.0/24" {
				t.Errorf("%s, %s: %q, %v", name, c.Name, got, err)
			}
			r.RemoteAddr = "@"
			if got, err := fn(&keyfuncs.Request{Request: r}); name != "unix" && name != "unix, cdn" &&
				!errors.Is(err, keyfuncs.ErrMissing) {
				t.Errorf("%s, %s, on a Unix socket: %q, %v", name, c.Name, got, err)
			}
		}
	}
}

// TestHopsThatDropHeadersMakeNoClientOfTheProxy: a client may make the proxies on the way drop headers
// (RFC 9110, section 7.6.1), and net/http/httputil's proxy does. A header that the proxy writes itself is
// there all the same. A header that it only passes on, as a CDN's, or as X-Forwarded-For behind a proxy that
// writes it before it drops, is gone, and then no client is found, rather than the proxy.
func TestHopsThatDropHeadersMakeNoClientOfTheProxy(t *testing.T) {
	trust := keyfuncs.TrustProxies("127.0.0.1")
	list, cdn := keyfuncs.IP(trust), keyfuncs.IP(trust, keyfuncs.ReadHeader("CF-Connecting-IP"))
	type answer struct {
		list, cdn       string
		listErr, cdnErr error
	}
	answers := make(chan answer, 1)
	app := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var a answer
		a.list, a.listErr = list(&keyfuncs.Request{Request: r})
		a.cdn, a.cdnErr = cdn(&keyfuncs.Request{Request: r})
		answers <- a
	}))
	defer app.Close()
	target, err := url.Parse(app.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.SetXForwarded()
	}}
	for _, drop := range []string{"", "X-Forwarded-For, CF-Connecting-IP"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = "203.0.113.7:50000"
		r.Header.Set("X-Forwarded-For", "198.51.100.1")
		r.Header.Set("CF-Connecting-IP", "203.0.113.8") // by a CDN, let us say
		if drop != "" {
			r.Header.Set("Connection", drop)
		}
		w := httptest.NewRecorder()
		proxy.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		a := <-answers
		check(t, a.list, a.listErr, "203.0.113.7", nil)
		if drop == "" {
			check(t, a.cdn, a.cdnErr, "203.0.113.8", nil)
		} else {
			check(t, a.cdn, a.cdnErr, "", keyfuncs.ErrMalformed)
		}
	}
}
