package bench_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"golang.org/x/oauth2"

	"github.com/gatehouse-go/gatehouse/adapters/transport"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// TestInsideOtherTransports: the transport for partners works inside those of OpenTelemetry and OAuth 2.0, and
// around them. It gives back what was not sent.
func TestInsideOtherTransports(t *testing.T) {
	partner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("Authorization"))
	}))
	defer partner.Close()
	token := oauth2.StaticTokenSource(&oauth2.Token{AccessToken: "secret", Expiry: time.Now().Add(time.Hour)})
	for name, around := range map[string]func(transport.Rule) http.RoundTripper{
		"inside": func(r transport.Rule) http.RoundTripper {
			return &oauth2.Transport{Source: token, Base: otelhttp.NewTransport(transport.New(nil, r))}
		},
		"around": func(r transport.Rule) http.RoundTripper {
			return transport.New(otelhttp.NewTransport(&oauth2.Transport{Source: token}), r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := limit.NewSlidingWindow(core.NewMemory(), "partner", limit.PerHour(2))
			client := &http.Client{Transport: around(transport.Rule{Guard: g, Who: keyfuncs.Const("account")})}
			left := func(want int64) {
				t.Helper()
				if d, err := g.Peek(t.Context(), core.Attempt{Actor: "account"}); err != nil || d.Remaining != want {
					t.Errorf("%d left, %v: want %d", d.Remaining, err, want)
				}
			}
			if resp, err := client.Get("http://127.0.0.1:1/"); err == nil { // nobody listens
				_ = resp.Body.Close()
				t.Error("somebody answers")
			}
			left(2)
			for range 2 {
				resp, err := client.Get(partner.URL)
				if err != nil {
					t.Fatal(err)
				}
				text, err := io.ReadAll(resp.Body)
				if err != nil || string(text) != "Bearer secret" || resp.Body.Close() != nil {
					t.Errorf("%q, %v", text, err)
				}
			}
			left(0)
			if resp, err := client.Get(partner.URL); err == nil {
				_ = resp.Body.Close()
				t.Error("the third request was sent")
			}
		})
	}
}
