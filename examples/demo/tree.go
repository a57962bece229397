package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/budget"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/ops/control"
)

// branch is a node of the tree of budgets: the organisation, a team, or a user.
type branch struct {
	Name, Level, Team string
	Max               int64
}

// branches is the tree, from the top. Each team has what its users may have, and the organisation less than
// its teams.
var branches = []branch{
	{"acme", "org", "", 50},
	{"web", "team", "web", 30}, {"ann", "user", "web", 15}, {"bob", "user", "web", 15},
	{"data", "team", "data", 30}, {"cid", "user", "data", 15}, {"dee", "user", "data", 15},
}

// hitField carries the level that has refused from the rule's Answer to the asker. It is no field of the
// middleware.
const hitField = "Demo-Hit"

const raisedUnits = 20 // what ann may have when support has raised her limit

// tree is an organisation whose users ask through two processes.
type tree struct {
	org   string
	sizes sizes
	guard *budget.Guard // of one process, and the desk of the same
	desk  *control.Desk
	apps  []http.Handler
	begin time.Time

	mu    sync.Mutex
	ends  time.Time // the run, when no button was pressed for long enough
	all   bool      // all flood, and not ann alone
	nodes map[string]node
	users map[string]*asker
}

// asker is a user, and how they were answered.
type asker struct {
	path             []string
	allowed, refused int
	hit              string    // the level that refused the last one that was refused, or the reason
	until            time.Time // until when hit is shown
	last             string    // the answer
}

// node is how a node stands, by Redis. Hit is what has just refused a user; of the others, their level if it
// has just refused somebody.
type node struct {
	Used int64  `json:"used"`
	Max  int64  `json:"max"`
	Hit  string `json:"hit"`
}

// floodTheTree lets one user send far more than the others. The page may let all flood, raise the user's
// limit for an hour, and pause their team. Events: "counts" while it runs, and "done".
func floodTheTree(ctx context.Context, in *instance, t *tape) error {
	tr := &tree{org: fresh("acme"), sizes: in.sizes, begin: time.Now(), ends: time.Now().Add(in.sizes.Quiet),
		nodes: map[string]node{}, users: map[string]*asker{}}
	for _, b := range branches {
		tr.nodes[b.Name] = node{Max: b.Max}
		if b.Level == "user" {
			tr.users[b.Name] = &asker{path: []string{tr.org, b.Team, b.Name}}
		}
	}
	ended, end := context.WithCancel(ctx)
	end() // the desk decides about a budget, and need not follow
	for range 2 {
		w := in.store.hire()
		defer w.kill()
		guard := budget.New(w.gate, "api", budget.Options{Levels: []string{"org", "team", "user"}, Find: tr.find,
			Keep: longestRun})
		rule := ratelimit.Rule{
			Guard: guard,
			Under: []keyfuncs.Func{keyfuncs.User("org"), keyfuncs.User("team")},
			Who:   keyfuncs.User("uid"),
			Answer: func(w http.ResponseWriter, r *http.Request, refusal *ratelimit.Refusal) {
				hit, _ := budget.Binding(refusal.Decision)
				w.Header().Set(hitField, cmp.Or(hit.Level, string(refusal.Reason)))
				refusal.Reply(w, r)
			},
		}
		answer := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		tr.apps = append(tr.apps, ratelimit.HTTP(rule)(answer))
		tr.guard, tr.desk = guard, control.New(ended, w.gate, "desk")
		tr.desk.Budget(guard)
	}
	t.buttons(tr.change)
	return counting(ctx, t, 250*time.Millisecond, tr.counts, func(ctx context.Context) error {
		asks, leave := context.WithCancel(ctx)
		var all sync.WaitGroup
		defer all.Wait()
		defer leave()
		for name := range tr.users {
			all.Go(func() { tr.live(asks, name) })
		}
		return until(ctx, 50*time.Millisecond, func() (bool, error) {
			tr.mu.Lock()
			defer tr.mu.Unlock()
			return time.Now().After(tr.ends), nil
		})
	})
}

// find knows the limits of the tree.
func (t *tree) find(path []string) ([]budget.Limit, error) {
	for _, b := range branches {
		if b.Level == "org" && len(path) == 1 || b.Name == path[len(path)-1] {
			return []budget.Limit{{Max: b.Max, Window: t.sizes.Span}}, nil
		}
	}
	return nil, budget.ErrUnknown
}

// live has a user ask: half of what they may, or far more while they flood.
func (t *tree) live(ctx context.Context, name string) {
	wait := rand.N(t.sizes.Span / 8)
	for pause(ctx, wait) == nil {
		t.ask(ctx, t.users[name])
		wait = t.sizes.Span / 8
		t.mu.Lock()
		if name == "ann" || t.all {
			wait = t.sizes.Span / 100
		}
		t.mu.Unlock()
	}
}

// ask sends a request by one of the processes.
func (t *tree) ask(ctx context.Context, u *asker) {
	for i, key := range []string{"org", "team", "uid"} {
		ctx = keyfuncs.WithValue(ctx, key, u.path[i])
	}
	w := httptest.NewRecorder()
	t.apps[rand.IntN(len(t.apps))].ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	if ctx.Err() != nil {
		return // the run ends
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	u.last = fmt.Sprintf("%d %s", w.Code, http.StatusText(w.Code))
	for _, field := range []string{"RateLimit-Policy", "RateLimit", "Retry-After"} {
		if value := w.Header().Get(field); value != "" {
			u.last += "\n" + field + ": " + strings.ReplaceAll(value, ", ", ",\n  ")
		}
	}
	if w.Code == http.StatusOK {
		u.allowed++
		return
	}
	u.refused++
	u.hit, u.until = w.Header().Get(hitField), time.Now().Add(t.sizes.Span/4)
	u.last += "\n\nbudget.Binding: " + u.hit
}

// counts looks at the tree. The users count what they were told.
func (t *tree) counts(ctx context.Context) (object, error) {
	for _, u := range t.users {
		figures, err := t.guard.Usage(ctx, core.Attempt{Actor: budget.Path(u.path...)})
		if err != nil {
			return nil, err
		}
		for _, f := range figures { // there are none while it is paused: the last ones stay
			name := f.Path[len(f.Path)-1]
			if f.Level == "org" {
				name = "acme"
			}
			t.nodes[name] = node{Used: f.Used, Max: f.Max}
		}
	}
	decided, err := t.desk.Decided(ctx, control.Decision{Kind: control.Budget, Name: "api", Of: t.org})
	if err != nil {
		return nil, err
	}
	raised, paused := time.Duration(0), false
	for _, d := range decided {
		if d.Kind == control.Budget {
			raised = max(time.Until(d.Until), 0)
		}
		paused = paused || d.Kind == control.Pause
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	nodes, others, ann := maps.Clone(t.nodes), 0, t.users["ann"]
	hit := func(name, what string) { nodes[name] = node{nodes[name].Used, nodes[name].Max, what} }
	for name, u := range t.users {
		if u != ann {
			others += u.refused
		}
		if time.Now().After(u.until) {
			continue
		}
		hit(name, u.hit)
		switch u.hit {
		case "org":
			hit("acme", u.hit)
		case "team", "paused":
			hit(u.path[1], u.hit)
		}
	}
	return object{"nodes": nodes, "all": t.all, "paused": paused, "raised_ms": raised.Milliseconds(),
		"allowed": ann.allowed, "refused": ann.refused, "answer": ann.last, "others": others}, nil
}

// change is a button: it turns something on or off. One process is told of it, and all obey.
func (t *tree) change(ctx context.Context, what string, on bool) error {
	raise := control.Decision{Kind: control.Budget, Name: "api", Of: budget.Path(t.org, "web", "ann"),
		Value: budget.Limit{Max: raisedUnits, Window: t.sizes.Span}.String(), Until: time.Now().Add(t.sizes.Hour)}
	leaked := control.Decision{Kind: control.Pause, Name: "api", Of: budget.Path(t.org, "web"), Value: "on"}
	t.mu.Lock()
	if ends := time.Now().Add(t.sizes.Quiet); ends.Before(t.begin.Add(longestRun * 9 / 10)) {
		t.ends = ends
	}
	if what == "all" {
		t.all = on
	}
	t.mu.Unlock()
	switch {
	case what == "raise" && on:
		return t.desk.Decide(ctx, raise, "sue", "launch day")
	case what == "raise":
		return t.desk.Withdraw(ctx, raise, "sue", "taken back")
	case what == "pause" && on:
		return t.desk.Decide(ctx, leaked, "sue", "a key leaked")
	case what == "pause":
		return t.desk.Withdraw(ctx, leaked, "sue", "new key")
	}
	return nil
}
