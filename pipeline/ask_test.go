package pipeline_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/idempotency"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// TestAFloodBehindTwoRulesStaysOutOfRedis: each request that the second rule refused took and gave back the
// first rule's unit. 10,000 requests, 9,995 of them refused, made 20,005 calls and 9,997 marks of refunds.
func TestAFloodBehindTwoRulesStaysOutOfRedis(t *testing.T) {
	const requests = 2_000
	ann := keyfuncs.Const("ann")
	poll := votes.Options{}
	for name, second := range map[string]func(e *core.Engine) pipeline.Rule{
		"a limit": func(e *core.Engine) pipeline.Rule {
			return pipeline.Rule{Guard: limit.NewSlidingWindow(e, "second", limit.PerHour(5)), Who: ann}
		},
		"a limit of a tier": func(e *core.Engine) pipeline.Rule {
			by := func(context.Context, core.Attempt) ([]limit.Limit, error) {
				return []limit.Limit{limit.PerHour(5)}, nil
			}
			return pipeline.Rule{Guard: limit.NewTokenBucketBy(e, "second", by), Who: ann}
		},
		"a cost over the limit": func(e *core.Engine) pipeline.Rule {
			return pipeline.Rule{Guard: limit.NewFixedWindow(e, "second", limit.PerHour(5)), Who: ann,
				Cost: func(*keyfuncs.Request) (int64, error) { return 6, nil }}
		},
		"bans": func(e *core.Engine) pipeline.Rule {
			banned := bans.New(e, "bans", bans.Options{})
			if err := banned.Ban(t.Context(), core.Attempt{Actor: "ann"}, time.Hour); err != nil {
				t.Fatal(err)
			}
			return pipeline.Rule{Guard: limit.NewFixedWindow(e, "second", limit.PerHour(9)), Who: ann, Bans: banned}
		},
		"a vote": func(e *core.Engine) pipeline.Rule {
			return pipeline.Rule{Guard: votes.New(e, "second", poll), Who: ann, What: keyfuncs.Const("p"),
				Which: keyfuncs.Const("red")}
		},
		"a sale": func(e *core.Engine) pipeline.Rule {
			g := seckill.New(e, "second", seckill.Options{})
			if _, err := g.Open(t.Context(), "tv", seckill.Sale{Stock: 1}); err != nil {
				t.Fatal(err)
			}
			return pipeline.Rule{Guard: g, Who: ann, What: keyfuncs.Const("tv")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				client := &guardtest.Counting{Client: b.Client}
				e := guardtest.NewEngineOver(b, client, guardtest.WithClock(guardtest.NewClock()))
				first := limit.NewFixedWindow(e, "first", limit.PerDay(1000))
				app := nethttpmw.HTTP(pipeline.Rule{Guard: first, Who: ann}, second(e))(http.HandlerFunc(
					func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
				client.Sent.Store(0)
				passed := int64(0)
				for range requests {
					w := httptest.NewRecorder()
					app.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
					if w.Code == http.StatusCreated {
						passed++
					}
				}
				sent := client.Sent.Load()
				t.Logf("%d requests, %d let through, %d calls", requests, passed, sent)
				if passed > 5 || sent > 3*passed+15 {
					t.Errorf("%d of %d requests were let through, with %d calls", passed, requests, sent)
				}
				d, err := first.Peek(t.Context(), core.Attempt{Actor: "ann"})
				if err != nil || 1000-d.Remaining != passed {
					t.Errorf("the first limit has counted %d requests of %d: %v", 1000-d.Remaining, passed, err)
				}
			})
		})
	}
}

// TestAStoredAnswerGoesBeforeARememberedRefusal: a rule that keeps outcomes is asked before the process looks
// at what it remembers of the rules behind.
func TestAStoredAnswerGoesBeforeARememberedRefusal(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		e := guardtest.NewEngine(b)
		ann := keyfuncs.Const("ann")
		app := nethttpmw.HTTP(
			pipeline.Rule{Guard: idempotency.New(e, "operations", idempotency.Options{}), Who: ann,
				ID: keyfuncs.IdempotencyKey()},
			pipeline.Rule{Guard: limit.NewSlidingWindow(e, "first", limit.PerHour(9)), Who: ann},
			pipeline.Rule{Guard: limit.NewSlidingWindow(e, "second", limit.PerHour(1)), Who: ann},
		)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
		for i, want := range []struct {
			key    string
			status int
		}{{`"a"`, 201}, {`"b"`, 429}, {`"b"`, 429}, {`"a"`, 201}} {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Header.Set("Idempotency-Key", want.key)
			w := httptest.NewRecorder()
			app.ServeHTTP(w, r)
			if w.Code != want.status {
				t.Errorf("request %d, %s: %d, want %d", i+1, want.key, w.Code, want.status)
			}
		}
	})
}

// TestKeyFunctionsAreCalledOnce although a rule may be asked twice what it says.
func TestKeyFunctionsAreCalledOnce(t *testing.T) {
	e := core.NewMemory()
	calls := 0
	who := func(*keyfuncs.Request) (string, error) {
		calls++
		return "ann", nil
	}
	app := nethttpmw.HTTP(
		pipeline.Rule{Guard: limit.NewSlidingWindow(e, "first", limit.PerHour(9)), Who: keyfuncs.Const("ann")},
		pipeline.Rule{Guard: limit.NewSlidingWindow(e, "second", limit.PerHour(9)), Who: who},
	)(http.NotFoundHandler())
	app.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))
	if calls != 1 {
		t.Errorf("Who was called %d times", calls)
	}
}
