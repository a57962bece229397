package pipeline_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// judge is an application's guard with a given decision.
type judge struct {
	fake
	decision core.Decision
}

func (g *judge) Check(context.Context, core.Attempt) (core.Decision, error) { return g.decision, nil }

// item is an item of a field, as the RFC 9651 library reads it.
type item struct {
	name    string
	numbers map[string]int64
	unit    any
	key     any
}

// items parses the values of a field.
func items(t rapid.TB, values []string) (all []item) {
	t.Helper()
	if len(values) == 0 {
		return nil
	}
	list, err := httpsfv.UnmarshalList(values)
	if err != nil {
		t.Fatalf("%v in %q", err, values)
	}
	for _, member := range list {
		parsed, ok := member.(httpsfv.Item)
		if !ok {
			t.Fatalf("%q has a %T in it", values, member)
		}
		name, ok := parsed.Value.(string)
		if !ok {
			t.Fatalf("%q has a %T in it, want Strings", values, parsed.Value)
		}
		one := item{name: name, numbers: map[string]int64{}}
		for _, parameter := range parsed.Params.Names() {
			value, _ := parsed.Params.Get(parameter)
			switch parameter {
			case "q", "w", "r", "t":
				number, ok := value.(int64)
				if !ok || number < 0 || number > 999_999_999_999_999 {
					t.Fatalf("%s of %q is %v, want an Integer of 0 or more", parameter, values, value)
				}
				one.numbers[parameter] = number
			case "qu":
				one.unit = value
			case "pk":
				one.key = value
			default:
				t.Fatalf("%q has a parameter %q", values, parameter)
			}
		}
		all = append(all, one)
	}
	return all
}

// number is a number that a field can have: RFC 9651 allows 15 digits, and ours are not negative.
func number(n int64) int64 { return min(max(n, 0), 999_999_999_999_999) }

// fieldsAreRight checks with an RFC 9651 library what a rule says of any decision.
func fieldsAreRight(t *rapid.T) {
	text := rapid.OneOf(rapid.StringMatching(`[A-Za-z0-9._-]{1,20}`), rapid.String(),
		rapid.Map(rapid.SliceOf(rapid.Byte()),
			func(b []byte) string { return string(b) }))
	whole := rapid.OneOf(rapid.Int64Range(-2, 1000), rapid.Int64(),
		rapid.SampledFrom([]int64{999_999_999_999_999, 1e15, math.MaxInt64}))
	length := rapid.Map(rapid.OneOf(rapid.Int64Range(-2, int64(3*time.Minute)), rapid.Int64()),
		func(n int64) time.Duration { return time.Duration(n) })
	d := core.Decision{
		Allowed: rapid.Bool().Draw(t, "allowed"), Reason: core.ReasonOK,
		Limit: whole.Draw(t, "limit"), Remaining: whole.Draw(t, "remaining"), Window: length.Draw(t, "window"),
		ResetAfter: length.Draw(t, "reset"),
	}
	if !d.Allowed {
		d.Reason, d.RetryAfter = core.ReasonLimited, length.Draw(t, "retry")
	}
	name, unit, key := text.Draw(t, "name"), text.Draw(t, "unit"), text.Draw(t, "key")
	rule := ruleOf(&judge{fake{name: name, traits: core.Traits{Unit: unit}}, d})
	if key != "" {
		rule.Headers.PartitionKey = keyfuncs.Const(key)
	}

	w := httptest.NewRecorder()
	nethttpmw.HTTP(rule)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w,
		blankRequest())
	policies, limits := items(t, w.Header().Values("RateLimit-Policy")), items(t, w.Header().Values("RateLimit"))
	if d.Limit <= 0 || unit == "" {
		if policies != nil || limits != nil {
			t.Fatalf("%+v and %+v of no figures", policies, limits)
		}
		return
	}
	if len(policies) != 1 || len(limits) != 1 {
		t.Fatalf("%+v and %+v, want one of each", policies, limits)
	}
	policy, limit := policies[0], limits[0]
	for _, one := range []item{policy, limit} {
		if plain, err := url.PathUnescape(one.name); err != nil || plain != name {
			t.Errorf("the name is %q, want %q (%v)", one.name, name, err)
		}
		got, found := one.key.([]byte)
		if found != (key != "") || string(got) != key {
			t.Errorf("the partition key is %q, want %q", one.key, key)
		}
	}
	if unit == kit.UnitRequests {
		unit = "" // the default is left out
	}
	saidUnit, _ := policy.unit.(string)
	if plain, err := url.PathUnescape(saidUnit); err != nil || plain != unit {
		t.Errorf("the unit is %v, want %q (%v)", policy.unit, unit, err)
	}

	if policy.numbers["q"] != number(d.Limit) || limit.numbers["r"] != number(d.Remaining) {
		t.Errorf("%v and %v of %+v", policy.numbers, limit.numbers, d)
	}
	if seconds, said := policy.numbers["w"]; said != (d.Window > 0) || said &&
		time.Duration(seconds-1)*time.Second >= d.Window {
		t.Errorf("a window of %v is said to be %d s", d.Window, seconds)
	} else if said && seconds < math.MaxInt64/int64(time.Second) &&
		time.Duration(seconds)*time.Second < d.Window {
		t.Errorf("a window of %v is said to be %d s: that is more units a second", d.Window, seconds)
	}
	reset, said := limit.numbers["t"]
	if retry := w.Header().Get("Retry-After"); retry != "" {
		if seconds, err := strconv.ParseInt(retry, 10, 64); err != nil || seconds != reset || d.Allowed ||
			d.RetryAfter <= 0 {
			t.Errorf("Retry-After %q and t %d of %+v", retry, reset, d)
		}
	} else if !d.Allowed && d.RetryAfter > 0 {
		t.Errorf("no Retry-After of %+v", d)
	} else if want := d.Window > 0 && d.ResetAfter > 0; said != want || said && reset < 1 {
		t.Errorf("t %d (%t) of %+v", reset, said, d)
	}
}

func blankRequest() *http.Request { return httptest.NewRequest(http.MethodGet, "/", nil) }

// Promise: RateLimit and RateLimit-Policy are what RFC 9651 reads.
func TestFieldsAreWhatRFC9651Reads(t *testing.T) { rapid.Check(t, fieldsAreRight) }

func FuzzFields(f *testing.F) { f.Fuzz(rapid.MakeFuzz(fieldsAreRight)) }

// TestPoliciesHaveDistinctNames: whatever limits the guards have, each policy has its own name. The binding
// limit is one of them, and the body of a refusal uses the same name.
func TestPoliciesHaveDistinctNames(t *testing.T) {
	windows := []time.Duration{time.Millisecond, 999 * time.Millisecond, time.Second, 1500 * time.Millisecond,
		90 * time.Second,
		time.Minute, time.Hour, 90 * time.Minute, 24 * time.Hour, 366 * 24 * time.Hour}
	rapid.Check(t, func(t *rapid.T) {
		gate := core.NewMemory()
		var rules []pipeline.Rule
		for i := range rapid.IntRange(1, 3).Draw(t, "guards") {
			var limits []limit.Limit
			for _, window := range rapid.SliceOfNDistinct(rapid.SampledFrom(windows), 1, 3,
				rapid.ID[time.Duration]).Draw(t, "windows") {
				limits = append(limits, limit.Per(rapid.Int64Range(1, 4).Draw(t, "max"), window))
			}
			rules = append(rules, ruleOf(limit.NewFixedWindow(gate, fmt.Sprintf("g%d", i), limits[0], limits[1:]...)))
		}
		app := nethttpmw.HTTP(rules...)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for range 6 {
			w := httptest.NewRecorder()
			app.ServeHTTP(w, blankRequest())
			policies, limits := items(t, w.Header().Values("RateLimit-Policy")),
				items(t, w.Header().Values("RateLimit"))
			quota := map[string]int64{}
			for _, p := range policies {
				if _, twice := quota[p.name]; twice {
					t.Fatalf("two policies %q in %q", p.name, w.Header())
				}
				quota[p.name] = p.numbers["q"]
			}
			for _, l := range limits {
				if most, found := quota[l.name]; !found || l.numbers["r"] >= most {
					t.Fatalf("%q says %d of %d (%t) in %q", l.name, l.numbers["r"], most, found, w.Header())
				}
			}
			if w.Code == http.StatusOK {
				if len(limits) != len(rules) {
					t.Fatalf("%d items of %d rules: %q", len(limits), len(rules), w.Header())
				}
				continue
			}
			if want := `"violated-policies":["` + limits[0].name + `"]`; len(limits) != 1 ||
				!strings.Contains(w.Body.String(), want) {
				t.Fatalf("%s of %q, want %s", w.Body, w.Header(), want)
			}
			if retry, _ := strconv.ParseInt(w.Header().Get("Retry-After"), 10, 64); retry != limits[0].numbers["t"] {
				t.Fatalf("Retry-After and t differ in %q", w.Header())
			}
		}
	})
}

// TestFieldsOfOuterMiddlewaresGetThroughTimeoutHandler: it gives its handler a separate header, whose fields
// replace those that were there.
func TestFieldsOfOuterMiddlewaresGetThroughTimeoutHandler(t *testing.T) {
	gate := core.NewMemory(core.WithClock(func() time.Time { return time.Unix(1e9, 0) }))
	outer := ruleOf(limit.NewTokenBucket(gate, "outer", limit.PerHour(9)))
	outer.Headers.Legacy = true
	inner := ruleOf(limit.NewTokenBucket(gate, "inner", limit.PerHour(2)))
	app := nethttpmw.HTTP(outer)(http.TimeoutHandler(nethttpmw.HTTP(inner)(http.HandlerFunc(
		func(http.ResponseWriter, *http.Request) {})), time.Hour, ""))
	for i, want := range []string{
		`"outer";r=8;t=400|"inner";r=1;t=1800`, `"outer";r=7;t=400|"inner";r=0;t=1800`,
		`"outer";r=6;t=400|"inner";r=0;t=1800`,
	} {
		w := httptest.NewRecorder()
		app.ServeHTTP(w, blankRequest())
		if got := strings.Join(w.Header().Values("RateLimit"), "|"); got != want {
			t.Errorf("%d: %s, want %s", w.Code, got, want)
		}
		if got := w.Header().Values("RateLimit-Policy"); !slices.Equal(got,
			[]string{`"outer";q=9;w=3600`, `"inner";q=2;w=3600`}) {
			t.Errorf("%q", got)
		}
		if got := w.Header().Get("X-RateLimit-Remaining"); got != fmt.Sprint(8-i) {
			t.Errorf("X-RateLimit-Remaining %q", got)
		}
	}
}

// TestInformationalAnswersGoBeforeTheFields: the final answer has the fields, also after informational
// answers.
func TestInformationalAnswersGoBeforeTheFields(t *testing.T) {
	srv := httptest.NewServer(nethttpmw.HTTP(ruleOf(limit.NewTokenBucket(core.NewMemory(), "site",
		limit.PerHour(9))))(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusNoContent)
		})))
	defer srv.Close()
	answer := get(t, t.Context(), srv)
	if got := answer.Header.Values("RateLimit"); answer.StatusCode != http.StatusNoContent ||
		!slices.Equal(got, []string{`"site";r=8;t=400`}) {
		t.Errorf("%d %q", answer.StatusCode, got)
	}
}

// TestHandlersMayChangeTheFields: a handler's changes to its header do not reach other requests.
func TestHandlersMayChangeTheFields(t *testing.T) {
	app := nethttpmw.HTTP(ruleOf(limit.NewTokenBucket(core.NewMemory(), "site",
		limit.PerHour(9))))(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) {
			for name := range w.Header() {
				w.Header().Add(name, "more")
				w.Header()[name][0] = "changed"
			}
		}))
	for range 3 {
		w := httptest.NewRecorder()
		app.ServeHTTP(w, blankRequest())
		for _, name := range []string{"RateLimit", "RateLimit-Policy"} {
			if got := w.Header().Values(name); !slices.Equal(got, []string{"changed", "more"}) {
				t.Errorf("%s: %q", name, got)
			}
		}
	}
}

// TestGuardsSayTheirUnit: an application's guard that counts concurrent requests has no window.
func TestGuardsSayTheirUnit(t *testing.T) {
	guard := &judge{fake{name: "slots", traits: core.Traits{Unit: "concurrent-requests"}}, core.Decision{
		Reason: core.ReasonLimited, Limit: 8, RetryAfter: 3 * time.Second,
	}}
	w := httptest.NewRecorder()
	nethttpmw.HTTP(ruleOf(guard))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w,
		blankRequest())
	if got, want := w.Header().Get("RateLimit-Policy"), `"slots";q=8;qu="concurrent-requests"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := w.Header().Get("RateLimit"), `"slots";r=0;t=3`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestPartitionKeysAreBytes: see RFC 9651, section 3.3.5.
func TestPartitionKeysAreBytes(t *testing.T) {
	rule := ruleOf(limit.NewTokenBucket(core.NewMemory(), "site", limit.PerHour(9)))
	rule.Headers.PartitionKey = keyfuncs.Const("ann\r\nSet-Cookie: a=b")
	w := httptest.NewRecorder()
	nethttpmw.HTTP(rule)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w,
		blankRequest())
	if want := `"site";r=8;t=400;pk=:` + base64.StdEncoding.EncodeToString([]byte("ann\r\nSet-Cookie: a=b")) +
		":"; w.Header().Get("RateLimit") != want {
		t.Errorf("%q, want %q", w.Header().Get("RateLimit"), want)
	}
}
