package pipeline_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// counting is a client that counts what is sent through it.
type counting struct {
	script.Client
	sent atomic.Int64
}

func (c *counting) Process(ctx context.Context, cmd redis.Cmder) error {
	c.sent.Add(1)
	return c.Client.Process(ctx, cmd)
}

// TestAFloodOfRefusalsIsCheap: 10,000 requests of one client cost the calls up to the ban, and then one
// look-up per second.
func TestAFloodOfRefusalsIsCheap(t *testing.T) {
	const requests, rate, refusals = 10_000, 5, 10
	b := redistest.Mini(t)
	client := &counting{Client: b.Client}
	gate := core.New(client, core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute))
	app := nethttpmw.HTTP(pipeline.Rule{
		Guard: limit.NewSlidingWindow(gate, "site", limit.PerHour(rate)),
		Who:   keyfuncs.IP(),
		Bans:  bans.New(gate, "bans", bans.Options{Refusals: refusals, Period: time.Hour, First: time.Hour}),
	})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	if err := gate.Preload(t.Context()); err != nil {
		t.Fatal(err)
	}
	client.sent.Store(0)

	begun := time.Now()
	answers := map[int]int{}
	for range requests {
		w := httptest.NewRecorder()
		app.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		answers[w.Code]++
	}
	seconds := int64(time.Since(begun)/time.Second) + 1
	if answers[http.StatusOK] != rate || answers[http.StatusTooManyRequests] != requests-rate {
		t.Errorf("answers %v", answers)
	}
	// A check of the limit until it refuses, a strike for each refusal, a look at first; and in each second
	// another look at most, or another check.
	const least = rate + 1 + (refusals + 1) + 1
	if sent, most := client.sent.Load(), least+seconds; sent > most || sent < least {
		t.Errorf("%d requests in %d s cost %d calls, want at most %d", requests, seconds, sent, most)
	}
	t.Logf("%d requests cost %d calls", requests, client.sent.Load())
}
