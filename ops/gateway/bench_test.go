package gateway_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/ops/config"
	"github.com/gatehouse-go/gatehouse/ops/gateway"
)

// BenchmarkCheck is a question of nginx, allowed and refused, without the connection.
func BenchmarkCheck(b *testing.B) {
	for name, limits := range map[string]string{"allowed": "10000/s", "refused": "1/week"} {
		b.Run(name, func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "rules.yaml")
			file := "guards:\n  site: {fixed_window: {limits: " + limits + "}}\n" +
				"rules:\n  site: [{guard: site, who: {header: X-Api-Key}}]\nroutes: {/: site}\n...\n"
			if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
				b.Fatal(err)
			}
			live, err := config.Watch(b.Context(), core.NewMemory(), path, config.ForGateway())
			if err != nil {
				b.Fatal(err)
			}
			h := gateway.Handler(live, gateway.Options{From: gateway.Nginx})
			p := proxy{from: gateway.Nginx, handler: h}
			r := p.asks(http.MethodGet, "/items/7?page=2", "X-Api-Key", "ann")
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(&discard{header: http.Header{}}, r)
			}
		})
	}
}

// discard is a response that nobody reads.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}
