package main

import (
	"cmp"
	"context"
	"fmt"
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
	org     string
	span    time.Duration // of the windows
	hour    time.Duration
	quiet   time.Duration // the run ends when no button was pressed for so long
	workers []*worker
	guards  []*budget.Guard
	apps    []http.Handler
	begin   time.Time

	mu       sync.Mutex
	ends     time.Time
	flooding map[string]bool
	nodes    map[string]*treeNode // by name
	users    map[string]*asker
}

// asker is a user, and how they were answered.
type asker struct {
	path             []string
	allowed, refused int
	hit              string    // the level that refused the last one that was refused, or the reason
	until            time.Time // until when hit is shown
	last             string    // the answer
}

// treeNode is how a node stands.
type treeNode struct {
	Name string `json:"name"`
	Used int64  `json:"used"` // by Redis, as is Max
	Max  int64  `json:"max"`
	// Hit is what has just refused a user; of the others, their level if it has just refused somebody.
	Hit string `json:"hit"`
}

// treeCounts is how the tree stands. Figures of users are counted by the users.
type treeCounts struct {
	MS       int64      `json:"ms"`
	Nodes    []treeNode `json:"nodes"`
	All      bool       `json:"all"`       // all flood
	Paused   bool       `json:"paused"`    // team web
	RaisedMS int64      `json:"raised_ms"` // how long the override lasts
	Allowed  int        `json:"allowed"`   // of ann
	Refused  int        `json:"refused"`
	Others   int        `json:"others"` // their refused requests
	Hit      string     `json:"hit"`    // what has just refused ann
	Answer   string     `json:"answer"` // the last one to ann
}

// floodTheTree lets one user send far more than the others. The page may let all flood, raise the user's
// limit for an hour, and pause their team. Events: "counts" while it runs, and "done", with treeCounts.
func floodTheTree(ctx context.Context, in *instance, send func(string, any)) error {
	t := in.newTree()
	defer t.end()
	in.tree.Store(t)
	defer in.tree.Store(nil)
	return counting(ctx, send, 250*time.Millisecond, t.counts, func() (err error) {
		asks, leave := context.WithCancel(ctx)
		defer leave()
		var all sync.WaitGroup
		for name := range t.users {
			all.Go(func() { t.live(asks, name) })
		}
		for err == nil && t.left() > 0 {
			err = pause(ctx, t.left())
		}
		leave()
		all.Wait()
		return err
	})
}

func (in *instance) newTree() *tree {
	t := &tree{org: in.fresh("acme"), span: in.sizes.Span, hour: in.sizes.Hour, quiet: in.sizes.Quiet,
		begin: time.Now(), ends: time.Now().Add(in.sizes.Quiet),
		flooding: map[string]bool{"ann": true}, nodes: map[string]*treeNode{}, users: map[string]*asker{}}
	for _, b := range branches {
		t.nodes[b.Name] = &treeNode{Name: b.Name, Max: b.Max}
		if b.Level == "user" {
			t.users[b.Name] = &asker{path: []string{t.org, b.Team, b.Name}}
		}
	}
	for range 2 {
		w := in.store.hire()
		guard := budget.New(w.gate, "api", budget.Options{Levels: []string{"org", "team", "user"}, Find: t.find,
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
		t.workers, t.guards = append(t.workers, w), append(t.guards, guard)
		t.apps = append(t.apps, ratelimit.HTTP(rule)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	}
	return t
}

// left is how long the run lasts yet.
func (t *tree) left() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Until(t.ends)
}

func (t *tree) end() {
	for _, w := range t.workers {
		w.kill()
	}
}

// find knows the limits of the tree.
func (t *tree) find(path []string) ([]budget.Limit, error) {
	for _, b := range branches {
		if b.Level == "org" && len(path) == 1 || b.Name == path[len(path)-1] {
			return []budget.Limit{{Max: b.Max, Window: t.span}}, nil
		}
	}
	return nil, budget.ErrUnknown
}

// live has a user ask: half of what they may, or far more while they flood.
func (t *tree) live(ctx context.Context, name string) {
	wait := rand.N(t.span / 8)
	for pause(ctx, wait) == nil {
		t.ask(ctx, name)
		t.mu.Lock()
		wait = t.span / 8
		if t.flooding[name] {
			wait = t.span / 100
		}
		t.mu.Unlock()
	}
}

// ask sends a request by one of the processes.
func (t *tree) ask(ctx context.Context, name string) {
	u := t.users[name]
	ctx = keyfuncs.WithValue(ctx, "org", u.path[0])
	ctx = keyfuncs.WithValue(ctx, "team", u.path[1])
	ctx = keyfuncs.WithValue(ctx, "uid", u.path[2])
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
	u.hit, u.until = w.Header().Get(hitField), time.Now().Add(t.span/4)
	u.last += "\n\nbudget.Binding: " + u.hit
}

// counts looks at the tree.
func (t *tree) counts(ctx context.Context) (treeCounts, error) {
	c := treeCounts{MS: time.Since(t.begin).Milliseconds()}
	guard := t.guards[0]
	for _, u := range t.users {
		figures, err := guard.Usage(ctx, core.Attempt{Actor: budget.Path(u.path...)})
		if err != nil {
			return c, err
		}
		for _, f := range figures { // there are none while it is paused: the last ones stay
			name := f.Path[len(f.Path)-1]
			if len(f.Path) == 1 {
				name = "acme"
			}
			t.nodes[name].Used, t.nodes[name].Max = f.Used, f.Max
		}
	}
	decided, err := guard.Overrides(ctx, core.Attempt{Actor: budget.Path(t.org)})
	if err != nil {
		return c, err
	}
	for _, d := range decided {
		if len(d.Limits) > 0 {
			c.RaisedMS = max(time.Until(d.Until).Milliseconds(), 0)
		}
		c.Paused = c.Paused || d.Paused
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c.All = t.flooding["bob"]
	t.tellUsers(&c)
	return c, nil
}

// tellUsers fills in what the users have counted.
func (t *tree) tellUsers(c *treeCounts) {
	now, hits := time.Now(), map[string]string{}
	for name, u := range t.users {
		if name == "ann" {
			c.Allowed, c.Refused, c.Answer = u.allowed, u.refused, u.last
		} else {
			c.Others += u.refused
		}
		if u.until.Before(now) {
			continue
		}
		hits[name] = u.hit
		switch u.hit {
		case "org":
			hits["acme"] = u.hit
		case "team", "paused":
			hits[u.path[1]] = u.hit
		}
	}
	c.Hit = hits["ann"]
	for _, b := range branches {
		node := *t.nodes[b.Name]
		node.Hit = hits[b.Name]
		c.Nodes = append(c.Nodes, node)
	}
}

// changeTree is a button of the page, for the run that goes on.
func (d *demo) changeTree(w http.ResponseWriter, r *http.Request) {
	t := d.instance().tree.Load()
	if t == nil {
		http.Error(w, "Nobody floods now.", http.StatusConflict)
		return
	}
	if err := t.change(r.Context(), r.PathValue("what"), r.FormValue("on") == "true"); err != nil {
		unavailable(w)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// change turns something on or off. One process is told of it, and all obey.
func (t *tree) change(ctx context.Context, what string, on bool) error {
	guard, ann := t.guards[1], core.Attempt{Actor: budget.Path(t.org, "web", "ann")}
	web := core.Attempt{Actor: budget.Path(t.org, "web")}
	t.mu.Lock()
	if ends := time.Now().Add(t.quiet); ends.Before(t.begin.Add(longestRun * 9 / 10)) {
		t.ends = ends
	}
	for name := range t.users {
		if what == "all" && name != "ann" {
			t.flooding[name] = on
		}
	}
	t.mu.Unlock()
	switch {
	case what == "all":
		return nil
	case what == "raise" && on:
		return guard.Override(ctx, ann, []budget.Limit{{Max: raisedUnits, Window: t.span}},
			time.Now().Add(t.hour), "sue", "launch day")
	case what == "raise":
		return guard.Override(ctx, ann, nil, time.Time{}, "sue", "taken back")
	case on:
		return guard.Pause(ctx, web, time.Time{}, "sue", "a key leaked")
	}
	return guard.Resume(ctx, web, "sue", "new key")
}
