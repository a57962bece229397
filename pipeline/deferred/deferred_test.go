package deferred_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
	"github.com/gatehouse-go/gatehouse/pipeline/deferred"
)

const ofKey = "Idempotency-Key: k1"

// Promise: With `Defer`, a request refused until a known moment gets 202, Location and Retry-After. It runs
// later through the application.
func TestARefusedRequestRunsLater(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		w := newWorld(t, b, delay.Options{}, nil)
		location := w.defers("rows", ofKey, "Content-Type: text/csv", "Cookie: session=1")
		if to := w.page("ann", location); to.Code != http.StatusAccepted ||
			to.Header().Get("Retry-After") != "1" || to.Header().Get("Cache-Control") != "no-store" ||
			!strings.Contains(to.Body.String(), `"state":"pending"`) {
			t.Errorf("the page: %d %v %s", to.Code, to.Header(), to.Body)
		}
		var fields http.Header
		w.answer(func(to http.ResponseWriter, r *http.Request) {
			fields = r.Header.Clone()
			to.Header().Set("Location", "/files/7")
			to.WriteHeader(http.StatusCreated)
			_, _ = to.Write([]byte("made"))
		})
		w.gate.open.Store(true)
		w.work()
		to := w.wantState(location, deferred.StateDone)
		if to.Code != http.StatusCreated || to.Body.String() != "made" ||
			to.Header().Get("Location") != "/files/7" ||
			to.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("the answer: %d %v %s", to.Code, to.Header(), to.Body)
		}
		if got := w.runs(); !slices.Equal(got, []string{"ann POST /exports?q=1 rows"}) {
			t.Errorf("ran: %q", got)
		}
		if fields.Get("Content-Type") != "text/csv" || fields.Get("Idempotency-Key") != "k1" || len(fields) != 2 {
			t.Errorf("the handler got %v", fields)
		}
	})
}

// TestOnlyThePrincipalReadsTheAnswer: the others do not even learn that it is there.
//
// Promise: Only the principal reads state and answer; others get 404.
func TestOnlyThePrincipalReadsTheAnswer(t *testing.T) {
	w := newWorld(t, redistest.Mini(t), delay.Options{}, nil)
	location := w.defers("rows")
	w.gate.open.Store(true)
	w.work()
	w.wantState(location, deferred.StateDone)
	unknown := w.page("ann", "/deferred/unknown")
	for _, user := range []string{"bob", ""} {
		to := w.page(user, location)
		if to.Code != http.StatusNotFound || to.Body.String() != unknown.Body.String() ||
			to.Header().Get(deferred.StateHeader) != "" {
			t.Errorf("%q gets %d %v %s", user, to.Code, to.Header(), to.Body)
		}
	}
	if to := w.send("ann", http.MethodPost, location, ""); to.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", to.Code)
	}
}

// Promise: Credentials are not stored: Authorization, Cookie, fields named like credentials,
// `Options.Credentials`. A stored request runs as its principal.
func TestCredentialsAreNotStored(t *testing.T) {
	w := newWorld(t, redistest.Mini(t), delay.Options{}, func(o *deferred.Options) {
		o.Credentials, o.Secrets = []string{"x-caller"}, nil
	})
	var fields []string
	for i, name := range []string{
		"Cookie", "Proxy-Authorization", "Authentication", "X-Api-Key", "Apikey", "X_Api_Key", "X-Auth-Token", "X-Auth-Key",
		"X-Auth", "X-Otp", "X-Totp2", "X-SSL-Client-Cert", "Ssl-Client-Cert-Chain", "X-Forwarded-Client-Cert",
		"X-Amz-Signature", "X-Hub-Signature-256", "X-Amz-Credential", "X-Amz-Security-Token", "X-Access-Key-Id",
		"X-Secret", "X-Pass", "X-Passwd", "X-Password", "X-User-Pin", "X-Sid", "Phpsessid", "X-Session-Id", "X-Csrf",
		"X-Xsrf-Header", "Cf-Access-Jwt-Assertion", "X-Oauth", "X-Saml", "Dpop", "X-Hmac-Sha256", "X-Sig", "X-Sso-Ticket",
		"X-Caller",
	} {
		fields = append(fields, fmt.Sprintf("%s: hidden-%d", name, i))
	}
	kept := []string{"X-Other: other", "X-Author: ann", "X-Forwarded-For: 192.0.2.1", "If-Match: 1", "Origin: http://a",
		"X-Request-Id: 7", "X-Passenger: 2", "Sec-Fetch-Site: none", ofKey}
	w.defers("rows", append(fields, kept...)...)
	payload := string(w.stored().Payload)
	if !strings.Contains(payload, "rows") || strings.Contains(payload, "hidden") {
		t.Errorf("stored: %s", payload)
	}
	for _, field := range kept {
		name, value, _ := strings.Cut(field, ": ")
		if text := fmt.Sprintf("%q:[%q]", http.CanonicalHeaderKey(name), value); !strings.Contains(payload, text) {
			t.Errorf("%s is missing in %s", text, payload)
		}
	}
}

// TestWhatIsStoredCannotBeRead: bodies, queries and fields under any name were readable in Redis, and answers,
// too.
//
// Promise: With `Secrets`, Redis shows nothing of requests and answers, and runs or shows only what was
// sealed for its user, ID and queue. Secrets rotate. Without them set-up warns (GH009).
func TestWhatIsStoredCannotBeRead(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		w := newWorld(t, b, delay.Options{}, nil)
		location := w.defers("hidden-body", "X-Any: hidden-field", ofKey)
		hidden := func(text []byte) {
			t.Helper()
			for _, word := range []string{"hidden", "X-Any", "exports", "ann", "made"} {
				if bytes.Contains(text, []byte(word)) {
					t.Errorf("%q is in %q", word, text)
				}
			}
		}
		first := w.stored()
		hidden(first.Payload)
		w.gate.open.Store(true)
		w.work()
		w.wantState(location, deferred.StateDone)
		done, err := w.queue.Find(t.Context(), first.ID)
		if err != nil || len(done.Result) == 0 {
			t.Fatal(done, err)
		}
		hidden(done.Result)
	})
}

// TestARequestIsStoredOncePerID: a repetition gets the same Location, whatever the rules say by then, and
// does not run beside the stored one.
//
// Promise: A request is stored once per principal and ID. A repetition gets the same 202 and does not run
// beside it; another request with the ID gets 422.
func TestARequestIsStoredOncePerID(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		w := newWorld(t, b, delay.Options{}, nil)
		location := w.defers("rows", ofKey)
		if again := w.defers("rows", ofKey); again != location {
			t.Errorf("%s, then %s", location, again)
		}
		if to := w.post("ann", "others", ofKey); to.Code != http.StatusUnprocessableEntity {
			t.Errorf("another body: %d %s", to.Code, to.Body)
		}
		if to := w.post("ann", strings.Repeat("r", 20<<10), ofKey); to.Code != http.StatusUnprocessableEntity {
			t.Errorf("a body too long to be stored: %d %s", to.Code, to.Body)
		}
		if to := w.post("bob", "rows", ofKey); to.Code != http.StatusAccepted {
			t.Errorf("another user: %d %s", to.Code, to.Body)
		}
		w.wantPending(2)
		w.gate.open.Store(true)
		if again := w.defers("rows", ofKey); again != location || len(w.runs()) > 0 {
			t.Errorf("%s, then %s, and ran %q", location, again, w.runs())
		}
		w.work()
		w.wantState(location, deferred.StateDone)
		if again := w.defers("rows", ofKey); again != location {
			t.Errorf("%s, then %s", location, again)
		}
		if to := w.post("ann", "others", ofKey); to.Code != http.StatusUnprocessableEntity {
			t.Errorf("another body afterwards: %d %s", to.Code, to.Body)
		}
	})
}

// TestWhatCannotBeStoredIsRefused as it is without Defer, with the moment at which waiting helps.
//
// Promise: A request that cannot be stored is refused as without `Defer`, never with 202.
func TestWhatCannotBeStoredIsRefused(t *testing.T) {
	b := redistest.Mini(t)
	w := newWorld(t, b, delay.Options{}, func(o *deferred.Options) {
		o.MaxBody, o.MaxWait = 10, time.Minute
		o.Limit = limit.NewSlidingWindow(guardtest.NewEngine(b), "few", limit.PerHour(1))
	})
	refused := func(name, user, body string, headers ...string) {
		t.Helper()
		to := w.post(user, body, headers...)
		if to.Code != http.StatusTooManyRequests || to.Header().Get("Retry-After") == "" ||
			to.Header().Get("Location") != "" {
			t.Errorf("%s: %d %v %s", name, to.Code, to.Header(), to.Body)
		}
	}
	refused("a long body", "ann", "12345678901")
	refused("nobody", "", "rows")
	refused("an upgrade", "ann", "rows", "Upgrade: websocket")
	refused("a body that is no text in its header", "ann", "rows", "Accept: \xff")
	w.gate.wait = time.Hour
	refused("a long wait", "ann", "rows")
	w.gate.wait = 20 * time.Millisecond
	w.wantPending(0)
	w.defers("rows")
	refused("more than the Limit", "ann", "rows")
	w.wantPending(1)
	b.Mini.SetError("ERR away")
	defer b.Mini.SetError("")
	refused("no Redis", "bob", "rows")
	if to := w.page("ann", "/deferred/unknown"); to.Code != http.StatusServiceUnavailable {
		t.Errorf("the page without Redis: %d", to.Code)
	}
}

// TestALongHeaderIsNotStored: MaxBody bounded the body only, so 40 KiB of Accept-Language were stored.
func TestALongHeaderIsNotStored(t *testing.T) {
	w := newWorld(t, redistest.Mini(t), delay.Options{}, nil)
	w.defers("rows", "Accept-Language: "+strings.Repeat("de,", 2<<10))
	to := w.post("ann", "rows", "Accept-Language: "+strings.Repeat("de,", 3<<10))
	if to.Code != http.StatusTooManyRequests || to.Header().Get("Location") != "" {
		t.Errorf("%d %v %s", to.Code, to.Header(), to.Body)
	}
	w.wantPending(1)
}

// TestManyUsersFillNoRedis: each stores no more than Limit allows, and all of them no more than MaxStored, in
// bytes of Redis. What has run makes room.
//
// Promise: All users together store `MaxStored` bytes at most, answers included.
func TestManyUsersFillNoRedis(t *testing.T) {
	const most = 2 << 20
	b := redistest.Single(t)
	w := newWorld(t, b, delay.Options{}, func(o *deferred.Options) { o.MaxStored, o.MaxAnswer = most, 4<<10 })
	store := func(users int) (stored int) {
		for user := range users {
			for range 5 {
				to := w.post(fmt.Sprint("user", user), strings.Repeat("r", 15<<10))
				switch {
				case to.Code == http.StatusAccepted:
					stored++
				case to.Code != http.StatusTooManyRequests || to.Header().Get("Location") != "":
					t.Fatalf("%d %v %s", to.Code, to.Header(), to.Body)
				}
			}
		}
		return stored
	}
	stored := store(50)
	bytes := int64(0)
	for _, key := range w.client.Keys(t.Context(), b.Prefix+":delay:*").Val() {
		bytes += w.client.MemoryUsage(t.Context(), key, 0).Val()
	}
	t.Logf("%d of 250 requests are stored, %d bytes of %d", stored, bytes, most)
	if stored < 90 || stored > 115 || bytes > most {
		t.Errorf("%d requests are stored, %d bytes: want as many as %d bytes have room for", stored, bytes, most)
	}
	w.gate.open.Store(true)
	w.work()
	redistest.Eventually(t, time.Minute, func() bool {
		c, err := w.queue.Counts(t.Context())
		return err == nil && c.Pending+c.Running == 0
	}, "all have run")
	w.gate.open.Store(false)
	w.gate.wait = time.Minute
	if stored := store(1); stored != 5 {
		t.Errorf("%d of 5 requests are stored where others have run", stored)
	}
}

// TestAFloodWithIDsCostsOneCallEach: whether a request with an operation ID is stored, only Redis knows. All
// others, and refusals, are remembered.
func TestAFloodWithIDsCostsOneCallEach(t *testing.T) {
	b := redistest.Single(t)
	counting := &guardtest.Counting{Client: b.Client}
	engine := guardtest.NewEngineOver(b, counting)
	requests := deferred.New(delay.New(engine, "deferred", delay.Options{}), deferred.Options{
		Who: keyfuncs.User("uid"), Secrets: [][]byte{secret},
		Limit: limit.NewSlidingWindow(engine, "stored", limit.PerHour(1)),
	})
	app := login(nethttpmw.HTTP(pipeline.Rule{
		Guard: limit.NewSlidingWindow(engine, "exports", limit.PerHour(1)), Who: keyfuncs.User("uid"),
		Defer: requests,
	})(http.NotFoundHandler()))
	post := func(headers ...string) {
		app.ServeHTTP(httptest.NewRecorder(), newRequest("ann", http.MethodPost, "/exports", "rows", headers...))
	}
	if err := engine.Preload(t.Context()); err != nil { // else the first run of a script takes two calls
		t.Fatal(err)
	}
	for range 3 { // takes what there is, is stored, and is refused
		post()
	}
	before := counting.Sent.Load()
	for range 100 {
		post()
	}
	without := counting.Sent.Load() - before
	for i := range 100 {
		post(fmt.Sprint("Idempotency-Key: k", i))
	}
	if with := counting.Sent.Load() - before - without; without != 0 || with != 100 {
		t.Errorf("100 refused requests made %d calls, and %d with operation IDs", without, with)
	}
}

// TestRefusedAgainIsNoFailedTry: a request that is refused more often than it may fail runs all the same.
//
// Promise: A stored request that is refused once more waits again, without a failed try or a strike. It fails
// when older than `MaxAge`.
func TestRefusedAgainIsNoFailedTry(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		w := newWorld(t, b, delay.Options{MaxTries: 2}, nil)
		location := w.defers("rows")
		w.work()
		redistest.Eventually(t, time.Minute, func() bool { return w.gate.refused.Load() > 4 },
			"it was refused four times")
		if to := w.page("ann", location); to.Code != http.StatusAccepted {
			t.Errorf("%d %s", to.Code, to.Body)
		}
		w.gate.open.Store(true)
		w.wantState(location, deferred.StateDone)
		w.wantPending(0) // it was not stored anew either
		if got := w.runs(); len(got) != 1 {
			t.Errorf("ran %q", got)
		}
	})
}

// TestARequestIsNotRefusedForever: it fails when it is older than it may be.
func TestARequestIsNotRefusedForever(t *testing.T) {
	w := newWorld(t, redistest.Mini(t), delay.Options{},
		func(o *deferred.Options) { o.MaxAge = time.Nanosecond })
	location := w.defers("rows")
	w.work()
	if to := w.wantState(location, deferred.StateFailed); to.Code != http.StatusInternalServerError {
		t.Errorf("%d %s", to.Code, to.Body)
	}
	if len(w.runs()) > 0 {
		t.Errorf("ran %q", w.runs())
	}
}

// TestTheLongestWaits are no short ones: a request fails whose rule has it wait for 292 years, and is not
// stored where it might wait so long.
func TestTheLongestWaits(t *testing.T) {
	w := newWorld(t, redistest.Mini(t), delay.Options{},
		func(o *deferred.Options) { o.MaxWait = math.MaxInt64 })
	location := w.defers("rows")
	w.gate.wait = math.MaxInt64
	w.work()
	w.wantState(location, deferred.StateFailed)
	if n := w.gate.refused.Load(); n != 2 {
		t.Errorf("refused %d times", n)
	}
	if to := w.post("ann", "rows"); to.Code != http.StatusTooManyRequests {
		t.Errorf("%d %s", to.Code, to.Body)
	}
}

// TestAFailedTryIsRepeated: after a panic and after a status of 500 and above.
//
// Promise: After a panic, or 500 and above, a stored request is tried again, `MaxTries` times.
func TestAFailedTryIsRepeated(t *testing.T) {
	w := newWorld(t, redistest.Mini(t), delay.Options{MaxTries: 2}, nil)
	var tries atomic.Int64
	w.answer(func(to http.ResponseWriter, r *http.Request) {
		if tries.Add(1) == 1 {
			panic("once")
		}
		if r.Header.Get("Idempotency-Key") == "k2" {
			to.WriteHeader(http.StatusInternalServerError)
		}
	})
	first := w.defers("rows", ofKey)
	w.gate.open.Store(true)
	w.work()
	w.wantState(first, deferred.StateDone)
	w.gate.open.Store(false)
	second := w.defers("rows", "Idempotency-Key: k2")
	w.gate.open.Store(true)
	to := w.wantState(second, deferred.StateFailed)
	if to.Code != http.StatusInternalServerError || strings.Contains(to.Body.String(), "status 500") {
		t.Errorf("%d %s", to.Code, to.Body)
	}
	if n := tries.Load(); n != 4 {
		t.Errorf("%d tries", n)
	}
}

func TestLongAnswersAreNotKept(t *testing.T) {
	w := newWorld(t, redistest.Mini(t), delay.Options{}, func(o *deferred.Options) { o.MaxAnswer = 3 })
	location := w.defers("rows")
	w.gate.open.Store(true)
	w.work()
	to := w.wantState(location, deferred.StateDone)
	if to.Code != http.StatusOK || to.Header().Get("Location") != "/files/7" ||
		to.Body.String() != `{"state":"done","status":201}`+"\n" {
		t.Errorf("%d %v %s", to.Code, to.Header(), to.Body)
	}
}

// TestRestoreGivesARequestWhatTheLoginWants where the login cannot be changed.
func TestRestoreGivesARequestWhatTheLoginWants(t *testing.T) {
	var failed atomic.Bool
	w := newWorld(t, redistest.Mini(t), delay.Options{}, func(o *deferred.Options) {
		o.Restore = func(r *http.Request, principal string) (*http.Request, error) {
			if failed.CompareAndSwap(false, true) {
				return nil, errors.New("no token now")
			}
			r.Header.Set("X-Token", "fresh-"+principal)
			return r, nil
		}
	})
	var token atomic.Value
	w.answer(func(_ http.ResponseWriter, r *http.Request) { token.Store(r.Header.Get("X-Token")) })
	location := w.defers("rows")
	w.gate.open.Store(true)
	w.work()
	w.wantState(location, deferred.StateDone)
	if token.Load() != "fresh-ann" {
		t.Errorf("the token is %v", token.Load())
	}
}

// TestALostReplyStoresARequestOnce: the client library sends the call again.
func TestALostReplyStoresARequestOnce(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		w := newWorld(t, b, delay.Options{}, func(o *deferred.Options) { o.MaxStored = 7_654_321 })
		if err := w.queue.Engine().Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, headers := range [][]string{{ofKey}, nil} {
			faults.SwallowReply("7654321") // of the call that stores, which has the bound
			w.defers("rows", headers...)
		}
		if n := faults.Swallowed(); n != 2 {
			t.Errorf("%d replies were swallowed", n)
		}
		w.wantPending(2)
	})
}

// TestMistakesOfSetUpPanic with the remedy.
func TestMistakesOfSetUpPanic(t *testing.T) {
	w := newWorld(t, redistest.Mini(t), delay.Options{}, nil)
	who := keyfuncs.User("uid")
	for want, o := range map[string]deferred.Options{
		"has no Who":   {Limit: w.gate},
		"has no Limit": {Who: who},
		`end it in`:    {Who: who, Limit: w.gate, Page: "/later"},
		"negative":     {Who: who, Limit: w.gate, MaxBody: -1},
		"a secret of":  {Who: who, Limit: w.gate, Secrets: [][]byte{secret, []byte("short")}},
	} {
		guardtest.WantPanic(t, want, func() { deferred.New(w.queue, o) })
	}
	guardtest.WantPanic(t, "has no queue", func() {
		deferred.New(nil, deferred.Options{Who: who, Limit: w.gate})
	})
	guardtest.WantPanic(t, "nil handler", func() { _ = w.requests.Work(t.Context(), nil, delay.WorkOptions{}) })
}
