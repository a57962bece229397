package transport_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/adapters/transport"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
)

// BenchmarkRoundTrip is what the transport adds to a request, and what the guard inside the process takes.
func BenchmarkRoundTrip(b *testing.B) {
	base := roundTrip(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Request: r, Header: http.Header{},
			Body: io.NopCloser(strings.NewReader(""))}, nil
	})
	g := limit.NewTokenBucket(core.NewMemory(), "partner", limit.PerSecond(10_000_000))
	for name, t := range map[string]http.RoundTripper{
		"base": base, "check": transport.New(base, rule(g, 0)), "wait": transport.New(base, rule(g, time.Minute)),
	} {
		b.Run(name, func(b *testing.B) {
			r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://partner.example", nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				resp, err := t.RoundTrip(r)
				if err != nil {
					b.Fatal(err)
				}
				_ = resp.Body.Close()
			}
		})
	}
	b.Run("guard", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if d, err := g.Check(b.Context(), account); err != nil || !d.Allowed {
				b.Fatal(d, err)
			}
		}
	})
}
