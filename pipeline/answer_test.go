package pipeline_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/budget"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/lock"
	"github.com/gatehouse-go/gatehouse/core/waitingroom"
	"github.com/gatehouse-go/gatehouse/internal/testkit/everyguard"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// Promise: Every reason has one status, in all adapters and [the table](guides/answers.md#reasons).
// Exception: `busy` is 429, of a lock 409.
func TestEveryReasonHasItsStatus(t *testing.T) {
	want := map[core.Reason]int{
		core.ReasonLimited:          http.StatusTooManyRequests,
		core.ReasonOverLimit:        http.StatusTooManyRequests,
		core.ReasonBanned:           http.StatusTooManyRequests,
		core.ReasonBusy:             http.StatusTooManyRequests,
		core.ReasonQuota:            http.StatusTooManyRequests,
		core.ReasonEarly:            http.StatusTooManyRequests,
		waitingroom.ReasonWaiting:   http.StatusTooManyRequests,
		waitingroom.ReasonElsewhere: http.StatusTooManyRequests,
		budget.ReasonPaused:         http.StatusTooManyRequests,
		budget.ReasonUnknown:        http.StatusForbidden,
		core.ReasonDuplicate:        http.StatusConflict,
		core.ReasonNotOpen:          http.StatusConflict,
		core.ReasonClosed:           http.StatusConflict,
		core.ReasonSoldOut:          http.StatusConflict,
		core.ReasonEmpty:            http.StatusConflict,
		core.ReasonGone:             http.StatusConflict,
		core.ReasonInProgress:       http.StatusConflict,
		core.ReasonDone:             http.StatusConflict, // where the answer was not kept
		core.ReasonReplayed:         http.StatusOK,
		core.ReasonConflict:         http.StatusUnprocessableEntity,
		core.ReasonNotReady:         http.StatusServiceUnavailable,
		core.ReasonUnconfirmed:      http.StatusServiceUnavailable,
		answers.ReasonDenied:        http.StatusForbidden,
		answers.ReasonPreflight:     http.StatusForbidden,
		core.ReasonDayRolled:        http.StatusServiceUnavailable,
		answers.ReasonUnavailable:   http.StatusServiceUnavailable,
		answers.ReasonNoKey:         http.StatusBadRequest,
		answers.ReasonMalformed:     http.StatusBadRequest,
		answers.ReasonInvalid:       http.StatusBadRequest,
		answers.ReasonTooLarge:      http.StatusRequestEntityTooLarge,
	}
	missing := maps.Clone(want)
	for _, g := range everyguard.Kinds() {
		for _, a := range ruleOf(g).Answers() {
			status := want[a.Reason]
			if _, locks := g.(*lock.Guard); locks && a.Reason == core.ReasonBusy {
				status = http.StatusConflict // with another holder, not too many requests
			}
			if status != a.Status {
				t.Errorf("%s: %q is answered with %d, want %d", g.Name(), a.Reason, a.Status, status)
			}
			if a.Title == "" || a.Detail == "" || a.Type == "" {
				t.Errorf("%s: %q lacks a text: %+v", g.Name(), a.Reason, a)
			}
			delete(missing, a.Reason)
		}
	}
	if len(missing) > 0 {
		t.Errorf("no guard describes %v", missing)
	}
}

// describing is an application's own guard that describes itself, and refuses.
type describing struct {
	fake
	reason core.Reason
}

func (g *describing) Check(_ context.Context, a core.Attempt) (core.Decision, error) {
	d := core.Decision{Attempt: a, Reason: g.reason}
	d.SetClaim(twoDetails{})
	return d, nil
}

func (g *describing) Describe() kit.Description {
	return kit.Description{Kind: "own", Answers: []kit.Answer{
		{Reason: "asleep", Status: http.StatusLocked, Title: "Asleep", Detail: "Come back in the morning.",
			Type: "https://example.com/asleep"},
		{Reason: "bare", Status: http.StatusGone},
		{Reason: "barest"},
		{Reason: core.ReasonClosed, Status: http.StatusGone, Detail: "For good."},
		{Reason: "expected", Status: http.StatusConflict, Expected: true},
	}}
}

// twoDetails is a claim with a detail for clients, and others that cannot be shown.
type twoDetails struct{}

func (twoDetails) Details() []kit.Detail {
	return []kit.Detail{
		{Name: "status", Value: 200}, {Name: "bed", Value: "upper <berth>"}, {Name: "bed", Value: "lower"},
		{Name: "unknown", Value: func() {}},
	}
}

// TestGuardsDescribeTheirAnswers: an application's own guard says how its refusals are answered.
func TestGuardsDescribeTheirAnswers(t *testing.T) {
	for reason, want := range map[core.Reason]string{
		"asleep": `{"type":"https://example.com/asleep","title":"Asleep","status":423,"detail":"Come back in the morning.","reason":"asleep"`,
		"bare":   `{"type":"about:blank","title":"Gone","status":410,"detail":"This request was refused.","reason":"bare"`,
		"barest": `{"type":"about:blank","title":"Forbidden","status":403,"detail":"This request was refused.","reason":"barest"`,
		"closed": `{"type":"about:blank","title":"Gone","status":410,"detail":"For good.","reason":"closed"`, // its own, not the standard one
		"undescribed": `{"type":"about:blank","title":"Forbidden","status":403,"detail":"This request was refused.",` +
			`"reason":"undescribed"`,
		core.ReasonDuplicate: `{"type":"https://github.com/gatehouse-go/gatehouse/blob/main/docs/guides/answers.md#duplicate",` +
			`"title":"Already Done","status":409,` +
			`"detail":"You have already done this.","reason":"duplicate"`,
	} {
		h := nethttpmw.HTTP(ruleOf(&describing{fake{name: "own"}, reason}))(http.NotFoundHandler())
		w := httptest.NewRecorder()
		h.ServeHTTP(w, blankRequest())
		if got, want := w.Body.String(), want+`,"bed":"upper \u003cberth\u003e"}`+"\n"; got != want {
			t.Errorf("%s:\n%s, want\n%s", reason, got, want)
		}
	}
}

// strikes counts all strikes, and bans nobody.
type strikes struct{ n int }

func (*strikes) Name() string { return "strikes" }
func (*strikes) Check(context.Context, core.Attempt) (core.Decision, error) {
	return core.Decision{Allowed: true, Reason: core.ReasonOK}, nil
}
func (s *strikes) Strike(context.Context, core.Attempt) (bool, error) { s.n++; return false, nil }

// TestStrikesAreForWhatClientsShouldNotDo: expected refusals and failures of the server do not count.
func TestStrikesAreForWhatClientsShouldNotDo(t *testing.T) {
	for reason, want := range map[core.Reason]int{"asleep": 1, "undescribed": 1, "expected": 0,
		core.ReasonNotReady: 0} {
		bans := new(strikes)
		rule := ruleOf(&describing{fake{name: "own"}, reason})
		rule.Bans = bans
		nethttpmw.HTTP(rule)(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), blankRequest())
		if bans.n != want {
			t.Errorf("%s: %d strikes, want %d", reason, bans.n, want)
		}
	}
}

// restless is a guard that counts how often it is asked to describe itself.
type restless struct {
	fake
	asked atomic.Int64
}

func (g *restless) Traits() core.Traits {
	g.asked.Add(1)
	return g.fake.Traits()
}

func (g *restless) Describe() kit.Description {
	g.asked.Add(1)
	return kit.Description{}
}

// TestGuardsDescribeThemselvesOnce: the pipeline asks them at set-up, and in no request.
func TestGuardsDescribeThemselvesOnce(t *testing.T) {
	g := &restless{fake: fake{name: "own"}}
	h := nethttpmw.HTTP(ruleOf(g))(http.NotFoundHandler())
	before := g.asked.Load()
	for range 3 {
		h.ServeHTTP(httptest.NewRecorder(), blankRequest())
	}
	if got := g.asked.Load(); before == 0 || got != before || len(g.ends()) != 3 {
		t.Errorf("asked %d times when it was made, and %d times by requests (%v)", before, got-before, g.ends())
	}
}

// meddling is a guard that describes an answer of the pipeline.
type meddling struct{ fake }

func (*meddling) Describe() kit.Description {
	return kit.Description{Answers: []kit.Answer{{Reason: answers.ReasonUnavailable, Status: http.StatusOK}}}
}

func TestThePipelinesReasonsAreItsOwn(t *testing.T) {
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, `"unavailable", which belongs to the pipeline`) {
			t.Error(text)
		}
	}()
	pipeline.New(ruleOf(&meddling{fake{name: "own"}}))
}

func TestRetryAfterIsRoundedUpToSeconds(t *testing.T) {
	for _, c := range []struct {
		wait time.Duration
		want string
	}{
		{0, ""},
		{-time.Second, ""},
		{time.Nanosecond, "1"},
		{time.Second - 1, "1"},
		{time.Second, "1"},
		{time.Second + time.Millisecond, "1"},
		{time.Second + time.Millisecond + 1, "2"},
		{90*time.Minute + time.Second/2, "5401"},
		{math.MaxInt64, "2147483647"},
	} {
		w := httptest.NewRecorder()
		refusal := answers.Refusal{
			Status: http.StatusTooManyRequests, Reason: core.ReasonLimited,
			Decision: core.Decision{RetryAfter: c.wait},
		}
		refusal.Reply(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if got := w.Header().Get("Retry-After"); got != c.want {
			t.Errorf("wait %v: Retry-After %q, want %q", c.wait, got, c.want)
		}
	}
}
