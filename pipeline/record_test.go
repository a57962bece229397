package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// keeper is a guard that keeps outcomes.
type keeper struct {
	fake
	outcomes chan *core.Outcome
}

func newKeeper(name string, maxBody int) *keeper {
	return &keeper{fake{name: name, traits: core.Traits{KeepsOutcome: true, NeedsID: true, MaxBody: maxBody}},
		make(chan *core.Outcome, 10)}
}

func (g *keeper) Settle(ctx context.Context, d core.Decision, end core.Ending) error {
	g.outcomes <- end.Outcome()
	return g.fake.Settle(ctx, d, end)
}

// want wants one settled request with this outcome. Status 0: no outcome that can be replayed.
func (g *keeper) want(t *testing.T, status int, body string, fields ...string) {
	t.Helper()
	header := map[string]string{}
	for i := 0; i < len(fields); i += 2 {
		header[fields[i]] = fields[i+1]
	}
	select {
	case o := <-g.outcomes:
		if o == nil || o.Status != status || string(o.Body) != body || !maps.Equal(o.Header, header) {
			t.Errorf("the outcome is %+v, want %d %q %v", o, status, body, header)
		}
	default:
		t.Error("not settled")
	}
}

func keeping(g core.Guard) pipeline.Rule {
	rule := ruleOf(g)
	rule.ID = keyfuncs.Const("o1")
	return rule
}

// TestAnswersAreRecorded: however a handler writes, the body is kept whole or not at all.
func TestAnswersAreRecorded(t *testing.T) {
	whole := "one, two"
	typed := []string{"Content-Type", "text/plain", "X-Other", "1", "Location", "/here"}
	located := typed[4:]
	for name, c := range map[string]struct {
		write func(http.ResponseWriter)
		body  string
		kept  []string
	}{
		"Write": {func(w http.ResponseWriter) { fmt.Fprint(w, "one"); fmt.Fprint(w, ", two") }, whole, typed},
		"WriteString": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, "one")
			_, _ = io.WriteString(w, ", two")
		}, whole, typed},
		"ReadFrom": {func(w http.ResponseWriter) {
			_, _ = io.Copy(w, struct{ io.Reader }{strings.NewReader("one, ")})
			_, _ = io.Copy(w, struct{ io.Reader }{strings.NewReader("two")})
		}, whole, typed},
		"as long as may be": {func(w http.ResponseWriter) { fmt.Fprint(w, "0123456789") }, "0123456789", typed},
		"nothing":           {func(http.ResponseWriter) {}, "", typed},
		"only the status":   {func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) }, "", typed},
		"too long":          {func(w http.ResponseWriter) { fmt.Fprint(w, "0123456789x") }, "", located},
		"too long in parts": {func(w http.ResponseWriter) {
			fmt.Fprint(w, "0123456789x")
			fmt.Fprint(w, "y")
		}, "", located},
		"a flush": {func(w http.ResponseWriter) { fmt.Fprint(w, "one"); w.(http.Flusher).Flush() }, "", located},
		"a flush with an error": {func(w http.ResponseWriter) {
			fmt.Fprint(w, "one")
			_ = http.NewResponseController(w).Flush()
		}, "", located},
		"a source that breaks off": {func(w http.ResponseWriter) {
			_, _ = io.Copy(w, io.MultiReader(strings.NewReader("one"), iotest.ErrReader(errors.New("lost"))))
		}, "", located},
		"a header that comes too late": {func(w http.ResponseWriter) {
			fmt.Fprint(w, whole)
			w.Header().Set("Location", "/elsewhere")
			w.Header().Set("ETag", `"late"`)
		}, whole, typed},
	} {
		t.Run(name, func(t *testing.T) {
			guard := newKeeper("own", 10)
			srv := httptest.NewServer(nethttpmw.HTTP(keeping(guard))(http.HandlerFunc(func(w http.ResponseWriter,
				_ *http.Request) {
				w.Header().Set("Content-Type", "text/plain")
				w.Header().Set("Location", "/here")
				w.Header().Set("X-Other", "1")
				c.write(w)
			})))
			get(t, t.Context(), srv)
			srv.Close()
			guard.want(t, 200, c.body, c.kept...)
		})
	}
}

// TestWritesThatFailAreNoAnswer: a handler that stops after a failed write has not sent its whole answer.
func TestWritesThatFailAreNoAnswer(t *testing.T) {
	guard := newKeeper("own", 10)
	h := nethttpmw.HTTP(keeping(guard))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "one")
		fmt.Fprint(w, "two")
		fmt.Fprint(w, "six")
	}))
	h.ServeHTTP(&failing{httptest.NewRecorder(), 1}, httptest.NewRequest(http.MethodPost, "/", nil))
	guard.want(t, 200, "")
}

// failing is a writer that fails after a number of writes, and recovers after the next.
type failing struct {
	*httptest.ResponseRecorder
	good int
}

func (w *failing) Write(b []byte) (int, error) {
	if w.good--; w.good == -1 {
		return 0, errors.New("lost")
	}
	return w.ResponseRecorder.Write(b)
}

// TestFieldsAroundTheRulesAreNotKept: the middleware that set them sets them again for each replay. For
// example, a compressed answer may be replayed to a client that accepts no compression.
func TestFieldsAroundTheRulesAreNotKept(t *testing.T) {
	guard := newKeeper("own", 10)
	inner := nethttpmw.HTTP(keeping(guard))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Link", "</style.css>")
		w.Header().Add("Link", "</next>")
		w.Header().Set("ETag", `"inner"`)
		w.WriteHeader(http.StatusCreated)
	}))
	w := httptest.NewRecorder()
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Set("Content-Security-Policy", "default-src 'self'")
	w.Header().Set("ETag", `"outer"`)
	inner.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
	guard.want(t, 201, "", "Link", "</style.css>, </next>", "Etag", `"inner"`)
}

// TestFieldsThatAreNotUTF8AreNotKept: replays had a replacement character for each invalid byte.
func TestFieldsThatAreNotUTF8AreNotKept(t *testing.T) {
	guard := newKeeper("own", 10)
	h := nethttpmw.HTTP(keeping(guard))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", "\"caf\xe9\"")
		w.Header().Set("Location", "/caf\u00e9")
	}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))
	guard.want(t, 200, "", "Location", "/caf\u00e9")
}

// TestRedirectionsWithoutALocationAreNotReplayed: a browser that repeated an order got a redirection without
// a Location.
func TestRedirectionsWithoutALocationAreNotReplayed(t *testing.T) {
	long := "/" + strings.Repeat("x", 9000)
	for _, c := range []struct {
		status   int
		location string
		kept     int
	}{{303, long, 0}, {307, "/caf\xe9", 0}, {303, "/here", 303}, {201, long, 201}, {304, "", 304}} {
		guard := newKeeper("own", 10)
		h := nethttpmw.HTTP(keeping(guard))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if c.location != "" {
				w.Header().Set("Location", c.location)
			}
			w.WriteHeader(c.status)
		}))
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))
		if o := <-guard.outcomes; o == nil || o.Status != c.kept {
			t.Errorf("%d %.20q: the outcome is %+v, want %d", c.status, c.location, o, c.kept)
		}
	}
}

// TestAnswersThatOuterRulesDoNotGetAreNotKept: an http.TimeoutHandler between two middlewares abandons the
// inner one and answers itself. The outer one keeps no answer of that request, so a retry is a new request,
// and the claims of the inner one stood in its way. A client that merely disconnected can ask again and gets
// the answer.
func TestAnswersThatOuterRulesDoNotGetAreNotKept(t *testing.T) {
	for name, gone := range map[string]bool{"given up": false, "the client has gone": true} {
		synctest.Test(t, func(t *testing.T) { // the handler runs when the time is over, on a busy machine, too
			outer, claim := newKeeper("outer", 10), &fake{name: "claim"}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			inner := nethttpmw.HTTP(ruleOf(claim))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if gone {
					cancel()
				}
				<-r.Context().Done()
				w.WriteHeader(http.StatusCreated)
			}))
			handler := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(ended)
				inner.ServeHTTP(w, r)
			}))
			if !gone {
				handler = http.TimeoutHandler(handler, time.Millisecond, "too late")
			}
			app := nethttpmw.HTTP(keeping(outer))(handler)
			app.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil).WithContext(ctx))
			<-ended
			cancel()
			if kept := claim.ends(); len(kept) != 1 || kept[0] != gone {
				t.Errorf("%s: the claim is kept: %v, want %t", name, kept, gone)
			}
			if kept := outer.ends(); len(kept) != 1 || kept[0] != gone {
				t.Errorf("%s: the answer is kept: %v, want %t", name, kept, gone)
			}
		})
	}
}

// TestClientsThatGoUnansweredKeepNoOutcome: this holds whatever Failed says. A rule that also kept answers of
// failed requests answered retries with 499 for a day.
//
// Promise (Endings): An operation whose client went away unanswered keeps no outcome.
func TestClientsThatGoUnansweredKeepNoOutcome(t *testing.T) {
	for status, kept := range map[int]bool{0: false, http.StatusNotFound: true} {
		guard := newKeeper("own", 10)
		rule := keeping(guard)
		rule.Failed = func(status int) bool { return status >= http.StatusInternalServerError }
		ctx, cancel := context.WithCancel(t.Context())
		h := nethttpmw.HTTP(rule)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			cancel()
			if status != 0 {
				w.WriteHeader(status)
			}
		}))
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil).WithContext(ctx))
		if o := <-guard.outcomes; guard.ends()[0] != kept || kept && o.Status != status {
			t.Errorf("after %d: %+v is kept: %v, want %t", status, o, guard.ends(), kept)
		}
	}
}

// TestSwitchedProtocolsAreNotReplayed: a replay has no connection to switch.
func TestSwitchedProtocolsAreNotReplayed(t *testing.T) {
	guard := newKeeper("own", 10)
	h := nethttpmw.HTTP(keeping(guard))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusSwitchingProtocols)
	}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))
	guard.want(t, 0, "")
}

// TestEachGuardKeepsAsMuchAsItSays: two guards on one route, and one around it, have different limits.
func TestEachGuardKeepsAsMuchAsItSays(t *testing.T) {
	brief, long, outer := newKeeper("brief", 2), newKeeper("long", 10), newKeeper("outer", 5)
	h := nethttpmw.HTTP(keeping(outer))(nethttpmw.HTTP(keeping(brief), keeping(long))(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "four") })))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))
	brief.want(t, 200, "")
	long.want(t, 200, "four")
	outer.want(t, 200, "four")
}

// TestFailedRequestsKeepNoOutcome: a failed request has no outcome to replay.
func TestFailedRequestsKeepNoOutcome(t *testing.T) {
	guard := newKeeper("own", 10)
	h := nethttpmw.HTTP(keeping(guard))(http.NotFoundHandler())
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))
	if o := <-guard.outcomes; o != nil || guard.ends()[0] {
		t.Errorf("%+v, %v", o, guard.ends())
	}
}

// TestOutcomesAreSettledLast: after a crash in between, a retry must not get an answer that was not
// confirmed.
func TestOutcomesAreSettledLast(t *testing.T) {
	guard := newKeeper("own", 10)
	claim := &settledBefore{fake: fake{name: "claim"}, other: guard}
	nethttpmw.HTTP(keeping(guard), ruleOf(claim))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).
		ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))
	if claim.late || len(claim.ends()) != 1 || len(guard.ends()) != 1 {
		t.Errorf("the outcome was kept before the claim was settled (%t), or one of them was not (%v, %v)",
			claim.late, claim.ends(), guard.ends())
	}
}

// settledBefore records whether another guard was settled before it.
type settledBefore struct {
	fake
	other *keeper
	late  bool
}

func (g *settledBefore) Settle(ctx context.Context, d core.Decision, end core.Ending) error {
	g.late = len(g.other.ends()) > 0
	return g.fake.Settle(ctx, d, end)
}

// TestMalformedKeptAnswers: answers come from Redis, so malformed ones must not break the server.
func TestMalformedKeptAnswers(t *testing.T) {
	for _, status := range []int{-1, 0, 99, 101, 1000} {
		w := httptest.NewRecorder()
		refusal := answers.Refusal{Status: http.StatusConflict, Reason: core.ReasonDone,
			Decision: doneWith(status)}
		refusal.Reply(w, blankRequest())
		if w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), `"done"`) {
			t.Errorf("%d: %d %s", status, w.Code, w.Body)
		}
	}
}

// TestAnswersWithoutBodiesAreReplayed: a 204 must not have a length.
func TestAnswersWithoutBodiesAreReplayed(t *testing.T) {
	w := httptest.NewRecorder()
	(&answers.Refusal{Reason: core.ReasonDone, Decision: doneWith(http.StatusNoContent)}).Reply(w,
		blankRequest())
	if w.Code != http.StatusNoContent || w.Header().Get("Content-Length") != "" ||
		w.Header().Get(answers.ReplayedHeader) != "true" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

// told is the claim of a decision with the outcome of an operation.
type told struct{ outcome *core.Outcome }

func (c told) Outcome() *core.Outcome { return c.outcome }

// doneWith returns the decision for an operation that ended with a status.
func doneWith(status int) core.Decision {
	d := core.Decision{Reason: core.ReasonDone}
	d.SetClaim(told{&core.Outcome{Status: status}})
	return d
}
