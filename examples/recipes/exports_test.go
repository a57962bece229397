package recipes

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/pipeline/deferred"
)

var secret = make([]byte, 32)

// byName is a login that believes X-User.
func byName(r *http.Request) string { return r.Header.Get("X-User") }

// TestAllExportsAreMadeTenAtATime: a crowd asks at once, and each of its exports is made, once.
func TestAllExportsAreMadeTenAtATime(t *testing.T) {
	n := 60
	if redistest.Soak() {
		n = 1000
	}
	b := redistest.Single(t)
	var running, most atomic.Int64
	made := make([]atomic.Int64, n)
	export := func(w http.ResponseWriter, r *http.Request) {
		now := running.Add(1)
		defer running.Add(-1)
		for before := most.Load(); now > before && !most.CompareAndSwap(before, now); before = most.Load() {
		}
		i, err := strconv.Atoi(r.FormValue("export"))
		if err != nil {
			t.Error(err)
			return
		}
		made[i].Add(1)
		<-time.After(5 * time.Millisecond) // an export takes a while
		w.WriteHeader(http.StatusCreated)
	}
	app, requests := Exports(guardtest.NewEngine(b), int64(n), secret, byName, http.HandlerFunc(export))
	ctx, stop := context.WithCancel(t.Context())
	worked := make(chan error, 1)
	go func() { worked <- requests.Work(ctx, app, delay.WorkOptions{Concurrency: atATime}) }()
	defer func() {
		stop()
		if err := <-worked; err != nil {
			t.Errorf("work: %v", err)
		}
	}()

	send := func(method, path string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, nil)
		r.Header.Set("X-User", "ann")
		w := httptest.NewRecorder()
		app.ServeHTTP(w, r)
		return w
	}
	locations := make([]string, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			switch w := send(http.MethodPost, "/exports?export="+strconv.Itoa(i)); w.Code {
			case http.StatusCreated:
			case http.StatusAccepted:
				locations[i] = w.Header().Get("Location")
			default:
				t.Errorf("export %d: %d %s", i, w.Code, w.Body)
			}
		})
	}
	all.Wait()
	stored := 0
	for i, location := range locations {
		if location == "" {
			continue
		}
		stored++
		redistest.Eventually(t, time.Minute, func() bool {
			w := send(http.MethodGet, location)
			return w.Header().Get(deferred.StateHeader) == string(deferred.StateDone) && w.Code == http.StatusCreated
		}, "export "+strconv.Itoa(i)+" is made")
	}
	for i := range made {
		if times := made[i].Load(); times != 1 {
			t.Errorf("export %d was made %d times", i, times)
		}
	}
	if most.Load() > atATime || stored == 0 {
		t.Errorf("%d at a time, and %d of %d were deferred", most.Load(), stored, n)
	}
	t.Logf("%d exports, %d of them deferred, %d at a time", n, stored, most.Load())
}

func TestNobodyExportsWithoutALogin(t *testing.T) {
	app, _ := Exports(guardtest.NewEngine(redistest.Mini(t)), 1, secret, byName, http.NotFoundHandler())
	wantStatus(t, post(t, app, "/exports", ""), http.StatusUnauthorized, "nobody")
}
