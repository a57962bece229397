package operator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/idempotency"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/quota"
	"github.com/gatehouse-go/gatehouse/core/redpacket"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/ops/operator"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// desk is an operator handler with one guard of each kind, and its audit records.
type desk struct {
	*testing.T
	http.Handler
	limit   *limit.SlidingWindow
	bans    *bans.Guard
	votes   *votes.Guard
	quota   *quota.Guard
	sale    *seckill.Guard
	packet  *redpacket.Guard
	once    *idempotency.Guard
	rollout *pipeline.Rollout

	mu     sync.Mutex
	events []operator.Event
	broken error // what the audit answers
}

// century is a period that does not end during a test.
func century(time.Time) (begins, ends time.Time) {
	return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
}

// newDesk returns a desk that admits only eve, who may not close anything.
func newDesk(t *testing.T, b redistest.Backend, options ...core.Option) *desk {
	t.Helper()
	gate := core.New(b.Client, append(options, core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute),
		core.WithObserver(ignore{}))...)
	d := &desk{
		T:       t,
		limit:   limit.NewSlidingWindow(gate, "limit", limit.PerHour(2)),
		bans:    bans.New(gate, "bans", bans.Options{}),
		votes:   votes.New(gate, "vote", votes.Options{Audit: true}),
		quota:   quota.New(gate, "quota", quota.Options{Items: 3, Period: century}),
		sale:    seckill.New(gate, "sale", seckill.Options{}),
		packet:  redpacket.New(gate, "packet", redpacket.Options{}),
		once:    idempotency.New(gate, "once", idempotency.Options{}),
		rollout: new(pipeline.Rollout),
	}
	d.Handler = operator.New(operator.Options{
		Rules: []pipeline.Rule{
			{Guard: d.limit, Who: keyfuncs.IP(), Bans: d.bans, Rollout: d.rollout},
			{Guard: d.limit, Who: keyfuncs.IP(), Bans: d.bans, Rollout: d.rollout}, // mounted on another route
			{Guard: d.votes, Who: keyfuncs.IP()},
		},
		Guards: []core.Guard{d.quota, d.sale, d.packet, d.once, d.limit},
		Authorize: func(r *keyfuncs.Request, a operator.Action) (string, error) {
			name, _, _ := r.BasicAuth()
			if name != "eve" || a.Name == "close" {
				return "", fmt.Errorf("%q may not %s", name, a.Name)
			}
			return name, nil
		},
		Audit: func(_ context.Context, e operator.Event) error {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.events = append(d.events, e)
			return d.broken
		},
	})
	return d
}

type ignore struct{}

func (ignore) Observe(context.Context, core.Event) {}

// request makes a request by eve. Fields are "name=value".
func request(method, path string, fields ...string) *http.Request {
	form := url.Values{}
	for _, field := range fields {
		name, value, _ := strings.Cut(field, "=")
		form.Add(name, value)
	}
	var r *http.Request
	if method == http.MethodPost {
		r = httptest.NewRequest(method, path, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	} else {
		r = httptest.NewRequest(method, path+"?"+form.Encode(), nil)
	}
	r.SetBasicAuth("eve", "")
	return r
}

func (d *desk) send(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	if w.Header().Get("Cache-Control") != "no-store" && w.Code != http.StatusForbidden {
		d.Errorf("%s %s: %v can be cached", r.Method, r.URL, w.Header())
	}
	return w
}

// want sends a request and wants this answer.
func (d *desk) want(r *http.Request, status int, body string) {
	d.Helper()
	if w := d.send(r); w.Code != status || body != "" && strings.TrimSpace(w.Body.String()) != body {
		d.Errorf("%s %s: %d %s, want %d %s", r.Method, r.URL, w.Code, w.Body, status, body)
	}
}

func get(path string, fields ...string) *http.Request {
	return request(http.MethodGet, path, fields...)
}
func post(path string, fields ...string) *http.Request {
	return request(http.MethodPost, path, fields...)
}

func must[T any](t *testing.T) func(value T, err error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func TestOperatorLooksAndChanges(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		d := newDesk(t, b)
		ctx := t.Context()
		decided := must[core.Decision](t)

		for range 2 {
			decided(d.limit.Check(ctx, core.Attempt{Actor: "203.0.113.7", Resource: "/a b"}))
		}
		var peek struct {
			Allowed   bool   `json:"allowed"`
			Reason    string `json:"reason"`
			Limit     int64  `json:"limit"`
			Remaining int64  `json:"remaining"`
			Window    string `json:"window"`
		}
		w := d.send(get("/limit/peek", "actor=203.0.113.7", "resource=/a b"))
		if err := json.Unmarshal(w.Body.Bytes(), &peek); err != nil || peek.Allowed || peek.Reason != "limited" ||
			peek.Limit != 2 ||
			peek.Remaining != 0 || peek.Window != "1h0m0s" {
			t.Errorf("peek: %s (%v)", w.Body, err)
		}
		d.want(post("/limit/reset", "actor=203.0.113.7", "resource=/a b"), 200, `{"done":true}`)
		if got := decided(d.limit.Check(ctx, core.Attempt{Actor: "203.0.113.7", Resource: "/a b"})); !got.Allowed {
			t.Errorf("after the reset: %+v", got)
		}

		d.want(post("/bans/ban", "actor=ann", "length=90m"), 200, `{"done":true}`)
		d.want(get("/bans/peek", "actor=ann"), 404, "")
		if w := d.send(get("/bans/status", "actor=ann")); !strings.Contains(w.Body.String(), `"banned_for":"1h`) {
			t.Errorf("the ban: %s", w.Body)
		}
		d.want(post("/bans/unban", "actor=ann"), 200, `{"done":true}`)
		if got := decided(d.bans.Check(ctx, core.Attempt{Actor: "ann"})); !got.Allowed {
			t.Errorf("after the unban: %+v", got)
		}

		decided(d.votes.Check(ctx, core.Attempt{Actor: "ann", Resource: "final", Item: "red"}))
		d.want(get("/vote/tally", "poll=final"), 200, `{"red":1}`)
		for i := range 3 {
			decided(d.votes.Check(ctx, core.Attempt{
				Actor: fmt.Sprint("bot ", i), Resource: "final", Item: "blue", Origin: "198.51.100.7",
			}))
		}
		d.want(get("/vote/top", "poll=final", "choices=1"), 200, `[{"choice":"blue","weight":3}]`)
		d.want(get("/vote/find-votes", "poll=final", "origin=198.51.100.7"), 200,
			`{"matched":3,"voided":3,"weights":{"blue":3}}`)
		d.want(get("/vote/tally", "poll=final"), 200, `{"blue":3,"red":1}`)
		d.want(post("/vote/void-votes", "poll=final", "voter=bot 1", "origin=198.51.100.7"), 200,
			`{"matched":1,"voided":1,"weights":{"blue":1}}`)
		d.want(post("/vote/void-votes", "poll=final", "origin=198.51.100.7"), 200,
			`{"matched":3,"voided":2,"weights":{"blue":2}}`)
		d.want(get("/vote/tally", "poll=final"), 200, `{"red":1}`)
		d.want(post("/vote/void-votes", "poll=final"), 400, "")
		d.want(get("/vote/verify", "poll=final"), 200, "")
		d.want(post("/vote/repair", "poll=final"), 200, "")

		decided(d.quota.Check(ctx, core.Attempt{Actor: "ann", Item: "article-1"}))
		d.want(get("/quota/used", "actor=ann"), 200, `{"items":["article-1"],"remaining":2}`)
		d.want(post("/quota/reset", "actor=ann"), 200, `{"done":true}`)
		d.want(get("/quota/used", "actor=ann"), 200, "")

		must[bool](t)(d.sale.Open(ctx, "tv", seckill.Sale{Stock: 5}))
		decided(d.sale.Check(ctx, core.Attempt{Actor: "ann", Resource: "tv"}))
		d.wantStatus("/sale/status", 5, 4, 1)
		for range 2 { // once for each operation ID
			d.want(post("/sale/restock", "item=tv", "id=delivery-1", "units=10"), 200, "")
		}
		d.wantStatus("/sale/status", 15, 14, 1)
		d.want(post("/sale/restock", "item=tv", "id=delivery-2", "units=-99"), 409, "")
		d.want(post("/sale/sweep", "item=tv"), 200, `{"swept":0}`)
		d.want(get("/sale/status", "item=radio"), 404, "")
		if w := d.send(get("/sale/verify", "item=tv")); w.Code != 200 ||
			!strings.Contains(w.Body.String(), `"wrong_timers":0`) {
			t.Errorf("verify: %d %s", w.Code, w.Body)
		}

		must[bool](t)(d.packet.Create(ctx, "party",
			redpacket.Packet{Total: 10, Shares: 2, Expires: time.Now().Add(time.Hour)}))
		if w := d.send(get("/packet/verify", "packet=party")); w.Code != 200 ||
			!strings.Contains(w.Body.String(), `"grabbed":{}`) {
			t.Errorf("verify: %d %s", w.Code, w.Body)
		}
		d.want(post("/packet/refund", "packet=party"), 409, "")
		d.want(post("/packet/refund", "packet=none"), 404, "")

		operation := core.Attempt{Actor: "ann", ID: "order-1"}
		decided(d.once.Check(ctx, operation))
		if got := decided(d.once.Check(ctx, operation)); got.Allowed {
			t.Errorf("an operation that runs: %+v", got)
		}
		d.want(post("/once/reset", "actor=ann"), 400, "")
		d.want(post("/once/reset", "actor=ann", "id=order-1"), 200, `{"done":true}`)
		if got := decided(d.once.Check(ctx, operation)); !got.Allowed {
			t.Errorf("after its reset: %+v", got)
		}

		d.want(post("/limit/set-rollout", "enabled=50", "enforced=12.5"), 200, "")
		d.want(post("/limit/switch", "on=false"), 200, "")
		if r := d.rollout.Report(); r.On || r.Enabled != 50 || r.Enforced != 12.5 {
			t.Errorf("%+v", r)
		}
		if w := d.send(get("/limit/rollout")); !strings.HasPrefix(w.Body.String(),
			`{"on":false,"enabled":50,"enforced":12.5`) {
			t.Errorf("rollout: %s", w.Body)
		}
		d.want(post("/limit/set-rollout", "enabled=10", "enforced=20"), 400, "")
	})
}

func (d *desk) wantStatus(path string, stock, left, held int64) {
	d.Helper()
	var s seckill.Status
	w := d.send(get(path, "item=tv"))
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || s.Stock != stock || s.Left != left ||
		s.Held != held {
		d.Errorf("%s: %s (%v), want %d, %d, %d", path, w.Body, err, stock, left, held)
	}
}

func TestOperatorRecordsEachChange(t *testing.T) {
	d := newDesk(t, redistest.Mini(t))
	d.want(get("/limit/peek", "actor=ann"), 200, "")
	if len(d.events) != 0 {
		t.Errorf("looking has left %+v", d.events)
	}
	d.want(post("/limit/reset", "actor=ann"), 200, "")
	d.want(post("/sale/restock", "item=tv", "id=1", "units=2"), 404, "")
	type half struct {
		who, guard, action, field string
		changes, done             bool
		err                       error
	}
	var got []half
	for _, e := range d.events {
		err := e.Err
		if errors.Is(err, seckill.ErrNoSale) {
			err = seckill.ErrNoSale
		}
		got = append(got, half{e.Operator, e.Action.Guard, e.Action.Name,
			e.Action.Fields["actor"] + e.Action.Fields["item"],
			e.Action.Changes, e.Done, err})
		if time.Since(e.Time) > time.Minute {
			t.Errorf("at %v", e.Time)
		}
	}
	if want := []half{
		{"eve", "limit", "reset", "ann", true, false, nil},
		{"eve", "limit", "reset", "ann", true, true, nil},
		{"eve", "sale", "restock", "tv", true, false, nil},
		{"eve", "sale", "restock", "tv", true, true, seckill.ErrNoSale},
	}; !slices.Equal(got, want) {
		t.Errorf("recorded\n%+v, want\n%+v", got, want)
	}
}

func TestOperatorChangesNothingWithoutARecord(t *testing.T) {
	d := newDesk(t, redistest.Mini(t))
	for range 2 {
		must[core.Decision](t)(d.limit.Check(t.Context(), core.Attempt{Actor: "ann"}))
	}
	d.broken = errors.New("disk full at 192.0.2.1")
	w := d.send(post("/limit/reset", "actor=ann"))
	if w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "192.0.2.1") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if got := must[core.Decision](t)(d.limit.Peek(t.Context(), core.Attempt{Actor: "ann"})); got.Allowed {
		t.Error("the limit was reset")
	}
}

// TestOperatorChangesAreNotCutShort: a change is completed and audited although the browser closes the page.
func TestOperatorChangesAreNotCutShort(t *testing.T) {
	d := newDesk(t, redistest.Mini(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d.want(post("/limit/reset", "actor=ann").WithContext(ctx), 200, "")
	if len(d.events) != 2 || d.events[1].Err != nil {
		t.Errorf("%+v", d.events)
	}
}

func TestOperatorAsksAuthorizeFirst(t *testing.T) {
	d := newDesk(t, redistest.Mini(t))
	for _, r := range []*http.Request{
		get("/"), get("/limit/peek", "actor=ann"), post("/limit/reset", "actor=ann"),
		post("/sale/restock", "item=tv"), get("/none/peek"),
	} {
		r.SetBasicAuth("mallory", "")
		w := d.send(r)
		if w.Code != http.StatusForbidden || strings.Contains(w.Body.String(), "mallory") {
			t.Errorf("%s %s: %d %s", r.Method, r.URL, w.Code, w.Body)
		}
	}
	d.want(post("/sale/close", "item=tv"), http.StatusForbidden, "") // not for eve
	if len(d.events) != 0 {
		t.Errorf("recorded %+v", d.events)
	}

	r := post("/limit/reset", "actor=ann") // a form on another site, sent by the browser of eve
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	d.want(r, http.StatusForbidden, "")
}

func TestOperatorRefusesInvalidRequests(t *testing.T) {
	d := newDesk(t, redistest.Mini(t))
	in := func(body string) *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/limit/reset", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json; charset=utf-8")
		r.SetBasicAuth("eve", "")
		return r
	}
	for _, tt := range []struct {
		r      *http.Request
		status int
	}{
		{get("/none/peek", "actor=ann"), 404},
		{get("/limit/tally", "actor=ann"), 404},
		{get("/limit"), 404},
		{get("/limit/reset", "actor=ann"), 405},
		{request(http.MethodDelete, "/limit/reset", "actor=ann"), 405},
		{post("/limit/peek", "actor=ann"), 405},
		{get("/limit/peek"), 400},
		{get("/limit/peek", "actor="), 400},
		{get("/limit/peek", "actor=ann", "actor=bob"), 400},
		{get("/limit/peek", "actor=ann", "resorce=/a"), 400}, // else it would look at, or reset, another key
		{post("/sale/restock", "item=tv", "id=1", "units=many"), 400},
		{post("/sale/restock", "item=tv", "id=1", "units=9223372036854775808"), 400},
		{post("/sale/restock", "item=tv", "id=1", "units=0"), 400},
		{post("/bans/ban", "actor=ann", "length=soon"), 400},
		{post("/bans/ban", "actor=ann", "length=-1h"), 400},
		{post("/limit/switch", "on=maybe"), 400},
		{post("/limit/set-rollout", "enabled=NaN", "enforced=0"), 400},
		{in(`{"actor": "ann"}`), 200},
		{in(`{"actor": 7}`), 400},
		{in(`{"actor": "ann"} {"actor": "bob"}`), 400},
		{in(`{`), 400},
		{in(`{"actor": "` + strings.Repeat("a", 1<<17) + `"}`), 400},
		{post("/limit/reset", "actor="+strings.Repeat("a", 1<<17)), 400},
		{get("/limit/peek", "actor=a\x00{b}\xff"), 200},
	} {
		d.want(tt.r, tt.status, "")
	}
}

func TestOperatorPages(t *testing.T) {
	d := newDesk(t, redistest.Mini(t))
	var list struct {
		Guards []struct {
			Name, Kind string
			Actions    []string
		}
	}
	w := d.send(get("/"))
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, g := range list.Guards {
		text += fmt.Sprintln(g.Name, g.Kind, g.Actions)
	}
	if want := `limit limit [peek reset rollout set-rollout switch let-in-again]
bans bans [status ban unban let-in-again]
vote votes [tally top verify find-votes void-votes repair]
quota quota [used reset let-in-again]
sale sale [status verify repair restock sweep close]
packet red packet [verify refund]
once idempotency [reset]
`; text != want {
		t.Errorf("the list is\n%s, want\n%s", text, want)
	}

	must[core.Decision](t)(d.votes.Check(t.Context(),
		core.Attempt{Actor: "ann", Resource: "final", Item: "<script>alert(1)</script>"}))
	for path, want := range map[string]string{
		"/":                       `<form method="post" action="sale/restock">`,
		"/vote/tally?poll=final":  `<dt>&lt;script&gt;alert(1)&lt;/script&gt;</dt><dd>1</dd>`,
		"/limit/peek":             `actor is missing`,
		"/limit/peek?<b>=1&actor": `missing`,
	} {
		r := get(path)
		r.URL.RawQuery = strings.TrimPrefix(strings.TrimPrefix(path, r.URL.Path), "?")
		r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
		w := d.send(r)
		if body := w.Body.String(); !strings.Contains(body, want) || strings.Contains(body, "<script>") ||
			strings.Contains(body, "<b>") ||
			w.Header().Get("Content-Type") != "text/html; charset=utf-8" ||
			!strings.Contains(w.Header().Get("Content-Security-Policy"), "'none'") {
			t.Errorf("%s: %d %v %s, want %s in it", path, w.Code, w.Header(), body, want)
		}
	}
}

// TestOperatorPagesLeadBackToTheList: only pages of a guard have the link, and only for those who may see it.
// On others it led out of the handler's mount point.
func TestOperatorPagesLeadBackToTheList(t *testing.T) {
	d := newDesk(t, redistest.Mini(t))
	for path, want := range map[string]bool{
		"/ops/limit/peek?actor=ann": true,
		"/limit/peek?actor=ann":     true,
		"/limit/peek":               true,
		"/sale/close?item=tv":       false, // refused
		"/ops/such":                 false,
		"/":                         false,
		"/ops/":                     false,
		"/limit":                    false,
		"/limit/peek/more":          false,
	} {
		for _, name := range []string{"eve", "mallory"} { // the other one is refused
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.SetBasicAuth(name, "")
			r.Header.Set("Accept", "text/html")
			want := want && name == "eve"
			if body := d.send(r).Body.String(); strings.Contains(body, `<a href="../">`) != want {
				t.Errorf("%s for %s: a link back: %t, want %t:\n%s", path, name, !want, want, body)
			}
		}
	}
}

func TestOperatorWithoutRedis(t *testing.T) {
	b, faults := redistest.Mini(t), redistest.NewFaults(t)
	b.Client = b.NewClientWith(t, faults)
	d := newDesk(t, b)
	addr := b.Mini.Addr()
	faults.Refuse(true)
	for _, r := range []*http.Request{get("/limit/peek", "actor=ann"), post("/limit/reset", "actor=ann"),
		get("/sale/status", "item=tv")} {
		if w := d.send(r); w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), addr) {
			t.Errorf("%s: %d %s", r.URL, w.Code, w.Body)
		}
	}
}

// TestRolloutsOfSeveralLists: a guard that is in several lists has the roll-out of each, by the list's name.
func TestRolloutsOfSeveralLists(t *testing.T) {
	g := limit.NewSlidingWindow(core.NewMemory(), "limit", limit.PerHour(2))
	list := func(name string, r *pipeline.Rollout) operator.List {
		return operator.List{Name: name, Rules: []pipeline.Rule{{Guard: g, Who: keyfuncs.IP(), Rollout: r}}}
	}
	shared, other := pipeline.Shadow(), new(pipeline.Rollout)
	for want, lists := range map[string][]operator.List{
		"/rollout": {list("a", shared), list("b", shared), list("c", nil)},
		"/rollout-a /rollout-b /set-rollout-b /switch-b": {list("a", shared), list("b", other)},
	} {
		h := operator.New(operator.Options{Lists: lists,
			Authorize: func(*keyfuncs.Request, operator.Action) (string, error) { return "sue", nil }})
		for action := range strings.FieldsSeq(want) {
			method, status := http.MethodGet, http.StatusOK
			if !strings.HasPrefix(action, "/rollout") {
				method, status = http.MethodPost, http.StatusBadRequest // its fields are missing
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(method, "/ops/limit"+action, nil))
			if w.Code != status {
				t.Errorf("%s: %d %s", action, w.Code, w.Body)
			}
		}
	}
	h := operator.New(operator.Options{Lists: []operator.List{list("a", shared), list("b", other)},
		Authorize: func(*keyfuncs.Request, operator.Action) (string, error) { return "sue", nil }})
	fields := strings.NewReader("enabled=50&enforced=5")
	r := httptest.NewRequest(http.MethodPost, "/ops/limit/set-rollout-b", fields)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	h.ServeHTTP(httptest.NewRecorder(), r)
	if other.Report().Enforced != 5 || shared.Report().Enforced != 0 {
		t.Errorf("%+v, %+v", shared.Report(), other.Report())
	}
}

func TestOperatorSetUpMistakes(t *testing.T) {
	gate, other := core.NewMemory(), core.NewMemory()
	limit, twin := limit.NewSlidingWindow(gate, "limit", limit.PerHour(2)),
		limit.NewSlidingWindow(other, "limit", limit.PerHour(2))
	anybody := func(*keyfuncs.Request, operator.Action) (string, error) { return "", nil }
	rule := func(r *pipeline.Rollout) pipeline.Rule {
		return pipeline.Rule{Guard: limit, Who: keyfuncs.IP(), Rollout: r}
	}
	for want, o := range map[string]operator.Options{
		"requires Options.Authorize": {Guards: []core.Guard{limit}},
		"nothing to show":            {Authorize: anybody},
		"nil guard":                  {Authorize: anybody, Guards: []core.Guard{nil}},
		"two guards of different engines have the name": {Authorize: anybody, Guards: []core.Guard{limit, twin}},
		"have different rollouts": {Authorize: anybody,
			Rules: []pipeline.Rule{rule(pipeline.Shadow()), rule(pipeline.Shadow())}},
	} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, want) {
					t.Errorf("%s, want a panic with %q", text, want)
				}
			}()
			operator.New(o)
		}()
	}
}
