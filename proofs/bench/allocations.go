package bench

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"
)

// allocations writes how many objects and bytes a check allocates, and a request beside those of the same
// page without a limit. Unlike times these are the same on every machine.
func allocations(ctx context.Context, rdb *redis.Client, out *report) error {
	for _, g := range []group{inProcess(), onRedis(ctx, rdb)} {
		out.line("\n## %s", g.name)
		out.head("a check, allowed", "allocations", "bytes")
		for i, s := range g.subjects(2*countedRuns, time.Hour) {
			var failed error
			var keys [counts]string
			for count := range keys {
				keys[count] = fmt.Sprintf("allocates-%d-%d", i, count)
			}
			made := allocated(func(count int) {
				if err := s.call(ctx, keys[count], true); err != nil {
					failed = err
				}
			})
			if failed != nil {
				return failed
			}
			out.row(s.name, fmt.Sprint(made.objects), fmt.Sprint(made.bytes))
		}
	}

	out.line("\n## In front of a page\n\n" +
		"More than those of the same page without a limit; the writer keeps nothing.")
	out.head("limit", "allowed: allocations", "bytes", "refused: allocations", "bytes")
	all := sites(ctx, rdb)
	var floor objects
	for i := 0; i < len(all); i++ {
		s := all[i]
		made := s.allocates(ctx)
		if i == 0 || s.framework != all[i-1].framework {
			floor = made
			continue
		}
		cells := []string{s.framework + ", " + s.limit}
		for ; i < len(all) && all[i].framework == s.framework && all[i].limit == s.limit; i++ {
			made = all[i].allocates(ctx)
			cells = append(cells, fmt.Sprint(made.objects-floor.objects), fmt.Sprint(made.bytes-floor.bytes))
		}
		i--
		if len(cells) == 3 { // it refuses nothing
			cells = append(cells, "–", "–")
		}
		out.row(cells...)
	}
	return nil
}

// allocates counts what a request of the site allocates.
func (s site) allocates(ctx context.Context) objects {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	w := blank{}
	for range siteClients { // each of them has a budget now
		s.handler.ServeHTTP(w, r)
	}
	return allocated(func(int) {
		clear(w)
		s.handler.ServeHTTP(w, r)
	})
}

// objects are counted per run.
type objects struct{ objects, bytes int64 }

const (
	counts      = 4
	countedRuns = 50
)

// allocated counts what f allocates per run, after a first run. f is told in which count it is. The least of
// the counts is taken, since others in the process allocate now and then.
func allocated(f func(count int)) (least objects) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // else pools of all processors are filled meanwhile
	var before, after runtime.MemStats
	for count := range counts {
		f(count)
		runtime.ReadMemStats(&before)
		for range countedRuns {
			f(count)
		}
		runtime.ReadMemStats(&after)
		made := objects{int64(after.Mallocs-before.Mallocs) / countedRuns,
			int64(after.TotalAlloc-before.TotalAlloc) / countedRuns}
		if count == 0 || made.objects < least.objects || made.objects == least.objects && made.bytes < least.bytes {
			least = made
		}
	}
	return least
}

// blank is a writer that keeps nothing but the header.
type blank http.Header

func (b blank) Header() http.Header         { return http.Header(b) }
func (b blank) Write(p []byte) (int, error) { return len(p), nil }
func (b blank) WriteHeader(int)             {}
