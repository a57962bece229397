package keyfuncs_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// TestADroppedForwardingHeaderMakesNoProxyTheClient: behind a proxy that appends to X-Forwarded-For and then
// drops what Connection names, a client was taken for the proxy, and an allow list with the proxies' network
// let it pass.
//
// Promise: A trusted proxy that names no client is not the client, unless `ProxyMayBeClient` says so.
func TestADroppedForwardingHeaderMakesNoProxyTheClient(t *testing.T) {
	trust := keyfuncs.TrustProxies("127.0.0.0/8")
	who, lenient := keyfuncs.IP(trust), keyfuncs.IP(trust, keyfuncs.ProxyMayBeClient())
	inside := keyfuncs.NewList(who, "127.0.0.0/8")
	type found struct {
		text, own  string
		err, inErr error
		in         bool
	}
	answers := make(chan found, 1)
	app := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var f found
		f.text, f.err = who(&keyfuncs.Request{Request: r})
		f.own, _ = lenient(&keyfuncs.Request{Request: r})
		f.in, f.inErr = inside.Contains(&keyfuncs.Request{Request: r})
		answers <- f
	}))
	defer app.Close()
	// to is a proxy. The first one drops by what the client has said after it has appended; net/http/httputil's
	// Director runs before the hop-by-hop fields are removed, and nil keeps it from appending by itself.
	to := func(target string, appends bool) http.Handler {
		u, err := url.Parse(target)
		if err != nil {
			t.Fatal(err)
		}
		if appends {
			return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
				r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
				r.SetURL(u)
				r.SetXForwarded()
			}}
		}
		return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(u)
			if r.In.Header.Get("Connection") == "" {
				r.Out.Header.Set("X-Forwarded-For", "203.0.113.7")
			}
		}}
	}
	second := httptest.NewServer(to(app.URL, true))
	defer second.Close()
	for name, first := range map[string]http.Handler{
		"one proxy": to(app.URL, false), "two proxies": to(second.URL, false),
	} {
		for _, drop := range []string{"", "X-Forwarded-For"} {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			if drop != "" {
				r.Header.Set("Connection", drop)
			}
			w := httptest.NewRecorder()
			first.ServeHTTP(w, r)
			if w.Code != http.StatusOK {
				t.Fatalf("%s: %d %s", name, w.Code, w.Body)
			}
			f := <-answers
			if drop == "" {
				check(t, f.text, f.err, "203.0.113.7", nil)
				continue
			}
			check(t, f.text, f.err, "", keyfuncs.ErrMalformed)
			check(t, "", f.inErr, "", keyfuncs.ErrMalformed)
			if f.in || f.own != "127.0.0.1" {
				t.Errorf("%s: on the list: %t; where a proxy may be the client, it is %q", name, f.in, f.own)
			}
		}
	}
}
