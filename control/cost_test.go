package control

import (
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// BenchmarkABoundLimit is what it costs a check inside the process that operators may decide about its limits.
func BenchmarkABoundLimit(b *testing.B) {
	desk := New(b.Context(), core.New(redistest.Single(b).Client, core.WithPrefix(redistest.Single(b).Prefix)), "desk")
	for _, name := range []string{"free", "bound"} {
		g := limit.NewFixedWindow(core.NewMemory(), name, limit.PerHour(1_000_000))
		if name == "bound" {
			desk.Limits(g)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := g.Check(b.Context(), core.Attempt{Actor: "ann"}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
