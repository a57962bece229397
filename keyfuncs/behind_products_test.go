package keyfuncs_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// TestBehindProducts: the options that docs/guides/client-identity.md gives for a product find the client in
// the fields that the product sends by its documentation, and no forger changes whom they count as. The
// client is 203.0.113.7, what is forged is 198.51.100.66.
func TestBehindProducts(t *testing.T) {
	const client = "203.0.113.7"
	for _, c := range []struct {
		product, what, peer string
		fields              []string
		want                string
		err                 error
	}{
		{"nginx", "a client", "127.0.0.1:40000", []string{"X-Forwarded-For: 203.0.113.7"}, client, nil},
		{"nginx", "a forger", "127.0.0.1:40000",
			[]string{"X-Forwarded-For: 198.51.100.66, 127.0.0.1, 203.0.113.7"}, client, nil},
		{"nginx", "a forger of other fields", "127.0.0.1:40000", []string{"X-Forwarded-For: 203.0.113.7",
			"Forwarded: for=198.51.100.66", "X-Real-IP: 198.51.100.66", "CF-Connecting-IP: 198.51.100.66"}, client, nil},
		{"nginx", "past nginx", "203.0.113.7:50000", []string{"X-Forwarded-For: 198.51.100.66"}, client, nil},
		{"nginx", "nginx sends no field", "127.0.0.1:40000", nil, "", keyfuncs.ErrMalformed},
		{"nginx, Unix socket", "a client", "@", []string{"X-Forwarded-For: 198.51.100.66, 203.0.113.7"}, client, nil},

		{"Caddy", "a client", "127.0.0.1:40000", []string{"X-Forwarded-For: 203.0.113.7"}, client, nil},
		{"Caddy", "past Caddy", "203.0.113.7:50000", []string{"X-Forwarded-For: 198.51.100.66"}, client, nil},

		{"Cloudflare", "a client", "172.68.10.1:40000",
			[]string{"CF-Connecting-IP: 203.0.113.7", "X-Forwarded-For: 203.0.113.7"}, client, nil},
		{"Cloudflare", "a forger", "172.68.10.1:40000",
			[]string{"CF-Connecting-IP: 203.0.113.7", "X-Forwarded-For: 198.51.100.66,203.0.113.7"}, client, nil},
		{"Cloudflare", "past Cloudflare", "203.0.113.7:50000", []string{"CF-Connecting-IP: 198.51.100.66"}, client, nil},
		{"Cloudflare, nginx", "a client", "127.0.0.1:40000",
			[]string{"X-Forwarded-For: 203.0.113.7, 172.68.10.1"}, client, nil},
		{"Cloudflare, nginx", "a forger", "127.0.0.1:40000",
			[]string{"X-Forwarded-For: 198.51.100.66,203.0.113.7, 172.68.10.1"}, client, nil},
		{"Cloudflare, nginx", "past Cloudflare", "127.0.0.1:40000",
			[]string{"X-Forwarded-For: 198.51.100.66, 203.0.113.7", "CF-Connecting-IP: 198.51.100.66"}, client, nil},

		{"ALB", "a client", "10.0.3.4:40000", []string{"X-Forwarded-For: 203.0.113.7"}, client, nil},
		{"ALB", "a forger", "10.0.3.4:40000", []string{"X-Forwarded-For: 198.51.100.66, 203.0.113.7"}, client, nil},
		{"ALB", "with the client's port", "10.0.3.4:40000", []string{"X-Forwarded-For: 203.0.113.7:50000"}, client, nil},
		{"CloudFront, ALB", "a client", "10.0.3.4:40000",
			[]string{"X-Forwarded-For: 203.0.113.7, 130.176.96.72"}, client, nil},
		{"CloudFront, ALB", "a forger", "10.0.3.4:40000",
			[]string{"X-Forwarded-For: 198.51.100.66, 203.0.113.7, 130.176.96.72"}, client, nil},
		{"CloudFront, ALB", "past CloudFront", "10.0.3.4:40000",
			[]string{"X-Forwarded-For: 198.51.100.66, 130.176.96.72, 203.0.113.7"}, client, nil},

		{"Google", "a client", "35.191.5.6:40000", []string{"X-Forwarded-For: 203.0.113.7,192.0.2.10"}, client, nil},
		{"Google", "a forger", "35.191.5.6:40000",
			[]string{"X-Forwarded-For: 198.51.100.66,203.0.113.7,192.0.2.10"}, client, nil},
	} {
		t.Run(c.product+"/"+c.what, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.RemoteAddr = c.peer
			for _, field := range c.fields {
				name, value, _ := strings.Cut(field, ": ")
				r.Header.Add(name, value)
			}
			who, known := behind()[c.product]
			if !known {
				t.Fatal("the page has no such product")
			}
			got, err := who(&keyfuncs.Request{Request: r})
			if got != c.want || !errors.Is(err, c.err) {
				t.Errorf("%q, %v: want %q, %v", got, err, c.want, c.err)
			}
		})
	}
}
