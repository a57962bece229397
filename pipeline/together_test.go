package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/limit/lease"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/timed"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// trips counts the round trips to servers that run scripts.
type trips struct{ n atomic.Int64 }

func (c *trips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			c.n.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (c *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if strings.HasPrefix(cmds[0].Name(), "eval") {
			c.n.Add(1)
		}
		return next(ctx, cmds)
	}
}

// want wants n round trips since the last call.
func (c *trips) want(t testing.TB, n int64, what string) {
	t.Helper()
	if got := c.n.Swap(0); got != n {
		t.Errorf("%s: %d round trips, want %d", what, got, n)
	}
}

// process is one process of an application, with engine, client and guards of its own.
type process struct {
	*core.Engine
	*trips
	made    map[string]*limit.SlidingWindow
	events  *guardtest.Recorder
	masters func(actors ...string) int64 // that have the keys of actors at the guards a, b, c
}

func newProcess(t testing.TB, b redistest.Backend, obeys bool, options ...core.Option) *process {
	t.Helper()
	o := b.Options()
	o.ContextTimeoutEnabled, o.ReadTimeout = obeys, time.Minute
	return newProcessOver(t, b, redis.NewUniversalClient(o), options...)
}

func newProcessOver(
	t testing.TB, b redistest.Backend, rdb redis.UniversalClient, options ...core.Option,
) *process {
	t.Helper()
	t.Cleanup(func() { _ = rdb.Close() })
	p := &process{trips: &trips{}, events: &guardtest.Recorder{}}
	p.masters = func(...string) int64 { return 1 }
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(p.trips) })
		p.masters = func(actors ...string) int64 {
			found := map[string]bool{}
			for _, actor := range actors {
				master, err := cluster.MasterForKey(t.Context(),
					"{"+kit.TagOf(core.Attempt{Actor: actor})+"}")
				if err != nil {
					t.Fatal(err)
				}
				found[master.Options().Addr] = true
			}
			return int64(len(found))
		}
	} else {
		rdb.AddHook(p.trips)
	}
	p.Engine = core.New(rdb, append([]core.Option{core.WithPrefix(b.Prefix),
		core.WithDeadline(time.Minute), core.WithObserver(p.events), core.WithRefusalMemory(0)},
		options...)...)
	return p
}

// ready has the scripts known to the servers, and asks what each guard asks before its first check.
func (p *process) ready(t testing.TB, guards ...*limit.SlidingWindow) {
	t.Helper()
	if err := p.Preload(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, g := range guards {
		if _, err := g.Check(t.Context(), core.Attempt{Actor: "nobody"}); err != nil {
			t.Fatal(err)
		}
	}
	p.n.Store(0)
	p.events.Mu.Lock()
	defer p.events.Mu.Unlock()
	p.events.Events = nil
}

// seen returns the operations that observers were told of, and forgets them.
func (p *process) seen() []string {
	p.events.Mu.Lock()
	defer p.events.Mu.Unlock()
	var ops []string
	for _, e := range p.events.Events {
		ops = append(ops, e.Guard+" "+e.Op)
	}
	p.events.Events = nil
	return ops
}

func (p *process) wantSeen(t testing.TB, want ...string) {
	t.Helper()
	if got := p.seen(); !slices.Equal(got, want) {
		t.Errorf("the observer was told of %q, want %q", got, want)
	}
}

// windows makes a limit for each letter of names.
func (p *process) windows(names string, most ...int64) (all []*limit.SlidingWindow) {
	for i, name := range strings.Split(names, "") {
		all = append(all, limit.NewSlidingWindow(p.Engine, name, limit.PerHour(most[min(i, len(most)-1)])))
	}
	return all
}

// perActor makes a rule for each limit, with an actor of its own.
func perActor(guards []*limit.SlidingWindow, actors ...string) (rules []pipeline.Rule) {
	for i, g := range guards {
		rules = append(rules, pipeline.Rule{Guard: g, Who: keyfuncs.Const(actors[min(i, len(actors)-1)])})
	}
	return rules
}

func answering(status int, rules ...pipeline.Rule) http.Handler {
	return nethttpmw.HTTP(rules...)(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
}

func wantStatus(t testing.TB, app http.Handler, want int) http.Header {
	t.Helper()
	w := httptest.NewRecorder()
	app.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
	if w.Code != want {
		t.Errorf("status %d, want %d", w.Code, want)
	}
	return w.Header()
}

func wantUsed(t testing.TB, g *limit.SlidingWindow, actor string, want int64) {
	t.Helper()
	d, err := g.Peek(t.Context(), core.Attempt{Actor: actor})
	if err != nil || d.Limit-d.Remaining != want {
		t.Errorf("%s has used %d units of %s (%v), want %d", actor, d.Limit-d.Remaining, g.Name(), err, want)
	}
}

// eachClient runs f on all backends, with clients that obey the deadline of a context and with others.
func eachClient(t *testing.T, f func(t *testing.T, b redistest.Backend, obeys bool)) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		for _, obeys := range []bool{true, false} {
			t.Run(fmt.Sprint("obeys ", obeys), func(t *testing.T) { f(t, b, obeys) })
		}
	})
}

// TestThreeLimitsCostOneRoundTrip: each was asked when the one in front had answered. The same holds for what
// a request gives back.
func TestThreeLimitsCostOneRoundTrip(t *testing.T) {
	eachClient(t, func(t *testing.T, b redistest.Backend, obeys bool) {
		p := newProcess(t, b, obeys, core.WithPrefix(fmt.Sprint(b.Prefix, obeys)))
		guards := p.windows("abc", 100, 50, 20)
		p.ready(t, guards...)
		actors := []string{"ann", "site", "team"}
		once := p.masters(actors...)
		rules := perActor(guards, actors...)
		header := wantStatus(t, answering(200, rules...), 200)
		p.want(t, once, "three limits")
		p.wantSeen(t, "a check", "b check", "c check")
		if got := strings.Join(header["Ratelimit"], "|"); got !=
			`"a";r=99;t=3600, "b";r=49;t=3600, "c";r=19;t=3600` {
			t.Errorf("RateLimit %s", got)
		}
		for i := range rules {
			rules[i].Failed = func(status int) bool { return status == http.StatusNotFound }
		}
		wantStatus(t, answering(404, rules...), 404)
		p.want(t, 2*once, "three limits that a request gives back to")
		p.wantSeen(t, "a check", "b check", "c check", "a settle", "b settle", "c settle")
		for i, g := range guards {
			wantUsed(t, g, actors[i], 1)
		}
	})
}

// TestLimitsAreAskedInTurnWithoutSharedCalls: the option turns this off as well.
func TestLimitsAreAskedInTurnWithoutSharedCalls(t *testing.T) {
	b := redistest.Mini(t)
	p := newProcess(t, b, true, core.WithoutSharedCalls())
	guards := p.windows("abc", 100)
	p.ready(t, guards...)
	wantStatus(t, answering(200, perActor(guards, "ann")...), 200)
	p.want(t, 3, "three limits")
	p.wantSeen(t, "a check", "b check", "c check")
}

// TestListsAndShadowsAmongLimitsThatAreAskedTogether: a rule that lets the request pass is not asked, one in
// the shadow refuses nobody, and a denial gives back.
func TestListsAndShadowsAmongLimitsThatAreAskedTogether(t *testing.T) {
	b := redistest.Mini(t)
	p := newProcess(t, b, true)
	guards := p.windows("abcd", 50, 50, 1, 50)
	p.ready(t, guards...)
	everybody := keyfuncs.NewList(keyfuncs.Const("x"), "x")
	rules := perActor(guards, "ann")
	rules[1].Allow = everybody
	rules[2].Rollout = pipeline.Shadow()
	for range 2 { // the second time c would refuse
		wantStatus(t, answering(200, rules...), 200)
		p.want(t, 1, "a list and a shadow")
	}
	if r := rules[2].Rollout.Report(); r.Passed != 1 || r.WouldRefuse != 1 {
		t.Errorf("%+v", r)
	}
	p.wantSeen(t, "a check", "c check", "d check", "a check", "c check", "d check")
	rules[3].Deny = everybody
	wantStatus(t, answering(200, rules...), 403)
	p.want(t, 2, "a denial")
	p.wantSeen(t, "a check", "c check", "d refuse", "a settle")
	wantUsed(t, guards[0], "ann", 2)
}

// TestALaterLimitLeavesNoTraceWhereAnEarlierOneRefuses, although it was asked: the process expected the
// earlier one to allow the request, and other processes had used it up.
//
// Promise: A limit behind one that refuses leaves no figures, events or strikes, although it was asked. Its
// units come back exactly once.
func TestALaterLimitLeavesNoTraceWhereAnEarlierOneRefuses(t *testing.T) {
	eachClient(t, func(t *testing.T, b redistest.Backend, obeys bool) {
		prefix := core.WithPrefix(fmt.Sprint(b.Prefix, obeys))
		p, other := newProcess(t, b, obeys, prefix), newProcess(t, b, obeys, prefix)
		guards := p.windows("abc", 9)
		p.ready(t, guards...)
		rules := perActor(guards, "ann", "site", "team")
		rules[1].Rollout, rules[2].Rollout = new(pipeline.Rollout), new(pipeline.Rollout)
		banned := bans.New(p.Engine, "bans", bans.Options{})
		rules[2].Bans = banned
		for range 9 {
			guardtest.Check(t, other.windows1(t, "a", 9), core.Attempt{Actor: "ann"})
		}
		team := other.windows1(t, "c", 9)
		for range 9 { // so c would refuse as well, and ban
			guardtest.Check(t, team, core.Attempt{Actor: "team"})
		}
		header := wantStatus(t, answering(200, rules...), 429)
		if got := strings.Join(header["Ratelimit"], "|"); !strings.HasPrefix(got, `"a";r=0`) ||
			strings.Contains(got, `"b"`) || strings.Contains(got, `"c"`) {
			t.Errorf("RateLimit %s", got)
		}
		if got := p.n.Load(); got < 2 { // the checks, and what b took
			t.Errorf("%d round trips: the limits behind were not asked", got)
		}
		p.wantSeen(t, "a check")
		for _, rule := range rules[1:] {
			if r := rule.Rollout.Report(); r.Passed+r.Refused != 0 {
				t.Errorf("%+v", r)
			}
		}
		wantUsed(t, guards[0], "ann", 9)
		wantUsed(t, guards[1], "site", 0)
		status, err := banned.Status(t.Context(), core.Attempt{Actor: "team"})
		if err != nil || status.Strikes != 0 {
			t.Errorf("a strike for a rule whose turn did not come: %+v, %v", status, err)
		}
		p.seen()
		p.n.Store(0)
		wantStatus(t, answering(200, rules...), 429)
		p.want(t, 1, "a refusal that the process expects")
		p.wantSeen(t, "a check")
	})
}

// windows1 returns the limit of a name, which it makes once.
func (p *process) windows1(t testing.TB, name string, most int64) *limit.SlidingWindow {
	t.Helper()
	if p.made == nil {
		p.made = map[string]*limit.SlidingWindow{}
	}
	if p.made[name] == nil {
		p.made[name] = p.windows(name, most)[0]
	}
	return p.made[name]
}

// TestLimitsThatRunLowAreAskedInTurn: what is taken for a moment would be what others need. A limit of 8
// units gives its last one only to requests that the rules in front have allowed.
func TestLimitsThatRunLowAreAskedInTurn(t *testing.T) {
	b := redistest.Mini(t)
	p := newProcess(t, b, true)
	guards := p.windows("ab", 100, 8)
	p.ready(t, guards...)
	app := answering(200, perActor(guards, "ann")...)
	for used := range 8 {
		wantStatus(t, app, 200)
		want := int64(1)
		if used == 7 {
			want = 2
		}
		p.want(t, want, fmt.Sprint(used, " units used"))
	}
	wantStatus(t, app, 429)
	p.want(t, 3, "a refusal") // a, then b, then back to a
	wantUsed(t, guards[0], "ann", 8)
	wantUsed(t, guards[1], "ann", 8)
}

// TestAFunctionOfALimitThatRunsLowIsCalledOnce: the limit was asked in vain first, and then again in its turn.
func TestAFunctionOfALimitThatRunsLowIsCalledOnce(t *testing.T) {
	b := redistest.Mini(t)
	p := newProcess(t, b, true)
	calls := 0
	low := limit.NewSlidingWindowBy(p.Engine, "low", func(context.Context, core.Attempt) ([]limit.Limit, error) {
		calls++
		return []limit.Limit{limit.PerHour(1)}, nil
	})
	guards := p.windows("a", 100)
	p.ready(t, guards...)
	app := answering(200, pipeline.Rule{Guard: guards[0], Who: keyfuncs.Const("ann")},
		pipeline.Rule{Guard: low, Who: keyfuncs.Const("ann")})
	for n, status := range []int{200, 429, 429} {
		wantStatus(t, app, status)
		if calls != n+1 {
			t.Errorf("request %d: %d calls", n, calls)
		}
	}
}

// TestLimitsThatAreAskedTogetherLoseNoUnits: requests of two processes at the same limits, many of which are
// refused by each of them. What a limit has counted is what was admitted, and all units are there to be had.
func TestLimitsThatAreAskedTogetherLoseNoUnits(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		const perUser, perTeam, site = 12, 20, 30
		var admitted [4]atomic.Int64
		var apps [2]http.Handler
		var first []*limit.SlidingWindow
		for i := range apps {
			p := newProcess(t, b, i == 0)
			guards := p.windows("abc", perUser, perTeam, site)
			p.ready(t, guards...)
			user := func(r *keyfuncs.Request) (string, error) { return r.Header.Get("User"), nil }
			team := func(r *keyfuncs.Request) (string, error) { return r.Header.Get("User")[:1] + "s", nil }
			apps[i] = answering(200, pipeline.Rule{Guard: guards[0], Who: user},
				pipeline.Rule{Guard: guards[1], Who: team},
				pipeline.Rule{Guard: guards[2], Who: keyfuncs.Const("everybody")})
			first = guards
		}
		users := []string{"a1", "a2", "b1", "b2"}
		ask := func(n int) {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Header.Set("User", users[n%4])
			w := httptest.NewRecorder()
			apps[n/4%2].ServeHTTP(w, r)
			switch w.Code {
			case 200:
				admitted[n%4].Add(1)
			case 429:
			default:
				t.Errorf("status %d", w.Code)
			}
		}
		var all sync.WaitGroup
		for n := range 160 {
			all.Go(func() { ask(n) })
		}
		all.Wait()
		if err := core.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		for n := range 160 { // one after the other, so that nobody takes a unit for a moment
			ask(n)
		}
		total := int64(0)
		for i, user := range users {
			wantUsed(t, first[0], user, admitted[i].Load())
			total += admitted[i].Load()
		}
		wantUsed(t, first[1], "as", admitted[0].Load()+admitted[1].Load())
		wantUsed(t, first[1], "bs", admitted[2].Load()+admitted[3].Load())
		wantUsed(t, first[2], "everybody", total)
		if total != site {
			t.Errorf("%d requests were admitted, want %d", total, site)
		}
	})
}

// TestWhatALaterLimitTookComesBackAlthoughTheReplyIsLost, and once.
func TestWhatALaterLimitTookComesBackAlthoughTheReplyIsLost(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		p, other := newProcessOver(t, b, b.NewClientWith(t, faults)), newProcess(t, b, true)
		guards := p.windows("abc", 9, 20)
		p.ready(t, guards...)
		first := other.windows1(t, "a", 9)
		for range 9 {
			guardtest.Check(t, first, core.Attempt{Actor: "ann"})
		}
		app := answering(200, perActor(guards, "ann", "site", "team")...)
		faults.SwallowReplies("refunds", 4) // of both, and of both that are sent again
		wantStatus(t, app, 429)
		if err := core.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := faults.Swallowed(); n < 3 { // the first takes that of another refund with it, on one server
			t.Errorf("%d replies were lost", n)
		}
		wantUsed(t, guards[1], "site", 0)
		wantUsed(t, guards[2], "team", 0)
		wantUsed(t, guards[0], "ann", 9)
	})
}

// TestChecksWhoseReplyIsLostAmongOthersAreDecidedByThePolicy: those that were answered stand.
func TestChecksWhoseReplyIsLostAmongOthersAreDecidedByThePolicy(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		p := newProcessOver(t, b, b.NewClientWith(t, faults), core.WithoutBreaker())
		guards := p.windows("abc", 20)
		p.ready(t, guards...)
		rules := perActor(guards, "ann") // one master
		faults.SwallowReply(":c:{ann}")
		wantStatus(t, answering(200, rules...), 200)
		p.wantSeen(t, "a check", "b check", "c check", "c check_local")
		if n := faults.Swallowed(); n != 1 {
			t.Errorf("%d replies were lost", n)
		}
		rules[1].OnOutage = core.FailClosed
		faults.SwallowReply(":b:{ann}")
		wantStatus(t, answering(200, rules...), 503)
		p.wantSeen(t, "a check", "b check", "c check", "a settle") // that of c has failed too
		wantUsed(t, guards[0], "ann", 1)                           // the second request gave its unit back
	})
}

// TestAPanicAmongLimitsThatAreAskedTogetherGivesBack what all others took, and it gets to the recoverer as
// it is.
func TestAPanicAmongLimitsThatAreAskedTogetherGivesBack(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		p := newProcess(t, b, true)
		guards := p.windows("ab", 20)
		broken := limit.NewSlidingWindowBy(p.Engine, "c",
			func(context.Context, core.Attempt) ([]limit.Limit, error) { panic(http.ErrAbortHandler) })
		p.ready(t, guards...)
		rules := append(perActor(guards, "ann", "bob"), pipeline.Rule{Guard: broken, Who: keyfuncs.Const("ann")})
		panics := func() {
			defer func() {
				if value, _ := recover().(error); !errors.Is(value, http.ErrAbortHandler) {
					t.Errorf("panic %v", value)
				}
			}()
			wantStatus(t, answering(200, rules...), 0)
		}
		for range 30 { // more than fit beside each other
			panics()
		}
		wantUsed(t, guards[0], "ann", 0)
		wantUsed(t, guards[1], "bob", 0)
		p.n.Store(0)
		wantStatus(t, answering(200, rules[:2]...), 200)
		p.want(t, p.masters("ann", "bob"), "two limits, nothing of which is under way")
	})
}

// audited is a guard of an application that embeds one of core and does more in Check.
type audited struct {
	*limit.SlidingWindow
	checks int
}

func (g *audited) Check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	g.checks++
	return g.SlidingWindow.Check(ctx, a)
}

// TestAGuardThatEmbedsALimitIsAskedByItsOwnCheck, also among limits: what it does there must not be skipped.
func TestAGuardThatEmbedsALimitIsAskedByItsOwnCheck(t *testing.T) {
	b := redistest.Mini(t)
	p := newProcess(t, b, true)
	guards := p.windows("abc", 20)
	p.ready(t, guards...)
	own := &audited{SlidingWindow: guards[1]}
	rules := perActor(guards, "ann")
	rules[1].Guard = own
	wantStatus(t, answering(200, rules...), 200)
	if own.checks != 1 {
		t.Errorf("its Check was called %d times", own.checks)
	}
	p.wantSeen(t, "a check", "b check", "c check")
}

// TestBansOfALaterRuleAreAskedInItsTurn: they find a ban that the process has not heard of, and what the
// guard took along with the limit in front goes back.
func TestBansOfALaterRuleAreAskedInItsTurn(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		p, other := newProcess(t, b, true), newProcess(t, b, true)
		guards := p.windows("ab", 20)
		p.ready(t, guards...)
		rules := perActor(guards, "ann")
		rules[1].Bans = bans.New(p.Engine, "bans", bans.Options{})
		banned := bans.New(other.Engine, "bans", bans.Options{})
		if err := banned.Ban(t.Context(), core.Attempt{Actor: "ann"}, time.Hour); err != nil {
			t.Fatal(err)
		}
		wantStatus(t, answering(200, rules...), 429)
		p.want(t, 4, "the checks, the bans, and what each limit gives back")
		p.wantSeen(t, "a check", "bans check", "a settle")
		for _, g := range guards {
			wantUsed(t, g, "ann", 0)
		}
	})
}

// TestALimitThatLendsIsAskedInItsTurn, since callers may wait for each other's units; while units are in
// hand, those around it share a round trip.
func TestALimitThatLendsIsAskedInItsTurn(t *testing.T) {
	b := redistest.Mini(t)
	p := newProcess(t, b, true)
	guards := p.windows("ab", 10_000)
	lends := lease.New(p.Engine, "lends", limit.PerHour(100_000))
	p.ready(t, append(guards, lends.SlidingWindow)...)
	app := answering(200, pipeline.Rule{Guard: guards[0], Who: keyfuncs.Const("ann")},
		pipeline.Rule{Guard: lends, Who: keyfuncs.Const("ann")},
		pipeline.Rule{Guard: guards[1], Who: keyfuncs.Const("ann")})
	for range 2 { // the first call of an actor fetches nothing ahead
		wantStatus(t, app, 200)
		p.want(t, 3, "a call that fetches units, in its turn")
		p.wantSeen(t, "a check", "lends check", "b check")
	}
	wantStatus(t, app, 200)
	p.want(t, 1, "units in hand")
	p.wantSeen(t, "a check", "lends check", "b check")
}

// TestAClientThatLeavesIsCountedByAllLimits: the checks go on.
func TestAClientThatLeavesIsCountedByAllLimits(t *testing.T) {
	b := redistest.Mini(t)
	p := newProcess(t, b, true)
	guards := p.windows("abc", 20)
	p.ready(t, guards...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequest(http.MethodPost, "/", nil).WithContext(ctx)
	answering(204, perActor(guards, "ann")...).ServeHTTP(httptest.NewRecorder(), r)
	p.want(t, 1, "three limits")
	for _, g := range guards {
		wantUsed(t, g, "ann", 1)
	}
}

// TestClaimsAreAskedInTurn: a claim is not made for a request that a limit in front of it refuses, however
// sure the process is that it does not.
func TestClaimsAreAskedInTurn(t *testing.T) {
	b := redistest.Mini(t)
	p, other := newProcess(t, b, true), newProcess(t, b, true)
	guards := p.windows("ab", 9)
	p.ready(t, guards...)
	poll := votes.New(p.Engine, "poll", votes.Options{})
	rules := append(perActor(guards, "ann"), pipeline.Rule{Guard: poll, Who: keyfuncs.Const("ann"),
		What: keyfuncs.Const("final"), Which: keyfuncs.Const("red")})
	for range 9 {
		guardtest.Check(t, other.windows1(t, "b", 9), core.Attempt{Actor: "ann"})
	}
	wantStatus(t, answering(200, rules...), 429)
	p.want(t, 2, "two limits, and the unit of the first")
	p.wantSeen(t, "a check", "b check", "a settle")
	if err := guards[1].Reset(t.Context(), core.Attempt{Actor: "ann"}); err != nil {
		t.Fatal(err)
	}
	p.seen()
	wantStatus(t, answering(200, rules...), 200)
	p.wantSeen(t, "a check", "b check", "poll check")
}

// TestASlowFunctionOfALaterLimitTakesNoTimeFromEarlierOnes: each check has a deadline of its own.
func TestASlowFunctionOfALaterLimitTakesNoTimeFromEarlierOnes(t *testing.T) {
	t.Parallel()
	timed.Test(t, 500*time.Millisecond, aSlowFunctionTakesNoTime)
}

func aSlowFunctionTakesNoTime(t *timed.T) {
	b := redistest.Mini(t)
	p := newProcess(t, b, true, core.WithDeadline(time.Second))
	guards := p.windows("a", 9)
	slow := limit.NewSlidingWindowBy(p.Engine, "b",
		func(ctx context.Context, _ core.Attempt) ([]limit.Limit, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
	p.ready(t, guards...)
	rules := append(perActor(guards, "ann"), pipeline.Rule{Guard: slow, Who: keyfuncs.Const("ann"),
		OnOutage: core.FailOpen})
	wantStatus(t, answering(200, rules...), 200)
	p.wantSeen(t, "a check", "b check")
	wantUsed(t, guards[0], "ann", 1)
}
