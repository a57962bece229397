package config_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/idempotency"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/lock"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/quota"
	"github.com/gatehouse-go/gatehouse/core/redpacket"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/ops/config"
	"github.com/gatehouse-go/gatehouse/pipeline"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// everyGuard has a guard of each kind that a file can have.
const everyGuard = `
keys:
  client: {first_of: [{user: uid}, {ip: {ipv6_prefix: 56}}]}
lists:
  staff: {key: {user: uid}, entries: [root]}
guards:
  window: {sliding_window: {limits: "3/min, 4/h"}}
  parts: {sliding_window: {limits: "20_000/day/1440"}}
  leased: {leased_window: {limits: "5000/s"}}
  fixed: {fixed_window: {limits: "2/min"}}
  bucket: {token_bucket: {limits: "2/h"}}
  tiers: {sliding_window: {tiers: {by: {header: X-Plan}, of: {pro: 4/h, staff: unlimited}, others: 1/h}}}
  poll:
    votes:
      polls:
        final: {choices: [red, blue], change: true, opens: "2020-01-01T00:00:00Z"}
        over: {closes: "2020-01-02T00:00:00+01:00"}
  sale: {seckill: {keep: 48h}}
  daily: {quota: {items: 2, period: {every: day, zone: Europe/Berlin}}}
  gift: {redpacket: {}}
  once: {idempotency: {keep: 1h, max_body: 100, max_actor: 5000, max_stored: 1000000}}
  slots: {semaphore: {max: 1}}
  account: {lock: {lease: 5s}}
  strikes: {bans: {refusals: 2, first: 1h, longest: 1h}}
rules:
  window: [{guard: window, who: client, allow: staff, bans: strikes}]
  parts: [{guard: parts, who: client, what: route, cost: 7_000}]
  leased: [{guard: leased, who: client, what: route, cost: 3_000}]
  fixed: [{guard: fixed, who: client, deny: staff}]
  bucket: [{guard: bucket, who: client, counted: [401, 5xx], headers: {legacy: true}}]
  tiers: [{guard: tiers, who: client}]
  poll: [{guard: poll, who: client, what: {query: what}, which: {query: which}, origin: ip}]
  sale: [{guard: sale, who: client, what: {query: what}, id: idempotency_key}]
  daily: [{guard: daily, who: client, which: {query: which}, failed: [404]}]
  gift: [{guard: gift, who: client, what: {query: what}}]
  once: [{guard: once, who: client, id: idempotency_key, no_key: skip}]
  slots: [{guard: slots, who: client, on_outage: closed}]
  account: [{guard: account, who: client, what: {query: what}, rollout: {enforced: 50}}]
`

// codeRules is everyGuard as code.
func codeRules(e *core.Engine) map[string]pipeline.Rule {
	client := keyfuncs.FirstOf(keyfuncs.User("uid"), keyfuncs.IP(keyfuncs.IPv6Prefix(56)))
	what, which, id := keyfuncs.Query("what"), keyfuncs.Query("which"), keyfuncs.IdempotencyKey()
	staff := keyfuncs.NewList(keyfuncs.User("uid"), "root")
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		panic(err)
	}
	half := pipeline.Shadow()
	if err := half.Set(100, 50); err != nil {
		panic(err)
	}
	byPlan := func(_ context.Context, a core.Attempt) ([]limit.Limit, error) {
		switch a.Item {
		case "pro":
			return []limit.Limit{limit.PerHour(4)}, nil
		case "staff":
			return nil, nil
		}
		return []limit.Limit{limit.PerHour(1)}, nil
	}
	tiers := limit.NewSlidingWindowBy(e, "tiers", byPlan)
	plan := func(r *keyfuncs.Request) (string, error) {
		plan, err := keyfuncs.Header("X-Plan")(r)
		if errors.Is(err, keyfuncs.ErrMissing) {
			return "none", nil
		}
		return plan, err
	}
	find := func(_ context.Context, poll string) (votes.Poll, error) {
		switch poll {
		case "final":
			return votes.Poll{Choices: []string{"red", "blue"}, Change: true,
				Opens: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)}, nil
		case "over":
			return votes.Poll{Closes: time.Date(2020, 1, 1, 23, 0, 0, 0, time.UTC)}, nil
		}
		return votes.Poll{}, votes.ErrNoPoll
	}
	return map[string]pipeline.Rule{
		"window": {Guard: limit.NewSlidingWindow(e, "window", limit.PerMinute(3), limit.PerHour(4)), Who: client,
			Allow: staff, Bans: bans.New(e, "strikes",
				bans.Options{Refusals: 2, First: time.Hour, Longest: time.Hour})},
		"parts": {Guard: limit.NewSlidingWindow(e, "parts", limit.PerDay(20_000).WithResolution(1440)), Who: client,
			What: keyfuncs.Route(), Cost: func(*keyfuncs.Request) (int64, error) { return 7000, nil }},
		"fixed": {Guard: limit.NewFixedWindow(e, "fixed", limit.PerMinute(2)), Who: client, Deny: staff},
		"bucket": {Guard: limit.NewTokenBucket(e, "bucket", limit.PerHour(2)), Who: client,
			Failed:  func(status int) bool { return status != 401 && status < 500 },
			Headers: answers.Headers{Legacy: true}},
		"tiers": {Guard: tiers, Who: client, Which: plan},
		"poll": {Guard: votes.New(e, "poll", votes.Options{Find: find}), Who: client, What: what, Which: which,
			Origin: keyfuncs.IP()},
		"sale": {Guard: seckill.New(e, "sale", seckill.Options{Keep: 48 * time.Hour}), Who: client, What: what,
			ID: id},
		"daily": {Guard: quota.New(e, "daily", quota.Options{Items: 2, Period: period.Daily(berlin)}), Who: client,
			Which: which, Failed: func(status int) bool { return status == 404 }},
		"gift": {Guard: redpacket.New(e, "gift", redpacket.Options{}), Who: client, What: what},
		"once": {Guard: idempotency.New(e, "once", idempotency.Options{Keep: time.Hour, MaxBody: 100,
			MaxActor: 5000, MaxStored: 1_000_000}),
			Who: client, ID: id, NoKey: pipeline.NoKeySkip},
		"slots": {Guard: semaphore.New(e, "slots", semaphore.Options{Max: 1}), Who: client,
			OnOutage: core.FailClosed},
		"account": {Guard: lock.New(e, "account", lock.Options{Lease: 5 * time.Second}), Who: client, What: what,
			Rollout: half},
	}
}

// TestAFileIsTheSameAsCode: guards and rules of a file answer the same requests in the same way as those of
// code, and leave the same keys in Redis.
func TestAFileIsTheSameAsCode(t *testing.T) {
	ofFile, ofCode := redistest.Single(t), redistest.Single(t)
	still := guardtest.WithClock(guardtest.NewClock()) // no day ends between a request and the same request
	fileGate, codeGate := guardtest.NewEngine(ofFile, still), guardtest.NewEngine(ofCode, still)
	c, err := config.Parse("rules.yaml", []byte(everyGuard))
	if err != nil {
		t.Fatal(err)
	}
	set, err := c.Build(fileGate)
	if err != nil {
		t.Fatal(err)
	}
	code := codeRules(codeGate)
	open := func(sale core.Guard, gift core.Guard) {
		if _, err := sale.(*seckill.Guard).Open(t.Context(), "x", seckill.Sale{Stock: 2}); err != nil {
			t.Fatal(err)
		}
		packet := redpacket.Packet{Total: 2, Shares: 2, Expires: time.Now().Add(time.Hour).Truncate(time.Hour)}
		packet.Expires = packet.Expires.Add(time.Hour)
		if _, err := gift.(*redpacket.Guard).Create(t.Context(), "x", packet); err != nil {
			t.Fatal(err)
		}
	}
	open(set.Guard("sale"), set.Guard("gift"))
	open(code["sale"].Guard, code["gift"].Guard)

	for name, rule := range code {
		t.Run(name, func(t *testing.T) {
			one, other := newSite(nethttpmw.Follow(set.Pipeline(name))), newSite(nethttpmw.HTTP(rule))
			for i, r := range requestsFor(name) {
				got, want := r.send(one), r.send(other)
				if got != want {
					t.Errorf("request %d %+v: got %s, want %s", i, r, got, want)
				}
			}
		})
	}
	got, want := keysOf(t, ofFile), keysOf(t, ofCode)
	if !slices.Equal(got, want) || len(got) < 14 {
		t.Errorf("keys of the file\n%s\nof the code\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// request is a request of a user, whose handler answers with a status.
type request struct {
	user, plan, what, which, id string
	status                      int
}

func requestsFor(list string) []request {
	var all []request
	for _, user := range []string{"ann", "ben", "", "root"} {
		for _, plan := range []string{"", "pro", "staff", "made-up"} {
			all = append(all, request{user, plan, "x", "red", "1", 200})
		}
		all = append(all, request{user, "", "final", "red", "2", 200}, request{user, "", "final", "blue", "3", 401},
			request{user, "", "final", "green", "4", 404}, request{user, "", "over", "red", "5", 500},
			request{user, "", "", "", "", 200})
	}
	if list == "once" { // a request without an operation ID, in the end
		all = append(all, request{"ann", "", "x", "red", "", 200})
	}
	return all
}

func (r request) send(h http.Handler) string {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	set("what", r.what)
	set("which", r.which)
	req := httptest.NewRequest(http.MethodPost, "/shop?"+q.Encode(), nil)
	if r.user != "" {
		req = req.WithContext(keyfuncs.WithValue(req.Context(), "uid", r.user))
	}
	if r.id != "" {
		req.Header.Set("Idempotency-Key", r.id)
	}
	if r.plan != "" {
		req.Header.Set("X-Plan", r.plan)
	}
	req.Header.Set("X-Status", fmt.Sprint(r.status))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	header := w.Header()
	return fmt.Sprintln(w.Code, header.Get("Ratelimit-Policy"), remaining(header.Get("Ratelimit")),
		header.Get("X-Ratelimit-Remaining"), header.Get("Idempotent-Replayed"), reasonOf(w.Body.String()))
}

// remaining returns a RateLimit field without its times, which pass between two requests.
func remaining(field string) string {
	before, _, _ := strings.Cut(field, ";t=")
	return before
}

func reasonOf(body string) string {
	_, after, _ := strings.Cut(body, `"reason":"`)
	reason, _, _ := strings.Cut(after, `"`)
	return reason
}

func newSite(guarded func(http.Handler) http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /shop", guarded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := 200
		_, _ = fmt.Sscan(r.Header.Get("X-Status"), &status)
		w.WriteHeader(status)
	})))
	return mux
}

// keysOf returns the keys of a backend without its prefix.
func keysOf(t *testing.T, b redistest.Backend) []string {
	var keys []string
	err := b.ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error {
		for scan := c.Scan(ctx, 0, b.Prefix+":*", 1000).Iterator(); scan.Next(ctx); {
			key, _, _ := strings.Cut(strings.TrimPrefix(scan.Val(), b.Prefix), ":op|") // a random ID
			key, _, _ = strings.Cut(key, ":items|")                                    // a day, which may have ended
			keys = append(keys, key)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	return keys
}
