package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

var (
	out    = flag.String("out", "", "run in full, and write the results to this folder, a file for each part")
	only   = flag.String("only", "", "run only the parts whose names match this regular expression")
	rounds = flag.Int("rounds", 20, "with -out: how often each subject has its turn under each load")
	turn   = flag.Duration("turn", 50*time.Millisecond, "with -out: how long a turn is")
	page   = flag.Duration("page", time.Second, "with -out: how long a turn of a page is, in whole seconds")
	seed   = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the order of turns")
)

// start starts a redis-server, and returns a client for all callers.
func start(t *testing.T) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{
		Addr:                  redistest.StartServer(t).Addr(),
		ContextTimeoutEnabled: true,
		PoolSize:              160, // a connection for each of 128 callers, and some
	})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// TestReport is the benchmark. Without -out it is short, and shows that what is reported can be measured.
func TestReport(t *testing.T) {
	c := config{units: 10, weighs: []int{10}, crowd: 20, rounds: 1, turn: 2 * time.Millisecond,
		attack: 100 * time.Millisecond, seed: *seed}
	if *out != "" {
		c = config{full: true, units: 100, weighs: []int{100, 1000, 10_000}, crowd: 20_000, rounds: *rounds,
			turn: *turn, page: *page, attack: 2 * time.Second, seed: *seed}
	}
	t.Logf("seed %d", c.seed)
	chosen, err := regexp.Compile("^(" + *only + ")")
	if err != nil {
		t.Fatalf("-only: %v", err)
	}
	rdb := start(t)
	for _, p := range partsOn(t.Context(), rdb) {
		if chosen.MatchString(p.name) && (c.full || p.needs == "") { // a short run has not what the others need
			t.Run(p.name, func(t *testing.T) { reportPart(t, rdb, p, c) })
		}
	}
}

// reportPart measures one part, and writes its file.
func reportPart(t *testing.T, rdb *redis.Client, p part, c config) {
	if p.needs != "" {
		if _, err := exec.LookPath(p.needs); err != nil {
			t.Skipf("%s is not installed, and counts what this part reports", p.needs)
		}
	}
	if err := rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	var text report
	if err := text.preface(t.Context(), rdb, c, p.name); err != nil {
		t.Fatal(err)
	}
	if err := p.measure(t, c, &text); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(text.String(), "\n| "); lines < 4 {
		t.Errorf("%d lines in tables:\n%s", lines, text.String())
	}
	for _, wrong := range []string{"NaN", "Inf"} {
		if strings.Contains(text.String(), wrong) {
			t.Errorf("%s in the report:\n%s", wrong, text.String())
		}
	}
	if c.full {
		fmt.Print(text.String())
		if err := os.WriteFile(filepath.Join(*out, p.name+".txt"), []byte(text.String()), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// TestSubjectsKeepTheirLimit: what is compared does what it says: a fresh key has its units, and no more. The
// window is so long that no unit comes back meanwhile.
func TestSubjectsKeepTheirLimit(t *testing.T) {
	for _, g := range groupsOn(t.Context(), start(t)) {
		for _, s := range g.subjects(5, time.Hour) {
			t.Run(g.name+"/"+s.name, func(t *testing.T) {
				for _, key := range []string{"a", "b"} {
					for call := 1; call <= max(s.max, 10)+1; call++ {
						allowed, err := s.allow(t.Context(), key)
						if want := s.max == 0 || call <= s.max; allowed != want || err != nil {
							t.Fatalf("key %s, call %d: %v, %v; want %v", key, call, allowed, err, want)
						}
					}
				}
			})
		}
	}
}

// TestSitesAnswer: the pages that are compared are the same, and refuse when they are meant to.
func TestSitesAnswer(t *testing.T) {
	for _, s := range sites(t.Context(), start(t)) {
		for ask := range 3 {
			w := httptest.NewRecorder()
			s.handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
			want := http.StatusOK
			if s.refused && ask > 0 {
				want = http.StatusTooManyRequests
			}
			page := hello
			if s.framework == lineSite {
				page = "in line"
			}
			if w.Code != want || w.Code == http.StatusOK && !strings.Contains(w.Body.String(), page) ||
				w.Header().Get("Set-Cookie") != "" {
				t.Errorf("%s, %s, refused %v, time %d: %d %s, want %d", s.framework, s.limit, s.refused, ask+1, w.Code,
					w.Body, want)
			}
		}
	}
}

func TestReadWrk(t *testing.T) {
	const head, rate = "  100 requests in 1.00s, 12.00KB read\n",
		"Requests/sec:   99.50\nTransfer/sec:   1.00KB\n"
	for _, tt := range []struct {
		out     string
		refused bool
		want    float64
	}{
		{head + rate, false, 99.5},
		{head + "  Non-2xx or 3xx responses: 99\n" + rate, true, 99.5},
		{head + "  Non-2xx or 3xx responses: 1\n" + rate, false, 0},
		{head + "  Non-2xx or 3xx responses: 50\n" + rate, true, 0},
		{head + rate, true, 0},
		{head + "  Socket errors: connect 0, read 3, write 0, timeout 0\n" + rate, false, 0},
		{"unable to connect\n", false, 0},
	} {
		if got, _, err := readWrk(tt.out, tt.refused); got != tt.want || (err == nil) != (tt.want > 0) {
			t.Errorf("%q, refused %v: %v, %v; want %v", tt.out, tt.refused, got, err, tt.want)
		}
	}
}

func TestReadCounts(t *testing.T) {
	if got, err := readCounts([]byte("events: Ir\nsummary: 21\n\ntotals: 22307\n")); got != 22307 || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := readCounts([]byte("summary: 21\n")); err == nil {
		t.Errorf("%v without totals", got)
	}
}

// TestAllocationsAreCounted: what the report says of checks and requests is exact.
func TestAllocationsAreCounted(t *testing.T) {
	var sink []*[64]byte
	got := allocated(func(int) {
		sink = sink[:0]
		for range 3 {
			sink = append(sink, new([64]byte))
		}
	})
	if want := (objects{3, 192}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestOverheadsAreRatiosToTheSameFramework(t *testing.T) {
	all := []site{
		{framework: "a", limit: "no limit"}, {framework: "a", limit: "x"},
		{framework: "a", limit: "x", refused: true}, {framework: "a", limit: "a call"},
		{framework: "b", limit: "no limit"}, {framework: "b", limit: "y"},
		{framework: "b", limit: "y", refused: true},
	}
	var text report
	of := func(rate, floor float64) paces {
		return paces{own: []pace{{rate, 1 / rate}}, floor: []pace{{floor, 1 / floor}}}
	}
	text.overheads(all, []paces{of(100, 100), of(50, 100), of(80, 100), of(40, 100),
		of(10, 10), of(5, 10), of(20, 10)})
	for _, want := range []string{
		"| a, x | 50 | 0.50× | 0.0 | 2.00× | 80 | 0.80× | 0.0 | 1.25× |",
		"| a, a call | 40 | 0.40× | 0.0 | 2.50× | – | – | – | – |",
		"| b, no limit | 10 | 1.00× | 0.1 | 1.00× | – | – | – | – |",
		"| b, y | 5 | 0.50× | 0.2 | 2.00× | 20 | 2.00× | 0.1 | 0.50× |",
	} {
		if !strings.Contains(text.String(), want+"\n") {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}

func TestAnErrorEndsTheRun(t *testing.T) {
	away := errors.New("away")
	r := runner{subject: subject{name: "broken", max: 1,
		allow: func(context.Context, string) (bool, error) { return false, away }}}
	r.start(allLoads, 10)
	for _, l := range allLoads {
		if err := r.turn(t.Context(), l, time.Hour, nil); !errors.Is(err, away) {
			t.Errorf("%v: %v; want %v", l, err, away)
		}
	}
}

func TestKeysAreChangedBeforeTheyAreUsedUp(t *testing.T) {
	var made atomic.Int64
	used := map[string]int{}
	for range 2 { // callers
		k := keySource{made: &made, keys: make([]string, 8), uses: 3}
		for range 10 * 3 * 8 {
			used[k.next()]++
		}
	}
	if len(used) != 2*10*8 {
		t.Errorf("%d keys, want %d", len(used), 2*10*8)
	}
	for key, n := range used {
		if n != 3 {
			t.Errorf("key %s was used %d times, want 3", key, n)
		}
	}
}

func TestRatioIsOfTheSameRound(t *testing.T) {
	if got := ratio([]float64{20, 400, 30}, []float64{10, 100, 10}); got != 3 {
		t.Errorf("ratio = %v; want 3", got)
	}
	if got := quantile([]int(nil), 0.99); got != 0 {
		t.Errorf("quantile of nothing = %d", got)
	}
}
