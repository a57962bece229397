package pipeline_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/waitingroom"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// BenchmarkHTTP measures what the middleware itself costs a request: the guard decides inside the process.
func BenchmarkHTTP(b *testing.B) {
	handler := http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	for _, c := range []struct {
		name   string
		limits []limit.Limit
	}{
		{"allowed", []limit.Limit{limit.PerSecond(1 << 30)}},
		{"allowed by three limits", []limit.Limit{limit.PerSecond(1 << 30), limit.PerMinute(1 << 30),
			limit.PerDay(1 << 30)}},
		{"refused", []limit.Limit{limit.PerDay(1)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			guard := limit.NewFixedWindow(core.NewMemory(), "site", c.limits[0], c.limits[1:]...)
			app := nethttpmw.HTTP(pipeline.Rule{Guard: guard, Who: keyfuncs.IP()})(handler)
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			w := &blank{header: http.Header{}}
			app.ServeHTTP(w, r)
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				app.ServeHTTP(w, r)
			}
		})
	}
}

// blank is a writer that keeps nothing but the header.
type blank struct{ header http.Header }

func (w *blank) Header() http.Header         { return w.header }
func (w *blank) Write(b []byte) (int, error) { return len(b), nil }
func (w *blank) WriteHeader(int)             {}

// BenchmarkLine measures what a visitor costs who waits and asks with their ticket, or is inside.
func BenchmarkLine(b *testing.B) {
	backend := redistest.Mini(b)
	gate := core.New(backend.Client, core.WithPrefix(backend.Prefix), core.WithDeadline(time.Minute))
	room := waitingroom.New(gate, "shop", waitingroom.Options{Capacity: 1, Pass: time.Hour, Idle: time.Hour,
		Secrets: [][]byte{make([]byte, 16)}})
	app := nethttpmw.HTTP(pipeline.Rule{Guard: room, Who: keyfuncs.Visitor()})(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	ticket := func() string {
		w := httptest.NewRecorder()
		app.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/", nil))
		return strings.SplitN(w.Header().Get("Set-Cookie"), ";", 2)[0]
	}
	pass, waits := ticket(), ticket()
	for _, c := range []struct{ name, ticket, accept string }{
		{"waits, program", waits, "application/json"},
		{"waits, page", waits, "text/html"},
		{"is inside", pass, "text/html"},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, "http://localhost/", nil)
			r.Header.Set("Cookie", c.ticket)
			r.Header.Set("Accept", c.accept)
			w := &blank{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				app.ServeHTTP(w, r)
			}
		})
	}
}
