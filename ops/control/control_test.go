package control

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/ops/operator"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// process is what one process has: limits of 60 an hour, a list with "eve", and a rule in the shadow.
type process struct {
	t       *testing.T
	desk    *Desk
	api     *limit.SlidingWindow
	list    *keyfuncs.List
	rollout *pipeline.Rollout
	log     *logged
}

// logged is a log for a test.
type logged struct{ guardtest.Output }

func (l *logged) count(text string) int { return strings.Count(l.String(), text) }

const onlyMessages = time.Hour // between two looks

func start(t *testing.T, rdb script.Client, prefix string, looks time.Duration, options ...core.Option,
) *process {
	t.Helper()
	key := func(r *keyfuncs.Request) (string, error) { return r.Header.Get("Key"), nil }
	p := &process{t: t, log: &logged{}, rollout: pipeline.Shadow(), list: keyfuncs.NewList(key, "eve")}
	gate := core.New(rdb, append([]core.Option{core.WithPrefix(prefix), core.WithDeadline(time.Minute),
		core.WithObserver(guardtest.Ignore{}), core.WithLogger(slog.New(slog.NewTextHandler(p.log, nil)))},
		options...)...)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	p.desk = newDesk(ctx, gate, "desk", looks)
	p.api = limit.NewSlidingWindow(gate, "api", limit.PerHour(60))
	p.desk.Limits(p.api)
	p.desk.List("blocked", p.list)
	p.desk.Rollout("tighter", p.rollout)
	return p
}

// max returns the Max that an actor has now.
func (p *process) max(actor string) int64 {
	p.t.Helper()
	limits, err := p.limitsOf(actor)
	if err != nil {
		p.t.Fatal(err)
	}
	return limits
}

func (p *process) limitsOf(actor string) (int64, error) {
	d, err := p.api.Peek(p.t.Context(), core.Attempt{Actor: actor})
	return d.Limit, err
}

func (p *process) has(key string) bool {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header["Key"] = []string{key}
	in, err := p.list.Contains(&keyfuncs.Request{Request: r})
	return in && err == nil
}

func (p *process) shares() string {
	r := p.rollout.Report()
	return fmt.Sprint(r.On, r.Enabled, r.Enforced)
}

func (p *process) decide(x Decision) {
	p.t.Helper()
	if err := p.desk.Decide(p.t.Context(), x, "sue", "launch"); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) withdraw(x Decision) {
	p.t.Helper()
	if err := p.desk.Withdraw(p.t.Context(), x, "sue", ""); err != nil {
		p.t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	redistest.Eventually(t, time.Minute, cond, what)
}

// hear waits until the channel of the desk has that many listeners.
func hear(t *testing.T, b redistest.Backend, d *Desk, n int64) {
	t.Helper()
	eventually(t, "the processes listen", func() bool {
		var all int64
		err := b.ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error {
			heard, err := c.PubSubNumSub(ctx, d.channel).Result()
			all += heard[d.channel]
			return err
		})
		return err == nil && all == n
	})
}

var (
	forAll = Decision{Kind: Limits, Name: "api", Value: "100/h"}
	forAnn = Decision{Kind: Limits, Name: "api", Of: "ann", Value: "600/h"}
	bobIn  = Decision{Kind: List, Name: "blocked", Of: "bob", Value: "in"}
	eveOut = Decision{Kind: List, Name: "blocked", Of: "eve", Value: "out"}
	tenth  = Decision{Kind: Rollout, Name: "tighter", Value: "100 10"}
)

// TestEveryProcessObeysAtOnce: by the message alone, since nobody looks. What is withdrawn is as the code says.
//
// Promise: A decision holds in each process as soon as its message arrives. After a withdrawal the code's
// value holds. All is audited.
func TestEveryProcessObeysAtOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		one := start(t, b.NewClient(t), b.Prefix, onlyMessages)
		two := start(t, b.NewClient(t), b.Prefix, onlyMessages)
		hear(t, b, one.desk, 2)
		steps := []struct {
			x          Decision
			is, was    func(p *process) bool
			withdrawer *process
		}{
			{forAnn, func(p *process) bool { return p.max("ann") == 600 },
				func(p *process) bool { return p.max("ann") == 100 }, one},
			{forAll, func(p *process) bool { return p.max("cid") == 100 },
				func(p *process) bool { return p.max("cid") == 60 }, two},
			{bobIn, func(p *process) bool { return p.has("bob") },
				func(p *process) bool { return !p.has("bob") }, one},
			{eveOut, func(p *process) bool { return !p.has("eve") },
				func(p *process) bool { return p.has("eve") }, two},
			{tenth, func(p *process) bool { return p.shares() == "true 100 10" },
				func(p *process) bool { return p.shares() == "true 100 0" }, two},
		}
		for _, s := range steps {
			one.decide(s.x)
			if !s.is(one) || s.x == forAnn && one.max("cid") != 60 || s.x == bobIn && !one.has("eve") {
				t.Errorf("the process itself does not obey %+v", s.x)
			}
			eventually(t, fmt.Sprintf("the other process obeys %+v", s.x), func() bool { return s.is(two) })
		}
		all, err := two.desk.Decided(t.Context(), Decision{})
		if err != nil || len(all) != len(steps) || all[0] != forAll {
			t.Errorf("decided are %+v, %v", all, err)
		}
		late := start(t, b.NewClient(t), b.Prefix, onlyMessages)
		for _, s := range steps {
			if !s.is(late) {
				t.Errorf("a process that has just begun does not obey %+v", s.x)
			}
		}
		for _, s := range steps {
			s.withdrawer.withdraw(s.x)
			for _, p := range []*process{one, two} {
				eventually(t, fmt.Sprintf("%+v is over", s.x), func() bool { return s.was(p) })
			}
		}
		audit, err := one.desk.Audit(t.Context(), Decision{})
		if err != nil || len(audit) != 2*len(steps) || audit[0].Who != "sue" || audit[0].Why != "launch" ||
			audit[0].Decision != forAnn || audit[5].Value != "" || audit[5].Of != "ann" || audit[0].At.IsZero() {
			t.Errorf("the audit has %+v, %v", audit, err)
		}
	})
}

// until returns the moment after a time, by the server's clock.
func (p *process) until(after time.Duration) time.Time {
	p.t.Helper()
	at, err := p.desk.in(p.t.Context(), after)
	if err != nil {
		p.t.Fatal(err)
	}
	return at
}

// TestADecisionEndsByItself: with Redis, and without one.
//
// Promise: A decision ends by itself, by the server's clock, without Redis too.
func TestADecisionEndsByItself(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	one := start(t, server.Client(t), "gatehouse", onlyMessages)
	two := start(t, server.Client(t), "gatehouse", onlyMessages)
	var soonest Decision
	for lasts := time.Second / 2; ; lasts *= 2 { // on a slow machine the first one is over too soon
		for _, x := range []Decision{forAnn, bobIn, eveOut, tenth} {
			x.Until = one.until(lasts)
			one.decide(x)
		}
		all, err := one.desk.Decided(t.Context(), Decision{})
		if err != nil || len(all) < 4 && lasts > time.Minute {
			t.Fatalf("%+v, %v", all, err)
		}
		if len(all) == 4 {
			soonest = all[0]
			break
		}
	}
	if soonest.Until.IsZero() {
		t.Fatalf("%+v has no end", soonest)
	}
	asBefore := func(p *process) bool { return !p.has("bob") && p.has("eve") && p.shares() == "true 100 0" }
	for _, p := range []*process{one, two} {
		eventually(t, "all is over", func() bool { return asBefore(p) && p.max("ann") == 60 })
	}
	if now := one.until(time.Millisecond); now.Before(soonest.Until) {
		t.Errorf("it was over at %v, before %v", now, soonest.Until)
	}
	tenth := tenth
	tenth.Until = one.until(time.Second)
	one.decide(tenth)
	bob := bobIn
	bob.Until = tenth.Until
	one.decide(bob)
	server.Kill()
	if keeps := one.has("bob") && one.shares() == "true 100 10"; !keeps && time.Now().Before(tenth.Until) {
		t.Error("what was known is forgotten when Redis is gone")
	}
	eventually(t, "all is over without Redis", func() bool { return asBefore(one) })
}

// deaf is a client that cannot listen.
type deaf struct{ script.Client }

// TestALostMessageCostsASecond: of a client that cannot listen, and where connections are cut.
//
// Promise: A lost message, or a client that cannot listen, costs a second.
func TestALostMessageCostsASecond(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	rdb := server.Client(t)
	const looks = time.Second / 10 // a second but for tests
	one := start(t, deaf{rdb}, "gatehouse", looks)
	two := start(t, server.Client(t), "gatehouse", looks)
	eventually(t, "one listens", func() bool {
		return rdb.PubSubNumSub(t.Context(), two.desk.channel).Val()[two.desk.channel] == 1
	})
	for n := range 3 {
		if err := rdb.Do(t.Context(), "client", "kill", "type", "pubsub").Err(); err != nil {
			t.Fatal(err)
		}
		x := forAnn
		x.Value = fmt.Sprintf("%d/h", 601+n)
		one.decide(x)
		eventually(t, "the others look", func() bool { return two.max("ann") == int64(601+n) })
		x.Value = fmt.Sprintf("%d/h", 701+n)
		two.decide(x)
		eventually(t, "who cannot listen looks", func() bool { return one.max("ann") == int64(701+n) })
	}
}

// TestRedisIsDownAtTheStartAndInBetween: limits work, what was known stays, and what is decided is obeyed when
// Redis is there again. One that has lost its data gets them back.
//
// Promise: Without Redis the last known decisions stay, and limits work.
func TestRedisIsDownAtTheStartAndInBetween(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t, "--appendonly", "yes")
	other := start(t, server.Client(t), "gatehouse", 10*time.Millisecond)
	other.decide(tenth)
	server.Stop()
	p := start(t, server.Client(t), "gatehouse", 10*time.Millisecond)
	if p.shares() != "true 100 0" || other.shares() != "true 100 10" {
		t.Errorf("without Redis: %s, %s", p.shares(), other.shares())
	}
	const cannot, again = "cannot read what operators have decided", "is read again"
	eventually(t, "it is logged", func() bool {
		return p.log.count(cannot) == 1 && other.log.count(cannot) == 1
	})
	server.Start()
	eventually(t, "it is obeyed", func() bool { return p.shares() == "true 100 10" })
	eventually(t, "it is logged", func() bool { return p.log.count(again) == 1 && other.log.count(again) == 1 })
	other.decide(bobIn)
	eventually(t, "it is obeyed", func() bool { return p.has("bob") })
	if err := server.Client(t).FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	other.decide(eveOut) // the first change of the new data
	eventually(t, "all is obeyed", func() bool {
		all, err := p.desk.Decided(t.Context(), Decision{})
		return err == nil && len(all) == 3 && p.has("bob") && !p.has("eve") && p.shares() == "true 100 10"
	})
	if n := p.log.count(cannot); n != 1 {
		t.Errorf("%d lines, want 1", n)
	}
}

// TestMalformedDecisionsAreIgnored: each with one line of the log, and the others are obeyed.
//
// Promise: Malformed decisions, and limits that the guard cannot keep, are ignored with one line of the log.
func TestMalformedDecisionsAreIgnored(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		p := start(t, b.NewClient(t), b.Prefix, 10*time.Millisecond)
		bad := map[string]string{
			"": "", "limits": "0 1 1/h", "limits|api|": "", "limits|api|a": "x 1 1/h",
			"limits|api|b": "0 1 1/fortnight", "limits|api|c": "0 1 0/h", "limits|api|d": "0 1 20000/h",
			"limits|api|e": "0", "limits|api|f|g": "0 1 1/h", "list|blocked|": "0 1 in",
			"list|blocked|10.0.0.0%2F33": "0 1 in", "list|blocked|x": "0 1 perhaps",
			"rollout|tighter|": "0 1 10 20", "rollout|tighter|x": "0 1 100 0", "rollout||": "0 1 100 0",
			"limits|api|h": "99999999999999999999 1 1/h", "odd|api|": "0 1 1", "limits|other|": "0 1 1/fortnight",
			"limits|api|%": "-5 1 5/h", "\xff|\x00|": "\xff", "limits|api|year": "9000000000000000000 1 5/h",
			"limits|api|i": "0 1/h", "limits|api|j": "0 -1 1/h",
		}
		for field, value := range bad {
			if err := b.Client.HSet(t.Context(), p.desk.root, field, value).Err(); err != nil {
				t.Fatal(err)
			}
		}
		p.decide(bobIn)
		p.decide(forAnn)
		if !p.has("bob") || p.has("x") || p.max("ann") != 600 || p.max("d") != 60 || p.shares() != "true 100 0" {
			t.Errorf("%v %v %v %s", p.has("bob"), p.max("ann"), p.max("d"), p.shares())
		}
		p.decide(eveOut) // read again, and said once
		const line = "a decision is ignored"
		if n := p.log.count(line); n != 20 {
			t.Errorf("%d lines, want 20:\n%s", n, p.log.String())
		}
		if all, err := p.desk.Decided(t.Context(), Decision{}); err != nil {
			t.Error(err)
		} else if _, err := json.Marshal(all); err != nil {
			t.Error(err) // of a year that JSON does not know
		}
		p.withdraw(Decision{Kind: Limits, Name: "api", Of: "d"})
		if err := b.Client.Set(t.Context(), p.desk.root, "no hash", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is logged", func() bool { return p.log.count("cannot read") == 1 })
		if !p.has("bob") {
			t.Error("what was known is forgotten")
		}
	})
}

// TestNamesAreAnyText: braces, bars, 10 kB, no UTF-8.
func TestNamesAreAnyText(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		one := start(t, b.NewClient(t), b.Prefix, 10*time.Millisecond)
		two := start(t, b.NewClient(t), b.Prefix, 10*time.Millisecond)
		for i, text := range guardtest.Hostile {
			own := keyfuncs.NewList(func(*keyfuncs.Request) (string, error) { return text, nil })
			two.desk.List(text, own)
			one.decide(Decision{Kind: Limits, Name: "api", Of: text, Value: fmt.Sprintf("%d/h", 100+i)})
			one.decide(Decision{Kind: List, Name: "blocked", Of: text, Value: "in"})
			one.decide(Decision{Kind: List, Name: text, Of: text, Value: "in"})
			eventually(t, fmt.Sprintf("%.40q", text), func() bool {
				in, err := own.Contains(&keyfuncs.Request{Request: httptest.NewRequest(http.MethodGet, "/", nil)})
				return two.max(text) == int64(100+i) && two.has(text) && in && err == nil
			})
		}
		all, err := two.desk.Decided(t.Context(), Decision{})
		if err != nil || len(all) != 3*len(guardtest.Hostile) {
			t.Errorf("%d decisions, %v", len(all), err)
		}
		for _, x := range all {
			one.withdraw(x)
		}
		if all, err := two.desk.Decided(t.Context(), Decision{}); err != nil || len(all) != 0 {
			t.Errorf("%d decisions, %v", len(all), err)
		}
	})
}

// TestMistakesAreSaid: at the set-up by a panic, of operators by an ErrInvalid, and nothing changes.
func TestMistakesAreSaid(t *testing.T) {
	p := start(t, deaf{redistest.Single(t).Client}, redistest.Single(t).Prefix, onlyMessages)
	guardtest.WantPanic(t, "bind each once", func() { p.desk.List("blocked", p.list) })
	guardtest.WantPanic(t, "bind each once", func() { p.desk.Limits(p.api) })
	guardtest.WantPanic(t, "no name", func() { p.desk.Rollout("", p.rollout) })
	guardtest.WantPanic(t, "needs Redis", func() { New(t.Context(), core.NewMemory(), "desk") })
	guardtest.WantPanic(t, `named "desk"`, func() { New(t.Context(), p.desk.Engine(), "desk") })
	p.desk.Release(List, "blocked")
	p.desk.List("blocked", p.list)
	p.desk.List("addresses", keyfuncs.NewList(keyfuncs.IP()))
	for _, x := range []Decision{
		{}, {Kind: "quota", Name: "api", Value: "1"}, {Kind: Limits, Value: "1/h"},
		{Kind: Limits, Name: "api", Value: "many"}, {Kind: Limits, Name: "api"},
		{Kind: Limits, Name: "api", Value: "20000/h"}, // the guard counts one by one
		{Kind: List, Name: "blocked", Of: "x", Value: "maybe"}, {Kind: List, Name: "blocked", Value: "in"},
		{Kind: List, Name: "blocked", Of: "10.0.0.0/33", Value: "in"},
		{Kind: List, Name: "blocked", Of: "203.0.113.*", Value: "in"}, // it denied nobody, in silence
		{Kind: List, Name: "elsewhere", Of: "203.0.113.7-203.0.113.9", Value: "in"},
		{Kind: List, Name: "addresses", Of: "ann", Value: "in"},
		{Kind: Rollout, Name: "tighter", Value: "50 60"}, {Kind: Rollout, Name: "tighter", Value: "50"},
		{Kind: Rollout, Name: "tighter", Value: "NaN NaN"}, {Kind: Rollout, Name: "tighter", Of: "x", Value: "1 1"},
		{Kind: Rollout, Name: "tighter", Value: "1 1", Until: time.UnixMilli(-5)},
	} {
		if err := p.desk.Decide(t.Context(), x, "sue", ""); !guardtest.IsInvalid(err) {
			t.Errorf("%+v: %v, want an ErrInvalid", x, err)
		}
	}
	if err := p.desk.Decide(t.Context(), bobIn, "", ""); !guardtest.IsInvalid(err) {
		t.Errorf("nobody has decided: %v", err)
	}
	if all, err := p.desk.Decided(t.Context(), Decision{}); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestOperatorsUseTheDesk: by its operations, from a process that only decides.
func TestOperatorsUseTheDesk(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		p := start(t, b.NewClient(t), b.Prefix, 10*time.Millisecond)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		desk := New(ended, guardtest.NewEngine(b), "desk")
		do := func(name string, texts map[string]string) (any, error) {
			t.Helper()
			for _, o := range desk.Describe().Operations {
				if o.Name == name {
					in, err := o.Read(texts)
					if err != nil {
						t.Fatal(err)
					}
					return o.Run(t.Context(), in)
				}
			}
			t.Fatalf("no operation %s", name)
			return nil, nil
		}
		texts := map[string]string{"kind": "limits", "name": "api", "of": "ann", "value": "600/h", "for": "1h",
			"who": "sue", "why": "launch"}
		if _, err := do("decide", texts); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is obeyed", func() bool { return p.max("ann") == 600 })
		shown, err := do("decided", nil)
		if all, _ := shown.([]Decision); err != nil || len(all) != 1 || time.Until(all[0].Until) < 59*time.Minute {
			t.Errorf("%+v, %v", shown, err)
		}
		texts["for"] = "-1h"
		if _, err := do("decide", texts); !guardtest.IsInvalid(err) {
			t.Errorf("for less than no time: %v", err)
		}
		delete(texts, "for")
		delete(texts, "value")
		if _, err := do("withdraw", texts); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is over", func() bool { return p.max("ann") == 60 })
		if shown, err := do("audit", nil); err != nil || len(shown.([]Audited)) != 2 {
			t.Errorf("%+v, %v", shown, err)
		}
	})
}

// TestThePageOfOperatorsHasTheDesk: what is decided stands on the list, and forms decide.
func TestThePageOfOperatorsHasTheDesk(t *testing.T) {
	b := redistest.Single(t)
	p := start(t, b.NewClient(t), b.Prefix, 10*time.Millisecond)
	page := operator.New(operator.Options{Tools: []kit.Tool{p.desk},
		Authorize: func(*keyfuncs.Request, operator.Action) (string, error) { return "sue", nil }})
	ask := func(method, path, form string) string {
		t.Helper()
		r := httptest.NewRequest(method, path, strings.NewReader(form))
		r.Header.Set("Accept", "text/html")
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r)
		if w.Code != 200 {
			t.Errorf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
		return w.Body.String()
	}
	const form = "kind=limits&name=api&of=ann&value=600%2Fmin&for=1h&who=sue&why=launch"
	if text := ask("POST", "/ops/desk/decide", form); !strings.Contains(text, "Done") {
		t.Errorf("the page says %s", text)
	}
	if text := ask("GET", "/ops/", ""); p.max("ann") != 600 || !strings.Contains(text, "600/min") {
		t.Errorf("the list says %s", text)
	}
	if text := ask("GET", "/ops/desk/audit", ""); !strings.Contains(text, "launch") {
		t.Errorf("the audit says %s", text)
	}
}
